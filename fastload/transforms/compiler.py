"""compile_plan: walks a transform list once and decides for each step who does it: the native decoder, the
device, or Python.

Steps for whole batches are torchvision's transforms as ops of fastload.augment, as data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeGuard

from fastload import transforms as T
from fastload._native import core
from fastload.common.rng import VIEW_STREAMS
from fastload.errors import TransformError
from fastload.transforms.library import Known, NativeStep, Place, plain
from fastload.transforms.ops import CornerCrop, colour, keypoint_pairs, padding_sides, size_pair
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

_PASSES = "lets a Pillow image pass, as torchvision's: put v2.ToImage() before it to convert"


def compile_plan(
    transform: object, *, device: bool = False, boxes: bool = False, whole: bool = False
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

    Args:
        transform: the list.
        device: True if ops on batches may be left to the device; see Plan.device.
        boxes: True if the engine is given the boxes of each sample.
        whole: True if Python steps get whole samples, in which no image is Pillow's.

    Raises:
        TransformError: fastload's own transforms in an order that has no native meaning; the message says
            what to change.
    """
    steps = flatten(transform)
    for step in steps:
        if mistake := class_mistake(step):
            raise TransformError(mistake)
        if isinstance(step, T.Views) and step is not steps[-1]:
            raise TransformError(
                f"{step!r} is not the last step: put what follows it into each of its entries"
            )
    entries = entries_of(steps[-1]) if steps else None
    views = None if entries is None else _compile_views(steps, entries, device, whole)
    if views is None:
        views = _compile_crops(steps, device, whole)
    return _compile(steps, range(1, len(steps) + 1), device, boxes, whole) if views is None else views


def _compile_crops(steps: Sequence[Any], device: bool, whole: bool) -> Plan | None:
    """The plan of a list with FiveCrop or TenCrop; None where there is none, or not all of it is native."""
    # Decided by the list as it was given: the crops are fastload's.
    is_tensor = whole or not _are_for_pillow(steps, steps)
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
            view = _compile([*before, *crop, *after], streams, device, whole=is_tensor)
            if not view.native or view.device:
                return None
            views.append(view)
        return _joined(views, place)
    return None


def _compile_views(steps: Sequence[Any], entries: Sequence[Any], device: bool, whole: bool) -> Plan | None:
    """The plan of a list that ends in several views of the image: each of them is planned as the list with
    its entry at the end.

    Each view has random streams of its own, which follow from its number and the place in its entry, and
    shares those of what comes before.

    Returns:
        None where something before makes Python of it all: then a step that is not fastload's own runs as the
        callable that it is.
    """
    before, step = list(steps[:-1]), steps[-1]
    stages = _compile(before, range(1, len(steps)), device, whole=whole).stages
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
                device,
                whole=whole,
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
    return plan.to_float or any(op.name in ("ToFloat", "Normalize") for op in plan.device)


def _joined(views: Sequence[Plan], before: int) -> Plan:
    """The plan of several views of which the first `before` stages are the same."""
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
        movable=runs and all(view.movable or view.native for view in views),
        stages=(*views[0].stages[:before], *(stage for view in views for stage in view.stages[before:])),
        views=tuple(views),
    )


def _compile(
    steps: Sequence[Any], streams: Sequence[int], device: bool, boxes: bool = False, whole: bool = False
) -> Plan:
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
    return _plan(
        part, stages, floats, python=tuple(rest), pillow=pillow, movable=bool(ops) and isinstance(ops, tuple)
    )


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
            part.take(made, stream)
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


def _python_stages(rest: Sequence[Any], first: int, reason: str, blocks: int | None) -> list[Stage]:
    """reason: why the native part has not the first; blocks: which position the device does not do, None
    where it would do all."""
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
    values.take(native_step(step, values), position)
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
    made = found.row.native(found, Place(part.form, part.is_tensor, default_dtype()))
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


_FLIPS = (T.RandomHorizontalFlip, T.RandomVerticalFlip)
_RESIZES = (T.RandomResizedCrop, T.Resize, T.ScaleJitter, T.RandomShortestSize, T.RandomResize, T.Letterbox)
_OF_ONE_SIZE = (T.RandomResizedCrop, T.CenterCrop, CornerCrop, T.RandomCrop, T.Letterbox)
_OF_DRAWN_SIZE = (T.ScaleJitter, T.RandomShortestSize, T.RandomResize, T.RandomZoomOut, T.RandomIoUCrop)
_RANDOM = (T.RandomResizedCrop, T.RandomCrop, *_FLIPS, *_OF_DRAWN_SIZE)
_ON_BOXES = (T.SanitizeBoundingBoxes, T.ConvertBoundingBoxFormat)
_OF_BOXES = (T.RandomIoUCrop, T.SanitizeBoundingBoxes)
MOST_OPS = 16
"""Most ops of one program: FL_OPS_MAX."""
MOST_OPTIONS = 32
"""Most options of one transform: FL_OPTIONS_MAX."""


class NativePart:
    """The native part of a plan under construction: geometry and values of the steps so far.

    1. add() takes a step whole or raises and is as before.
    2. Values (ToFloat, Normalize) are written after all geometry; a crop or flip added after them must be one
       that commutes with them.

    Attributes:
        form: form of the images after the steps so far.
        is_tv: True if they are torchvision's tv_tensors.Image.
        is_tensor: True if "image" is a tensor for steps in Python, too, and never Pillow's.
        size: (height, width) of every sample after the steps so far, or None if it depends on the sample.
        drawn_size: True if the size depends on the random draws.
        boxed_size: True if the size depends on the sample's boxes. Then only its bound is known before the
            sample is made.
        fill: the colour of the padding since the resize, or None if no step may have padded.
        mask_fill: the label of all padding of masks, or None.
        mask_dtype: dtype to which masks are converted, a name of torch's dtypes; "": they stay as they are.
        box_format: format to which boxes are converted; "": they stay as they are.
        colour: the last fill that is not grey, or None.
        of_boxes: positions of the steps that need the sample's boxes.
        keypoint_pairs: the argument of the flips that exchange keypoints; None: no flip exchanges any.
        keeping_flips: positions of the flips that exchange no keypoints.

    Args:
        is_tensor: see Attributes.
        boxes: True if the engine has the sample's boxes.
    """

    def __init__(self, *, is_tensor: bool = False, boxes: bool = False) -> None:
        self.is_tensor = is_tensor
        self._boxes = boxes
        self.form: ImageForm = "image"
        self.is_tv = False
        self.ops: list[dict[str, Any]] = []
        self.to_float = self.reciprocal = self.random = False
        self.mean: tuple[float, ...] | None = None
        self.std: tuple[float, ...] | None = None
        self.size: tuple[int, int] | None = None
        self.fill: tuple[int, ...] | None = None
        self.mask_fill: int | None = None
        self.colour: tuple[int, ...] | None = None
        self.mask_dtype = self.box_format = ""
        self.drawn_size = self.boxed_size = False
        self.of_boxes: list[int] = []
        self.keypoint_pairs: str | tuple[tuple[int, int], ...] | None = None
        self.keeping_flips: list[int] = []
        self._resized = False

    def take(self, made: NativeStep, stream: int) -> None:
        """Takes a library's step; raises as add() does."""
        if made.step is not None:
            self.add(made.step, stream, commutes=made.commutes, strict=made.strict)
        for name, value in made.values.items():
            setattr(self, name, value)

    def program(self) -> core.Program:
        """The geometry, compiled."""
        return core.Program(self.ops)

    def add(self, step: T.Transform, stream: int, *, commutes: bool = False, strict: bool = False) -> None:
        """Takes a step; `stream` is its random stream, `commutes` says that as a crop it may be done before
        what made floats, and `strict` that an image which a resize leaves no row or column of is an error.

        Raises:
            TransformError: it has no native meaning at this place.
        """
        if isinstance(step, T.ToFloat | T.Normalize):
            self._add_values(step)
            return
        flips = isinstance(step, _FLIPS)
        if self.to_float and not flips and not commutes and not isinstance(step, _ON_BOXES):
            raise TransformError(f"{step!r} after ToFloat or Normalize: put crops and resizes first")
        self._check_padding(step)
        if len(self.ops) == MOST_OPS:
            raise TransformError(
                f"{step!r} is one too many: a list has at most {MOST_OPS} crops, resizes and flips"
            )
        if isinstance(step, _OF_BOXES) and not self._boxes:
            raise TransformError(
                f"{type(step).__name__} needs the boxes of the sample, which the decoder does not have here"
            )
        resizes = isinstance(step, _RESIZES)
        if resizes and self._resized:
            raise TransformError(f"{step!r} is a second resize: one image is resampled once")
        op = _program_op(step, stream) | ({"strict": True} if strict else {})
        pairs = keypoint_pairs(step.keypoint_pairs, type(step).__name__) if isinstance(step, _FLIPS) else None
        if pairs is not None:
            if self.keypoint_pairs not in (None, pairs):
                raise TransformError(
                    f"{step!r} exchanges other keypoints than a flip before it: give both the same "
                    "keypoint_pairs"
                )
            self.keypoint_pairs, op["exchange"] = pairs, True
        fill, mask_fill = self._fills_after(step, None if resizes else self.fill)
        if "fill" in op and fill is not None:
            op["fill"] = fill
        self.fill, self.mask_fill = fill, mask_fill
        if len(set(op.get("fill", ()))) > 1:
            self.colour = op["fill"]
        self._resized |= resizes
        self.random |= isinstance(step, _RANDOM)
        if isinstance(step, _FLIPS) and pairs is None:
            self.keeping_flips.append(stream)
        if isinstance(step, _OF_BOXES):
            self.of_boxes.append(stream)
        if isinstance(step, T.ConvertBoundingBoxFormat):
            self.box_format = str(step.format)
        self._size_after(step)
        self.ops.append(op)

    def _check_padding(self, step: T.Transform) -> None:
        """Refuses a crop that would pad floats with what no byte becomes."""
        if self.form == "normalized" and isinstance(step, T.CenterCrop) and not self.holds(step):
            raise TransformError("it may pad what is normalised: put it before Normalize")
        if pads(step) and self.form == "normalized":
            raise TransformError("it pads what is normalised: put it before Normalize")
        if pads(step) and self.form == "float" and any(colour(step.fill, "RandomCrop")):
            raise TransformError("it pads floats with other than 0: put it before the conversion to floats")

    def _size_after(self, step: T.Transform) -> None:
        if isinstance(step, (*_FLIPS, *_ON_BOXES)):
            return
        size = step.size if isinstance(step, (*_OF_ONE_SIZE, T.Resize)) else None
        self.size = (int(size[0]), int(size[1])) if isinstance(size, tuple) else None
        self.drawn_size = self.size is None and (self.drawn_size or isinstance(step, _OF_DRAWN_SIZE))
        self.boxed_size = self.size is None and (self.boxed_size or isinstance(step, T.RandomIoUCrop))

    def _add_values(self, step: T.Transform) -> None:
        if self.mean is not None:
            raise TransformError(f"{step!r} after Normalize: normalise once, last")
        self.to_float = True
        self.form = "float"
        if isinstance(step, T.Normalize):
            self.mean, self.std = step.mean, step.std
            self.form = "normalized"

    def _fills_after(
        self, step: T.Transform, fill: tuple[int, ...] | None
    ) -> tuple[tuple[int, ...] | None, int | None]:
        """The engine knows one colour of padding before the resize and one after it: that of the last padding
        step, black from any centre crop on; and of masks one label for both."""
        if isinstance(step, T.CenterCrop) and (fill is not None or not self.holds(step)):
            new, label = (0, 0, 0), 0
        elif isinstance(step, T.RandomZoomOut | T.Letterbox) or pads(step):
            new, label = colour(step.fill, type(step).__name__), step.mask_fill
        else:
            return fill, self.mask_fill
        if fill not in (None, new):
            raise TransformError(
                f"{step!r} pads with {new} what an earlier step may have padded with {fill}: use one fill"
            )
        if self.mask_fill not in (None, label):
            raise TransformError(
                f"{step!r} pads masks with {label}, and an earlier step may with {self.mask_fill}: "
                "use one mask_fill"
            )
        return new, label

    def holds(self, crop: T.CenterCrop) -> bool:
        """Returns True if every image after the steps so far is known to be at least as large as the crop."""
        size = size_pair(crop.size, "CenterCrop")
        return self.size is not None and self.size[0] >= size[0] and self.size[1] >= size[1]


def pads(step: T.Transform) -> TypeGuard[T.RandomCrop]:
    """Returns True if a step is a RandomCrop with padding."""
    return isinstance(step, T.RandomCrop) and (any(padding_sides(step.padding)) or bool(step.pad_if_needed))


def _program_op(step: T.Transform, stream: int) -> dict[str, Any]:
    """One transform as the engine takes it; its place in the list is its random stream."""
    make = _OPS.get(type(step))
    if make is None:
        raise TransformError(f"{step!r} has no native form")
    op: dict[str, Any] = {"stream": stream, **make(step)}
    if isinstance(step, _RESIZES):
        op |= {"filter": step.interpolation, "antialias": step.antialias, "dct_scale": step.dct_scale}
    if len(op.get("options", ())) > MOST_OPTIONS:
        raise TransformError(f"{step!r} has {len(op['options'])} sizes or options: at most {MOST_OPTIONS}")
    return op


def _sized(
    kind: str,
    step: T.RandomResizedCrop | T.CenterCrop | CornerCrop | T.RandomCrop | T.Letterbox,
    **rest: object,
) -> dict[str, Any]:
    height, width = size_pair(step.size, type(step).__name__)
    return {"kind": kind, "height": height, "width": width, **rest}


def _filled(step: T.RandomCrop | T.Letterbox | T.RandomZoomOut) -> dict[str, Any]:
    return {"fill": step.fill, "mask_fill": step.mask_fill}


def _resize(step: T.Resize) -> dict[str, Any]:
    height, width = step.size if isinstance(step.size, tuple) else (0, step.size or 0)
    return {"kind": "resize", "height": height, "width": width, "max_size": step.max_size or 0}


_OPS: Mapping[type[T.Transform], Callable[[Any], dict[str, Any]]] = {
    T.RandomHorizontalFlip: lambda s: {"kind": "hflip", "p": s.p},
    T.RandomVerticalFlip: lambda s: {"kind": "vflip", "p": s.p},
    T.RandomResizedCrop: lambda s: _sized("resized_crop", s, scale=s.scale, ratio=s.ratio),
    T.Resize: _resize,
    T.CenterCrop: lambda s: _sized("center_crop", s),
    CornerCrop: lambda s: _sized("corner_crop", s, right=s.right, bottom=s.bottom),
    T.RandomCrop: lambda s: _sized(
        "random_crop", s, padding=s.padding, pad_if_needed=s.pad_if_needed, **_filled(s)
    ),
    T.Letterbox: lambda s: _sized("letterbox", s, **_filled(s)),
    T.RandomZoomOut: lambda s: {"kind": "zoom_out", "p": s.p, "scale": s.side_range, **_filled(s)},
    T.ScaleJitter: lambda s: {
        "kind": "scale_jitter",
        "width": s.target_size[0],
        "height": s.target_size[1],
        "scale": s.scale_range,
    },
    T.RandomShortestSize: lambda s: {
        "kind": "shortest_size",
        "options": s.min_size,
        "max_size": s.max_size or 0,
    },
    T.RandomIoUCrop: lambda s: {
        "kind": "iou_crop",
        "scale": (s.min_scale, s.max_scale),
        "ratio": (s.min_aspect_ratio, s.max_aspect_ratio),
        "options": s.sampler_options,
        "trials": s.trials,
    },
    T.RandomResize: lambda s: {"kind": "random_resize", "options": (s.min_size, s.max_size)},
    T.ConvertBoundingBoxFormat: lambda s: {"kind": "format", "box_format": s.format},
    T.SanitizeBoundingBoxes: lambda s: {"kind": "sanitize", "min_size": s.min_size, "min_area": s.min_area},
}
