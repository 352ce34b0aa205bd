"""FetchLoop: the one thread of a process that fetches; an asyncio loop, on which all datasets in buckets have their requests."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable
from typing import Any

from fastload.errors import ClosedError

_lock = threading.Lock()
_loop: FetchLoop | None = None


class FetchLoop:
    """A thread that runs an asyncio loop. It belongs to the process that made it; see `fetch_loop`."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="fastload-fetch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def call(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Calls a function in the thread, soon. Raises ClosedError in another process, or after the end."""
        if self.pid != os.getpid() or self.loop.is_closed():
            raise ClosedError("this process fetches nothing any more: open the dataset again")
        try:
            self.loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            raise ClosedError("this process fetches nothing any more: it ends") from None

    @property
    def running(self) -> bool:
        """Whether the thread can still do anything."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Ends the thread; what is being fetched is dropped."""
        if self.pid == os.getpid() and self._thread.is_alive():
            self.loop.call_soon_threadsafe(self._cancel)
            self._thread.join(5.0)

    def _cancel(self) -> None:
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        self.loop.call_soon(self.loop.stop)


def fetch_loop() -> FetchLoop:
    """The loop of this process, made on first use."""
    global _loop
    if _loop is None or _loop.pid != os.getpid():
        with _lock:
            if _loop is None or _loop.pid != os.getpid():
                _loop = FetchLoop()
    return _loop


def _at_exit() -> None:
    if _loop is not None:
        _loop.stop()


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_after_fork)
