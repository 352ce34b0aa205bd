"""Values of fields as they are stored: columns, and entries of a record. Each is checked against its field."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.errors import PackError, SampleError
from fastload.store.checked import JSON_DEPTH, nested_too_deeply, shown
from fastload.store.field import SIDE_LIMIT, Field


def refuse(field: Field, value: object, why: str) -> PackError:
    """The error for a value that its field cannot hold."""
    return PackError(f"field {field.name!r} ({field.kind}) cannot hold {shown(value)}: {why}")


def _int(field: Field, value: object) -> int:
    if not isinstance(value, int | np.integer | np.bool_):
        raise refuse(field, value, "it is no whole number")
    number = int(value)
    if not -(2**63) <= number < 2**63:
        raise refuse(field, value, "it does not fit 64 bits")
    return number


def _float(field: Field, value: object) -> float:
    if not isinstance(value, int | float | np.integer | np.floating | np.bool_):
        raise refuse(field, value, "it is no number")
    try:
        return float(value)
    except OverflowError:
        raise refuse(field, value, "it does not fit a float64") from None


def array_value(field: Field, value: object, *, any_rows: bool = False) -> npt.NDArray[Any]:
    """The value of an array field, or the rows of a field of any number of them, in the dtype as stored.

    Raises:
        PackError: it has another shape, or its values do not fit.
    """
    wanted = field.stored_dtype
    try:
        given = np.asarray(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise refuse(field, value, str(error)) from None
    if given.dtype.kind not in "biuf":
        raise refuse(field, value, f"it is an array of {given.dtype}")
    wanted_shape = (*given.shape[:1], *field.row_shape) if any_rows else field.shape
    if given.shape != wanted_shape or not (given.ndim or wanted_shape == ()):
        shape = (None, *field.row_shape) if any_rows else field.shape
        raise refuse(field, value, f"its shape is {given.shape}, the field's {shape}")
    if given.dtype == wanted:
        return given
    if given.dtype.kind == "f" and wanted.kind != "f":
        raise refuse(field, value, f"{given.dtype} would be rounded to {field.dtype}")
    with np.errstate(all="ignore"):
        stored = given.astype(wanted)
        if wanted.kind == "f":
            fits = not np.any(np.isinf(stored) & np.isfinite(given))
        else:
            fits = np.array_equal(stored, given) and np.array_equal(stored < 0, given < 0)
    if not fits:
        raise refuse(field, value, f"its values do not fit {field.dtype}")
    return stored


def _bytes(field: Field, value: object) -> tuple[int, Any]:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise refuse(field, value, "it is no bytes object")
    return core.KIND_BYTES, value


def _text(field: Field, value: object) -> tuple[int, Any]:
    if not isinstance(value, str):
        raise refuse(field, value, "it is no text")
    try:
        return core.KIND_TEXT, value.encode()
    except UnicodeEncodeError as error:
        raise refuse(field, value, str(error)) from None


def _json(field: Field, value: object) -> tuple[int, Any]:
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise refuse(field, value, str(error)) from None
    if nested_too_deeply(value):
        raise refuse(field, value, f"it is nested more than {JSON_DEPTH} deep")
    return core.KIND_JSON, text


@dataclass(frozen=True, slots=True)
class StoredImage:
    """An image in the form that is stored: the value of an image field besides the first.

    Attributes:
        kind: "jpeg", "raw", "place" or "planes" (bytes that `core.encode_planes` made).
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


def image_entry(field: Field, value: object, kind: str | None, height: int, width: int) -> tuple[int, Any]:
    if not (1 <= height <= SIDE_LIMIT and 1 <= width <= SIDE_LIMIT):
        raise PackError(f"field {field.name!r} (image) has height {height} and width {width}; both must be at least 1")
    if field.is_planes or kind == "planes":
        return _planes(field, value, kind, height, width)
    if kind == "jpeg":
        if not isinstance(value, bytes | bytearray | memoryview):
            raise refuse(field, value, "a JPEG is bytes")
        return core.KIND_JPEG, value
    if kind == "place":
        if not isinstance(value, bytes):
            raise refuse(field, value, "a place is bytes")
        return core.KIND_PLACE, value
    if kind != "raw":
        raise PackError(f"field {field.name!r} (image) is of kind {kind!r}; images are jpeg, raw or place")
    if isinstance(value, np.ndarray):
        if value.dtype != np.uint8 or value.shape != (height, width, 3):
            raise refuse(field, value, f"pixels are uint8 ({height}, {width}, 3), not {value.dtype} {value.shape}")
        pixels: Any = np.ascontiguousarray(value).reshape(-1)
    elif isinstance(value, bytes | bytearray | memoryview):
        pixels = value
        if memoryview(value).nbytes != height * width * 3:
            raise refuse(field, "...", f"{memoryview(value).nbytes} bytes are not {height} x {width} x 3")
    else:
        raise refuse(field, value, "pixels are an array or bytes")
    return core.KIND_RAW, (np.array([height, width, 3], "<u4"), pixels)


def _planes(field: Field, value: object, kind: str | None, height: int, width: int) -> tuple[int, Any]:
    if not field.is_planes or kind != "planes" or not isinstance(value, bytes):
        raise PackError(f"field {field.name!r} ({field}) is of kind {kind!r}; images of 8-bit RGB are no planes, all others are")
    header = core.planes_header(value)
    if (header.height, header.width) != (height, width) or (header.channels, header.dtype) != (field.channels, field.stored_dtype):
        size = f"{header.width} x {header.height} pixels of {header.channels} channels of {header.dtype}"
        raise PackError(f"field {field.name!r} ({field}) of {width} x {height} pixels cannot hold planes of {size}")
    return core.KIND_PLANES, value


COLUMN_VALUES: Mapping[str, Callable[[Field, object], Any]] = {"int": _int, "float": _float, "array": array_value}
RECORD_VALUES = {"bytes": _bytes, "text": _text, "json": _json}


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
