"""Resampling of planes: within one of torchvision's functionals on float tensors, exact for crops and
flips."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fastload._native import core
from fastload.errors import ArgumentError

F = pytest.importorskip("torchvision.transforms.v2.functional")

FILTERS = st.sampled_from(["bilinear", "bicubic"])
SEEDS = st.integers(0, 2**32 - 1)
SIDES = st.integers(1, 80)
CHANNELS = st.integers(1, 4)
DTYPES: Any = st.sampled_from([np.uint8, np.uint16])


def pixels_of(seed: int, height: int, width: int, channels: int, dtype: Any) -> npt.NDArray[Any]:
    """Noise; for every third seed of the two extremes only, which makes bicubic overshoot."""
    most = np.iinfo(dtype).max
    values = np.random.default_rng(seed).integers(0, int(most) + 1, (height, width, channels)).astype(dtype)
    return np.where(values > most // 2, most, 0).astype(dtype) if seed % 3 == 0 else values


def chw(pixels: npt.NDArray[Any], dtype: Any = np.float32) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1), dtype))


def resized(image: torch.Tensor, size: tuple[int, int], **how: Any) -> torch.Tensor:
    """torchvision's functional; to one column axis by axis, since torch 2.13 shows the first row
    everywhere in images of width 1."""
    if size[1] > 1:
        return F.resize_image(image, list(size), **how).float()
    across = F.resize_image(image, [image.shape[1], 1], **how)
    return F.resize_image(across.transpose(1, 2).contiguous(), [1, size[0]], **how).transpose(1, 2).float()


@settings(max_examples=300)
@given(SEEDS, SIDES, SIDES, CHANNELS, DTYPES, SIDES, SIDES, FILTERS, st.booleans())
def test_within_one_of_torchvision(
    seed: int,
    height: int,
    width: int,
    channels: int,
    dtype: Any,
    out_height: int,
    out_width: int,
    name: str,
    antialias: bool,
) -> None:
    """The functional on the float tensor, rounded and clamped once; and, where bytes clip between the
    passes as Pillow's do, on bytes."""
    pixels = pixels_of(seed, height, width, channels, dtype)
    got = core.resize_planes(pixels, None, (out_width, out_height), name, antialias, layout="CHW")
    assert got.dtype == dtype
    mode = F.InterpolationMode(name)
    clips = dtype == np.uint8 and name == "bicubic" and antialias
    source = chw(pixels, np.uint8) if clips else chw(pixels)
    wanted = resized(source, (out_height, out_width), interpolation=mode, antialias=antialias)
    wanted = wanted.clamp(0, int(np.iinfo(dtype).max)).round()
    worst = float((torch.from_numpy(got.astype(np.float32)) - wanted).abs().max())
    assert worst <= 1 + clips, (worst, name, antialias)


@settings(max_examples=200)
@given(SEEDS, SIDES, SIDES, CHANNELS, DTYPES, st.booleans(), st.booleans(), st.data())
def test_crops_and_flips_are_exact(
    seed: int,
    height: int,
    width: int,
    channels: int,
    dtype: Any,
    hflip: bool,
    vflip: bool,
    data: st.DataObject,
) -> None:
    """A box of the output's size is torchvision's crop, and its flips."""
    pixels = pixels_of(seed, height, width, channels, dtype)
    w, h = data.draw(st.integers(1, width)), data.draw(st.integers(1, height))
    x, y = data.draw(st.integers(0, width - w)), data.draw(st.integers(0, height - h))
    got = core.resize_planes(pixels, (x, y, w, h), (w, h), hflip=hflip, vflip=vflip, layout="CHW")
    wanted = F.crop_image(chw(pixels), y, x, h, w)
    wanted = F.horizontal_flip_image(wanted) if hflip else wanted
    wanted = F.vertical_flip_image(wanted) if vflip else wanted
    assert torch.equal(torch.from_numpy(got.astype(np.float32)), wanted)


@settings(max_examples=100)
@given(
    SEEDS, SIDES, SIDES, CHANNELS, DTYPES, st.sampled_from(["float32", "float16", "bfloat16"]), st.booleans()
)
def test_floats_are_torchvisions(
    seed: int, height: int, width: int, channels: int, dtype: Any, out: str, hflip: bool
) -> None:
    """A table makes floats of the same values: by default value / 255 or / 65535 in float32, rounded to
    the dtype."""
    pixels = pixels_of(seed, height, width, channels, dtype)
    values = core.resize_planes(pixels, None, (30, 20), hflip=hflip, layout="CHW")
    got = core.resize_planes(pixels, None, (30, 20), hflip=hflip, layout="CHW", dtype=out)
    wanted = (torch.from_numpy(values.astype(np.float32)) / float(np.iinfo(dtype).max)).to(
        getattr(torch, out)
    )
    found = (
        torch.from_numpy(got.view(np.int16)).view(torch.bfloat16)
        if out == "bfloat16"
        else torch.from_numpy(got)
    )
    assert torch.equal(found, wanted)


def test_extreme_scales() -> None:
    """Reductions to one pixel, magnifications of one, and one axis of each."""
    for height, width, size in (
        (930, 960, (31, 30)),
        (7, 1500, (20, 230)),
        (640, 480, (1, 1)),
        (1, 1, (40, 30)),
    ):
        pixels = pixels_of(height, height, width, 1, np.uint16)
        got = core.resize_planes(pixels, None, size, layout="CHW")
        wanted = resized(chw(pixels), (size[1], size[0]), antialias=True).round()
        assert float((torch.from_numpy(got.astype(np.float32)) - wanted).abs().max()) <= 1


def test_arguments() -> None:
    """What is no picture of planes, and a table that does not fit, are told."""
    for pixels in (
        np.zeros((2, 2), np.uint8),
        np.zeros((2, 2, 5), np.uint8),
        np.zeros((2, 0, 1), np.uint8),
        np.zeros((2, 2, 1), np.int32),
    ):
        with pytest.raises(ArgumentError, match="uint8 or uint16"):
            core.resize_planes(pixels, None, (2, 2))
    depth = np.zeros((2, 2, 1), np.uint16)
    for dtype in ("uint8", "int8"):
        with pytest.raises(ArgumentError, match=r"resize|dtype"):
            core.resize_planes(depth, None, (2, 2), dtype=dtype)
    with pytest.raises(ArgumentError, match=r"\(1, 65536\)"):
        core.resize_planes(depth, None, (2, 2), dtype="float32", lut=np.zeros((1, 256), np.float32))
    with pytest.raises(ArgumentError, match="not inside"):
        core.resize_planes(depth, (0, 0, 3, 2), (2, 2))
    with pytest.raises(ArgumentError, match="uint16"):
        core.Output("uint16")
