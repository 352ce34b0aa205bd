"""Steps: what a recipe does to the pixels of its region, one after the other, each as Pillow's core image
does it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from PIL import Image

from fastload.lazy import resizing
from fastload.lazy.pixels import Array, Core
from fastload.lazy.resizing import Resample


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

    @property
    def resamples(self) -> bool:
        """True if pixels are computed, and not only copied."""
        left, upper, right, lower = self.box
        whole = (
            all(float(side).is_integer() for side in self.box) and (right - left, lower - upper) == self.to
        )
        return self.filter != Image.Resampling.NEAREST and not whole

    def size(self, size: tuple[int, int]) -> tuple[int, int]:
        """Size of the result."""
        return self.to

    def on_array(self, pixels: Array) -> Array | None:
        """The result, by native code; None: only a core image does it."""
        return resizing.resample(
            pixels, resizing.Resample(self.to, self.filter, self.box, (0, 0, *self.to), False, False)
        )

    def on_core(self, core: Core) -> Core:
        """The result, by Pillow."""
        return core.resize(self.to, self.filter, self.box)


class Reduce(NamedTuple):
    """A box of the pixels, (left, upper, right, lower), of which the means of blocks of (width, height)
    are taken."""

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


_TURNS = (
    Image.Transpose.ROTATE_90,
    Image.Transpose.ROTATE_270,
    Image.Transpose.TRANSPOSE,
    Image.Transpose.TRANSVERSE,
)
_FLIPS = {
    int(Image.Transpose.FLIP_LEFT_RIGHT): (True, False),
    int(Image.Transpose.FLIP_TOP_BOTTOM): (False, True),
    int(Image.Transpose.ROTATE_180): (True, True),
}
"""The flips that are one: (left and right, top and bottom)."""


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


def fourth_byte(steps: Sequence[Step], size: tuple[int, ...]) -> tuple[int, bool]:
    """The fourth byte of pixels after some steps on decoded pixels of a size, and True if it is not the
    same in all of them."""
    value, mixed = 255, False
    for step in steps:
        width, height = size
        if isinstance(step, ToRgb):
            value, mixed = 255, False
        elif isinstance(step, Resize) and step.resamples:
            value, mixed = 0, False
        elif isinstance(step, Reduce):
            mixed |= value != 0
        elif isinstance(step, Crop):
            left, upper, right, lower = step.box
            mixed |= value != 0 and not (left >= 0 and upper >= 0 and right <= width and lower <= height)
        size = step.size((width, height))
    return value, mixed


def flips(steps: Sequence[Step]) -> tuple[bool, bool, int]:
    """The flips that the first steps are, left and right, top and bottom; and the number of these steps."""
    hflip = vflip = False
    for count, step in enumerate(steps):
        if not isinstance(step, Transpose) or step.method not in _FLIPS:
            return hflip, vflip, count
        across, down = _FLIPS[step.method]
        hflip, vflip = hflip != across, vflip != down
    return hflip, vflip, len(steps)


def resample_of(steps: Sequence[Step]) -> tuple[Resample, int] | None:
    """One call of the resampler for the first steps, a resize, a crop of it, flips, and their number;
    None: no resize comes first."""
    if not steps or not isinstance(steps[0], Resize):
        return None
    resize, count, window = steps[0], 1, (0, 0, *steps[0].to)
    if len(steps) > 1 and isinstance(steps[1], Crop):
        left, upper, right, lower = steps[1].box
        if left >= 0 and upper >= 0 and right <= resize.to[0] and lower <= resize.to[1]:
            count, window = 2, (left, upper, right - left, lower - upper)
    hflip, vflip, mirrored = flips(steps[count:])
    return Resample(resize.to, resize.filter, resize.box, window, hflip, vflip), count + mirrored
