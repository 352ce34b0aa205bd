"""FetchLoop: the one thread of a process that fetches. It runs an asyncio loop that serves all datasets in
buckets."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from typing_extensions import TypeVarTuple, Unpack

from fastload.common.forks import call_in_children
from fastload.common.signals import SIGNALS_S
from fastload.errors import ClosedError
from fastload.remote.requests import HeldRoom

R = TypeVar("R")
Ts = TypeVarTuple("Ts")

_END_S = 5.0
"""Seconds to wait for the end of the thread, or of a call in it."""
# Guards the two below and the count of users; reentrant: garbage collection may close a session in any line
_lock = threading.RLock()
_loop: FetchLoop | None = None
_inherited: list[
    FetchLoop
] = []  # loops of parents, kept alive: collected in a child, asyncio would warn of loops left open


class FetchLoop:
    """A thread that runs an asyncio loop. It belongs to the process that made it, and ends with its last
    user: see `acquire`.

    Attributes:
        room: room in memory for the bytes that passes hold.
    """

    def __init__(self) -> None:
        self.room = HeldRoom()
        self.pid = os.getpid()
        self.users = 0
        self.loop = asyncio.new_event_loop()
        self._ends: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, name="fastload-fetch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()

    def call(self, function: Callable[[Unpack[Ts]], object], *arguments: Unpack[Ts]) -> None:
        """Schedules a call of a function in the thread. Raises ClosedError in another process, or after
        the thread's end."""
        if self.pid != os.getpid():
            raise ClosedError("this process fetches nothing any more: open the dataset again")
        try:
            self.loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            raise ClosedError(
                "this process fetches nothing any more: it ends, or the dataset was closed"
            ) from None

    def submit(
        self, function: Callable[[Unpack[Ts]], Awaitable[R]], *arguments: Unpack[Ts]
    ) -> concurrent.futures.Future[R]:
        """Awaits the function's result in the thread; cancelling the future cancels the await. Raises
        ClosedError as `call`."""
        begun: list[concurrent.futures.Future[R]] = []

        async def run() -> R:
            try:
                return await function(*arguments)
            except Exception:
                if begun and begun[0].cancelled():  # asyncio would print an exception that nobody retrieves
                    raise asyncio.CancelledError from None
                raise
            except (
                KeyboardInterrupt,
                SystemExit,
            ) as error:  # raised by a user's callback; out of a task it would end the loop
                raise _CarriedError(error) from None

        awaited = run()
        try:
            if self.pid == os.getpid():
                begun.append(asyncio.run_coroutine_threadsafe(awaited, self.loop))
                return begun[0]
        except RuntimeError:
            pass
        awaited.close()
        raise ClosedError("this process fetches nothing any more: it ends, or the dataset was closed")

    def finish(
        self,
        function: Callable[[Unpack[Ts]], list[asyncio.Task[None]]],
        *arguments: Unpack[Ts],
        wait: bool,
    ) -> None:
        """Calls a function in the thread, or here if the thread has ended; it cancels tasks of the thread,
        and returns them.

        `wait`: waits, at most _END_S, until it and the tasks have ended; then the thread refers to nothing of
        them any more. In the thread itself the function is called at once with `wait`, else after what runs
        there: a destructor may run in any line of it.
        """
        done = threading.Event()

        def run() -> None:
            nonlocal function, arguments
            tasks: list[asyncio.Task[None]] = []
            try:
                tasks += function(*arguments)
            finally:
                del function, arguments
                if tasks and threading.current_thread() is self._thread:
                    end = self.loop.create_task(_ended(tasks, done))
                    self._ends.add(end)
                    end.add_done_callback(self._ends.discard)
                else:
                    done.set()

        if wait and threading.current_thread() is self._thread:
            return run()
        try:
            self.call(run)
        except ClosedError:
            return run()
        if wait:
            done.wait(_END_S)

    @property
    def running(self) -> bool:
        """True if the thread still runs, in this process."""
        return self.pid == os.getpid() and self._thread.is_alive()

    def stop(self, wait: bool) -> None:
        """Ends the thread; requests under way are cancelled."""
        if self.running:
            try:
                self.loop.call_soon_threadsafe(self._begin_end)
            except RuntimeError:  # the loop is already closed
                pass
            if wait and threading.current_thread() is not self._thread:
                self._thread.join(_END_S)

    def _begin_end(self) -> None:
        self._ending = self.loop.create_task(self._end())

    async def _end(self) -> None:
        """Cancels all tasks and waits for their ends; then stops the loop."""
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_END_S / 2)
        self.loop.stop()


async def _ended(tasks: list[asyncio.Task[None]], done: threading.Event) -> None:
    """Sets `done` once the tasks have ended, and what their frames referred to is free."""
    await asyncio.wait(tasks, timeout=_END_S / 2)
    tasks.clear()
    done.set()


def acquire() -> FetchLoop:
    """The loop of this process, made for its first user. Each user calls `release` once."""
    global _loop
    with _lock:
        found = _loop
        if found is not None:
            found.users += 1
            if found.running:
                return found
            if found.pid != os.getpid():
                _inherited.append(found)
        found = FetchLoop()
        found.users = 1
        _loop = found
        return found


def release(loop: FetchLoop, wait: bool) -> None:
    """Ends one use of a loop; the last one ends the loop."""
    global _loop
    if loop.pid != os.getpid():
        return
    with _lock:
        loop.users -= 1
        last = loop.users <= 0
        if last and _loop is loop:
            _loop = None
    if last:
        loop.stop(wait)


@contextmanager
def in_use() -> Iterator[FetchLoop]:
    """Context manager: the loop of this process, in use during the block."""
    loop = acquire()
    try:
        yield loop
    finally:
        release(loop, wait=False)


def result_of(function: Callable[[Unpack[Ts]], Awaitable[R]], *arguments: Unpack[Ts]) -> R:
    """Awaits the function's result on the loop of this process, and returns it. Ctrl-C ends the wait and
    cancels the await.

    A blocking call in native code would hold Ctrl-C back until it returns, and could not be cancelled.
    """
    with in_use() as loop:
        future = loop.submit(function, *arguments)
        try:
            while not future.done():
                concurrent.futures.wait((future,), SIGNALS_S)
            return future.result()
        except _CarriedError as carried:
            raise carried.error from None
        except BaseException:
            future.cancel()
            raise


class _CarriedError(Exception):
    """Carries KeyboardInterrupt or SystemExit to the caller: no asyncio task may end with one of them."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(repr(error))
        self.error = error


def _at_exit() -> None:
    if _loop is not None:
        _loop.stop(wait=True)


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()


atexit.register(_at_exit)
call_in_children(_after_fork)
