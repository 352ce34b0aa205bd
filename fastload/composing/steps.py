"""Runs of torchvision's transforms of the first version on a Picture: their draws, by torchvision's own
functions and torch's, in its order, and then steps of a recipe.

Each function returns None, before it draws anything, where torchvision's own code is to run: for arguments
that are not plainly right, and for images of another mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeGuard

import torch
from PIL import Image
from torchvision.transforms import functional as F
from torchvision.transforms import transforms as v1

from fastload.composing import adjusting, one_step
from fastload.composing.picture import Picture
from fastload.lazy.colours import Grey, agrees
from fastload.lazy.core_image import is_size
from fastload.lazy.functions import FACTOR_MOST
from fastload.lazy.steps import Crop, Resize, Size, Transpose

Run: TypeAlias = Callable[[Any, Picture], Picture | None]
"""A transform's function."""
_JITTERS = ("adjust_brightness", "adjust_contrast", "adjust_saturation", "adjust_hue")
"""Functions that ColorJitter numbers."""


def _random_resized_crop(of: Any, picture: Picture) -> Picture | None:
    filter, size = _filter(of), of.size
    if filter is None or not are_sides(size, 2) or not is_size((size[1], size[0])):
        return None
    top, left, height, width = of.get_params(picture.face(), of.scale, of.ratio)
    cropped = picture.then(Crop((left, top, left + width, top + height)))
    return resized(cropped, (size[1], size[0]), filter)


def _resize(of: Any, picture: Picture) -> Picture | None:
    filter, size = _filter(of), of.size
    if filter is None or of.max_size is not None:
        return None
    if type(size) is int:
        size = [size]
    if not are_sides(size, 1, 2):
        return None
    width, height = picture.recipe.size
    made = tuple(F._compute_resized_output_size((height, width), size, None)[::-1])
    return resized(picture, made, filter) if is_size(made) else None


def resized(picture: Picture, size: Size, filter: int) -> Picture:
    before = picture.recipe.size
    return picture if before == size else picture.then(Resize(size, filter, (0, 0, *before)))


def are_sides(value: object, *counts: int) -> TypeGuard[Sequence[int]]:
    """Returns True for a list or tuple of so many integers."""
    return isinstance(value, tuple | list) and len(value) in counts and {*map(type, value)} == {int}


def _filter(of: Any) -> int | None:
    return None if of.antialias is False else filter_of(of.interpolation)


def filter_of(mode: object) -> int | None:
    """Pillow's number of an interpolation mode; None where torchvision's code is to look at it."""
    number = F.pil_modes_mapping.get(mode) if type(mode) is v1.InterpolationMode else None
    return int(number) if isinstance(number, int) else None


def _center_crop(of: Any, picture: Picture) -> Picture | None:
    return center_cropped(picture, of.size)


def center_cropped(picture: Picture, size: object) -> Picture | None:
    """The middle of a picture, (height, width) in size; None for what is not plainly within it."""
    if not are_sides(size, 2):
        return None
    (width, height), (down, across) = picture.recipe.size, size
    if not (0 < across <= width and 0 < down <= height):
        return None
    top, left = round((height - down) / 2.0), round((width - across) / 2.0)
    return picture.then(Crop((left, top, left + across, top + down)))


def _random_crop(of: Any, picture: Picture) -> Picture | None:
    size, (width, height) = of.size, picture.recipe.size
    if of.padding is not None or not are_sides(size, 2) or not is_size((size[0], size[1])):
        return None
    if size[0] > height or size[1] > width:
        return None
    top, left, down, across = of.get_params(picture.face(), size)
    return picture.then(Crop((left, top, left + across, top + down)))


def _flip(method: Image.Transpose) -> Run:
    def run(of: Any, picture: Picture) -> Picture:
        return picture.then(Transpose(int(method))) if torch.rand(1) < of.p else picture

    return run


def _random_grayscale(of: Any, picture: Picture) -> Picture | None:
    if picture.recipe.mode != "RGB" or not agrees(Grey):
        return None
    return picture.then(Grey(), keeps_info=False) if torch.rand(1) < of.p else picture


def _color_jitter(of: Any, picture: Picture) -> Picture | None:
    ranges = of.brightness, of.contrast, of.saturation, of.hue
    if picture.recipe.mode != "RGB" or not all(
        map(_is_range, ranges, (FACTOR_MOST, FACTOR_MOST, FACTOR_MOST, 0.5))
    ):
        return None
    if not all(map(one_step.agrees, _JITTERS)):
        return None
    order, *factors = of.get_params(*ranges)
    for number in order.tolist():
        if factors[number] is not None:
            step, keeps_info = adjusting.step_of(_JITTERS[number], factors[number])
            picture = picture.then(step, keeps_info=keeps_info)
    return picture


def _is_range(value: object, most: float) -> bool:
    """Returns True for a range (from, to) of finite floats, or None."""
    if value is None:
        return True
    return isinstance(value, tuple | list) and all(adjusting.is_factor(each, most) for each in value)


def run_of() -> dict[type, Run]:
    """The functions by class of transform."""
    return {
        v1.RandomResizedCrop: _random_resized_crop,
        v1.Resize: _resize,
        v1.CenterCrop: _center_crop,
        v1.RandomCrop: _random_crop,
        v1.RandomHorizontalFlip: _flip(Image.Transpose.FLIP_LEFT_RIGHT),
        v1.RandomVerticalFlip: _flip(Image.Transpose.FLIP_TOP_BOTTOM),
        v1.RandomGrayscale: _random_grayscale,
        v1.ColorJitter: _color_jitter,
    }
