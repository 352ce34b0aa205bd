"""WorkerSlots: the shared memory that batches lie in, as one worker keeps and chooses it.

NOTE [ slots: who chooses ]
A worker that makes a whole batch chooses its slot: see NOTE [ batch memory: the slot is chosen late ]. The
parent offers every slot whose batch is gone, and no earlier: see fastload._native's NOTE [ shared slots:
lifetimes ]. If the slot were chosen when the batch is sent out, it would wait behind the batches before, full
of nothing. If it belonged to one worker, it would wait for that one while others made new slots.
A worker makes a slot when none is offered. All others map it, and its pages when they first choose it: of
slots alike, a worker prefers those that it has touched. It ends one that it did without for SPARED batches in
a row, and waits twice as long each time that a slot is missed which was so ended: to make one takes a large
part of the time of a batch.
A slot whose rows all workers fill is chosen by the parent, when the batch is sent out.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

from fastload._native import core

SPARED = 16
"""Batches in a row that a worker makes beside another slot that is offered, before it first unmaps one."""


@dataclass
class WorkerSlot:
    """One slot of shared memory, in a worker.

    Attributes:
        fresh: True if it was made here, and the parent does not know it yet.
        touched: True if its pages are mapped in this process.
    """

    number: int
    memory: core.SharedSlot
    fresh: bool = False
    touched: bool = False

    @property
    def references(self) -> int:
        """References to its memory: this object's, and one of each tensor and array that views it."""
        return sys.getrefcount(self.memory)

    @property
    def viewed(self) -> bool:
        """True while a tensor or an array views its memory in this process, whoever holds it."""
        return self.references > _REFERENCES


_REFERENCES = WorkerSlot(0, cast(Any, object())).references
"""`WorkerSlot.references` of memory that nothing views."""


class WorkerSlots:
    """The slots of all workers, in one of them. See NOTE [ slots: who chooses ].

    1. choose() and make() give slots for a batch; sent() tells in which it was sent.
    2. end_batch() gives the others back, when nothing reads them any more.

    Args:
        numbers: numbers for new slots, which no other process uses.
        keep: most offered slots that are kept.
        pinned: the parent pins slots, which takes long: none is ended for not being needed.
    """

    def __init__(self, numbers: itertools.count[int], keep: int, pinned: bool) -> None:
        self._numbers, self._keep, self._pinned = numbers, keep, pinned
        self._all: dict[int, WorkerSlot] = {}
        self._taken: list[WorkerSlot] = []  # for the batch that is being made
        self._ended: list[int] = []
        self._spared = 0  # batches in a row made beside an offered slot
        self._patience = SPARED
        self._unmapped = False  # a slot was ended as not needed, and none made since
        self._last = 0  # bytes of the slot made last

    def map(self, number: int, fd: int) -> None:
        """Maps a slot that another process made; takes its descriptor."""
        slot = WorkerSlot(number, core.SharedSlot(fd=fd, sparse=True))
        slot.memory.release_fd()
        self._all[number] = slot

    def memory_of(self, number: int) -> core.SharedSlot:
        """The memory of a slot that the parent chose."""
        return self._all[number].memory

    def choose(self, least: int, most: int) -> WorkerSlot | None:
        """The slot for a batch; None if nothing is known of its size.

        Args:
            least: bytes that recent batches took; 0: the parent knows of none.
            most: bytes from which on a slot is not worth keeping.
        """
        fit: list[WorkerSlot] = []
        for slot in [slot for slot in self._all.values() if slot.memory.offered]:
            if (not least or least <= slot.memory.bytes <= max(least, most)) and len(fit) < self._keep:
                fit.append(slot)
            else:
                self._end(slot)
        fit.sort(key=lambda slot: (slot.memory.bytes, not slot.touched))
        chosen = next((slot for slot in fit if slot.memory.accept()), None)
        self._count(next((slot for slot in reversed(fit) if slot.memory.offered), None))
        if chosen is not None:
            chosen.touched = True
            self._taken.append(chosen)
        elif least or self._last:
            chosen = self.make(least or self._last)
        return chosen

    def make(self, size: int) -> WorkerSlot:
        """A new slot."""
        slot = WorkerSlot(next(self._numbers), core.SharedSlot(size), fresh=True, touched=True)
        self._last = size
        if self._unmapped:
            self._unmapped = False
            self._patience *= 2
        self._all[slot.number] = slot
        self._taken.append(slot)
        return slot

    def copy_of(self, slot: WorkerSlot, size: int) -> WorkerSlot:
        """A new slot with the first `size` bytes of another."""
        made = self.make(slot.memory.bytes)
        memoryview(made.memory)[:size] = memoryview(slot.memory)[:size]
        return made

    def sent(self, slot: WorkerSlot) -> None:
        """Tells of the slot that the parent was sent, with the descriptor of a fresh one."""
        self._taken.remove(slot)
        if slot.fresh:
            slot.fresh = False
            slot.memory.release_fd()

    def end_batch(self) -> None:
        """Gives back the slots that were not sent. Nobody fills one that the program's code still views."""
        taken, self._taken = self._taken, []
        for slot in taken:
            if slot.fresh or slot.viewed:
                del self._all[slot.number]
                self._ended += [] if slot.fresh else [slot.number]
            else:
                slot.memory.offer()

    def drop(self, numbers: Iterable[int]) -> None:
        """Unmaps slots that are used no more."""
        for number in numbers:
            self._all.pop(number, None)

    def take_ended(self) -> list[int]:
        """The numbers of slots that were ended here since the last call, for the parent."""
        ended, self._ended = self._ended, []
        return ended

    def _count(self, spare: WorkerSlot | None) -> None:
        """Counts a batch that was begun beside an offered slot, and at last ends that."""
        self._spared = 0 if spare is None or self._pinned else self._spared + 1
        if spare is not None and self._spared >= self._patience:
            self._spared, self._unmapped = 0, True
            self._end(spare)

    def _end(self, slot: WorkerSlot) -> None:
        if slot.memory.accept():
            del self._all[slot.number]
            self._ended.append(slot.number)
