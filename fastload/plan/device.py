"""The part of a list that runs on whole batches: torchvision's transforms as fastload.augment has them, as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastload import transforms as T
from fastload.errors import TransformError
from fastload.plan.mapping import take
from fastload.plan.native import NativePart
from fastload.plan.spec import DeviceOp, Form
from fastload.plan.torchvision import Known, known, plain

_BYTES = ("image", "uint8")
_ZERO = (0, 0.0, None, (0,), (0.0,), (0, 0, 0), (0.0, 0.0, 0.0))


def device_part(rest: Sequence[Any], first: int, form: Form, is_tensor: bool = False) -> tuple[DeviceOp, ...] | int:
    """The rest of a list as ops on batches, in its order, or the position of the first step that is no such op in its place.

    Nothing is moved past anything: colours before ToTensor act on bytes, those after it on floats in 0..1, and after Normalize only
    what does not depend on the unit is left to the device (erasing with 0, flips, crops that do not pad).

    Args:
        rest: the steps from the first that the native part does not have.
        first: its position, from 1.
        form: what the list holds there.
        is_tensor: as NativePart has it.
    """
    values = NativePart(is_tensor=is_tensor)
    values.form = form
    values.to_float = form in ("float", "normalized")
    if form == "normalized":
        values.mean = values.std = (0.0,)  # a second Normalize is then refused, as in the native part
    ops: list[DeviceOp] = []
    position = first
    try:
        for position, step in enumerate(rest, first):
            ops += _ops(step, position, values)
    except TransformError:
        return position
    return tuple(ops)


def _ops(step: Any, position: int, values: NativePart) -> list[DeviceOp]:
    found = known(step)
    if found is not None and found.name in _MAPPED:
        arguments = _MAPPED[found.name](found, values.form)
        return [_op(found.name, position, arguments)]
    if found is None and not isinstance(step, T.Transform):
        raise TransformError("unknown")
    before = values.to_float, values.mean
    geometry = len(values.ops)
    taken = take(step, position, values)
    if isinstance(taken, TransformError):
        raise taken
    if len(values.ops) > geometry:
        return [_geometry(step, found, position, values)]
    if (values.to_float, values.mean) == before:
        return []
    if values.mean is None:
        return [_op("ToFloat", position, {"reciprocal": values.reciprocal})]
    floats = [] if before[0] else [_op("ToFloat", position, {"reciprocal": False})]
    return [*floats, _op("Normalize", position, {"mean": values.mean, "std": values.std})]


def _geometry(step: Any, found: Known | None, position: int, values: NativePart) -> DeviceOp:
    """A flip or a crop: those of fastload.transforms that run on batches, too."""
    kind, op = type(step).__name__, values.ops[-1]
    if kind in ("RandomHorizontalFlip", "RandomVerticalFlip"):
        pairs = getattr(step, "keypoint_pairs", None)  # torchvision's flips have none
        return _op(kind, position, {"p": op["p"]} | ({} if pairs is None else {"keypoint_pairs": pairs}))
    if kind != "RandomCrop":
        raise TransformError("no op on batches")
    names = ("padding", "pad_if_needed", "fill")
    return _op(kind, position, {"size": (op["height"], op["width"]), **{name: plain(op[name]) for name in names}})


def _op(name: str, position: int, arguments: Mapping[str, Any]) -> DeviceOp:
    return DeviceOp(name, tuple(sorted((key, plain(value)) for key, value in arguments.items())), position)


def _colours(step: Known, form: Form) -> dict[str, Any]:
    """Arguments as they are, for ops that act on bytes and on floats in 0..1."""
    _require(form != "normalized")
    return dict(step.values)


def _on_bytes(step: Known, form: Form) -> dict[str, Any]:
    """Arguments as they are, for ops that torchvision does on bytes only, or in units of bytes."""
    _require(form in _BYTES)
    return dict(step.values)


def _jitter(step: Known, form: Form) -> dict[str, Any]:
    return {name: 0.0 if value is None else value for name, value in _colours(step, form).items()}


def _erasing(step: Known, form: Form) -> dict[str, Any]:
    values = dict(step.values)
    value = plain(values["value"])
    _require(form in ("uint8", "float", "normalized") and value is not None and not isinstance(value, str))
    if form == "uint8":
        scale = 1.0
    else:
        scale = 255.0
        _require(value in _ZERO or form == "float")
    values["value"] = tuple(v * scale for v in value) if isinstance(value, tuple) else value * scale
    if isinstance(values["value"], tuple) and len(values["value"]) == 1:
        values["value"] = values["value"][0]
    _require(_is_colour(values["value"]))
    del values["inplace"]
    return values


def _turned(step: Known, form: Form) -> dict[str, Any]:
    """Rotation and affine maps about the centre, kept to the image's size."""
    values = dict(step.values)
    _require(values.pop("center") is None and not values.pop("expand", False))
    return _filled(values, form)


def _policy(step: Known, form: Form) -> dict[str, Any]:
    values = _filled(_on_bytes(step, form), form)
    if step.name == "AutoAugment":
        values["policy"] = str(getattr(values["policy"], "value", values["policy"]))
        _require(values["policy"] == "imagenet")
    return values


def _filled(values: dict[str, Any], form: Form) -> dict[str, Any]:
    fill, mode = plain(values["fill"]), values["interpolation"]
    _require(fill in _ZERO or (form in _BYTES and _is_colour(fill)))
    values["interpolation"] = str(getattr(mode, "value", mode))
    _require(values["interpolation"] in ("nearest", "bilinear"))
    values["fill"] = 0.0 if fill in _ZERO else fill
    return values


def _is_colour(fill: Any) -> bool:
    """One value or three, in the units of bytes."""
    values = fill if isinstance(fill, tuple) else (fill,)
    return len(values) in (1, 3) and all(isinstance(v, int | float) and 0 <= v <= 255 for v in values)


def _require(holds: bool) -> None:
    if not holds:
        raise TransformError("no op on batches here")


_MAPPED: Mapping[str, Callable[[Known, Form], dict[str, Any]]] = {
    "ColorJitter": _jitter,
    "RandomGrayscale": _colours,
    "GaussianBlur": _colours,
    "RandomAdjustSharpness": _colours,
    "RandomAutocontrast": _colours,
    "RandomInvert": _colours,
    "RandomSolarize": _on_bytes,
    "RandomPosterize": _on_bytes,
    "RandomEqualize": _on_bytes,
    "RandomErasing": _erasing,
    "RandomRotation": _turned,
    "RandomAffine": _turned,
    "RandAugment": _policy,
    "TrivialAugmentWide": _policy,
    "AutoAugment": _policy,
}
