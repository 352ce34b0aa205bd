"""timm's own transforms in a Compose of torchvision's, by its functions and with its draws."""

from __future__ import annotations

import random
from typing import Any

from timm.data import transforms as timm

from fastload.common.originals import OwnCode
from fastload.composing import compose
from fastload.composing.picture import Picture
from fastload.composing.steps import are_sides, filter_of, resized
from fastload.lazy.core_image import is_size
from fastload.lazy.steps import Crop

_OWN = OwnCode(
    "timm.data.transforms:RandomResizedCropAndInterpolation",
    "timm.data.transforms:MaybeToTensor",
    ("torchvision.transforms.functional", ("get_image_size",)),
)


def exchange() -> None:
    """Tells Compose of timm's classes; its transforms are imported."""
    compose.RUNS_OF_OTHERS[timm.RandomResizedCropAndInterpolation] = _random_resized_crop
    compose.TO_TENSORS[timm.MaybeToTensor] = _is_own


def _is_own() -> bool:
    return not _OWN.replaced()


def _random_resized_crop(of: Any, picture: Picture) -> Picture | None:
    size, modes = of.size, of.interpolation
    several = isinstance(modes, tuple | list)
    filters = {mode: filter_of(mode) for mode in (modes if several else [modes])}
    if not filters or None in filters.values() or "get_params" in of.__dict__ or not _is_own():
        return None
    if not are_sides(size, 2) or not is_size((size[1], size[0])):
        return None
    top, left, height, width = of.get_params(picture.face(), of.scale, of.ratio)
    filter = filters[random.choice(modes) if several else modes]
    assert filter is not None
    return resized(picture.then(Crop((left, top, left + width, top + height))), (size[1], size[0]), filter)
