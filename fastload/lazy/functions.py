"""Functions of Pillow that lazy images pass through: Image.new, frombuffer, in which fromarray ends, blend
and merge, by stand-ins in the module.

NOTE [ functions: what stands in the module PIL.Image ]
A method of a lazy image is met in its class. These four are functions, and Pillow's other modules call them
by `Image.blend(...)`: so they are replaced in the module, as long as images are opened lazily, by stand-ins
that count as Pillow's own (NOTE [ originals: how replaced code is found ]).
1. A stand-in does something of its own only where that is plainly what Pillow does: lazy images of one mode
   and size. All else it hands to Pillow's function, with the exceptions that this raises.
2. A program that has taken Pillow's function out of the module before calls that one, and gets pixels.
3. What is composed is recognised by what it is. A blend from an image of one colour is that of ImageEnhance's
   Brightness and Contrast; a blend of an image with its own light is its Color; from the image, smoothed, its
   Sharpness. A merge of H, S and V is a turned hue if S and V are an image's own, and H is its own with one
   number added to all of its pixels.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
from PIL import Image

from fastload._native import core
from fastload.common.originals import original, stand_in
from fastload.lazy import images, pillow_code
from fastload.lazy.colours import (
    Band,
    Blend,
    BlendOver,
    Saturate,
    Sharpen,
    Smooth,
    ToHsv,
    ToLight,
    agrees,
)
from fastload.lazy.core_image import LazyCore, is_size
from fastload.lazy.pixels import Array, to_array
from fastload.lazy.recipe import Recipe
from fastload.lazy.sources import FilePart, Given, Plain
from fastload.lazy.steps import Step, ToRgb

_Function: TypeAlias = Callable[..., Any]
FACTOR_MOST = 1e30
"""Blends by larger factors, which Pillow takes as 32-bit floats, are its business."""


def _new(mode: object, size: object, colour: object = 0) -> LazyCore | None:
    """An image of one colour as a recipe; None where that is not plainly right."""
    if mode not in ("RGB", "L") or not is_size(size):
        return None
    if not (
        colour is None
        or type(colour) is int
        or (type(colour) is tuple and all(type(each) is int for each in colour))
    ):
        return None
    try:
        return LazyCore(Recipe(Plain.of(str(mode), size, 0 if colour is None else colour)))
    except Exception:
        return None


def _from_buffer(mode: object, size: object, data: object, further: tuple[object, ...]) -> LazyCore | None:
    """An image of raw colours, three bytes each, as a recipe; None for any other."""
    if mode != "RGB" or not is_size(size) or further != ("raw", "RGB", 0, 1):
        return None
    if type(data) is not bytes and not (
        type(data) is np.ndarray and data.dtype == np.uint8 and data.flags.c_contiguous
    ):
        return None
    pixels = np.frombuffer(data, np.uint8)
    width, height = size
    if pixels.size != width * height * 3:
        return None
    return LazyCore(Recipe(Given(pixels.reshape(height, width, 3).copy())))


def _blend(first: LazyCore, second: LazyCore, factor: float) -> LazyCore | None:
    """Two images, blended; None where that is not plainly right."""
    one, two = first.recipe(), second.recipe()
    if one is None or two is None or (one.mode, one.size) != (two.mode, two.size):
        return None
    if not isinstance(factor, int | float) or not abs(factor) < FACTOR_MOST or one.mode not in ("RGB", "L"):
        return None
    return LazyCore.of(two.then(_step(one, two, float(factor))))


def _step(one: Recipe, two: Recipe, factor: float) -> Step:
    """The step that blends from one image to another."""
    if isinstance(one.source, Plain) and not one.steps and one.source.level is not None:
        return Blend(one.source.ink, factor)
    added = _added(one, two)
    if len(added) == 2 and isinstance(added[0], ToLight) and isinstance(added[1], ToRgb):
        return Saturate(factor)
    if len(added) == 1 and isinstance(added[0], Smooth):
        return Sharpen(factor)
    return BlendOver(one, factor)


def _added(longer: Recipe, shorter: Recipe) -> tuple[Step, ...]:
    """The steps by which one recipe goes on from another; () if it does not."""
    return longer.steps[len(shorter.steps) :] if _begins_with(longer, shorter) else ()


def _begins_with(longer: Recipe, shorter: Recipe) -> bool:
    """Returns True if a recipe has all of another's steps, the same objects, and then perhaps more."""
    one, two = longer.source, shorter.source
    same = one is two or (isinstance(one, FilePart) and isinstance(two, FilePart) and one == two)
    return (
        same
        and len(longer.steps) >= len(shorter.steps)
        and all(map(operator.is_, longer.steps, shorter.steps))
    )


def _merge(mode: object, bands: Sequence[Any]) -> LazyCore | None:
    """A turned hue; None for any other merge."""
    if mode != "HSV" or type(bands) not in (tuple, list) or len(bands) != 3:
        return None
    hue, base, other = bands[0], _base(bands[1], "S"), _base(bands[2], "V")
    if base is None or other is None or not _same(base, other) or not isinstance(hue, Image.Image):
        return None
    if (hue.mode, hue.size) != ("L", base.size) or not agrees(Band):
        return None
    own = core.colour_band(to_array(base.pixels()), "H")
    shift = _difference(_pixels(hue), own)
    return LazyCore.of(None if shift is None else base.then(ToHsv(shift)))


def _base(image: object, letter: str) -> Recipe | None:
    """The recipe of the image of which this is a band of convert("HSV")."""
    held = images.core_of(image)
    recipe = None if held is None else held.recipe()
    last = recipe.steps[-1] if recipe is not None and recipe.steps else None
    if recipe is None or not isinstance(last, Band) or last.band != letter:
        return None
    return Recipe(recipe.source, recipe.steps[:-1])


def _same(one: Recipe, two: Recipe) -> bool:
    return len(one.steps) == len(two.steps) and _begins_with(one, two)


def _pixels(image: Image.Image) -> Array:
    held = images.core_of(image)
    return to_array(image.im) if held is None else held.array()


def _difference(one: Array, two: Array) -> int | None:
    """The number that is added, modulo 256, to all pixels of `two` to give `one`; None: there is none."""
    shift = (int(one[0, 0]) - int(two[0, 0])) & 255
    return shift if np.array_equal(one, two + np.uint8(shift)) else None


def _met_new(own: _Function) -> _Function:
    @functools.wraps(own)
    def new(mode: Any, size: Any, color: Any = 0) -> Any:
        made = _new(mode, size, color) if _here and not pillow_code.replaced() else None
        if made is None:
            return images.canvas(own(mode, size, color))
        return images.image_of(Image.Image(), made)

    return new


def _met_frombuffer(own: _Function) -> _Function:
    @functools.wraps(own)
    def frombuffer(mode: Any, size: Any, data: Any, decoder_name: Any = "raw", *args: Any) -> Any:
        known = _here and not pillow_code.replaced()
        made = _from_buffer(mode, size, data, (decoder_name, *args)) if known else None
        if made is None:
            return own(mode, size, data, decoder_name, *args)
        return images.image_of(Image.Image(), made)

    return frombuffer


def _met_blend(own: _Function) -> _Function:
    @functools.wraps(own)
    def blend(im1: Any, im2: Any, alpha: Any) -> Any:
        first, second = images.core_of(im1), images.core_of(im2)
        made = None if first is None or second is None else _blend(first, second, alpha)
        return own(im1, im2, alpha) if made is None else images.image_of(im1, made)

    return blend


def _met_merge(own: _Function) -> _Function:
    @functools.wraps(own)
    def merge(mode: Any, bands: Any) -> Any:
        made = None if pillow_code.replaced() else _merge(mode, bands)
        return own(mode, bands) if made is None else images.image_of(bands[0], made)

    return merge


_MET = {"new": _met_new, "frombuffer": _met_frombuffer, "blend": _met_blend, "merge": _met_merge}
_here = False
"""True while images are opened lazily."""
_own: dict[str, _Function] = {}
_ours: dict[str, _Function] = {}


def put() -> None:
    """Puts the stand-ins into PIL.Image, each unless a program has put something there."""
    global _here
    _here = True
    missing = [name for name in _MET if _is_pillows(name)]
    if not missing or pillow_code.replaced():
        return
    for name in missing:
        held: _Function = vars(Image)[name]
        if _own.get(name) is not held:
            _own[name], _ours[name] = held, _MET[name](held)
            stand_in(_ours[name], held)
        setattr(Image, name, _ours[name])


def _is_pillows(name: str) -> bool:
    held = vars(Image)[name]
    return held is not _ours.get(name) and original(held) is held


@contextmanager
def aside() -> Iterator[None]:
    """Makes Image.new and frombuffer Pillow's own in a `with` block, for what is no program's."""
    global _here
    before, _here = _here, False
    try:
        yield
    finally:
        _here = before


def take_away() -> None:
    """Puts Pillow's own functions back, where the stand-ins still are."""
    global _here
    _here = False
    for name, ours in _ours.items():
        if vars(Image)[name] is ours:
            setattr(Image, name, _own[name])
