"""Pixels in their two forms, and from one to the other: arrays, into which the native code decodes, and Pillow's core images."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image

Array: TypeAlias = npt.NDArray[np.uint8]
Core: TypeAlias = Any
"""An ImagingCore of Pillow: the object behind an image's `im`."""


def to_core(pixels: Array | Core) -> Core:
    """A core image of these pixels: mode L of an array (height, width), RGB of (height, width, 3)."""
    if not isinstance(pixels, np.ndarray):
        return pixels
    height, width = pixels.shape[:2]
    return Image.frombytes("L" if pixels.ndim == 2 else "RGB", (width, height), np.ascontiguousarray(pixels)).im


def to_array(pixels: Array | Core) -> Array:
    """A contiguous array of the pixels of an L or RGB image; it cannot be written where Pillow made it."""
    if isinstance(pixels, np.ndarray):
        return np.ascontiguousarray(pixels)
    width, height = pixels.size
    data = Image.Image()._new(pixels).tobytes()
    return np.frombuffer(data, np.uint8).reshape((height, width) if pixels.mode == "L" else (height, width, 3))
