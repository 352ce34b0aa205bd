"""NativeView.rows: the rows of nested Subsets and ConcatDatasets, as lists of all positions have them, and
the memory of a view."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset, Subset

from fastload import PackedDataset
from fastload import transforms as T
from fastload.dataset.resolver import Resolver
from fastload.errors import ArgumentError

Rows = list[tuple[int, int]]


def data(packed: Path, count: int = 3) -> list[PackedDataset]:
    return [PackedDataset(packed, transform=T.Resize((8, 8))) for _ in range(count)]


def tree(rng: random.Random, leaves: list[PackedDataset], depth: int) -> tuple[Any, Rows]:
    """A tree of datasets, and (leaf, index) at each of its positions."""
    if depth == 0 or rng.random() < 0.1:
        leaves.append(leaves.pop(0))
        return leaves[-1], [(id(leaves[-1]), index) for index in range(len(leaves[-1]))]
    if rng.random() < 0.4:
        parts = [tree(rng, leaves, depth - 1) for _ in range(rng.randint(1, 3))]
        return ConcatDataset([part for part, _ in parts]), [row for _, rows in parts for row in rows]
    inner, rows = tree(rng, leaves, depth - 1)
    count = len(rows)
    start, stop = sorted(rng.randint(0, count) for _ in range(2))
    picked: Any = rng.choice(
        [
            range(start, stop),
            range(stop - 1, start - 1, -rng.randint(1, 3)) if start < stop else range(0),
            range(-1, -count - 1, -2),
            [rng.randrange(-count, count) for _ in range(rng.randint(0, 9))],
            np.array([rng.randrange(-count, count) for _ in range(rng.randint(1, 9))]),
            range(count),
        ]
    )
    if not len(picked):
        picked = range(count)
    return Subset(inner, picked), [rows[index] for index in picked]


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), depth=st.integers(0, 4))
def test_rows_of_nested_datasets(packed: Path, seed: int, depth: int) -> None:
    """Each position, asked for alone, among others or from the end, is the sample that the lists say; all
    of them exist."""
    rng, leaves = random.Random(seed), data(packed)
    dataset, expected = tree(rng, leaves, depth)
    view = Resolver().view(dataset)
    assert view is not None
    assert len(view) == len(expected)
    asked = [rng.randrange(-len(expected), len(expected)) for _ in range(20)]
    source, index = view.rows(asked)
    assert (source.dtype, index.dtype) == (np.uint32, np.uint64)
    assert [
        (id(view.datasets[number]), place)
        for number, place in zip(source.tolist(), index.tolist(), strict=True)
    ] == [expected[each] for each in asked]
    positions = np.arange(len(expected))
    assert np.array_equal(view.existing(positions), positions)
    with pytest.raises(IndexError):
        view.rows([0, len(expected)])


@pytest.mark.parametrize("indices", [[0, 60, 1], range(40, 60), np.array([0, -51])])
def test_samples_that_a_dataset_lacks(packed: Path, indices: Any) -> None:
    """An index beyond the dataset is an error where it is asked for, which names its position, and no
    sample that exists."""
    (leaf,) = data(packed, 1)
    for dataset in (
        Subset(leaf, indices),
        ConcatDataset([Subset(leaf, indices)]),
        Subset(Subset(leaf, indices), range(len(indices))),
    ):
        view = Resolver().view(dataset)
        assert view is not None
        missing = [place for place, index in enumerate(indices) if not -len(leaf) <= index < len(leaf)]
        assert view.existing(np.arange(len(indices))).tolist() == [
            place for place in range(len(indices)) if place not in missing
        ]
        view.rows([0])
        with pytest.raises(
            IndexError,
            match=f"sample {missing[0]} is by the indices of a Subset one that its dataset does not have",
        ):
            view.rows(range(len(indices)))


def test_a_part_that_became_shorter(packed: Path) -> None:
    """A ConcatDataset has the lengths that its parts had: a shorter part is an error, a longer one gives
    what it had."""
    (leaf,) = data(packed, 1)
    part = Subset(leaf, range(10))
    joined = ConcatDataset([part, leaf])
    part.indices = range(5)
    with pytest.raises(ArgumentError, match="part 0 of the ConcatDataset has 5 samples, and had 10"):
        Resolver().view(joined)
    part.indices = range(20, 50)
    view = Resolver().view(joined)
    assert view is not None
    assert view.rows([9, 10])[1].tolist() == [29, 0]


def test_memory_of_a_view(packed: Path) -> None:
    """A range, however nested, takes nothing for its samples, an array 8 bytes, and comparing it at the
    next pass no copy of it."""
    (leaf,) = data(packed, 1)
    count = 10**6
    joined = ConcatDataset([Subset(leaf, range(50))] * 200)
    many = np.arange(count) % len(joined)
    for dataset, limit in ((Subset(joined, range(len(joined))), 200_000), (Subset(joined, many), 9 * count)):
        resolver = Resolver()
        tracemalloc.start()
        try:
            view = resolver.view(dataset)
            assert tracemalloc.get_traced_memory()[1] < limit
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            assert resolver.view(dataset) is view
            assert tracemalloc.get_traced_memory()[1] - before < 1 << 20
        finally:
            tracemalloc.stop()
        assert view is not None
    many[7] += 1
    assert resolver.view(dataset) is not view
