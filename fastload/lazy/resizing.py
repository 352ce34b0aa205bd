"""Resampling of a recipe's pixels: the one place that decides between the native resampler and Pillow's own."""

from __future__ import annotations

from fastload.lazy.pixels import Array


def resize(pixels: Array, size: tuple[int, int], filter: int, box: tuple[float, float, float, float]) -> Array | None:
    """Pixels resampled as the installed Pillow resamples them, bit for bit; None where only Pillow itself does that."""
    return None


def reduce(pixels: Array, factor: tuple[int, int], box: tuple[int, int, int, int]) -> Array | None:
    """Means of blocks of pixels, as the installed Pillow takes them; None where only Pillow itself does that."""
    return None
