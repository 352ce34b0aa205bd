"""The set of slots: which slot a batch gets, which are kept, and which are dropped."""

from __future__ import annotations

import itertools
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
from fastload.engines.processes.worker_slots import SPARED, WorkerSlots

# Python 3.12 and later warn of a fork beside threads.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class SlotsMachine(RuleBasedStateMachine):
    """Batches are made by the parent's choice and by two workers', held, dropped; processes fork: no slot
    is chosen twice, nor one that is leased, busy, retired or too small."""

    @initialize(keep=st.integers(1, 4))
    def begin(self, keep: int) -> None:
        self.slots = Slots(keep)
        self.workers = [
            WorkerSlots(itertools.count(3 + number, 3), keep, pinned=False) for number in range(2)
        ]
        self.numbers = itertools.count(5, 3)
        self.made = 0
        self.busy: list[Slot] = []
        self.held: list[tuple[Slot, Any]] = []
        self.retired: set[int] = set()
        self.gone: set[int] = set()

    def chosen(self, slot: Slot, least: int) -> None:
        assert slot.memory.bytes >= least
        assert slot.busy
        assert not slot.offered
        assert not slot.memory.offered
        assert not slot.memory.leased
        assert not slot.memory.retired
        assert slot.number not in self.retired
        assert all(slot is not other for other in self.busy)
        assert all(slot is not other for other, _ in self.held)
        self.busy.append(slot)

    def mapped(self, number: int, memory: core.SharedSlot, maker: int | None) -> None:
        self.made += 1
        for worker in range(2):
            if worker != maker:
                self.workers[worker].map(number, os.dup(memory.fd))
        self.slots.add(number, memory)

    @rule(least=st.integers(1, 40_000), most=st.integers(1, 60_000))
    def take(self, least: int, most: int) -> None:
        slot = self.slots.take(least, most)
        if slot is None:
            number = next(self.numbers)
            self.mapped(number, core.SharedSlot(least), None)
            slot = self.slots.all[number]
        else:
            assert slot.memory.bytes <= max(least, most)
        self.chosen(slot, least)

    @rule(worker=st.integers(0, 1), least=st.integers(1, 40_000), most=st.integers(1, 60_000))
    def choose(self, worker: int, least: int, most: int) -> None:
        slots = self.workers[worker]
        slot = slots.choose(least, most)
        assert slot is not None
        if slot.fresh:
            self.mapped(slot.number, core.SharedSlot(fd=os.dup(slot.memory.fd)), worker)
        slots.sent(slot)
        slots.end_batch()
        self.slots.forget(slots.take_ended())
        self.chosen(self.slots.filled(slot.number), least)

    @rule(worker=st.integers(0, 1), least=st.integers(1, 40_000))
    def fail(self, worker: int, least: int) -> None:
        """A worker chooses a slot, outgrows it, and fails."""
        slots = self.workers[worker]
        slots.choose(least, least)
        slots.make(2 * least)
        slots.end_batch()

    @rule()
    def offer(self) -> None:
        self.slots.offer()
        assert all(slot.busy or slot.offered or slot.memory.leased for slot in self.slots.all.values())

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
        self.gone |= set(self.slots.dropped)
        for worker in self.workers:
            worker.drop(self.slots.dropped)
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
            ended = [number for worker in self.workers for number in worker._ended]
            assert len(set(pending)) == len(pending)
            gone = self.gone | set(pending)
            assert gone.isdisjoint(self.slots.all)
            assert set(ended) <= set(self.slots.all)
            assert len(gone) + len(self.slots.all) == self.made
            assert self.slots.bytes == sum(slot.memory.bytes for slot in self.slots.all.values())


def test_a_worker_ends_what_it_does_without() -> None:
    """A slot that is offered beside the chosen one, batch after batch, is ended; the patience doubles
    each time that one is missed."""
    slots = WorkerSlots(itertools.count(3, 3), 4, pinned=False)
    two = [slots.make(4096), slots.make(4096)]
    for slot in two:
        slots.sent(slot)
        slot.memory.offer()

    def batches(count: int) -> list[int]:
        for _ in range(count):
            chosen = slots.choose(4096, 1 << 14)
            assert chosen is not None
            slots.sent(chosen)
            chosen.memory.offer()
        return slots.take_ended()

    assert batches(SPARED - 1) == []
    assert batches(1) == [6]
    slots.sent(slots.make(4096))
    list(slots._all.values())[-1].memory.offer()
    assert batches(2 * SPARED - 1) == []
    assert batches(1) == [9]


def test_a_slot_that_is_pinned_is_kept() -> None:
    """Where the parent pins, no slot is ended for not being needed."""
    slots = WorkerSlots(itertools.count(3, 3), 4, pinned=True)
    for slot in [slots.make(4096), slots.make(4096)]:
        slots.sent(slot)
        slot.memory.offer()
    for _ in range(3 * SPARED):
        chosen = slots.choose(4096, 1 << 14)
        assert chosen is not None
        slots.sent(chosen)
        chosen.memory.offer()
    assert slots.take_ended() == []


def test_one_of_many_accepts_an_offer() -> None:
    """Of processes that race for a slot, one gets it, each time."""
    slot = core.SharedSlot(4096)
    counts = torch.zeros(4, dtype=torch.int64).share_memory_()
    done = torch.zeros(1, dtype=torch.int64).share_memory_()

    def race(number: int) -> None:
        while not done[0]:
            counts[number] += slot.accept()

    context = torch.multiprocessing.get_context("fork")
    racers = [context.Process(target=race, args=(number,)) for number in range(4)]
    for racer in racers:
        racer.start()
    offered = 0
    while offered < 300:
        if not slot.offered:
            slot.offer()
            offered += 1
    while slot.offered:
        pass
    done[0] = 1
    for racer in racers:
        racer.join()
    assert int(counts.sum()) == offered


TestSlots = SlotsMachine.TestCase
TestSlots.settings = settings(max_examples=15, stateful_step_count=25)
