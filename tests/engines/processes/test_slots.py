"""The set of slots: which slot a batch gets, which are kept, and which are dropped."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fastload._native import core
from fastload.engines.processes.scheduler import Slot, Slots
from fastload.engines.processes.serialization import Arena, BatchPickler, unpack

# Python 3.12 and later warn of a fork beside threads.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class SlotsMachine(RuleBasedStateMachine):
    """Batches are made, held, dropped; processes fork: no slot is handed out that is leased, busy,
    retired, too small or unknown."""

    @initialize(keep=st.integers(1, 4))
    def begin(self, keep: int) -> None:
        self.slots = Slots(keep)
        self.numbers = 0
        self.busy: list[Slot] = []
        self.held: list[tuple[Slot, Any]] = []
        self.retired: set[int] = set()
        self.told_dropped: set[int] = set()

    @rule(
        least=st.integers(1, 40_000),
        worker=st.none() | st.integers(0, 1),
        most=st.none() | st.integers(1, 60_000),
    )
    def take(self, least: int, worker: int | None, most: int | None) -> None:
        slot = self.slots.take(least, worker, most)
        if slot is None:
            self.numbers += 1
            slot = self.slots.add(
                self.numbers, core.SharedSlot(least), {0, 1} if worker is None else {worker}
            )
        else:
            assert slot.memory.bytes >= least
            assert worker is None or worker in slot.known
            assert most is None or slot.memory.bytes <= max(least, most)
        assert slot.busy
        assert not slot.memory.leased
        assert not slot.memory.retired
        assert slot.number not in self.retired
        assert all(slot is not other for other in self.busy)
        assert all(slot is not other for other, _ in self.held)
        free = [s for s in self.slots.all.values() if not s.busy and not s.memory.leased]
        assert len(free) <= self.slots.keep
        self.busy.append(slot)

    @precondition(lambda self: self.busy)
    @rule(data=st.data(), hold=st.booleans())
    def deliver(self, data: st.DataObject, hold: bool) -> None:
        slot = self.busy.pop(data.draw(st.integers(0, len(self.busy) - 1)))
        envelope = BatchPickler().pack(torch.full((8,), slot.number), Arena(slot.memory))
        batch = unpack(envelope, slot.memory)
        slot.busy = False
        if hold:
            self.held.append((slot, batch))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))

    @rule()
    def fork(self) -> None:
        if (pid := os.fork()) == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        self.retired |= {slot.number for slot, _ in self.held}

    @rule()
    def tell(self) -> None:
        self.told_dropped |= set(self.slots.dropped)
        self.slots.dropped = []

    @invariant()
    def held_batches_are_intact(self) -> None:
        for slot, batch in getattr(self, "held", []):
            assert slot.memory.leased
            assert torch.equal(batch, torch.full((8,), slot.number))

    @invariant()
    def every_slot_is_known_or_dropped_once(self) -> None:
        if hasattr(self, "slots"):
            pending = self.slots.dropped
            assert len(set(pending)) == len(pending)
            gone = self.told_dropped | set(pending)
            assert gone.isdisjoint(self.slots.all)
            assert gone | set(self.slots.all) == set(range(1, self.numbers + 1))
            assert self.slots.bytes == sum(slot.memory.bytes for slot in self.slots.all.values())


TestSlots = SlotsMachine.TestCase
TestSlots.settings = settings(max_examples=15, stateful_step_count=25)
