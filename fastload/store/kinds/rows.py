"""Kinds of any number of rows of one shape: boxes and keypoints. csrc/store/varying.h has the bytes of all
rows of any number."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.store.checked import shown
from fastload.store.kinds.base import (
    COUNT_COLUMN,
    Data,
    FieldKind,
    RowError,
    SampleFacts,
    SampleParts,
    UprightTurn,
    Value,
    array_of_json,
    array_value,
    decimals,
    is_side,
    u32,
    unfit,
    wrong,
)
from fastload.transforms.ops import KEYPOINTS_MOST

if TYPE_CHECKING:
    from types import ModuleType

    import pyarrow as pa

    from fastload.store.field import Field

BOX_SIDES: Mapping[str, int] = {"xyxy": 4, "xywh": 4, "cxcywh": 4, "xywhr": 5, "cxcywhr": 5, "xyxyxyxy": 8}
"""Numbers in one box of each format: the members of torchvision's BoundingBoxFormat, in lower case."""
ROTATED = frozenset({"xywhr", "cxcywhr", "xyxyxyxy"})
"""Formats of rotated boxes, which are not converted to upright ones."""
POINT_LIMIT = KEYPOINTS_MOST
"""Limit on the keypoints of one object."""


class AnyRowsKind(FieldKind):
    """Base of the kinds of which a sample has any number of rows; a hidden column has their number.

    Attributes:
        levels: number of levels of lengths in front of the values.
        native_name: the kind's name in the native engine; "": the same.
    """

    entry = core.KIND_VARYING
    is_varying = True
    in_native_row = True
    levels = 0
    native_name = ""

    def hidden_names(self, field: Field, is_first: bool) -> tuple[str, ...]:
        return (f"{COUNT_COLUMN}:{field.name}",)

    def encode(self, field: Field, number: int, value: object, parts: SampleParts) -> None:
        data, count = self.encoded(field, value, parts.canvas)
        parts.entries.append((number, self.entry, data))
        parts.counts[field.name] = count
        parts.hidden.append(count)

    def encoded(self, field: Field, value: object, canvas: tuple[int, int]) -> tuple[tuple[Data, ...], int]:
        """(parts of the entry's bytes, number of rows). Raises PackError, or RowError for one row that
        cannot be stored."""
        raise NotImplementedError(self.name)

    def unit(self, field: Field) -> int:
        """Bytes of one value; of rows of one shape, of a row."""
        raise NotImplementedError(self.name)

    def split(
        self, field: Field, kind: int, data: bytes, facts: SampleFacts
    ) -> tuple[int, tuple[npt.NDArray[np.uint32], ...], npt.NDArray[np.uint8]]:
        """The number of rows, the lengths of each level, and the values' bytes. Raises SampleError with
        the reason alone."""
        self.check_entry(field, kind)
        count = facts.count(field)
        rows, lengths, values = core.split_varying(data, self.levels, self.unit(field))
        if rows != count:
            raise wrong(f"field {field.name!r} has {rows} rows, the column says {count}")
        return rows, lengths, values

    def check_entry(self, field: Field, kind: int) -> None:
        if kind != self.entry:
            raise wrong(
                f"field {field.name!r} ({self.name}) is stored as kind {kind}, not as rows of any number"
            )

    def native_item(self, field: Field) -> dict[str, Any]:
        return {"kind": self.native_name or self.name, "unit": self.unit(field)}


class RowsKind(AnyRowsKind):
    """Base of those with rows of one shape: their value is one array."""

    is_numeric_rows = True
    collated = "rows"
    member = "npy"

    def encoded(self, field: Field, value: object, canvas: tuple[int, int]) -> tuple[tuple[Data, ...], int]:
        if isinstance(value, Sequence) and not len(value):
            value = np.empty((0, *field.row_shape), field.dtype)
        rows = array_value(field, value, any_rows=True)
        self.check_rows(field, rows)
        return (u32(len(rows)), np.ascontiguousarray(rows).reshape(-1).view(np.uint8)), len(rows)

    def check_rows(self, field: Field, rows: npt.NDArray[Any]) -> None:
        """Raises RowError for a row that the field cannot hold."""

    def unit(self, field: Field) -> int:
        return math.prod(field.row_shape) * field.stored_dtype.itemsize

    def parse(self, field: Field, kind: int, data: bytes, facts: SampleFacts) -> npt.NDArray[Any]:
        rows, _, values = self.split(field, kind, data, facts)
        found: npt.NDArray[Any] = values.copy().view(field.stored_dtype)
        return found.reshape(rows, *field.row_shape)

    def to_json(self, value: npt.NDArray[Any]) -> list[Any]:
        return decimals(value)

    def from_json(self, field: Field, value: Value) -> npt.NDArray[Any]:
        return np.empty((0, *field.row_shape), field.dtype) if value == [] else array_of_json(field, value)

    def exported_type(self, field: Field, arrow: ModuleType) -> pa.DataType:
        found = arrow.from_numpy_dtype(np.dtype(field.dtype))
        for side in reversed(field.row_shape):
            found = arrow.list_(found, side)
        return arrow.list_(found)


def check_finite(field: Field, rows: npt.NDArray[Any], what: str) -> None:
    """Raises RowError for a row with a number that is not finite; `what` begins the clause on it."""
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=tuple(range(1, rows.ndim))))
    if bad.size:
        raise RowError(field, int(bad[0]), f"its {what} numbers that are not finite ({shown(rows[bad[0]])})")


class BoxesKind(RowsKind):
    """Boxes of one format, upright or rotated."""

    name = "boxes"
    dtypes = ("float32", "int64")
    formats = tuple(BOX_SIDES)
    owns_objects = True
    follows_image = True
    moved_as = "boxes"
    tv_class = "BoundingBoxes"
    coco_part = "bbox"

    def row_shape(self, field: Field) -> tuple[int, ...]:
        return (BOX_SIDES[field.format],)

    def check_rows(self, field: Field, rows: npt.NDArray[Any]) -> None:
        check_finite(field, rows, "box has")
        if field.format == "xyxyxyxy":
            return
        sides = rows[:, 2:4] - rows[:, 0:2] if field.format == "xyxy" else rows[:, 2:4]
        names = (
            ("x2 < x1", "y2 < y1") if field.format == "xyxy" else ("a negative width", "a negative height")
        )
        for axis in (0, 1):
            bad = np.flatnonzero(sides[:, axis] < 0)
            if bad.size:
                raise RowError(
                    field,
                    int(bad[0]),
                    f"its box has {names[axis]} ({[float(number) for number in rows[bad[0]]]})",
                )

    def can_turn(self, field: Field) -> bool:
        return field.format not in ROTATED

    def turned(self, field: Field, value: npt.ArrayLike, turn: UprightTurn) -> npt.NDArray[Any]:
        boxes = np.asarray(value, np.float64)
        first, second = boxes[:, :2], boxes[:, 2:]
        if field.format == "cxcywh":
            return np.concatenate([turn.points(first), second[:, ::-1] if turn.swaps else second], 1)
        ends = np.stack(
            [turn.points(first), turn.points(second if field.format == "xyxy" else first + second)]
        )
        low, high = ends.min(0), ends.max(0)
        return np.concatenate([low, high if field.format == "xyxy" else high - low], 1)

    def fits_coco(self, field: Field) -> bool:
        return field.format not in ROTATED

    def native_item(self, field: Field) -> dict[str, Any]:
        return super().native_item(field) | {"format": field.format, "integer": field.dtype == "int64"}


class KeypointsKind(RowsKind):
    """Keypoints: of each object K points of x and y, and perhaps a visibility."""

    name = "keypoints"
    dtypes = ("float32",)
    has_points = True
    has_objects = True
    follows_image = True
    moved_as = "keypoints"
    coco_part = "keypoints"

    def settled(self, field: Field) -> tuple[str, tuple[int | None, ...]]:
        dtype = self.settled_dtype(field)
        points, *sides = field.shape or (None,)
        if not is_side(points) or int(points or 0) > POINT_LIMIT or sides not in ([2], [3]):
            raise unfit(
                field,
                f"shape {shown(field.shape)}",
                f"keypoints have (K, 2) or (K, 3), K at most {POINT_LIMIT}",
            )
        return dtype, field.shape

    def row_shape(self, field: Field) -> tuple[int, ...]:
        return tuple(side for side in field.shape if side is not None)

    def check_rows(self, field: Field, rows: npt.NDArray[Any]) -> None:
        check_finite(field, rows, "keypoints have")

    def from_array(self, array: npt.NDArray[Any], channels_first: bool) -> npt.NDArray[Any]:
        return array[:, None] if array.ndim == 2 else array

    def tv_name(self, field: Field) -> str:
        return "KeyPoints" if field.row_shape[-1] == 2 else "KeyPointsWithVisibility"

    def can_turn(self, field: Field) -> bool:
        return True

    def turned(self, field: Field, value: npt.ArrayLike, turn: UprightTurn) -> npt.NDArray[Any]:
        """Keypoints are flipped as torchvision flips them: they are places of pixels. Those of visibility
        0 stay as they are."""
        points = np.array(value, np.float64)
        moved = turn.points(points[..., :2], last=1)
        there = points[..., 2:] != 0 if points.shape[-1] > 2 else True
        points[..., :2] = np.where(there, moved, points[..., :2])
        return points

    def fits_coco(self, field: Field) -> bool:
        return field.shape[1:] == (3,)

    def native_item(self, field: Field) -> dict[str, Any]:
        return super().native_item(field) | {"columns": field.row_shape[-1]}
