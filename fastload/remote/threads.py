"""Threads for blocking calls: LimitedThreads, whose results are waited for within a limit, and request_threads, which end with a client."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from fastload.errors import ClosedError
from fastload.remote.objects import Objects

R = TypeVar("R")

MOST_LOST = 32


class LimitedThreads:
    """A few threads for blocking calls that nothing can cancel.

    A call that outlasts its caller's patience keeps its thread, and another thread takes that one's place; after MOST_LOST of them
    no further one does. Threads are daemons: a call that never returns does not keep the program from ending, as concurrent.futures'
    threads would. Once it is closed no call is taken: nobody would run it.
    """

    def __init__(self, count: int, name: str) -> None:
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._count = count
        self._name = name
        self._lock = threading.Lock()  # guards what follows, and that nothing is queued behind the end
        self._closed = False
        self._started = 0
        self._lost = 0

    def submit(self, call: Callable[[], R]) -> Future[R]:
        """Starts a call as soon as a thread is free. Raises ClosedError after close()."""
        future: Future[R] = Future()
        with self._lock:
            if self._closed:
                raise ClosedError(f"the threads {self._name} were closed")
            start = self._started < self._count + self._lost
            self._started += start
            self._calls.put((future, call))
        if start:
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
        return future

    def give_up(self, future: Future[Any]) -> None:
        """Says that nobody waits for a call any more."""
        if not future.cancel() and not future.done():
            with self._lock:
                self._lost = min(self._lost + 1, MOST_LOST)

    def close(self) -> None:
        """Ends the threads after the calls that they were given."""
        with self._lock:
            self._closed = True
            for _ in range(self._started):
                self._calls.put(None)

    def _run(self) -> None:
        while (item := self._calls.get()) is not None:
            future, call = item
            del item
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:
                    future.set_exception(error)
            del future, call


@contextmanager
def request_threads(objects: Objects, count: int, name: str) -> Iterator[ThreadPoolExecutor]:
    """Threads that call a client's blocking methods.

    An exception in the block, Ctrl-C among them, closes the client: its calls then end at once, whether the server answers or not.
    """
    with ThreadPoolExecutor(count, name) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            objects.close()
            raise
