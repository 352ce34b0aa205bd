"""compile_plan: walks a transform list once and decides for each step who does it: the native decoder, the device, or Python.

Steps for whole batches are torchvision's transforms as ops of fastload.augment, as data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fastload import transforms as T
from fastload.common.rng import VIEW_STREAMS
from fastload.errors import TransformError
from fastload.transforms.mapping import mapped, take
from fastload.transforms.native import NativePart
from fastload.transforms.spec import DeviceOp, Form, Plan, Stage, ViewSteps, Where
from fastload.transforms.torchvision import (
    Known,
    class_mistake,
    converts,
    crops_of,
    entries_of,
    flatten,
    is_torchvisions,
    known,
    passes_pillow,
    plain,
)

_BYTES = ("image", "uint8")
_ZERO = (0, 0.0, None, (0,), (0.0,), (0, 0, 0), (0.0, 0.0, 0.0))


def device_part(rest: Sequence[Any], first: int, form: Form, is_tensor: bool = False) -> tuple[DeviceOp, ...] | int:
    """Compiles the rest of a list to ops on batches, in its order; returns the position of the first step that is no such op instead.

    Nothing is moved past anything: colours before ToTensor act on bytes, those after it on floats in 0..1, and after Normalize only
    what does not depend on the unit is left to the device (erasing with 0, flips, crops that do not pad).

    Args:
        rest: the steps from the first that the native part does not have.
        first: its position, from 1.
        form: the form of the images at that place.
        is_tensor: True if the images are tensors, as `NativePart.is_tensor`.
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


_PASSES = "lets a Pillow image pass, as torchvision's: put v2.ToImage() before it to convert"


def compile_plan(transform: Any, *, device: bool = False, boxes: bool = False, whole: bool = False) -> Plan:
    """Plans a transform: None, one transform, a list or tuple, torchvision's Compose (v1 or v2), or a nested mixture.

    1. fastload's transforms, and those of torchvision's that mean the same, are native as far as the list goes without interruption.
    2. From the first step that is not, either all the rest runs on whole batches (with `device`, where all of it can, in its order), or all
       the rest runs per sample in Python, in its order; `why` of its first stage says what is in the way of a device.
    3. Python begins with a Pillow image where torchvision would hold one: nothing before it makes a tensor, and something after it does, or
       the list is torchvision's alone. Otherwise with the CHW tensor. Native steps mean the same: torchvision's ToDtype lets a Pillow image
       pass, and converts a tensor.
    4. A list that ends in several views (Views, lightly's MultiViewTransform) is planned for each view, and so is what is left of each.
    5. torchvision's FiveCrop and TenCrop make views, too; what comes after them draws once for all. Where that is not all native, they are
       Python's as any other step.
    6. Steps that need boxes are native only where the engine has the sample's boxes.

    Args:
        transform: the list.
        device: True if ops on batches may be left to the device; see Plan.device.
        boxes: True if the engine is given the boxes of each sample.
        whole: True if Python steps get whole samples, in which no image is Pillow's.

    Raises:
        TransformError: fastload's own transforms in an order that has no native meaning; the message says what to change.
    """
    steps = flatten(transform)
    for step in steps:
        if mistake := class_mistake(step):
            raise TransformError(mistake)
        if isinstance(step, T.Views) and step is not steps[-1]:
            raise TransformError(f"{step!r} is not the last step: put what follows it into each of its entries")
    entries = entries_of(steps[-1]) if steps else None
    views = None if entries is None else _compile_views(steps, entries, device, whole)
    if views is None:
        views = _compile_crops(steps, device, whole)
    return _compile(steps, range(1, len(steps) + 1), device, boxes, whole) if views is None else views


def _compile_crops(steps: Sequence[Any], device: bool, whole: bool) -> Plan | None:
    """The plan of a list with FiveCrop or TenCrop; None where there is none, or not all of it is native."""
    is_tensor = whole or not _are_for_pillow(steps, steps)  # decided by the list as it was given: the crops are fastload's
    for place, step in enumerate(steps):
        found = known(step)
        crops = crops_of(found) if found else None
        if found is None or crops is None:
            continue
        before, after = steps[:place], steps[place + 1 :]
        if not all(_takes_several(each) for each in after):
            return None
        views = []
        for crop in crops:
            streams = [*range(1, place + 1), *[place + 1] * len(crop), *range(place + 2, len(steps) + 1)]
            view = _compile([*before, *crop, *after], streams, device, whole=is_tensor)
            if not view.native or view.device:
                return None
            views.append(view)
        return _joined(views, place)
    return None


def _compile_views(steps: Sequence[Any], entries: Sequence[Any], device: bool, whole: bool) -> Plan | None:
    """The plan of a list that ends in several views of the image: each of them is planned as the list with its entry at the end.

    Each view has random streams of its own, which follow from its number and the place in its entry, and shares those of what comes before.

    Returns:
        None where something before makes Python of it all: then a step that is not fastload's own runs as the callable that it is.
    """
    before, step = list(steps[:-1]), steps[-1]
    stages = _compile(before, range(1, len(steps)), device, whole=whole).stages
    late = next((stage for stage in stages if stage.where not in ("native", "nothing")), None)
    if late is not None:
        if not isinstance(step, T.Views):
            return None
        raise TransformError(f"{step!r} comes after {late.name}, which the decoder does not do: put that into each of its entries")
    views: list[Plan] = []
    for number, entry in enumerate(entries):
        each = [*before, *flatten(entry)]
        if len(each) >= VIEW_STREAMS or number >= T.MOST_VIEWS:
            raise TransformError(f"{step!r}: at most {T.MOST_VIEWS} views, each of fewer than {VIEW_STREAMS} steps")
        own = number * VIEW_STREAMS
        try:
            view = _compile(each, [*range(1, len(steps)), *range(own + len(steps), own + len(each) + 1)], device, whole=whole)
        except TransformError as error:
            raise TransformError(f"view {number + 1}: {error}") from None
        views.append(view)
    if isinstance(step, T.Views) and all(view.native for view in views) and len({_ends_in_floats(view) for view in views}) > 1:
        raise TransformError(f"{step!r}: some of its entries end in floats and some in bytes: end all in ToFloat or Normalize, or none")
    return _joined(views, len(before))


def _takes_several(step: Any) -> bool:
    """Returns True if a step after FiveCrop treats each of its images as it treats one; transforms of v1 take one image alone."""
    found = known(step)
    return isinstance(step, T.Transform) or (found is not None and found.v2)


def _ends_in_floats(plan: Plan) -> bool:
    """Returns True if the native part, or an op that is left to the device, makes floats."""
    return plan.to_float or any(op.name in ("ToFloat", "Normalize") for op in plan.device)


def _joined(views: Sequence[Plan], before: int) -> Plan:
    """The plan of several views of which the first `before` stages are the same."""
    views = [
        replace(view, stages=(*view.stages[:before], *(replace(each, name=f"view {n}: {each.name}") for each in view.stages[before:])))
        for n, view in enumerate(views, 1)
    ]
    python = tuple((view.pillow, view.python) for view in views)
    runs = any(steps for _, steps in python)
    return Plan(
        programs=tuple(view.program for view in views),
        to_float=views[0].to_float,
        python=(ViewSteps(python),) if runs else (),
        fixed_sizes=None if any(view.fixed_size is None for view in views) else tuple(view.fixed_size for view in views if view.fixed_size),
        drawn_size=any(view.drawn_size for view in views),
        random=any(view.random for view in views),
        movable=runs and all(view.movable or view.native for view in views),
        stages=(*views[0].stages[:before], *(stage for view in views for stage in view.stages[before:])),
        views=tuple(views),
    )


def _compile(steps: Sequence[Any], streams: Sequence[int], device: bool, boxes: bool = False, whole: bool = False) -> Plan:
    """Plans a list that makes one image of an image; `streams`: the random stream of each step."""
    is_tensor = whole or not _are_for_pillow(steps, steps)
    part = NativePart(is_tensor=is_tensor, boxes=boxes)
    stages, floats, reason = _take_all(steps, streams, part)
    done = len(stages)
    rest, first = steps[done:], done + 1
    ops = device_part(rest, first, part.form, is_tensor)
    if device and isinstance(ops, tuple):
        stages += _device_stages(rest, first, ops)
        return _plan(part, stages, floats, device=ops)
    for step in rest:
        _check_python(step, rest[0])
    stages += _python_stages(rest, first, reason, ops if isinstance(ops, int) else None)
    pillow = bool(rest) and part.form == "image" and _are_for_pillow(steps, rest)
    return _plan(part, stages, floats, python=tuple(rest), pillow=pillow, movable=bool(ops) and isinstance(ops, tuple))


def _take_all(steps: Sequence[Any], streams: Sequence[int], part: NativePart) -> tuple[list[Stage], list[int], str]:
    """Gives the native part what it can have: the stages of that, positions of those that make floats, and the reason why it ends."""
    stages: list[Stage] = []
    floats: list[int] = []
    for position, (step, stream) in enumerate(zip(steps, streams, strict=True), 1):
        before = part.to_float, part.mean
        note = take(step, stream, part)
        if isinstance(note, TransformError):
            return stages, floats, str(note)
        why = _PASSES if note is None and passes_pillow(step) and part.form == "image" and not part.is_tensor else note or ""
        stages.append(Stage(position, label(step), "nothing" if note is None else "native", why))
        if (part.to_float, part.mean) != before:
            floats.append(position)
    return stages, floats, ""


def _plan(part: NativePart, stages: list[Stage], floats: list[int], **rest: Any) -> Plan:
    return Plan(
        programs=(part.program(),),
        to_float=part.to_float,
        mean=part.mean,
        std=part.std,
        fill=part.colour,
        fixed_sizes=None if part.size is None else (part.size,),
        drawn_size=part.drawn_size,
        boxed_size=part.boxed_size,
        of_boxes=tuple(part.of_boxes),
        box_format=part.box_format,
        mask_dtype=part.mask_dtype,
        keypoint_pairs=part.keypoint_pairs,
        keeping_flips=tuple(part.keeping_flips),
        random=part.random,
        reciprocal=part.reciprocal,
        tv_image=part.is_tv,
        stages=tuple(stages),
        floats=tuple(floats),
        **rest,
    )


def _check_python(step: Any, first: Any) -> None:
    if isinstance(step, T.Transform):
        raise TransformError(f"{step!r} comes after {first!r}, which runs in Python: put fastload's transforms first")
    if type(step).__module__.startswith("fastload.augment"):
        raise TransformError(f"{step!r} runs on whole batches: leave it out of the transform and give it to AugmentBatch")
    if not callable(step):
        raise TransformError(f"{step!r} is neither a fastload transform nor callable")


def _are_for_pillow(steps: Sequence[Any], rest: Sequence[Any]) -> bool:
    """Rule 3 of compile_plan: whether `rest`, the end of a list in which nothing has made a tensor yet, begins with a Pillow image."""
    if any(converts(step) for step in rest):
        return True
    return any(is_torchvisions(step) for step in steps) and not any(isinstance(step, T.Transform) for step in steps)


def _python_stages(rest: Sequence[Any], first: int, reason: str, blocks: int | None) -> list[Stage]:
    """reason: why the native part has not the first; blocks: which position the device does not do, None where it would do all."""
    stages = []
    blocker = None if blocks is None else f"{label(rest[blocks - first], brief=True)} at position {blocks}"
    for position, step in enumerate(rest, first):
        if position == first:
            why = f"{label(step, brief=True)} at position {first} is Python"
            reasons = [reason] if reason else []
            if blocks is None:
                reasons.append("with device= it runs on whole batches there")
            elif blocks != first:
                reasons.append(f"with device= it would run there, but for {blocker}")
            why += f" ({'; '.join(reasons)})" if reasons else ""
            why += ": everything after it runs per sample in Python" if len(rest) > 1 else ""
        elif position == blocks:
            why = f"not done on a device here, so that everything from position {first} on is Python"
        else:
            why = f"comes after position {first}" + ("; before it, it might be native" if mapped(step) else "")
        stages.append(Stage(position, label(step), "python", why))
    return stages


def _device_stages(rest: Sequence[Any], first: int, ops: Sequence[DeviceOp]) -> list[Stage]:
    done = {op.position for op in ops}
    where: dict[bool, Where] = {True: "device", False: "nothing"}
    return [Stage(p, label(step), where[p in done]) for p, step in enumerate(rest, first)]


def label(step: Any, *, brief: bool = False) -> str:
    """A step's name on one line: a function's, or a class with its arguments."""
    name = getattr(step, "__qualname__", None)
    if isinstance(name, str):
        return name.replace("<locals>.", "")
    if brief:
        return type(step).__name__
    try:
        text = " ".join(repr(step).split())
    except Exception:  # a stranger's repr must not end the planning
        return type(step).__name__
    if " at 0x" in text or not text.startswith(type(step).__name__):
        return type(step).__name__
    return text if len(text) <= 60 else text[:57].rstrip(" ,(") + "..."
