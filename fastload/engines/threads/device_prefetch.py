"""DevicePrefetcher: a thread that moves batches to their device, ahead of the loop, as soon as their slots
are ready.

NOTE [ ahead: who does what ]
The loop's thread draws from the sampler and makes core.Batch objects, so that every draw happens where it
would without a prefetcher. It puts them here, and takes transferred batches out. The prefetcher's thread
waits natively for the batch whose turn it is, and finishes it. Both submit batches, in order, as slots become
free. `_changed` guards all that both use. The thread refers to the DevicePrefetcher but never to the iterator
that made it, so that dropping the iterator ends the thread. close() ends it within the work on one batch; the
iterator's finalizer calls close() when the iterator is collected, or before the interpreter exits. A forked
child has no such thread: there, put() and take() raise ClosedError.

NOTE [ ahead: threads of torch's ops ]
By default an op on the CPU uses as many threads as there are CPUs, on which the native threads are busy, and
waits for the slowest of them. On two CPUs a loop with a colour jitter then ran at less than a third of the
speed that it has with one thread for each op. So ops here use as many threads as the native threads leave
CPUs, and at least one. The limit is OpenMP's for this thread only; torch.set_num_threads would change it for
other threads too.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from fastload._native import core
from fastload.engines.thread_limits import thread_libraries
from fastload.errors import ClosedError, FastloadError, LoaderTimeout


@dataclass
class Waiting:
    """A batch that is not finished yet, or the error that replaced it. `submitted`: whether it has a slot."""

    number: int
    batch: core.Batch | Exception
    submitted: bool = False


@dataclass(frozen=True)
class Done:
    """A finished batch: its number, its rows, and the result of `finish` or its error."""

    number: int
    rows: int
    result: Any
    error: BaseException | None = None


class DevicePrefetcher:
    """Moves the batches of one pass to their device in a thread, ahead of the loop.

    1. put(), take() and close() are for the loop's thread.
    2. At most `depth` batches here have slots at once; at most `most` are finished, or being finished, and
       not taken.
    3. A batch's error is returned in its Done, at the batch's turn; the batches after it stay deliverable.

    Args:
        ring: the ring of the engine that makes the batches.
        finish: called in the thread with (number, batch); must not refer to the iterator.
        threads: most threads that an op of torch may use there; None: any number.
        enter: called in the thread first.
    """

    def __init__(
        self,
        ring: core.Ring,
        depth: int,
        most: int,
        in_order: bool,
        finish: Callable[[int, core.Batch], Any],
        threads: int | None = None,
        enter: Callable[[], None] = lambda: None,
    ) -> None:
        self._ring = ring
        self._depth = depth
        self._most = most
        self._in_order = in_order
        self._finish = finish
        self._threads = threads
        self._enter = enter
        self._changed = threading.Condition()
        self._waiting: deque[Waiting] = deque()
        self._done: deque[Done] = deque()
        self._busy = 0  # batches taken out of _waiting and not yet in _done
        self._closed = False
        self._stop = core.Stop()
        self._pid = os.getpid()
        self._thread = threading.Thread(target=_run, args=(self,), name="fastload-ahead", daemon=True)
        self._thread.start()

    @property
    def undelivered(self) -> int:
        """Number of batches put and not taken yet."""
        with self._changed:
            return len(self._waiting) + self._busy + len(self._done)

    def exhausted(self, ended: bool) -> bool:
        """Returns True if no batch is left to take. Raises ClosedError if close() was called before the
        pass had `ended`."""
        if not ended:
            self._check()
        return not self.undelivered

    @property
    def in_flight(self) -> int:
        """Number of unfinished batches that were submitted or have failed."""
        with self._changed:
            return sum(each.submitted for each in self._waiting)

    def put(self, number: int, batch: core.Batch | Exception, submitted: bool = False) -> None:
        """Appends a batch to the queue."""
        self._check()
        with self._changed:
            self._waiting.append(Waiting(number, batch, submitted or isinstance(batch, Exception)))
            self._submit()
            self._changed.notify_all()

    def take(self, timeout: float) -> Done:
        """The next finished batch. Raises LoaderTimeout after `timeout` seconds (0: no limit), or
        ClosedError after close()."""
        self._check()
        deadline = time.monotonic() + timeout if timeout > 0 else None
        with self._changed:
            while not self._done:
                self._check()
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise LoaderTimeout.after(timeout)
                self._changed.wait(left)
            done = self._done.popleft()
            self._changed.notify_all()
            return done

    def _check(self) -> None:
        if self._pid != os.getpid():
            raise ClosedError(
                f"this loader's threads belong to process {self._pid}: iterate the loader anew in "
                "this process"
            )
        if self._closed:
            raise ClosedError("the loader is closed")

    def close(self) -> None:
        """Ends the thread; idempotent. Batches that were not taken are dropped."""
        if self._pid != os.getpid():
            return
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._stop.set(self._ring)
        # Garbage collection may drop the iterator in that thread.
        if self._thread is not threading.current_thread():
            self._thread.join()
        with self._changed:
            self._waiting.clear()
            self._done.clear()

    # ---- guarded by _changed

    def _submit(self) -> None:
        """Submits the first batches without a slot, until `depth` batches have one."""
        free = self._depth - sum(
            each.submitted and isinstance(each.batch, core.Batch) for each in self._waiting
        )
        for each in self._waiting:
            if free <= 0:
                return
            if not each.submitted:
                each.submitted = True
                free -= 1
                try:
                    assert isinstance(each.batch, core.Batch)
                    each.batch.submit()
                except (FastloadError, MemoryError, RuntimeError) as error:  # belongs to this batch
                    each.batch = error

    def _next(self) -> list[Waiting] | None:
        """Waits until a batch may be finished. Returns the candidates, of which a failed one is alone, or
        None after close()."""
        with self._changed:
            while not self._closed:
                candidates = [each for each in self._waiting if each.submitted]
                if candidates and len(self._done) < self._most:
                    failed = [each for each in candidates if isinstance(each.batch, Exception)]
                    return candidates[:1] if self._in_order else failed[:1] or candidates
                self._changed.wait()
        return None

    def _out(self, picked: Waiting) -> None:
        with self._changed:
            self._waiting.remove(picked)
            self._busy = 1
            self._submit()

    def _in(self, done: Done) -> None:
        with self._changed:
            self._busy = 0
            self._done.append(done)
            self._changed.notify_all()


def _run(ahead: DevicePrefetcher) -> None:
    """The thread's main loop."""
    ahead._enter()
    if ahead._threads is not None:
        _take_at_most(ahead._threads)
    while (candidates := ahead._next()) is not None:
        try:
            batches = [each.batch for each in candidates if isinstance(each.batch, core.Batch)]
            which = core.wait_any(batches, 0, ahead._stop) if batches else 0
        except FastloadError as error:
            which, candidates[0].batch = 0, error
        if which < 0:
            return
        picked = candidates[which]
        ahead._out(picked)
        ahead._in(_done(ahead, picked))
        del picked, candidates, batches


def _take_at_most(threads: int) -> None:
    """Limits the threads of torch's ops in this thread. See NOTE [ ahead: threads of torch's ops ]."""
    if threads < torch.get_num_threads():  # ask torch first: its first call in a thread sets the number
        thread_libraries().limit(limits=threads, user_api="openmp")


def _done(ahead: DevicePrefetcher, picked: Waiting) -> Done:
    batch = picked.batch
    if isinstance(batch, Exception):
        return Done(picked.number, 0, None, batch)
    rows = batch.samples
    try:
        return Done(picked.number, rows, ahead._finish(picked.number, batch))
    except BaseException as error:  # raised in the loop, at this batch's turn
        return Done(picked.number, rows, None, error)
