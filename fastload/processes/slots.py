"""The shared slots of worker processes: which workers have mapped each, and which may be filled again. Kept by the parent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fastload._native import core


@dataclass
class Slot:
    """One slot of shared memory.

    Attributes:
        number: its number in messages, never used twice.
        memory: the parent's mapping.
        known: the workers that have mapped it.
        busy: whether a batch is being written into it, or waits in it.
    """

    number: int
    memory: core.SharedSlot
    known: set[int] = field(default_factory=set)
    busy: bool = False


class Slots:
    """The slots of one set of workers.

    1. take() returns a slot only if no batch is in flight in it and no tensor views it: see NOTE [ shared slots: lifetimes ].
    2. `prepare` is called once with the memory of each slot, which it may pin.
    3. A slot is added when none is free. Free slots beyond `keep` are unmapped; `dropped` lists them for the workers.
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

    def add(self, number: int, memory: core.SharedSlot, known: set[int]) -> Slot:
        """Adds a new slot, marked busy."""
        if self._prepare is not None:
            self._prepare(memory)
        slot = self.all[number] = Slot(number, memory, known, busy=True)
        return slot

    def take(self, least: int, worker: int | None = None, most: int | None = None) -> Slot | None:
        """Returns a free slot, now busy, of `least` to `most` bytes, and mapped by `worker` if given; None if there is none.

        Free slots of other sizes are dropped.
        """
        best: Slot | None = None
        free = 0
        for slot in list(self.all.values()):
            memory = slot.memory
            if slot.busy or memory.leased or memory.cooling:
                continue
            if memory.retired or memory.bytes < least or (most is not None and memory.bytes > max(least, most)):
                self.drop(slot)
                continue
            free += 1
            if free > self.keep:
                self.drop(slot)
            elif (worker is None or worker in slot.known) and (best is None or memory.bytes < best.memory.bytes):
                best = slot
        if best is not None:
            best.busy = True
        return best

    def drop(self, slot: Slot) -> None:
        """Drops a slot; leases of it stay valid."""
        if self.all.pop(slot.number, None) is not None:
            self.dropped.append(slot.number)
