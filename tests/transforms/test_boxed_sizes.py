"""Sizes that depend on the boxes of a sample are bounded before the boxes are known: by the largest that
any boxes can make."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastload import transforms as T
from fastload._native import core
from fastload.transforms.compiler import compile_plan

sides = st.integers(1, 300)
CROPS = st.builds(
    lambda least, most, low, high: T.RandomIoUCrop(
        min_scale=least,
        max_scale=max(least, most),
        min_aspect_ratio=low,
        max_aspect_ratio=max(low, high),
        sampler_options=(0.0, 0.1, 0.5, 1.0),
    ),
    st.floats(0.05, 1),
    st.floats(0.05, 1),
    st.floats(0.1, 3),
    st.floats(0.1, 3),
)
RESIZES = st.one_of(
    st.builds(T.Resize, sides),
    st.builds(lambda size, more: T.Resize(size, max_size=size + more), sides, sides),
    st.builds(lambda most: T.Resize(None, max_size=most), sides),
    st.builds(
        lambda size, most: T.RandomShortestSize([size, size + 7], max_size=most), sides, st.none() | sides
    ),
    st.builds(lambda least, more: T.RandomResize(least, least + more), sides, sides),
    st.builds(
        lambda high, wide, least: T.ScaleJitter((high, wide), scale_range=(least, 2 * least)),
        sides,
        sides,
        st.floats(0.1, 2),
    ),
)
MORE = st.one_of(
    st.just(T.RandomHorizontalFlip()),
    st.just(T.RandomZoomOut(side_range=(1.0, 3.0))),
    st.just(T.SanitizeBoundingBoxes()),
    CROPS,
)


@st.composite
def lists(draw: Any) -> list[Any]:
    """Crops by boxes, and what may stand before and after them; at most one resize."""
    resize = draw(st.lists(RESIZES, max_size=1))
    return [
        *draw(st.lists(MORE, max_size=2)),
        draw(CROPS),
        *draw(st.lists(MORE, max_size=2)),
        *resize,
        *draw(st.lists(MORE, max_size=2)),
    ]


@settings(max_examples=300)
@given(lists(), sides, sides, st.integers(0, 2**40))
def test_no_boxes_make_more(transform: list[Any], height: int, width: int, seed: int) -> None:
    """Whatever the boxes are, the size is within the bound."""
    rng = np.random.default_rng(seed)
    program = compile_plan(transform, boxes=True).program
    most = program.size(width, height, seed, 0, 0)
    for count in (0, 1, 4):
        corner = rng.uniform(0, 1, (count, 2)) * (width, height)
        boxes = np.concatenate([corner, corner + rng.uniform(0, 1, (count, 2)) * (width, height)], 1).astype(
            np.float32
        )
        size = core.Geometry(program, (width, height), seed, 0, 0, boxes).size
        assert size[0] <= most[0]
        assert size[1] <= most[1]


@pytest.mark.parametrize(
    ("transform", "bound"),
    [
        ([T.RandomIoUCrop(), T.RandomHorizontalFlip()], (200, 100)),
        ([T.RandomZoomOut(side_range=(2.0, 2.0), p=1.0), T.RandomIoUCrop()], (400, 200)),
        ([T.RandomIoUCrop(), T.Resize(50)], (101, 101)),
        ([T.RandomIoUCrop(), T.Resize(50, max_size=60)], (61, 61)),
        ([T.RandomIoUCrop(), T.ScaleJitter((64, 96), scale_range=(1.0, 1.0))], (65, 97)),
        ([T.RandomIoUCrop(), T.RandomCrop(60), T.RandomHorizontalFlip()], (60, 60)),
    ],
)
def test_bounds_are_close(transform: list[Any], bound: tuple[int, int]) -> None:
    """A bound is at most a pixel above what some boxes make; after a step that ends at one size it is that
    size."""
    assert compile_plan(transform, boxes=True).program.size(200, 100) == bound


def test_bounds_of_long_images_are_close() -> None:
    """A side that is long in the image alone is long in the bound alone: crops have ratios of their own."""
    program = compile_plan([T.RandomIoUCrop(), T.Resize(50)], boxes=True).program
    assert program.size(8000, 100) == (4001, 101)
    assert program.size(100, 8000) == (101, 4001)
    assert compile_plan([T.RandomIoUCrop(), T.Resize(None, max_size=60)], boxes=True).program.size(
        8000, 100
    ) == (61, 61)
    free = compile_plan([T.RandomIoUCrop(min_aspect_ratio=0.001), T.Resize(50)], boxes=True).program
    assert free.size(90, 60) == (101, 3001)
