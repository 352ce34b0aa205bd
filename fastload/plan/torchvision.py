"""torchvision's transforms, and lightly's of several views, recognised without importing them: by module, class name and attributes.

A subclass, an attribute that the class does not have, a hook or a replaced forward() may change what an object does, so none of those is
recognised; it runs in Python as the callable it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastload import transforms as T

_PREFIX = "torchvision.transforms."
_CONVERSIONS = ("ToTensor", "PILToTensor", "ToImage")
_LIGHTLY = "lightly.transforms."
_BASE = ("lightly.transforms.multi_view_transform", "MultiViewTransform")
_ONE_VIEW = re.compile(r"\w*View\d?Transform|ToTensor")
"""lightly's classes that only call the torchvision transform that they hold as `transform`."""
_MIXES = ("MixUp", "CutMix")
_CALLERS = ("Lambda", "RandomApply", "RandomChoice", "RandomOrder")
"""torchvision's v1 classes that only call what they were given."""

_POLICY = ("interpolation", "fill")
ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    "Identity": (),
    "RGB": (),
    "ToPureTensor": (),
    "ToTensor": (),
    "PILToTensor": (),
    "ToImage": (),
    "ToDtype": ("dtype", "scale"),
    "ConvertImageDtype": ("dtype",),
    "Normalize": ("mean", "std", "inplace"),
    "Resize": ("size", "interpolation", "max_size", "antialias"),
    "RandomResizedCrop": ("size", "scale", "ratio", "interpolation", "antialias"),
    "CenterCrop": ("size",),
    "FiveCrop": ("size",),
    "TenCrop": ("size", "vertical_flip"),
    "RandomCrop": ("size", "padding", "pad_if_needed", "fill", "padding_mode"),
    "RandomZoomOut": ("p", "fill", "side_range"),
    "RandomIoUCrop": ("min_scale", "max_scale", "min_aspect_ratio", "max_aspect_ratio", "options", "trials"),
    "RandomResize": ("min_size", "max_size", "interpolation", "antialias"),
    "ConvertBoundingBoxFormat": ("format",),
    "ScaleJitter": ("target_size", "scale_range", "interpolation", "antialias"),
    "RandomShortestSize": ("min_size", "max_size", "interpolation", "antialias"),
    "SanitizeBoundingBoxes": ("min_size", "min_area", "labels_getter"),
    "RandomHorizontalFlip": ("p",),
    "RandomVerticalFlip": ("p",),
    "ColorJitter": ("brightness", "contrast", "saturation", "hue"),
    "RandomGrayscale": ("p",),
    "GaussianBlur": ("kernel_size", "sigma"),
    "RandomSolarize": ("threshold", "p"),
    "RandomPosterize": ("bits", "p"),
    "RandomEqualize": ("p",),
    "RandomAutocontrast": ("p",),
    "RandomInvert": ("p",),
    "RandomAdjustSharpness": ("sharpness_factor", "p"),
    "RandomErasing": ("p", "scale", "ratio", "value", "inplace"),
    "RandomRotation": ("degrees", "interpolation", "expand", "fill", "center"),
    "RandomAffine": ("degrees", "translate", "scale", "shear", "interpolation", "fill", "center"),
    "RandAugment": ("num_ops", "magnitude", "num_magnitude_bins", *_POLICY),
    "TrivialAugmentWide": ("num_magnitude_bins", *_POLICY),
    "AutoAugment": ("policy", *_POLICY),
}
"""Public attributes of each class that the planner knows; the same in v1 and v2 but for AutoAugment's table."""


@dataclass(frozen=True)
class Known:
    """A recognised transform.

    Attributes:
        name: its class.
        v2: whether it is of torchvision.transforms.v2.
        values: its public attributes.
        step: the object.
    """

    name: str
    v2: bool
    values: Mapping[str, Any]
    step: Any


def known(step: Any) -> Known | None:
    """The step, if it is exactly what torchvision made of one of the known classes."""
    kind = type(step)
    name = kind.__name__
    if not _ours(kind) or name not in ATTRIBUTES:
        return None
    values = {key: value for key, value in vars(step).items() if not key.startswith("_") and key != "training"}
    table = values.pop("policies", vars(step).get("_policies"))
    if name == "AutoAugment" and not _unchanged(step, values, table):
        return None
    if set(values) != set(ATTRIBUTES[name]) or (name != "AutoAugment" and table is not None):
        return None
    if any(vars(step).get(hooks) for hooks in ("_forward_hooks", "_forward_pre_hooks")):
        return None
    return Known(name, ".v2." in f"{kind.__module__}.", values, step)


def _unchanged(step: Any, values: Mapping[str, Any], table: Any) -> bool:
    """Whether AutoAugment holds the table that its policy names."""
    made = getattr(step, "_get_policies", None)
    return callable(made) and bool(made(values.get("policy")) == table)


def _ours(kind: type) -> bool:
    return f"{kind.__module__}.".startswith(_PREFIX)


def class_mistake(step: Any) -> str:
    """What to say of a class where an object of it is meant, alone or in a container of torchvision's; "" where there is none."""
    if isinstance(step, type):
        name = step.__name__
        return f"{name} is the class, not a transform made of it: write {name}(...), or a function that calls it with the image"
    held = getattr(step, "transforms", None)
    return next(filter(None, map(class_mistake, held)), "") if isinstance(held, list | tuple) else ""


def flatten(transform: Any) -> list[Any]:
    """The steps of None, one step, lists, tuples, torchvision's Compose and lightly's transforms of one view, nested as they may be.

    Other containers (RandomApply, RandomChoice, a Compose of another library) have a meaning of their own and stay whole.
    """
    if transform is None:
        return []
    if _ours(type(transform)) and type(transform).__name__ == "Compose":
        return flatten(transform.transforms)
    if (held := held_by(transform)) is not None:
        return flatten(held)
    if isinstance(transform, Sequence) and not isinstance(transform, str | T.Transform):
        return [step for inner in transform for step in flatten(inner)]
    return [transform]


def entries_of(step: Any) -> tuple[Any, ...] | None:
    """The transform of each view that a step makes of an image; None for a step that makes no list of views.

    lightly's MultiViewTransform counts, and what derives from it, unless it calls its transforms in a way of its own.
    """
    if isinstance(step, T.Views):
        return tuple(step.transforms)
    base = next((kind for kind in type(step).__mro__ if (kind.__module__, kind.__name__) == _BASE), None)
    held = getattr(step, "transforms", None)
    if base is None or type(step).__call__ is not base.__call__ or not isinstance(held, list | tuple):
        return None
    return tuple(held)


def held_by(step: Any) -> Any:
    """The transform that one of lightly's classes for one view only passes images to; None for any other step."""
    kind = type(step)
    if not kind.__module__.startswith(_LIGHTLY) or not _ONE_VIEW.fullmatch(kind.__name__) or set(vars(step)) != {"transform"}:
        return None
    return step.transform


def read_of(step: Any) -> tuple[Mapping[str, Any], tuple[Any, ...] | None]:
    """What planning reads of a step: the attributes of one whose class itself is torchvision's, and the entries of several views."""
    return (vars(step) if _ours(type(step)) else {}), entries_of(step)


def is_torchvisions(step: Any) -> bool:
    """Whether its class, or one that it derives from, is torchvision's."""
    return any(_ours(kind) for kind in type(step).__mro__)


def takes_image_alone(step: Any) -> bool:
    """Whether it is one of torchvision.transforms (v1) that takes an image and nothing else."""
    kind = type(step)
    return _ours(kind) and ".v2." not in f"{kind.__module__}." and kind.__name__ not in _CALLERS


def passes_pillow(step: Any) -> bool:
    """Whether it is v2's ToDtype, which converts tensors and lets Pillow images pass."""
    found = known(step)
    return found is not None and found.v2 and found.name == "ToDtype"


def makes_floats(step: Any) -> bool:
    """Whether it is v2's ToTensor, which makes floats of Pillow images."""
    found = known(step)
    return found is not None and found.v2 and found.name == "ToTensor"


def sanitized_by(step: Any) -> tuple[float, float] | None:
    """min_size and min_area of a SanitizeBoundingBoxes that is not told by a function of the user's what goes with the boxes; else None."""
    found = known(step)
    if found is None or found.name != "SanitizeBoundingBoxes" or found.values["labels_getter"] not in ("default", None):
        return None
    return found.values["min_size"], found.values["min_area"]


def converts(step: Any) -> bool:
    """Whether it turns a Pillow image into a tensor, by its class or one that it derives from."""
    return _derives(step, _CONVERSIONS)


def _derives(step: Any, names: Sequence[str]) -> bool:
    return any(_ours(kind) and kind.__name__ in names for kind in type(step).__mro__)


def mixes(step: Any) -> bool:
    """Whether it wants labels with its images: torchvision's MixUp or CutMix, what derives from one, or a container with one."""
    if not is_torchvisions(step):
        return False
    if _derives(step, _MIXES):
        return True
    held = getattr(step, "transforms", None)
    return isinstance(held, list | tuple) and any(mixes(each) for each in held)


def plain(value: Any) -> Any:
    """Lists as tuples, all the way down: values that hash."""
    return tuple(plain(v) for v in value) if isinstance(value, list | tuple) else value
