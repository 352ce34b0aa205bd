"""compile_plan: walks a transform list once and decides for each step who does it: the native decoder, the
device, or Python.

Steps for whole batches are torchvision's transforms as ops of fastload.augment, as data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fastload import transforms as T
from fastload.common.rng import OP_STREAM, VIEW_STREAMS
from fastload.errors import TransformError
from fastload.transforms.library import Known, NativeStep, Place, plain
from fastload.transforms.native_part import NativePart
from fastload.transforms.ops import CornerCrop, size_pair
from fastload.transforms.spec import DeviceOp, ImageForm, Plan, Stage, ViewSteps, Where
from fastload.transforms.steps import (
    class_mistake,
    converts,
    default_dtype,
    entries_of,
    flatten,
    is_torchvisions,
    known,
    replaced,
)

_FLOATS = ("ToFloat", "Normalize")
_PASSES = "lets a Pillow image pass, as torchvision's: put v2.ToImage() before it to convert"


@dataclass(frozen=True)
class Samples:
    """Properties of the samples that planning depends on, and the places where steps may run.

    Attributes:
        device: True if ops on batches may be left to the device; see Plan.device.
        boxes: True if the engine is given the boxes of each sample.
        whole: True if Python steps get whole samples, in which no image is Pillow's.
        unaugmented: reason why native threads do not change finished images; "" if they do.
        unwarped: reason why they do not move their pixels; "" if they do.
    """

    device: bool = False
    boxes: bool = False
    whole: bool = False
    unaugmented: str = ""
    unwarped: str = ""


def compile_plan(
    transform: object,
    *,
    device: bool = False,
    boxes: bool = False,
    whole: bool = False,
    unaugmented: str = "",
    unwarped: str = "",
) -> Plan:
    """Plans a transform: None, one transform, a list or tuple, torchvision's Compose (v1 or v2), or a nested
    mixture.

    1. fastload's transforms, and those of torchvision's that mean the same, are native as far as the list
       goes without interruption.
    2. From the first step that is not, either all the rest runs on whole batches (with `device`, where all of
       it can, in its order), or all the rest runs per sample in Python, in its order; `why` of its first
       stage says what is in the way of a device.
    3. Python begins with a Pillow image where torchvision would hold one: nothing before it makes a tensor,
       and something after it does, or the list is torchvision's alone. Otherwise with the CHW tensor. Native
       steps mean the same: torchvision's ToDtype lets a Pillow image pass, and converts a tensor.
    4. A list that ends in several views (Views, lightly's MultiViewTransform) is planned for each view, and
       so is what is left of each.
    5. torchvision's FiveCrop and TenCrop make views, too; what comes after them draws once for all. Where
       that is not all native, they are Python's as any other step.
    6. Steps that need boxes are native only where the engine has the sample's boxes.
    7. Steps that change the finished image are native after all crops and resizes, and only where nothing is
       left to a device. They draw what the device would: NOTE [ augment: one set of draws, two places ].

    Args:
        transform: the list.
        device, boxes, whole, unaugmented, unwarped: see Samples.

    Raises:
        TransformError: fastload's own transforms in an order that has no native meaning; the message says
            what to change.
    """
    steps = flatten(transform)
    samples = Samples(device, boxes, whole, unaugmented, unwarped)
    for step in steps:
        if mistake := class_mistake(step):
            raise TransformError(mistake)
        if isinstance(step, T.Views) and step is not steps[-1]:
            raise TransformError(
                f"{step!r} is not the last step: put what follows it into each of its entries"
            )
    entries = entries_of(steps[-1]) if steps else None
    views = None if entries is None else _compile_views(steps, entries, replace(samples, boxes=False))
    if views is None:
        views = _compile_crops(steps, replace(samples, boxes=False))
    return _compile(steps, range(1, len(steps) + 1), samples) if views is None else views


def _compile_crops(steps: Sequence[Any], samples: Samples) -> Plan | None:
    """The plan of a list with FiveCrop or TenCrop; None where there is none, or not all of it is native."""
    # Decided by the list as it was given: the crops are fastload's.
    samples = replace(samples, whole=samples.whole or not _are_for_pillow(steps, steps))
    for place, step in enumerate(steps):
        found = known(step)
        crops = _crops_of(found) if found else None
        if found is None or crops is None:
            continue
        before, after = steps[:place], steps[place + 1 :]
        if not all(_takes_several(each) for each in after):
            return None
        views = []
        for crop in crops:
            streams = [*range(1, place + 1), *[place + 1] * len(crop), *range(place + 2, len(steps) + 1)]
            view = _compile([*before, *crop, *after], streams, samples)
            if not view.native or view.device:
                return None
            views.append(view)
        # No op on batches takes several images.
        return replace(_joined(views, place), movable=False, augmented=views[0].augmented)
    return None


def _compile_views(steps: Sequence[Any], entries: Sequence[Any], samples: Samples) -> Plan | None:
    """The plan of a list that ends in several views of the image: each of them is planned as the list with
    its entry at the end.

    Each view has random streams of its own, which follow from its number and the place in its entry, and
    shares those of what comes before.

    Returns:
        None where something before makes Python of it all: then a step that is not fastload's own runs as the
        callable that it is.
    """
    before, step = list(steps[:-1]), steps[-1]
    alike = replace(samples, unaugmented=samples.unaugmented or "it comes before several views")
    stages = _compile(before, range(1, len(steps)), alike).stages
    late = next((stage for stage in stages if stage.where not in ("native", "nothing")), None)
    if late is not None:
        if not isinstance(step, T.Views):
            return None
        raise TransformError(
            f"{step!r} comes after {late.name}, which the decoder does not do: put that into each of "
            "its entries"
        )
    views: list[Plan] = []
    for number, entry in enumerate(entries):
        each = [*before, *flatten(entry)]
        if len(each) >= VIEW_STREAMS or number >= T.MOST_VIEWS:
            raise TransformError(
                f"{step!r}: at most {T.MOST_VIEWS} views, each of fewer than {VIEW_STREAMS} steps"
            )
        own = number * VIEW_STREAMS
        try:
            view = _compile(
                each,
                [*range(1, len(steps)), *range(own + len(steps), own + len(each) + 1)],
                samples,
                sum(view.augmented for view in views),
            )
        except TransformError as error:
            raise TransformError(f"view {number + 1}: {error}") from None
        views.append(view)
    if (
        isinstance(step, T.Views)
        and all(view.native for view in views)
        and len({_ends_in_floats(view) for view in views}) > 1
    ):
        raise TransformError(
            f"{step!r}: some of its entries end in floats and some in bytes: end all in ToFloat or "
            "Normalize, or none"
        )
    return _joined(views, len(before))


def _crops_of(step: Known) -> list[list[T.Transform]] | None:
    """The transform of each crop that FiveCrop or TenCrop makes, in torchvision's order; None for any
    other step."""
    if step.name not in ("FiveCrop", "TenCrop"):
        return None
    centre = T.CenterCrop(step.values["size"])
    size = size_pair(centre.size, "CenterCrop")
    corners = [CornerCrop(size, right, bottom) for bottom in (False, True) for right in (False, True)]
    five: list[list[T.Transform]] = [[crop] for crop in (*corners, centre)]
    if step.name == "FiveCrop":
        return five
    mirror = T.RandomVerticalFlip(1.0) if step.values["vertical_flip"] else T.RandomHorizontalFlip(1.0)
    return five + [[mirror, *crop] for crop in five]


def _takes_several(step: object) -> bool:
    """Returns True if a step after FiveCrop treats each of its images as it treats one; transforms of v1
    take one image alone."""
    found = known(step)
    return isinstance(step, T.Transform) or (found is not None and found.v2)


def _ends_in_floats(plan: Plan) -> bool:
    """Returns True if the native part, or an op that is left to the device, makes floats."""
    return plan.to_float or any(op.name in _FLOATS for op in plan.device)


def _joined(views: Sequence[Plan], before: int) -> Plan:
    """The plan of several views of which the first `before` stages are the same. Raises TransformError where
    one makes patches."""
    if any(view.patches is not None for view in views):
        raise TransformError("Patches are made of one image, not of several views")
    views = [
        replace(
            view,
            stages=(
                *view.stages[:before],
                *(replace(each, name=f"view {n}: {each.name}") for each in view.stages[before:]),
            ),
        )
        for n, view in enumerate(views, 1)
    ]
    python = tuple((view.pillow, view.python) for view in views)
    runs = any(steps for _, steps in python)
    sizes = tuple(view.fixed_size for view in views if view.fixed_size is not None)
    return Plan(
        programs=tuple(view.program for view in views),
        to_float=views[0].to_float,
        python=(ViewSteps(python),) if runs else (),
        fixed_sizes=sizes if len(sizes) == len(views) else None,
        drawn_size=any(view.drawn_size for view in views),
        random=any(view.random for view in views),
        movable=any(view.movable for view in views)
        and all(view.movable or (view.native and not view.augmented) for view in views),
        augmented=sum(view.augmented for view in views),
        stages=(*views[0].stages[:before], *(stage for view in views for stage in view.stages[before:])),
        views=tuple(views),
    )


def _compile(steps: Sequence[Any], streams: Sequence[int], samples: Samples, ops_before: int = 0) -> Plan:
    """Plans a list that makes one image of an image.

    Args:
        steps: the list.
        streams: the random stream of each step.
        samples: see Samples.
        ops_before: number of ops on batches that come before its own.
    """
    is_tensor = samples.whole or not _are_for_pillow(steps, steps)
    part = NativePart(
        is_tensor=is_tensor,
        boxes=samples.boxes,
        unaugmented="it is left to the device" if samples.device else samples.unaugmented,
        unwarped=samples.unwarped,
        first_op=OP_STREAM + ops_before,
    )
    stages, floats, reason = _take_all(steps, streams, part)
    done = len(stages)
    if part.patches is not None and done < len(steps):
        raise TransformError(f"{steps[done]!r} comes after Patches, which only ToFloat and Normalize may")
    rest, first = steps[done:], done + 1
    # What a device would have: from the first step on that it does and native threads do, or not they.
    begin, form = part.augmented_from or (first, part.form)
    ops = device_part(steps[begin - 1 :], begin, form, is_tensor)
    if samples.device and isinstance(ops, tuple):
        stages += _device_stages(rest, first, ops)
        return _plan(part, stages, floats, device=ops)
    if samples.device:
        return _compile(steps, streams, replace(samples, device=False), ops_before)
    for step in rest:
        _check_python(step, rest[0])
    stages += _python_stages(steps, first, reason, ops if isinstance(ops, int) else None)
    pillow = bool(rest) and part.form == "image" and _are_for_pillow(steps, rest)
    moves = bool(ops) and isinstance(ops, tuple)
    return _plan(
        part,
        stages,
        floats,
        python=tuple(rest),
        pillow=pillow,
        movable=moves,
        augmented=_count_of(part, ops),
    )


def _count_of(part: NativePart, ops: tuple[DeviceOp, ...] | int) -> int:
    """Number of ops on batches that native steps stand for, with those after them that a device would
    have."""
    if part.augmented_from is None:
        return 0
    return part.augmented if isinstance(ops, int) else sum(op.name not in _FLOATS for op in ops)


def _take_all(
    steps: Sequence[Any], streams: Sequence[int], part: NativePart
) -> tuple[list[Stage], list[int], str]:
    """Gives the native part what it can have: the stages of that, positions of those that make floats, and
    the reason why it ends."""
    stages: list[Stage] = []
    floats: list[int] = []
    for position, (step, stream) in enumerate(zip(steps, streams, strict=True), 1):
        before = part.to_float, part.mean
        try:
            made = native_step(step, part)
            part.take(made, stream, position)
        except TransformError as reason:
            if isinstance(step, T.Transform):
                raise
            return stages, floats, str(reason)
        nothing = made.note is None
        why = made.note or ""
        if nothing and _converts_tensors(step) and part.form == "image" and not part.is_tensor:
            why = _PASSES
        stages.append(Stage(position, label(step), "nothing" if nothing else "native", why))
        if (part.to_float, part.mean) != before:
            floats.append(position)
    return stages, floats, ""


def _converts_tensors(step: object) -> bool:
    """Returns True if a step is v2's ToDtype, which lets Pillow images pass."""
    found = known(step)
    return found is not None and found.v2 and found.name == "ToDtype"


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
        patches=None if part.patches is None else part.patches.form,
        dtype=None if part.patches is None else part.patches.dtype,
        stages=tuple(stages),
        floats=tuple(floats),
        **rest,
    )


def _check_python(step: object, first: object) -> None:
    if isinstance(step, T.Transform):
        raise TransformError(
            f"{step!r} comes after {first!r}, which runs in Python: put fastload's transforms first"
        )
    if type(step).__module__.startswith("fastload.augment"):
        raise TransformError(
            f"{step!r} runs on whole batches: leave it out of the transform and give it to AugmentBatch"
        )
    if not callable(step):
        raise TransformError(f"{step!r} is neither a fastload transform nor callable")


def _are_for_pillow(steps: Sequence[Any], rest: Sequence[Any]) -> bool:
    """Rule 3 of compile_plan: whether `rest`, the end of a list in which nothing has made a tensor yet,
    begins with a Pillow image."""
    if any(converts(step) for step in rest):
        return True
    return any(is_torchvisions(step) for step in steps) and not any(
        isinstance(step, T.Transform) for step in steps
    )


def _python_stages(steps: Sequence[Any], first: int, reason: str, blocks: int | None) -> list[Stage]:
    """first: position of the first step that is Python's; reason: why the native part has it not; blocks:
    which position the device does not do, None where it would do all."""
    stages = []
    blocker = None if blocks is None else f"{label(steps[blocks - 1], brief=True)} at position {blocks}"
    rest = steps[first - 1 :]
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
            why = f"comes after position {first}" + (
                "; before it, it might be native" if (found := known(step)) and found.row.native else ""
            )
        stages.append(Stage(position, label(step), "python", why))
    return stages


def _device_stages(rest: Sequence[Any], first: int, ops: Sequence[DeviceOp]) -> list[Stage]:
    done = {op.position for op in ops}
    where: dict[bool, Where] = {True: "device", False: "nothing"}
    return [Stage(p, label(step), where[p in done]) for p, step in enumerate(rest, first)]


def label(step: object, *, brief: bool = False) -> str:
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


def device_part(
    rest: Sequence[Any], first: int, form: ImageForm, is_tensor: bool = False
) -> tuple[DeviceOp, ...] | int:
    """Compiles the rest of a list to ops on batches, in its order; returns the position of the first step
    that is no such op instead.

    Nothing is moved past anything: colours before ToTensor act on bytes, those after it on floats in 0..1,
    and after Normalize only what does not depend on the unit is left to the device (erasing with 0, flips,
    crops that do not pad).

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
            ops += _batch_ops(step, position, values)
    except TransformError:
        return position
    return tuple(ops)


def _batch_ops(step: object, position: int, values: NativePart) -> list[DeviceOp]:
    found = known(step)
    if found is not None and found.row.batch is not None:
        return [_batch_op(found.name, position, found.row.batch(found, values.form))]
    if found is None and not isinstance(step, T.Transform):
        raise TransformError("unknown")
    before = values.to_float, values.mean
    geometry = len(values.ops)
    values.take(native_step(step, values), position, position)
    if len(values.ops) > geometry:
        return [_geometry(step, position, values)]
    if (values.to_float, values.mean) == before:
        return []
    if values.mean is None:
        return [_batch_op("ToFloat", position, {"reciprocal": values.reciprocal})]
    floats = [] if before[0] else [_batch_op("ToFloat", position, {"reciprocal": False})]
    return [*floats, _batch_op("Normalize", position, {"mean": values.mean, "std": values.std})]


def native_step(step: object, part: NativePart) -> NativeStep:
    """A step as the native part does it after the steps so far.

    Raises:
        TransformError: it does not; with the reason, such as replaced code of a known class, or empty if
            nothing is known of the step.
    """
    if isinstance(step, T.Transform):
        return NativeStep(step)
    found = known(step)
    if found is None:
        raise TransformError(replaced(step))
    if found.row.native is None:
        raise TransformError("the decoder does not do it")
    place = Place(part.form, part.is_tensor, default_dtype(), part.unaugmented, part.unwarped)
    made = found.row.native(found, place)
    is_tv = found.name == "ToImage"
    if not found.v2 or is_tv or found.name == "ToPureTensor":
        return replace(made, values={**made.values, "is_tv": is_tv})
    return made


def _geometry(step: object, position: int, values: NativePart) -> DeviceOp:
    """A flip or a crop: those of fastload.transforms that run on batches, too."""
    kind, op = type(step).__name__, values.ops[-1]
    if kind in ("RandomHorizontalFlip", "RandomVerticalFlip"):
        pairs = getattr(step, "keypoint_pairs", None)  # torchvision's flips have none
        return _batch_op(
            kind, position, {"p": op["p"]} | ({} if pairs is None else {"keypoint_pairs": pairs})
        )
    if kind != "RandomCrop":
        raise TransformError("no op on batches")
    names = ("padding", "pad_if_needed", "fill")
    return _batch_op(
        kind, position, {"size": (op["height"], op["width"]), **{name: plain(op[name]) for name in names}}
    )


def _batch_op(name: str, position: int, arguments: Mapping[str, Any]) -> DeviceOp:
    return DeviceOp(name, tuple(sorted((key, plain(value)) for key, value in arguments.items())), position)
