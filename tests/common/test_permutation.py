"""KeyedPermutation: a bijection for every size, random to chi-square tests, the same for ever, and no
memory for its elements."""

from __future__ import annotations

import tracemalloc

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fastload.common.rng import CHUNK, COUNT_LIMIT, SMALL_COUNT, KeyedPermutation

KEYS = 2000


def whole(count: int, key: int) -> npt.NDArray[np.int64]:
    return np.concatenate([np.empty(0, np.int64), *KeyedPermutation(count, key).chunks()])


def deviation(counts: npt.NDArray[np.int64], expected: float) -> float:
    """Chi-square of equal frequencies, as standard deviations of a normal variable (Wilson and Hilferty's
    approximation)."""
    free = counts.size - 1
    ratio = float(((counts - expected) ** 2).sum() / expected / free)
    return float((ratio ** (1 / 3) - (1 - 2 / (9 * free))) / np.sqrt(2 / (9 * free)))


@settings(max_examples=120)
@given(count=st.integers(0, 5000), key=st.integers(0, 2**64 - 1))
@example(count=0, key=0)
@example(count=1, key=2**64 - 1)
@example(count=2, key=1)
@example(count=SMALL_COUNT, key=1)
@example(count=SMALL_COUNT - 1, key=1)
@example(count=1 << 18, key=5)
@example(count=999_983, key=7)
def test_each_element_once(count: int, key: int) -> None:
    """All elements, each once, and again the same."""
    order = whole(count, key)
    assert order.dtype == np.int64
    assert np.array_equal(np.sort(order), np.arange(count))
    assert np.array_equal(order, whole(count, key))


@settings(max_examples=80)
@given(
    count=st.integers(1, 3 * CHUNK),
    key=st.integers(0, 2**64 - 1),
    start=st.integers(0, 3 * CHUNK),
    step=st.integers(1, 9),
    stop=st.none() | st.integers(0, 4 * CHUNK),
)
def test_any_slice(count: int, key: int, start: int, step: int, stop: int | None) -> None:
    """A slice has what the whole order has there; so have single positions, in any order; the positions
    themselves stay as they are."""
    order, permutation = whole(count, key), KeyedPermutation(count, key)
    found = np.concatenate([np.empty(0, np.int64), *permutation.chunks(start, step, stop)])
    assert np.array_equal(found, order[start:stop:step])
    positions = np.array([count - 1, 0, start % count])
    assert np.array_equal(permutation.at(positions), order[positions])
    assert positions.tolist() == [count - 1, 0, start % count]


@pytest.mark.parametrize("count", [3, 5, 8, 17, 60])
def test_places_and_pairs_over_many_keys(count: int) -> None:
    """Over many keys: each element at each place, each pair of elements at two places, and each difference
    of neighbours, equally often."""
    orders = np.stack([whole(count, key) for key in range(KEYS)])
    places = np.stack([np.bincount(orders[:, place], minlength=count) for place in range(count)])
    assert all(abs(deviation(each, KEYS / count)) < 5 for each in places)
    assert deviation(places, KEYS / count) < 5
    different = ~np.eye(count, dtype=bool)
    for other in {1, count // 2, count - 1}:
        pairs = np.bincount(orders[:, 0] * count + orders[:, other], minlength=count**2).reshape(count, count)
        assert pairs[~different].sum() == 0
        assert deviation(pairs[different], KEYS / different.sum()) < 5
    steps = np.diff(orders, axis=1) % count
    assert deviation(np.bincount(steps.ravel(), minlength=count)[1:], steps.size / (count - 1)) < 5


@pytest.mark.parametrize("count", [SMALL_COUNT - 7, SMALL_COUNT, 300_007, 1_281_167, 10**9, COUNT_LIMIT])
@pytest.mark.parametrize("key", [0, 1, 2**63])
def test_one_long_order(count: int, key: int) -> None:
    """Within an order: where elements fall, pairs, triples, differences of neighbours and their low bits
    are as of independent draws."""
    permutation = KeyedPermutation(count, key)
    taken = min(count, 1 << 18) // 4 * 4
    order = permutation.at(np.arange(taken))
    cell = (order // -(-count // 64)).astype(np.int64)
    whole_cells = taken < count / 16 or count > 10 * taken
    if whole_cells:  # a whole order fills each cell exactly
        assert deviation(np.bincount(cell, minlength=64), taken / 64) < 5
    assert deviation(np.bincount(cell[:-1] * 64 + cell[1:], minlength=4096), (taken - 1) / 4096) < 5
    far = taken // 3
    assert deviation(np.bincount(cell[:-far] * 64 + cell[far:], minlength=4096), (taken - far) / 4096) < 5
    eighths = cell // 8
    assert (
        deviation(
            np.bincount(eighths[:-2] * 64 + eighths[1:-1] * 8 + eighths[2:], minlength=512), (taken - 2) / 512
        )
        < 5
    )
    steps = np.diff(order) % count
    assert deviation(np.bincount(steps // -(-count // 64), minlength=64), (taken - 1) / 64) < 5
    low = order % 16
    assert deviation(np.bincount(low[:-1] * 16 + low[1:], minlength=256), (taken - 1) / 256) < 5
    assert deviation(np.bincount(steps % 32, minlength=32), (taken - 1) / 32) < 5


def test_neighbouring_keys() -> None:
    """Orders of keys, and of sizes, that are one apart have no more places in common than any two."""
    order = whole(100_003, 8)
    for other in (whole(100_003, 9), whole(100_004, 8)[:100_003]):
        assert (order == other).sum() < 12
        assert abs(np.corrcoef(order, other)[0, 1]) < 5 / np.sqrt(len(order))


def test_known_orders() -> None:
    """Orders stay what they are, from release to release and on every machine: runs that were begun go on."""
    assert whole(12, 2**63 - 1).tolist() == [2, 0, 3, 1, 11, 8, 6, 10, 4, 7, 9, 5]
    assert KeyedPermutation(10**9, 5).at(np.array([0, 1, 10**9 - 1])).tolist() == [
        80822564,
        893685223,
        495883034,
    ]
    assert int((whole(70_000, 11) * np.arange(70_000) % 1_000_003).sum()) == 34_960_477_847


def test_memory() -> None:
    """An order of 10**9 takes no more memory than a few chunks, at its beginning and anywhere in it."""
    whole(10, 0)
    tracemalloc.start()
    try:
        permutation = KeyedPermutation(10**9, 3)
        assert len(next(permutation.chunks())) == CHUNK
        assert len(next(permutation.chunks(999_000_000, 8))) == CHUNK
        assert tracemalloc.get_traced_memory()[1] < 40 * CHUNK * 8
    finally:
        tracemalloc.stop()


def test_sizes_out_of_range() -> None:
    """More elements than 64-bit products allow, and fewer than none, are refused."""
    for count in (-1, COUNT_LIMIT + 1):
        with pytest.raises(ValueError, match="an order has 0 to"):
            KeyedPermutation(count, 0)
