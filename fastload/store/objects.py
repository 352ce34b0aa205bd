"""Masks, boxes, keypoints, polygons, instances and arrays of any number of rows, as entries of records: checked and encoded when a
sample is packed, checked and parsed when it is read.

csrc/store/planes.h and csrc/store/varying.h have the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.errors import PackError, SampleError
from fastload.store.checked import shown
from fastload.store.field import Field
from fastload.store.instances import Size, counts_of, counts_text
from fastload.store.values import array_value, refuse

Encoded = tuple[int, tuple[Any, ...], int]
"""(record kind, parts of its bytes, number of rows)."""

_LEVELS = {"instances": 1, "polygons": 2}
_POINT = 2


class RowError(PackError):
    """A row of a field that cannot be stored, one of any number.

    Attributes:
        row: its number.
        reason: what is wrong with it, as a clause about "its" values.
    """

    def __init__(self, field: Field, row: int, reason: str) -> None:
        super().__init__(f"row {row} of field {field.name!r}: {reason}")
        self.field, self.row, self.reason = field, row, reason

    def __reduce__(self) -> tuple[Any, ...]:
        return RowError, (self.field, self.row, self.reason)


def mask_entry(field: Field, value: object, canvas: Size) -> tuple[int, bytes]:
    """(record kind, bytes) of labels (height, width). Raises PackError if they have another size or do not fit the field's dtype."""
    labels = value if isinstance(value, np.ndarray) else np.asarray(value)
    if labels.dtype.kind not in "bui":
        raise refuse(field, value, f"labels are whole numbers, not {labels.dtype}")
    if labels.shape != canvas:
        raise PackError(f"field {field.name!r} (mask) has shape {labels.shape}, its image {canvas} (height, width)")
    limit = np.iinfo(field.dtype).max
    if labels.dtype != field.stored_dtype and not (labels.min() >= 0 and labels.max() <= limit):
        raise PackError(f"field {field.name!r} (mask) has labels from {labels.min()} to {labels.max()}; {field.dtype} holds 0 to {limit}")
    return core.KIND_PLANES, core.encode_planes(labels.astype(field.stored_dtype, copy=False))


def varying_entry(field: Field, value: object, canvas: Size) -> Encoded:
    """The entry of a field of any number of rows. Raises PackError, or RowError for one row that cannot be stored."""
    if field.kind == "instances":
        return _instances(field, value, canvas)
    if field.kind == "polygons":
        return _polygons(field, value)
    if isinstance(value, Sequence) and not len(value):
        value = np.empty((0, *field.row_shape), field.dtype)
    rows = array_value(field, value, any_rows=True)
    if field.kind in ("boxes", "keypoints"):
        _check_finite(field, rows)
    if field.kind == "boxes":
        _check_boxes(field, rows)
    return core.KIND_VARYING, (_u32(len(rows)), np.ascontiguousarray(rows).reshape(-1).view(np.uint8)), len(rows)


def _u32(*numbers: int) -> npt.NDArray[np.uint8]:
    return np.array(numbers, "<u4").view(np.uint8)


def _check_finite(field: Field, rows: npt.NDArray[Any]) -> None:
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=tuple(range(1, rows.ndim))))
    if bad.size:
        what = "box has" if field.kind == "boxes" else "keypoints have"
        raise RowError(field, int(bad[0]), f"its {what} numbers that are not finite ({shown(rows[bad[0]])})")


def _check_boxes(field: Field, rows: npt.NDArray[Any]) -> None:
    """Checks that no box has a negative side."""
    if field.format == "xyxyxyxy":
        return
    sides = rows[:, 2:4] - rows[:, 0:2] if field.format == "xyxy" else rows[:, 2:4]
    names = ("x2 < x1", "y2 < y1") if field.format == "xyxy" else ("a negative width", "a negative height")
    for axis in (0, 1):
        bad = np.flatnonzero(sides[:, axis] < 0)
        if bad.size:
            raise RowError(field, int(bad[0]), f"its box has {names[axis]} ({[float(number) for number in rows[bad[0]]]})")


def _instances(field: Field, value: object, canvas: Size) -> Encoded:
    if not isinstance(value, Sequence | np.ndarray) or isinstance(value, str | bytes):
        raise refuse(field, value, "instances are a list of run lengths, masks or polygons, or an array (number, height, width)")
    counts = [_counts(field, row, each, canvas) for row, each in enumerate(value)]
    lengths = _u32(len(counts), *(len(each) for each in counts))
    values = np.concatenate(counts).astype("<u4") if counts else np.empty(0, "<u4")
    return core.KIND_VARYING, (lengths, values.view(np.uint8)), len(counts)


def _counts(field: Field, row: int, value: object, canvas: Size) -> npt.NDArray[np.uint32]:
    try:
        return counts_of(value, canvas)
    except PackError as error:
        raise RowError(field, row, str(error)) from None


def _polygons(field: Field, value: object) -> Encoded:
    if not isinstance(value, Sequence | np.ndarray) or isinstance(value, str | bytes):
        raise refuse(field, value, "polygons are a list of objects, each a list of parts")
    parts: list[int] = []
    lines: list[npt.NDArray[np.float32]] = []
    for row, each in enumerate(value):
        if not isinstance(each, Sequence | np.ndarray) or isinstance(each, str | bytes):
            raise RowError(field, row, f"its polygon is {shown(each)}, not a list of parts")
        parts.append(len(each))
        lines += [_line(field, row, part) for part in each]
    points = [len(line) // _POINT for line in lines]
    values = np.concatenate(lines) if lines else np.empty(0, "<f4")
    return core.KIND_VARYING, (_u32(len(parts), *parts, *points), values.astype("<f4", copy=False).view(np.uint8)), len(parts)


def _line(field: Field, row: int, part: object) -> npt.NDArray[np.float32]:
    try:
        numbers = np.asarray(part, np.float64).reshape(-1)
    except (ValueError, TypeError) as error:
        raise RowError(field, row, f"a part of its polygon is no list of numbers: {error}") from None
    with np.errstate(over="ignore"):
        line = numbers.astype("<f4")
    if line.size % _POINT or not np.isfinite(line).all():
        raise RowError(field, row, f"a part of its polygon has {line.size} numbers; it has x and y of each point, all finite")
    return line


def parse_planes(field: Field, kind: int, data: bytes, size: Size) -> npt.NDArray[Any]:
    """The pixels of a field stored as planes: (height, width), or (height, width, channels) of several channels.

    Raises:
        SampleError: they do not hold, or are of another size or form than the dataset says; with the reason alone.
    """
    if kind != core.KIND_PLANES:
        raise _wrong(f"field {field.name!r} ({field.kind}) is stored as kind {kind}, not as planes")
    header = core.planes_header(data)
    if (header.height, header.width) != size:
        raise _wrong(f"field {field.name!r} is {header.width} x {header.height}, the columns say {size[1]} x {size[0]}")
    if header.dtype != field.stored_dtype or header.channels != field.channels:
        raise _wrong(f"field {field.name!r} has {header.channels} channels of {header.dtype}, the schema says {field}")
    return core.decode_planes(data)


def parse_varying(field: Field, kind: int, data: bytes, canvas: Size, count: int, *, runs: bool = False) -> Any:
    """The value of a field of any number of rows: an array, or of polygons a list of lists of arrays (points, 2).

    Args:
        field: the field.
        kind: of the record's entry.
        data: the entry's bytes.
        canvas: size of the sample's image.
        count: the number of rows that the dataset's column says.
        runs: give instances as a list of COCO's RLE, {"size": [height, width], "counts": text}, and not as masks.

    Raises:
        SampleError: the bytes do not hold, or have another number of rows; with the reason alone.
    """
    if kind != core.KIND_VARYING:
        raise _wrong(f"field {field.name!r} ({field.kind}) is stored as kind {kind}, not as rows of any number")
    unit = 4 if field.kind == "instances" else 4 * _POINT if field.kind == "polygons" else 0
    if not unit:
        unit = int(np.prod(field.row_shape, dtype=np.int64)) * field.stored_dtype.itemsize
    rows, lengths, values = core.split_varying(data, _LEVELS.get(field.kind, 0), unit)
    if rows != count:
        raise _wrong(f"field {field.name!r} has {rows} rows, the column says {count}")
    if field.kind == "instances":
        return _parsed_runs(lengths[0], values, canvas) if runs else core.decode_instances(data, *canvas)
    if field.kind == "polygons":
        return _parsed_polygons(lengths, values)
    return values.copy().view(field.stored_dtype).reshape(rows, *field.row_shape)


def _parsed_runs(lengths: npt.NDArray[np.uint32], values: npt.NDArray[np.uint8], canvas: Size) -> list[dict[str, Any]]:
    counts = values.copy().view("<u4")
    ends, total = np.cumsum(lengths, dtype=np.int64), canvas[0] * canvas[1]
    runs = [counts[end - size : end] for end, size in zip(ends.tolist(), lengths.tolist(), strict=True)]
    for each in runs:
        if (found := int(each.sum(dtype=np.uint64))) != total:
            raise _wrong(f"the run lengths of a mask sum to {found}, its {canvas[1]} x {canvas[0]} pixels are {total}")
    return [{"size": list(canvas), "counts": counts_text(each)} for each in runs]


def polygons_of(row: memoryview) -> list[list[npt.NDArray[np.float32]]]:
    """Polygons as csrc/engine/polygons.h writes them, in the first bytes of `row`, which may go on: of each object its parts."""
    numbers = np.frombuffer(row, "<u4", len(row) // 4)
    objects = int(numbers[0])
    parts = numbers[1 : 1 + objects]
    points = numbers[1 + objects : 1 + objects + int(parts.sum(dtype=np.int64))]
    first = 4 * (1 + objects + len(points))
    return _parsed_polygons((parts, points), np.frombuffer(row, np.uint8, 4 * _POINT * int(points.sum(dtype=np.int64)), first))


def _parsed_polygons(lengths: tuple[npt.NDArray[np.uint32], ...], values: npt.NDArray[np.uint8]) -> list[list[npt.NDArray[np.float32]]]:
    points = values.copy().view("<f4").reshape(-1, _POINT)
    ends = np.cumsum(lengths[1], dtype=np.int64)
    lines = [points[end - size : end] for end, size in zip(ends.tolist(), lengths[1].tolist(), strict=True)]
    out, at = [], 0
    for size in lengths[0].tolist():
        out.append(lines[at : at + size])
        at += size
    return out


def _wrong(reason: str) -> SampleError:
    return SampleError(reason, reason=reason)
