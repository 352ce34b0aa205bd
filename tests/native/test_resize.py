"""Resampling: within one of Pillow (antialiased) and of torch (not), and the same value however it is
stored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from fastload import errors
from fastload._native import core

Pixels = npt.NDArray[np.uint8]
Box = tuple[float, float, float, float]

PILLOW = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
FILTERS = st.sampled_from(["bilinear", "bicubic"])
SEEDS = st.integers(0, 2**32 - 1)
SIDES = st.integers(1, 90)


@pytest.fixture(params=[False, True], ids=["scalar", "best"], autouse=True)
def path(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test here runs on plain C and on the best path of this CPU."""
    core.use_cpu("" if request.param else "plain")
    yield
    core.use_cpu("")


def image_of(seed: int, width: int, height: int) -> Pixels:
    """Noise; for every third seed of black and white only, which makes bicubic overshoot."""
    image = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return np.where(image > 127, 255, 0).astype(np.uint8) if seed % 3 == 0 else image


def box_of(seed: int, width: int, height: int) -> Box:
    """A box inside the image; a third of whole pixels, a third of everything.

    Edges are multiples of 1/64: Pillow takes and subtracts them as float32, and must lose nothing.
    """
    rng = np.random.default_rng([seed, 1])
    if seed % 3 == 1:
        return (0.0, 0.0, float(width), float(height))
    x, y = rng.uniform(0, 0.7) * width, rng.uniform(0, 0.7) * height
    if seed % 3 == 2:
        x, y = np.floor(x), np.floor(y)
        return (x, y, float(rng.integers(1, width - x + 1)), float(rng.integers(1, height - y + 1)))
    right, bottom = x + (width - x) * rng.uniform(0.1, 1), y + (height - y) * rng.uniform(0.1, 1)
    left, top, right, bottom = (float(np.round(edge * 64) / 64) for edge in (x, y, right, bottom))
    return (left, top, right - left or 1 / 64, bottom - top or 1 / 64)


def pillow(image: Pixels, box: Box, size: tuple[int, int], name: str) -> npt.NDArray[np.int32]:
    """Pillow's result, horizontally first: Pillow 13 may go the other way, and bicubic clips in between."""
    x, y, width, height = box
    if name == "bilinear":
        out = Image.fromarray(image).resize(size, PILLOW[name], box=(x, y, x + width, y + height))
    else:
        across = Image.fromarray(image).resize(
            (size[0], image.shape[0]), PILLOW[name], box=(x, 0, x + width, image.shape[0])
        )
        out = across.resize(size, PILLOW[name], box=(0, y, size[0], y + height))
    return np.asarray(out).astype(np.int32)


def assert_within_one(got: npt.NDArray[Any], wanted: npt.NDArray[Any], case: object) -> None:
    """Both uint8 valued; a failure names the case and the worst pixel."""
    difference = np.abs(got.astype(np.int32) - wanted.astype(np.int32))
    worst = np.unravel_index(int(difference.argmax()), difference.shape)
    assert difference.max() <= 1, f"{case}: {got[worst]} for {wanted[worst]} at {worst}"


@settings(max_examples=300)
@given(SEEDS, SIDES, SIDES, SIDES, SIDES, FILTERS)
@example(394426, 76, 52, 88, 78, "bilinear")  # where both of Pillow's sums tie
def test_antialiased_is_within_one_of_pillow(
    seed: int, width: int, height: int, out_width: int, out_height: int, name: str
) -> None:
    """Any box of any image to any size."""
    image, box, size = image_of(seed, width, height), box_of(seed, width, height), (out_width, out_height)
    assert_within_one(
        core.resize(image, box, size, name), pillow(image, box, size, name), (seed, box, size, name)
    )


@pytest.mark.parametrize("name", ["bilinear", "bicubic"])
@pytest.mark.parametrize(
    ("width", "height", "size"),
    [
        (960, 930, (31, 31)),
        (1500, 700, (20, 230)),
        (17, 900, (250, 25)),
        (7, 5, (333, 301)),
        (640, 480, (1, 1)),
        (1, 1, (40, 30)),
    ],
)
def test_extreme_scales_are_within_one_of_pillow(
    width: int, height: int, size: tuple[int, int], name: str
) -> None:
    """Reductions by 30 and by everything, magnifications by 60, and one axis of each."""
    image = image_of(width, width, height)
    box = (0.0, 0.0, float(width), float(height))
    assert_within_one(
        core.resize(image, None, size, name), pillow(image, box, size, name), (width, height, size, name)
    )


@pytest.mark.parametrize("name", ["bilinear", "bicubic"])
def test_photographs_are_within_one_of_pillow(shared: Path, name: str) -> None:
    """Real pictures, as training crops them: boxes of many sizes to 224 x 224."""
    files = sorted((shared / "corpus" / "in500").rglob("*.jp*g"))[:8]
    assert files, "the shared corpus has no photographs"
    for seed, file in enumerate(files):
        image = np.asarray(Image.open(file).convert("RGB"))
        box = box_of(seed, image.shape[1], image.shape[0])
        assert_within_one(
            core.resize(image, box, (224, 224), name),
            pillow(image, box, (224, 224), name),
            (file.name, box, name),
        )


def photographs(shared: Path) -> list[Pixels]:
    """Some of the corpus, cropped."""
    files = sorted((shared / "corpus" / "in500").rglob("*.jp*g"))[:8]
    assert files, "the shared corpus has no photographs"
    images = [np.asarray(Image.open(file).convert("RGB")) for file in files]
    return [
        np.ascontiguousarray(image[number * 5 :, : image.shape[1] * 2 // 3])
        for number, image in enumerate(images)
    ]


def distance(got: Pixels, wanted: npt.NDArray[Any]) -> tuple[int, float]:
    """The largest difference, and the mean one."""
    difference = np.abs(got.astype(np.int32) - wanted.astype(np.int32))
    return int(difference.max()), float(difference.mean())


SIZES = [(224, 224), (96, 96), (300, 128)]


@pytest.mark.parametrize("size", SIZES)
def test_bicubic_is_within_one_of_one_order_of_pillow(shared: Path, size: tuple[int, int]) -> None:
    """The installed Pillow goes across or down first, and clips in between: fastload is within 1 of across
    first, and 20 of the other."""
    for image in photographs(shared):
        height, width = image.shape[:2]
        picture = Image.fromarray(image)
        installed = np.asarray(picture.resize(size, PILLOW["bicubic"]))
        across = np.asarray(
            picture.resize((size[0], height), PILLOW["bicubic"]).resize(size, PILLOW["bicubic"])
        )
        down = np.asarray(picture.resize((width, size[1]), PILLOW["bicubic"]).resize(size, PILLOW["bicubic"]))
        assert np.array_equal(installed, across) or np.array_equal(installed, down)
        got = core.resize(image, None, size, "bicubic")
        assert distance(got, across)[0] <= 1
        worst, mean = distance(got, installed)
        assert worst <= 20
        assert mean < 0.3


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("name", "antialias", "most"),
    [("bilinear", True, 1), ("bilinear", False, 1), ("bicubic", True, 1), ("bicubic", False, 30)],
)
def test_uint8_tensors_of_torch(
    shared: Path, size: tuple[int, int], name: str, antialias: bool, most: int
) -> None:
    """torch resizes uint8 tensors with two roundings: within 1, except for bicubic without antialiasing,
    which clips in between."""
    for image in photographs(shared):
        tensor = torch.from_numpy(image).permute(2, 0, 1)[None]
        wanted = torch.nn.functional.interpolate(
            tensor, size[::-1], mode=name, align_corners=False, antialias=antialias
        )
        worst, mean = distance(
            core.resize(image, None, size, name, antialias), wanted[0].permute(1, 2, 0).numpy()
        )
        assert worst <= most
        assert mean < 0.3


@settings(max_examples=200)
@given(SEEDS, SIDES, SIDES, SIDES, SIDES, FILTERS)
def test_plain_is_within_one_of_torch(
    seed: int, width: int, height: int, out_width: int, out_height: int, name: str
) -> None:
    """antialias=False is torch.nn.functional.interpolate(align_corners=False) in float, rounded once."""
    image = image_of(seed, width, height)
    floats = torch.from_numpy(image).permute(2, 0, 1)[None].double()
    exact = torch.nn.functional.interpolate(floats, (out_height, out_width), mode=name, align_corners=False)
    wanted = exact[0].permute(1, 2, 0).clamp(0, 255).round().to(torch.uint8).numpy()
    got = core.resize(image, None, (out_width, out_height), name, False)
    assert_within_one(got, wanted, (seed, width, height, out_width, out_height, name))


@settings(max_examples=150)
@given(SEEDS, SIDES, SIDES, SIDES, SIDES, FILTERS, st.booleans(), st.data())
def test_the_value_does_not_depend_on_how_it_is_stored(
    seed: int,
    width: int,
    height: int,
    out_width: int,
    out_height: int,
    name: str,
    antialias: bool,
    data: st.DataObject,
) -> None:
    """Window, flips, layout, dtype and the path of the CPU give the scalar path's whole uint8 image, seen
    otherwise."""
    image, box, size = image_of(seed, width, height), box_of(seed, width, height), (out_width, out_height)
    best = core.resize(image, box, size, name, antialias)
    core.use_cpu("plain")
    whole = core.resize(image, box, size, name, antialias)
    core.use_cpu("")
    np.testing.assert_array_equal(best, whole)

    window_width, window_height = data.draw(st.integers(1, out_width)), data.draw(st.integers(1, out_height))
    x, y = (
        data.draw(st.integers(0, out_width - window_width)),
        data.draw(st.integers(0, out_height - window_height)),
    )
    hflip, vflip, planar = data.draw(st.booleans()), data.draw(st.booleans()), data.draw(st.booleans())
    dtype = data.draw(st.sampled_from(["uint8", "float32", "float16", "bfloat16"]))
    wanted: npt.NDArray[Any] = whole[y : y + window_height, x : x + window_width]
    wanted = wanted[:: -1 if vflip else 1, :: -1 if hflip else 1]
    lut = None
    if dtype != "uint8":
        kind = {"float32": np.float32, "float16": np.float16, "bfloat16": np.uint16}[dtype]
        lut = np.random.default_rng(seed).integers(0, 60000, (3, 256)).astype(kind)
        wanted = np.stack([lut[c][wanted[..., c]] for c in range(3)], axis=-1)
    got = core.resize(
        image,
        box,
        size,
        name,
        antialias,
        window=(x, y, window_width, window_height),
        hflip=hflip,
        vflip=vflip,
        dtype=dtype,
        layout="CHW" if planar else "HWC",
        lut=lut,
    )
    np.testing.assert_array_equal(got, wanted.transpose(2, 0, 1) if planar else wanted)


@pytest.mark.parametrize("name", ["bilinear", "bicubic"])
@pytest.mark.parametrize("antialias", [False, True])
def test_a_box_of_the_output_size_is_copied(name: str, antialias: bool) -> None:
    """Whole pixels to the same number of pixels: nothing is resampled."""
    image = image_of(1, 60, 50)
    np.testing.assert_array_equal(
        core.resize(image, (7, 5, 40, 30), (40, 30), name, antialias), image[5:35, 7:47]
    )


@pytest.mark.parametrize("value", [0, 1, 127, 254, 255])
@pytest.mark.parametrize("name", ["bilinear", "bicubic"])
def test_a_constant_image_stays_constant(value: int, name: str) -> None:
    """The coefficients of an output sum to one exactly, for any scale."""
    image = np.full((300, 411, 3), value, dtype=np.uint8)
    for size in [(1, 1), (13, 200), (224, 224), (500, 7)]:
        out = core.resize(image, (3.3, 1.7, 380.1, 290.9), size, name)
        assert (out == value).all(), f"{size}: {np.unique(out)} for {value}"


@pytest.mark.parametrize(
    "box",
    [
        (-1, 0, 5, 5),
        (0, 0, 11, 5),
        (0, 0, 5, 10.5),
        (0, 0, 0, 5),
        (float("nan"), 0, 5, 5),
        (0, 0, float("inf"), 5),
    ],
)
def test_a_box_that_does_not_fit_is_refused(box: Box) -> None:
    """An ArgumentError, never a read outside the image."""
    with pytest.raises(errors.ArgumentError, match="box"):
        core.resize(np.zeros((10, 10, 3), dtype=np.uint8), box, (8, 8))


@pytest.mark.parametrize("window", [(1, 0, 8, 8), (0, 0, 9, 8), (0, 7, 8, 2)])
def test_a_window_that_does_not_fit_is_refused(window: tuple[int, int, int, int]) -> None:
    """An ArgumentError, never a write outside the array."""
    with pytest.raises(errors.ArgumentError, match="window"):
        core.resize(np.zeros((10, 10, 3), dtype=np.uint8), None, (8, 8), window=window)
