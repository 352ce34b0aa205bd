"""A thread that moves batches to their device as soon as their slots are ready, ahead of the loop.

NOTE [ ahead: who does what ]
The loop's thread pulls from the sampler and makes core.Batches, so that every draw happens where it would without a prefetcher; it puts
them here and takes transferred ones out. The thread here waits natively for the batch whose turn it is, and finishes it. Both submit, in
order, as slots come free. All that both touch is under `_changed`.
The thread holds the DevicePrefetcher but never the iterator that made it, so that dropping the iterator ends it. close() ends it within
one batch's work; the iterator's finalizer calls it, when the iterator goes or before the interpreter does. A forked child has no such
thread: there, everything raises ClosedError.

NOTE [ ahead: threads of torch's ops ]
An op on the CPU would take as many threads as there are CPUs, which the native threads are busy on, and wait for the slowest of them: on
two CPUs a loop with a colour jitter ran at less than a third of the speed that it has with one thread for each op. So ops here take as
many as the native threads leave, at least one. The number is OpenMP's for this thread; torch.set_num_threads would change it for others.
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
from fastload.errors import ClosedError, FastloadError, LoaderTimeout
from fastload.thread_limits import thread_libraries


@dataclass
class Waiting:
    """A batch that is not finished, or the error that it ended with. `submitted`: it has its slot."""

    number: int
    batch: core.Batch | Exception
    submitted: bool = False


@dataclass(frozen=True)
class Done:
    """A finished batch: its number and rows, and what `finish` made of it, or the error."""

    number: int
    rows: int
    result: Any
    error: BaseException | None = None


class DevicePrefetcher:
    """Batches in flight and moved ones, of one pass.

    1. put(), take() and close() are for the loop's thread.
    2. At most `depth` batches have slots here at once, at most `most` are finished or being finished and not taken.
    3. A batch's error is Done's, at its turn; those after it stay deliverable.

    Args:
        ring: of the batches' engine.
        finish: called in the thread with (number, batch); must not refer to the iterator.
        threads: that an op of torch may take there at most; None: any number.
    """

    def __init__(
        self,
        ring: core.Ring,
        depth: int,
        most: int,
        in_order: bool,
        finish: Callable[[int, core.Batch], Any],
        threads: int | None = None,
    ) -> None:
        self._ring = ring
        self._depth = depth
        self._most = most
        self._in_order = in_order
        self._finish = finish
        self._threads = threads
        self._changed = threading.Condition()
        self._waiting: deque[Waiting] = deque()
        self._done: deque[Done] = deque()
        self._busy = 0  # taken out of _waiting and not yet in _done
        self._closed = False
        self._stop = core.Stop()
        self._pid = os.getpid()
        self._thread = threading.Thread(target=_run, args=(self,), name="fastload-ahead", daemon=True)
        self._thread.start()

    @property
    def undelivered(self) -> int:
        """Batches put and not taken."""
        with self._changed:
            return len(self._waiting) + self._busy + len(self._done)

    def exhausted(self, ended: bool) -> bool:
        """Nothing is left to take. Raises ClosedError where that is for a close() before the pass had `ended`."""
        if not ended:
            self._check()
        return not self.undelivered

    @property
    def in_flight(self) -> int:
        """Batches that have a slot here."""
        with self._changed:
            return sum(each.submitted for each in self._waiting)

    def put(self, number: int, batch: core.Batch | Exception, submitted: bool = False) -> None:
        """Takes a batch in, behind the others."""
        self._check()
        with self._changed:
            self._waiting.append(Waiting(number, batch, submitted or isinstance(batch, Exception)))
            self._submit()
            self._changed.notify_all()

    def take(self, timeout: float) -> Done:
        """The next finished batch. Raises LoaderTimeout after `timeout` seconds (0: no limit), ClosedError."""
        self._check()
        deadline = time.monotonic() + timeout if timeout > 0 else None
        with self._changed:
            while not self._done:
                self._check()
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise LoaderTimeout(f"no batch became ready within {int(timeout * 1000)} ms")
                self._changed.wait(left)
            done = self._done.popleft()
            self._changed.notify_all()
            return done

    def _check(self) -> None:
        if self._pid != os.getpid():
            raise ClosedError(f"this loader's threads belong to process {self._pid}: iterate the loader anew in this process")
        if self._closed:
            raise ClosedError("the loader is closed")

    def close(self) -> None:
        """Ends the thread; idempotent. What was not taken is dropped."""
        if self._pid != os.getpid():
            return
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._stop.set(self._ring)
        if self._thread is not threading.current_thread():  # the collector may have dropped the iterator there
            self._thread.join()
        with self._changed:
            self._waiting.clear()
            self._done.clear()

    # ---- under _changed

    def _submit(self) -> None:
        """Gives slots to the first batches that have none, as far as depth goes."""
        free = self._depth - sum(each.submitted and isinstance(each.batch, core.Batch) for each in self._waiting)
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
        """Waits until a batch may be finished; the candidates, of which none has failed or one alone, or None at the end."""
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
    """The thread."""
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
    """See NOTE [ ahead: threads of torch's ops ]."""
    if threads < torch.get_num_threads():  # asked first: torch sets its own number when a thread first asks
        thread_libraries().limit(limits=threads, user_api="openmp")


def _done(ahead: DevicePrefetcher, picked: Waiting) -> Done:
    batch = picked.batch
    if isinstance(batch, Exception):
        return Done(picked.number, 0, None, batch)
    rows = batch.rows
    try:
        return Done(picked.number, rows, ahead._finish(picked.number, batch))
    except BaseException as error:  # the loop's to see, at its turn
        return Done(picked.number, rows, None, error)
