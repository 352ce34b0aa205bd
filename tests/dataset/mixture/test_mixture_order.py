"""MixtureOrder: exact counts, sources gone through without repetition over epochs and weights, mixed
evenly, any position alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastload.common.rng import KeyedPermutation, source_seed
from fastload.dataset.mixture import BLOCK, SPAN, Changes, MixtureOrder, shares

WEIGHTS = st.lists(st.floats(0, 1e6, allow_subnormal=False), min_size=1, max_size=5).filter(any)


@settings(max_examples=100)
@given(weights=WEIGHTS, samples=st.integers(1, 2000))
def test_shares(weights: list[float], samples: int) -> None:
    """Whole numbers with the sum asked for, each within one of its exact share, and none for a weight of
    zero."""
    counts = shares(weights, samples)
    assert sum(counts) == samples
    for weight, count in zip(weights, counts, strict=True):
        assert abs(count - weight / sum(weights) * samples) < 1 + 1e-6
        assert weight or not count


def test_known_shares() -> None:
    """Largest remainders are served first, and of equal ones the first source's."""
    assert shares([0.7, 0.3], 10) == (7, 3)
    assert shares([1, 1, 1], 10) == (4, 3, 3)
    assert shares([1, 1, 1], 2) == (1, 1, 0)
    assert shares([0.5, 0.26, 0.24], 3) == (1, 1, 1)
    assert shares([5e-324, 1e300], 7) == (0, 7)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**64 - 1),
    samples=st.integers(1, 300),
    lengths=st.lists(st.integers(1, 90), min_size=1, max_size=4),
    data=st.data(),
)
def test_as_a_plain_walk_has_it(seed: int, samples: int, lengths: list[int], data: st.DataObject) -> None:
    """Walking through all epochs position by position with a cursor for each source, as plain Python
    would, gives the same samples."""
    some = st.lists(st.floats(0, 9), min_size=len(lengths), max_size=len(lengths)).filter(any)
    firsts = [0, *sorted(data.draw(st.sets(st.integers(1, 4), max_size=2)))]
    changes: Changes = tuple((first, tuple(data.draw(some))) for first in firsts)
    order = MixtureOrder(seed, samples, tuple(lengths), changes)
    cursors = [0] * len(lengths)
    passes: dict[tuple[int, int], list[int]] = {}
    for epoch in range(6):
        weights = [weights for first, weights in changes if first <= epoch][-1]
        assert list(order.starts(epoch)) == cursors
        sources, indices = order.rows(epoch, np.arange(samples))
        for source, index in zip(sources.tolist(), indices.tolist(), strict=True):
            number, place = divmod(cursors[source], lengths[source])
            if (source, number) not in passes:
                keyed = KeyedPermutation(lengths[source], source_seed(seed, source, number))
                passes[source, number] = keyed.at(np.arange(lengths[source])).tolist()
            assert index == passes[source, number][place]
            cursors[source] += 1
        assert (
            np.bincount(sources, minlength=len(lengths)).tolist()
            == list(order.counts(epoch))
            == list(shares(weights, samples))
        )


@settings(max_examples=40)
@given(
    samples=st.integers(1, 3 * SPAN),
    positions=st.lists(st.integers(0, 3 * SPAN), max_size=50),
    epoch=st.integers(0, 2**40),
)
def test_any_positions(samples: int, positions: list[int], epoch: int) -> None:
    """Positions alone, in any order and repeated, have what the whole epoch has there."""
    changes: Changes = ((0, (0.5, 0.2, 0.3)),)
    whole = MixtureOrder(3, samples, (700, 40, 3), changes)._rows(epoch, np.arange(samples))
    where = np.array(positions, np.int64) % samples
    for some in (where, np.sort(where), where[:1]):
        found = MixtureOrder(3, samples, (700, 40, 3), changes).rows(epoch, some)
        assert np.array_equal(found[0], whole[0][some])
        assert np.array_equal(found[1], whole[1][some])


@pytest.mark.parametrize("weights", [(0.7, 0.3), (0.01, 0.01, 0.98), (1, 1, 1, 1, 1, 1, 1), (0.999, 0.001)])
def test_evenly_mixed(weights: tuple[float, ...]) -> None:
    """At any place the sources have had their shares, to within a block and a sample for each; in a block
    the order is random."""
    samples = 40_000
    order = MixtureOrder(1, samples, tuple(5000 + k for k in range(len(weights))), ((0, weights),))
    sources, _ = order.rows(0, np.arange(samples))
    for number, weight in enumerate(weights):
        share = weight / sum(weights)
        behind = np.cumsum(sources == number) - share * np.arange(1, samples + 1)
        assert abs(behind).max() < BLOCK * min(share, 1 - share) + len(weights) + 1
    places = (sources == 0).reshape(-1, BLOCK).sum(axis=0)
    expected = order.counts(0)[0] / BLOCK
    assert abs(places - expected).max() < 5 * np.sqrt(expected) + 1
    other, _ = order.rows(1, np.arange(samples))
    assert (sources != other).any()


def test_a_rank_of_two_gets_both() -> None:
    """A strided rank has the epoch's proportions too: no pattern of sources meets the stride."""
    sources, _ = MixtureOrder(5, 64_000, (9000, 9000), ((0, (1.0, 1.0)),)).rows(0, np.arange(64_000))
    for world in (2, 4, 8, 64):
        for rank in range(min(world, 4)):
            mine = sources[rank::world]
            assert abs((mine == 0).mean() - 0.5) < 5 * 0.5 / np.sqrt(len(mine))


def test_known_order() -> None:
    """An order stays what it is, from release to release and on every machine: runs that were begun go on."""
    order = MixtureOrder(7, 20, (9, 4), ((0, (0.7, 0.3)), (2, (0.0, 1.0))))
    found = [
        list(zip(*(each.tolist() for each in order.rows(epoch, np.arange(20))), strict=True))[:6]
        for epoch in range(3)
    ]
    assert found == [
        [(0, 3), (1, 3), (0, 7), (1, 1), (0, 2), (0, 4)],
        [(0, 7), (0, 3), (0, 1), (0, 8), (1, 2), (0, 8)],
        [(1, 0), (1, 3), (1, 2), (1, 1), (1, 1), (1, 2)],
    ]
