"""shard=: DistributedSampler's indices on every engine, without a forgotten set_epoch; other orders,
samplers and batch samplers."""

from __future__ import annotations

import copy
import itertools
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from order_helpers import COUNT, Numbers, labels
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
)

from fastload import FastLoader, KeyedSampler, WindowSampler
from fastload.common.rng import KeyedPermutation, order_seed
from fastload.errors import ArgumentError
from fastload.sampling.sampler import ShardSampler
from fastload.sampling.sharding import Split

Make = Callable[..., FastLoader[Any]]


def flat(batches: list[list[int]]) -> list[int]:
    return list(itertools.chain(*batches))


def part(order: list[int], rank: int, world: int) -> list[int]:
    """A rank's stride of an order that goes on at its beginning until all ranks have as many."""
    places = range(rank, -(-len(order) // world) * world, world)
    return [order[place % len(order)] for place in places]


@given(
    count=st.integers(1, 40),
    world=st.integers(1, 7),
    shuffle=st.booleans(),
    seed=st.one_of(st.none(), st.integers(0, 2**63 - 1)),
    drop_last=st.booleans(),
    epoch=st.integers(0, 5),
)
def test_indices_are_distributed_samplers(
    count: int, world: int, shuffle: bool, seed: int | None, drop_last: bool, epoch: int
) -> None:
    """For the same arguments every rank's indices and length are DistributedSampler's; seed None is its 0."""
    for rank in range(world):
        theirs = DistributedSampler(range(count), world, rank, shuffle, seed or 0, drop_last)  # type: ignore[arg-type]
        ours = ShardSampler(
            range(count), (rank, world), shuffle=shuffle, seed=seed, drop_last=drop_last, even=True
        )
        for each in (ours, theirs):
            each.set_epoch(epoch)
        assert list(ours) == list(theirs)
        assert (len(ours), ours.total_size, ours.rank, ours.num_replicas) == (
            len(theirs),
            theirs.total_size,
            rank,
            world,
        )


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
def test_every_engine_counts_epochs(make: Make, shuffle: bool, drop_last: bool) -> None:
    """Three epochs in a row, nobody calls set_epoch, and each is DistributedSampler's of its number; len()
    is the number of batches."""
    for rank in range(2):
        sampler = DistributedSampler(range(COUNT), 2, rank, shuffle, seed=5, drop_last=drop_last)  # type: ignore[arg-type]
        with make(shuffle=shuffle, seed=5, shard=(rank, 2), drop_last=drop_last) as loader:
            for epoch in range(3):
                sampler.set_epoch(epoch)
                expected = list(BatchSampler(sampler, 3, drop_last))
                assert labels(loader) == expected
                assert len(loader) == len(expected)


def test_set_epoch(make: Make) -> None:
    """The loader's set_epoch sets the order; the sampler's own, which frameworks call, holds for the next
    pass, once."""
    with make(shuffle=True, seed=5, shard=(1, 2)) as loader:
        orders = [flat(labels(loader)) for _ in range(4)]
        loader.set_epoch(2)
        assert flat(labels(loader)) == orders[2]
        loader.sampler.set_epoch(1)  # type: ignore[attr-defined]
        assert flat(labels(loader)) == orders[1]
        loader.set_epoch(0)
        assert [flat(labels(loader)) for _ in range(2)] == orders[:2]


def test_uneven(make: Make) -> None:
    """even=False: every sample exactly once over the ranks, in their stride of the order."""
    order = list(DistributedSampler(range(COUNT), 1, 0, seed=2))  # type: ignore[arg-type]
    for rank in range(4):
        with make(shuffle=True, seed=2, shard=(rank, 4), even=False) as loader:
            assert flat(labels(loader)) == order[rank::4]
            assert len(loader) == -(-len(order[rank::4]) // 3)


def test_windows_are_window_samplers(make: Make) -> None:
    """shuffle="window" gives each rank the blocks that WindowSampler gives it; with even=False each sample
    comes once."""
    for rank in range(3):
        with make(shuffle="window", seed=6, shard=(rank, 3)) as loader:
            sampler = WindowSampler(loader.dataset, seed=6, num_replicas=3, rank=rank)  # type: ignore[arg-type]
            for epoch in range(2):
                sampler.set_epoch(epoch)
                assert flat(labels(loader)) == list(sampler)
    uneven = [flat(labels(make(shuffle="window", seed=6, shard=(rank, 3), even=False))) for rank in range(3)]
    assert sorted(flat(uneven)) == list(range(COUNT))


def test_huge_orders_are_keyed_samplers(make: Make) -> None:
    """shuffle="huge" gives each rank its stride of KeyedSampler's order."""
    for rank in range(3):
        with make(shuffle="huge", seed=6, shard=(rank, 3)) as loader:
            sampler = KeyedSampler(COUNT, seed=6, num_replicas=3, rank=rank)
            for epoch in range(2):
                sampler.set_epoch(epoch)
                assert flat(labels(loader)) == list(sampler)


def test_a_part_of_a_huge_order_begins_at_once() -> None:
    """A rank's part of 10^9 samples takes neither their time nor their memory, wherever it begins."""
    sampler = ShardSampler(range(10**9), (1, 3), shuffle="huge", seed=2, drop_last=False, even=True)
    began = list(itertools.islice(sampler.part(0, (Split(2, 4 * 10**8), Split(3, 5)), 1), 4))
    places = 8 * 10**8 + 1 + 3 * np.arange(5, 9)
    assert began == KeyedPermutation(10**9, order_seed(2, 0)).at(places).tolist()


def test_a_sampler_of_the_users(make: Make) -> None:
    """Every rank draws all of it, and takes its stride; a generator that is seeded alike makes the orders
    alike."""
    chosen = [7, 3, 3, 20, 11]
    for rank in range(2):
        with make(sampler=chosen, shard=(rank, 2)) as loader:
            assert [flat(labels(loader)) for _ in range(2)] == [part(chosen, rank, 2)] * 2
        with make(
            sampler=SubsetRandomSampler(range(9), torch.Generator().manual_seed(3)), shard=(rank, 2)
        ) as loader:
            order = list(SubsetRandomSampler(range(9), torch.Generator().manual_seed(3)))
            assert flat(labels(loader)) == part(order, rank, 2)


@pytest.mark.parametrize("rank", range(2))
def test_a_batch_sampler(make: Make, rank: int) -> None:
    """Ranks get every second batch; the last round is filled with the first batches, left out, or short."""
    batches = [[0, 1], [2, 3], [4, 5], [6, 7], [8]]
    expected = {(False, True): [[batches[0], batches[2], batches[4]], [batches[1], batches[3], batches[0]]]}
    expected[True, True] = [each[:2] for each in expected[False, True]]
    expected[False, False] = [batches[0::2], batches[1::2]]
    for (drop_last, even), ranks in expected.items():
        with make(
            batch_size=1, batch_sampler=batches, shard=(rank, 2), drop_last=drop_last, even=even
        ) as loader:
            assert [labels(loader) for _ in range(2)] == [ranks[rank]] * 2
            assert len(loader) == len(ranks[rank])


def test_a_batch_sampler_is_told_its_epoch(make: Make) -> None:
    """A sampler inside a batch sampler is told the loader's epoch, as no loop has to."""

    class Rolled:
        epoch = 0

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

        def __iter__(self) -> Any:
            return iter(range(self.epoch, self.epoch + 6))

        def __len__(self) -> int:
            return 6

    with make(batch_size=1, batch_sampler=BatchSampler(Rolled(), 2, False), shard=(0, 2)) as loader:
        assert [labels(loader)[0] for _ in range(3)] == [[0, 1], [1, 2], [2, 3]]
    with make(sampler=Rolled(), shard=(1, 2)) as loader:
        assert [labels(loader) for _ in range(2)] == [[[1, 3, 5]], [[2, 4, 6]]]


def test_no_batches(make: Make) -> None:
    """batch_size=None gives samples, one by one."""
    with make(batch_size=None, shard=(1, 2), shuffle=True, seed=1) as loader:
        theirs = list(DistributedSampler(range(COUNT), 2, 1, seed=1))  # type: ignore[arg-type]
        assert [int(number) for _, number in loader] == theirs


def test_persistent_workers_and_two_iterators() -> None:
    """Passes are bound to their epoch when they begin, however their batches are asked for afterwards."""
    sampler = DistributedSampler(range(COUNT), 2, 0, seed=5)  # type: ignore[arg-type]
    orders = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        orders.append(list(sampler))
    with FastLoader(Numbers(), batch_size=3, shuffle=True, seed=5, shard=(0, 2)) as loader:
        first, second = iter(loader), iter(loader)
        assert [flat(labels(each)) for each in (second, first)] == orders[::-1]
    with FastLoader(
        Numbers(), batch_size=3, shuffle=True, seed=5, shard=(0, 2), num_workers=1, persistent_workers=True
    ) as loader:
        assert [flat(labels(loader)) for _ in range(2)] == orders


def test_auto_reads_torchruns_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a process group, RANK and WORLD_SIZE tell the rank, as they are at each iter(); without them
    there is one rank."""
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    loader = FastLoader(Numbers(), batch_size=3, shard="auto")
    assert flat(labels(loader)) == list(range(COUNT))
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert flat(labels(loader)) == part(list(range(COUNT)), 2, 4)
    assert len(loader) == 2
    for rank, said in (("4", "counted from 0 to 3"), ("", "RANK="), ("x", "RANK=x")):
        monkeypatch.setenv("RANK", rank)
        with pytest.raises(ArgumentError, match=said):
            iter(loader)


def test_copies_and_rebuilt_loaders() -> None:
    """A copy, a pickle, and a loader made of another's attributes, give the same part: nothing is split
    twice."""
    loader = FastLoader(Numbers(), batch_size=3, shuffle=True, seed=5, shard=(1, 2), even=False)
    mine = flat(labels(loader))
    loader.set_epoch(0)
    for other in (copy.copy(loader), pickle.loads(pickle.dumps(loader))):
        other.set_epoch(0)
        assert flat(labels(other)) == mine
    rebuilt = FastLoader(
        loader.dataset, batch_size=3, sampler=loader.sampler, seed=5, shard=loader.shard, even=loader.even
    )
    assert rebuilt.sampler is loader.sampler
    assert flat(labels(rebuilt)) == mine
    batched = FastLoader(
        loader.dataset, batch_sampler=BatchSampler(loader.sampler, 3, False), shard=loader.shard
    )
    batched.set_epoch(0)
    assert flat(labels(batched)) == mine


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(range(3))


class Kept(RandomSampler):
    def state_dict(self) -> Any:
        return {}

    def load_state_dict(self, state: Any) -> None: ...


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"shard": (2, 2)}, "counted from 0 to 1"),
        ({"shard": (-1, 2)}, "counted from 0 to 1"),
        ({"shard": (0, 0)}, "world of 0"),
        ({"shard": "all"}, '"auto", or .rank, world.'),
        ({"shard": 3}, '"auto", or .rank, world.'),
        ({"shard": (0.5, 2)}, '"auto", or .rank, world.'),
        (
            {"shard": (0, 2), "sampler": DistributedSampler(range(5), 2, 0)},
            "DistributedSampler would both split",
        ),  # type: ignore[arg-type]
        ({"shard": (0, 2), "sampler": WindowSampler(5, seed=1)}, "WindowSampler would both split"),
        (
            {"shard": (0, 2), "batch_sampler": BatchSampler(DistributedSampler(range(5), 2, 0), 2, False)},  # type: ignore[arg-type]
            "DistributedSampler would both split",
        ),
        ({"shard": (0, 2), "sampler": Kept(range(5))}, "a state of its own"),
        ({"even": False}, "give shard="),
        ({"shard": (0, 2), "shuffle": True, "sampler": [1]}, "mutually exclusive"),
        ({"shard": (0, 2), "batch_size": 2, "batch_sampler": [[1]]}, "mutually exclusive"),
        ({"shard": (0, 2), "shuffle": "blocks"}, "shuffle='blocks'"),
    ],
)
def test_refused(arguments: dict[str, Any], said: str) -> None:
    """What contradicts shard=, or is no rank, is an error when the loader is made."""
    with pytest.raises(ValueError, match=said):
        FastLoader(Numbers(), **arguments)


def test_a_stream_is_refused() -> None:
    """An IterableDataset has no indices to share out."""
    with pytest.raises(ArgumentError, match="Stream is an IterableDataset"):
        FastLoader(Stream(), shard="auto")
