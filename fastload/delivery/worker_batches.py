"""One pass over any Dataset by worker processes: tasks out, batches in slots back."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import pickle
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import IterDataPipe, MapDataPipe, _DatasetKind, default_collate
from torch.utils.data.dataloader import _BaseDataLoaderIter, _sharding_worker_init_fn

from fastload._native import core
from fastload.delivery import pin
from fastload.delivery.batch_steps import Key
from fastload.delivery.course import attach
from fastload.delivery.transfer import Moved, Moving, Transfer
from fastload.errors import ArgumentError, ClosedError, LoaderTimeout
from fastload.sampling import Replica
from fastload.workers import rows
from fastload.workers.child import Job
from fastload.workers.envelope import opened, unpack
from fastload.workers.processes import Pool
from fastload.workers.seeding import blas_libraries
from fastload.workers.slots import Slot, Slots


@dataclass
class Task:
    """One batch under way.

    Attributes:
        number: counts up over all epochs of the workers.
        at: its number in its pass, for state_dict().
        index: what the sampler gave.
        worker: who makes it; None: whoever is free.
        slot: what it was given to be written into.
        left: rows that are not made yet, where several workers make them.
        strings: by row, what of those rows is no tensor.
        replica: where the worker's iterable dataset stood afterwards, if it told.
        made: a callable that gives the batch, or raises; None while under way.
    """

    number: int
    index: Any
    at: int = 0
    worker: int | None = None
    slot: Slot | None = None
    ticket: int = -1
    left: int = 0
    strings: dict[int, list[Any]] = field(default_factory=dict)
    error: tuple[int, ExceptionWrapper] | None = None
    odd: bool = False
    replica: Replica | None = None
    made: Callable[[], Any] | None = None


@dataclass
class WorkerCounts:
    """What the workers of a loader have done; shared by its iterators."""

    batches: int = 0
    samples: int = 0
    bytes: int = 0
    envelope_batches: int = 0
    envelope_bytes: int = 0
    python_seconds: float = 0.0
    collate_seconds: float = 0.0
    restarts: int = 0
    slow: list[tuple[Any, float]] = field(default_factory=list)

    def told(self, body: int, needed: int, told: tuple[float, float, float, Any, int]) -> None:
        """Adds one worker's account of one batch, or of its part of one."""
        python, collate, slowest, key, by_value = told
        self.python_seconds += python
        self.collate_seconds += collate
        self.bytes += needed
        if by_value or body > ENVELOPE_LEAST:
            self.envelope_batches += 1
            self.envelope_bytes += body
        if slowest > 0 and (len(self.slow) < SLOW_KEPT or slowest > self.slow[-1][1]):
            self.slow.append((key, slowest))
            self.slow.sort(key=lambda each: -each[1])
            del self.slow[SLOW_KEPT:]


SLOW_KEPT = 10
"""Slowest samples that are remembered."""
ENVELOPE_LEAST = 4096
"""Bytes of pickle from which a batch counts as one that did not fit its slot."""
TICKETS = 4
"""Tickets per batch in flight: a worker may come late by that many rounds."""
OVERSIZE = 4
"""A free slot that many times larger than the largest of the last batches is let go."""


class WorkerIterator(_BaseDataLoaderIter):
    """Iterates one epoch, or, with persistent workers, one epoch after another.

    1. It draws from the generators as torch's iterator does: base_seed, then the sampler's own.
    2. By default batch k is made by worker k mod N, and a worker's batches in turn, so that a seeded run repeats. With seed_by="sample" all
       workers fill the rows of the oldest batch; with in_order=False whoever is free takes the next batch.
    3. A batch's tensors view its slot and hold its lease. See fastload._native's NOTE [ shared slots: lifetimes ].
    4. A worker's exception is raised when its batch's turn comes, and the batches after it stay deliverable. A worker's death closes the
       iterator; the loader starts new workers when it is iterated again.
    """

    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        self._persistent = loader.persistent_workers
        self._in_order = loader.in_order
        self._depth = loader.prefetch_factor * self._num_workers
        if self._depth <= 0:
            raise AssertionError("prefetch_factor must be greater than 0 for worker processes")
        self._by_sample = loader.seed_by == "sample"
        if self._by_sample and self._dataset_kind != _DatasetKind.Map:
            raise ArgumentError('seed_by="sample" needs indices: an IterableDataset has none')
        self._shared = self._by_sample or (not self._in_order and self._dataset_kind == _DatasetKind.Map)
        self._rowwise = self._by_sample and self._auto_collation and self._collate_fn is default_collate
        self._passes = 0
        self._attach(loader)
        self._counts: WorkerCounts = loader._worker_counts
        self._use(loader._moving())
        self._slots = Slots(self._depth + self._ahead + 2, pin.register if pin.wanted(self._moving.pin, self._moving.device) else None)
        self._sizes: deque[int] = deque([1], maxlen=64)
        self._layout: rows.Layout | None = None
        self._tasks: dict[int, Task] = {}
        self._queue: deque[Task] = deque()
        self._moved: deque[tuple[Task, Moved | BaseException]] = deque()
        self._failure: BaseException | None = None  # of workers, heard of while batches before it were still to be had
        self._numbers = itertools.count()
        self._tickets = itertools.count(1)
        self._made_slots = itertools.count(1)
        self._sampled_out = False
        self._closed = False
        self._torn = False
        self._samples = 0  # in the batch that the loop has last
        self._ended = False  # everything was delivered
        self._pid = os.getpid()
        context = loader.multiprocessing_context or torch.multiprocessing
        if context.get_start_method() == "fork":
            blas_libraries()
        me = weakref.ref(self)
        self._pool = Pool(context, self._num_workers, TICKETS * self._depth, self._job(loader), lambda n: _held(me(), n))
        with self._pool.together():
            self._fill()

    def _use(self, moving: Moving) -> None:
        """Begins a pass whose batches go that way. Only a device's own queue works ahead: elsewhere steps would keep the loop waiting."""
        self._moving = moving
        self._transfer = Transfer(moving)
        self._ahead = moving.ahead if moving.device is not None and moving.device.type == "cuda" else 0

    def _attach(self, loader: Any) -> None:
        """Begins the loader's course, or goes on where its resumed one stands."""
        self._course = course = attach(self, loader, self._num_workers if self._dataset_kind == _DatasetKind.Iterable else 0)
        if course.resumed:
            self._passes = course.passes
        course.passes = self._passes
        self._seeds = (int(self._base_seed), loader.epoch - 1) if loader.seed is None else (loader.seed, loader.epoch - 1)
        self._turn = course.turn
        self._active = [not each.ended for each in course.replicas] or [True] * self._num_workers

    def _job(self, loader: Any) -> Job:
        init_fn = loader.worker_init_fn
        if isinstance(self._dataset, IterDataPipe | MapDataPipe):
            init_fn = functools.partial(_sharding_worker_init_fn, init_fn, self._world_size, self._rank)
        return Job(
            dataset=self._dataset,
            kind=self._dataset_kind,
            auto_collation=self._auto_collation,
            drop_last=self._drop_last,
            collate_fn=self._collate_fn,
            init_fn=init_fn,
            base_seed=int(self._base_seed),
            shared_seed=self._shared_seed,
            sample_seed=self._sample_seed(loader),
            rowwise=self._rowwise,
            parent=os.getpid(),
            workers=self._num_workers,
            replicas=tuple(self._course.replicas) if self._course.batches else (),
            batch_size=loader.batch_size or 1,
        )

    def _sample_seed(self, loader: Any) -> tuple[int, int] | None:
        if not self._by_sample:
            return None
        if loader.seed is not None:
            return loader.seed, loader.epoch - 1
        self._passes += 1
        return int(self._base_seed), self._passes - 1

    @property
    def _workers(self) -> list[Any]:
        """The processes, as people who look at torch's iterator expect to find them."""
        return [] if self._closed else self._pool.processes

    @property
    def closed(self) -> bool:
        """No worker serves this iterator any more."""
        return self._closed or self._pid != os.getpid()

    @property
    def usable(self) -> bool:
        """It can begin another epoch."""
        return not (self.closed or self._torn)

    # NOTE [ worker batches: torn steps ]
    # An exception out of a signal's handler (Ctrl-C, an alarm) may come between any two lines, such as when a message is taken in and
    # not yet noted: what then waits for it waits for ever. So `_torn` is set while a step changes who owes what, and cleared where all
    # is in order again; an iterator found torn serves nobody any more.

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        """The next epoch of persistent workers. What is under way for the one before is waited for, as torch does, and thrown away."""
        self._torn = True
        self._queue.clear()
        self._moved.clear()
        while True:
            for task in [task for task in self._tasks.values() if task.made is not None]:
                self._forget(task)
            if not self._tasks:
                break
            self._listen(list(range(self._num_workers)), None if self._timeout == 0 else self._timeout)
        super()._reset(loader, first_iter)
        self._use(loader._moving())
        self._attach(loader)
        self._sampled_out = self._ended = False
        with self._pool.together():
            self._send_all(("epoch", self._shared_seed, self._sample_seed(loader)))
            self._fill()
        self._torn = False

    # ---- tasks out

    def _fill(self) -> None:
        depth = self._depth + self._ahead
        while not self._sampled_out and len(self._queue) + len(self._moved) < depth and any(self._active):
            try:
                index = self._next_index()  # type: ignore[no-untyped-call]
            except StopIteration:
                self._sampled_out = True
                return
            except BaseException:
                self._torn = False  # the sampler's own failure, or an end in the middle of it: nothing was changed yet
                raise
            task = Task(next(self._numbers), index, self._course.at)
            self._tasks[task.number] = task
            self._queue.append(task)
            try:
                self._dispatch(task)
            except BaseException:  # a batch that nobody makes must not be waited for
                self.close()
                raise

    def _dispatch(self, task: Task) -> None:
        if self._slots.dropped:
            self._send_all(("drop", self._slots.dropped))
            self._slots.dropped = []
        if self._layout is not None and not task.odd and len(task.index):
            self._dispatch_rows(task, self._layout)
            return
        least = self._usual()
        if not self._shared:
            task.worker = self._next_active()
            task.slot = self._slots.take(least, task.worker, most=OVERSIZE * max(self._sizes))
            slot = None if task.slot is None else task.slot.number
            self._pool.send(task.worker, ("task", task.number, task.index, slot, least))
            return
        task.slot = self._slots.take(least, most=OVERSIZE * max(self._sizes))
        self._share(task.slot)
        slot = None if task.slot is None else task.slot.number
        self._send_all(("first", task.number, self._open_ticket(task), task.index, slot, least))

    def _usual(self) -> int:
        """Bytes of a slot that all but the largest tenth of the last batches fit into, in steps of an eighth, so that it is steady."""
        sizes = sorted(self._sizes)
        size = sizes[len(sizes) - 1 - len(sizes) // 10]
        step = 1 << max(12, size.bit_length() - 4)
        return -(-size // step) * step

    def _next_active(self) -> int:
        """In order, the next worker in turn that is not exhausted; else the one with least to do."""
        if not self._in_order:
            busy = Counter(task.worker for task in self._queue if task.made is None)
            return min((n for n in range(self._num_workers) if self._active[n]), key=lambda n: busy[n])
        while not self._active[self._turn]:
            self._turn = (self._turn + 1) % self._num_workers
        turn = self._turn
        self._turn = (turn + 1) % self._num_workers
        return turn

    def _dispatch_rows(self, task: Task, layout: rows.Layout) -> None:
        size = layout.bytes(len(task.index))
        self._sizes.append(size)
        task.slot = self._slots.take(size, most=OVERSIZE * max(self._sizes))
        if task.slot is None:
            number = next(self._made_slots) * (self._num_workers + 1) + self._num_workers
            task.slot = self._slots.add(number, core.SharedSlot(size), set())
        self._share(task.slot)
        task.left = len(task.index)
        task.strings = {}
        self._send_all(("rows", task.number, self._open_ticket(task), task.index, task.slot.number))

    def _open_ticket(self, task: Task) -> int:
        task.ticket = next(self._tickets) % 2**32
        self._pool.control.open_ticket(task.ticket)
        return task.ticket

    def _share(self, slot: Slot | None) -> None:
        """Sees that every worker has mapped the slot."""
        if slot is None:
            return
        for number in range(self._num_workers):
            if number not in slot.known:
                self._pool.send(number, ("slot", slot.number), (slot.memory.fd,))
                slot.known.add(number)
        slot.memory.release_fd()  # so that batches that are held take no file descriptor

    def _send_all(self, message: Any) -> None:
        pickled = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        for number in range(self._num_workers):
            self._pool.send_bytes(number, pickled)

    # ---- batches back

    def _next_data(self) -> Any:
        if self._pid != os.getpid():
            raise ClosedError(f"this iterator's workers belong to process {self._pid}: iterate the loader anew in this process")
        if self._torn:
            self.close()
            raise ClosedError("an exception from outside cut short what this iterator was doing: iterate the loader anew")
        self._torn = True
        deadline = time.monotonic() + self._timeout if self._timeout > 0 else None
        while True:
            if self._moved:
                ahead, moved = self._moved.popleft()
                self._take(ahead)
                return self._deliver(moved)
            self._raise_failure()
            task = self._take_ready()
            if task is not None:
                self._take(task)
                self._finish(task)
                moved = self._moved.popleft()[1]
                self._move_ahead()
                return self._deliver(moved)
            if not self._queue:
                self._torn = False
                if self._closed and not self._ended:
                    raise ClosedError("this iterator's workers were closed before its end: iterate the loader anew")
                self._ended = True
                self._course.end()
                if not self._persistent:
                    self.close()
                raise StopIteration
            front = self._queue[0].worker
            ours = [front] if self._in_order and front is not None else list(range(self._num_workers))
            self._listen(ours, None if deadline is None else max(0.0, deadline - time.monotonic()))

    def _take_ready(self) -> Task | None:
        if self._in_order:
            return self._queue.popleft() if self._queue and self._queue[0].made is not None else None
        for at, task in enumerate(self._queue):
            if task.made is not None:
                del self._queue[at]
                return task
        return None

    def _finish(self, task: Task) -> None:
        """Makes the batch of a task that is ready, and moves it. What goes wrong there is raised at its turn."""
        made, task.made = task.made, None
        assert made is not None
        self._torn = False
        try:
            self._moved.append((task, self._transfer.put(made, functools.partial(self._key, task))))
        except BaseException as error:
            if not isinstance(error, Exception):
                raise
            self._moved.append((task, error))
        finally:
            self._forget(task)
        self._torn = True

    def _key(self, task: Task) -> Key:
        seed, epoch = self._seeds
        return Key(seed, epoch, task.at, task.index if self._dataset_kind == _DatasetKind.Map else None)

    def _move_ahead(self) -> None:
        """Moves what is ready behind the batch that was asked for, as far as that goes without waiting."""
        while len(self._moved) < self._ahead and self._queue:
            task = self._take_ready()
            if task is not None:
                self._finish(task)
            elif not self._hear():
                return

    def _hear(self) -> bool:
        """Takes in one message that is there; False when there is none, or when the workers fail, which is raised at its turn."""
        try:
            received = self._pool.receive(list(range(self._num_workers)), 0.0)
        except BaseException as error:
            kept = self._moved.copy()
            self.close()
            self._moved, self._failure = kept, error
            return False
        if received is not None:
            self._take_in(*received)
        return received is not None

    def _take(self, task: Task) -> None:
        """This batch is the next that the loop has: another is pulled in its place."""
        self._samples = len(task.index) if self._auto_collation else 1
        self._course.take(task.at, self._samples, task.worker if self._course.replicas else None, task.replica)
        if self._closed:
            return
        try:
            self._fill()
        except BaseException:
            self._forget(task)
            raise

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _deliver(self, moved: Moved | BaseException) -> Any:
        self._torn = False
        if isinstance(moved, BaseException):
            raise moved
        self._counts.batches += 1
        self._counts.samples += self._samples
        batch = self._transfer.get(moved)
        self._course.deliver()
        return batch

    def _forget(self, task: Task) -> None:
        self._tasks.pop(task.number, None)
        if task.slot is not None:
            task.slot.busy = False
            task.slot = None

    def _listen(self, workers: list[int], timeout: float | None) -> None:
        """Takes in one message. Whatever goes wrong here ends the workers."""
        try:
            received = self._pool.receive(workers, timeout)
            if received is None:
                raise LoaderTimeout(self._late())
        except BaseException:
            self.close()
            raise
        self._take_in(*received)

    def _take_in(self, message: Any, fds: Any) -> None:
        what, worker, number, *rest = message
        getattr(self, f"_on_{what}")(worker, self._tasks.get(number), *rest, *fds)

    def _late(self) -> str:
        task = self._queue[0] if self._queue else next(iter(self._tasks.values()))
        who = "every worker" if task.worker is None else f"worker {task.worker} (pid {self._pool.workers[task.worker].pid})"
        return (
            f"DataLoader timed out after {self._timeout} seconds: {who} has not finished the batch of indices "
            f"{_shown(task.index)}. Raise timeout=, or look at what the dataset does there"
        )

    def _on_done(
        self, worker: int, task: Task | None, slot: int | None, needed: int, body: bytes | int, told: Any, fd: int | None = None
    ) -> None:
        self._counts.told(body if isinstance(body, int) else len(body), needed, told)
        self._sizes.append(needed)
        given = None if task is None else task.slot
        if fd is not None and slot is not None:
            memory = core.SharedSlot(fd=fd)
            if given is not None:
                given.busy = False
            given = self._slots.add(slot, memory, {worker})
            if self._shared:
                self._share(given)
            else:
                memory.release_fd()  # nobody else will want it
        if task is None:
            if given is not None:
                given.busy = False
            return
        task.slot = given
        task.made = functools.partial(_unpacked, None if given is None else given.memory, needed, body)

    def _on_replica(self, worker: int, task: Task | None, replica: Replica) -> None:
        if task is not None:
            task.replica = replica

    def _on_error(self, worker: int, task: Task | None, error: ExceptionWrapper) -> None:
        if task is not None:
            task.made = error.reraise

    def _on_end(self, worker: int, task: Task | None) -> None:
        """A worker's replica of an iterable dataset is exhausted: what else it was told to make will not come."""
        self._active[worker] = False
        for theirs in [t for t in self._tasks.values() if t.worker == worker and t.made is None]:
            self._forget(theirs)
            with contextlib.suppress(ValueError):
                self._queue.remove(theirs)
        if self._queue or not self._persistent:
            self._fill()

    def _on_layout(self, worker: int, task: Task | None, layout: rows.Layout) -> None:
        if self._layout is None:
            self._layout = layout
            self._send_all(("layout", layout))

    def _on_part(
        self,
        worker: int,
        task: Task | None,
        ticket: int,
        count: int,
        strings: Any,
        odd: bool,
        error: tuple[int, ExceptionWrapper] | None,
        told: Any,
    ) -> None:
        self._counts.told(0, 0, told)
        if task is None or task.ticket != ticket or self._layout is None:
            return
        task.left -= count
        task.odd |= odd
        task.strings.update(strings)
        if error is not None and (task.error is None or error[0] < task.error[0]):
            task.error = error
        if task.left:
            return
        if task.error is not None:
            task.made = task.error[1].reraise
        elif task.odd:  # unlike the first sample: one worker collates the whole of it
            self._slots_free(task)
            self._dispatch(task)
        else:
            assert task.slot is not None
            self._counts.bytes += self._layout.bytes(len(task.index))
            ordered = [task.strings[row] for row in sorted(task.strings)]
            task.made = functools.partial(_built, task.slot.memory, self._layout, len(task.index), ordered)

    def _slots_free(self, task: Task) -> None:
        if task.slot is not None:
            task.slot.busy = False
            task.slot = None

    def progress(self) -> dict[str, int]:
        """For the health report: batches that are ready, and how many are in flight at most, and the slots."""
        ready = sum(task.made is not None for task in self._queue)
        return {"ready": ready, "depth": self._depth, "slots": len(self._slots.all), "slot_bytes": self._slots.bytes}

    def close(self) -> None:
        """Ends the workers; idempotent. Batches handed out stay valid."""
        self._closed = True
        self._pool.close()
        if self._pid == os.getpid():
            self._tasks.clear()
            self._queue.clear()
            self._moved.clear()
            self._slots.all.clear()

    _shutdown_workers = close  # by the name that people call on torch's iterator


def _unpacked(memory: core.SharedSlot | None, needed: int, body: bytes | int) -> Any:
    if isinstance(body, bytes):
        return unpack(body, memory)
    assert memory is not None
    with memoryview(memory) as view, view[needed - body : needed] as envelope:
        return unpack(envelope, memory)


def _built(memory: core.SharedSlot, layout: rows.Layout, count: int, strings: list[list[Any]]) -> Any:
    with opened(memory):
        return rows.batch_of(layout, count, strings)


def _held(iterator: WorkerIterator | None, worker: int) -> tuple[Any, ...]:
    """The indices of the batch that a worker was at."""
    for task in iterator._queue if iterator is not None else ():
        if task.made is None and task.worker in (worker, None):
            if isinstance(task.index, list | tuple):
                return tuple(task.index)
            return () if task.index is None else (task.index,)
    return ()


def _shown(index: Any) -> str:
    text = repr(index)
    return text if len(text) <= 80 else text[:77] + "..."
