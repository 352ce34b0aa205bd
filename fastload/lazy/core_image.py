"""LazyCore: the stand-in for a Pillow core image whose pixels are a recipe."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from types import BuiltinMethodType
from typing import Any, TypeGuard

from PIL import Image

from fastload._native import core as native
from fastload.lazy.colours import SMOOTH, Band, Box, Gaussian, Hue, Point, Proved, Smooth, ToHsv, ToLight
from fastload.lazy.pixels import Array, Core, to_array
from fastload.lazy.recipe import Recipe
from fastload.lazy.sources import Plain
from fastload.lazy.steps import Crop, Reduce, Resize, Step, ToRgb, Transpose
from fastload.lazy.warps import FILTERS, Pad, Warp


class LazyCore:
    """An object with the methods of an ImagingCore that Pillow's Python code calls, to be met by that code
    alone.

    1. A method that composes returns another LazyCore. For arguments that are not plainly right, and for
       every other method, the pixels are made, and Pillow's own core image is asked: it does the work, or
       raises its own exception.
    2. Once the pixels are made, as a core image, every method is that image's. They are made once, whichever
       threads ask.
    """

    __slots__ = ("_array", "_lock", "_real", "_recipe", "mode", "readonly", "size")

    def __init__(self, recipe: Recipe | None, core: Core = None) -> None:
        self._recipe = recipe
        self._array: Array | None = None
        self._real = core
        self._lock = threading.Lock()
        form = core if recipe is None else recipe
        self.mode, self.size, self.readonly = form.mode, form.size, 0

    @classmethod
    def around(cls, core: Core) -> LazyCore:
        """One whose pixels are made."""
        return cls(None, core)

    @classmethod
    def of(cls, recipe: Recipe | None) -> LazyCore | None:
        """One whose pixels are a recipe; None for none."""
        return None if recipe is None else cls(recipe)

    @property
    def made(self) -> bool:
        """True if the pixels are a core image by now."""
        return self._real is not None

    def real(self) -> Core:
        """The core image with the pixels; always the same one."""
        with self._lock:
            if self._real is None:
                assert self._recipe is not None
                self._real = self._recipe.core(self._array)
                self._recipe = self._array = None
            return self._real

    def array(self) -> Array:
        """The pixels, contiguous and not to be written to; made straight from the file, if there is no
        core image yet."""
        with self._lock:
            if self._real is not None:
                return to_array(self._real)
            if self._array is None:
                assert self._recipe is not None
                self._array = to_array(self._recipe.pixels())
            return self._array

    def recipe(self, held: bool = False) -> Recipe | None:
        """The recipe of the pixels; None once they are a core image.

        Args:
            held: others are to go on from the pixels, which are made once for all.
        """
        with self._lock:
            if held and self._recipe is not None:
                self._recipe = self._recipe.held()
            return self._recipe

    def _then(self, step: Step, held: bool = False) -> LazyCore | None:
        if isinstance(step, Proved) and self.mode not in ("RGB", "L"):
            return None  # Pillow refuses some of them, and held pixels have no other mode
        recipe = self.recipe(held)
        return LazyCore.of(None if recipe is None else recipe.then(step))

    def _becomes(self, recipe: Recipe | None) -> bool:
        """Puts another recipe into the place of this one. False: there is none, or the pixels are made."""
        with self._lock:
            if recipe is None or self._recipe is None:
                return False
            self._recipe, self._array = recipe, None
            return True

    @property
    def bands(self) -> int:
        """As ImagingCore.bands."""
        return len(self.mode)

    def copy(self) -> LazyCore | Core:
        """As ImagingCore.copy."""
        recipe = self._recipe
        return self.real().copy() if recipe is None else LazyCore(recipe)

    def crop(self, box: object) -> LazyCore | Core:
        """As ImagingCore.crop."""
        made = self._then(Crop(box)) if _is_box(box) and _fits(box[2] - box[0], box[3] - box[1]) else None
        return self.real().crop(box) if made is None else made

    def resize(self, size: object, filter: object = 0, box: object = None) -> LazyCore | Core:
        """As ImagingCore.resize."""
        made = None
        if is_size(size) and isinstance(filter, int) and (box is None or _is_within(box, self.size)):
            made = self._then(Resize(size, int(filter), (0, 0, *self.size) if box is None else box))
        return self.real().resize(size, filter, box) if made is None else made

    def reduce(self, factor: object, box: object) -> LazyCore | Core:
        """As ImagingCore.reduce."""
        made = None
        if is_size(factor) and _is_within(box, self.size) and _is_whole(box):
            made = self._then(Reduce(factor, box))
        return self.real().reduce(factor, box) if made is None else made

    def transpose(self, method: object) -> LazyCore | Core:
        """As ImagingCore.transpose."""
        made = self._then(Transpose(int(method))) if isinstance(method, int) and 0 <= method <= 6 else None
        return self.real().transpose(method) if made is None else made

    def convert(self, mode: object, *dither: object) -> LazyCore | Core:
        """As ImagingCore.convert."""
        plain = (
            type(mode) is str and all(type(each) is Image.Dither for each in dither[:1]) and not dither[1:]
        )
        made = self._converted(str(mode)) if plain else None
        return self.real().convert(mode, *dither) if made is None else made

    def _converted(self, mode: str) -> LazyCore | None:
        match self.mode, mode:
            case "L", "RGB":
                return self._then(ToRgb())
            case "RGB", "L":
                return self._then(ToLight(), held=True)
            case "RGB", "HSV":
                return self._then(ToHsv(None), held=True)
            case "HSV", "RGB":
                return self._of_hsv(lambda turned: Hue(turned.shift))
        return None

    def _of_hsv(self, step: Callable[[ToHsv], Step | None]) -> LazyCore | None:
        """An image with another step in the place of its last one, to HSV; None if that is not the last."""
        recipe = self._recipe
        last = recipe.steps[-1] if recipe is not None and recipe.steps else None
        instead = step(last) if isinstance(last, ToHsv) else None
        if recipe is None or instead is None:
            return None
        return LazyCore.of(Recipe(recipe.source, recipe.steps[:-1]).then(instead))

    def getband(self, band: object) -> LazyCore | Core:
        """As ImagingCore.getband."""
        made = self._band(band) if type(band) is int and 0 <= band < self.bands else None
        return self.real().getband(band) if made is None else made

    def _band(self, band: int) -> LazyCore | None:
        if self.mode == "RGB":
            return self._then(Band("RGB"[band]), held=True)
        return self._of_hsv(lambda turned: None if turned.shift else Band("HSV"[band]))

    def split(self) -> tuple[LazyCore | Core, ...]:
        """As ImagingCore.split."""
        made = [self._band(band) for band in range(self.bands)] if self.bands == 3 else [None]
        return self.real().split() if None in made else tuple(made)

    def histogram(self, *of: object) -> list[int]:
        """As ImagingCore.histogram."""
        recipe = None if of or self.mode not in ("RGB", "L") else self.recipe(held=True)
        if recipe is None:
            made: list[int] = self.real().histogram(*map(_real, of))
            return made
        counts: list[int] = native.colour_counts(to_array(recipe.pixels())).ravel().tolist()
        return counts

    def point(self, table: object, mode: object) -> LazyCore | Core:
        """As ImagingCore.point."""
        made = None
        if mode in (None, self.mode) and _is_table(table, 256 * self.bands):
            made = self._then(Point(_bytes_of(table)))
        return self.real().point(table, mode) if made is None else made

    def filter(self, *kernel: object) -> LazyCore | Core:
        """As ImagingCore.filter."""
        made = self._then(Smooth(), held=True) if kernel == SMOOTH else None
        return self.real().filter(*kernel) if made is None else made

    def gaussian_blur(self, radii: object, *passes: object) -> LazyCore | Core:
        """As ImagingCore.gaussian_blur."""
        made = (
            self._then(Gaussian((float(radii[0]), float(radii[1]))))
            if _are_radii(radii) and not passes
            else None
        )
        return self.real().gaussian_blur(radii, *passes) if made is None else made

    def box_blur(self, radii: object, *passes: object) -> LazyCore | Core:
        """As ImagingCore.box_blur."""
        made = (
            self._then(Box((float(radii[0]), float(radii[1])))) if _are_radii(radii) and not passes else None
        )
        return self.real().box_blur(radii, *passes) if made is None else made

    def _canvas(self) -> Plain | None:
        """The canvas of one colour that this is; None if it is none."""
        recipe = self._recipe
        source = None if recipe is None or recipe.steps else recipe.source
        return source if isinstance(source, Plain) else None

    def paste(self, source: object, box: object, *mask: object) -> object:
        """As ImagingCore.paste, which changes this image."""
        canvas, onto = self._canvas(), None
        if canvas is not None and not mask and _is_box(box) and type(source) is LazyCore:
            recipe = source.recipe() if source.mode == self.mode else None
            if recipe is not None and recipe.size == (box[2] - box[0], box[3] - box[1]):
                onto = recipe.then(Pad(self.size, box[:2], canvas.ink))
        return None if self._becomes(onto) else self.real().paste(_real(source), box, *map(_real, mask))

    def transform(
        self, box: object, source: object, method: object, numbers: object, filter: object, fill: object
    ) -> object:
        """As ImagingCore.transform, which changes this image."""
        return self._transform("transform", (box, source, method, numbers, filter, fill))

    def transform2(
        self, box: object, source: object, method: object, numbers: object, filter: object, fill: object
    ) -> object:
        """transform() by its name in the first versions of Pillow 10."""
        return self._transform("transform2", (box, source, method, numbers, filter, fill))

    def _transform(self, name: str, arguments: tuple[Any, ...]) -> object:
        box, source, method, numbers, filter, fill = arguments
        canvas, onto = self._canvas(), None
        whole = _is_box(box) and box == (0, 0, *self.size)
        if canvas is not None and whole and type(source) is LazyCore and source.mode == self.mode:
            ink = bytes(len(canvas.ink)) if fill else canvas.ink
            step, recipe = _warp(self.size, method, numbers, filter, ink), source.recipe()
            onto = None if recipe is None or step is None else recipe.then(step)
        if self._becomes(onto):
            return None
        return getattr(self.real(), name)(*map(_real, arguments))

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.real(), name)
        return functools.partial(_called, found) if isinstance(found, BuiltinMethodType) else found


def _called(method: Callable[..., Any], *arguments: object, **named: object) -> object:
    """Calls a method of ImagingCore, which takes none but images with pixels."""
    return method(*map(_real, arguments), **named)


def _real(value: object) -> object:
    """A core image with pixels of a LazyCore; any other value as it is."""
    return value.real() if type(value) is LazyCore else value


def _is_table(value: object, count: int) -> TypeGuard[list[int]]:
    """Returns True for a list of so many integers."""
    return type(value) is list and len(value) == count and {*map(type, value)} == {int}


def _bytes_of(table: list[int]) -> bytes:
    """A table with all values cut off at 0 and 255."""
    try:
        return bytes(table)
    except ValueError:
        return bytes(min(max(each, 0), 255) for each in table)


_RADIUS_MOST = 1000
"""Larger radii of blurs are Pillow's business."""


_NUMBERS = {int(Image.Transform.AFFINE): 6, int(Image.Transform.PERSPECTIVE): 8}
"""Numbers that a kind of warp has, counted."""


def _warp(size: tuple[int, int], method: object, numbers: object, filter: object, ink: bytes) -> Warp | None:
    """The step for the arguments of transform(); None for what is not plainly right."""
    count = _NUMBERS.get(method, 0) if isinstance(method, int) else 0
    if not _are_numbers(numbers, count) or not isinstance(filter, int) or int(filter) not in FILTERS:
        return None
    return Warp(size, tuple(map(float, numbers)), int(filter), ink)


def _are_radii(value: object) -> TypeGuard[tuple[float, float]]:
    """Returns True for two radii, none of them large."""
    return _are_numbers(value, 2) and type(value) is tuple and 0 <= min(value) and max(value) < _RADIUS_MOST


def _are_numbers(value: object, count: int) -> TypeGuard[Sequence[float]]:
    """Returns True for a list or tuple of so many finite numbers, not 0."""
    if not isinstance(value, list | tuple) or len(value) != count or count == 0:
        return False
    return all(isinstance(each, int | float) and abs(each) < _NUMBER_MOST for each in value)


_NUMBER_MOST = 1e9
"""Larger numbers of a warp are Pillow's business."""
_THIN = 0.01
"""Boxes as thin as that are Pillow's business: in its 32-bit floats they may be empty."""
_SIDE_MOST = 1 << 16
_AWAY_MOST = 1 << 30
"""Edges of a box farther away are Pillow's business, which takes them as 32-bit integers."""
_PIXELS_MOST = 1 << 26
"""Pixels of a result from which Pillow is asked, which finds out at once if there is no memory for them."""


def _is_box(value: object) -> TypeGuard[tuple[int, int, int, int]]:
    """Returns True for a box of integers, none of them large."""
    if type(value) is not tuple or len(value) != 4:
        return False
    left, upper, right, lower = value
    whole = type(left) is type(upper) is type(right) is type(lower) is int
    return whole and -_AWAY_MOST < min(value) and max(value) < _AWAY_MOST


def is_size(value: object) -> TypeGuard[tuple[int, int]]:
    """Returns True for (width, height) of an image that is neither empty nor huge."""
    return (
        type(value) is tuple and len(value) == 2 and type(value[0]) is type(value[1]) is int and _fits(*value)
    )


def _fits(width: int, height: int) -> bool:
    return 0 < width < _SIDE_MOST and 0 < height < _SIDE_MOST and width * height <= _PIXELS_MOST


def _is_whole(box: object) -> TypeGuard[tuple[int, int, int, int]]:
    """Returns True for a box of integers."""
    return type(box) is tuple and len(box) == 4 and all(isinstance(side, int) for side in box)


def _is_within(box: object, size: tuple[int, int]) -> TypeGuard[tuple[float, float, float, float]]:
    """Returns True for a box of numbers that is not empty and lies in an image of that size."""
    if type(box) is not tuple or len(box) != 4:
        return False
    for side in box:
        if not isinstance(side, int | float) or type(side) is bool:
            return False
    inside = 0 <= box[0] <= size[0] >= box[2] and 0 <= box[1] <= size[1] >= box[3]
    return bool(inside and box[0] < box[2] - _THIN and box[1] < box[3] - _THIN)
