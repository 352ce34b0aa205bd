"""KeyedSampler and shuffle="huge": DistributedSampler's parts of a keyed permutation, on every engine,
resumed, of any length at once."""

from __future__ import annotations

import pickle
import tracemalloc
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DataLoader, Dataset, DistributedSampler, RandomSampler

from fastload import FastLoader, KeyedSampler
from fastload.common.rng import KeyedPermutation, order_seed
from fastload.errors import ArgumentError
from fastload.sampling.keyed import RandomKeyedSampler
from fastload.sampling.known import coverage
from fastload.sampling.window import drawn

BILLION = 1_000_000_000


class Numbers(Dataset[int]):
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        return index


@settings(max_examples=150)
@given(
    count=st.integers(0, 300),
    replicas=st.integers(1, 9),
    seed=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 2**63 - 1),
    drop=st.booleans(),
)
def test_all_ranks_together(count: int, replicas: int, seed: int, epoch: int, drop: bool) -> None:
    """Rank r has what DistributedSampler's rule gives it of the order: padded by the order's beginning, or
    without its end."""
    order = KeyedPermutation(count, order_seed(seed, epoch)).at(np.arange(count)).tolist()
    for rank in range(replicas):
        sampler = KeyedSampler(count, seed=seed, num_replicas=replicas, rank=rank, drop_last=drop)
        sampler.set_epoch(epoch)
        total = count // replicas * replicas if drop else -(-count // replicas) * replicas
        padded = (order * (1 + replicas))[:total] if count else []
        assert list(sampler) == padded[rank::replicas] == sampler.indices().tolist()
        assert list(pickle.loads(pickle.dumps(sampler))) == padded[rank::replicas]
        assert len(sampler) == len(padded[rank::replicas])
        assert sampler.total_size == total
        if count >= replicas:
            theirs: Any = DistributedSampler(range(count), replicas, rank, drop_last=drop)
            assert (len(sampler), sampler.total_size) == (len(theirs), theirs.total_size)
            assert coverage(sampler, count) is not None


def test_without_a_seed() -> None:
    """The order follows torch's generator, one number a pass at the first index, as RandomSampler's;
    indices() tells it without a draw."""
    sampler = KeyedSampler(300)
    torch.manual_seed(3)
    ahead = sampler.indices().tolist()
    first, second = list(sampler), list(sampler)
    assert first == ahead
    assert first != second
    torch.manual_seed(3)
    assert list(sampler) == first
    generators = [torch.Generator().manual_seed(8) for _ in range(2)]
    one, two = (list(KeyedSampler(300, generator=each)) for each in generators)
    assert one == two == list(RandomKeyedSampler(range(300), torch.Generator().manual_seed(8)))


def test_what_is_refused() -> None:
    """Ranks without a seed, or beyond their number, and a dataset that is no number of samples."""
    with pytest.raises(ArgumentError, match="KeyedSampler on several ranks needs seed="):
        KeyedSampler(9, num_replicas=2, rank=0)
    with pytest.raises(ArgumentError, match="rank=2 of num_replicas=2"):
        KeyedSampler(9, seed=1, num_replicas=2, rank=2)
    with pytest.raises(ArgumentError, match="dataset=-1: give a number of 0 or more"):
        KeyedSampler(-1)


def test_started_without_a_process_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several processes, one that nobody gives a rank is told so."""
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(ArgumentError, match="KeyedSampler: several processes were started"):
        list(KeyedSampler(9, seed=1))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("seed", [None, 4])
def test_resumed_in_mid_epoch(workers: int, seed: int | None) -> None:
    """A state of mid-epoch goes on with what is left of the order that was begun, and with the epochs
    after it."""
    torch.manual_seed(1)
    with FastLoader(Numbers(60), 7, shuffle="huge", seed=seed, num_workers=workers) as loader:
        assert type(loader.sampler) is RandomKeyedSampler
        assert isinstance(loader.sampler, RandomSampler)  # frameworks read from this that the loader shuffles
        assert sorted(torch.cat(list(loader)).tolist()) == list(range(60))
        batches = iter(loader)
        had = [next(batches) for _ in range(4)]
        state = loader.state_dict()
        rest = torch.cat(list(batches)).tolist()
    assert sorted(torch.cat(had).tolist() + rest) == list(range(60))
    torch.manual_seed(99)
    with FastLoader(Numbers(60), 7, shuffle="huge", seed=seed, num_workers=workers) as loader:
        loader.load_state_dict(state)
        assert torch.cat(list(loader)).tolist() == rest
    with (
        FastLoader(Numbers(60), 7, shuffle=True, seed=seed) as loader,
        pytest.raises(ArgumentError, match="mid-epoch of a RandomKeyed"),
    ):
        loader.load_state_dict(state)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    "options", [{"shuffle": "huge"}, {"sampler": KeyedSampler(BILLION, seed=2, num_replicas=8, rank=7)}]
)
def test_a_billion_samples(workers: int, options: dict[str, Any]) -> None:
    """A loader over 10**9 samples gives its first batches, and a state, without memory for the others."""
    tracemalloc.start()
    try:
        with FastLoader(Numbers(BILLION), 256, seed=3, num_workers=workers, **options) as loader:
            batches = torch.cat(list(islice(loader, 3)))
            state = loader.state_dict()
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    key = drawn(torch.Generator().manual_seed(order_seed(3, 0))) if "shuffle" in options else order_seed(2, 0)
    start, step = (0, 1) if "shuffle" in options else (7, 8)
    expected = next(KeyedPermutation(BILLION, key).chunks(start, step))
    assert batches.tolist() == expected[:768].tolist()
    with FastLoader(Numbers(BILLION), 256, seed=3, num_workers=workers, **options) as loader:
        loader.load_state_dict(state)
        assert next(iter(loader)).tolist() == expected[768:1024].tolist()


def test_under_dataloader() -> None:
    """torch's DataLoader and BatchSampler take the sampler as any other."""
    sampler = KeyedSampler(50, seed=1)
    loader: Any = DataLoader(Numbers(50), batch_sampler=BatchSampler(sampler, 8, False))
    assert torch.cat(list(loader)).tolist() == sampler.indices().tolist()
