"""Resampling of a recipe's pixels by the native resampler, where that is proved to be the installed
Pillow's own arithmetic."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from fastload._native import core
from fastload.lazy.pixels import Array, Floats
from fastload.lazy.resampling import FILTERS, pillow_order

FAST_FILTERS = (Image.Resampling.BILINEAR, Image.Resampling.BICUBIC)
"""Filters before which `lazy="fast"` scales in the inverse transform."""


class Resample(NamedTuple):
    """One call of the native resampler: a box becomes `to` pixels, of which `window` (x, y, width, height)
    is kept and then mirrored."""

    to: tuple[int, int]
    filter: int
    box: tuple[float, float, float, float]
    window: tuple[int, int, int, int]
    hflip: bool
    vflip: bool


class Sink(NamedTuple):
    """Floats that pixels become: `lut`, float32 (channels, 256), has the values of bytes, `into` is float32
    (height, width, channels) in `layout` "HWC", (channels, height, width) in "CHW"."""

    layout: str
    lut: Floats
    into: Floats


WRITTEN = np.empty(0, np.uint8)
"""Returned in the place of pixels that were written to a sink."""


def write(pixels: Array, sink: Sink) -> None:
    """Writes pixels as floats."""
    height, width = pixels.shape[:2]
    core.resize_exact(pixels, None, (width, height), "nearest", **options_of(sink))


def options_of(sink: Sink | None) -> dict[str, Any]:
    """Arguments of the native functions that write pixels as floats; none for None."""
    return {} if sink is None else {"dtype": "float32", **sink._asdict()}


def resample(pixels: Array, step: Resample, sink: Sink | None = None) -> Array | None:
    """Pixels resampled as the installed Pillow resamples them, bit for bit; None where only Pillow itself
    does that. With a sink they are written to it, and WRITTEN is returned."""
    passes, filter = pillow_order(), FILTERS.get(step.filter)
    return None if passes is None or filter is None else _resampled(pixels, step, filter, passes, sink)


def _resampled(pixels: Array, step: Resample, filter: str, passes: str, sink: Sink | None = None) -> Array:
    made = core.resize_exact(
        pixels,
        step.box,
        step.to,
        filter,
        order=passes,
        window=step.window,
        hflip=step.hflip,
        vflip=step.vflip,
        **options_of(sink),
    )
    if sink is not None:
        return WRITTEN
    return made.reshape(made.shape[:2]) if pixels.ndim == 2 else made


def flipped(pixels: Array, across: bool, down: bool) -> Array:
    """Pixels mirrored left to right, top to bottom, or both."""
    height, width = pixels.shape[:2]
    made = core.resize_exact(pixels, None, (width, height), "nearest", hflip=across, vflip=down)
    return made.reshape(pixels.shape)


def reduce(pixels: Array, factor: tuple[int, int], box: tuple[int, int, int, int]) -> Array | None:
    """Means of blocks of pixels, as the installed Pillow takes them; None where only Pillow itself does
    that."""
    return None if pillow_order() is None else _reduced(pixels, factor, box)


def _reduced(pixels: Array, factor: tuple[int, int], box: tuple[int, int, int, int]) -> Array:
    made = core.reduce_exact(pixels, factor, box)
    return made.reshape(made.shape[:2]) if pixels.ndim == 2 else made
