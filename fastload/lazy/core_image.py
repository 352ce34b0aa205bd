"""LazyCore: the stand-in for a Pillow core image whose pixels are a recipe."""

from __future__ import annotations

import threading
from typing import Any, TypeGuard

from PIL import Image

from fastload.lazy.pixels import Array, Core, to_array
from fastload.lazy.recipe import Recipe
from fastload.lazy.steps import Crop, Reduce, Resize, Step, ToRgb, Transpose


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

    def __init__(self, recipe: Recipe) -> None:
        self._recipe: Recipe | None = recipe
        self._array: Array | None = None
        self._real: Core = None
        self._lock = threading.Lock()
        self.mode, self.size, self.readonly = recipe.mode, recipe.size, 0

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

    def _then(self, step: Step) -> LazyCore | None:
        recipe = self._recipe
        following = None if recipe is None else recipe.then(step)
        return None if following is None else LazyCore(following)

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
        if _is_size(size) and isinstance(filter, int) and (box is None or _is_within(box, self.size)):
            made = self._then(Resize(size, int(filter), (0, 0, *self.size) if box is None else box))
        return self.real().resize(size, filter, box) if made is None else made

    def reduce(self, factor: object, box: object) -> LazyCore | Core:
        """As ImagingCore.reduce."""
        made = None
        if _is_size(factor) and _is_within(box, self.size) and _is_whole(box):
            made = self._then(Reduce(factor, box))
        return self.real().reduce(factor, box) if made is None else made

    def transpose(self, method: object) -> LazyCore | Core:
        """As ImagingCore.transpose."""
        made = self._then(Transpose(int(method))) if isinstance(method, int) and 0 <= method <= 6 else None
        return self.real().transpose(method) if made is None else made

    def convert(self, mode: object, *dither: object) -> LazyCore | Core:
        """As ImagingCore.convert."""
        plain = (
            type(mode) is str
            and mode == "RGB"
            and all(type(each) is Image.Dither for each in dither[:1])
            and not dither[1:]
        )
        made = self._then(ToRgb()) if plain and self.mode == "L" else None
        return self.real().convert(mode, *dither) if made is None else made

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real(), name)


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


def _is_size(value: object) -> TypeGuard[tuple[int, int]]:
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
