"""Crop boxes, sizes and windows against torchvision's formulas, written out here as the oracle."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastload import transforms as T
from fastload._native import core
from fastload.errors import ArgumentError, TransformError
from fastload.transforms.compiler import compile_plan

sides = st.integers(1, 700)


class Draws:
    """The engine's uniform numbers of one stream, made in Python from its words."""

    def __init__(self, seed: int, epoch: int, index: int, stream: int) -> None:
        self.words = iter(core.random_words(seed, epoch, index, stream, 64))

    def uniform(self) -> float:
        high, low = next(self.words) >> 5, next(self.words) >> 6
        return (high << 26 | low) * 2.0**-53

    def below(self, bound: int) -> int:
        return next(self.words) * bound >> 32


def torchvision_box(
    draws: Draws, height: int, width: int, scale: tuple[float, float], ratio: tuple[float, float]
) -> tuple[int, ...]:
    """RandomResizedCrop.make_params with its draws replaced by ours: (x, y, width, height)."""
    area = height * width
    log_ratio = (math.log(ratio[0]), math.log(ratio[1]))
    for _ in range(10):
        target = area * (scale[0] + (scale[1] - scale[0]) * draws.uniform())
        aspect = math.exp(log_ratio[0] + (log_ratio[1] - log_ratio[0]) * draws.uniform())
        w, h = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
        if 0 < w <= width and 0 < h <= height:
            y, x = draws.below(height - h + 1), draws.below(width - w + 1)
            return x, y, w, h
    in_ratio = width / height
    if in_ratio < ratio[0]:
        w, h = width, round(width / ratio[0])
    elif in_ratio > ratio[1]:
        h, w = height, round(height * ratio[1])
    else:
        w, h = width, height
    w, h = min(max(w, 1), width), min(max(h, 1), height)
    return (width - w) // 2, (height - h) // 2, w, h


@given(sides, sides, st.integers(0, 2**64 - 1), st.integers(0, 1000), st.integers(0, 2**40))
def test_random_resized_crop_box_is_torchvisions(
    height: int, width: int, seed: int, epoch: int, index: int
) -> None:
    """The box follows make_params step by step, fallback included."""
    for scale, ratio in (((0.08, 1.0), (3 / 4, 4 / 3)), ((0.9, 1.0), (2.0, 3.0))):
        plan = compile_plan([T.RandomResizedCrop(64, scale=scale, ratio=ratio)])
        got = plan.program.resolve(width, height, seed, epoch, index)
        assert got["box"] == torchvision_box(Draws(seed, epoch, index, 1), height, width, scale, ratio)
        assert got["size"] == (64, 64)


@given(sides, sides, st.integers(1, 400), st.none() | st.integers(401, 900))
def test_resize_shorter_side(height: int, width: int, size: int, max_size: int | None) -> None:
    """Resize(int): the shorter side becomes size, the longer int(size * long / short), capped by max_size."""
    short, long = sorted((height, width))
    new_short, new_long = size, int(size * long / short)
    if max_size is not None and new_long > max_size:
        new_short, new_long = int(max_size * new_short / new_long), max_size
    expected = (max(new_short, 1), new_long) if width <= height else (new_long, max(new_short, 1))
    assert compile_plan(T.Resize(size, max_size=max_size)).program.size(width, height) == expected


@given(sides, sides, st.integers(1, 300), st.integers(1, 300))
def test_center_crop_anchor(height: int, width: int, crop_height: int, crop_width: int) -> None:
    """CenterCrop: torchvision's padding for small images, its rounding of the anchor for large ones."""
    got = compile_plan(T.CenterCrop((crop_height, crop_width))).program.resolve(width, height, 0, 0, 0)
    x = -((crop_width - width) // 2) if crop_width > width else round((width - crop_width) / 2.0)
    y = -((crop_height - height) // 2) if crop_height > height else round((height - crop_height) / 2.0)
    assert got["window"] == (x, y, crop_width, crop_height)
    vx, vy, vw, vh = got["visible"]
    assert (vx, vy) == (max(x, 0), max(y, 0))
    assert (vx + vw, vy + vh) == (min(x + crop_width, width), min(y + crop_height, height))


@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 9), st.integers(0, 2**32))
def test_random_crop_stays_inside_the_padded_image(height: int, width: int, pad: int, seed: int) -> None:
    """RandomCrop's window lies within the padded image, for every draw."""
    size = (min(height + 2 * pad, 40), min(width + 2 * pad, 40))
    got = compile_plan(T.RandomCrop(size, padding=pad)).program.resolve(width, height, seed, 1, 2)
    x, y, w, h = got["window"]
    assert (h, w) == size
    assert -pad <= x <= width + pad - w
    assert -pad <= y <= height + pad - h


def test_random_crop_too_large_is_an_error() -> None:
    """Without pad_if_needed a crop larger than the image says so, with it the image is padded."""
    with pytest.raises(
        ArgumentError, match=r"RandomCrop\(50, 50\) is larger than the padded image of 30 x 20"
    ):
        compile_plan(T.RandomCrop(50)).program.resolve(20, 30, 0, 0, 0)
    assert compile_plan(T.RandomCrop(50, pad_if_needed=True)).program.size(20, 30) == (50, 50)


def test_boxes_are_uniform() -> None:
    """Flips are fair and corners equally likely over many indices."""
    plan = compile_plan([T.RandomCrop(2), T.RandomHorizontalFlip()])
    seen = [plan.program.resolve(4, 4, 5, 0, index) for index in range(9000)]
    corners = Counter(g["window"][:2] for g in seen)
    assert len(corners) == 9
    assert all(800 < n < 1200 for n in corners.values())
    assert 4300 < sum(g["hflip"] for g in seen) < 4700


@given(st.integers(0, 2**32), st.integers(0, 2**32))
def test_flip_before_a_crop_mirrors_the_crop(seed: int, index: int) -> None:
    """A crop after a flip cuts from the mirrored image: the window's column is mirrored, nothing else
    changes."""
    after = compile_plan([T.RandomHorizontalFlip(1.0), T.RandomCrop(5)]).program.resolve(
        20, 9, seed, 0, index
    )
    Draw = Draws(seed, 0, index, 2)
    y, x = Draw.below(5), Draw.below(16)
    assert after["window"] == (20 - x - 5, y, 5, 5)
    assert after["hflip"]


def test_padding_hides_pixels_outside_the_first_crop() -> None:
    """A padding crop after a crop shows fill, not the pixels that the first crop cut away."""
    got = compile_plan([T.CenterCrop(10), T.RandomCrop(10, padding=4)]).program.resolve(30, 30, 3, 0, 0)
    vx, vy, vw, vh = got["visible"]
    assert vx >= 10
    assert vy >= 10
    assert vx + vw <= 20
    assert vy + vh <= 20


@pytest.mark.parametrize(
    ("transforms", "message"),
    [
        ([T.Resize(10), T.RandomResizedCrop(5)], "second resize"),
        ([T.ToFloat(), T.CenterCrop(4)], "crops and resizes first"),
        ([T.Normalize((0.5,), (0.5,)), T.Normalize((0.5,), (0.5,))], "normalise once"),
        ([len, T.CenterCrop(4)], "put fastload's transforms first"),
        ([3], "neither a fastload transform nor callable"),
    ],
)
def test_lists_without_a_native_meaning_are_refused(transforms: list[object], message: str) -> None:
    """The planner keeps the meaning of a list or refuses it."""
    with pytest.raises(TransformError, match=message):
        compile_plan(transforms)


def test_callables_after_native_ones_run_in_python() -> None:
    """What is not ours comes after and makes the plan not native."""
    plan = compile_plan([T.CenterCrop(4), len])
    assert plan.python == (len,)
    assert not plan.native
