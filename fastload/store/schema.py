"""Schema: the named fields of a dataset's samples, their kinds, and where each is stored.

Fixed-size fields (int, float, array) are columns of the shard; the others are stored in the sample's record. A field's
number in records is its position in the schema.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.errors import ArgumentError, PackError, SampleError
from fastload.store.checked import JSON_DEPTH, Bad, get_int, get_list, get_object, get_str, nested_too_deeply, shown

Kind = Literal["image", "int", "float", "array", "bytes", "text", "json"]
Entry = tuple[int, int, Any]
"""(field number, record kind, bytes-like or a tuple of them): an argument of `core.build_record`."""

KINDS: tuple[str, ...] = get_args(Kind)
HEIGHT_COLUMN = "__height__"
WIDTH_COLUMN = "__width__"
CRC_COLUMN = "__crc32c__"
HIDDEN_COLUMNS: Mapping[str, np.dtype[Any]] = {
    HEIGHT_COLUMN: np.dtype("<i4"),
    WIDTH_COLUMN: np.dtype("<i4"),
    CRC_COLUMN: np.dtype("<u4"),
}
RECORD_KINDS: Mapping[str, int] = {"bytes": core.KIND_BYTES, "text": core.KIND_TEXT, "json": core.KIND_JSON}
"""Kind of the record's entry for each kind of field that is stored in records, but for images."""
ARRAY_DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
)  # fmt: skip
NAME_LIMIT = 100
ROW_LIMIT = 1 << 24
"""Limit on one row of an array field, in bytes; larger values belong in a field of kind bytes."""
FIELD_LIMIT = 1000
SIDE_LIMIT = 2**31 - 1


@dataclass(frozen=True)
class Field:
    """One field that every sample has.

    Attributes:
        name: 1 to 100 printable characters; names that begin with two underscores are fastload's own.
        kind: image, int (int64), float (float64), array (fixed dtype and shape), bytes, text or json.
        dtype: NumPy's name of the column's dtype; it follows from the kind, but for arrays; "" for fields in the record.
        shape: shape of one row of the column.

    Raises:
        ArgumentError: one of these is invalid.
    """

    name: str
    kind: Kind
    dtype: str = ""
    shape: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isprintable() or self.name != self.name.strip():
            raise ArgumentError(f"field name {shown(self.name)} must be printable text without blanks around it")
        if not 1 <= len(self.name) <= NAME_LIMIT or self.name.startswith("__"):
            raise ArgumentError(f"field name {shown(self.name)} must have 1 to {NAME_LIMIT} characters and not begin with __")
        if self.kind not in KINDS:
            raise ArgumentError(f"field {self.name!r} is of kind {shown(self.kind)}; kinds are {', '.join(KINDS)}")
        fixed = {"int": "int64", "float": "float64"}.get(self.kind, "")
        if self.kind == "array":
            self._check_array()
        elif self.dtype not in ("", fixed) or tuple(self.shape) != ():
            raise ArgumentError(f"field {self.name!r} of kind {self.kind} takes no dtype {self.dtype!r} or shape {self.shape!r}")
        else:
            object.__setattr__(self, "dtype", fixed)
        object.__setattr__(self, "shape", tuple(int(side) for side in self.shape))

    def _check_array(self) -> None:
        if self.dtype not in ARRAY_DTYPES:
            raise ArgumentError(f"field {self.name!r} has dtype {shown(self.dtype)}; arrays have one of {', '.join(ARRAY_DTYPES)}")
        if not isinstance(self.shape, tuple | list) or len(self.shape) > 16:
            raise ArgumentError(f"field {self.name!r} has shape {shown(self.shape)}; at most 16 sides")
        if not all(isinstance(s, int | np.integer) and not isinstance(s, bool) and 1 <= s <= SIDE_LIMIT for s in self.shape):
            raise ArgumentError(f"field {self.name!r} has shape {tuple(self.shape)}; every side must be at least 1")
        row = math.prod(int(side) for side in self.shape) * np.dtype(self.dtype).itemsize
        if row > ROW_LIMIT:
            raise ArgumentError(f"field {self.name!r} has {row} bytes a sample, the limit is {ROW_LIMIT}; pack it as bytes")

    @property
    def is_column(self) -> bool:
        """Whether it is a fixed-size column rather than part of the record."""
        return self.kind in ("int", "float", "array")

    @property
    def stored_dtype(self) -> np.dtype[Any]:
        """The column's dtype as stored: little-endian."""
        dtype: np.dtype[Any] = np.dtype(self.dtype).newbyteorder("<")
        return dtype

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of the column; 0 for fields in the record."""
        return math.prod(self.shape) * self.stored_dtype.itemsize if self.is_column else 0

    def to_json(self) -> dict[str, Any]:
        """The JSON form that the manifest stores."""
        out: dict[str, Any] = {"name": self.name, "kind": self.kind}
        if self.kind == "array":
            out |= {"dtype": self.dtype, "shape": list(self.shape)}
        return out

    @classmethod
    def from_json(cls, value: object) -> Field:
        """Parses a field of a manifest; every value is checked.

        Raises:
            Bad: a value is invalid.
        """
        stored = get_object(value, "a field")
        name = get_str(stored.get("name"), "a field's name")
        kind = get_str(stored.get("kind"), f"the kind of field {shown(name)}")
        dtype = get_str(stored.get("dtype", ""), f"the dtype of field {shown(name)}")
        shape = get_list(stored.get("shape", []), f"the shape of field {shown(name)}")
        try:
            return cls(name, kind, dtype, tuple(get_int(side, "a side", 1, SIDE_LIMIT) for side in shape))  # type: ignore[arg-type]
        except ArgumentError as error:
            raise Bad(str(error)) from None


@dataclass(frozen=True)
class Schema:
    """The fields of every sample, in order.

    Raises:
        ArgumentError: there is no field, or there are two of one name or two images.
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
        if sum(field.kind == "image" for field in self.fields) > 1:
            raise ArgumentError("a sample has at most one image; pack the others as bytes")

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __getitem__(self, name: str) -> Field:
        for field in self.fields:
            if field.name == name:
                return field
        raise ArgumentError(f"there is no field {shown(name)}; fields are {', '.join(f.name for f in self.fields)}")

    def number(self, name: str) -> int:
        """The number of a field in records. Raises ArgumentError if there is no field of that name."""
        return self.fields.index(self[name])

    @cached_property
    def columns(self) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """(dtype, shape of a row) of every column, with the hidden ones last."""
        own = {f.name: (f.stored_dtype, f.shape) for f in self.fields if f.is_column}
        return own | {name: (dtype, ()) for name, dtype in HIDDEN_COLUMNS.items()}

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

    def encode(self, values: Mapping[str, object], image_kind: str | None, height: int, width: int) -> tuple[list[Entry], list[Any]]:
        """A sample's record entries, and its column values in the order of the fields.

        Args:
            values: one value per field, by name.
            image_kind: "jpeg" (the image is bytes), "raw" (uint8 (height, width, 3), or its bytes) or "place" (of a JPEG in another file,
                bytes of a `fastload.store.places.StoredPlace`); None without one.
            height: of the image, pixels.
            width: of the image, pixels.

        Raises:
            PackError: a field without a value, a value without a field, or one that its field cannot hold; names both.
        """
        if len(values) != len(self.fields):
            for name in values:
                if not any(field.name == name for field in self.fields):
                    raise PackError(f"a value is given for {name!r}, which is no field; fields are {[f.name for f in self.fields]}")
        entries: list[Entry] = []
        row: list[Any] = []
        for number, field in enumerate(self.fields):
            if field.name not in values:
                raise PackError(f"field {field.name!r} has no value; every sample needs one for each field")
            value = values[field.name]
            if field.kind == "image":
                entries.append((number, *_image(field, value, image_kind, height, width)))
            elif field.is_column:
                row.append(_COLUMN_VALUES[field.kind](field, value))
            else:
                entries.append((number, *_RECORD_VALUES[field.kind](field, value)))
        return entries, row


def _refuse(field: Field, value: object, why: str) -> PackError:
    return PackError(f"field {field.name!r} ({field.kind}) cannot hold {shown(value)}: {why}")


def _int(field: Field, value: object) -> int:
    if not isinstance(value, int | np.integer | np.bool_):
        raise _refuse(field, value, "it is no whole number")
    number = int(value)
    if not -(2**63) <= number < 2**63:
        raise _refuse(field, value, "it does not fit 64 bits")
    return number


def _float(field: Field, value: object) -> float:
    if not isinstance(value, int | float | np.integer | np.floating | np.bool_):
        raise _refuse(field, value, "it is no number")
    try:
        return float(value)
    except OverflowError:
        raise _refuse(field, value, "it does not fit a float64") from None


def _array(field: Field, value: object) -> npt.NDArray[Any]:
    wanted = field.stored_dtype
    try:
        given = np.asarray(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise _refuse(field, value, str(error)) from None
    if given.dtype.kind not in "biuf":
        raise _refuse(field, value, f"it is an array of {given.dtype}")
    if given.shape != field.shape:
        raise _refuse(field, value, f"its shape is {given.shape}, the field's {field.shape}")
    if given.dtype == wanted:
        return given
    if given.dtype.kind == "f" and wanted.kind != "f":
        raise _refuse(field, value, f"{given.dtype} would be rounded to {field.dtype}")
    with np.errstate(all="ignore"):
        stored = given.astype(wanted)
        if wanted.kind == "f":
            fits = not np.any(np.isinf(stored) & np.isfinite(given))
        else:
            fits = np.array_equal(stored, given) and np.array_equal(stored < 0, given < 0)
    if not fits:
        raise _refuse(field, value, f"its values do not fit {field.dtype}")
    return stored


def _bytes(field: Field, value: object) -> tuple[int, Any]:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise _refuse(field, value, "it is no bytes object")
    return core.KIND_BYTES, value


def _text(field: Field, value: object) -> tuple[int, Any]:
    if not isinstance(value, str):
        raise _refuse(field, value, "it is no text")
    try:
        return core.KIND_TEXT, value.encode()
    except UnicodeEncodeError as error:
        raise _refuse(field, value, str(error)) from None


def _json(field: Field, value: object) -> tuple[int, Any]:
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise _refuse(field, value, str(error)) from None
    if nested_too_deeply(value):
        raise _refuse(field, value, f"it is nested more than {JSON_DEPTH} deep")
    return core.KIND_JSON, text


def _image(field: Field, value: object, kind: str | None, height: int, width: int) -> tuple[int, Any]:
    if not (1 <= height <= SIDE_LIMIT and 1 <= width <= SIDE_LIMIT):
        raise PackError(f"field {field.name!r} (image) has height {height} and width {width}; both must be at least 1")
    if kind == "jpeg":
        if not isinstance(value, bytes | bytearray | memoryview):
            raise _refuse(field, value, "a JPEG is bytes")
        return core.KIND_JPEG, value
    if kind == "place":
        if not isinstance(value, bytes):
            raise _refuse(field, value, "a place is bytes")
        return core.KIND_PLACE, value
    if kind != "raw":
        raise PackError(f"field {field.name!r} (image) is of kind {kind!r}; images are jpeg, raw or place")
    if isinstance(value, np.ndarray):
        if value.dtype != np.uint8 or value.shape != (height, width, 3):
            raise _refuse(field, value, f"pixels are uint8 ({height}, {width}, 3), not {value.dtype} {value.shape}")
        pixels: Any = np.ascontiguousarray(value).reshape(-1)
    elif isinstance(value, bytes | bytearray | memoryview):
        pixels = value
        if memoryview(value).nbytes != height * width * 3:
            raise _refuse(field, "...", f"{memoryview(value).nbytes} bytes are not {height} x {width} x 3")
    else:
        raise _refuse(field, value, "pixels are an array or bytes")
    return core.KIND_RAW, (np.array([height, width, 3], "<u4"), pixels)


_COLUMN_VALUES = {"int": _int, "float": _float, "array": _array}
_RECORD_VALUES = {"bytes": _bytes, "text": _text, "json": _json}


def with_index(entries: Sequence[Entry], index: bytes) -> list[Entry]:
    """A record's entries with `index` as the entropy index of its JPEG, in the place of an old one; b"": without any.

    It comes first, but for the place of an attached JPEG: who reads ahead needs that, and reads no more than the beginning of a record.
    """
    kept = [entry for entry in entries if entry[1] != core.KIND_INDEX]
    image = next((at for at, entry in enumerate(kept) if entry[1] in (core.KIND_JPEG, core.KIND_PLACE)), None)
    if image is None or not index:
        return kept
    entry = (kept[image][0] | core.RECORD_INDEX, core.KIND_INDEX, index)
    place = [kept.pop(image)] if kept[image][1] == core.KIND_PLACE else []
    return [*place, entry, *kept]


def column_array(columns: Sequence[Any], dtype: np.dtype[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """The rows collected by `Schema.encode`, as one contiguous array (rows, *shape)."""
    if not shape:
        return np.array(columns, dtype=dtype).reshape(len(columns))
    out = np.empty((len(columns), *shape), dtype=dtype)
    for i, row in enumerate(columns):
        out[i] = row
    return out


def parse_stored(field: Field, data: bytes | None) -> Any:
    """Parses the bytes of a field stored in records; None: the record lacks it. Raises SampleError with the reason alone."""
    reason = f"its record lacks the field {field.name!r}"
    if data is not None:
        try:
            if field.kind == "text":
                return data.decode("utf-8")
            return json.loads(data.decode("utf-8")) if field.kind == "json" else data
        except (ValueError, RecursionError) as error:
            reason = f"field {field.name!r} is no {field.kind}: {error}"
    raise SampleError(reason, reason=reason)
