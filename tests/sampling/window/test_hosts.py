"""WindowSampler(hosts=): each host reads the same blocks in every epoch, each sample comes once, and whole
blocks stay together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from fastload import FastLoader, WindowSampler
from fastload.errors import ArgumentError
from fastload.sampling.host_part import HostPart
from fastload.sampling.known import coverage


def samplers(count: int, hosts: int, ranks: int, **given: Any) -> list[WindowSampler]:
    """The samplers of all ranks, host by host."""
    world = hosts * ranks
    return [
        WindowSampler(count, seed=5, num_replicas=world, rank=rank, hosts=hosts, **given)
        for rank in range(world)
    ]


def parts(found: list[WindowSampler], ranks: int, epoch: int) -> list[set[int]]:
    """The samples of each host in an epoch."""
    for each in found:
        each.set_epoch(epoch)
    return [
        {index for each in found[first : first + ranks] for index in each}
        for first in range(0, len(found), ranks)
    ]


@settings(max_examples=100)
@given(
    count=st.integers(5, 300),
    block=st.integers(1, 40),
    buffer=st.integers(1, 200),
    hosts=st.integers(1, 5),
    ranks=st.integers(1, 4),
    epoch=st.integers(0, 2**63 - 1),
    drop=st.booleans(),
)
def test_all_ranks_together(
    count: int, block: int, buffer: int, hosts: int, ranks: int, epoch: int, drop: bool
) -> None:
    """Ranks have DistributedSampler's lengths; together they give each sample once, but for what pads or is
    dropped, again the same; and coverage tells what they ask for.
    """
    found: list[int] = []
    for sampler in samplers(count, hosts, ranks, block=block, buffer=buffer, drop_last=drop):
        theirs: Any = DistributedSampler(range(count), hosts * ranks, sampler.rank, drop_last=drop)
        sampler.set_epoch(epoch)
        indices = list(sampler)
        assert len(sampler) == len(indices) == len(theirs)
        assert indices == sampler.indices().tolist()
        told = coverage(sampler, count)
        assert told is not None
        assert [position for part in told.parts() for position in part.tolist()] == sorted(set(indices))
        found += indices
    times = np.bincount(found, minlength=count)
    assert times.max(initial=0) <= 1 if drop else times.min() >= 1


def test_a_host_keeps_its_part() -> None:
    """In every epoch it has the same samples, in another order; hosts share none."""
    found = samplers(4000, 4, 2, block=10, buffer=200)
    first = parts(found, 2, 0)
    orders = {tuple(found[0].indices())}
    assert sum(map(len, first)) == 4000
    assert not set.intersection(*first)
    for epoch in (1, 2, 9):
        assert parts(found, 2, epoch) == first
        orders.add(tuple(found[0].indices()))
    assert len(orders) == 4


def test_ranks_of_a_host_change_their_blocks() -> None:
    """Within a host each rank has other samples in each epoch: only the host's part stays."""
    first, again = (parts(samplers(4000, 1, 4, block=10, buffer=200), 1, epoch) for epoch in (0, 1))
    for one, two in zip(first, again, strict=True):
        assert 0.15 < len(one & two) / len(one) < 0.35


def test_what_is_dropped_differs() -> None:
    """With drop_last a sample that is left out of one epoch comes in another."""
    found = samplers(103, 2, 4, block=5, buffer=20, drop_last=True)
    left = [set(range(103)) - set.union(*parts(found, 4, epoch)) for epoch in range(20)]
    assert {len(each) for each in left} == {7}
    assert not set.intersection(*left)


def test_blocks_are_dealt_out_anew() -> None:
    """After `deal_every` epochs hosts have other parts, as independent as a new draw."""
    found = samplers(8000, 4, 1, block=10, buffer=200, deal_every=3)
    held = [parts(found, 1, epoch) for epoch in range(6)]
    assert held[0] == held[1] == held[2]
    assert held[3] == held[4] == held[5]
    shares = [len(before & after) / len(before) for before, after in zip(held[2], held[3], strict=True)]
    assert all(0.15 < share < 0.35 for share in shares)


@pytest.mark.parametrize(("count", "hosts"), [(4000, 4), (4003, 4), (4003, 3), (39, 5)])
def test_blocks_stay_whole(count: int, hosts: int) -> None:
    """A block is one host's, but for one at each border; numbered within a part, all but two blocks are
    blocks of the dataset."""
    block = 10
    seen: list[set[int]] = []
    for host in range(hosts):
        part = HostPart(count, block, 7, host, hosts)
        positions = part.positions(np.arange(part.samples))
        assert part.samples in (count // hosts, -(-count // hosts))
        seen.append(set((positions // block).tolist()))
        torn = [
            each for each in range(0, part.samples, block) if np.ptp(positions[each : each + block] // block)
        ]
        assert all(each >= part.samples - 2 * block for each in torn)
    assert sum(map(len, seen)) <= -(-count // block) + hosts - 1


def test_no_memory_for_a_sample() -> None:
    """A part of 10^12 samples is numbered without a list of them."""
    part = HostPart(10**12, 19, 1, 63, 64)
    found = part.positions(np.array([0, 1, 18, part.samples - 1]))
    assert found[1] == found[0] + 1
    assert found[2] == found[0] + 18


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"hosts": 0, "seed": 1}, "hosts=0"),
        ({"hosts": 128, "seed": 1, "num_replicas": 128, "rank": 0}, "hosts=128: the dataset has 100 samples"),
        ({"hosts": 1}, "hosts=1 needs seed="),
        ({"deal_every": 2, "seed": 1}, "give hosts= as well"),
        ({"hosts": 2, "seed": 1, "deal_every": 0}, "deal_every=0"),
        ({"hosts": 3, "seed": 1, "num_replicas": 4, "rank": 0}, "hosts=3 with num_replicas=4"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        WindowSampler(100, **arguments)


def loader(world: int, rank: int, hosts: int | None = 2, kind: Any = FastLoader) -> Any:
    data = TensorDataset(torch.arange(400))
    return kind(
        data,
        batch_size=4,
        sampler=WindowSampler(data, block=5, buffer=40, seed=0, num_replicas=world, rank=rank, hosts=hosts),
    )


def values(batches: Any) -> list[list[int]]:
    return [batch[0].tolist() for batch in batches]


def test_a_resume_in_mid_epoch() -> None:
    """As many ranks go on where each was; batches are torch's DataLoader's."""
    whole = values(loader(4, 3))
    assert whole == values(loader(4, 3, kind=DataLoader))
    first = loader(4, 3)
    batches = iter(first)
    had = values(next(batches) for _ in range(7))
    second = loader(4, 3)
    second.load_state_dict(first.state_dict())
    assert had + values(second) == whole


@pytest.mark.parametrize(
    ("world", "hosts", "message"),
    [
        (8, 2, "for 4 ranks.*for 8 ranks.*shard="),
        (4, 4, "for 2 hosts.*for 4"),
        (4, None, "for 2 hosts.*for none"),
    ],
)
def test_other_ranks_are_refused_in_mid_epoch(world: int, hosts: int | None, message: str) -> None:
    """The position of one rank says nothing of what others had; between epochs any number of ranks goes
    on."""
    first = loader(4, 1)
    batches = iter(first)
    next(batches)
    with pytest.raises(ArgumentError, match=message):
        loader(world, 1, hosts).load_state_dict(first.state_dict())
    for _ in batches:
        pass
    loader(world, 1, hosts).load_state_dict(first.state_dict())
