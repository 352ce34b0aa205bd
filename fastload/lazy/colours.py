"""Colour steps: blends, tables, hue, blurs and bands of an image, by native code where that is proved to be
the installed Pillow's own arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from PIL import Image
from PIL import _imaging as library

from fastload._native import core
from fastload.lazy.pillow_code import Probe
from fastload.lazy.pixels import Array, Core, to_array, to_core
from fastload.lazy.resampling import noise
from fastload.lazy.sources import filled
from fastload.lazy.steps import Kept, Size, Step

if TYPE_CHECKING:
    from fastload.lazy.recipe import Recipe

Native: TypeAlias = tuple[str | int | float | bytes, ...]
"""A step as core.colour() takes it."""
SMOOTH = ((3, 3), 13, 0, (1, 1, 1, 1, 5, 1, 1, 1, 1))
"""Arguments that ImageFilter.SMOOTH gives the filter() of a core image."""


class Proved(Kept):
    """Mixin of the steps that native code does, if a trial gave the installed Pillow's bytes."""

    __slots__ = ()

    def on_core(self, core: Core) -> Core:
        """As Step.on_core."""
        raise NotImplementedError

    def natively(self, pixels: Array) -> Array:
        """The result, by native code."""
        raise NotImplementedError

    def on_array(self, pixels: Array) -> Array | None:
        """As Step.on_array."""
        return self.natively(pixels) if agrees(type(self)) else None


class Colour(Proved):
    """Mixin of the steps of core.colour(), by which neighbours are done in one call."""

    __slots__ = ()

    @property
    def native(self) -> Native:
        """The step for core.colour()."""
        raise NotImplementedError

    def natively(self, pixels: Array) -> Array:
        """As Proved.natively."""
        return core.colour(pixels, [self.native])


def colours_of(steps: Sequence[Step]) -> list[Native]:
    """The first steps for one call of core.colour()."""
    found = []
    for step in steps:
        if not isinstance(step, Colour) or not agrees(type(step)):
            break
        found.append(step.native)
    return found


class _Blend(NamedTuple):
    ink: bytes
    factor: float


class Blend(_Blend, Colour):
    """Image.blend from an image of one colour, the same in all channels: its bytes as Plain.ink."""

    __slots__ = ()

    @property
    def native(self) -> Native:
        """As Colour.native."""
        return "blend", self.ink[0], self.factor

    def fourth(self, value: int | None, size: Size) -> int | None:
        """As Step.fourth."""
        return _blended(value, self.ink[-1], self.factor)

    def on_core(self, core: Core) -> Core:
        """As Step.on_core."""
        return library.blend(filled(core.mode, core.size, self.ink), core, self.factor)


def _blended(value: int | None, other: int | None, factor: float) -> int | None:
    """A blend of bytes of which None is any."""
    if value is None or other is None:
        return None
    return int(core.colour(np.full((1, 1), value, np.uint8), [("blend", other, factor)])[0, 0])


class _BlendOver(NamedTuple):
    other: Recipe
    factor: float


class BlendOver(_BlendOver, Proved):
    """Image.blend from the image of another recipe, of the same mode and size."""

    __slots__ = ()

    @property
    def length(self) -> int:
        """Steps that it stands for."""
        return self.other.length + 1

    def fourth(self, value: int | None, size: Size) -> int | None:
        """As Step.fourth."""
        return _blended(value, self.other.fourth, self.factor)

    def natively(self, pixels: Array) -> Array:
        """As Proved.natively."""
        return core.colour_blend(pixels, to_array(self.other.pixels()), self.factor)

    def on_core(self, core: Core) -> Core:
        """As Step.on_core."""
        return library.blend(self.other.core(None), core, self.factor)


class _Factor(NamedTuple):
    factor: float


class Grey(Colour):
    """convert("L"), and the light as three channels of a new image."""

    __slots__ = ()

    @property
    def native(self) -> Native:
        """As Colour.native."""
        return ("grey",)

    def fourth(self, value: int | None, size: Size) -> int | None:
        """As Step.fourth."""
        return 255

    def on_core(self, core: Core) -> Core:
        """As Step.on_core."""
        return core.convert("L", Image.Dither.FLOYDSTEINBERG).convert("RGB", Image.Dither.FLOYDSTEINBERG)


class Contrast(_Factor, Colour):
    """ImageEnhance.Contrast: a blend from one grey, the image's mean light, rounded."""

    __slots__ = ()

    @property
    def native(self) -> Native:
        """As Colour.native."""
        return "contrast", self.factor

    def fourth(self, value: int | None, size: Size) -> int | None:
        """As Step.fourth."""
        return _blended(value, 255, self.factor)

    def on_core(self, core: Core) -> Core:
        """As Step.on_core."""
        light = core if core.mode == "L" else core.convert("L", Image.Dither.FLOYDSTEINBERG)
        counts = light.histogram()
        level = int(sum(value * count for value, count in enumerate(counts)) / sum(counts) + 0.5)
        ink = bytes([level] * 3 + [255]) if core.mode == "RGB" else bytes([level])
        return library.blend(filled(core.mode, core.size, ink), core, self.factor)


class Saturate(_Factor, Colour):
    """ImageEnhance.Color: a blend from the image's light."""

    __slots__ = ()

    @property
    def native(self) -> Native:
        """As Colour.native."""
        return "saturate", self.factor

    def fourth(self, value: int | None, size: Size) -> int | None:
        """As Step.fourth."""
        return _blended(value, 255, self.factor)

    def on_core(self, core: Core) -> Core:
        """As Step.on_core."""
        grey = core.convert("L", Image.Dither.FLOYDSTEINBERG).convert("RGB", Image.Dither.FLOYDSTEINBERG)
        return library.blend(grey, core, self.factor)


class Sharpen(_Factor, Colour):
    """ImageEnhance.Sharpness: a blend from the smooth image."""

    __slots__ = ()

    @property
    def native(self) -> Native:
        """As Colour.native."""
        return "sharpen", self.factor

    def fourth(self, value: int | None, size: Size) -> int | None:
        """As Step.fourth: 0 inside, and as it was at the edges."""
        return 0 if value == 0 else None

    def on_core(self, core: Core) -> Core:
        """As Step.on_core."""
        return library.blend(core.filter(*SMOOTH), core, self.factor)


class Smooth(Colour):
    """ImageFilter.SMOOTH."""

    __slots__ = ()

    @property
    def native(self) -> Native:
        """As Colour.native."""
        return ("smooth",)

    def fourth(self, value: int | None, size: Size) -> int | None:
        """As Step.fourth: 0 inside, and as it was at the edges."""
        return 0 if value == 0 else None

    def on_core(self, core: Core) -> Core:
        """As Step.on_core."""
        return core.filter(*SMOOTH)


class _Tables(NamedTuple):
    tables: bytes


class Point(_Tables, Colour):
    """Image.point by tables of bytes, 256 for each channel."""

    __slots__ = ()

    @property
    def native(self) -> Native:
        """As Colour.native."""
        return "table", self.tables

    def fourth(self, value: int | None, size: Size) -> int | None:
        """As Step.fourth."""
        return 0

    def on_core(self, core: Core) -> Core:
        """As Step.on_core."""
        return core.point(list(self.tables), None)


class _ByCounts(Colour):
    """Mixin of steps that are a table for each channel, which follows from how often it has each value."""

    __slots__ = ()

    def fourth(self, value: int | None, size: Size) -> int | None:
        """As Step.fourth."""
        return 0


class Autocontrast(_ByCounts):
    """ImageOps.autocontrast without a cutoff."""

    __slots__ = ()

    @property
    def native(self) -> Native:
        """As Colour.native."""
        return ("autocontrast",)

    def on_core(self, core: Core) -> Core:
        """As Step.on_core."""
        from PIL import ImageOps  # whose functions get stand-ins that import this file

        return ImageOps.autocontrast(Image.Image()._new(core)).im


class Equalize(_ByCounts):
    """ImageOps.equalize."""

    __slots__ = ()

    @property
    def native(self) -> Native:
        """As Colour.native."""
        return ("equalize",)

    def on_core(self, core: Core) -> Core:
        """As Step.on_core."""
        from PIL import ImageOps

        return ImageOps.equalize(Image.Image()._new(core)).im


class _Radii(NamedTuple):
    radii: tuple[float, float]


class Gaussian(_Radii, Colour):
    """ImageFilter.GaussianBlur of two radii."""

    __slots__ = ()

    @property
    def native(self) -> Native:
        """As Colour.native."""
        x, y = (core.gaussian_radius(radius, 3) for radius in self.radii)
        return "blur", x, y, 3

    def on_core(self, core: Core) -> Core:
        """As Step.on_core."""
        return core.gaussian_blur(self.radii)


class Box(_Radii, Colour):
    """ImageFilter.BoxBlur of two radii."""

    __slots__ = ()

    @property
    def native(self) -> Native:
        """As Colour.native."""
        return "blur", *self.radii, 1

    def on_core(self, core: Core) -> Core:
        """As Step.on_core."""
        return core.box_blur(self.radii)


class ToLight(Proved):
    """convert("L") of an RGB image."""

    __slots__ = ()

    def mode(self, mode: str) -> str:
        """As Step.mode."""
        return "L"

    def natively(self, pixels: Array) -> Array:
        """As Proved.natively."""
        return core.colour_band(pixels, "L")

    def on_core(self, core: Core) -> Core:
        """As Step.on_core."""
        return core.convert("L", Image.Dither.FLOYDSTEINBERG)


class _Band(NamedTuple):
    band: str


class Band(_Band, Proved):
    """A band of an RGB image, by its letter: of mode RGB, or of convert("HSV")."""

    __slots__ = ()

    def mode(self, mode: str) -> str:
        """As Step.mode."""
        return "L"

    def natively(self, pixels: Array) -> Array:
        """As Proved.natively."""
        if self.band in "RGB":
            return pixels[:, :, "RGB".index(self.band)]
        return core.colour_band(pixels, self.band)

    def on_core(self, core: Core) -> Core:
        """As Step.on_core."""
        if self.band in "RGB":
            return core.getband("RGB".index(self.band))
        return core.convert("HSV", Image.Dither.FLOYDSTEINBERG).getband("HSV".index(self.band))


class _Shift(NamedTuple):
    shift: int | None


class ToHsv(_Shift, Kept):
    """convert("HSV"); then the bands merged, with `shift` added to H, modulo 256, unless that is None."""

    __slots__ = ()

    def mode(self, mode: str) -> str:
        """As Step.mode."""
        return "HSV"

    def fourth(self, value: int | None, size: Size) -> int | None:
        """As Step.fourth."""
        return None

    def on_array(self, pixels: Array) -> Array | None:
        """As Step.on_array."""
        return None

    def on_core(self, core: Core) -> Core:
        """As Step.on_core."""
        return _turned(core.convert("HSV", Image.Dither.FLOYDSTEINBERG), self.shift)


class Hue(_Shift, Colour):
    """ToHsv of a shift, and convert("RGB")."""

    __slots__ = ()

    @property
    def native(self) -> Native:
        """As Colour.native."""
        return "hue", self.shift or 0

    def fourth(self, value: int | None, size: Size) -> int | None:
        """As Step.fourth."""
        return value if self.shift is None else 0

    def on_core(self, core: Core) -> Core:
        """As Step.on_core."""
        hsv = _turned(core.convert("HSV", Image.Dither.FLOYDSTEINBERG), self.shift)
        return hsv.convert("RGB", Image.Dither.FLOYDSTEINBERG)


def _turned(hsv: Core, shift: int | None) -> Core:
    """A core image of mode HSV, as merge() of its bands makes it, with a number added to H; itself for
    None."""
    if shift is None:
        return hsv
    hue, saturation, value = (hsv.getband(each) for each in range(3))
    table = [(each + shift) & 255 for each in range(256)]
    return library.merge("HSV", hue.point(table, None), saturation, value)


_CURVE = bytes(x * x >> 8 for x in range(256))
_TRIED: dict[type[Proved], tuple[tuple[int, ...], tuple[Proved, ...]]] = {
    Blend: ((3, 1), tuple(Blend(ink, by) for ink in (b"\0\0\0\xff", b"aaa\xff") for by in (0.7, 1.6, -0.3))),
    Contrast: ((3, 1), (Contrast(0.4), Contrast(1.7))),
    Saturate: ((3,), (Saturate(0.4), Saturate(1.7))),
    Sharpen: ((3, 1), (Sharpen(0.3), Sharpen(1.9))),
    Smooth: ((3, 1), (Smooth(),)),
    Point: ((3,), (Point(_CURVE[::-1] + _CURVE + bytes(range(256))),)),
    Autocontrast: ((3, 1), (Autocontrast(),)),
    Equalize: ((3, 1), (Equalize(),)),
    Gaussian: ((3, 1), (Gaussian((0.3, 0.3)), Gaussian((2.1, 1.3)), Gaussian((9.0, 0.0)))),
    Box: ((3, 1), (Box((1.5, 1.5)), Box((0.0, 4.0)))),
    ToLight: ((3,), (ToLight(),)),
    Grey: ((3,), (Grey(),)),
    Band: ((3,), (Band("G"), Band("H"), Band("S"), Band("V"))),
    Hue: ((3,), (Hue(None), Hue(51), Hue(230))),
}
"""By kind of step: numbers of channels, and the steps, by which it is compared with the installed Pillow."""


def _trial(channels: Sequence[int], steps: Sequence[Proved]) -> Probe[bool]:
    def agree() -> bool:
        return all(_same(step, _picture(count)) for step in steps for count in channels)

    return Probe(agree)


def _picture(channels: int) -> Array:
    pixels = noise(61, 47, channels)
    pixels[:, :9] = pixels[:, :9, :1]  # greys
    return pixels


def _same(step: Proved, pixels: Array) -> bool:
    pixels = pixels[:, :, 0] if pixels.shape[2] == 1 else pixels
    return np.array_equal(step.natively(pixels), to_array(step.on_core(to_core(pixels))))


_trials = {kind: _trial(*tried) for kind, tried in _TRIED.items()}
_trials[BlendOver] = _trials[Blend]


def tried(kind: type[Proved], channels: Sequence[int], steps: Sequence[Proved]) -> None:
    """Adds a kind of step, with what it is compared with the installed Pillow by."""
    _trials[kind] = _trial(channels, steps)


def agrees(kind: type[Proved]) -> bool:
    """Returns True if the native code for a kind of step gave the bytes of the installed Pillow for a set of
    steps, which is tried once in a process, and if it is the faster one on this CPU."""
    return bool(_is_fast() and _trials[kind]())


@cache
def _is_fast() -> bool:
    """Returns True if the CPU has the instructions for which the native code is written."""
    return not {"avx2", "neon"}.isdisjoint(core.cpu_features().split(","))
