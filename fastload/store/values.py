"""Values of fields as they are stored: columns, and entries of a record. Each is checked against its field. They are masks, boxes,
keypoints, polygons, instances and arrays of any number of rows: checked and encoded when a sample is packed, checked and parsed when it is
read. csrc/store/planes.h and csrc/store/varying.h have the bytes.

Instances are binary masks as COCO's run lengths, made of each form in which sources have them.

Run lengths count pixels column by column, of zeros and ones in turn, zeros first. COCO's text form of them is that of pycocotools
(`maskApi.c`): numbers in groups of five bits, from the third on as the difference to the last but one.

NOTE [ instances: what reaches pycocotools ]
Its C code checks neither arguments nor allocations: a coordinate of 1e8 ended the process, for want of memory. It gets polygons only, and
`_of_polygons` bounds all that it computes with:
- three points or more, all finite and at most `_SIDES_AWAY` widths and heights outside the image, so that five times each fits an int;
- at most `_DRAWN_MOST` upsampled points for an object, which bounds all its arrays: points, run lengths, characters;
- at most `_CANVAS_MOST` pixels in the image, so that each place fits an int, and each run length its characters.
So it runs in the packing process. A polygon may stick out of its image: the part outside is cut off. The code here unites the parts, and
reads the run lengths of all sources.
"""

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

Counts = npt.NDArray[np.uint32]
Size = tuple[int, int]
"""(height, width), pixels."""

_GROUP = 5
_FIRST_CHARACTER = 48
_LONGEST = 7
"""Groups in one number: 32 bits and a sign."""
_UPSAMPLED = 5
"""Points of an outline that pycocotools makes for each pixel of its length, in x or y."""
_SIDES_AWAY = 10
"""Limit on how far outside its image a point of a polygon may be, in widths and heights of the image."""
_FARTHEST = 1e8
"""Limit on it in pixels: five times a coordinate is an int of 32 bits."""
_CANVAS_MOST = 1 << 28
"""Limit on the pixels of a mask that pycocotools makes: it reserves six characters, 30 bits with the sign, for a run length."""
_DRAWN_MOST = 1 << 24
"""Limit on the points of the outlines of one object: about 24 bytes each are allocated at once."""


def counts_of(value: object, canvas: Size) -> Counts:
    """The run lengths of one object.

    Args:
        value: COCO's RLE ({"size": [height, width], "counts": list, text or bytes}), a mask (height, width) of 0 and 1, or a list of
            polygons, each a flat list of x and y (which needs pycocotools).
        canvas: the size that the mask must have.

    Raises:
        PackError: the value is none of these, has another size, or its counts do not sum; the message is the reason alone.
    """
    if isinstance(value, Mapping):
        return _of_rle(value, canvas)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return _of_polygons(value, canvas)
    mask = np.asarray(value)
    if mask.shape != canvas or mask.dtype.kind not in "bui":
        raise PackError(f"its mask is {mask.dtype} {mask.shape}, its image has {canvas[0]} x {canvas[1]} (height x width)")
    if mask.size and not (mask.min() >= 0 and mask.max() <= 1):
        raise PackError("its mask has values other than 0 and 1")
    return _of_mask(mask.astype(np.uint8))


def _of_mask(mask: npt.NDArray[np.uint8]) -> Counts:
    flat = mask.T.reshape(-1)
    changes = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    edges = np.concatenate([[0] if flat[:1].any() else [], [0], changes, [flat.size]])
    return np.diff(edges).astype(np.uint32)


def _of_rle(value: Mapping[Any, Any], canvas: Size) -> Counts:
    size, counts = value.get("size"), value.get("counts")
    if not isinstance(size, Sequence | np.ndarray) or len(size) != 2 or tuple(size) != canvas:
        given = f"{list(size)!r:.60}" if isinstance(size, list | tuple | np.ndarray) and len(size) == 2 else shown(size)
        raise PackError(f"its run lengths are of size {given}, its image has {list(canvas)} (height, width)")
    try:
        text = counts.encode("ascii") if isinstance(counts, str) else counts
        found = np.asarray(_of_text(text) if isinstance(text, bytes) else text)
    except (ValueError, TypeError, OverflowError) as error:
        raise PackError(f"its run lengths cannot be read: {error}") from None
    if found.ndim != 1 or (found.size and found.dtype.kind not in "ui"):
        raise PackError(f"its run lengths are {shown(counts)}, not a list of whole numbers")
    total = canvas[0] * canvas[1]
    if found.size and (found.min() < 0 or found.max() > total):
        raise PackError(f"its run lengths go from {found.min()} to {found.max()}, its image has {total} pixels")
    if int(found.sum()) != total:
        raise PackError(f"its run lengths sum to {int(found.sum())}, its {canvas[0]} x {canvas[1]} pixels are {total}")
    return found.astype(np.uint32)


def _of_text(text: bytes) -> list[int]:
    """The numbers of pycocotools' text form. Raises ValueError if it ends within one, or one is too long."""
    counts: list[int] = []
    number = groups = 0
    for character in text:
        code = character - _FIRST_CHARACTER
        if not 0 <= code < 64 or groups == _LONGEST:
            raise ValueError(f"{character:#04x} is no part of a number")
        number |= (code & 0x1F) << _GROUP * groups
        groups += 1
        if code & 0x20:
            continue
        if code & 0x10:
            number -= 1 << _GROUP * groups
        counts.append(number + (counts[-2] if len(counts) > 2 else 0))
        number = groups = 0
    if groups:
        raise ValueError("they end within a number")
    return counts


def counts_text(counts: Counts) -> str:
    """Run lengths in pycocotools' text form, which `counts_of` reads; any whole numbers of 32 bits, also those that do not sum."""
    left = counts.astype(np.int64)
    left[3:] -= counts[1:-2]
    groups, kept = [], []
    whole = np.zeros(len(left), bool)
    for _ in range(_LONGEST):
        group = left & 0x1F
        left >>= _GROUP
        more = left != np.where(group & 0x10, -1, 0)
        groups.append(group + 0x20 * more + _FIRST_CHARACTER)
        kept.append(~whole)
        whole |= ~more
    characters: npt.NDArray[np.int64] = np.stack(groups, 1)[np.stack(kept, 1)]
    return characters.astype(np.uint8).tobytes().decode("ascii")


def _of_polygons(parts: Sequence[Any], canvas: Size) -> Counts:
    try:
        from pycocotools import mask
    except ImportError:
        raise PackError("polygons become masks by pycocotools: pip install 'fastload[coco]'") from None
    lines, drawn = [], 0
    if parts and canvas[0] * canvas[1] > _CANVAS_MOST:
        raise PackError(f"masks of polygons are made for images of at most {_CANVAS_MOST:,} pixels: give it as run lengths or polygons")
    for part in parts:
        try:
            line = np.asarray(part, np.float64).reshape(-1)
        except (ValueError, TypeError, OverflowError) as error:
            raise PackError(f"a part of its polygon is no list of numbers: {error}") from None
        if line.size < 6 or line.size % 2 or not np.isfinite(line).all():
            raise PackError(f"a part of its polygon has {line.size} numbers; it has x and y of at least three points, all finite")
        drawn += _drawn_points(line.reshape(-1, 2), canvas)
        if drawn > _DRAWN_MOST:
            raise PackError(f"the outline of its polygon is longer than {_DRAWN_MOST // _UPSAMPLED:,} pixels: correct or remove it")
        lines.append(line.tolist())
    if not lines:
        return np.array([canvas[0] * canvas[1]], np.uint32)
    return _union([_of_rle(each, canvas) for each in mask.frPyObjects(lines, *canvas)], canvas)


def _union(parts: Sequence[Counts], canvas: Size) -> Counts:
    """The run lengths of the pixels that are in any of some masks."""
    if len(parts) == 1:
        return parts[0]
    ends = [np.cumsum(counts, dtype=np.int64) for counts in parts]
    starts = np.concatenate([each[:-1:2] for each in ends])
    stops = np.concatenate([each[1::2] for each in ends])
    places = np.concatenate([starts, stops])
    steps = np.repeat([1, -1], [starts.size, stops.size])
    order = np.argsort(places, kind="stable")  # the union goes on where one mask ends and another begins
    depth = np.cumsum(steps[order])
    outer = places[order][(depth == 0) | (depth == steps[order])]
    total = canvas[0] * canvas[1]
    edges = np.concatenate([[0], outer, [total] if not outer.size or outer[-1] < total else []])
    return np.diff(edges).astype(np.uint32)


def _drawn_points(points: npt.NDArray[np.float64], canvas: Size) -> int:
    """The number of points that pycocotools makes of an outline. Raises PackError for a point far from the image."""
    sides = np.array(canvas[::-1], np.float64)
    away = np.minimum(_SIDES_AWAY * sides, _FARTHEST)
    far = ((points < -away) | (points > sides + away)).any(1)
    if far.any():
        x, y = points[int(far.argmax())].tolist()
        raise PackError(
            f"a point of its polygon is at x {x:g}, y {y:g}, more than {_SIDES_AWAY} times the size of its image "
            f"({canvas[1]} x {canvas[0]}, width x height) outside it: correct or remove it"
        )
    grid = np.trunc(points * _UPSAMPLED + 0.5)
    steps = np.abs(np.diff(grid, axis=0, append=grid[:1])).max(1)
    return int(steps.sum()) + len(points)


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


Encoded = tuple[int, tuple[Any, ...], int]
"""(record kind, parts of its bytes, number of rows)."""

_LEVELS = {"instances": 1, "polygons": 2}
_POINT = 2


class RowError(PackError):
    """A row of a field that cannot be stored, one of any number.

    Attributes:
        row: its number.
        reason: the fault, as a clause about "its" values.
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
        kind: kind of the record's entry.
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
