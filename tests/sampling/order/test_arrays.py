"""Index batches as arrays: the positions of torch's samplers, from the same draws at the same calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
)

from fastload import KeyedSampler, WindowSampler
from fastload.sampling.arrays import comes_in_arrays, index_batches
from fastload.sampling.keyed import RandomKeyedSampler
from fastload.sampling.known import facts_of
from fastload.sampling.window import RandomWindowSampler

KINDS: dict[str, Any] = {
    "sequential": SequentialSampler,
    "random": RandomSampler,
    "window": RandomWindowSampler,
    "huge": RandomKeyedSampler,
    "WindowSampler": WindowSampler,
    "WindowSampler of a rank": lambda data: WindowSampler(data, seed=1, num_replicas=2, rank=1),
    "KeyedSampler": KeyedSampler,
}


def both(
    sampler: Any, size: int, drop_last: bool, private: torch.Generator | None = None
) -> tuple[list[Any], list[Any]]:
    """Each batch, and the state of torch's global generator after it: as torch makes them, and as arrays."""
    index = BatchSampler(sampler, size, drop_last)
    facts = facts_of(index, private)
    out: tuple[list[Any], list[Any]] = [], []
    for made, batches in zip(out, (iter, lambda each: index_batches(each, facts)), strict=True):
        torch.manual_seed(7)
        iterator = batches(index)
        made.append(torch.get_rng_state().tolist())
        for batch in iterator:
            made.append((list(map(int, batch)), torch.get_rng_state().tolist()))
        made.append(torch.get_rng_state().tolist())
    return out


@pytest.mark.parametrize("kind", KINDS)
@given(count=st.integers(1, 300), size=st.integers(1, 70), drop_last=st.booleans())
def test_positions_and_draws_are_torchs(kind: str, count: int, size: int, drop_last: bool) -> None:
    """The same batches, and after each the same state of torch's generator."""
    sampler = KINDS[kind](range(count))
    assert comes_in_arrays(facts_of(BatchSampler(sampler, size, drop_last)))
    theirs, ours = both(sampler, size, drop_last)
    assert ours == theirs


def test_a_long_sequence_crosses_its_chunks() -> None:
    theirs, ours = both(SequentialSampler(range(200_000)), 1000, False)
    assert ours == theirs


def test_a_generator_that_the_loader_seeds() -> None:
    """Its order is an array's too; from a generator of the user's, torch draws at the end as well, so that
    it draws itself."""
    generator = torch.Generator()
    sampler = RandomSampler(range(100), generator=generator)
    assert comes_in_arrays(facts_of(BatchSampler(sampler, 8, False), generator))
    orders = []
    for batches in (iter, lambda each: index_batches(each, facts_of(each, generator))):
        generator.manual_seed(3)
        orders.append([list(map(int, batch)) for batch in batches(BatchSampler(sampler, 8, False))])
    assert orders[0] == orders[1]
    assert not comes_in_arrays(facts_of(BatchSampler(sampler, 8, False)))


class Reversed(Sampler[int]):
    """A sampler of a user's."""

    def __iter__(self) -> Any:
        return iter(range(9, -1, -1))


class Shouting(RandomSampler):
    """A RandomSampler of a user's."""

    def __iter__(self) -> Any:
        return map(int, super().__iter__())


@pytest.mark.parametrize(
    "sampler",
    [
        Reversed(),
        Shouting(range(10)),
        RandomSampler(range(10), replacement=True),
        RandomSampler(range(10), num_samples=25),
        SubsetRandomSampler(range(10)),
        DistributedSampler(range(10), 1, 0),
    ],
    ids=lambda each: type(each).__name__,
)
def test_other_samplers_make_their_batches(sampler: Any) -> None:
    """As they are, in lists."""
    index = BatchSampler(sampler, 4, False)
    facts = facts_of(index)
    assert not comes_in_arrays(facts)
    assert all(type(batch) is list for batch in index_batches(index, facts))


def test_replaced_code_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """An __iter__ that somebody gave to torch's class is asked."""
    monkeypatch.setattr(RandomSampler, "__iter__", lambda self: iter([3, 1, 2]))
    index = BatchSampler(RandomSampler(range(3)), 2, False)
    assert list(index_batches(index, facts_of(index))) == [[3, 1], [2]]


def test_batches_are_arrays_of_positions() -> None:
    index = BatchSampler(RandomSampler(range(10)), 4, False)
    made = list(index_batches(index, facts_of(index)))
    assert all(batch.dtype == np.int64 for batch in made)
    assert [len(batch) for batch in made] == [4, 4, 2]
