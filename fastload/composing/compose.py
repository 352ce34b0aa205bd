"""torchvision's Compose of a lazy image: its transforms are run on one recipe, with torchvision's draws, and
end in one tensor.

NOTE [ compose: whole transforms of a lazy image ]
torchvision's transforms make an image object for each step, by several functions of torchvision's and
Pillow's. In a worker Compose.__call__ is exchanged, so that this is met in anybody's wrapper; what is
recognised is the call, with a lazy image.
1. Transforms are recognised by their class and its code, one by one, when they are called: a subclass, an
   object with hooks or with a method of its own, or a class whose code a program has replaced, is called as
   it is, with an image, and the recipe goes on from what it returns if that is lazy. So do all transforms
   that are not known.
2. Draws are made by torchvision's own get_params and torch's own functions, in torchvision's order: the
   generators' states are the same, whatever generator it is.
3. Attributes are read at each call: a program may change them.
4. ToTensor, or PILToTensor and ConvertImageDtype, with Normalize behind them, are a table of 256 floats for
   each channel, made by torchvision's own functions, and the pixels become floats by it as they are
   made. Strides are those of torchvision's tensor.
5. Where torch is watched by a mode, or a program has replaced one of the functions that this stands in for,
   torchvision's own Compose runs.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torchvision.transforms import _functional_tensor as tensors
from torchvision.transforms import transforms as v1

from fastload.common import originals
from fastload.common.originals import OwnCode
from fastload.composing import steps
from fastload.composing.modules import MODULE_CODE, is_plain, is_usual
from fastload.composing.picture import Picture, count_call
from fastload.composing.tables import numbers_of, table
from fastload.lazy import counts, images
from fastload.lazy.pixels import Floats

MODULE = "torchvision.transforms.transforms"
_RUNS = steps.run_of()
_MODULES = (v1.RandomApply, *_RUNS, v1.ConvertImageDtype, v1.Normalize)
"""Classes of torch's modules that are known."""
_OTHERS = (v1.Compose, v1.RandomOrder, v1.RandomChoice, v1.ToTensor, v1.PILToTensor)
_OWN = OwnCode(
    *(f"{MODULE}:{kind.__name__}" for kind in (*_MODULES, *_OTHERS)),
    (
        "torchvision.transforms.functional",
        (
            *("get_dimensions", "resized_crop", "crop", "resize", "_compute_resized_output_size"),
            *("center_crop", "hflip", "vflip", "rgb_to_grayscale", "adjust_brightness", "adjust_contrast"),
            *("adjust_saturation", "adjust_hue", "to_tensor", "pil_to_tensor", "convert_image_dtype"),
            *("normalize", "_is_numpy", "_is_numpy_image"),
        ),
    ),
    (
        "torchvision.transforms._functional_pil",
        ("get_dimensions", "crop", "resize", "hflip", "vflip", "to_grayscale", "_is_pil_image"),
    ),
    ("torchvision.transforms._functional_tensor", ("convert_image_dtype", "normalize", "_max_value")),
    MODULE_CODE,
)
RUNS_OF_OTHERS: dict[type, steps.Run] = {}
"""Functions of other libraries' classes, which find out themselves whether these are their own."""
TO_TENSORS: dict[type, Callable[[], bool]] = {v1.ToTensor: lambda: True}
"""Classes that do to an image what ToTensor does, while their function returns True."""


def exchange() -> None:
    """Exchanges Compose.__call__ in this process; torchvision's transforms are imported."""
    if not _OWN.replaced():
        originals.exchange(v1.Compose, "__call__", _met)


def _met(own: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(own)
    def call(self: Any, img: Any) -> object:
        if type(img) in images.KINDS and type(self) is v1.Compose and is_usual(_OWN):
            return _value(_run_all(self.transforms, img))
        return own(self, img)

    return call


def _value(value: object) -> object:
    """The value as code outside of this sees it: an image for a Picture."""
    return value.image() if type(value) is Picture else value


def _run_all(transforms: Iterable[Any], value: object) -> object:
    """A value after transforms, one after the other: of a Picture another one, or a tensor."""
    left = list(transforms)
    while left:
        picture = value if type(value) is Picture else Picture.of(value)
        if picture is None or not picture.has_room:
            value = left.pop(0)(_value(value))
            continue
        count, floats = _floats(left, picture)
        value = _run(left[0], picture) if floats is None else _tensor(picture, *floats)
        del left[:count]
    return value


def _run(transform: Any, picture: Picture) -> object:
    """The value after one transform."""
    kind = type(transform)
    run = RUNS_OF_OTHERS.get(kind) or (_RUNS.get(kind) if is_plain(transform) else None)
    made = None if run is None else run(transform, picture)
    if made is not None:
        counts.composed(kind.__name__)
        return made
    if kind is v1.RandomApply and is_plain(transform):
        return picture if transform.p < torch.rand(1) else _run_all(transform.transforms, picture)
    elif kind is v1.Compose:
        return _run_all(transform.transforms, picture)
    elif kind is v1.RandomChoice:
        return _run_all(random.choices(transform.transforms, weights=transform.p), picture)
    elif kind is v1.RandomOrder:
        order = list(range(len(transform.transforms)))
        random.shuffle(order)
        return _run_all([transform.transforms[each] for each in order], picture)
    value = transform(picture.image())
    count_call(transform, (value,))
    return value


def _floats(transforms: Sequence[Any], picture: Picture) -> tuple[int, tuple[Floats, str] | None]:
    """The table and the layout of the tensor that the first transforms make of a picture, and the number of
    these; 1 and None: the first makes none, or one with strides of its own."""
    if picture.recipe.mode != "RGB" or 1 in picture.recipe.size:
        return 1, None
    kinds = [type(each) for each in transforms[:2]]
    if kinds[0] in TO_TENSORS and TO_TENSORS[kinds[0]]():
        count, layout = 1, "CHW"
    elif kinds == [v1.PILToTensor, v1.ConvertImageDtype] and _is_to_floats(transforms[1]):
        count, layout = 2, "HWC"
    else:
        return 1, None
    numbers = numbers_of(transforms[count:], v1.Normalize)
    return count + (numbers is not None), (table(_converted, tensors.normalize, numbers), layout)


def _converted(image: torch.Tensor) -> torch.Tensor:
    made: torch.Tensor = tensors.convert_image_dtype(image, torch.float32)
    return made


def _is_to_floats(transform: Any) -> bool:
    return transform.dtype is torch.float32 and is_plain(transform)


def _tensor(picture: Picture, lut: Floats, layout: str) -> torch.Tensor:
    counts.composed("ToTensor" if layout == "CHW" else "PILToTensor")
    return picture.floats(lut, layout)
