"""Batches of native threads in memory that is lent to the ring: a fresh piece for each, kept by its
tensors alone."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fastload import FastLoader
from fastload import transforms as T
from fastload._native import core
from fastload.device.pinning import PinnedCache
from fastload.engines.threads import engine as threads_engine
from fastload.engines.threads.engine import ThreadEngine
from fastload.errors import ResourceError

pytestmark = pytest.mark.usefixtures("no_leaks")


class Lender:
    """Memory for a ring, of which it notes what is alive; after `most` pieces there is none."""

    def __init__(self, most: int = 1000) -> None:
        self.most, self.lent, self.alive = most, 0, 0

    def __call__(self, size: int) -> tuple[int, torch.Tensor] | None:
        if self.lent == self.most:
            return None
        self.lent += 1
        kept = np.full(size, 7, np.uint8)[:]
        self.alive += 1
        weakref.finalize(kept, self._ended)
        memory = torch.from_numpy(kept)
        return memory.data_ptr(), memory

    def _ended(self) -> None:
        self.alive -= 1

    def taken(self, size: int) -> int:
        return size


def engine_of(packed: Path, lender: Any, threads: int = 2) -> ThreadEngine:
    """An engine as a loader's plan makes it, with lent memory."""
    with FastLoader(packed, batch_size=10, transform=T.Resize((16, 16)), num_workers=threads) as loader:
        plan = loader._fastload.plan
        assert plan.native is not None
        assert plan.outputs is not None
        return ThreadEngine(plan.native, threads, plan.outputs, 2, 10, lender)


def made(engine: ThreadEngine, rows: range) -> core.Batch:
    batch = engine.announce(rows, 0, 0)
    batch.submit()
    core.wait_any([batch], 0)
    return batch


def test_each_batch_has_memory_of_its_own(packed: Path) -> None:
    """Lease and tensors are the lent memory, which nothing but them keeps; the ring has no slot of a batch
    that was leased."""
    lender = Lender()
    engine = engine_of(packed, lender)
    assert engine.ring.counts()["bytes"] == 0
    memory = [made(engine, range(10)).lease() for _ in range(3)]
    assert lender.lent == lender.alive == len({each.data_ptr() for each in memory}) == 3
    assert engine.ring.counts()["slots"] == 0
    own = engine_of(packed, None)
    want = torch.frombuffer(made(own, range(10)).lease(), dtype=torch.uint8)
    assert all(torch.equal(each, want) for each in memory)
    view = memory[0][5:6]
    del memory
    assert lender.alive == 1
    del view
    assert not lender.alive
    engine.close()
    own.close()


def test_a_dropped_batch_ends_before_its_memory(packed: Path) -> None:
    """A batch that is dropped in mid-filling lets go of its memory only when no thread writes to it."""
    lender = Lender()
    engine = engine_of(packed, lender)
    for _ in range(50):
        batch = engine.announce(range(10), 0, 0)
        batch.submit()
        del batch
    gc.collect()
    assert not lender.alive
    assert engine.ring.counts()["slots"] == 0
    engine.close()


def test_without_more_memory_the_ring_has_its_own(packed: Path) -> None:
    """Where nothing more is lent batches lie in slots of the ring, and both can be in flight at once."""
    lender = Lender(most=2)
    engine = engine_of(packed, lender)
    batches = [engine.announce(range(10), 0, 0) for _ in range(4)]
    for batch in batches:
        batch.submit()
    core.wait_any(batches[-1:], 0)
    assert [isinstance(batch.lease(), core.Lease) for batch in batches if core.wait_any([batch], 0) == 0] == [
        False,
        False,
        True,
        True,
    ]
    assert not lender.alive
    engine.close()


def test_a_refusal_belongs_to_its_batch(packed: Path) -> None:
    """An exception of the lender's comes out of submit(), and the next batch is made."""

    class Refusing(Lender):
        def __call__(self, size: int) -> tuple[int, torch.Tensor] | None:
            if not self.lent:
                self.lent = 1
                raise MemoryError("no more")
            return super().__call__(size)

    engine = engine_of(packed, Refusing())
    with pytest.raises(MemoryError, match="no more"):
        made(engine, range(10))
    assert made(engine, range(10)).ready
    engine.close()


def test_memory_is_asked_for_as_it_is_taken(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots that need more than is free, rounded up as their memory is, are refused before any is made."""
    rounded = PinnedCache().taken(77 << 20)
    assert rounded == 128 << 20
    monkeypatch.setattr(threads_engine, "available_memory", lambda: 300 << 20)
    monkeypatch.setattr(ThreadEngine, "_slot_bytes", lambda self, rows: 77 << 20)
    with pytest.raises(ResourceError, match=f"need {3 * rounded} bytes"):
        engine_of(packed, PinnedCache())
    engine_of(packed, None).close()


def test_stop_ends_a_wait(packed: Path) -> None:
    """A wait with a Stop ends at once when it is set, also one that begins later."""
    engine = engine_of(packed, None)
    batch = made(engine, range(2))
    stop = core.Stop()
    assert core.wait_any([batch], 0, stop) == 0
    stop.set(engine.ring)
    assert core.wait_any([batch], 0, stop) == -1
    assert core.wait_any([batch], 0) == 0
    engine.close()
