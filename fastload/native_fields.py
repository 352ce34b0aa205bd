"""NativeFields: the fields beside its image that a sample's native row has: which they are, and their tensors.

NOTE [ fields: one row ] of csrc/engine/fields.h has the rules: one draw moves the image and everything here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fastload.errors import TransformError
from fastload.native_images import Size, number_of
from fastload.store import DatasetReader, Field
from fastload.store.values import polygons_of
from fastload.transforms.ops import wrong_pairs
from fastload.transforms.spec import Plan


def exchanged_pairs(plan: Plan, field: Field) -> tuple[tuple[int, int], ...]:
    """Numbers of the keypoints of a field that a plan's flips exchange.

    Raises:
        TransformError: the field does not know them, or has fewer points.
    """
    pairs = plan.keypoint_pairs
    if pairs is None:
        return ()
    if isinstance(pairs, str):
        if not field.pairs:
            raise TransformError(
                f'keypoint_pairs="auto": which of the {field.shape[0]} keypoints of {field.name!r} mirror each other is not known of this '
                "dataset: give the pairs, as keypoint_pairs=[(1, 2), (3, 4)], or pack it from a source that names its keypoints"
            )
        return field.pairs
    if wrong := wrong_pairs(pairs, int(field.shape[0] or 0)):
        raise TransformError(f"keypoint_pairs={pairs!r} does not fit {field.name!r} ({field}): {wrong}")
    return pairs


@dataclass(frozen=True)
class NativeField:
    """A field of the native row.

    Attributes:
        field: of the schema.
        hidden: the geometry needs it, and nobody gets it.
        mask_dtype: what masks and instances are converted to, a name of torch's dtypes; "": they stay as they are.
    """

    field: Field
    hidden: bool = False
    mask_dtype: str = ""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of its values; of polygons of their points' x and y."""
        return np.dtype(np.uint8) if self.field.kind == "instances" else self.field.stored_dtype

    @property
    def in_image(self) -> bool:
        """Whether its values are as large as the image."""
        return self.field.kind in ("mask", "instances")

    def row_shape(self, size: Size) -> tuple[int, ...]:
        """Shape of one of its rows, in a sample whose image has that size; of a mask, its shape. Not of polygons."""
        return size if self.in_image else self.field.row_shape

    def outlines(self, memory: Any, at: int, end: int) -> list[list[torch.Tensor]]:
        """Polygons of one sample, copied: of each object its parts, float32 (points, 2). They lie in the bytes from `at` to `end`."""
        return [[torch.from_numpy(part) for part in parts] for parts in polygons_of(memoryview(memory)[at:end])]

    def values(self, memory: Any, at: int, rows: int | None, size: Size) -> torch.Tensor:
        """The tensor of one sample, without a copy but for a conversion: it keeps the memory. Not of polygons.

        Args:
            memory: a writable buffer of bytes.
            at: the first byte in it.
            rows: how many; None of a mask.
            size: of the sample's image.
        """
        shape = self.row_shape(size) if rows is None else (rows, *self.row_shape(size))
        values = torch.from_numpy(np.frombuffer(memory, self.dtype, math.prod(shape), at).reshape(shape))
        return values.to(getattr(torch, self.mask_dtype)) if self.mask_dtype and self.in_image else values


class NativeFields:
    """The fields of one dataset's native rows, in the order of the schema.

    Args:
        reader: of the dataset.
        names: of the delivered fields of native rows; images among them are not these.
        plan: of the transform. Where that needs the sample's boxes, the first boxes of the schema decide of crops, and boxes that are
            dropped take the rows that are `of` them along, delivered or not.
    """

    def __init__(self, reader: DatasetReader, names: Sequence[str], plan: Plan) -> None:
        self._reader, self._plan = reader, plan
        schema = reader.schema
        wanted = {name: False for name in names if schema[name].kind != "image"}
        if plan.of_boxes:
            first = next((field.name for field in schema if field.kind == "boxes"), "")
            for name in (first, *(schema[name].of for name in list(wanted))):
                if name:
                    wanted.setdefault(name, True)
        self.fields = tuple(NativeField(field, wanted[field.name], plan.mask_dtype) for field in schema if field.name in wanted)
        self._places = {each.field.name: place for place, each in enumerate(self.fields)}

    @property
    def names(self) -> list[str]:
        """Of the fields that are delivered."""
        return [each.field.name for each in self.fields if not each.hidden]

    @property
    def items(self) -> list[dict[str, Any]]:
        """As core.Source takes them."""
        return [self._item(each) for each in self.fields]

    def _item(self, each: NativeField) -> dict[str, Any]:
        field, reader = each.field, self._reader
        item: dict[str, Any] = {"kind": "rows" if field.kind == "array" else field.kind, "name": field.name, "hidden": each.hidden}
        item["field"] = number_of(reader, field.name)
        if field.kind == "mask":
            return item | {"unit": each.dtype.itemsize}
        (counts,) = reader.schema.hidden_names(field)
        item["counts"] = reader.column(counts)
        item["of"] = self._places.get(field.of, -1)
        item["unit"] = 4 if field.kind in ("instances", "polygons") else math.prod(field.row_shape) * each.dtype.itemsize
        if field.kind == "boxes":
            item |= {"format": field.format, "integer": field.dtype == "int64"}
        elif field.kind == "keypoints":
            item |= {"columns": field.row_shape[-1], "pairs": exchanged_pairs(self._plan, field)}
        return item

    def sample(self, made: Sequence[tuple[npt.NDArray[np.uint8], int] | None], size: Size) -> dict[str, Any]:
        """The values of one sample by name, of what core.Decoder made, without a copy but of polygons."""
        out: dict[str, Any] = {}
        for each, found in zip(self.fields, made, strict=True):
            if found is not None and each.field.kind == "polygons":
                out[each.field.name] = each.outlines(found[0], 0, len(found[0]))
            elif found is not None:
                out[each.field.name] = each.values(found[0], 0, None if each.field.kind == "mask" else found[1], size)
        return out
