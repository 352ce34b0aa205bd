"""FieldEncoder: brings a sample's masks, and its images besides the first, to the form that is stored, and
checks labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.errors import ArgumentError, PackError, SampleError
from fastload.packing.drawn_on import Placement
from fastload.packing.encode import Encoded, Encoder
from fastload.packing.options import PackOptions
from fastload.sources.annotated import read_label_map
from fastload.sources.notices import NOT_TURNED, ORIENTATION, TEXTS
from fastload.sources.pixels import read_pixels
from fastload.sources.protocol import Item, Source, attribute_of, schema_of
from fastload.store import Field, StoredImage

IGNORED = 255
"""The label of pixels that belong to no class, which masks may have besides those of their classes; of 16
bits so is the largest number."""


class FieldEncoder:
    """Encodes the fields of a source's samples, whose first image `Encoder` encodes. Any number of threads
    may call it.

    Raises:
        ArgumentError: the options change images, and the source has fields that lie in their pixels and
            cannot be changed with them.

    Attributes:
        image: the field of the first image.
        orientation_notice: the text of the notice on orientations that were not applied.
    """

    def __init__(self, source: Source, options: PackOptions) -> None:
        self._options = options
        self._encoder = Encoder(options)
        schema = schema_of(source)
        self.image = schema.fields[0]
        self._images = [field for field in schema.fields[1:] if field.handler.is_image]
        self._masks = [field for field in schema.fields[1:] if field.handler.holds_labels]
        limits: Mapping[str, int] = attribute_of(source, "label_limits")
        self._limits = {
            name: limit for name, limit in limits.items() if any(field.name == name for field in schema)
        }
        in_pixels = [field for field in schema if field.handler.follows_image or field.is_planes]
        shrinking = [name for name in ("max_side", "min_side") if getattr(options, name) is not None]
        if in_pixels and shrinking:
            raise ArgumentError(
                f"{shrinking[0]} changes images, but not the field {in_pixels[0].name!r} with them: "
                "resize in the transform"
            )
        known = attribute_of(source, "says_drawn_on")
        fixed = [field for field in in_pixels if not (known and field.handler.can_turn(field))]
        if fixed and options.exif == "apply":
            raise ArgumentError(
                f"exif='apply' turns images, but not the field {fixed[0].name!r} of {source.title}, "
                "which does not say whether it is for "
                "the upright pictures: turn the files themselves, or remove their orientation"
            )
        self._placement = (
            Placement(schema.fields[1:], options.exif == "apply") if in_pixels and not fixed else None
        )
        self.orientation_notice = NOT_TURNED if fixed else TEXTS[ORIENTATION]

    @property
    def plain(self) -> bool:
        """True if samples have nothing that this encodes."""
        return self.image.is_rgb and not (self._images or self._masks or self._limits or self._placement)

    def first(self, item: Item) -> Encoded:
        """The stored form of the first image. Raises as `Encoder` does."""
        if self.image.is_rgb:
            return self._encoder(item)
        pixels = self._pixels(self.image, item.image)
        height, width = pixels.shape[:2]
        return Encoded("planes", core.encode_planes(pixels), height, width, ("raw",), "pixels")

    def others(self, item: Item, first: Encoded) -> dict[str, object]:
        """The values of a sample's fields, but for the first image, as `Schema.encode` takes them.

        Raises:
            SampleError: a mask or an image cannot be decoded, or annotations do not fit the image.
            PackError: a label is beyond its classes; or a library that is needed is not installed.
        """
        values: dict[str, object] = dict(item.values)
        for field in self._images:
            values[field.name] = self.further(field, item)
        for field in self._masks:
            value = _given(item, field)
            values[field.name] = self._mask(field, value) if isinstance(value, bytes) else value
        if self._placement is not None:
            self._placement.place(item, first, values)
        for name, limit in self._limits.items():
            self._check_labels(name, values[name], limit)
        return values

    def further(self, field: Field, item: Item) -> StoredImage:
        """The stored form of an image besides the first. Raises as `others` does."""
        value = _given(item, field)
        if not field.is_rgb:
            pixels = self._pixels(field, value)
            height, width = pixels.shape[:2]
            return StoredImage("planes", core.encode_planes(pixels), height, width)
        try:
            encoded = self._encoder(replace(item, image=value))
        except SampleError as error:
            reason = f"its {field.name!r}: {error.reason}"
            raise SampleError(reason, reason=reason) from error
        return StoredImage(encoded.kind, encoded.data, encoded.height, encoded.width, encoded.index or b"")

    def _mask(self, field: Field, data: bytes) -> npt.NDArray[Any]:
        try:
            return read_label_map(data)
        except SampleError as error:
            reason = f"its {field.name!r}: {error.reason}"
            raise SampleError(reason, reason=reason) from error

    def _pixels(self, field: Field, value: object) -> npt.NDArray[Any]:
        """Pixels in the form of a field, (height, width) of one channel."""
        pixels = (
            read_pixels(value, field, self._options.max_pixels)
            if isinstance(value, bytes)
            else np.asarray(value)
        )
        if pixels.ndim == 3 and pixels.shape[2] == 1:
            pixels = pixels[:, :, 0]
        channels = pixels.shape[2:] or (1,)
        if (
            pixels.ndim not in (2, 3)
            or channels != (field.channels,)
            or not pixels.size
            or pixels.dtype.kind not in "bui"
        ):
            raise PackError(f"its {field.name!r} is {pixels.dtype} {pixels.shape}, the field {field}")
        if pixels.shape[0] * pixels.shape[1] > self._options.max_pixels:
            raise PackError(
                f"its {field.name!r} has more pixels than the limit of {self._options.max_pixels} "
                "(FASTLOAD_MAX_PIXELS)"
            )
        limit = np.iinfo(field.dtype).max
        if pixels.dtype != field.stored_dtype and not (pixels.min() >= 0 and pixels.max() <= limit):
            raise PackError(
                f"its {field.name!r} has values from {pixels.min()} to {pixels.max()}; {field.dtype} "
                f"holds 0 to {limit}"
            )
        return pixels.astype(field.stored_dtype, copy=False)

    def _check_labels(self, name: str, value: object, limit: int) -> None:
        labels = np.asarray(value)
        if labels.dtype.kind not in "bui" or not labels.size:
            return
        known = (labels >= 0) & (labels < limit)
        for field in self._masks:
            if field.name == name:
                known |= (labels == IGNORED) | (labels == np.iinfo(field.dtype).max)
        if not known.all():
            raise PackError(
                f"its {name!r} has the label {labels[~known].flat[0]}, the classes are 0 to {limit - 1}"
            )


def _given(item: Item, field: Field) -> Any:
    try:
        return item.values[field.name]
    except KeyError:
        raise PackError(f"field {field.name!r} has no value; every sample needs one for each field") from None
