"""Memory of orders: that of a window, a huge order and a resume by other ranks does not grow with the
number of samples."""

from __future__ import annotations

import tracemalloc
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
from torch.utils.data import Dataset, RandomSampler, SequentialSampler

from fastload import BucketBatchSampler, KeyedSampler, WindowSampler
from fastload.sampling.known import coverage, shuffle_class
from fastload.sampling.sampler import ShardSampler
from fastload.sampling.sharding import Split

COUNT = 10**7 + 3
"""Samples; no number of ranks here divides it, so that the last ones repeat some."""
HELD = 12 << 20
"""Limit on what an order holds: windows of samples, and a portion of the blocks."""


class Positions(Dataset[int]):
    """A dataset of COUNT samples that takes no memory."""

    def __len__(self) -> int:
        return COUNT


def peak(indices: Iterator[Any]) -> int:
    """Most bytes that were allocated while indices were made, from their first on."""
    tracemalloc.start()
    try:
        deque(indices, maxlen=0)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def sharded(shuffle: Any, even: bool = True) -> ShardSampler:
    sampler = ShardSampler(Positions(), (2, 6), shuffle=shuffle, seed=1, drop_last=False, even=even)
    sampler.find_rank()
    return sampler


@pytest.mark.parametrize("shuffle", ["window", "huge"])
def test_orders_of_one_process(shuffle: str) -> None:
    """A part of an epoch of all samples needs no list of them: its first million, and with them all that
    is made in advance."""
    named = shuffle_class(shuffle)
    assert named is not None
    assert peak(islice(named(Positions(), None), 10**6)) < HELD


@pytest.mark.parametrize(
    "sampler", [kind(COUNT, seed=1, num_replicas=8, rank=7) for kind in (WindowSampler, KeyedSampler)]
)
def test_orders_of_a_rank(sampler: Any) -> None:
    """The last rank's part, with the samples that it repeats."""
    assert peak(islice(iter(sampler), 10**6)) < HELD


@pytest.mark.parametrize("shuffle", [False, "window", "huge"])
@pytest.mark.parametrize("even", [False, True])
def test_shards(shuffle: Any, even: bool) -> None:
    """A rank's part of an epoch, and the length of it."""
    sampler = sharded(shuffle, even)
    assert len(sampler) == -(-COUNT // 6) - (not even)
    assert peak(islice(iter(sampler), 10**6)) < HELD


@pytest.mark.parametrize("shuffle", [False, "window", "huge"])
@pytest.mark.parametrize(
    "splits",
    [(Split(8, COUNT // 20), Split(6)), (Split(8, COUNT // 30), Split(5, COUNT // 30), Split(6, 1000))],
)
def test_resumed_by_other_ranks(shuffle: Any, splits: tuple[Split, ...]) -> None:
    """What eight ranks, and then five, left of an epoch goes on with six, and a state can say how much
    that is."""
    sampler = sharded(shuffle)
    tracemalloc.start()
    try:
        assert COUNT - sampler.begun(0, COUNT, splits) > COUNT // 4
        assert tracemalloc.get_traced_memory()[1] < HELD
    finally:
        tracemalloc.stop()
    assert peak(sampler.part(0, splits, 2)) < HELD


@pytest.mark.parametrize(
    "sampler",
    [sharded("window"), sharded("huge"), SequentialSampler(Positions()), RandomSampler(Positions())],
)
def test_the_samples_of_a_pass(sampler: Any) -> None:
    """The samples that a pass over a bucket will need are a bit each, and none where they are all."""
    tracemalloc.start()
    try:
        found = coverage(sampler, COUNT, splits=(Split(6),))
        assert found is not None
        held, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < (COUNT // 7 if isinstance(sampler, ShardSampler) else 1 << 16)
    assert most < COUNT // 7 + HELD
    assert sum(map(len, found.parts())) == (len(sampler) if isinstance(sampler, ShardSampler) else COUNT)


def test_buckets() -> None:
    """A batch sampler by buckets holds a byte of each sample, and its length is counted some at a time."""
    values = np.arange(COUNT, dtype=np.float64) % 7
    tracemalloc.start()
    try:
        batches = BucketBatchSampler(range(COUNT), 64, by=values, edges=[1, 2.5, 6])
        assert COUNT <= tracemalloc.get_traced_memory()[0] < COUNT + (1 << 20)
        tracemalloc.reset_peak()
        assert len(batches) == sum(
            -(-int(each) // 64) for each in np.bincount(np.searchsorted([1, 2.5, 6], values, side="right"))
        )
    finally:
        tracemalloc.stop()
    assert batches.buckets[:8].tolist() == [0, 1, 1, 2, 2, 2, 3, 0]
