"""Resampling of a recipe's pixels by the native resampler, where that is proved to be the installed
Pillow's own arithmetic."""

from __future__ import annotations

from typing import NamedTuple

from PIL import Image

from fastload._native import core
from fastload.lazy.pixels import Array
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


def resample(pixels: Array, step: Resample) -> Array | None:
    """Pixels resampled as the installed Pillow resamples them, bit for bit; None where only Pillow itself
    does that."""
    passes, filter = pillow_order(), FILTERS.get(step.filter)
    return None if passes is None or filter is None else _resampled(pixels, step, filter, passes)


def _resampled(pixels: Array, step: Resample, filter: str, passes: str) -> Array:
    made = core.resize_exact(
        pixels,
        step.box,
        step.to,
        filter,
        order=passes,
        window=step.window,
        hflip=step.hflip,
        vflip=step.vflip,
    )
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
