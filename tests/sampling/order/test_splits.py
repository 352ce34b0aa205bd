"""Splits of an order over ranks: what all had, what is left, by arithmetic alone, against lists that are
split by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DistributedSampler

from fastload.sampling.sharding import (
    Rule,
    Split,
    advanced,
    begun_at,
    continued,
    share,
    stretch,
    strided,
    strided_places,
)

counts = st.integers(0, 60)
worlds = st.integers(1, 9)
rules = st.sampled_from(["pad", "drop", "uneven"])


def by_hand(rest: list[int], world: int, rank: int, rule: Rule) -> list[int]:
    """A rank's part of what is left: DistributedSampler's of that list, or its plain stride."""
    if rule == "uneven":
        return rest[rank::world]
    if not rest:
        return []  # DistributedSampler cannot pad nothing
    return [
        rest[place]
        for place in DistributedSampler(rest, world, rank, shuffle=False, drop_last=rule == "drop")
    ]  # type: ignore[arg-type]


def places(count: int, splits: list[Split], rank: int, rule: Rule) -> list[int]:
    return [int(place) for chunk in strided_places(count, splits, rank, rule, step=7) for place in chunk]


@given(count=counts, rule=rules, data=st.data())
def test_any_sequence_of_splits(count: int, rule: Rule, data: st.DataObject) -> None:
    """However often other ranks go on: each rank's places are those of the list that is left, and together
    all places are had once."""
    rest, had_by_all, splits = list(range(count)), [], []
    for _ in range(data.draw(st.integers(1, 4))):
        world = data.draw(worlds)
        splits = [*splits, Split(world)]
        parts = [by_hand(rest, world, rank, rule) for rank in range(world)]
        assert [places(count, splits, rank, rule) for rank in range(world)] == parts
        assert [len(part) for part in parts] == [share(len(rest), world, rank, rule) for rank in range(world)]
        assert begun_at(count, splits) == count - len(rest)
        for rank in range(world):
            assert list(strided(range(count), count - len(rest), splits[-1], rank, rule)) == parts[rank]
        had = data.draw(st.integers(0, max(len(part) for part in parts)))
        splits[-1] = Split(world, had)
        for rank in range(world):
            assert places(count, splits, rank, rule) == parts[rank][had:]
            assert list(strided(range(count), count - len(rest), splits[-1], rank, rule)) == parts[rank][had:]
        now = {place for part in parts for place in part[:had]}
        # Padding is less than a round.
        assert len(now) >= sum(len(part[:had]) for part in parts) - (world - 1)
        had_by_all += sorted(now)
        rest = [place for place in rest if place not in now]
    assert sorted(had_by_all + rest) == list(range(count))


@given(
    count=counts,
    world=worlds,
    rule=rules,
    batch=st.integers(1, 7),
    drop=st.booleans(),
    steps=st.integers(0, 70),
)
def test_advanced_is_the_same_on_every_rank(
    count: int, world: int, rule: Rule, batch: int, drop: bool, steps: int
) -> None:
    """After as many batches on every rank, the splits say what each rank that has had its batches in full
    has had."""
    splits, over = advanced([Split(world)], count, rule, steps * batch, batch if drop else 1)
    shares = [share(count, world, rank, rule) for rank in range(world)]
    assert splits[-1].had == min(steps * batch, max(shares))
    left = [max(0, each - steps * batch) for each in shares]
    assert over == (max(left) < (batch if drop else 1))


@given(count=st.integers(0, 60), world=worlds, rule=rules)
def test_stretches_cover_an_order(count: int, world: int, rule: Rule) -> None:
    """Stretches follow each other; under "pad" the last ones go on at the order's beginning, under "drop"
    its end is left out."""
    parts = [stretch(count, world, rank, rule) for rank in range(world)]
    assert [length for _, length in parts] == [
        share(count, world, rank, rule) for rank in range(world)
    ] or rule == "uneven"
    ends = [begin + length for begin, length in parts]
    assert [begin for begin, _ in parts] == [0, *ends[:-1]]
    assert {"pad": ends[-1] >= count, "drop": count - world < ends[-1] <= count, "uneven": ends[-1] == count}[
        rule
    ]


def test_continued() -> None:
    """Ranks that were there go on; others begin a split of their own; splits in which nothing was had are
    none."""
    assert continued([], 3) == (Split(3),)
    assert continued([Split(2, 5)], 2) == (Split(2, 5),)
    assert continued([Split(2, 5)], 3) == (Split(2, 5), Split(3))
    assert continued([Split(2, 5), Split(3)], 2) == (Split(2, 5),)
    assert continued([Split(2, 0)], 4) == (Split(4),)


@pytest.mark.parametrize("rule", ["pad", "drop", "uneven"])
def test_a_huge_order_begins_at_once(rule: Rule) -> None:
    """Places of a part in the middle of 10^12 samples need no others."""
    count = 10**12
    first = next(strided_places(count, [Split(8, 10**9), Split(3, 10**10)], 2, rule))
    assert first[0] == 8 * 10**9 + 3 * 10**10 + 2
    assert first[1] == first[0] + 3
