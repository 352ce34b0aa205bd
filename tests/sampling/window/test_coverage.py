"""coverage: exactly the samples of a pass, for samplers that can tell, with nothing drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from fastload import KeyedSampler, WindowSampler
from fastload.sampling.known import Coverage, coverage
from fastload.sampling.window import RandomWindowSampler, WindowOrder

COUNT = 103
TELLING: dict[str, Any] = {
    "window": lambda: WindowSampler(COUNT, block=5, buffer=20, seed=1),
    "window, no seed": lambda: WindowSampler(COUNT, block=5, buffer=20),
    "window, rank": lambda: WindowSampler(COUNT, block=5, buffer=20, seed=1, num_replicas=3, rank=2),
    "window, short": lambda: WindowSampler(
        COUNT, block=5, buffer=500, seed=1, num_replicas=3, rank=1, drop_last=True
    ),
    "distributed": lambda: DistributedSampler(range(COUNT), 4, 3, seed=2),
    "subset": lambda: SubsetRandomSampler([7, 3, 99]),
    "huge, rank": lambda: KeyedSampler(COUNT, seed=1, num_replicas=3, rank=2),
    "huge, no seed": lambda: KeyedSampler(COUNT),
}


def positions(told: Coverage) -> list[int]:
    return [position for part in told.parts() for position in part.tolist()]


@pytest.mark.parametrize("name", TELLING)
def test_the_samples_of_a_pass(name: str) -> None:
    """What it tells is what the pass then asks for, in each epoch; no generator has moved."""
    sampler = TELLING[name]()
    for epoch in range(3):
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)
        before = torch.get_rng_state()
        told = coverage(sampler, COUNT)
        assert torch.equal(before, torch.get_rng_state())
        assert told is not None
        assert positions(told) == sorted(set(sampler))
        left = positions(told)[::3]
        told.leave_out(left)
        told.leave_out(left[0])
        assert positions(told) == sorted(set(sampler) - set(left))
        assert told.among(np.arange(50, COUNT + 30)).tolist() == [
            each for each in positions(told) if each >= 50
        ]


@pytest.mark.parametrize(
    "sampler", [SequentialSampler(range(9)), RandomSampler(range(9)), RandomWindowSampler(range(9))]
)
def test_every_sample(sampler: Any) -> None:
    """All for those that ask for all; only one that asks for blocks has them."""
    told = coverage(sampler, 9)
    assert told is not None
    assert positions(told) == list(range(9))
    told.leave_out([8, 0])
    assert positions(told) == list(range(1, 8))
    assert (told.block > 0) == isinstance(sampler, RandomWindowSampler)


@pytest.mark.parametrize(
    "sampler", [RandomSampler(range(9), num_samples=3), WeightedRandomSampler([1.0], 3), [1, 2]]
)
def test_any_sample(sampler: Any) -> None:
    """None for those that draw which samples, or are not known."""
    assert coverage(sampler, 9) is None


def test_what_the_dataset_has_not() -> None:
    """A position out of range is no matter of this: the loop says so."""
    assert coverage(SubsetRandomSampler([3, 9]), 5) is None


def test_runs_in_the_order_of_opening() -> None:
    """Runs hold the part's samples; a run is opened, its first sample given, in their order, up to the
    order within one round."""
    order = WindowOrder(5000, 20, 400, 3, 1000, 2000)
    ((starts, lengths),) = order.runs()
    assert lengths.max() == 20
    assert lengths.sum() == 2000
    indices = order.indices()
    assert sorted(indices.tolist()) == sorted(
        i for start, length in zip(starts, lengths, strict=True) for i in range(start, start + length)
    )
    place = {position: at for at, position in enumerate(indices.tolist())}
    opened = np.array(
        [
            min(place[i] for i in range(start, start + length))
            for start, length in zip(starts, lengths, strict=True)
        ]
    )
    assert np.all(np.maximum.accumulate(opened) - opened < order.open_blocks)
