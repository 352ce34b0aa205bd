"""torchvision's v2.Compose of a sample with a lazy image: the sample is taken apart once, and its image ends
in one tensor.

NOTE [ compose_v2: samples taken apart once ]
Each of torchvision's v2 transforms flattens its inputs, transforms those that it has to, and puts them
together again; the last ones make a tensor of bytes, one of floats, and normalise that. In a worker
Compose.forward is exchanged, as NOTE [ compose: whole transforms of a lazy image ] has it for the first
version.
1. A transform whose forward() is torchvision's runs by its own methods, which a subclass may have overridden,
   on the flat values. Any other is called as it is, with the sample put together again.
2. Draws are made by the transform's own make_params, on all flat values. Of the one lazy image of a sample
   the steps that are known (steps_v2.py) make a recipe, and an image where other code asks for it; all other
   values are transformed by torchvision.
3. The same container is returned as long as no transform has made another.
4. PILToTensor or ToImage with ToDtype(torch.float32, scale=True), and with Normalize behind them, are a table
   of 256 floats for each channel, which torchvision's functions make. So it is for one lazy image, where
   torchvision would convert no other value of the sample.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils._pytree import tree_flatten, tree_unflatten
from torchvision import tv_tensors
from torchvision.transforms import v2
from torchvision.transforms.v2 import _transform as base
from torchvision.transforms.v2.functional import _misc as kernels

from fastload.common import originals
from fastload.common.originals import OwnCode
from fastload.composing.modules import MODULE_CODE, is_plain, is_usual
from fastload.composing.picture import Picture, count_call
from fastload.composing.steps_v2 import STEPS
from fastload.composing.tables import numbers_of, table
from fastload.lazy import counts, images

_V2 = "torchvision.transforms.v2"
_OWN = OwnCode(
    (f"{_V2}._transform:Transform", ("forward", "_needs_transform_list", "_call_kernel", "make_params")),
    (f"{_V2}._transform:_RandomApplyTransform", ("forward",)),
    *(
        (f"{_V2}.{place}", ("forward", "transform", "check_inputs", "make_params", "_generate_value"))
        for place in (
            *("_container:Compose", "_container:RandomApply", "_type_conversion:PILToTensor"),
            *("_type_conversion:ToImage", "_misc:ToDtype", "_misc:Normalize", "_color:ColorJitter"),
            *("_color:RandomGrayscale", "_geometry:RandomResizedCrop", "_geometry:RandomCrop"),
            *("_geometry:Resize", "_geometry:CenterCrop", "_geometry:RandomHorizontalFlip"),
            "_geometry:RandomVerticalFlip",
        )
    ),
    (f"{_V2}._utils", ("check_type", "has_any", "query_size", "query_chw")),
    (
        f"{_V2}.functional._geometry",
        (
            *("horizontal_flip", "_horizontal_flip_image_pil", "vertical_flip", "_vertical_flip_image_pil"),
            *("resize", "__resize_image_pil_dispatch", "_resize_image_pil", "_check_interpolation"),
            *("_compute_resized_output_size", "resized_crop", "_resized_crop_image_pil_dispatch"),
            *("_resized_crop_image_pil", "crop", "center_crop", "_center_crop_image_pil"),
            *("_center_crop_compute_crop_anchor", "_center_crop_parse_output_size"),
        ),
    ),
    (
        f"{_V2}.functional._color",
        (
            *("rgb_to_grayscale", "_rgb_to_grayscale_image_pil", "adjust_brightness", "adjust_contrast"),
            *("_adjust_brightness_image_pil", "adjust_saturation", "adjust_hue"),
        ),
    ),
    ("torchvision.transforms._functional_pil", ("crop", "hflip", "vflip", "to_grayscale")),
    (f"{_V2}.functional._misc", ("to_dtype", "to_dtype_image", "normalize", "normalize_image")),
    (f"{_V2}.functional._type_conversion", ("to_image",)),
    (f"{_V2}.functional._utils", ("_get_kernel", "is_pure_tensor")),
    ("torchvision.transforms.functional", ("pil_to_tensor",)),
    MODULE_CODE,
)
_FORWARD = base.Transform.forward
_RANDOM_FORWARD = base._RandomApplyTransform.forward
INSIDE_OF_OTHERS: dict[type, Callable[[Any], Sequence[Any]]] = {}
"""The transforms inside one of another library's class that calls them alone, none if it is not its own."""
_BESIDE = (tv_tensors.BoundingBoxes, tv_tensors.Mask, getattr(tv_tensors, "KeyPoints", tv_tensors.Mask))
"""Classes of torchvision's tensors that ToDtype and Normalize leave as they are."""


def exchange() -> None:
    """Exchanges Compose.forward in this process; torchvision's v2 transforms are imported."""
    if not _OWN.replaced() and hasattr(base.Transform, "make_params"):
        originals.exchange(v2.Compose, "forward", _met)


def _met(own: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(own)
    def forward(self: Any, *inputs: Any) -> object:
        if type(self) is v2.Compose and self.transforms and _has_lazy(inputs) and is_usual(_OWN):
            return _run_all(self.transforms, inputs)
        return own(self, *inputs)

    return forward


def _has_lazy(inputs: Sequence[Any]) -> bool:
    """Returns True if a lazy image is one of the inputs, or in one of them."""
    for value in inputs:
        held = value.values() if type(value) is dict else value if type(value) in (tuple, list) else (value,)
        if any(type(each) in images.KINDS for each in held):
            return True
    return False


class _Sample:
    """The inputs of a transform, and the flat values that they are made of."""

    def __init__(self, inputs: tuple[Any, ...]) -> None:
        self._whole = inputs if len(inputs) > 1 else inputs[0]
        self._flat, self._spec = tree_flatten(self._whole)
        self._changed = False
        at = [number for number, value in enumerate(self._flat) if isinstance(value, Image.Image)]
        self._at = at[0] if len(at) == 1 else None
        self._picture: Picture | None = None  # in the place of the one image

    @property
    def flat(self) -> list[Any]:
        """The flat values."""
        if self._picture is not None and self._at is not None:
            self._flat = self._with(self._picture.image())
            self._picture = None
        return self._flat

    def set(self, flat: list[Any]) -> None:
        """Puts other values in the place of the flat ones."""
        self._flat, self._picture, self._changed = flat, None, True

    def picture(self) -> tuple[int, Picture] | None:
        """The place of the one image of the sample, and its picture; None if that is not lazy."""
        if self._at is None:
            return None
        found = self._picture or Picture.of(self._flat[self._at])
        return None if found is None else (self._at, found)

    def faced(self, picture: Picture) -> list[Any]:
        """The flat values with a picture's face in the place of the one image."""
        return self._with(picture.face())

    def draw(self, flat: list[Any], picture: Picture) -> None:
        """Puts other values in the place of the flat ones, and a picture in that of the image."""
        self._flat, self._picture, self._changed = flat, picture, True

    def _with(self, image: Image.Image) -> list[Any]:
        flat = list(self._flat)
        assert self._at is not None
        flat[self._at] = image
        return flat

    def whole(self) -> Any:
        """The inputs with the flat values in their places: the same object, if none was set."""
        return tree_unflatten(self.flat, self._spec) if self._changed else self._whole


def _run_all(transforms: Sequence[Any], inputs: tuple[Any, ...]) -> Any:
    """The value that Compose.forward returns."""
    several, left, value, sample = len(inputs) > 1, list(transforms), None, None
    while left:
        if not several and (inside := _inside(left[0])):
            left[:1] = inside
            continue
        forward = getattr(type(left[0]), "forward", None)
        if forward in (_FORWARD, _RANDOM_FORWARD) and is_plain(left[0]):
            sample = sample or _Sample(inputs)
            count = _to_floats(left, sample)
            if count or _run(left[0], sample):
                del left[: count or 1]
                continue
            value = sample.whole()
        else:
            inputs = inputs if sample is None else _inputs(sample.whole(), several)
            value = _called(left[0], inputs)
        inputs, sample = _inputs(value, several), None
        del left[0]
    return value if sample is None else sample.whole()


def _inside(transform: Any) -> Sequence[Any]:
    """The transforms of one that does nothing but call them one after the other; of any other, none."""
    inside: Sequence[Any] = ()
    if type(transform) is v2.Compose and is_plain(transform):
        inside = transform.transforms
    elif type(transform) in INSIDE_OF_OTHERS:
        inside = INSIDE_OF_OTHERS[type(transform)](transform)
    return inside


def _inputs(value: Any, several: bool) -> tuple[Any, ...]:
    return tuple(value) if several else (value,)


def _called(transform: Any, inputs: tuple[Any, ...]) -> Any:
    applies = type(transform) is v2.RandomApply and is_plain(transform)
    if applies and transform.transforms and _has_lazy(inputs):
        if torch.rand(1) >= transform.p:
            return inputs if len(inputs) > 1 else inputs[0]
        return _run_all(transform.transforms, inputs)
    counted = type(transform) is not v2.Compose and _has_lazy(inputs)
    value = transform(*inputs)
    if counted:
        count_call(transform, tree_flatten(value)[0])
    return value


def _run(transform: Any, sample: _Sample) -> bool:
    """Transforms a sample as forward() does. False: it is to be taken apart again, since the transform has
    made other things than tensors and images."""
    found = sample.picture()
    if found is not None and type(transform) in STEPS and found[1].has_room:
        return _draw(transform, sample, *found)
    flat = sample.flat
    transform.check_inputs(flat)
    if type(transform).forward is _RANDOM_FORWARD and torch.rand(1) >= transform.p:
        return True
    needed = transform._needs_transform_list(flat)
    params = transform.make_params([value for value, needs in zip(flat, needed, strict=True) if needs])
    made = [
        transform.transform(value, params) if needs else value
        for value, needs in zip(flat, needed, strict=True)
    ]
    sample.set(made)
    if found is not None:
        count_call(transform, made)
    return all(
        isinstance(value, torch.Tensor | Image.Image) or not needs
        for value, needs in zip(made, needed, strict=True)
    )


def _draw(transform: Any, sample: _Sample, at: int, picture: Picture) -> bool:
    """Transforms a sample as _run() does, the one image of it by steps of its picture."""
    name = type(transform).__name__
    if type(transform).forward is _RANDOM_FORWARD and torch.rand(1) >= transform.p:
        counts.composed(name)
        return True
    flat = sample.faced(picture)
    needed = transform._needs_transform_list(flat)
    params = transform.make_params([value for value, needs in zip(flat, needed, strict=True) if needs])
    made = STEPS[type(transform)](transform, picture, params)
    if made is None:
        flat[at] = transform.transform(picture.image(), params)
        count_call(transform, flat[at : at + 1])
    else:
        counts.composed(name)
    for number, value in enumerate(flat):
        if needed[number] and number != at:
            flat[number] = transform.transform(value, params)
    if made is None:
        sample.set(flat)
    else:
        sample.draw(flat, made)
    return True


def _to_floats(transforms: Sequence[Any], sample: _Sample) -> int:
    """Makes a tensor of the image by the first transforms, and returns their number; 0: they make none, or
    torchvision's own code is to do it."""
    kinds = [type(each) for each in transforms[:2]]
    if kinds[0] not in (v2.PILToTensor, v2.ToImage) or kinds[1:] != [v2.ToDtype]:
        return 0
    to_floats = transforms[1]
    if not (to_floats.dtype is torch.float32 and to_floats.scale is True and is_plain(to_floats)):
        return 0
    found = sample.picture()
    if found is None or not _is_alone(sample.faced(found[1]), kinds[0], *found):
        return 0
    at, picture = found
    numbers = numbers_of(transforms[2:], v2.Normalize)
    floats: torch.Tensor = picture.floats(table(_converted, kernels.normalize_image, numbers), "HWC")
    if kinds[0] is v2.ToImage:
        floats = floats.as_subclass(tv_tensors.Image)
    counts.composed(kinds[0].__name__)
    flat = sample.faced(picture)
    flat[at] = floats
    sample.set(flat)
    return 2 if numbers is None else 3


def _is_alone(flat: Sequence[Any], kind: type, at: int, picture: Picture) -> bool:
    """Returns True if no other value of a sample would be converted, or in the image's place."""
    if picture.recipe.mode != "RGB" or 1 in picture.recipe.size:
        return False
    for number, value in enumerate(flat):
        if isinstance(value, np.ndarray):
            return False
        if isinstance(value, torch.Tensor) and type(value) not in _BESIDE:
            if isinstance(value, tv_tensors.TVTensor) or (kind is v2.PILToTensor and number < at):
                return False
    return True


def _converted(image: torch.Tensor) -> torch.Tensor:
    made: torch.Tensor = kernels.to_dtype_image(image, torch.float32, scale=True)
    return made
