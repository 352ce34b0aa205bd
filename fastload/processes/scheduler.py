"""Worker processes and their slots, as one iterator has them: tasks out, messages in."""

from __future__ import annotations

import functools
import itertools
import pickle
import weakref
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch._utils import ExceptionWrapper

from fastload._native import core
from fastload.bad_samples import Counts, Lost, Policy
from fastload.packed_view import Draws
from fastload.processes import messages
from fastload.processes import row_collate as rows
from fastload.processes.job import Job
from fastload.processes.pool import Pool
from fastload.processes.serialization import opened, unpack
from fastload.processes.slots import Slot, Slots
from fastload.resume.dataset_state import DatasetState


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
        replica: where the worker's copy of the dataset stood afterwards, if it told.
        lost: the rows that on_error left out or replaced.
        empty: no row is left.
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
    replica: DatasetState | None = None
    lost: Lost | None = None
    empty: bool = False
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

    def add(self, body: int, needed: int, report: messages.WorkerReport) -> None:
        """Adds a worker's report of one batch, or of its part of one: `body` bytes of pickle, `needed` bytes of its slot."""
        python, collate, slowest, key, by_value = report
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
    """What is counted over all epochs of a loader: samples that on_error replaced or skipped, and what worker processes did."""

    losses: Counts = field(default_factory=Counts)
    workers: WorkerCounts = field(default_factory=WorkerCounts)


SLOW_KEPT = 10
"""Slowest samples that are remembered."""
ENVELOPE_LEAST = 4096
"""Bytes of pickle from which a batch counts as one that did not fit its slot."""
TICKETS = 4
"""Tickets per batch in flight: a worker may come late by that many rounds."""
OVERSIZE = 4
"""A free slot that many times larger than the largest of the last batches is let go."""


@dataclass(frozen=True)
class Schedule:
    """How tasks find workers.

    Attributes:
        depth: batches that workers may be at, at once.
        keep: free slots that are kept.
        shared: whoever is free takes a task, instead of the worker whose turn it is.
        in_order: batches are handed out in the order of the tasks.
    """

    depth: int
    keep: int
    shared: bool
    in_order: bool


class TaskScheduler:
    """The workers of one iterator, their slots, and what is under way.

    1. dispatch() sends a task out; take_in() notes a message, which may set some task's `made`; forget() ends a task.
    2. `ended` is called with the tasks that a worker will not make, because its replica of an iterable dataset is exhausted.
    3. `begun` has, by worker, where its dataset stood as another epoch began; `ends` where it stood when it was exhausted.
    """

    def __init__(
        self,
        context: Any,
        job: Job,
        schedule: Schedule,
        counts: WorkerCounts,
        prepare: Callable[[core.SharedSlot], object] | None,
        ended: Callable[[list[Task]], None],
    ) -> None:
        self._schedule = schedule
        self._counts = counts
        self._ended = ended
        self._workers = job.workers
        self.slots = Slots(schedule.keep, prepare)
        self.sizes: deque[int] = deque([1], maxlen=64)
        self.tasks: dict[int, Task] = {}
        self.active = [True] * job.workers
        self.turn = 0
        self.begun: dict[int, DatasetState | None] = {}
        self.ends: dict[int, DatasetState] = {}
        self._layout: rows.Layout | None = None
        self._tickets = itertools.count(1)
        self._made_slots = itertools.count(1)
        me = weakref.ref(self)
        self.pool = Pool(context, job.workers, TICKETS * schedule.depth, job, lambda number: _indices_at(me(), number))

    def begin(self, shared_seed: int | None, sample_seed: tuple[int, int] | None, draws: Draws | None, policy: Policy) -> None:
        """Another epoch of the same workers."""
        self.begun.clear()
        self.ends.clear()
        self._send_all(messages.BeginEpoch(shared_seed, sample_seed, draws, policy))

    def forget(self, task: Task) -> None:
        """Nothing more is expected of this task; its slot is free once nobody views it."""
        self.tasks.pop(task.number, None)
        _free_slot(task)

    def take_in(self, message: Any, fds: Any) -> None:
        """Notes a worker's message."""
        task = self.tasks.get(message.batch)
        if isinstance(message, messages.BatchDone):
            self._batch_done(message, task, *fds)
        else:
            _HANDLERS[type(message)](self, message, task)

    def close(self) -> None:
        """Ends the workers and forgets what was under way, in the process that made them; idempotent. Batches handed out stay valid."""
        self.pool.close()
        self.tasks.clear()
        self.slots.all.clear()

    # ---- tasks out

    def dispatch(self, task: Task) -> None:
        """Sends a task to whoever makes it, with a slot to write into where one is free."""
        self.tasks[task.number] = task
        if self.slots.dropped:
            self._send_all(messages.DropSlots(self.slots.dropped))
            self.slots.dropped = []
        if self._layout is not None and not task.odd and len(task.index):
            self._dispatch_rows(task, self._layout)
            return
        least = self._usual()
        if not self._schedule.shared:
            task.worker = self._next_active()
            task.slot = self.slots.take(least, task.worker, most=OVERSIZE * max(self.sizes))
            slot = None if task.slot is None else task.slot.number
            self.pool.send(task.worker, messages.MakeBatch(task.number, task.index, slot, least))
            return
        task.slot = self.slots.take(least, most=OVERSIZE * max(self.sizes))
        self._share(task.slot)
        slot = None if task.slot is None else task.slot.number
        self._send_all(messages.OfferBatch(self._open_ticket(task), messages.MakeBatch(task.number, task.index, slot, least)))

    def _usual(self) -> int:
        """Bytes of a slot that all but the largest tenth of the last batches fit into, in steps of an eighth, so that it is steady."""
        sizes = sorted(self.sizes)
        size = sizes[len(sizes) - 1 - len(sizes) // 10]
        step = 1 << max(12, size.bit_length() - 4)
        return -(-size // step) * step

    def _next_active(self) -> int:
        """In order, the next worker in turn that is not exhausted; else the one with least to do."""
        if not self._schedule.in_order:
            busy = Counter(task.worker for task in self.tasks.values() if task.made is None)
            return min((n for n in range(self._workers) if self.active[n]), key=lambda n: busy[n])
        while not self.active[self.turn]:
            self.turn = (self.turn + 1) % self._workers
        turn = self.turn
        self.turn = (turn + 1) % self._workers
        return turn

    def _dispatch_rows(self, task: Task, layout: rows.Layout) -> None:
        size = layout.bytes(len(task.index))
        self.sizes.append(size)
        task.slot = self.slots.take(size, most=OVERSIZE * max(self.sizes))
        if task.slot is None:
            number = next(self._made_slots) * (self._workers + 1) + self._workers
            task.slot = self.slots.add(number, core.SharedSlot(size), set())
        self._share(task.slot)
        task.left = len(task.index)
        task.strings = {}
        self._send_all(messages.OfferRows(task.number, self._open_ticket(task), task.index, task.slot.number))

    def _open_ticket(self, task: Task) -> int:
        task.ticket = next(self._tickets) % 2**32
        self.pool.control.open_ticket(task.ticket)
        return task.ticket

    def _share(self, slot: Slot | None) -> None:
        """Sees that every worker has mapped the slot."""
        if slot is None:
            return
        for number in range(self._workers):
            if number not in slot.known:
                self.pool.send(number, messages.MapSlot(slot.number), (slot.memory.fd,))
                slot.known.add(number)
        slot.memory.release_fd()  # so that batches that are held take no file descriptor

    def _send_all(self, message: Any) -> None:
        pickled = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        for number in range(self._workers):
            self.pool.send_bytes(number, pickled)

    # ---- messages in

    def _batch_done(self, message: messages.BatchDone, task: Task | None, fd: int | None = None) -> None:
        slot, needed, body = message.slot, message.needed, message.body
        self._counts.add(body if isinstance(body, int) else len(body), needed, message.report)
        self.sizes.append(needed)
        given = None if task is None else task.slot
        if fd is not None and slot is not None:
            memory = core.SharedSlot(fd=fd)
            if given is not None:
                given.busy = False
            given = self.slots.add(slot, memory, {message.worker})
            if self._schedule.shared:
                self._share(given)
            else:
                memory.release_fd()  # nobody else will want it
        if task is None:
            if given is not None:
                given.busy = False
            return
        task.slot = given
        task.made = functools.partial(_unpacked, None if given is None else given.memory, needed, body)

    def _dataset_stands(self, message: messages.DatasetStands, task: Task | None) -> None:
        if task is not None:
            task.replica = message.state

    def _samples_lost(self, message: messages.SamplesLost, task: Task | None) -> None:
        if task is not None:
            task.lost = message.lost

    def _batch_empty(self, message: messages.BatchEmpty, task: Task | None) -> None:
        self._counts.add(0, 0, message.report)
        if task is not None:
            task.empty, task.made = True, _nothing

    def _batch_failed(self, message: messages.BatchFailed, task: Task | None) -> None:
        if task is not None:
            task.made = message.error.reraise

    def _epoch_begun(self, message: messages.EpochBegun, task: Task | None) -> None:
        self.begun[message.worker] = message.state

    def _dataset_ended(self, message: messages.DatasetEnded, task: Task | None) -> None:
        """A worker's iterable dataset is exhausted: what else it was told to make will not come."""
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
        self._counts.add(0, 0, message.report)
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
        elif task.odd:  # unlike the first sample: one worker collates the whole of it
            _free_slot(task)
            task.lost = None
            self.dispatch(task)
        elif kept == []:
            task.empty, task.made = True, _nothing
        else:
            assert task.slot is not None
            self._counts.bytes += self._layout.bytes(len(task.index))
            ordered = [task.strings[row] for row in sorted(task.strings)]
            task.made = functools.partial(_built, task.slot.memory, self._layout, len(task.index), ordered, kept)


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
"""By type of message. Not by bound methods in the scheduler: dropping the last reference to it must end the workers at once."""


def _unpacked(memory: core.SharedSlot | None, needed: int, body: bytes | int) -> Any:
    if isinstance(body, bytes):
        return unpack(body, memory)
    assert memory is not None
    with memoryview(memory) as view, view[needed - body : needed] as envelope:
        return unpack(envelope, memory)


def _nothing() -> None:
    """Made of a task without rows."""


def _built(memory: core.SharedSlot, layout: rows.Layout, count: int, strings: list[list[Any]], kept: list[int] | None) -> Any:
    with opened(memory):
        return rows.batch_of(layout, count, strings, kept)


def _free_slot(task: Task) -> None:
    if task.slot is not None:
        task.slot.busy = False
        task.slot = None


def _indices_at(crew: TaskScheduler | None, worker: int) -> tuple[Any, ...]:
    """The indices of the batch that a worker was at."""
    for task in crew.tasks.values() if crew is not None else ():
        if task.made is None and task.worker in (worker, None):
            if isinstance(task.index, list | tuple):
                return tuple(task.index)
            return () if task.index is None else (task.index,)
    return ()
