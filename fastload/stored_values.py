"""StoredValues: the fields of a packed dataset's records as a user gets them: tensors, texts, bytes and JSON values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from fastload._native import core
from fastload.errors import SampleError, TransformError
from fastload.store import DatasetReader, Field, Schema, StoredImage
from fastload.store.field import ROTATED
from fastload.store.reader import stored_size
from fastload.transforms.spec import Plan
from fastload.transforms.torchvision import known, takes_image_alone

_RAW_HEADER = 12


class StoredValues:
    """Reads fields that lie in records, of one open dataset. Any thread may call it.

    Args:
        reader: of the dataset.
        max_pixels: images and masks of more pixels are refused.
    """

    def __init__(self, reader: DatasetReader, max_pixels: int) -> None:
        self._reader = reader
        self._max_pixels = max_pixels

    def read(self, index: int, names: Sequence[str]) -> dict[str, Any]:
        """The values of sample `index` by name.

        Images are tensors (channels, height, width), masks (height, width), instances (number, height, width), uint8 or uint16; boxes,
        keypoints and arrays of any number of rows are tensors with their rows first; polygons are lists of lists of tensors (points, 2).

        Raises:
            SampleError: the record does not hold, or an image cannot be decoded; its `reason` is the reason alone.
        """
        schema = self._reader.schema
        if any(schema[name].kind in ("image", "mask", "instances") for name in names):
            self._check_pixels(index, [schema[name] for name in names if schema[name].kind in ("image", "mask", "instances")])
        found = self._reader.stored_values(index, names)
        return {name: self._tensor(index, schema[name], value) for name, value in found.items()}

    def _check_pixels(self, index: int, fields: Sequence[Field]) -> None:
        """Refuses pictures of too many pixels by the columns, before memory is asked for."""
        for field in fields:
            height, width = stored_size(self._reader, index, field)
            if height < 1 or width < 1 or height * width > self._max_pixels:
                reason = f"its columns say {width} x {height} pixels for {field.name!r}; the limit is {self._max_pixels}"
                raise SampleError(reason, reason=reason)

    def _tensor(self, index: int, field: Field, value: Any) -> Any:
        if isinstance(value, StoredImage):
            try:
                return _chw(self._decoded(index, value))
            except SampleError as error:
                reason = f"field {field.name!r}: {error.reason or error}"
                raise SampleError(reason, reason=reason) from None
        if field.kind == "image":
            return _chw(value)
        if field.kind == "polygons":
            return [[torch.from_numpy(part) for part in parts] for parts in value]
        return torch.from_numpy(value) if isinstance(value, np.ndarray) else value

    def _decoded(self, index: int, image: StoredImage) -> np.ndarray[Any, Any]:
        """The pixels (height, width, 3) of an image of 8-bit RGB."""
        data = image.data
        if image.kind == "place":
            data = self._reader.read_image(index, core.KIND_PLACE, data)[1]
        if image.kind in ("jpeg", "place"):
            pixels = core.jpeg_decode(data, None, 8, self._max_pixels)
        else:
            size = tuple(int.from_bytes(data[at : at + 4], "little") for at in (0, 4, 8))
            if image.kind != "raw" or size[2:] != (3,) or len(data) != _RAW_HEADER + size[0] * size[1] * 3:
                raise _wrong("its raw pixels do not hold")
            pixels = np.frombuffer(data, np.uint8, offset=_RAW_HEADER).reshape(size)
        if pixels.shape[:2] != (image.height, image.width):
            raise _wrong(f"it is {pixels.shape[1]} x {pixels.shape[0]}, the columns say {image.width} x {image.height}")
        return pixels


def _chw(pixels: np.ndarray[Any, Any]) -> torch.Tensor:
    """Pixels (height, width[, channels]) as a contiguous tensor (channels, height, width) of its own memory."""
    planes = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    return torch.from_numpy(np.array(planes, order="C"))


def _wrong(reason: str) -> SampleError:
    return SampleError(reason, reason=reason)


def check_transform(plan: Plan, schema: Schema, fields: Sequence[str], whole: bool) -> None:
    """Refuses a transform that would change the image and leave the other fields of the sample as they are: Python steps get them too.

    Args:
        plan: of the transform.
        schema: of the dataset.
        fields: names of the delivered fields that lie in the image's pixels, or are images themselves.
        whole: whether the image is delivered, so that Python steps get whole samples.

    Raises:
        TransformError: there is such a step; the message names it and the field.
    """
    _check_steps(plan, schema, fields)
    left = [name for name in fields if plan.views and schema[name].kind != "image"]
    allowed = ("nothing",) if plan.views else ("nothing", "python")
    for stage in plan.stages:
        alone = left if stage.where == "native" else fields
        if alone and stage.where not in allowed and stage.position not in plan.floats:
            raise TransformError(
                f"{stage.name} would change the image, and not the field {alone[0]!r} ({schema[alone[0]]}) with it: apply it to whole "
                "samples, outside of the dataset, or leave the field out with fields=[...]"
            )
        if stage.where == "python" and not whole:
            raise TransformError(
                f"{stage.name} runs in Python, on the image and what lies in it, and {fields[0]!r} is delivered without the image: add "
                "the image to fields=, or leave the step out"
            )


def _check_steps(plan: Plan, schema: Schema, fields: Sequence[str]) -> None:
    """Refuses steps that cannot take such fields at all, as check_transform() raises it."""
    beside = fields[0]
    for step in plan.python:
        if takes_image_alone(step):
            name = type(step).__name__
            raise TransformError(
                f"{name} of torchvision.transforms takes an image alone, and {beside!r} ({schema[beside]}) goes with it: use "
                f"torchvision.transforms.v2.{name}, or leave the field out with fields=[...]"
            )
    formats = [plan.box_format] if plan.box_format else []
    found = [each for step in plan.python if (each := known(step)) is not None and each.name == "ConvertBoundingBoxFormat"]
    formats += [str(getattr(each.values["format"], "name", each.values["format"])).lower() for each in found]
    boxes = [schema[name] for name in fields if schema[name].kind == "boxes"]
    for field, to in ((field, to) for field in boxes for to in formats if (field.format in ROTATED) != (to in ROTATED)):
        raise TransformError(
            f"ConvertBoundingBoxFormat makes {to} of boxes, and {field.name!r} has {field.format}: as in torchvision rotated boxes do not "
            "become upright ones, nor upright ones rotated; drop the step, or leave the field out with fields=[...]"
        )
