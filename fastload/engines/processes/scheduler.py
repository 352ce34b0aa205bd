"""TaskScheduler: sends the batches of one iterator to its workers as tasks, and handles the workers'
messages. It keeps the shared slots: the workers that have mapped each, and those slots that may be filled
again.
"""

from __future__ import annotations

import functools
import itertools
import pickle
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.batch.bad_samples import Lost, Policy
from fastload.dataset.copies import DrawBasis
from fastload.engines.iterator import LossCounts
from fastload.engines.processes import messages
from fastload.engines.processes import row_collate as rows
from fastload.engines.processes.messages import Job
from fastload.engines.processes.pool import Pool
from fastload.engines.processes.serialization import opened, unpack
from fastload.engines.processes.worker_errors import RaisedInWorker
from fastload.engines.resume.datasets import DatasetState
from fastload.health import tracing
from fastload.lazy.counts import LazyCounts


@dataclass
class Slot:
    """One slot of shared memory, in the parent.

    Attributes:
        number: its number in messages, never used twice.
        memory: the parent's mapping.
        busy: True if a batch is being written into it, or waits in it; a worker may have chosen it besides
            if it is `offered`.
    """

    number: int
    memory: core.SharedSlot
    busy: bool = True
    offered: bool = False

    @property
    def idle(self) -> bool:
        """True if no batch that the parent knows is in it, and nothing looks at its memory."""
        return not (self.busy or self.memory.leased or self.memory.cooling)

    def claim(self) -> bool:
        """Takes an idle slot back. False if a worker has chosen it."""
        if self.offered:
            self.offered = not self.memory.accept()
        return not self.offered


class Slots:
    """The slots of one set of workers, in their parent.

    1. take() and offer() give out a slot only if no batch is in flight in it and no tensor views it. Who
       chooses among them: worker_slots.py.
    2. `prepare` is called once with the memory of each slot, which it may pin.
    3. `dropped` lists slots that are used no more, for the workers; `keep` is the most idle slots that take()
       keeps.
    """

    def __init__(self, keep: int, prepare: Callable[[core.SharedSlot], object] | None = None) -> None:
        self.keep = keep
        self._prepare = prepare
        self.all: dict[int, Slot] = {}
        self.dropped: list[int] = []

    @property
    def bytes(self) -> int:
        """Bytes of all slots together."""
        return sum(slot.memory.bytes for slot in self.all.values())

    def add(self, number: int, memory: core.SharedSlot) -> Slot:
        """Adds a new slot, marked busy."""
        if self._prepare is not None:
            self._prepare(memory)
        slot = self.all[number] = Slot(number, memory)
        return slot

    def filled(self, number: int) -> Slot:
        """The slot that a worker had chosen, and that a batch waits in."""
        slot = self.all[number]
        slot.busy, slot.offered = True, False
        return slot

    def offer(self) -> None:
        """Offers the idle slots to the workers."""
        for slot in list(self.all.values()):
            if slot.offered or not slot.idle:
                continue
            if slot.memory.retired:
                self.drop(slot)
            else:
                slot.offered = True
                slot.memory.offer()

    def take(self, least: int, most: int) -> Slot | None:
        """Returns an idle slot, now busy, of `least` to `most` bytes; None if there is none.

        Idle slots of other sizes are dropped, and those beyond `keep`.
        """
        kept: list[Slot] = []
        for slot in list(self.all.values()):
            memory = slot.memory
            if not slot.idle:
                continue
            if not memory.retired and least <= memory.bytes <= max(least, most) and len(kept) < self.keep:
                kept.append(slot)
            elif slot.claim():
                self.drop(slot)
        for slot in sorted(kept, key=lambda slot: slot.memory.bytes):
            if slot.claim():
                slot.busy = True
                return slot
        return None

    def drop(self, slot: Slot) -> None:
        """Drops a slot that is not offered; leases of it stay valid."""
        if self.all.pop(slot.number, None) is not None:
            self.dropped.append(slot.number)

    def forget(self, numbers: Iterable[int]) -> None:
        """Drops slots that a worker has taken in order to end them."""
        for number in numbers:
            self.drop(self.all[number])


@dataclass
class Task:
    """One batch in flight.

    Attributes:
        number: the task's number, counted over all epochs of the workers.
        at: the batch's number in its pass, for state_dict().
        index: the sampler's index or indices.
        occurrences: occurrence of each index; None: all are 0.
        worker: the worker that makes it; None: any free worker.
        slot: the slot that it lies in, or whose rows workers fill.
        left: rows not made yet, if several workers make them.
        strings: the strings of these rows, by row number.
        replica: the state of the worker's copy of the dataset after this batch, if the worker sent it.
        lost: the rows that on_error skipped or replaced.
        empty: True if no row is left.
        made: a callable that returns the batch, or raises its error; None while the batch is in flight.
    """

    number: int
    index: Any
    at: int = 0
    worker: int | None = None
    slot: Slot | None = None
    ticket: int = -1
    left: int = 0
    strings: dict[int, list[Any]] = field(default_factory=dict)
    error: tuple[int, RaisedInWorker] | None = None
    odd: bool = False
    replica: DatasetState | None = None
    lost: Lost | None = None
    empty: bool = False
    made: Callable[[], Any] | None = None
    occurrences: npt.NDArray[np.uint32] | None = None

    @property
    def listed(self) -> list[int] | None:
        """The occurrences, for a message."""
        return None if self.occurrences is None else self.occurrences.tolist()


@dataclass
class WorkerCounts:
    """Counters of the work of a loader's workers, shared by its iterators."""

    batches: int = 0
    samples: int = 0
    bytes: int = 0
    envelope_batches: int = 0
    envelope_bytes: int = 0
    python_seconds: float = 0.0
    collate_seconds: float = 0.0
    restarts: int = 0
    slow: list[tuple[Any, float]] = field(default_factory=list)
    images: LazyCounts = field(default_factory=LazyCounts)

    def add(self, body: int, needed: int, report: messages.WorkerReport) -> None:
        """Adds a worker's report of one batch, or of its part of one: `body` bytes of pickle, `needed`
        bytes of its slot."""
        python, collate, slowest, key, by_value, images, _, _ = report
        if images is not None:
            self.images.add(images)
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


@dataclass
class LoaderCounters:
    """Counters over all epochs of a loader: samples that on_error replaced or skipped, and the work of its
    worker processes."""

    losses: LossCounts = field(default_factory=LossCounts)
    workers: WorkerCounts = field(default_factory=WorkerCounts)


SLOW_KEPT = 10
"""Slowest samples that are kept."""
ENVELOPE_LEAST = 4096
"""Bytes of pickle from which a batch counts as pickled: too little of it could be placed in its slot."""
TICKETS = 4
"""Tickets per batch in flight: a worker may claim a ticket that many rounds late."""
OVERSIZE = 4
"""A free slot is unmapped if it is more than this many times as large as the largest recent batch."""


@dataclass(frozen=True)
class Schedule:
    """Settings of the distribution of tasks to workers.

    Attributes:
        depth: most batches in flight at once.
        keep: most free slots that are kept.
        shared: True if any free worker takes a task; False if only the worker whose turn it is does.
        in_order: True if batches are delivered in the order of the tasks.
    """

    depth: int
    keep: int
    shared: bool
    in_order: bool


class TaskScheduler:
    """The workers of one iterator, their slots, and the tasks in flight.

    1. dispatch() sends a task out; take_in() handles a message, which may set some task's `made`; forget()
       ends a task.
    2. `ended` is called with the tasks that a worker will not make, because its copy of an iterable dataset
       is exhausted.
    3. `begun` holds, by worker, the state of its dataset when another epoch began; `ends` the state when the
       dataset was exhausted.
    """

    def __init__(
        self,
        context: object,
        job: Job,
        schedule: Schedule,
        counts: WorkerCounts,
        indexes: core.SharedIndexes | None,
        prepare: Callable[[core.SharedSlot], object] | None,
        ended: Callable[[list[Task]], None],
    ) -> None:
        self._schedule = schedule
        self._counts = counts
        self._ended = ended
        self._workers = job.workers
        self.slots = Slots(schedule.keep, prepare)
        self.sizes: deque[int] = deque([0], maxlen=64)
        self.tasks: dict[int, Task] = {}
        self.active = [True] * job.workers
        self.turn = 0
        self.begun: dict[int, DatasetState | None] = {}
        self.ends: dict[int, DatasetState] = {}
        self._layout: rows.SampleLayout | None = None
        self._tickets = itertools.count(1)
        self._made_slots = itertools.count(1)
        me = weakref.ref(self)
        self.pool = Pool(
            context, TICKETS * schedule.depth, job, indexes, lambda number: _indices_at(me(), number)
        )
        self._traced = job.traced

    def begin(
        self,
        shared_seed: int | None,
        sample_seed: tuple[int, int] | None,
        draws: DrawBasis | None,
        policy: Policy,
    ) -> None:
        """Begins another epoch of the same workers."""
        self.begun.clear()
        self.ends.clear()
        self.slots.offer()
        self._send_all(messages.BeginEpoch(shared_seed, sample_seed, draws, policy))

    def forget(self, task: Task) -> None:
        """Ends a task. Its slot is free once no tensor views it."""
        self.tasks.pop(task.number, None)
        _free_slot(task)

    def take_in(self, message: Any, fds: Any) -> None:
        """Handles a worker's message."""
        task = self.tasks.get(message.batch)
        if isinstance(message, messages.BatchDone):
            self._batch_done(message, task, *fds)
        else:
            _HANDLERS[type(message)](self, message, task)

    def close(self) -> None:
        """Ends the workers, in the process that started them, and drops all tasks; idempotent. Delivered
        batches stay valid."""
        self.pool.close()
        self.tasks.clear()
        self.slots.all.clear()

    # ---- tasks out

    def dispatch(self, task: Task) -> None:
        """Sends a task to the worker or workers that make it."""
        self.tasks[task.number] = task
        if self._traced != (tracing.active is not None):
            self._traced = not self._traced
            self._send_all(messages.TraceStages(self._traced))
        if self.slots.dropped:
            self._send_all(messages.DropSlots(self.slots.dropped))
            self.slots.dropped = []
        if self._layout is not None and not task.odd and len(task.index):
            self._dispatch_rows(task, self._layout)
            return
        message = messages.MakeBatch(task.number, task.index, self._usual(), self._most(), task.listed)
        if self._schedule.shared:
            self._send_all(messages.OfferBatch(self._open_ticket(task), message))
        else:
            task.worker = self._next_active()
            self.pool.send(task.worker, message)

    def _most(self) -> int:
        """Bytes of the largest slot that is worth keeping."""
        return OVERSIZE * max(self.sizes)

    def _usual(self) -> int:
        """Bytes of a slot that all but the largest tenth of recent batches fit into, rounded up so that it
        is steady."""
        sizes = sorted(self.sizes)
        size = sizes[len(sizes) - 1 - len(sizes) // 10]
        step = 1 << max(12, size.bit_length() - 4)
        return -(-size // step) * step

    def _next_active(self) -> int:
        """The worker for the next task: in order, the next in turn that is not exhausted; else the one
        with the fewest tasks."""
        if not self._schedule.in_order:
            busy = Counter(task.worker for task in self.tasks.values() if task.made is None)
            return min((n for n in range(self._workers) if self.active[n]), key=lambda n: busy[n])
        while not self.active[self.turn]:
            self.turn = (self.turn + 1) % self._workers
        turn = self.turn
        self.turn = (turn + 1) % self._workers
        return turn

    def _dispatch_rows(self, task: Task, layout: rows.SampleLayout) -> None:
        size = layout.bytes(len(task.index))
        self.sizes.append(size)
        task.slot = self.slots.take(size, self._most()) or self._shared_slot(size)
        task.left = len(task.index)
        task.strings = {}
        self._send_all(
            messages.OfferRows(
                task.number, self._open_ticket(task), task.index, task.slot.number, task.listed
            )
        )

    def _open_ticket(self, task: Task) -> int:
        task.ticket = next(self._tickets) % 2**32
        self.pool.control.open_ticket(task.ticket)
        return task.ticket

    def _shared_slot(self, size: int) -> Slot:
        number = next(self._made_slots) * (self._workers + 1) + self._workers
        return self._added(number, core.SharedSlot(size), None)

    def _added(self, number: int, memory: core.SharedSlot, maker: int | None) -> Slot:
        """A new slot, which every worker maps but the one that made it."""
        for worker in range(self._workers):
            if worker != maker:
                self.pool.send(worker, messages.MapSlot(number), (memory.fd,))
        memory.release_fd()  # so that batches held by the caller take no file descriptor
        return self.slots.add(number, memory)

    def _send_all(self, message: object) -> None:
        pickled = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        for number in range(self._workers):
            self.pool.send_bytes(number, pickled)

    # ---- messages in

    def _batch_done(self, message: messages.BatchDone, task: Task | None, fd: int | None = None) -> None:
        needed, body = message.needed, message.body
        self._count(message, body if isinstance(body, int) else len(body), needed)
        self.sizes.append(needed)
        slot = None if message.slot is None else self._filled(message.slot, message.worker, fd)
        if task is None:
            if slot is not None:
                slot.busy = False
            return
        task.slot = slot
        task.made = functools.partial(_unpacked, None if slot is None else slot.memory, needed, body)

    def _filled(self, number: int, worker: int, fd: int | None) -> Slot:
        """The slot that a worker has filled, which is a new one if its descriptor came along."""
        return (
            self.slots.filled(number) if fd is None else self._added(number, core.SharedSlot(fd=fd), worker)
        )

    def _count(
        self,
        message: messages.BatchDone | messages.BatchEmpty | messages.RowsDone,
        body: int = 0,
        needed: int = 0,
    ) -> None:
        self._counts.add(body, needed, message.report)
        self.slots.forget(message.report.ended_slots)
        self._record(message.worker, message.report.traced)

    def _record(self, worker: int, traced: tracing.Taken | None) -> None:
        if traced is not None and tracing.active is not None:
            tracing.active.take_in(self.pool.workers[worker].pid, f"fastload worker {worker}", traced)

    def _dataset_stands(self, message: messages.DatasetStands, task: Task | None) -> None:
        if task is not None:
            task.replica = message.state

    def _samples_lost(self, message: messages.SamplesLost, task: Task | None) -> None:
        if task is not None:
            task.lost = message.lost

    def _batch_empty(self, message: messages.BatchEmpty, task: Task | None) -> None:
        self._count(message)
        if task is not None:
            task.empty, task.made = True, _nothing

    def _batch_failed(self, message: messages.BatchFailed, task: Task | None) -> None:
        self._record(message.worker, message.traced)
        if task is not None:
            task.made = message.error.reraise

    def _epoch_begun(self, message: messages.EpochBegun, task: Task | None) -> None:
        self.begun[message.worker] = message.state

    def _dataset_ended(self, message: messages.DatasetEnded, task: Task | None) -> None:
        """Ends the tasks of a worker whose iterable dataset is exhausted: it will not make them."""
        self.ends[message.worker] = message.state
        self.active[message.worker] = False
        theirs = [each for each in self.tasks.values() if each.worker == message.worker and each.made is None]
        for each in theirs:
            self.forget(each)
        self._ended(theirs)

    def _layout_found(self, message: messages.LayoutFound, task: Task | None) -> None:
        if self._layout is None:
            self._layout = message.layout
            self._send_all(messages.UseLayout(message.layout))

    def _rows_done(self, message: messages.RowsDone, task: Task | None) -> None:
        self._count(message)
        if task is None or task.ticket != message.ticket or self._layout is None:
            return
        task.left -= message.rows
        task.odd |= message.odd
        task.strings.update(message.strings)
        error, lost = message.error, message.lost
        if error is not None and (task.error is None or error[0] < task.error[0]):
            task.error = error
        if lost is not None:
            task.lost = task.lost or Lost()
            task.lost.merge(lost)
        if task.left:
            return
        kept = task.lost.kept(len(task.index)) if task.lost is not None and task.lost.skipped else None
        if task.error is not None:
            task.made = task.error[1].reraise
        elif task.odd:  # a row is unlike the first sample: one worker collates the whole batch
            _free_slot(task)
            task.lost = None
            self.dispatch(task)
        elif kept == []:
            task.empty, task.made = True, _nothing
        else:
            assert task.slot is not None
            self._counts.bytes += self._layout.bytes(len(task.index))
            ordered = [task.strings[row] for row in sorted(task.strings)]
            task.made = functools.partial(
                _built, task.slot.memory, self._layout, len(task.index), ordered, kept
            )


_HANDLERS: dict[type, Callable[[TaskScheduler, Any, Task | None], None]] = {
    messages.BatchEmpty: TaskScheduler._batch_empty,
    messages.BatchFailed: TaskScheduler._batch_failed,
    messages.SamplesLost: TaskScheduler._samples_lost,
    messages.DatasetStands: TaskScheduler._dataset_stands,
    messages.DatasetEnded: TaskScheduler._dataset_ended,
    messages.EpochBegun: TaskScheduler._epoch_begun,
    messages.LayoutFound: TaskScheduler._layout_found,
    messages.RowsDone: TaskScheduler._rows_done,
}
"""Handlers by type of message. They are no bound methods kept in the scheduler, whose last reference must
end the workers at once."""


def _unpacked(memory: core.SharedSlot | None, needed: int, body: bytes | int) -> object:
    if isinstance(body, bytes):
        return unpack(body, memory)
    assert memory is not None
    with memoryview(memory) as view, view[needed - body : needed] as envelope:
        return unpack(envelope, memory)


def _nothing() -> None:
    """`made` of a task without rows."""


def _built(
    memory: core.SharedSlot,
    layout: rows.SampleLayout,
    count: int,
    strings: list[list[Any]],
    kept: list[int] | None,
) -> Any:
    with opened(memory):
        return rows.batch_of(layout, count, strings, kept)


def _free_slot(task: Task) -> None:
    if task.slot is not None:
        task.slot.busy = False
        task.slot = None


def _indices_at(scheduler: TaskScheduler | None, worker: int) -> tuple[Any, ...]:
    """The indices of the batch that a worker was making."""
    for task in scheduler.tasks.values() if scheduler is not None else ():
        if task.made is None and task.worker in (worker, None):
            if isinstance(task.index, list | tuple):
                return tuple(task.index)
            return () if task.index is None else (task.index,)
    return ()
