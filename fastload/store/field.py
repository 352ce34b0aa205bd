"""Field: one named value that every sample of a dataset has, with its kind, dtype and shape.

| kind | value of one sample | dtype | shape |
|---|---|---|---|
| image | pixels | uint8 (default) or uint16 | (channels,): 1, 3 (default) or 4 |
| mask | labels (height, width), as large as the first image | uint8 (default) or uint16 | |
| boxes | any number of rows of `format` | float32 (default) or int64 | |
| keypoints | any number of objects, each (K, 2) or (K, 3): x, y and visibility | float32 | (K, 2) or (K, 3) |
| polygons | any number of objects, each a list of closed lines of points | float32 | |
| instances | any number of objects, each a binary mask as large as the first image | | |
| array | an array of fixed shape; with None first, any number of rows | any of `ARRAY_DTYPES` | of the array |
| int, float | a number | int64, float64 | |
| bytes, text, json | bytes, a text, a JSON value | | |
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from fastload.errors import ArgumentError
from fastload.store.checked import Bad, get_int, get_list, get_object, get_str, shown
from fastload.transforms.ops import KEYPOINTS_MOST, wrong_pairs

Kind = Literal["image", "int", "float", "array", "bytes", "text", "json", "mask", "boxes", "keypoints", "polygons", "instances"]

KINDS: tuple[str, ...] = get_args(Kind)
ARRAY_DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
)  # fmt: skip
BOX_SIDES: Mapping[str, int] = {"xyxy": 4, "xywh": 4, "cxcywh": 4, "xywhr": 5, "cxcywhr": 5, "xyxyxyxy": 8}
"""Numbers in one box of each format: the members of torchvision's BoundingBoxFormat, in lower case."""
ROTATED = frozenset({"xywhr", "cxcywhr", "xyxyxyxy"})
"""Formats of rotated boxes, which are not converted to upright ones."""
KINDS_IN_IMAGE = frozenset({"mask", "boxes", "keypoints", "polygons", "instances"})
"""Kinds whose values lie in the pixels of the first image, so that what moves those moves them."""
NAME_LIMIT = 100
ROW_LIMIT = 1 << 24
"""Limit on one row of an array field, in bytes; larger values belong in a field of kind bytes."""
SIDE_LIMIT = 2**31 - 1
POINT_LIMIT = KEYPOINTS_MOST
"""Limit on the keypoints of one object."""

_FIXED_DTYPES = {"int": "int64", "float": "float64"}
_DTYPES: Mapping[str, tuple[str, ...]] = {
    "image": ("", "uint8", "uint16"),
    "mask": ("uint8", "uint16"),
    "boxes": ("float32", "int64"),
    "keypoints": ("float32",),
    "polygons": ("float32",),
}
"""dtypes of the kinds for which one can be chosen, the default first."""
_OF_OBJECTS = ("keypoints", "polygons", "instances")


@dataclass(frozen=True)
class Field:
    """One field that every sample has.

    Attributes:
        name: 1 to 100 printable characters; names that begin with two underscores are fastload's own.
        kind: see the table above.
        dtype: NumPy's name of the dtype; it follows from the kind where the kind has one or a default. "" for bytes, text, json and
            instances, and for 8-bit images of three channels.
        shape: for an array, its shape; for keypoints, that of one object's; for an image, (channels,); () for other kinds, and for 8-bit
            images of three channels.
        format: for boxes: xyxy, xywh, cxcywh, xywhr, cxcywhr or xyxyxyxy; "" for other kinds.
        of: for keypoints, polygons, instances and arrays of any number of rows: the name of the boxes to whose objects the rows belong,
            one row a box. "" for rows of their own.
        names: for keypoints, the name of each of an object's K points; (): they have none. Names and pairs do not count in comparisons of
            fields.
        pairs: for keypoints, the numbers of those that a mirror exchanges, such as left and right eye: the transform's flips exchange them
            if they are asked to. (): none are known.

    Raises:
        ArgumentError: one of these is invalid.
    """

    name: str
    kind: Kind
    dtype: str = ""
    shape: tuple[int | None, ...] = ()
    format: str = ""
    of: str = ""
    names: tuple[str, ...] = field(default=(), compare=False)
    pairs: tuple[tuple[int, int], ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        _check_name(self.name)
        if self.kind not in KINDS:
            raise ArgumentError(f"field {self.name!r} is of kind {shown(self.kind)}; kinds are {', '.join(KINDS)}")
        if not isinstance(self.shape, tuple | list):
            raise self._refused(f"shape {shown(self.shape)}", "a shape is a tuple")
        object.__setattr__(self, "shape", tuple(self.shape))
        if self.kind == "array":
            self._check_array()
        elif self.kind == "image":
            self._check_image()
        else:
            self._check_dtype()
        if self.kind == "keypoints":
            self._check_keypoints()
        elif self.kind not in ("array", "image") and self.shape:
            raise self._refused(f"shape {shown(self.shape)}", f"kind {self.kind} takes none")
        if self.format not in (BOX_SIDES if self.kind == "boxes" else ("",)):
            wanted = f"boxes have one of {', '.join(BOX_SIDES)}" if self.kind == "boxes" else f"kind {self.kind} takes none"
            raise self._refused(f"format {shown(self.format)}", wanted)
        object.__setattr__(self, "shape", tuple(None if side is None else int(side) for side in self.shape))
        self._check_points()
        if self.of and (not isinstance(self.of, str) or not self.has_objects):
            raise ArgumentError(
                f"field {self.name!r} of kind {self.kind} is of={shown(self.of)}; keypoints, polygons, instances and arrays of any "
                "number of rows belong to boxes"
            )

    def _check_dtype(self) -> None:
        allowed = _DTYPES.get(self.kind, (_FIXED_DTYPES.get(self.kind, ""),))
        if self.dtype not in ("", *allowed):
            raise self._refused(f"dtype {shown(self.dtype)}", f"kind {self.kind} takes {' or '.join(filter(None, allowed)) or 'none'}")
        object.__setattr__(self, "dtype", self.dtype or allowed[0])

    def _check_image(self) -> None:
        self._check_dtype()
        shape = self.shape or (3,)
        if shape not in ((1,), (3,), (4,)):
            raise self._refused(f"shape {shown(self.shape)}", "an image has (1,), (3,) or (4,) channels")
        plain = self.dtype in ("", "uint8") and shape == (3,)
        object.__setattr__(self, "dtype", "" if plain else self.dtype or "uint8")
        object.__setattr__(self, "shape", () if plain else shape)

    def _check_keypoints(self) -> None:
        points, *sides = self.shape or (None,)
        if not _is_side(points) or int(points or 0) > POINT_LIMIT or sides not in ([2], [3]):
            raise self._refused(f"shape {shown(self.shape)}", f"keypoints have (K, 2) or (K, 3), K at most {POINT_LIMIT}")

    def _check_points(self) -> None:
        names, pairs = tuple(self.names), tuple(tuple(pair) for pair in self.pairs)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "pairs", pairs)
        if (names or pairs) and self.kind != "keypoints":
            raise self._refused("names or pairs of points", f"kind {self.kind} takes none")
        if names and (len(names) != self.shape[0] or not all(is_point_name(name) for name in names)):
            raise self._refused(
                f"{len(names)} names of its points", f"give one of 1 to {NAME_LIMIT} printable characters for each of the {self.shape[0]}"
            )
        if pairs and (wrong := wrong_pairs(pairs, int(self.shape[0] or 0))):
            raise self._refused("pairs of points that are none", wrong)

    def _check_array(self) -> None:
        if self.dtype not in ARRAY_DTYPES:
            raise self._refused(f"dtype {shown(self.dtype)}", f"arrays have one of {', '.join(ARRAY_DTYPES)}")
        if len(self.shape) > 16:
            raise self._refused(f"shape {shown(self.shape)}", "at most 16 sides")
        varying = self.shape[:1] == (None,)
        if not all(_is_side(side) for side in self.shape[varying:]):
            raise self._refused(f"shape {self.shape}", "every side must be at least 1, or None if it is the first")
        row = math.prod(int(side or 1) for side in self.shape) * np.dtype(self.dtype).itemsize
        if row > ROW_LIMIT:
            per = "row" if varying else "sample"
            raise self._refused(f"{row} bytes a {per}", f"the limit is {ROW_LIMIT}; pack it as bytes")

    def _refused(self, what: str, why: str) -> ArgumentError:
        return ArgumentError(f"field {self.name!r} has {what}; {why}")

    @property
    def is_column(self) -> bool:
        """True if it is a fixed-size column rather than part of the record."""
        return self.kind in ("int", "float") or (self.kind == "array" and not self.is_varying)

    @property
    def is_varying(self) -> bool:
        """True if a sample has any number of its rows: boxes, keypoints, polygons, instances and arrays whose first side is None."""
        return self.kind == "boxes" or self.has_objects

    @property
    def has_objects(self) -> bool:
        """True if its rows may belong to boxes (`of`)."""
        return self.kind in _OF_OBJECTS or (self.kind == "array" and self.shape[:1] == (None,))

    @property
    def is_rgb(self) -> bool:
        """True for an image of 8 bits and three channels, which is stored as a JPEG or raw pixels."""
        return self.kind == "image" and not self.dtype

    @property
    def is_planes(self) -> bool:
        """True if it is stored losslessly as planes: a mask, or an image of another form than 8-bit RGB."""
        return self.kind == "mask" or (self.kind == "image" and bool(self.dtype))

    @property
    def channels(self) -> int:
        """Channels of an image or a mask; 0 for other kinds."""
        return 1 if self.kind == "mask" else (self.shape or (3,))[0] or 0 if self.kind == "image" else 0

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of one row of a varying field with rows of one shape: of a box, an object's keypoints, or an array's row."""
        if self.kind == "boxes":
            return (BOX_SIDES[self.format],)
        return tuple(side for side in self.shape if side is not None) if self.is_varying else ()

    @property
    def is_extended(self) -> bool:
        """True if only format version 3 has it."""
        return self.is_varying or self.is_planes

    @property
    def stored_dtype(self) -> np.dtype[Any]:
        """The dtype as stored: little-endian."""
        dtype: np.dtype[Any] = np.dtype(self.dtype).newbyteorder("<")
        return dtype

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of the column; 0 for fields in the record."""
        return math.prod(side or 0 for side in self.shape) * self.stored_dtype.itemsize if self.is_column else 0

    def other_points(self, other: Field) -> str:
        """The property of keypoints, "names" or "pairs", that both fields have with different values; "": the points mean the same."""
        if self.names and other.names and self.names != other.names:
            return "names"
        return "pairs" if self.pairs and other.pairs and self.pairs != other.pairs else ""

    def __str__(self) -> str:
        """The kind with what goes with it, for messages: array int64 (None,) of boxes."""
        shape = str(self.shape) if self.shape else ""
        return " ".join(part for part in (self.kind, self.dtype if self.kind not in _FIXED_DTYPES else "", shape, self.format) if part) + (
            f" of {self.of}" if self.of else ""
        )

    def describe(self) -> str:
        """The kind with what goes with it, for people: array int64 any number x 3, of boxes."""
        shape = " x ".join("any number" if side is None else str(side) for side in self.shape)
        words = [self.kind, self.dtype if self.kind not in _FIXED_DTYPES else "", shape, self.format]
        return " ".join(word for word in words if word) + (f", of {self.of}" if self.of else "")

    def to_json(self) -> dict[str, Any]:
        """The JSON form that the manifest stores."""
        out: dict[str, Any] = {"name": self.name, "kind": self.kind}
        if self.kind == "array" or self.kind not in _FIXED_DTYPES:
            out |= {"dtype": self.dtype} if self.dtype else {}
            out |= {"shape": list(self.shape)} if self.kind == "array" or self.shape else {}
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
        texts = {key: get_str(stored.get(key, ""), f"the {key} of field {shown(name)}") for key in ("dtype", "format", "of")}
        kind = get_str(stored.get("kind"), f"the kind of field {shown(name)}")
        shape = get_list(stored.get("shape", []), f"the shape of field {shown(name)}")
        sides = tuple(None if side is None else get_int(side, "a side", 1, SIDE_LIMIT) for side in shape)
        names = tuple(get_str(each, "a name") for each in get_list(stored.get("names", []), f"the names of field {shown(name)}"))
        pairs = [get_list(pair, "a pair") for pair in get_list(stored.get("pairs", []), f"the pairs of field {shown(name)}")]
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
        raise ArgumentError(f"field name {shown(name)} must have 1 to {NAME_LIMIT} characters and not begin with __")


def _is_side(side: object) -> bool:
    return isinstance(side, int | np.integer) and not isinstance(side, bool) and 1 <= int(side) <= SIDE_LIMIT
