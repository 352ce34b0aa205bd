"""NativeImages and NativeFields: the images and the other fields of a sample's native row, and their tensors.

The images are the first of the schema, and the delivered further ones. NOTE [ fields: one row ] of
csrc/engine/fields.h has the rules: one draw moves all images and all fields beside them. It is drawn from
(seed, epoch, index) and resolved for each image's own size; so images of one size are cut and flipped alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fastload._native import core
from fastload.dataset.other_formats import size_of
from fastload.errors import SampleError, TransformError
from fastload.store import HEIGHT_COLUMN, WIDTH_COLUMN, DatasetReader, Field
from fastload.store.columns import Values
from fastload.store.kinds.polygons import polygons_of
from fastload.transforms.ops import wrong_pairs
from fastload.transforms.spec import Plan, Planes, outputs_of

Size = tuple[int, int]
"""(height, width), pixels."""
Sides = tuple[Values, Values]
"""Heights and widths, pixels."""


@dataclass(frozen=True)
class NativeImage:
    """An image of a dataset.

    Attributes:
        name: name of the field.
        number: number in records; an array if it depends on the shard.
        planes: properties of the pixels, if they are not 8-bit RGB.
        sides: returns the stored heights and widths of all samples.
        measure: reads the size of a sample's image, where the columns do not know it (0 x 0); None: they do.
            Raises SampleError with the reason alone.
    """

    name: str
    number: int | npt.NDArray[np.uint16]
    planes: Planes | None
    sides: Callable[[], Sides]
    measure: Callable[[int], Size] | None = None

    def size(self, index: int, max_pixels: int) -> Size:
        """The stored size of one sample's image. Raises SampleError with the reason alone where no image
        can have it."""
        height, width = (int(side[index]) for side in self.sides())
        if not height and self.measure is not None:
            height, width = self.measure(index)
        if height < 1 or width < 1:
            raise _reason(f"its columns say {width} x {height} pixels, which no image has")
        if height * width > max_pixels:
            raise _reason(f"its columns say {width} x {height} pixels; the limit is {max_pixels}")
        return height, width


class NativeImages:
    """The images of one dataset's native rows; each is one part of the row, or as many as the transform makes
    views.

    Attributes:
        images: the first image, then the delivered further ones, in the order of the schema.
        alone: False if a sample has any number of rows: see `fastload.dataset.image_lists`.
    """

    def __init__(self, images: Sequence[NativeImage], alone: bool = True) -> None:
        self.images, self.alone = tuple(images), alone

    @classmethod
    def of(cls, reader: DatasetReader, names: Sequence[str]) -> NativeImages:
        """The images of a packed dataset: the first, and the further ones among `names`, the delivered
        fields."""
        images = [field for field in reader.schema if field.handler.is_image]
        return cls(
            [_image(reader, field) for field in images if field == reader.schema.image or field.name in names]
        )

    @property
    def forms(self) -> tuple[Any, ...]:
        """Properties that the images of all datasets of a batch must have in common."""
        return tuple(
            (each.name, None if each.planes is None else replace(each.planes, name=""))
            for each in self.images
        )

    @property
    def only_rgb(self) -> bool:
        """True if there is one image, of 8-bit RGB: a device can turn its bytes into floats."""
        return self.alone and len(self.images) == 1 and self.images[0].planes is None

    @property
    def stored_sizes(self) -> list[Values]:
        """Heights and widths of all images, as columns."""
        return [side for each in self.images for side in each.sides()]

    def fixed_sizes(self, plan: Plan) -> tuple[Size, ...] | None:
        """The size of each part, where the transform fixes them; else None."""
        return None if plan.fixed_sizes is None else plan.fixed_sizes * len(self.images)

    def further(self, plan: Plan) -> list[tuple[str, int | npt.NDArray[np.uint16], Sequence[core.Program]]]:
        """The further images, as core.Source takes them."""
        return [(each.name, each.number, plan.programs) for each in self.images[1:]]

    def outputs(self, plan: Plan, dtype: str | None, layout: str) -> list[core.Output]:
        """Output of each part; see `fastload.transforms.spec.outputs_of`."""
        return [output for each in self.images for output in outputs_of(plan, dtype, layout, each.planes)]

    def sizes(
        self, plan: Plan, index: int, seed: int, epoch: int, max_pixels: int, drawn_as: int | None = None
    ) -> tuple[Size, ...]:
        """The size of each part of a sample; where it depends on boxes the largest. Raises SampleError
        with the reason alone. `drawn_as`: index of its draws; None: its own."""
        fixed = self.fixed_sizes(plan)
        if fixed is not None:
            return fixed
        return tuple(
            size
            for each in self.images
            for size in _sizes(each, plan, index, seed, epoch, max_pixels, drawn_as)
        )

    def part_names(self, plan: Plan) -> list[str]:
        """Name of each part in messages, in front of "of" a sample; "" if there is one part."""
        views = [f"view {number} " for number in range(1, len(plan.views) + 1)] or [""]
        if len(self.images) == 1:
            return [view.strip() for view in views]
        return [
            f"{view}of {each.name!r}" if view else repr(each.name) for each in self.images for view in views
        ]

    def by_name(self, plan: Plan, parts: Sequence[Any]) -> dict[str, Any]:
        """Each image's part, or the list of its views, by name, of the parts of a row or a batch."""
        views = len(plan.views)
        if not views:
            return {each.name: part for each, part in zip(self.images, parts, strict=True)}
        return {each.name: list(parts[at * views : (at + 1) * views]) for at, each in enumerate(self.images)}


def _sizes(
    image: NativeImage, plan: Plan, index: int, seed: int, epoch: int, max_pixels: int, drawn_as: int | None
) -> list[Size]:
    height, width = image.size(index, max_pixels)
    key = seed, epoch, index if drawn_as is None else drawn_as
    sizes = [program.size(width, height, *key) for program in plan.programs]
    for wide, high in sizes:
        if wide * high > max_pixels:
            raise _reason(f"the transform makes {wide} x {high} pixels of it; the limit is {max_pixels}")
    return [(high, wide) for wide, high in sizes]


def _image(reader: DatasetReader, field: Field) -> NativeImage:
    schema = reader.schema
    height, width = (HEIGHT_COLUMN, WIDTH_COLUMN) if field == schema.image else schema.hidden_names(field)
    planes = Planes(field.name, field.channels, np.dtype(field.dtype).itemsize) if field.is_planes else None
    foreign = reader.manifest.is_foreign and field == schema.image
    return NativeImage(
        field.name,
        number_of(reader, field.name),
        planes,
        lambda: (reader.values(height), reader.values(width)),
        partial(_measured, reader) if foreign else None,
    )


def _measured(reader: DatasetReader, index: int) -> Size:
    if not reader.is_foreign(index):
        return 0, 0
    ((_, _, data),) = reader.record_fields(index)
    return size_of(data)


def number_of(reader: DatasetReader, name: str) -> int | npt.NDArray[np.uint16]:
    """The number of a field in records; an array where it depends on the shard."""
    ours, shards = reader.schema.number(name), reader.manifest.shards
    known = {
        fields: ours if fields is None else fields.index(name)
        for fields in {shard.fields for shard in shards}
    }
    if len(set(known.values())) > 1:
        return np.array([known[shard.fields] for shard in shards], np.uint16)
    return next(iter(known.values()), ours)


def _reason(reason: str) -> SampleError:
    return SampleError(reason, reason=reason)


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
                f'keypoint_pairs="auto": which of the {field.shape[0]} keypoints of {field.name!r} '
                "mirror each other is not known of this "
                "dataset: give the pairs, as keypoint_pairs=[(1, 2), (3, 4)], or pack it from a "
                "source that names its keypoints"
            )
        return field.pairs
    if wrong := wrong_pairs(pairs, int(field.shape[0] or 0)):
        raise TransformError(f"keypoint_pairs={pairs!r} does not fit {field.name!r} ({field}): {wrong}")
    return pairs


@dataclass(frozen=True)
class NativeField:
    """A field of the native row.

    Attributes:
        field: the field of the schema.
        hidden: True if only the geometry needs it, and it is not delivered.
        mask_dtype: dtype to which masks and instances are converted, a name of torch's dtypes; "": they stay
            as they are.
    """

    field: Field
    hidden: bool = False
    mask_dtype: str = ""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the field's values; for polygons, of the point coordinates."""
        return self.field.handler.native_dtype(self.field)

    @property
    def in_image(self) -> bool:
        """True if the values are as large as the image."""
        return self.field.handler.is_as_large

    @property
    def is_ragged(self) -> bool:
        """True if rows have no common shape: they come as lists of parts, and not as one tensor."""
        return self.field.handler.is_ragged

    def row_shape(self, size: Size) -> tuple[int, ...]:
        """Shape of one of its rows, in a sample whose image has that size; of a mask, its shape. Not of
        polygons."""
        return size if self.in_image else self.field.row_shape

    def outlines(self, memory: torch.Tensor, at: int, end: int) -> list[list[torch.Tensor]]:
        """Polygons of one sample, copied: of each object its parts, float32 (points, 2). They lie in the
        bytes from `at` to `end`."""
        return [
            [torch.from_numpy(part) for part in parts] for parts in polygons_of(memory[at:end].numpy().data)
        ]

    def values(self, memory: torch.Tensor, at: int, rows: int | None, size: Size) -> torch.Tensor:
        """The tensor of one sample, without a copy but for a conversion: it keeps the memory. Not for
        polygons.

        Args:
            memory: bytes, as a flat uint8 tensor.
            at: the first byte in it.
            rows: number of rows; None for a mask.
            size: size of the sample's image.
        """
        shape = self.row_shape(size) if rows is None else (rows, *self.row_shape(size))
        values = (
            memory[at : at + math.prod(shape) * self.dtype.itemsize]
            .view(getattr(torch, self.dtype.name))
            .view(shape)
        )
        return values.to(getattr(torch, self.mask_dtype)) if self.mask_dtype and self.in_image else values


class NativeFields:
    """The fields of one dataset's native rows, in the order of the schema.

    Args:
        reader: reader of the dataset.
        names: the delivered fields of native rows, without images.
        plan: plan of the transform. If it needs the sample's boxes, the first boxes of the schema decide
            crops, and boxes that are dropped take the rows that are `of` them along, delivered or not.
    """

    def __init__(self, reader: DatasetReader, names: Sequence[str], plan: Plan) -> None:
        self._reader, self._plan = reader, plan
        schema = reader.schema
        wanted = {name: False for name in names if not schema[name].handler.is_image}
        if plan.of_boxes:
            first = next((field.name for field in schema if field.handler.owns_objects), "")
            for name in (first, *(schema[name].of for name in list(wanted))):
                if name:
                    wanted.setdefault(name, True)
        self.fields = tuple(
            NativeField(field, wanted[field.name], plan.mask_dtype)
            for field in schema
            if field.name in wanted
        )
        self._places = {each.field.name: place for place, each in enumerate(self.fields)}

    @property
    def names(self) -> list[str]:
        """Names of the fields that are delivered."""
        return [each.field.name for each in self.fields if not each.hidden]

    @property
    def counts(self) -> list[str]:
        """Names of the columns that count the rows of fields of any number."""
        schema = self._reader.schema
        return [
            name for each in self.fields if each.field.is_varying for name in schema.hidden_names(each.field)
        ]

    @property
    def items(self) -> list[dict[str, Any]]:
        """The fields, as core.Source takes them."""
        return [self._item(each) for each in self.fields]

    def _item(self, each: NativeField) -> dict[str, Any]:
        field, reader = each.field, self._reader
        item = {
            "name": field.name,
            "hidden": each.hidden,
            "field": number_of(reader, field.name),
            **field.handler.native_item(field),
        }
        if field.is_varying:
            (counts,) = reader.schema.hidden_names(field)
            tables = reader.tables(counts)
            item |= {
                "counts": reader.column(counts) if tables is None else tables,
                "of": self._places.get(field.of, -1),
            }
        return item | ({"pairs": exchanged_pairs(self._plan, field)} if field.handler.has_points else {})

    def sample(self, made: Sequence[tuple[npt.NDArray[np.uint8], int] | None], size: Size) -> dict[str, Any]:
        """The values of one sample by name, of what core.Decoder made, without a copy but of polygons."""
        out: dict[str, Any] = {}
        for each, found in zip(self.fields, made, strict=True):
            if found is None:
                continue
            memory, count = torch.from_numpy(found[0]), found[1]
            if each.is_ragged:
                out[each.field.name] = each.outlines(memory, 0, len(memory))
            else:
                out[each.field.name] = each.values(memory, 0, count if each.field.is_varying else None, size)
        return out
