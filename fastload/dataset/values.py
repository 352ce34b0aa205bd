"""Python steps over whole samples: what lies in the image goes through a transform's steps with it, as
torchvision's tv_tensors.

NOTE [ whole samples: what a step gets ]
A sample with masks, boxes or other fields that lie in its image goes to every Python step as a whole: one
argument, in the structure that `fields=` asks for, where images are tv_tensors.Image (never Pillow's), masks
and instances Mask, boxes BoundingBoxes, keypoints KeyPoints, keypoints with a visibility
fastload.dataset.points.KeyPointsWithVisibility, (N, K, 3), and parts of polygons
fastload.dataset.points.Outline, all on the canvas that the native steps have left. The result of the last
step is the sample: nothing is added to it. torchvision's ToTensor, which means Pillow images, makes floats of
the images here. SanitizeBoundingBoxes drops the rows that it drops natively: those of all fields that are
`of` the boxes, unless a labels_getter of the user's names others. torchvision is imported by this module and
by fastload.dataset.points alone, and only where there are such steps.

`StoredValues` are the fields of a packed dataset's records as a user gets them: tensors, texts, bytes and
JSON values. `word_flips` lets Python steps flip tensors of 16-bit integers: before release 2.15 torch has no
flip for them on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from fastload.batch.containers import each_tensor, has_part, part_at, with_part
from fastload.errors import SampleError, TransformError
from fastload.store import DatasetReader, Field, Schema, StoredImage
from fastload.store.form import Path
from fastload.store.kinds.codecs import BY_ENTRY, CODECS
from fastload.store.kinds.rows import ROTATED
from fastload.store.reader import stored_size
from fastload.transforms.library import sanitized_by
from fastload.transforms.spec import Plan
from fastload.transforms.steps import known, makes_floats, takes_image_alone


class StoredValues:
    """Reads fields that lie in records, of one open dataset. Any thread may call it.

    Args:
        reader: reader of the dataset.
        max_pixels: images and masks of more pixels are refused.
    """

    def __init__(self, reader: DatasetReader, max_pixels: int) -> None:
        self._reader = reader
        self._max_pixels = max_pixels

    def read(self, index: int, names: Sequence[str]) -> dict[str, Any]:
        """The values of sample `index` by name.

        Images are tensors (channels, height, width), masks (height, width), instances (number, height,
        width), uint8 or uint16; boxes, keypoints and arrays of any number of rows are tensors with their rows
        first; polygons are lists of lists of tensors (points, 2).

        Raises:
            SampleError: the record does not hold, or an image cannot be decoded; its `reason` is the reason
                alone.
        """
        schema = self._reader.schema
        self._check_pixels(index, [schema[name] for name in names if schema[name].handler.has_pixels])
        found = self._reader.stored_values(index, names)
        return {name: self._tensor(index, schema[name], value) for name, value in found.items()}

    def _check_pixels(self, index: int, fields: Sequence[Field]) -> None:
        """Refuses pictures of too many pixels by the columns, before memory is asked for."""
        for field in fields:
            height, width = stored_size(self._reader, index, field)
            if height < 1 or width < 1 or height * width > self._max_pixels:
                reason = (
                    f"its columns say {width} x {height} pixels for {field.name!r}; the limit is "
                    f"{self._max_pixels}"
                )
                raise SampleError(reason, reason=reason)

    def _tensor(self, index: int, field: Field, value: object) -> object:
        if isinstance(value, StoredImage):
            try:
                value = self._decoded(index, value)
            except SampleError as error:
                reason = f"field {field.name!r}: {error.reason or error}"
                raise SampleError(reason, reason=reason) from None
        return field.handler.tensors(value, torch.from_numpy)

    def _decoded(self, index: int, image: StoredImage) -> np.ndarray[Any, Any]:
        """The pixels (height, width, 3) of an image of 8-bit RGB."""
        codec = CODECS.get(image.kind)
        if codec is None:
            raise _wrong("its raw pixels do not hold")
        kind, data = self._reader.read_image(index, codec.entry, image.data)
        pixels = BY_ENTRY[kind].decoded(data, self._max_pixels)
        if pixels.shape[:2] != (image.height, image.width):
            raise _wrong(
                f"it is {pixels.shape[1]} x {pixels.shape[0]}, the columns say {image.width} x {image.height}"
            )
        return pixels


def _wrong(reason: str) -> SampleError:
    return SampleError(reason, reason=reason)


def check_transform(plan: Plan, schema: Schema, fields: Sequence[str], whole: bool) -> None:
    """Refuses a transform that would change the image and leave the other fields of the sample as they are:
    Python steps get them too.

    Args:
        plan: plan of the transform.
        schema: schema of the dataset.
        fields: names of the delivered fields that lie in the image's pixels, or are images themselves.
        whole: True if the image is delivered, so that Python steps get whole samples.

    Raises:
        TransformError: there is such a step; the message names it and the field.
    """
    _check_steps(plan, schema, fields)
    left = [name for name in fields if plan.views and not schema[name].handler.is_image]
    allowed = ("nothing",) if plan.views else ("nothing", "python")
    for stage in plan.stages:
        alone = left if stage.where == "native" else fields
        if alone and stage.where not in allowed and stage.position not in plan.floats:
            raise TransformError(
                f"{stage.name} would change the image, and not the field {alone[0]!r} "
                f"({schema[alone[0]]}) with it: apply it to whole "
                "samples, outside of the dataset, or leave the field out with fields=[...]"
            )
        if stage.where == "python" and not whole:
            raise TransformError(
                f"{stage.name} runs in Python, on the image and what lies in it, and {fields[0]!r} "
                "is delivered without the image: add "
                "the image to fields=, or leave the step out"
            )


def _check_steps(plan: Plan, schema: Schema, fields: Sequence[str]) -> None:
    """Refuses steps that cannot take such fields at all, as check_transform() raises it."""
    beside = fields[0]
    for step in plan.python:
        if takes_image_alone(step):
            name = type(step).__name__
            raise TransformError(
                f"{name} of torchvision.transforms takes an image alone, and {beside!r} "
                f"({schema[beside]}) goes with it: use "
                f"torchvision.transforms.v2.{name}, or leave the field out with fields=[...]"
            )
    formats = [plan.box_format] if plan.box_format else []
    found = [
        each
        for step in plan.python
        if (each := known(step)) is not None and each.name == "ConvertBoundingBoxFormat"
    ]
    formats += [str(getattr(each.values["format"], "name", each.values["format"])).lower() for each in found]
    boxes = [schema[name] for name in fields if schema[name].handler.owns_objects]
    for field, to in (
        (field, to) for field in boxes for to in formats if (field.format in ROTATED) != (to in ROTATED)
    ):
        raise TransformError(
            f"ConvertBoundingBoxFormat makes {to} of boxes, and {field.name!r} has {field.format}: "
            "as in torchvision rotated boxes do not "
            "become upright ones, nor upright ones rotated; drop the step, or leave the field out "
            "with fields=[...]"
        )


_FLIPS = (
    *(torch.flip, torch.fliplr, torch.flipud, torch.rot90),
    *(torch.Tensor.flip, torch.Tensor.fliplr, torch.Tensor.flipud, torch.Tensor.rot90),
)


class WordFlips(TorchFunctionMode):
    """While it is entered, uint16 tensors are flipped as int16 ones, which have the same bytes."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        given = kwargs or {}
        if func in _FLIPS and args and isinstance(args[0], torch.Tensor) and args[0].dtype == torch.uint16:
            words = args[0].as_subclass(torch.Tensor).view(torch.int16)
            return func(words, *args[1:], **given).view(torch.uint16)
        return func(*args, **given)


@cache
def torch_flips_words() -> bool:
    """Returns True if the installed torch flips uint16 tensors itself, along every axis: it has a kernel
    for each form of memory."""
    words = torch.zeros(3, 2, 2, dtype=torch.uint16)
    try:
        for each in (words, words[..., 0], words[0, 0], words.permute(1, 2, 0), words.transpose(1, 2)):
            for axis in range(each.ndim):
                each.flip(axis)
            each.flip(tuple(range(each.ndim)))
    except RuntimeError:
        return False
    return True


def word_flips(values: Iterable[Any]) -> AbstractContextManager[Any]:
    """Context for the steps of a sample of these values."""
    wide = any(isinstance(each, torch.Tensor) and each.dtype == torch.uint16 for each in values)
    return WordFlips() if wide and not torch_flips_words() else nullcontext()


Assemble = Callable[[dict[str, Any]], Any]


def finished(plan: Plan, schema: Schema, values: Mapping[str, Any], assemble: Assemble) -> object:
    """The sample that a plan's Python steps make. See NOTE [ whole samples: what a step gets ].

    Args:
        plan: its native part is done.
        schema: schema of the dataset.
        values: the delivered fields by name, as tensors; the first image is among them.
        assemble: makes the sample's structure of values by field.

    Raises:
        Whatever a step raises.
    """
    sample = wrapped(plan, schema, values, assemble)
    with word_flips(values.values()):
        for step in steps_of(plan, schema, list(values), assemble):
            sample = step(sample)
    return sample


def steps_of(
    plan: Plan, schema: Schema, names: Sequence[str], assemble: Assemble
) -> list[Callable[[Any], Any]]:
    """The Python steps of a plan, for whole samples.

    Args:
        plan: the plan.
        schema: schema of the dataset.
        names: names of the delivered fields.
        assemble: makes the sample's structure of values by field.
    """
    return [_step_of(step, schema, names, assemble) for step in plan.python]


def _step_of(
    step: Callable[[Any], Any], schema: Schema, names: Sequence[str], assemble: Assemble
) -> Callable[[Any], Any]:
    if makes_floats(step):
        return _to_floats
    sizes = sanitized_by(found) if (found := known(step)) else None
    if sizes is None:
        return step
    paths = _paths(assemble({name: name for name in names}))
    return _Sanitize(step, *sizes, tuple(schema[name] for name in names), paths)


@dataclass(frozen=True)
class _Sanitize:
    """torchvision's SanitizeBoundingBoxes as it is natively: each field of boxes drops boxes of its own, and
    the rows that are `of` them.

    Instances and torchvision's labels that are `of` no boxes go with the first boxes, as in torchvision,
    where they have as many rows. A field of which a step has made something else, of another number of rows,
    stays as it is.

    Attributes:
        step: torchvision's, which is called where steps before it have left no boxes in their place.
        min_size, min_area: its arguments.
        fields: the delivered fields.
        paths: path of each field in a sample.
    """

    step: Callable[[Any], Any]
    min_size: float
    min_area: float
    fields: tuple[Field, ...]
    paths: Mapping[str, Path]

    def __call__(self, sample: object) -> object:
        from torchvision import tv_tensors
        from torchvision.transforms.v2 import functional as F

        found = [field for field in self.fields if field.handler.owns_objects]
        paths = [self.paths[field.name] for field in found]
        if not found or not all(
            has_part(sample, path) and isinstance(part_at(sample, path), tv_tensors.BoundingBoxes)
            for path in paths
        ):
            return self.step(sample)
        for number, (boxes, path) in enumerate(zip(found, paths, strict=True)):
            kept, valid = F.sanitize_bounding_boxes(
                part_at(sample, path), min_size=self.min_size, min_area=self.min_area
            )
            sample = with_part(sample, path, kept)
            for name in self._going_with(boxes, number == 0, sample):
                sample = _with_rows(sample, self.paths[name], valid)
        return sample

    def _going_with(self, boxes: Field, first: bool, sample: object) -> list[str]:
        """Names of the fields that lose the rows of these boxes."""
        alone = [field for field in self.fields if not field.of and field.has_objects] if first else []
        labels = _labels_in([field for field in self.fields if field.has_objects], self.paths)
        loose = [field.name for field in alone if field.handler.is_as_large or field.name == labels]
        return [*(field.name for field in self.fields if field.of == boxes.name), *loose]


def _labels_in(fields: Sequence[Field], paths: Mapping[str, Path]) -> str:
    """The field that torchvision takes for the labels: by its key, "labels" or else one with "label" in
    it; "": none."""
    keys = {field.name: str(paths[field.name][-1]).lower() for field in fields if paths[field.name]}
    exact = next((name for name, key in keys.items() if key == "labels"), "")
    return exact or next((name for name, key in keys.items() if "label" in key), "")


def _with_rows(sample: object, path: Path, valid: Tensor) -> object:
    """The sample with the rows of one field that are valid, if it has as many rows."""
    rows = part_at(sample, path) if has_part(sample, path) else None
    if isinstance(rows, list) and len(rows) == len(valid):
        return with_part(sample, path, [row for row, keep in zip(rows, valid.tolist(), strict=True) if keep])
    if not isinstance(rows, Tensor) or not rows.ndim or len(rows) != len(valid):
        return sample
    from torchvision import tv_tensors

    left = rows.as_subclass(Tensor)[valid]
    return with_part(
        sample, path, tv_tensors.wrap(left, like=rows) if isinstance(rows, tv_tensors.TVTensor) else left
    )


def _to_floats(sample: object) -> object:
    """The sample with its images as floats 0..1."""
    from torchvision import tv_tensors

    def change(tensor: Tensor) -> Tensor:
        if not isinstance(tensor, tv_tensors.Image) or tensor.is_floating_point():
            return tensor
        floats: Tensor = tv_tensors.Image(
            tensor.as_subclass(Tensor).to(torch.float32) / torch.iinfo(tensor.dtype).max
        )
        return floats

    return each_tensor(sample, change)


def wrapped(plan: Plan, schema: Schema, values: Mapping[str, Any], assemble: Assemble) -> object:
    """The sample that the first Python step gets."""
    assert schema.image is not None  # every dataset has one
    image = values[schema.image.name]
    canvas = int(image.shape[-2]), int(image.shape[-1])
    return assemble(
        {name: _wrapped(schema[name], value, canvas, plan.box_format) for name, value in values.items()}
    )


def _wrapped(field: Field, value: object, canvas: tuple[int, int], box_format: str) -> object:
    """A field's value as a tv_tensor. `box_format`: of boxes that the native part has converted, or ""."""
    from torchvision import tv_tensors

    name = field.handler.tv_name(field)
    if not name:
        return value
    made = getattr(tv_tensors, name, None)
    if made is None:
        from fastload.dataset import points

        made = getattr(points, name)
    options: dict[str, Any] = {} if field.handler.has_pixels else {"canvas_size": canvas}
    if field.format:
        options["format"] = (box_format or field.format).upper()
    return field.handler.each(value, lambda tensor: made(tensor, **options))


def _paths(names: Any, at: Path = ()) -> dict[str, Path]:
    """Path of each name in a structure of names."""
    if isinstance(names, str):
        return {names: at}
    entries: Sequence[tuple[Any, Any]] = (
        list(names.items()) if isinstance(names, dict) else list(enumerate(names))
    )
    return {name: path for key, inner in entries for name, path in _paths(inner, (*at, key)).items()}
