"""Field: one named value that every sample of a dataset has, with its kind, dtype and shape.

| kind | value of one sample | dtype | shape |
|---|---|---|---|
| images | any number of images, each as an image of 8-bit RGB | | |
| image | pixels | uint8 (default) or uint16 | (channels,): 1, 3 (default) or 4 |
| mask | labels (height, width), as large as the first image | uint8 (default) or uint16 | |
| boxes | any number of rows of `format` | float32 (default) or int64 | |
| keypoints | any number of objects, each (K, 2) or (K, 3): x, y and visibility | float32 | (K, 2) or (K, 3) |
| polygons | any number of objects, each a list of closed lines of points | float32 | |
| instances | any number of objects, each a binary mask as large as the first image | | |
| array | of fixed shape; with None first, any number of rows | any of `ARRAY_DTYPES` | of the array |
| int, float | a number | int64, float64 | |
| bytes, text, json | bytes, a text, a JSON value | | |
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from fastload.errors import ArgumentError
from fastload.store.checked import Bad, get_int, get_list, get_object, get_str, shown
from fastload.store.kinds import KINDS
from fastload.store.kinds.base import SIDE_LIMIT, FieldKind, unfit
from fastload.store.kinds.rows import POINT_LIMIT
from fastload.transforms.ops import wrong_pairs

KindName = Literal[
    "image",
    "int",
    "float",
    "array",
    "bytes",
    "text",
    "json",
    "mask",
    "boxes",
    "keypoints",
    "polygons",
    "instances",
    "images",
]

NAME_LIMIT = 100


@dataclass(frozen=True)
class Field:
    """One field that every sample has.

    Attributes:
        name: 1 to 100 printable characters; names that begin with two underscores are fastload's own.
        kind: see the table above.
        dtype: NumPy's name of the dtype; it follows from the kind where the kind has one or a default. "" for
            bytes, text, json and instances, and for 8-bit images of three channels.
        shape: for an array, its shape; for keypoints, that of one object's; for an image, (channels,); () for
            other kinds, and for 8-bit images of three channels.
        format: for boxes: xyxy, xywh, cxcywh, xywhr, cxcywhr or xyxyxyxy; "" for other kinds.
        of: for keypoints, polygons, instances and arrays of any number of rows: the name of the boxes to
            whose objects the rows belong, one row a box. "" for rows of their own.
        names: for keypoints, the name of each of an object's K points; (): they have none. Names and pairs do
            not count in comparisons of fields.
        pairs: for keypoints, the numbers of those that a mirror exchanges, such as left and right eye: the
            transform's flips exchange them if they are asked to. (): none are known.

    Raises:
        ArgumentError: one of these is invalid.
    """

    name: str
    kind: KindName
    dtype: str = ""
    shape: tuple[int | None, ...] = ()
    format: str = ""
    of: str = ""
    names: tuple[str, ...] = field(default=(), compare=False)
    pairs: tuple[tuple[int, int], ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        _check_name(self.name)
        if not isinstance(self.kind, str) or self.kind not in KINDS:
            raise ArgumentError(
                f"field {self.name!r} is of kind {shown(self.kind)}; kinds are {', '.join(KINDS)}"
            )
        if not isinstance(self.shape, tuple | list):
            raise unfit(self, f"shape {shown(self.shape)}", "a shape is a tuple")
        object.__setattr__(self, "shape", tuple(self.shape))
        formats = KINDS[self.kind].formats
        dtype, shape = KINDS[self.kind].settled(self)
        if self.format not in formats:
            wanted = (
                f"{self.kind} have one of {', '.join(formats)}"
                if any(formats)
                else f"kind {self.kind} takes none"
            )
            raise unfit(self, f"format {shown(self.format)}", wanted)
        object.__setattr__(self, "dtype", dtype)
        object.__setattr__(self, "shape", tuple(None if side is None else int(side) for side in shape))
        self._check_points()
        if self.of and (not isinstance(self.of, str) or not self.has_objects):
            raise ArgumentError(
                f"field {self.name!r} of kind {self.kind} is of={shown(self.of)}; keypoints, "
                "polygons, instances and arrays of any "
                "number of rows belong to boxes"
            )

    def _check_points(self) -> None:
        names, pairs = tuple(self.names), tuple(tuple(pair) for pair in self.pairs)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "pairs", pairs)
        if (names or pairs) and not self.handler.has_points:
            raise unfit(self, "names or pairs of points", f"kind {self.kind} takes none")
        if names and (len(names) != self.shape[0] or not all(is_point_name(name) for name in names)):
            raise unfit(
                self,
                f"{len(names)} names of its points",
                f"give one of 1 to {NAME_LIMIT} printable characters for each of the {self.shape[0]}",
            )
        if pairs and (wrong := wrong_pairs(pairs, int(self.shape[0] or 0))):
            raise unfit(self, "pairs of points that are none", wrong)

    @cached_property
    def handler(self) -> FieldKind:
        """Behaviour of the field's kind, for this field."""
        return KINDS[self.kind].for_field(self)

    def __getstate__(self) -> dict[str, Any]:
        """Attributes without the handler, which each process has from its own KINDS."""
        return {name: value for name, value in vars(self).items() if name != "handler"}

    @property
    def is_column(self) -> bool:
        """True if it is a fixed-size column rather than part of the record."""
        return self.handler.is_column

    @property
    def is_varying(self) -> bool:
        """True if a sample has any number of its rows: boxes, keypoints, polygons, instances and arrays
        whose first side is None."""
        return self.handler.is_varying

    @property
    def has_objects(self) -> bool:
        """True if its rows may belong to boxes (`of`)."""
        return self.handler.has_objects

    @property
    def is_rgb(self) -> bool:
        """True if it is an image of 8 bits and three channels, which is stored as a JPEG or raw pixels."""
        return self.handler.is_rgb

    @property
    def is_planes(self) -> bool:
        """True if it is stored losslessly as planes: a mask, or an image of another form than 8-bit RGB."""
        return self.handler.is_picture and not self.handler.is_rgb

    @property
    def channels(self) -> int:
        """Channels of an image or a mask; 0 for other kinds."""
        return self.handler.channels(self)

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of one row of a varying field with rows of one shape: of a box, an object's keypoints, or
        an array's row."""
        return self.handler.row_shape(self)

    @property
    def is_extended(self) -> bool:
        """True if only format version 3 has it."""
        return self.handler.is_extended

    @property
    def stored_dtype(self) -> np.dtype[Any]:
        """The dtype as stored: little-endian."""
        dtype: np.dtype[Any] = np.dtype(self.dtype).newbyteorder("<")
        return dtype

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of the column; 0 for fields in the record."""
        return (
            math.prod(side or 0 for side in self.shape) * self.stored_dtype.itemsize if self.is_column else 0
        )

    def other_points(self, other: Field) -> str:
        """The property of keypoints, "names" or "pairs", that both fields have with different values; "":
        the points mean the same."""
        if self.names and other.names and self.names != other.names:
            return "names"
        return "pairs" if self.pairs and other.pairs and self.pairs != other.pairs else ""

    def __str__(self) -> str:
        """The kind with what goes with it, for messages: array int64 (None,) of boxes."""
        return self._told(str(self.shape) if self.shape else "") + (f" of {self.of}" if self.of else "")

    def describe(self) -> str:
        """The kind with what goes with it, for people: array int64 any number x 3, of boxes."""
        if self.handler.is_list:
            return "any number of images"
        shape = " x ".join("any number" if side is None else str(side) for side in self.shape)
        return self._told(shape) + (f", of {self.of}" if self.of else "")

    def _told(self, shape: str) -> str:
        words = (self.kind, self.dtype if self.handler.shows_dtype else "", shape, self.format)
        return " ".join(word for word in words if word)

    def to_json(self) -> dict[str, Any]:
        """The JSON form that the manifest stores."""
        out: dict[str, Any] = {"name": self.name, "kind": self.kind, **self.handler.json_keys(self)}
        out |= {"format": self.format} if self.format else {}
        out |= {"of": self.of} if self.of else {}
        out |= {"names": list(self.names)} if self.names else {}
        out |= {"pairs": [list(pair) for pair in self.pairs]} if self.pairs else {}
        return out

    @classmethod
    def from_json(cls, value: object) -> Field:
        """Parses a field of a manifest; every value is checked.

        Raises:
            Bad: a value is invalid.
        """
        stored = get_object(value, "a field")
        name = get_str(stored.get("name"), "a field's name")
        texts = {
            key: get_str(stored.get(key, ""), f"the {key} of field {shown(name)}")
            for key in ("dtype", "format", "of")
        }
        kind = get_str(stored.get("kind"), f"the kind of field {shown(name)}")
        shape = get_list(stored.get("shape", []), f"the shape of field {shown(name)}")
        sides = tuple(None if side is None else get_int(side, "a side", 1, SIDE_LIMIT) for side in shape)
        names = tuple(
            get_str(each, "a name")
            for each in get_list(stored.get("names", []), f"the names of field {shown(name)}")
        )
        pairs = [
            get_list(pair, "a pair")
            for pair in get_list(stored.get("pairs", []), f"the pairs of field {shown(name)}")
        ]
        numbers = tuple(tuple(get_int(each, "a point", 0, POINT_LIMIT) for each in pair) for pair in pairs)
        try:
            return cls(name, kind, shape=sides, names=names, pairs=numbers, **texts)  # type: ignore[arg-type]
        except ArgumentError as error:
            raise Bad(str(error)) from None


def is_point_name(name: object) -> bool:
    """Returns True if a value can be the name of a keypoint."""
    return isinstance(name, str) and name.isprintable() and 1 <= len(name) <= NAME_LIMIT


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name.isprintable() or name != name.strip():
        raise ArgumentError(f"field name {shown(name)} must be printable text without blanks around it")
    if not 1 <= len(name) <= NAME_LIMIT or name.startswith("__"):
        raise ArgumentError(
            f"field name {shown(name)} must have 1 to {NAME_LIMIT} characters and not begin with __"
        )
