"""Steps onto a canvas of one colour: Image.transform and Image.paste."""

from __future__ import annotations

from typing import NamedTuple

from PIL import Image

from fastload._native import core as native
from fastload.lazy.colours import Proved, tried
from fastload.lazy.pixels import Array, Core
from fastload.lazy.sources import canvas, filled
from fastload.lazy.steps import Crop, Kept, Size, Step

FILTERS = {
    int(Image.Resampling.NEAREST): "nearest",
    int(Image.Resampling.BILINEAR): "bilinear",
    int(Image.Resampling.BICUBIC): "bicubic",
}
"""Names of the native filters by Pillow's numbers."""


class _Pad(NamedTuple):
    to: Size
    at: tuple[int, int]
    ink: bytes


class Pad(_Pad, Kept):
    """The pixels, pasted onto a canvas of a size and colour with their left upper corner at (left, upper)."""

    __slots__ = ()

    def size(self, size: Size) -> Size:
        """As Step.size."""
        return self.to

    def fourth(self, value: int | None, size: Size) -> int | None:
        """As Step.fourth."""
        return value if value == self.ink[-1] else None

    def merged(self, after: Step) -> Step | None:
        """As Step.merged: a crop of the canvas is a smaller canvas."""
        if not isinstance(after, Crop) or not after.is_within(self.to):
            return None
        left, upper, _, _ = after.box
        return Pad(after.size(self.to), (self.at[0] - left, self.at[1] - upper), self.ink)

    def on_array(self, pixels: Array) -> Array | None:
        """As Step.on_array."""
        out = canvas(self.to, self.ink if pixels.ndim == 3 else self.ink[:1])
        height, width = pixels.shape[:2]
        left, upper = self.at
        inside = out[max(upper, 0) : max(upper + height, 0), max(left, 0) : max(left + width, 0)]
        x, y = max(-left, 0), max(-upper, 0)
        inside[:] = pixels[y : y + inside.shape[0], x : x + inside.shape[1]]
        return out

    def on_core(self, core: Core) -> Core:
        """As Step.on_core."""
        out = filled(core.mode, self.to, self.ink)
        out.paste(core, (*self.at, self.at[0] + core.size[0], self.at[1] + core.size[1]))
        return out


class _Warp(NamedTuple):
    to: Size
    numbers: tuple[float, ...]
    filter: int
    ink: bytes


class Warp(_Warp, Proved):
    """Image.transform onto a canvas of a size and colour, by the six numbers of Transform.AFFINE or the eight
    of Transform.PERSPECTIVE."""

    __slots__ = ()

    def size(self, size: Size) -> Size:
        """As Step.size."""
        return self.to

    def fourth(self, value: int | None, size: Size) -> int | None:
        """As Step.fourth."""
        return None

    def natively(self, pixels: Array) -> Array:
        """As Proved.natively."""
        out = canvas(self.to, self.ink if pixels.ndim == 3 else self.ink[:1])
        native.colour_warp(pixels, out, self.numbers, FILTERS[self.filter])
        return out

    def on_core(self, core: Core) -> Core:
        """As Step.on_core."""
        out = filled(core.mode, self.to, self.ink)
        method = Image.Transform.AFFINE if len(self.numbers) == 6 else Image.Transform.PERSPECTIVE
        transform = getattr(out, "transform", None) or out.transform2  # in the first versions of Pillow 10
        transform((0, 0, *self.to), core, method, self.numbers, self.filter, False)
        return out


_MAPS = (
    (1.0, 0.2, -3.5, -0.1, 0.9, 4.25),
    (0.7, 0.0, 5.0, 0.0, 1.3, -2.0),
    (1.0, 0.1, 2.0, -0.1, 1.1, 1.0, 0.002, -0.001),
)
tried(
    Warp,
    (3, 1),
    tuple(Warp((53, 40), numbers, each, b"\x07\x07\x07\xff") for numbers in _MAPS for each in FILTERS),
)
