"""Colour steps, blends and warps: the installed Pillow's bytes, on every path of the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance, ImageFilter

from fastload import errors
from fastload._native import core

Pixels = npt.NDArray[np.uint8]

ENHANCED = {
    "saturate": ImageEnhance.Color,
    "contrast": ImageEnhance.Contrast,
    "sharpen": ImageEnhance.Sharpness,
}
FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
}
sides = st.integers(1, 400)
shapes = st.tuples(sides, st.integers(1, 90), st.sampled_from([1, 3]))
factors = st.sampled_from([0.0, 1.0, -1.0, 255.0, 1e6, -1e9]) | st.floats(-1, 3, width=32)
seeds = st.integers(0, 2**32 - 1)


@pytest.fixture(params=["plain", "avx2,fma", ""])
def path(request: pytest.FixtureRequest) -> Iterator[None]:
    """The test runs on plain C, with AVX2 and FMA alone, and on the best path of this CPU."""
    core.use_cpu(request.param)
    yield
    core.use_cpu("")


def image_of(seed: int, shape: tuple[int, int, int]) -> Pixels:
    """Noise; for every third seed of black and white only."""
    width, height, channels = shape
    form = (height, width, 3) if channels == 3 else (height, width)
    image = np.random.default_rng(seed).integers(0, 256, form, dtype=np.uint8)
    return np.where(image > 127, 255, 0).astype(np.uint8) if seed % 3 == 0 else image


def every_colour() -> Pixels:
    """All 2 ** 24 colours."""
    values = np.arange(1 << 24, dtype=np.uint32)
    return (
        np.stack([values >> 16, values >> 8 & 255, values & 255], 1).astype(np.uint8).reshape(4096, 4096, 3)
    )


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("shift", [0, 1, 51, 200])
def test_hue_of_all_colours(shift: int) -> None:
    """H of mode HSV, moved: every colour comes back as from Pillow's two conversions."""
    colours = every_colour()
    hue, saturation, value = Image.fromarray(colours).convert("HSV").split()
    moved = Image.fromarray(np.asarray(hue) + np.uint8(shift))
    expected = np.asarray(Image.merge("HSV", (moved, saturation, value)).convert("RGB"))
    assert np.array_equal(core.colour(colours, [("hue", shift)]), expected)


@pytest.mark.usefixtures("path")
def test_bands_and_greys_of_all_colours() -> None:
    """L of mode L, and H, S and V."""
    colours = every_colour()
    image = Image.fromarray(colours)
    light = image.convert("L")
    assert np.array_equal(core.colour_band(colours, "L"), np.asarray(light))
    assert np.array_equal(core.colour(colours, [("grey",)]), np.asarray(light.convert("RGB")))
    for letter, band in zip("HSV", image.convert("HSV").split(), strict=True):
        assert np.array_equal(core.colour_band(colours, letter), np.asarray(band))
    assert core.colour_counts(colours).ravel().tolist() == image.histogram()


@pytest.mark.usefixtures("path")
def test_blends_of_all_bytes() -> None:
    """Every byte from every constant, inside and outside of 0 to 1."""
    pairs = np.stack(np.meshgrid(np.arange(256), np.arange(256), indexing="ij"), 2).astype(np.uint8)
    to, start = np.ascontiguousarray(pairs[:, :, 1]), np.ascontiguousarray(pairs[:, :, 0])
    for factor in (*np.arange(-40, 80) / 20, 1 / 3, 0.7999999, 1e-9, 1e7, -1e30):
        expected = np.asarray(Image.blend(Image.fromarray(start), Image.fromarray(to), float(factor)))
        assert np.array_equal(core.colour_blend(to, start, factor), expected), factor
        for level in (0, 1, 97, 255):
            row = np.ascontiguousarray(to[level][None])
            assert np.array_equal(core.colour(row, [("blend", level, factor)])[0], expected[level]), factor


@pytest.mark.usefixtures("path")
@given(seeds, shapes, factors)
@settings(max_examples=60)
def test_enhancements(seed: int, shape: tuple[int, int, int], factor: float) -> None:
    """Color, Contrast and Sharpness of ImageEnhance."""
    pixels = image_of(seed, shape)
    for name, kind in ENHANCED.items():
        if name == "saturate" and shape[2] == 1:
            continue
        expected = np.asarray(kind(Image.fromarray(pixels)).enhance(factor))
        assert np.array_equal(core.colour(pixels, [(name, factor)]), expected), name


@pytest.mark.usefixtures("path")
@given(seeds, shapes, st.floats(0, 60, width=32), st.floats(0, 60, width=32), st.integers(1, 3))
@settings(max_examples=60)
def test_blurs(seed: int, shape: tuple[int, int, int], x: float, y: float, passes: int) -> None:
    """Gaussian and box blurs of any two radii, and SMOOTH."""
    pixels = image_of(seed, shape)
    image = Image.fromarray(pixels)
    expected = np.asarray(image.filter(ImageFilter.GaussianBlur((x, y))))
    radii = [core.gaussian_radius(radius, 3) for radius in (x, y)]
    assert np.array_equal(core.colour(pixels, [("blur", *radii, 3)]), expected)
    for _ in range(passes):
        image = image.filter(ImageFilter.BoxBlur((x, 0)))
    assert np.array_equal(core.colour(pixels, [("blur", x, 0, passes)]), np.asarray(image))
    expected = np.asarray(Image.fromarray(pixels).filter(ImageFilter.SMOOTH))
    assert np.array_equal(core.colour(pixels, [("smooth",)]), expected)


@pytest.mark.usefixtures("path")
@given(seeds, shapes)
@settings(max_examples=40)
def test_tables(seed: int, shape: tuple[int, int, int]) -> None:
    """A table for each channel."""
    pixels = image_of(seed, shape)
    table = np.random.default_rng(seed + 1).integers(0, 256, 256 * shape[2], dtype=np.uint8)
    expected = np.asarray(Image.fromarray(pixels).point(table.tolist()))
    assert np.array_equal(core.colour(pixels, [("table", table.tobytes())]), expected)


numbers = st.floats(-3, 3) | st.sampled_from([0.0, 1.0, -1.0, 0.5, 1e5, -1e7])


@pytest.mark.usefixtures("path")
@given(
    seeds,
    shapes,
    st.tuples(st.integers(1, 150), st.integers(1, 90)),
    st.lists(numbers, min_size=6, max_size=6),
    st.sampled_from([(), (0.001, -0.002), (0.5, -0.5)]),
    st.booleans(),
)
@settings(max_examples=100)
def test_warps(
    seed: int,
    shape: tuple[int, int, int],
    size: tuple[int, int],
    affine: list[float],
    further: tuple[float, ...],
    straight: bool,
) -> None:
    """Affine and perspective maps with each filter, onto a canvas of a colour."""
    pixels = image_of(seed, shape)
    affine = [affine[0], 0.0, affine[2] * 9, 0.0, affine[4], affine[5] * 9] if straight else affine
    given_numbers = [*affine, *further]
    method = Image.Transform.PERSPECTIVE if further else Image.Transform.AFFINE
    for name, number in FILTERS.items():
        out = np.full((size[1], size[0], *pixels.shape[2:]), 77, np.uint8)
        core.colour_warp(pixels, out, given_numbers, name)
        colour: Any = 77 if pixels.ndim == 2 else (77, 77, 77)
        made = Image.fromarray(pixels).transform(size, method, given_numbers, number, fillcolor=colour)
        assert np.array_equal(out, np.asarray(made)), name


@pytest.mark.usefixtures("path")
def test_steps_follow_each_other() -> None:
    """Several steps in one call are those one after the other, whatever is done together; the image stays."""
    pixels = image_of(1, (301, 97, 3))
    kept = pixels.copy()
    table = bytes(range(255, -1, -1)) * 3
    steps: list[tuple[Any, ...]] = [
        ("blend", 0, 1.3),
        ("hue", 30),
        ("sharpen", 1.5),
        ("saturate", 0.3),
        ("table", table),
        ("blur", 1.5, 2.0, 2),
        ("grey",),
        ("smooth",),
    ]
    expected = pixels
    for step in steps:
        expected = core.colour(expected, [step])
    assert np.array_equal(core.colour(pixels, steps), expected)
    assert np.array_equal(pixels, kept)
    assert np.array_equal(core.colour(pixels[::-1, ::2], []), pixels[::-1, ::2])


@pytest.mark.parametrize(
    ("shape", "step"),
    [
        ((4, 4), ("hue", 3)),
        ((4, 4), ("table", bytes(768))),
        ((4, 4, 3), ("table", bytes(256))),
        ((4, 4, 3), ("table", bytearray(768))),
        ((4, 4, 3), ("blend", 3, float("nan"))),
        ((4, 4, 3), ("saturate", float("inf"))),
        ((4, 4, 3), ("blur", -1.0, 1.0, 3)),
        ((4, 4, 3), ("blur", 1.0, 1.0, 0)),
        ((4, 4, 3), ("sparkle",)),
        ((4, 4, 2), ("smooth",)),
        ((0, 4, 3), ("smooth",)),
    ],
)
def test_what_is_no_step_is_refused(shape: tuple[int, ...], step: tuple[Any, ...]) -> None:
    """Steps, tables and images that do not fit."""
    with pytest.raises(errors.ArgumentError):
        core.colour(np.zeros(shape, np.uint8), [step])


def test_a_warp_onto_itself_is_refused() -> None:
    """So are a canvas that is the image, one of other channels, and other counts of numbers."""
    image = np.zeros((4, 4, 3), np.uint8)
    for out, count in ((image, 6), (np.zeros((4, 4), np.uint8), 6), (np.zeros((4, 4, 3), np.uint8), 7)):
        with pytest.raises(errors.ArgumentError):
            core.colour_warp(image, out, [1.0] * count, "nearest")
