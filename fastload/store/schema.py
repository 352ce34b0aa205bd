"""Schema: the named fields of a dataset's samples, and where each is stored.

Fields of fixed size (int, float, array) are columns of the shard; the others are stored in the sample's
record. A field's number in records is its position in the schema.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np

from fastload._native import core
from fastload.errors import ArgumentError, PackError
from fastload.store.checked import Bad, get_list, shown
from fastload.store.field import Field
from fastload.store.kinds.base import COUNT_COLUMN, HEIGHT_COLUMN, WIDTH_COLUMN, Entry, SampleParts
from fastload.store.kinds.codecs import BY_ENTRY
from fastload.store.kinds.pictures import StoredImage

CRC_COLUMN = "__crc32c__"
AnyEntry = TypeVar("AnyEntry", bound=tuple[int, int, Any])
HIDDEN_COLUMNS: Mapping[str, np.dtype[Any]] = {
    HEIGHT_COLUMN: np.dtype("<i4"),
    WIDTH_COLUMN: np.dtype("<i4"),
    CRC_COLUMN: np.dtype("<u4"),
}
"""Hidden columns of every dataset. `hidden_names` has those that a field adds."""
COUNT_DTYPE = np.dtype("<i4")
"""Dtype of the hidden columns that fields add."""
FIELD_LIMIT = 1000


@dataclass(frozen=True)
class Schema:
    """The fields of every sample, in order.

    The first image is *the* image: the hidden columns `__height__` and `__width__` are its size, which is the
    *canvas* of the sample: masks and instances have it too. A further image has such columns of its own, and
    a field of any number of rows one with their number: see `hidden_names`.

    Raises:
        ArgumentError: there is no field, there are two of one name, a mask or instances without an image, or
            a field is of boxes that there are not.
    """

    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", tuple(self.fields))
        names = [field.name for field in self.fields]
        if not 1 <= len(names) <= FIELD_LIMIT:
            raise ArgumentError(f"a schema has 1 to {FIELD_LIMIT} fields, this one {len(names)}")
        for name in names:
            if names.count(name) > 1:
                raise ArgumentError(f"two fields are called {name!r}; rename one")
        if self.images is not None and (self.image or sum(each.handler.is_list for each in self.fields) > 1):
            raise ArgumentError(
                f"field {self.images.name!r} is of kind images, beside which a sample has no other images"
            )
        boxes = {field.name for field in self.fields if field.handler.owns_objects}
        for field in self.fields:
            if field.handler.is_as_large and self.image is None:
                raise ArgumentError(
                    f"field {field.name!r} ({field.kind}) needs an image, whose size it has; the "
                    "schema has none"
                )
            if field.of and field.of not in boxes:
                known = ", ".join(sorted(boxes)) or "none"
                raise ArgumentError(
                    f"field {field.name!r} is of={field.of!r}, which is no field of kind boxes; "
                    f"there are: {known}"
                )

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __getitem__(self, name: str) -> Field:
        for field in self.fields:
            if field.name == name:
                return field
        raise ArgumentError(
            f"there is no field {shown(name)}; fields are {', '.join(f.name for f in self.fields)}"
        )

    def number(self, name: str) -> int:
        """The number of a field in records. Raises ArgumentError if there is no field of that name."""
        return self.fields.index(self[name])

    @cached_property
    def image(self) -> Field | None:
        """The first image, which decides the sample's canvas; None: there is no image."""
        return next((field for field in self.fields if field.handler.is_image), None)

    @cached_property
    def images(self) -> Field | None:
        """The field of any number of images; None: there is none."""
        return next((field for field in self.fields if field.handler.is_list), None)

    @cached_property
    def is_extended(self) -> bool:
        """True if only format version 3 can describe it: it has several images, or kinds that older
        versions do not know."""
        return sum(field.handler.is_image for field in self.fields) > 1 or any(
            field.is_extended for field in self.fields
        )

    def hidden_names(self, field: Field) -> tuple[str, ...]:
        """Names of the hidden int32 columns of a field: the number of its rows, or height and width of an
        image that is not the first."""
        return field.handler.hidden_names(field, field == self.image)

    @cached_property
    def columns(self) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """(dtype, shape of a row) of every column, with the hidden ones last."""
        own: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {}
        for field in self.fields:
            if field.is_column:
                own[field.name] = field.stored_dtype, tuple(side or 0 for side in field.shape)
        for name in (name for field in self.fields for name in self.hidden_names(field)):
            own[name] = COUNT_DTYPE, ()
        return own | {name: (dtype, ()) for name, dtype in HIDDEN_COLUMNS.items()}

    @cached_property
    def own_columns(self) -> frozenset[str]:
        """Names of the fields that are columns; other columns are hidden."""
        return frozenset(field.name for field in self.fields if field.is_column)

    @cached_property
    def row_bytes(self) -> int:
        """Bytes that one sample takes in all columns together."""
        return sum(dtype.itemsize * math.prod(shape) for dtype, shape in self.columns.values())

    def to_json(self) -> list[dict[str, Any]]:
        """The JSON form that the manifest stores."""
        return [field.to_json() for field in self.fields]

    @classmethod
    def from_json(cls, value: object) -> Schema:
        """Parses the schema of a manifest; every value is checked.

        Raises:
            Bad: a value is invalid.
        """
        stored = get_list(value, "the schema")
        if len(stored) > FIELD_LIMIT:
            raise Bad(f"the schema has {len(stored)} fields, at most {FIELD_LIMIT} are allowed")
        try:
            return cls(tuple(Field.from_json(each) for each in stored))
        except ArgumentError as error:
            raise Bad(str(error)) from None

    def encode(
        self, values: Mapping[str, object], image_kind: str | None, height: int, width: int
    ) -> tuple[list[Entry], list[Any]]:
        """A sample's record entries, and its values in the order of `columns`, but for the hidden ones that
        every dataset has.

        Args:
            values: one value per field, by name. Images but the first are `StoredImage`; the first one may
                be.
            image_kind: "jpeg" and "dct" (the first image is bytes), "raw" (uint8 (height, width, 3), or its
                bytes), "planes" (of another form) or "place" (of a JPEG in another file, bytes of a
                `fastload.store.shard.StoredPlace`); None without one.
            height: height of the first image, pixels.
            width: width of the first image, pixels.

        Raises:
            PackError: a field without a value, a value without a field, or one that its field cannot hold;
                names both. RowError where it is one row of any number.
        """
        if len(values) != len(self.fields):
            for name in values:
                if not any(field.name == name for field in self.fields):
                    raise PackError(
                        f"a value is given for {name!r}, which is no field; fields are "
                        f"{[f.name for f in self.fields]}"
                    )
        parts = SampleParts((height, width), self.image)
        for number, field in enumerate(self.fields):
            if field.name not in values:
                raise PackError(f"field {field.name!r} has no value; every sample needs one for each field")
            value = values[field.name]
            if field is self.image and not isinstance(value, StoredImage):
                value = StoredImage(cast(str, image_kind), value, height, width)
            field.handler.encode(field, number, value, parts)
        self._check_counts(parts.counts)
        return parts.entries, parts.row + parts.hidden

    def _check_counts(self, counts: Mapping[str, int]) -> None:
        """Checks that fields whose rows belong to boxes have as many rows as there are boxes."""
        for field in self.fields:
            if field.of and counts[field.name] != counts[field.of]:
                owners = f"the {counts[field.of]} rows of {field.of!r}, to which they belong"
                raise PackError(f"field {field.name!r} has {counts[field.name]} rows for {owners}")


def indexed_image(entries: Iterable[AnyEntry]) -> AnyEntry | None:
    """The first entry of an image that may have an entropy index; None: there is none."""
    return next(
        (entry for entry in entries if entry[1] in BY_ENTRY and BY_ENTRY[entry[1]].can_be_indexed), None
    )


def with_index(entries: Sequence[Entry], index: bytes) -> list[Entry]:
    """A record's entries with `index` as the entropy index of its first JPEG, in the place of an old one;
    b"": without any.

    It comes first, but for the place of an attached JPEG: a reader ahead needs that, and reads no more than
    the beginning of a record.
    """
    jpeg = indexed_image(entries)
    number = -1 if jpeg is None else jpeg[0] | core.RECORD_INDEX
    kept = [entry for entry in entries if entry[0] != number or entry[1] != core.KIND_INDEX]
    if jpeg is None or not index:
        return kept
    place = [jpeg] if BY_ENTRY[jpeg[1]].is_first else []
    return [*place, (number, core.KIND_INDEX, index), *(entry for entry in kept if entry not in place)]


def column_owner(name: str) -> str:
    """The field that a column is of: for a hidden column that a field adds, that field; otherwise the
    column's own name."""
    kind, colon, owner = name.partition(":")
    return owner if colon and kind in (COUNT_COLUMN, HEIGHT_COLUMN, WIDTH_COLUMN) else name
