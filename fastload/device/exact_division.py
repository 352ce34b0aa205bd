"""When bytes become floats without a division, and yet as if divided.

NOTE [ division: by a product and its correction ]
Two true divisions a value take a GPU longer than the value's way through its memory. a / b is also q + (a - q * b) * r, with r = 1 / b and
q = a * r, both rounded, and each of the other two steps fused, that is, rounded once: the correctly rounded quotient for all but
a few a and b (Markstein, "Computation of elementary functions on the IBM RISC System/6000 processor", 1990). Here a comes of 256 bytes and
b is one of four constants, so that every case can be tried beforehand.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np


@cache
def inverses(std: tuple[float, ...]) -> tuple[float, ...]:
    """1 / std, calculated and rounded as float32."""
    with np.errstate(all="ignore"):
        return tuple(float(np.float32(1) / np.float32(value)) for value in std)


@cache
def divides(mean: tuple[float, ...], std: tuple[float, ...], reciprocal: bool) -> bool:
    """Whether some byte needs true divisions on its way to (byte / 255 - mean) / std; see the note.

    Args:
        mean, std: by channel.
        reciprocal: the first step is a multiplication by the rounded 1/255 anyway.
    """
    byte, whole = np.arange(256, dtype=np.float32), np.float32(255)
    inverse = np.float32(1) / whole
    with np.errstate(all="ignore"):
        if not reciprocal and not _corrected(byte, whole, inverse):
            return True
        value = byte * inverse if reciprocal else byte / whole
        channels = zip(mean, std, inverses(std), strict=True)
        return not all(_corrected(value - np.float32(m), np.float32(s), np.float32(r)) for m, s, r in channels)


def _corrected(a: Any, b: Any, r: Any) -> bool:
    """Whether the note's way gives a / b for all of a. In float64 its first fused step is exact before it is rounded; the second is so but
    for the last place, which only matters half-way between two values of float32: there the answer is no."""
    q = (a * r).astype(np.float64)
    rest = (a.astype(np.float64) - q * np.float64(b)).astype(np.float32)
    total = q + rest.astype(np.float64) * np.float64(r)
    half_way = total.view(np.int64) & ((1 << 29) - 1) == 1 << 28
    return bool(np.all((total.astype(np.float32) == a / b) & ~half_way))
