"""Steps of a recipe for torchvision's v2 transforms of a Picture, by the parameters that the transform itself
has drawn.

Each function returns None where torchvision's own code is to transform the image: for arguments that are not
plainly right, and for images of another mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from PIL import Image
from torchvision.transforms import v2
from torchvision.transforms.functional import InterpolationMode, pil_modes_mapping
from torchvision.transforms.v2.functional import _geometry as geometry

from fastload.composing import adjusting, one_step
from fastload.composing.picture import Picture
from fastload.composing.steps import are_sides, center_cropped, resized
from fastload.lazy.colours import Grey, agrees
from fastload.lazy.core_image import is_size
from fastload.lazy.functions import FACTOR_MOST
from fastload.lazy.steps import Crop, Transpose

Params: TypeAlias = dict[str, Any]
Step: TypeAlias = Callable[[Any, Picture, Params], Picture | None]
"""A transform's function: of the transform, the picture and make_params()."""
_ADJUSTMENTS = (
    ("brightness_factor", "adjust_brightness", FACTOR_MOST),
    ("contrast_factor", "adjust_contrast", FACTOR_MOST),
    ("saturation_factor", "adjust_saturation", FACTOR_MOST),
    ("hue_factor", "adjust_hue", 0.5),
)
"""Parameters of ColorJitter in the order of its numbers, torchvision's functions, and the largest factor."""
_MODES = {mode.value: mode for mode in InterpolationMode}


def _filter(of: Any) -> int | None:
    """Pillow's number of a transform's interpolation; None where torchvision's code is to look at it."""
    given = of.interpolation
    if of.antialias is False or type(given) not in (str, InterpolationMode):
        return None
    number = pil_modes_mapping.get(_MODES.get(given, given))
    return int(number) if isinstance(number, int) else None


def _random_resized_crop(of: Any, picture: Picture, params: Params) -> Picture | None:
    filter, size = _filter(of), of.size
    if filter is None or not are_sides(size, 2) or not is_size((size[1], size[0])):
        return None
    return resized(_cropped(picture, params), (size[1], size[0]), filter)


def _cropped(picture: Picture, params: Params) -> Picture:
    left, top = params["left"], params["top"]
    return picture.then(Crop((left, top, left + params["width"], top + params["height"])))


def _random_crop(of: Any, picture: Picture, params: Params) -> Picture | None:
    if params["needs_pad"]:
        return None
    return _cropped(picture, params) if params["needs_crop"] else picture


def _resize(of: Any, picture: Picture, params: Params) -> Picture | None:
    filter = _filter(of)
    if filter is None or of.max_size is not None or not are_sides(of.size, 1, 2):
        return None
    width, height = picture.recipe.size
    made = tuple(geometry._compute_resized_output_size((height, width), of.size, None)[::-1])
    return resized(picture, made, filter) if is_size(made) else None


def _center_crop(of: Any, picture: Picture, params: Params) -> Picture | None:
    return center_cropped(picture, of.size)


def _flip(method: Image.Transpose) -> Step:
    return lambda of, picture, params: picture.then(Transpose(int(method)))


def _random_grayscale(of: Any, picture: Picture, params: Params) -> Picture | None:
    if picture.recipe.mode != "RGB" or not agrees(Grey):
        return None
    return picture.then(Grey(), keeps_info=False)


def _color_jitter(of: Any, picture: Picture, params: Params) -> Picture | None:
    if picture.recipe.mode != "RGB":
        return None
    for number in params["fn_idx"].tolist():
        key, function, most = _ADJUSTMENTS[number]
        factor = params[key]
        if factor is None:
            continue
        if not (adjusting.is_factor(factor, most) and one_step.agrees(function)):
            return None
        step, keeps_info = adjusting.step_of(function, factor)
        picture = picture.then(step, keeps_info=keeps_info)
    return picture


STEPS: dict[type, Step] = {
    v2.RandomResizedCrop: _random_resized_crop,
    v2.Resize: _resize,
    v2.CenterCrop: _center_crop,
    v2.RandomCrop: _random_crop,
    v2.RandomHorizontalFlip: _flip(Image.Transpose.FLIP_LEFT_RIGHT),
    v2.RandomVerticalFlip: _flip(Image.Transpose.FLIP_TOP_BOTTOM),
    v2.RandomGrayscale: _random_grayscale,
    v2.ColorJitter: _color_jitter,
}
"""The functions by class of transform."""
