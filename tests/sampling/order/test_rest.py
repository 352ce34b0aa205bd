"""WindowRest: samples left by earlier ranks of an epoch in windows, as the lists of all samples have them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastload.sampling import rest as rests
from fastload.sampling.rest import WindowRest
from fastload.sampling.sharding import Positions, Rule, Split, share, stretch
from fastload.sampling.window import WindowOrder


def left_of(order: Positions, parts: Sequence[Positions], had: int) -> list[int]:
    """Samples of an order that are left after each rank has had the first `had` of its part: each once, part
    after part, then those in no part."""
    done = {sample for part in parts for sample in part[:had].tolist()}
    left = [sample for part in parts for sample in part[had:].tolist()] + order.tolist()
    return [sample for sample in dict.fromkeys(left) if sample not in done]


def of_stretch(order: Positions, split: Split, rank: int, rule: Rule) -> Positions:
    begin, length = stretch(len(order), split.world, rank, rule)
    return order[np.arange(begin, begin + length) % max(1, len(order))]


def order_of(count: int, block: int, buffer: int, world: int, rule: Rule, rank: int) -> WindowOrder:
    return WindowOrder(count, block, buffer, 5, *stretch(count, world, rank, rule))


@settings(max_examples=200)
@given(
    count=st.integers(1, 15) | st.integers(1, 3000),
    block=st.integers(1, 40),
    buffer=st.integers(1, 300),
    rule=st.sampled_from(["pad", "drop", "uneven"]),
    near=st.sampled_from([0, 9, 1 << 14]),
    data=st.data(),
)
def test_rest_of_lists(
    count: int, block: int, buffer: int, rule: Rule, near: int, data: st.DataObject
) -> None:
    """After any splits the rest, and each new rank's part of it from any place on, is that of lists of all
    samples."""
    first = data.draw(st.integers(1, 40))
    order = partial(order_of, count, block, buffer, first, rule)
    worlds = [first, *data.draw(st.lists(st.integers(1, 9), max_size=3))]
    splits: list[Split] = []
    left = np.arange(count)
    for world in worlds:
        splits.append(Split(world, data.draw(st.integers(0, share(len(left), world, 0, rule)))))
        parts = [
            of_stretch(left, splits[-1], rank, rule) if splits[1:] else order(rank).indices()
            for rank in range(world)
        ]
        left = np.array(left_of(left, parts, splits[-1].had), np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rests, "_NEAR", near)
        rest = WindowRest(count, splits, rule, order)
        assert len(rest) == len(left)
        world = data.draw(st.integers(1, 9))
        split = Split(world, data.draw(st.integers(0, share(len(left), world, 0, rule))))
        for rank in range(world):
            found = np.concatenate([left[:0], *rest.part(split, rank)])
            assert np.array_equal(found, of_stretch(left, split, rank, rule)[split.had :])


def test_splits_of_many_ranks() -> None:
    """512 ranks and ten resumes leave some thousand intervals of 10^9 samples, and a part of them begins
    at once."""
    splits = [Split(512 - number, 10_000) for number in range(10)]
    rest = WindowRest(10**9, splits, "pad", partial(order_of, 10**9, 1 << 20, 1 << 22, 512, "pad"))
    assert len(rest) == 10**9 - sum(split.world * split.had for split in splits)
    assert len(next(rest.part(Split(8), 3))) > 0
