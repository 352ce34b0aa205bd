"""imread(): an image file, or a box of it, as an array."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from operator import index
from pathlib import Path
from typing import ParamSpec, TypeVar

import numpy as np
from PIL import Image

from fastload.common.images import open_image
from fastload.errors import ArgumentError, SampleError
from fastload.lazy import counts
from fastload.lazy.agreement import decoder_agrees
from fastload.lazy.compressed import CompressedImage
from fastload.lazy.pixels import Array, to_array
from fastload.lazy.recipe import Recipe
from fastload.lazy.sources import Given
from fastload.lazy.steps import Crop, Resize, Step, ToRgb

_SIDE_MOST = 65_535
"""Longest side of a result: a JPEG's."""
_P = ParamSpec("_P")
_T = TypeVar("_T")


def imread(
    path: str | os.PathLike[str], box: Sequence[int] | None = None, size: Sequence[int] | None = None
) -> Array:
    """Reads an image file, or a box of it, as Pillow's pixels in RGB. Of a JPEG only the box is decoded.

    Orientation tags are not applied.

    Args:
        path: the file.
        box: (left, top, right, bottom) in pixels; None: all of the image.
        size: (width, height), to which the box is resized by an antialiased bilinear filter; None: it is not.

    Returns:
        uint8 (height, width, 3), the caller's own.

    Raises:
        ArgumentError: the box does not lie in the image.
        SampleError: the file is damaged, or no image.
    """
    to = None if size is None else _integers("size", size, 2)
    if to is not None and not all(1 <= side <= _SIDE_MOST for side in to):
        raise ArgumentError(f"size {to}: give a width and a height of 1 to {_SIDE_MOST}")
    recipe = _named(path, _recipe_of, Path(path).read_bytes())
    width, height = recipe.size
    part = (0, 0, width, height) if box is None else _integers("box", box, 4)
    left, top, right, bottom = part
    if not (0 <= left < right <= width and 0 <= top < bottom <= height):
        raise ArgumentError(
            f"box {part} does not lie in {os.fspath(path)}, an image of {width} x {height}: give (left, top, "
            "right, bottom)"
        )
    recipe = _then(recipe, Crop((left, top, right, bottom)))
    if to is not None:
        recipe = _then(recipe, Resize((to[0], to[1]), int(Image.Resampling.BILINEAR), (0, 0, *recipe.size)))
    counts.straight()
    return np.require(to_array(_named(path, recipe.pixels)), requirements=["C", "W", "O"])


def _recipe_of(data: bytes) -> Recipe:
    """The recipe of a file in mode RGB, whose pixels are made now unless the own decoder knows it."""
    for mode in ("RGB", "L"):
        known = CompressedImage.known(data, mode) if decoder_agrees() else None
        if known is not None:
            recipe = Recipe.of_file(CompressedImage(data, known[:2], mode, end=known.end))
            return recipe if mode == "RGB" else _then(recipe, ToRgb())
    with io.BytesIO(data) as file:
        image = open_image(file)
        return Recipe(Given(np.array(image if image.mode == "RGB" else image.convert("RGB"))))


def _then(recipe: Recipe, step: Step) -> Recipe:
    longer = recipe.then(step)
    assert longer is not None  # of three steps
    return longer


def _integers(name: str, given: Sequence[int], count: int) -> tuple[int, ...]:
    try:
        numbers = tuple(index(each) for each in given)
    except TypeError:
        numbers = ()
    if len(numbers) != count:
        raise ArgumentError(f"{name}={given!r}: give {count} integers")
    return numbers


def _named(path: str | os.PathLike[str], call: Callable[_P, _T], *args: _P.args, **options: _P.kwargs) -> _T:
    """The result of a call that decodes a file; its exceptions name the file."""
    try:
        return call(*args, **options)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise SampleError(
            f"{os.fspath(path)} cannot be decoded: {reason}. Leave the file out, or put a whole one in its "
            "place.",
            reason=reason,
        ) from error
