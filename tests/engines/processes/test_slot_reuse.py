"""Slots of worker processes: reused, grown, shrunk, and never filled again while a batch in them is held."""

from __future__ import annotations

import multiprocessing
import os
import random
import resource

import pytest
import torch
from handles import descriptors, opened_since
from process_helpers import MODES, Made, engine_marks, modes, ones, slots_of

from fastload import FastLoader
from fastload.errors import ResourceError

pytestmark = engine_marks


@modes
@pytest.mark.parametrize("persistent", [False, True])
def test_slots_are_reused(mode: str, persistent: bool) -> None:
    """Two hundred batches need a few slots, the number in flight and those that the loop holds, over
    epochs too."""
    loader = FastLoader(
        Made(ones, 400), batch_size=4, num_workers=2, persistent_workers=persistent, **MODES[mode]
    )
    for _ in range(2):
        iterator = iter(loader)
        most = 0
        seen = []
        for batch in iterator:
            seen += batch[:, 0].int().tolist()
            most = max(most, len(slots_of(iterator).all))
        assert sorted(seen) == list(range(400))
        assert most <= iterator._depth + 3
    loader.close()


@modes
def test_batches_that_are_kept(mode: str) -> None:
    """list(loader) is right: no slot is filled again while its batch lives; the set grows, and shrinks
    back when the batches are gone."""
    loader = FastLoader(Made(ones, 240), batch_size=4, num_workers=2, persistent_workers=True, **MODES[mode])
    kept = list(loader)
    assert sorted(torch.cat(kept)[:, 0].int().tolist()) == list(range(240))
    assert all(bool((batch == batch[:, :1]).all()) for batch in kept)
    slots = slots_of(loader._iterator)
    assert len(slots.all) >= 60
    first = [batch.clone() for batch in kept]
    assert len(list(loader)) == 60  # refills none of them
    assert all(map(torch.equal, first, kept))
    del kept
    for _batch in loader:
        pass
    assert len(slots.all) <= slots.keep + loader._iterator._depth
    loader.close()


@pytest.mark.parametrize("mode", ["in turn", "any order", "by sample"])
def test_batches_that_are_kept_take_no_descriptors(mode: str) -> None:
    """A hundred batches held at once do not bring the process nearer to its limit of open files."""
    with FastLoader(Made(ones, 200), batch_size=2, num_workers=2, **MODES[mode]) as loader:
        iterator = iter(loader)
        kept = [next(iterator) for _ in range(10)]
        before = descriptors()
        kept += [next(iterator) for _ in range(80)]
        assert len(opened_since(before)) < 10
    assert len(kept) == 90


@modes
def test_batches_of_many_sizes(mode: str) -> None:
    """Batches whose sizes change all the time arrive whole."""
    sizes = [random.Random(7).choice([0, 1, 3, 100, 5000, 70_000]) for _ in range(80)]

    def make(index: int) -> torch.Tensor:
        return torch.full((sizes[index],), index, dtype=torch.int32)

    loader = FastLoader(Made(make, 80), batch_size=1, num_workers=2, **MODES[mode])
    got = sorted((batch for batch in loader if batch.numel()), key=lambda batch: int(batch[0, 0]))
    full = [index for index in range(80) if sizes[index]]
    assert [batch.tolist() for batch in got] == [[make(index).tolist()] for index in full]
    loader.close()


@pytest.mark.parametrize("mode", ["in turn", "any order", "by sample, custom"])
def test_one_giant_batch(mode: str) -> None:
    """A batch of 8 MB among small ones makes no later slot giant, and its own is let go when such batches
    come no more."""

    arrived = multiprocessing.Event()

    def make(index: int) -> torch.Tensor:
        if index == 100:  # half of the batches come after the giant one, in whatever order
            assert arrived.wait(50)
        return torch.zeros(2 << 20 if index == 30 else 1000)

    iterator = iter(FastLoader(Made(make, 200), batch_size=1, num_workers=2, **MODES[mode]))
    sizes = []
    for batch in iterator:
        if batch.shape[1] > 1000:
            arrived.set()
        sizes.append(slots_of(iterator).bytes)
    assert arrived.is_set()
    assert max(sizes) < 10 << 20
    assert sizes[-1] < 1 << 20


def test_a_giant_batch_of_rows() -> None:
    """The same where workers fill rows, and the batch is large since it has many of them."""
    batches = [[0]] * 20 + [list(range(2000))] + [[1]] * 120
    loader = FastLoader(Made(ones, 2000), batch_sampler=batches, num_workers=2, seed_by="sample")
    iterator = iter(loader)
    sizes = [slots_of(iterator).bytes for _ in iterator]
    assert max(sizes) < 9 << 20
    assert sizes[-1] < 1 << 20


def test_a_fork_while_a_batch_is_held() -> None:
    """A forked child keeps the batch that was held, whatever the parent's workers write afterwards."""
    loader = FastLoader(Made(ones, 200), batch_size=4, num_workers=2)
    iterator = iter(loader)
    held = next(iterator)
    expected = held.clone()
    ready, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(go)
        os.read(ready, 1)
        os._exit(0 if held.eq(expected).all() else 1)
    os.close(ready)
    del held
    for _batch in iterator:
        pass
    os.close(go)
    assert os.waitpid(pid, 0)[1] == 0


def test_no_room_for_a_descriptor() -> None:
    """A process at its limit of open files gets an error that names the limit, not a loader that hangs."""

    def make(index: int) -> torch.Tensor:
        return torch.zeros(1 << (10 + index))  # each needs a larger slot

    iterator = iter(FastLoader(Made(make, 12), batch_size=1, num_workers=1, prefetch_factor=1))
    next(iterator)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, descriptors())), hard))
        try:
            while True:
                taken.append(os.dup(0))
        except OSError:
            pass
        with pytest.raises(ResourceError, match="ulimit -n"):
            for _ in range(12):
                next(iterator)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in taken:
            os.close(fd)
