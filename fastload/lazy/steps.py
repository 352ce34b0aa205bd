"""Steps: what a recipe does to the pixels of its region, one after the other, each as Pillow's core image does it."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from PIL import Image

from fastload.lazy import resizing
from fastload.lazy.pixels import Array, Core


class Crop(NamedTuple):
    """A box of the pixels, (left, upper, right, lower); beyond their edges it is filled with zeros."""

    box: tuple[int, int, int, int]

    def size(self, size: tuple[int, int]) -> tuple[int, int]:
        """Size of the result."""
        return self.box[2] - self.box[0], self.box[3] - self.box[1]

    def on_array(self, pixels: Array) -> Array | None:
        """The result, by native code; None: only a core image does it."""
        left, upper, right, lower = self.box
        height, width = pixels.shape[:2]
        inside = pixels[max(upper, 0) : max(lower, 0), max(left, 0) : max(right, 0)]
        if left >= 0 and upper >= 0 and right <= width and lower <= height:
            return inside
        out = np.zeros((lower - upper, right - left, *pixels.shape[2:]), np.uint8)
        x, y = max(-left, 0), max(-upper, 0)
        out[y : y + inside.shape[0], x : x + inside.shape[1]] = inside
        return out

    def on_core(self, core: Core) -> Core:
        """The result, by Pillow."""
        return core.crop(self.box)


class Resize(NamedTuple):
    """A box of the pixels, resampled to a size."""

    to: tuple[int, int]
    filter: int
    box: tuple[float, float, float, float]

    def size(self, size: tuple[int, int]) -> tuple[int, int]:
        """Size of the result."""
        return self.to

    def on_array(self, pixels: Array) -> Array | None:
        """The result, by native code; None: only a core image does it."""
        return resizing.resize(pixels, self.to, self.filter, self.box)

    def on_core(self, core: Core) -> Core:
        """The result, by Pillow."""
        return core.resize(self.to, self.filter, self.box)


class Reduce(NamedTuple):
    """A box of the pixels, (left, upper, right, lower), of which the means of blocks of (width, height) are taken."""

    factor: tuple[int, int]
    box: tuple[int, int, int, int]

    def size(self, size: tuple[int, int]) -> tuple[int, int]:
        """Size of the result."""
        (across, down), (left, upper, right, lower) = self.factor, self.box
        return -(-(right - left) // across), -(-(lower - upper) // down)

    def on_array(self, pixels: Array) -> Array | None:
        """The result, by native code; None: only a core image does it."""
        return resizing.reduce(pixels, self.factor, self.box)

    def on_core(self, core: Core) -> Core:
        """The result, by Pillow."""
        return core.reduce(self.factor, self.box)


class Transpose(NamedTuple):
    """A flip, or a turn by 90 degrees."""

    method: int

    def size(self, size: tuple[int, int]) -> tuple[int, int]:
        """Size of the result."""
        return (size[1], size[0]) if self.method in _TURNS else size

    def on_array(self, pixels: Array) -> Array | None:
        """The result, by native code; None: only a core image does it."""
        return pixels[::-1] if self.method == Image.Transpose.FLIP_TOP_BOTTOM else None

    def on_core(self, core: Core) -> Core:
        """The result, by Pillow."""
        return core.transpose(self.method)


_TURNS = (Image.Transpose.ROTATE_90, Image.Transpose.ROTATE_270, Image.Transpose.TRANSPOSE, Image.Transpose.TRANSVERSE)


class ToRgb(NamedTuple):
    """Three equal channels of a grey one."""

    def size(self, size: tuple[int, int]) -> tuple[int, int]:
        """Size of the result."""
        return size

    def on_array(self, pixels: Array) -> Array | None:
        """The result, by native code; None: only a core image does it."""
        return np.repeat(pixels[:, :, None], 3, axis=2)

    def on_core(self, core: Core) -> Core:
        """The result, by Pillow."""
        return core.convert("RGB", Image.Dither.FLOYDSTEINBERG)


Step: TypeAlias = Crop | Resize | Reduce | Transpose | ToRgb
