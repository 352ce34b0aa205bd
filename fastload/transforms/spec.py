"""Results of planning, as plain values; and the engine's output for a plan: dtype, layout, and the table
of values that bytes become."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.errors import ArgumentError, TransformError

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

ImageForm = Literal["image", "uint8", "float", "normalized"]
"""Form of the images at one place of a list: unconverted (torchvision: Pillow's), or CHW tensors of bytes,
of 0..1, or normalised."""

Where = Literal["native", "device", "python", "nothing"]


@dataclass(frozen=True)
class DeviceOp:
    """One op on a whole batch, as data: a class of `fastload.augment` or `fastload.transforms` by name, and
    its arguments.

    Attributes:
        name: the class; "ToFloat" and "Normalize" change the dtype of the batch, what follows works on the
            floats.
        params: its arguments by name, sorted, in the units that fastload.augment takes (colours 0..255).
        position: position in the list, from 1.
    """

    name: str
    params: tuple[tuple[str, Any], ...]
    position: int

    @property
    def arguments(self) -> dict[str, Any]:
        """params as keyword arguments."""
        return dict(self.params)


@dataclass(frozen=True)
class Stage:
    """One step of the list, for explain().

    Attributes:
        position: position in the list, from 1, nested lists flattened.
        name: the step, short.
        where: the place that does it; "nothing" if there is nothing to do.
        why: the reason why no faster place does it, or its cost; "" if there is none.
    """

    position: int
    name: str
    where: Where
    why: str = ""


@dataclass(frozen=True)
class Plan:
    """The compiled form of a transform list: native programs, then floats, then either `python` per sample or
    `device` per batch.

    Attributes:
        programs: the geometry of each tensor that is made of the image, compiled for the engine.
        to_float: True if the native part writes floats.
        mean, std: parameters of Normalize, or None.
        fill: the last colour of padding that is not grey, or None.
        python: callables that run per sample in Python after the native part.
        fixed_sizes: (height, width) of each of those tensors, when every sample leaves the native part at one
            size; else None.
        drawn_size: True if a sample's size depends on its random draws.
        boxed_size: True if a sample's size depends on its boxes, too: programs then give the largest possible
            size.
        of_boxes: positions of the native steps that need the sample's boxes.
        box_format: format of the boxes after the native part; "": as they are stored.
        mask_dtype: dtype of masks and instances, a name of torch's dtypes; "": as they are stored.
        keypoint_pairs: pairs of keypoints that native flips exchange; "auto": the pairs of each field; None:
            none are exchanged.
        keeping_flips: positions of the native flips that exchange no keypoints.
        random: True if the native part draws random numbers.
        floats: positions of the stages that make the native part's floats.
        reciprocal: True if bytes become floats by the rounded 1/255 (torchvision's ToDtype), False if by
            division (ToTensor).
        tv_image: True if torchvision's transforms, native here, end in a tv_tensors.Image, as v2.ToImage
            makes one.
        pillow: True if `python` begins with a Pillow image; otherwise it begins with the CHW tensor.
        device: ops for the whole batch, in order, after the native part; then `python` is empty.
        movable: True if, planned for a device, `device` would have all of `python`, and the native steps that
            change colours.
        augmented: number of ops on batches that native steps stand for: the first streams of those ops are
            theirs. See NOTE [ augment: one set of draws, two places ].
        stages: the list step by step, for explain().
        patches: (patch, merge, temporal) of Patches; None: images stay images.
        dtype: dtype of patches, a name of torch's dtypes; None: as `to_float` says.
        views: the plan of each view, where an image becomes a list of several (fastload.transforms.Views);
            else empty.
    """

    programs: tuple[core.Program, ...]
    to_float: bool = False
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    fill: tuple[int, ...] | None = None
    python: tuple[Callable[[Any], Any], ...] = ()
    fixed_sizes: tuple[tuple[int, int], ...] | None = None
    drawn_size: bool = False
    boxed_size: bool = False
    of_boxes: tuple[int, ...] = ()
    box_format: str = ""
    mask_dtype: str = ""
    keypoint_pairs: str | tuple[tuple[int, int], ...] | None = None
    keeping_flips: tuple[int, ...] = ()
    random: bool = False
    floats: tuple[int, ...] = ()
    reciprocal: bool = False
    tv_image: bool = False
    pillow: bool = False
    device: tuple[DeviceOp, ...] = ()
    movable: bool = False
    augmented: int = 0
    stages: tuple[Stage, ...] = ()
    patches: tuple[int, int, int] | None = None
    dtype: str | None = None
    views: tuple[Plan, ...] = ()

    @property
    def program(self) -> core.Program:
        """The geometry of the image, or of its first view."""
        return self.programs[0]

    @property
    def fixed_size(self) -> tuple[int, int] | None:
        """The fixed size of the image, or of its first view."""
        return None if self.fixed_sizes is None else self.fixed_sizes[0]

    @property
    def native(self) -> bool:
        """True if no step runs in Python per sample."""
        return not self.python

    @property
    def moves(self) -> bool:
        """True if a step does more than make floats of the image: boxes and masks have to go through it as
        well."""
        return any(stage.where != "nothing" and stage.position not in self.floats for stage in self.stages)

    @property
    def values(self) -> tuple[Any, ...]:
        """Values that must be equal for samples of one batch: how bytes become values, and the ops on the
        batch."""
        if self.views:
            return tuple(view.values for view in self.views)
        return (
            self.to_float,
            self.mean,
            self.std,
            self.reciprocal,
            self.box_format,
            self.mask_dtype,
            self.device,
            self.patches,
            self.dtype,
        )

    @property
    def device_ops(self) -> frozenset[str]:
        """Names of the ops for whole batches, of all views."""
        return frozenset(op.name for plan in (self, *self.views) for op in plan.device)

    def finish(self, image: Any) -> Any:
        """The sample, from the native part's CHW tensor: runs `python`."""
        return _run(image, self.pillow, self.python)


@dataclass(frozen=True)
class ViewSteps:
    """The Python steps of each view, as one step of a plan: takes the list of views and returns it.

    Attributes:
        views: for each view, True if it begins with a Pillow image, and its steps.
    """

    views: tuple[tuple[bool, tuple[Callable[[Any], Any], ...]], ...]

    def __call__(self, images: Sequence[Any]) -> list[Any]:
        return [_run(image, pillow, steps) for image, (pillow, steps) in zip(images, self.views, strict=True)]


def _run(image: Tensor, pillow: bool, steps: Sequence[Callable[[Any], Any]]) -> object:
    made: object = to_pillow(image) if pillow else image
    for step in steps:
        made = step(made)
    return made


def to_pillow(image: Tensor) -> Image:
    """The Pillow image of a tensor (channels, height, width): RGB, grey or RGBA, uint8; or grey, uint16.

    Raises:
        TransformError: it has 16-bit values and several channels.
    """
    from PIL.Image import fromarray

    pixels = image.permute(1, 2, 0).contiguous().numpy()
    if pixels.shape[2] > 1 and pixels.itemsize > 1:
        raise TransformError(
            f"Pillow has no images of {pixels.shape[2]} channels of 16 bits: begin the transform "
            "with torchvision's v2.ToImage(), so that "
            "its steps take tensors"
        )
    return fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)


FLOAT_DTYPES = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Planes:
    """Properties of an image field that is not 8-bit RGB.

    Attributes:
        name: name of the field.
        channels: 1, 3 or 4.
        depth: bytes of a value, 1 or 2.
    """

    name: str
    channels: int
    depth: int

    def check(self, plan: Plan) -> None:
        """Refuses colours that this image cannot have.

        Raises:
            TransformError: a mean, std or fill has three values, and the image other than three channels; or
                the plan makes patches.
        """
        if plan.patches is not None:
            raise TransformError(
                f"Patches are of 8-bit RGB, which the image {self.name!r} is not: "
                "leave it out with fields=[...]"
            )
        if self.channels == 3:
            return
        has = f"and the image {self.name!r} has {self.channels} channel{'s' * (self.channels > 1)}"
        for what, values in (("mean", plan.mean), ("std", plan.std)):
            if len(set(values or ())) > 1:
                raise TransformError(
                    f"Normalize's {what} has a value for each of three channels, {has}: give one "
                    "value for all, normalise on the device, "
                    "or leave the field out with fields=[...]"
                )
        if plan.fill and len(set(plan.fill)) > 1:
            raise TransformError(
                f"fill={plan.fill} is a colour of three channels, {has}: pad with one value, or "
                "leave the field out"
            )


def outputs_of(plan: Plan, dtype: str | None, layout: str, planes: Planes | None = None) -> list[core.Output]:
    """The engine's output for each tensor of a plan: dtype "uint8" or a float one (None: what the plan
    implies), layout "HWC" or "CHW". `planes`: what the image is, where it is not 8-bit RGB; "uint8" then
    means its own dtype.

    Raises:
        ArgumentError: the dtype contradicts the plan.
        TransformError: the plan's colours are not those of planes.
    """
    if plan.views:
        return [output for view in plan.views for output in outputs_of(view, dtype, layout, planes)]
    if planes is not None:
        planes.check(plan)
    chosen = dtype or plan.dtype or ("float32" if plan.to_float else "uint8")
    if chosen == "uint8":
        if plan.to_float:
            raise ArgumentError("dtype=uint8 with ToFloat or Normalize in the transform: drop one of them")
        return [stored_output(layout, planes, plan.patches)]
    if chosen not in FLOAT_DTYPES:
        raise ArgumentError(f"dtype={chosen!r}: native batches are uint8, float32, float16 or bfloat16")
    if planes is None:
        return [core.Output(chosen, layout, value_table(plan, chosen), None, plan.patches)]
    table = value_table(plan, chosen, planes.channels, 1 << 8 * planes.depth)
    return [core.Output(chosen, layout, table, (planes.channels, planes.depth))]


def stored_output(
    layout: str, planes: Planes | None, patches: tuple[int, int, int] | None = None
) -> core.Output:
    """Values as they are stored."""
    if planes is None:
        return core.Output("uint8", layout, None, None, patches)
    return core.Output(
        "uint16" if planes.depth == 2 else "uint8", layout, None, (planes.channels, planes.depth)
    )


def normalized(
    values: npt.NDArray[np.float32], mean: Sequence[float], std: Sequence[float]
) -> npt.NDArray[np.float32]:
    """Values of each channel, (channels, n), normalised in float32 in torchvision's order."""
    less, by = (
        np.asarray(each if len(values) == 3 else each[:1], np.float32)[:, None] for each in (mean, std)
    )
    return (values - less) / by


def value_table(plan: Plan, dtype: str, channels: int = 3, count: int = 256) -> npt.NDArray[Any]:
    """The channels x count values that bytes, or values of two bytes, become: computed in float32 in
    torchvision's order (divide, subtract, divide), then rounded."""
    levels = np.arange(count, dtype=np.float32)
    levels = levels * np.float32(1 / (count - 1)) if plan.reciprocal else levels / np.float32(count - 1)
    values = np.tile(levels, (channels, 1))
    if plan.mean is not None and plan.std is not None:
        values = normalized(values, plan.mean, plan.std)
    if dtype == "float32":
        return values
    if dtype == "float16":
        return values.astype(np.float16)
    bits = values.view(np.uint32)
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)  # to nearest, ties to even, as hardware does
    return (rounded >> 16).astype(np.uint16)
