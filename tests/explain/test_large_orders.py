"""A loader of 10^7 samples and more: explain() names the memory of an order that is a list, and nothing
else of a loader makes one."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import Dataset, DistributedSampler, RandomSampler, SubsetRandomSampler

from fastload import FastLoader, Mixture, PackedDataset
from fastload import transforms as T

COUNT = 10**7 + 3
ORDERS: list[Any] = [False, "window", "huge"]


class Numbers(Dataset[int]):
    """A dataset of numbers that takes no memory."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        return index


@contextmanager
def at_most(limit: int) -> Iterator[None]:
    """Bytes that are allocated at a time in the block."""
    tracemalloc.start()
    try:
        yield
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < limit


@pytest.mark.parametrize("count", [10**8 - 1, 10**8, 10**9])
def test_a_list_of_all_samples_is_named(count: int) -> None:
    """From 10^8 samples on: its bytes, and the orders that have none. Nothing is drawn for it."""
    data, gigabytes = Numbers(count), count / 1e9
    for options, size in (
        ({"shuffle": True}, 48),
        ({"shuffle": True, "shard": (1, 3)}, 8),
        ({"sampler": DistributedSampler(data, 3, 1)}, 48),
        ({"sampler": SubsetRandomSampler(range(count))}, 48),
    ):
        loader = FastLoader(data, **options)
        with at_most(1 << 20):
            told = loader.explain(all=True)
        said = (
            f'{size * gigabytes:,.1f} GB in each process; shuffle="window" or "huge" takes no memory for '
            "each sample"
        )
        assert (said in told) == (count >= 10**8)
        assert ("Python's integers, 40 more" in told) == (count >= 10**8 and size == 48)
    for options in (
        {"shuffle": "window"},
        {"shuffle": "huge"},
        {},
        {"sampler": RandomSampler(data, replacement=True)},
    ):
        assert "in each process" not in FastLoader(data, **options).explain(all=True)


@pytest.mark.parametrize("shuffle", ORDERS)
@pytest.mark.parametrize("shard", [None, (1, 3)])
def test_what_a_loader_tells_and_saves(shuffle: Any, shard: Any) -> None:
    """len, explain(), stats() and state_dict(), before and within an epoch, and a resume, hold nothing of
    a sample."""
    with FastLoader(Numbers(COUNT), batch_size=64, shuffle=shuffle, seed=1, shard=shard) as loader:
        tells_and_saves(loader)


def test_native_threads_of_a_mixture(packed: Path) -> None:
    """As above, of rows of packed data that native threads read."""
    data = PackedDataset(packed, transform=T.Resize((8, 8)))
    with FastLoader(Mixture([(data, 1)], samples_per_epoch=64), batch_size=64, num_workers=1) as loader:
        list(loader)  # what the first batch of a process imports is no memory of its samples
    with FastLoader(Mixture([(data, 1)], samples_per_epoch=COUNT), batch_size=64, num_workers=1) as loader:
        assert "native thread" in loader.explain(all=True)
        tells_and_saves(loader)


def tells_and_saves(loader: FastLoader[Any]) -> None:
    with at_most(8 << 20):
        assert len(loader) > COUNT // 64 // 4
        loader.explain(all=True), loader.stats(), loader.state_dict()
        batches = iter(loader)
        next(batches)
        loader.explain(all=True), loader.stats()
        state = json.loads(json.dumps(loader.state_dict()))
        expected = next(batches)
        loader.load_state_dict(state)
        batches = iter(loader)
        assert str(next(batches)) == str(expected)
        loader.state_dict()
        del batches
