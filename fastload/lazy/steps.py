"""Steps: what a recipe does to the pixels that it begins with, one after the other, each as Pillow's core
image does it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from PIL import Image

from fastload.lazy import resizing
from fastload.lazy.pixels import Array, Core
from fastload.lazy.resizing import Resample

Size = tuple[int, int]


class Step(Protocol):
    """One step. It is never changed."""

    def mode(self, mode: str) -> str:
        """Mode of the result."""

    def size(self, size: Size) -> Size:
        """(width, height) of the result."""

    def fourth(self, value: int | None, size: Size) -> int | None:
        """The fourth byte of a result's pixels where it was `value` in those of a core image of mode RGB, of
        a size; None: it is not the same in all of them."""

    def merged(self, after: Step) -> Step | None:
        """One step that does what this one and the next do; None: there is none."""

    def on_array(self, pixels: Array) -> Array | None:
        """The result, by native code; None: only a core image does it."""

    def on_core(self, core: Core) -> Core:
        """The result, by Pillow."""


class Kept:
    """Mixin of steps: what most of them leave as it is."""

    __slots__ = ()

    def mode(self, mode: str) -> str:
        """As Step.mode."""
        return mode

    def size(self, size: Size) -> Size:
        """As Step.size."""
        return size

    def fourth(self, value: int | None, size: Size) -> int | None:
        """As Step.fourth."""
        return value

    def merged(self, after: Step) -> Step | None:
        """As Step.merged."""
        return None


class _Crop(NamedTuple):
    box: tuple[int, int, int, int]


class Crop(_Crop, Kept):
    """A box of the pixels, (left, upper, right, lower); beyond their edges it is filled with zeros."""

    __slots__ = ()

    def size(self, size: Size) -> Size:
        """As Step.size."""
        return self.box[2] - self.box[0], self.box[3] - self.box[1]

    def fourth(self, value: int | None, size: Size) -> int | None:
        """As Step.fourth."""
        return value if value == 0 or self.is_within(size) else None

    def is_within(self, size: Size) -> bool:
        """Returns True if no part of the box is beyond the edges of an image of a size."""
        left, upper, right, lower = self.box
        return left >= 0 and upper >= 0 and right <= size[0] and lower <= size[1]

    def on_array(self, pixels: Array) -> Array | None:
        """As Step.on_array."""
        left, upper, right, lower = self.box
        height, width = pixels.shape[:2]
        inside = pixels[max(upper, 0) : max(lower, 0), max(left, 0) : max(right, 0)]
        if self.is_within((width, height)):
            return inside
        out = np.zeros((lower - upper, right - left, *pixels.shape[2:]), np.uint8)
        x, y = max(-left, 0), max(-upper, 0)
        out[y : y + inside.shape[0], x : x + inside.shape[1]] = inside
        return out

    def on_core(self, core: Core) -> Core:
        """As Step.on_core."""
        return core.crop(self.box)


class _Resize(NamedTuple):
    to: Size
    filter: int
    box: tuple[float, float, float, float]


class Resize(_Resize, Kept):
    """A box of the pixels, resampled to a size."""

    __slots__ = ()

    @property
    def resamples(self) -> bool:
        """True if pixels are computed, and not only copied."""
        left, upper, right, lower = self.box
        whole = (
            all(float(side).is_integer() for side in self.box) and (right - left, lower - upper) == self.to
        )
        return self.filter != Image.Resampling.NEAREST and not whole

    def size(self, size: Size) -> Size:
        """As Step.size."""
        return self.to

    def fourth(self, value: int | None, size: Size) -> int | None:
        """As Step.fourth."""
        return 0 if self.resamples else value

    def on_array(self, pixels: Array) -> Array | None:
        """As Step.on_array."""
        return resizing.resample(
            pixels, resizing.Resample(self.to, self.filter, self.box, (0, 0, *self.to), False, False)
        )

    def on_core(self, core: Core) -> Core:
        """As Step.on_core."""
        return core.resize(self.to, self.filter, self.box)


class _Reduce(NamedTuple):
    factor: tuple[int, int]
    box: tuple[int, int, int, int]


class Reduce(_Reduce, Kept):
    """A box of the pixels, (left, upper, right, lower), of which the means of blocks of (width, height)
    are taken."""

    __slots__ = ()

    def size(self, size: Size) -> Size:
        """As Step.size."""
        (across, down), (left, upper, right, lower) = self.factor, self.box
        return -(-(right - left) // across), -(-(lower - upper) // down)

    def fourth(self, value: int | None, size: Size) -> int | None:
        """As Step.fourth."""
        return 0 if value == 0 else None

    def on_array(self, pixels: Array) -> Array | None:
        """As Step.on_array."""
        return resizing.reduce(pixels, self.factor, self.box)

    def on_core(self, core: Core) -> Core:
        """As Step.on_core."""
        return core.reduce(self.factor, self.box)


class _Transpose(NamedTuple):
    method: int


class Transpose(_Transpose, Kept):
    """A flip, or a turn by 90 degrees."""

    __slots__ = ()

    def size(self, size: Size) -> Size:
        """As Step.size."""
        return (size[1], size[0]) if self.method in _TURNS else size

    def on_array(self, pixels: Array) -> Array | None:
        """As Step.on_array."""
        flip = _FLIPS.get(self.method)
        return None if flip is None else resizing.flipped(pixels, *flip)

    def on_core(self, core: Core) -> Core:
        """As Step.on_core."""
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


class ToRgb(Kept):
    """Three equal channels of a grey one."""

    __slots__ = ()

    def mode(self, mode: str) -> str:
        """As Step.mode."""
        return "RGB"

    def fourth(self, value: int | None, size: Size) -> int | None:
        """As Step.fourth."""
        return 255

    def on_array(self, pixels: Array) -> Array | None:
        """As Step.on_array."""
        return np.repeat(pixels[:, :, None], 3, axis=2)

    def on_core(self, core: Core) -> Core:
        """As Step.on_core."""
        return core.convert("RGB", Image.Dither.FLOYDSTEINBERG)


def fourth_byte(steps: Sequence[Step], value: int | None, size: Size) -> int | None:
    """The fourth byte of pixels after some steps on pixels of a size that had `value`; None: it is not the
    same in all of them."""
    for step in steps:
        value, size = step.fourth(value, size), step.size(size)
    return value


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
