"""Agreement of the native resampler with the installed Pillow's.

Pillow's versions differ in the order of the passes of a resize, and another build of it, such as Pillow-SIMD,
may round otherwise. Native resizes stand in for Pillow's only where both give the same bytes on this machine,
which `pillow_order` finds out once for a process.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from PIL.Image import Resampling

from fastload._native import core
from fastload.lazy.pillow_code import Probe
from fastload.lazy.pixels import Array, to_array, to_core

FILTERS = {
    0: "nearest",
    1: "lanczos",
    2: "bilinear",
    3: "bicubic",
    4: "box",
    5: "hamming",
    6: "mks2013",
    7: "mks2021",
}
"""Names of the native filters by Pillow's numbers."""

ORDERS = ("horizontal", "by-shrink")
"""Orders of the passes that Pillow's versions have: up to 12, and from 13 on."""


class _Probe(NamedTuple):
    """One resize that both do: the image's size, the box, the size that it becomes."""

    width: int
    height: int
    box: tuple[float, float, float, float] | None
    size: tuple[int, int]


_PROBES = (
    _Probe(61, 47, None, (23, 19)),
    _Probe(53, 120, None, (40, 31)),  # its height shrinks by more than twice its width: the orders differ
    _Probe(64, 48, (3.3, 1.7, 60.9, 44.2), (32, 32)),
    _Probe(40, 30, (5.25, 4.0, 21.0, 17.5), (56, 71)),
    _Probe(37, 41, (2.0, 3.0, 35.0, 40.0), (33, 9)),
    _Probe(19, 7, (0.1, 6.9, 18.8, 7.0), (8, 3)),
)


def noise(width: int, height: int, channels: int) -> Array:
    """The same noise each time: black and white on the left, where bicubic overshoots."""
    count = width * height * channels
    words = (np.arange(1, count + 1, dtype=np.uint64) * 0x9E3779B97F4A7C15) >> np.uint64(56)
    image: Array = words.astype(np.uint8).reshape(height, width, channels)
    image[:, : width // 2] = np.where(image[:, : width // 2] > 127, 255, 0)
    return image


@Probe
def pillow_order() -> str | None:
    """Returns the order of the passes of the installed Pillow's resize, as core.resize_exact() takes it.

    Returns:
        "horizontal" or "by-shrink": with that order native resizes and reductions gave the very bytes of
        Pillow's for a set of probes (about 10 ms, once in a process); None: they differ, so only Pillow's own
        may be used.
    """
    return next((order for order in ORDERS if _agrees(order)), None)


def _agrees(order: str) -> bool:
    known = {int(each) for each in Resampling}
    for probe in _PROBES:
        for channels in (3, 1):
            pixels = noise(probe.width, probe.height, channels)
            box = probe.box or (0, 0, probe.width, probe.height)
            for number in known & FILTERS.keys():
                wanted = _resized_by_pillow(pixels, probe.size, number, box)
                got = core.resize_exact(pixels, probe.box, probe.size, FILTERS[number], order=order)
                if not np.array_equal(got.reshape(wanted.shape), wanted):
                    return False
            wanted = _reduced_by_pillow(pixels, (3, 2), (0, 0, probe.width, probe.height))
            if not np.array_equal(core.reduce_exact(pixels, (3, 2)).reshape(wanted.shape), wanted):
                return False
    return True


def _resized_by_pillow(pixels: Array, size: tuple[int, int], filter: int, box: tuple[float, ...]) -> Array:
    return to_array(to_core(_of_mode(pixels)).resize(size, filter, box))


def _reduced_by_pillow(pixels: Array, factor: tuple[int, int], box: tuple[int, ...]) -> Array:
    return to_array(to_core(_of_mode(pixels)).reduce(factor, box))


def _of_mode(pixels: Array) -> Array:
    """Pixels of one channel as (height, width), which is mode L."""
    return pixels[:, :, 0] if pixels.shape[2] == 1 else pixels
