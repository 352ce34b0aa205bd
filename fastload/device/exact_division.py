"""Exact division of bytes by multiplication: decides when products and a correction give the bits of true
divisions.

NOTE [ division: by a product and its correction ]
On a GPU two true divisions for each value take longer than reading and writing it. The quotient a / b can
also be computed as q + (a - q * b) * r, with r = 1 / b and q = a * r, both rounded, and with each of the
other two operations fused, that is, rounded once. For all but a few a and b this is the correctly rounded
quotient (Markstein, "Computation of elementary functions on the IBM RISC System/6000 processor", 1990). Here
a comes from one of 256 bytes and b is one of four constants, so every case is tested beforehand.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt


@cache
def inverses(std: tuple[float, ...]) -> tuple[float, ...]:
    """The reciprocals 1 / std, computed and rounded in float32."""
    with np.errstate(all="ignore"):
        return tuple(float(np.float32(1) / np.float32(value)) for value in std)


@cache
def divides(mean: tuple[float, ...], std: tuple[float, ...], reciprocal: bool) -> bool:
    """Returns True if (byte / 255 - mean) / std needs true divisions for some byte; NOTE [ division: by a
    product and its correction ].

    Args:
        mean, std: one value for each channel.
        reciprocal: True if the byte is multiplied by the rounded 1/255, False if it is divided by 255.
    """
    byte, whole = np.arange(256, dtype=np.float32), np.float32(255)
    inverse = np.float32(1) / whole
    with np.errstate(all="ignore"):
        if not reciprocal and not _corrected(byte, whole, inverse):
            return True
        value = byte * inverse if reciprocal else byte / whole
        channels = zip(mean, std, inverses(std), strict=True)
        return not all(
            _corrected(value - np.float32(m), np.float32(s), np.float32(r)) for m, s, r in channels
        )


def _corrected(a: npt.NDArray[np.float32], b: np.float32, r: np.float32) -> bool:
    """Returns True if product and correction give a / b for every value of `a`.

    float64 holds the first fused operation exactly before it is rounded. It holds the second exactly but for
    the last place, which matters only half-way between two float32 values: there the function returns False.
    """
    q = (a * r).astype(np.float64)
    rest = (a.astype(np.float64) - q * np.float64(b)).astype(np.float32)
    total = q + rest.astype(np.float64) * np.float64(r)
    half_way = total.view(np.int64) & ((1 << 29) - 1) == 1 << 28
    return bool(np.all((total.astype(np.float32) == a / b) & ~half_way))
