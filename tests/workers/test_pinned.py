"""A pinned slot is refilled only when the device has read it. The order of events is tested here; real pinning in tests/gpu."""

from __future__ import annotations

import gc

import pytest
import torch

from fastload._native import core
from fastload.workers.slots import Slots

pytestmark = pytest.mark.usefixtures("no_leaks")


class Copy:
    """What a copy engine tells of a queued copy."""

    def __init__(self) -> None:
        self.done = False

    def query(self) -> bool:
        return self.done


def test_slot_cools_until_its_copy_is_done() -> None:
    """Between the end of a lease and the end of the copies queued before it, a slot is not handed out."""
    copies: list[Copy] = []
    closed: list[object] = []

    def queued() -> Copy:
        copies.append(Copy())
        return copies[-1]

    slots = Slots(4, lambda memory: memory.guard(queued, closed.append))
    slot = slots.add(1, core.SharedSlot(4096), {0})
    tensor = torch.frombuffer(slot.memory.lease(), dtype=torch.uint8)
    slot.busy = False
    assert slots.take(1) is None
    assert not copies
    del tensor
    assert len(copies) == 1
    assert slots.take(1) is None
    copies[0].done = True
    assert slots.take(1) is slot
    slots.drop(slot)
    del slot
    gc.collect()
    assert closed == [None]


def test_slot_is_unmapped_with_its_last_event() -> None:
    """Whoever unregisters the memory is told which event to wait for."""
    copy, closed = Copy(), []
    memory = core.SharedSlot(4096)
    memory.guard(lambda: copy, closed.append)
    lease = memory.lease()
    del memory
    assert closed == []
    del lease
    assert closed == [copy]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_slot_without_an_event_is_never_refilled() -> None:
    """When no event can be recorded nobody knows when the device is done, so the slot is given up."""

    def broken() -> None:
        raise RuntimeError("no stream")

    memory = core.SharedSlot(4096)
    memory.guard(broken, lambda event: None)
    lease = memory.lease()
    del lease
    assert memory.retired
