"""A pinned slot is refilled only when the device has read it. The order of events is tested here; real
pinning in tests/gpu."""

from __future__ import annotations

import ctypes
import gc
import os

import pytest
import torch
from copies import Copies

from fastload._native import core
from fastload.engines.processes.scheduler import Slots

pytestmark = pytest.mark.usefixtures("no_leaks")


def test_slot_cools_until_its_copy_is_done() -> None:
    """Between the end of a lease and the end of the copies queued before it, a slot is not handed out."""
    copies = Copies()
    slots = Slots(4, lambda memory: memory.guard(copies))
    slot = slots.add(1, core.SharedSlot(4096))
    assert copies.pinned == {slot.memory.address: slot.memory.bytes}
    tensor = torch.frombuffer(slot.memory.lease(), dtype=torch.uint8)
    slot.busy = False
    assert slots.take(1, 1 << 14) is None
    assert not copies.events
    del tensor
    assert len(copies.events) == 1
    assert slots.take(1, 1 << 14) is None
    copies.events[0].done = True
    assert slots.take(1, 1 << 14) is slot
    slots.drop(slot)
    assert copies.pinned
    del slot
    gc.collect()
    assert not copies.pinned
    assert not copies.events[0].waited  # it had passed


def test_slot_is_unpinned_after_its_last_event() -> None:
    """Memory that a device still reads is not unpinned before the copy has ended, which is waited for."""

    class Ordered(Copies):
        def unpin(self, address: int) -> None:
            assert [event.waited for event in self.events] == [True]
            super().unpin(address)

    copies = Ordered()
    memory = core.SharedSlot(4096)
    assert memory.guard(copies)
    lease = memory.lease()
    del memory
    assert copies.pinned
    assert not copies.events
    del lease
    assert len(copies.events) == 1
    assert not copies.pinned


def test_refused_slot_has_no_guard() -> None:
    """When the driver will not pin it, a slot is used all the same, free at the end of its lease, and
    nothing is undone."""
    copies = Copies()
    copies.refuse = True
    memory = core.SharedSlot(4096)
    assert not memory.guard(copies)
    lease = memory.lease()
    del lease
    assert not memory.cooling
    assert not memory.retired
    del memory
    assert not copies.events


@pytest.mark.parametrize("refusals", [1, 2])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_slot_without_an_event_is_never_refilled(refusals: int) -> None:
    """When no event can be recorded nobody knows when the device is done: the slot is given up, and
    unpinned after an event or never."""

    class Broken(Copies):
        left = refusals

        def end_of_lease(self) -> Copies.Event:
            if self.left:
                self.left -= 1
                raise RuntimeError("no stream")
            return super().end_of_lease()

    copies = Broken()
    memory = core.SharedSlot(4096)
    memory.guard(copies)
    address, lease = memory.address, memory.lease()
    del lease
    assert memory.retired
    del memory
    assert [event.waited for event in copies.events] == [True] * (2 - refusals)
    assert list(copies.pinned) == [address] * (refusals - 1)
    if copies.pinned:
        assert (ctypes.c_uint8 * 4096).from_address(address)[4095] == 0


def test_child_asks_the_device_for_nothing() -> None:
    """A forked child that frees a pinned batch and its slot records no event and unpins nothing: the
    device is the parent's."""
    copies = Copies()
    memory = core.SharedSlot(4096)
    assert memory.guard(copies)
    lease = memory.lease()
    if (child := os.fork()) == 0:
        del lease, memory
        os._exit(1 if copies.events or not copies.pinned else 0)
    assert os.waitpid(child, 0)[1] == 0
    del lease
    assert len(copies.events) == 1
    del memory
    assert not copies.pinned
