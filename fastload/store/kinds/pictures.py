"""Kinds whose values are pictures: images of 8-bit RGB, images of other forms, and masks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.errors import PackError
from fastload.store.checked import shown
from fastload.store.kinds.base import (
    HEIGHT_COLUMN,
    SIDE_LIMIT,
    WIDTH_COLUMN,
    Data,
    FieldKind,
    SampleFacts,
    SampleParts,
    UprightTurn,
    numbers,
    refuse,
    unfit,
    wrong,
)
from fastload.store.kinds.codecs import BY_ENTRY, CODECS, PLANES, Pixels

if TYPE_CHECKING:
    from fastload.store.field import Field

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoredImage:
    """An image in the form that is stored: the value of an image field besides the first.

    Attributes:
        kind: name of its codec: "jpeg", "dct" (bytes that `core.DctCoder` made), "raw", "place" or "planes"
            (of `core.encode_planes`).
        data: bytes; for "raw" also pixels uint8 (height, width, 3).
        height: pixels.
        width: pixels.
        index: the entropy index of a JPEG; b"" if it has none.
    """

    kind: str
    data: Any
    height: int
    width: int
    index: bytes = b""


class PictureKind(FieldKind):
    """Base of the kinds of pictures: pixels when they are delivered, files when they are unpacked."""

    is_picture = True
    has_pixels = True
    in_native_row = True
    collated = "picture"
    member = "picture"

    def check_entry(self, field: Field, kind: int) -> None:
        if kind != self.entry:
            raise wrong(f"field {field.name!r} ({field.kind}) is stored as kind {kind}, not as planes")

    def fits_coco(self, field: Field) -> bool:
        return False


class ImageKind(PictureKind):
    """Images of 8-bit RGB, which an image codec stores. A field of another form is one of
    `PlanesImageKind`."""

    name = "image"
    dtypes = ("", "uint8", "uint16")
    entry = -1
    is_extended = False
    is_image = True
    is_rgb = True
    tv_class = "Image"

    def settled(self, field: Field) -> tuple[str, tuple[int | None, ...]]:
        dtype = self.settled_dtype(field)
        shape = field.shape or (3,)
        if shape not in ((1,), (3,), (4,)):
            raise unfit(field, f"shape {shown(field.shape)}", "an image has (1,), (3,) or (4,) channels")
        plain = dtype in ("", "uint8") and shape == (3,)
        return ("", ()) if plain else (dtype or "uint8", shape)

    def for_field(self, field: Field) -> FieldKind:
        return OTHER_FORM if field.dtype else self

    def channels(self, field: Field) -> int:
        return (field.shape or (3,))[0] or 0

    def hidden_names(self, field: Field, is_first: bool) -> tuple[str, ...]:
        return () if is_first else (f"{HEIGHT_COLUMN}:{field.name}", f"{WIDTH_COLUMN}:{field.name}")

    def encode(self, field: Field, number: int, value: object, parts: SampleParts) -> None:
        if not isinstance(value, StoredImage):
            raise PackError(
                f"field {field.name!r} ({field}) cannot hold a {type(value).__name__}: images "
                "besides the first are StoredImage"
            )
        if value.index:
            parts.entries.append((number | core.RECORD_INDEX, core.KIND_INDEX, value.index))
        parts.entries.append((number, *self._entry(field, value)))
        if field is not parts.first_image:
            parts.hidden += [value.height, value.width]

    def _entry(self, field: Field, image: StoredImage) -> tuple[int, Data | tuple[Data, ...]]:
        """(record kind, bytes) of an image. Raises PackError."""
        if not (1 <= image.height <= SIDE_LIMIT and 1 <= image.width <= SIDE_LIMIT):
            raise PackError(
                f"field {field.name!r} (image) has height {image.height} and width {image.width}; "
                "both must be at least 1"
            )
        codec = CODECS.get(image.kind)
        if codec is PLANES or not self.is_rgb:
            if codec is not PLANES or self.is_rgb or not isinstance(image.data, bytes):
                raise PackError(
                    f"field {field.name!r} ({field}) is of kind {image.kind!r}; images of 8-bit RGB "
                    "are no planes, all others are"
                )
        elif codec is None:
            kinds = ", ".join(each.name for each in BY_ENTRY.values())
            raise PackError(f"field {field.name!r} (image) is of kind {image.kind!r}; images are {kinds}")
        return codec.entry, codec.encoded(field, image.data, image.height, image.width)

    def parse(self, field: Field, kind: int, data: bytes, facts: SampleFacts) -> StoredImage | Pixels:
        codec = BY_ENTRY.get(kind)
        return StoredImage("" if codec is None else codec.name, data, *facts.size(field))

    def from_array(self, array: npt.NDArray[Any], channels_first: bool) -> npt.NDArray[Any]:
        if not channels_first:
            return array
        pixels = array.transpose(1, 2, 0)
        return np.ascontiguousarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)

    def tensors(self, value: Pixels, make: Callable[[Pixels], T]) -> T:
        """Pixels (height, width[, channels]) as a contiguous tensor (channels, height, width) of its own
        memory."""
        planes = value[None] if value.ndim == 2 else value.transpose(2, 0, 1)
        return make(np.array(planes, order="C"))


class PlanesImageKind(ImageKind):
    """Images of another form than 8-bit RGB, which are stored losslessly as planes."""

    entry = PLANES.entry
    is_extended = True
    is_rgb = False

    def parse(self, field: Field, kind: int, data: bytes, facts: SampleFacts) -> Pixels:
        self.check_entry(field, kind)
        return PLANES.parsed(field, data, facts.size(field))


OTHER_FORM = PlanesImageKind()


class MaskKind(PictureKind):
    """Masks: labels (height, width) as large as the first image, stored as planes."""

    name = "mask"
    dtypes = ("uint8", "uint16")
    entry = PLANES.entry
    is_as_large = True
    follows_image = True
    holds_labels = True
    moved_as = "masks"
    tv_class = "Mask"

    def channels(self, field: Field) -> int:
        return 1

    def encode(self, field: Field, number: int, value: object, parts: SampleParts) -> None:
        labels = numbers(field, value)
        if labels.dtype.kind not in "bui":
            raise refuse(field, value, f"labels are whole numbers, not {labels.dtype}")
        if labels.shape != parts.canvas:
            raise PackError(
                f"field {field.name!r} (mask) has shape {labels.shape}, its image {parts.canvas} "
                "(height, width)"
            )
        limit = np.iinfo(field.dtype).max
        if labels.dtype != field.stored_dtype and not (labels.min() >= 0 and labels.max() <= limit):
            raise PackError(
                f"field {field.name!r} (mask) has labels from {labels.min()} to {labels.max()}; "
                f"{field.dtype} holds 0 to {limit}"
            )
        parts.entries.append(
            (number, self.entry, core.encode_planes(labels.astype(field.stored_dtype, copy=False)))
        )

    def parse(self, field: Field, kind: int, data: bytes, facts: SampleFacts) -> Pixels:
        self.check_entry(field, kind)
        return PLANES.parsed(field, data, facts.size())

    def from_array(self, array: npt.NDArray[Any], channels_first: bool) -> npt.NDArray[Any]:
        return array[0] if array.ndim == 3 and array.shape[0] == 1 else array

    def can_turn(self, field: Field) -> bool:
        return True

    def turned(self, field: Field, value: Pixels, turn: UprightTurn) -> Pixels:
        return turn.pixels(value)

    def native_item(self, field: Field) -> dict[str, Any]:
        return {"kind": self.name, "unit": field.stored_dtype.itemsize}
