"""Resampling of a recipe's pixels by the native resampler, where that is proved to be the installed Pillow's own arithmetic."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from PIL import Image

from fastload._native import core
from fastload.lazy.pixels import Array, to_array, to_core

FILTERS = {int(each): each.name.lower() for each in Image.Resampling}
"""Names of the native resampler's filters by Pillow's numbers."""
FAST_FILTERS = (Image.Resampling.BILINEAR, Image.Resampling.BICUBIC)
"""Filters that the engine's own resampler has, too."""
_ORDERS = ("by-shrink", "horizontal", "vertical")


class Resample(NamedTuple):
    """One call of the native resampler: a box becomes `to` pixels, of which `window` (x, y, width, height) is kept and then mirrored."""

    to: tuple[int, int]
    filter: int
    box: tuple[float, float, float, float]
    window: tuple[int, int, int, int]
    hflip: bool
    vflip: bool


def resample(pixels: Array, step: Resample) -> Array | None:
    """Pixels resampled as the installed Pillow resamples them, bit for bit; None where only Pillow itself does that."""
    passes, filter = order(), FILTERS.get(step.filter)
    return None if passes is None or filter is None else _resampled(pixels, step, filter, passes)


def _resampled(pixels: Array, step: Resample, filter: str, passes: str) -> Array:
    made = core.resize_exact(pixels, step.box, step.to, filter, order=passes, window=step.window, hflip=step.hflip, vflip=step.vflip)
    return made.reshape(made.shape[:2]) if pixels.ndim == 2 else made


def reduce(pixels: Array, factor: tuple[int, int], box: tuple[int, int, int, int]) -> Array | None:
    """Means of blocks of pixels, as the installed Pillow takes them; None where only Pillow itself does that."""
    return None if order() is None else _reduced(pixels, factor, box)


def _reduced(pixels: Array, factor: tuple[int, int], box: tuple[int, int, int, int]) -> Array:
    made = core.reduce_exact(pixels, factor, box)
    return made.reshape(made.shape[:2]) if pixels.ndim == 2 else made


@cache
def order() -> str | None:
    """The order of passes in which the native resampler is the installed Pillow's, bit for bit; None: in no order."""
    noise = np.random.Generator(np.random.PCG64(2)).integers(0, 256, (40, 52, 3), dtype=np.uint8)
    for passes in _ORDERS:
        if all(_agrees(pixels, passes) for pixels in (noise, np.ascontiguousarray(noise[:, :, 0]))):
            return passes
    return None


def _agrees(pixels: Array, passes: str) -> bool:
    height, width = pixels.shape[:2]
    whole, part = (0.0, 0.0, float(width), float(height)), (1.3, 2.6, 40.7, 31.2)
    image = to_core(pixels)
    for number, name in FILTERS.items():
        for to in ((17, 13), (9, 39), (50, 8), (80, 61)):
            for box in (whole, part):
                step = Resample(to, number, box, (0, 0, *to), False, False)
                try:
                    made = _resampled(pixels, step, name, passes)
                except ValueError:  # a filter that the native resampler does not have
                    return False
                if not np.array_equal(made, to_array(image.resize(to, number, box))):
                    return False
    factor, within = (3, 2), (1, 2, 50, 39)
    return np.array_equal(_reduced(pixels, factor, within), to_array(image.reduce(factor, within)))
