"""OccurrenceCounter: each index of a pass has the number of times that it came before."""

from __future__ import annotations

import base64
import json
import zlib
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from fastload import KeyedSampler, WindowSampler
from fastload._native import core
from fastload.common.rng import row_seed, row_seeds, substitute_occurrence
from fastload.sampling.known import facts_of, gives_each_at_most_once
from fastload.sampling.occurrences import OccurrenceCounter, counts_of

COUNT = 12
BATCHES = st.lists(st.lists(st.integers(-COUNT, COUNT - 1), max_size=9), max_size=8)


def naive(batches: list[list[Any]]) -> list[list[int]]:
    seen: Counter[Any] = Counter()
    out = []
    for batch in batches:
        out.append([])
        for index in batch:
            key = index % COUNT if isinstance(index, int) else index
            out[-1].append(seen[key])
            seen[key] += 1
    return out


@given(BATCHES, st.sampled_from([list, tuple, np.array, torch.tensor]))
def test_counts(batches: list[list[int]], kind: Any) -> None:
    """As a naive count, within a batch and over batches, of indices in every form; negative ones are those
    that they stand for."""
    counter = OccurrenceCounter(COUNT)
    made = [
        counter.of_batch(kind(batch) if batch or kind in (list, tuple) else batch).tolist()
        for batch in batches
    ]
    assert made == naive(batches)


def test_keys_of_other_kinds() -> None:
    """Texts, tuples, what cannot be hashed, and integers beyond the dataset count too: each by itself."""
    counter = OccurrenceCounter(None)
    assert counter.of_batch(["a", ("a", 1), "a"]).tolist() == [0, 0, 1]
    assert counter.of_batch([["x"], ["x"], "a", 10**30, 10**30]).tolist() == [0, 1, 2, 0, 1]


@given(BATCHES, st.integers(1, 5))
def test_ranks_draw_apart(batches: list[list[int]], world: int) -> None:
    """An index on several ranks, or again on one, never has one occurrence twice; on rank 0 of one they
    are the counts."""
    found = [OccurrenceCounter(COUNT, rank, world) for rank in range(world)]
    keys = [
        (index % COUNT, occurrence)
        for counter in found
        for batch in batches
        for index, occurrence in zip(batch, counter.of_batch(batch).tolist(), strict=True)
    ]
    assert len(keys) == len(set(keys))


@given(BATCHES, BATCHES)
def test_a_state_holds_the_counts_without_those_ahead(done: list[list[int]], ahead: list[list[int]]) -> None:
    """A counter that was loaded counts on as one that never drew what was ahead; the state goes through
    JSON."""
    counter = OccurrenceCounter(COUNT)
    for batch in [*done, *ahead]:
        counter.of_batch(batch)
    state = json.loads(json.dumps(counter.state(ahead)))
    other = OccurrenceCounter(COUNT)
    other.load(state)
    assert [other.of_batch(batch).tolist() for batch in ahead] == naive([*done, *ahead])[len(done) :]


def packed(values: bytes) -> str:
    return base64.b64encode(zlib.compress(values)).decode()


@pytest.mark.parametrize(
    "state",
    [
        None,
        {"samples": COUNT},
        {"samples": COUNT, "counts": 3},
        {"samples": COUNT, "counts": "?"},
        {"samples": COUNT, "counts": packed(b"")},
        {"samples": COUNT, "counts": packed(bytes(4 * COUNT + 4))},
        {"samples": COUNT, "counts": packed(bytes(10**7))},
        {"samples": COUNT, "counts": base64.b64encode(b"none").decode()},
        {"samples": COUNT + 1, "counts": packed(bytes(4 * COUNT + 4))},
    ],
)
def test_hostile_states(state: Any) -> None:
    """What state() did not give is refused, and unpacks to no more than the counts of the dataset."""
    with pytest.raises(ValueError, match=r"counts of samples|base64|Incorrect padding"):
        counts_of(state, COUNT)


def test_too_many_for_a_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit, and with keys that are no positions, a state has no counts."""
    monkeypatch.setattr("fastload.sampling.occurrences.COUNTS_LIMIT", 10)
    assert OccurrenceCounter(11).state([]) is None
    counter = OccurrenceCounter(5)
    assert counter.state([]) is not None
    counter.of_batch(["a"])
    assert counter.state([]) is None


DATA = range(COUNT)
WEIGHTS = [1.0] * COUNT


class Own(SequentialSampler):
    """Torch's class with code of the user's."""

    def __iter__(self) -> Any:
        yield from [0, 0]


@pytest.mark.parametrize(
    ("sampler", "once"),
    [
        (SequentialSampler(DATA), True),
        (RandomSampler(DATA), True),
        (RandomSampler(DATA, num_samples=5), True),
        (RandomSampler(DATA, num_samples=30), False),
        (RandomSampler(DATA, replacement=True), False),
        (SubsetRandomSampler([1, 1, 2]), False),
        (WeightedRandomSampler(WEIGHTS, 5, replacement=False), True),
        (WeightedRandomSampler(WEIGHTS, 5), False),
        (KeyedSampler(DATA), True),
        (WindowSampler(DATA), True),
        (Own(DATA), False),
        ([0, 0, 1], False),
    ],
)
def test_samplers_that_give_each_once(sampler: Any, once: bool) -> None:
    """Those that are known to give each index at most once need no counts, and none that may give one
    twice is among them."""
    for index_sampler in (sampler, BatchSampler(sampler, 2, False)):
        assert gives_each_at_most_once(facts_of(index_sampler)) == once
    assert not gives_each_at_most_once(facts_of([[0, 1], [0]]))


def test_seeds() -> None:
    """Occurrence 0 has the seed itself; every other one another seed, the same alone and in a batch, and
    substitutes have their own."""
    seeds = {row_seed(7, 2, occurrence) for occurrence in range(1000)}
    assert len(seeds) == 1000
    assert row_seed(7, 2, 0) == 7
    numbers = np.array([0, 3, 1, 2**31 + 5], np.uint32)
    found = row_seeds(7, 2, numbers)
    assert found is not None
    assert found.tolist() == [row_seed(7, 2, int(number)) for number in numbers]
    assert row_seeds(7, 2, None) is row_seeds(7, 2, np.zeros(3, np.uint32)) is None
    assert row_seed(7, 3, 1) != row_seed(7, 2, 1) != row_seed(8, 2, 1)
    instead = {substitute_occurrence(7, 2, index, again) for index in range(50) for again in range(20)}
    assert len(instead) == 1000
    assert min(instead) >= 1 << 31


def test_native_arguments() -> None:
    """Lengths that do not fit are refused, and nothing is counted of a batch with a position that there is
    not."""
    counts = np.zeros(3, np.uint32)
    with pytest.raises(IndexError, match="position 3 is out of range for 3"):
        core.count_occurrences(counts, np.array([0, 3]))
    assert not counts.any()
    with pytest.raises(Exception, match="2 seeds for 3 indices"):
        core.random_rows(0, 0, np.arange(3, dtype=np.uint64), [(0, 2)], np.zeros(2, np.uint64))
    rows = core.random_rows(0, 1, np.arange(3, dtype=np.uint64), [(4, 6)], np.array([5, 6, 7], np.uint64))
    assert rows.tolist() == [core.random_words(5 + index, 1, index, 4, 6) for index in range(3)]
