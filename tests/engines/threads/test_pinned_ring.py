"""Slots of the thread ring under a guard: pinned once, cooled before a refill, unpinned before they are unmapped.

The order of events is tested here, with a guard that notes what it is asked; real pinning in tests/gpu.
"""

from __future__ import annotations

import ctypes
import gc
import os
from pathlib import Path

import pytest
import torch
from copies import Copies

from fastload import FastLoader
from fastload import transforms as T
from fastload._native import core

pytestmark = pytest.mark.usefixtures("no_leaks")


def guarded(packed: Path, copies: Copies) -> FastLoader:
    loader = FastLoader(packed, batch_size=10, transform=T.Resize((16, 16)), num_workers=1, prefetch_factor=1)
    loader._fastload.epochs.engine(loader._fastload.plan).ring.guard(copies)
    return loader


def test_no_slot_is_refilled_before_its_copy_is_done(packed: Path) -> None:
    """A dropped batch's bytes stay while its copy runs, however many batches are made meanwhile; the ring grows instead."""
    copies = Copies()
    with guarded(packed, copies) as loader:
        seen: dict[int, torch.Tensor] = {}
        views = []
        for images, _ in loader:
            assert images.data_ptr() not in seen  # copies of all batches before still run
            seen[images.data_ptr()] = images.clone()
            views.append((images.data_ptr(), images.numel()))
        del images
        for address, count in views:
            now = torch.frombuffer((ctypes.c_uint8 * count).from_address(address), dtype=torch.uint8)
            assert torch.equal(now, seen[address].reshape(-1))
        assert len(copies.events) == len(seen) == 5
        assert set(seen) <= set(copies.pinned)
        for event in copies.events:
            event.done = True
        again = {images.data_ptr() for images, _ in loader}
        assert again <= set(copies.pinned)
    del loader
    gc.collect()
    assert not copies.pinned


def test_pinned_once(packed: Path) -> None:
    """A slot is pinned when it is first taken, not at every refill."""
    copies = Copies()
    with guarded(packed, copies) as loader:
        for _ in range(4):
            for batch in loader:
                del batch
                for event in copies.events:
                    event.done = True
        assert copies.pins <= 4


def test_end_of_the_ring_waits_for_its_copies(packed: Path) -> None:
    """Memory that a device still reads is neither unpinned nor unmapped before the copy has ended."""
    copies = Copies()
    with guarded(packed, copies) as loader:
        batch = next(iter(loader))
    del loader, batch
    gc.collect()
    assert copies.events
    assert all(event.waited for event in copies.events)
    assert not copies.pinned


def test_refusal_is_heeded(packed: Path) -> None:
    """When the driver will not pin, batches come all the same, and it is not asked again."""
    copies = Copies()
    copies.refuse = True
    with guarded(packed, copies) as loader:
        assert len(list(loader)) == 5
    assert not copies.events


def test_pinned_anew_after_a_fork(packed: Path) -> None:
    """After a fork a slot's pages may have moved: what was pinned before is pinned again before it is filled."""
    copies = Copies()
    with guarded(packed, copies) as loader:
        for _ in loader:
            pass
        pins = copies.pins
        for event in copies.events:
            event.done = True
        if (child := os.fork()) == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        for _ in loader:
            for event in copies.events:
                event.done = True
        assert copies.pins > pins


def test_child_drops_batches_without_the_device(packed: Path) -> None:
    """A forked child that frees a pinned batch asks the device for nothing."""
    copies = Copies()
    with guarded(packed, copies) as loader:
        batch = next(iter(loader))
        told = len(copies.events)
        if (child := os.fork()) == 0:
            del batch
            os._exit(0 if len(copies.events) == told else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_stop_ends_a_wait(packed: Path) -> None:
    """A wait with a Stop ends at once when it is set, also one that begins later."""
    with FastLoader(packed, batch_size=10, transform=T.Resize((16, 16)), num_workers=1) as loader:
        engine = loader._fastload.epochs.engine(loader._fastload.plan)
        batch = engine.announce([0, 1], 0, 0)
        batch.submit()
        stop = core.Stop()
        assert core.wait_any([batch], 0, stop) == 0
        stop.set(engine.ring)
        assert core.wait_any([batch], 0, stop) == -1
        assert core.wait_any([batch], 0) == 0
