"""Polygons: of each object any number of closed lines of points."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from fastload.store.checked import shown
from fastload.store.kinds.base import (
    Data,
    RowError,
    SampleFacts,
    Size,
    UprightTurn,
    Value,
    decimals,
    is_list,
    refuse,
    u32,
)
from fastload.store.kinds.rows import AnyRowsKind

if TYPE_CHECKING:
    from types import ModuleType

    import pyarrow as pa

    from fastload.store.field import Field

S = TypeVar("S")
T = TypeVar("T")
Polygons = list[list[npt.NDArray[np.float32]]]
"""Parts of each object, (points, 2) each."""

_POINT = 2
_FLOAT_BYTES = 4


class PolygonsKind(AnyRowsKind):
    """Polygons, whose value is a list of objects, each a list of parts, float32 (points, 2). Plain parts
    are the same."""

    name = "polygons"
    dtypes = ("float32",)
    has_objects = True
    is_ragged = True
    follows_image = True
    collated = "list"
    member = "json"
    tv_class = "Outline"
    coco_part = "segmentation"
    levels = 2

    def encoded(self, field: Field, value: object, canvas: Size) -> tuple[tuple[Data, ...], int]:
        if not is_list(value):
            raise refuse(field, value, "polygons are a list of objects, each a list of parts")
        parts: list[int] = []
        lines: list[npt.NDArray[np.float32]] = []
        for row, each in enumerate(value):
            if not is_list(each):
                raise RowError(field, row, f"its polygon is {shown(each)}, not a list of parts")
            parts.append(len(each))
            lines += [_line(field, row, part) for part in each]
        points = [len(line) // _POINT for line in lines]
        values = np.concatenate(lines) if lines else np.empty(0, "<f4")
        return (u32(len(parts), *parts, *points), values.astype("<f4", copy=False).view(np.uint8)), len(parts)

    def unit(self, field: Field) -> int:
        return _FLOAT_BYTES * _POINT

    def parse(self, field: Field, kind: int, data: bytes, facts: SampleFacts) -> Polygons:
        _, lengths, values = self.split(field, kind, data, facts)
        return _parsed(lengths, values)

    def to_json(self, value: Polygons) -> list[Any]:
        return [[decimals(part.reshape(-1)) for part in parts] for parts in value]

    def from_json(self, field: Field, value: Value) -> list[Any]:
        if not isinstance(value, list):
            raise ValueError(f"{self.name} are a list")
        return value

    def tensors(self, value: Polygons, make: Callable[[npt.NDArray[Any]], T]) -> list[list[T]]:
        return self.each(value, make)

    def each(self, value: Iterable[Iterable[S]], change: Callable[[S], T]) -> list[list[T]]:
        return [[change(part) for part in parts] for parts in value]

    def arrow_type(self, field: Field, arrow: ModuleType) -> pa.DataType:
        return arrow.large_list(arrow.large_list(arrow.large_list(arrow.float32())))

    def exported_type(self, field: Field, arrow: ModuleType) -> pa.DataType:
        return self.arrow_type(field, arrow)

    def arrow_value(self, value: Any) -> list[list[npt.NDArray[np.float32]]]:
        return self.each(value, lambda part: part.reshape(-1))

    def can_turn(self, field: Field) -> bool:
        return True

    def turned(self, field: Field, value: Iterable[Iterable[npt.ArrayLike]], turn: UprightTurn) -> list[Any]:
        return self.each(value, lambda part: turned_part(part, turn))

    def native_item(self, field: Field) -> dict[str, Any]:
        return super().native_item(field) | {"unit": _FLOAT_BYTES}


def _line(field: Field, row: int, part: object) -> npt.NDArray[np.float32]:
    try:
        numbers = np.asarray(part, np.float64).reshape(-1)
    except (ValueError, TypeError) as error:
        raise RowError(field, row, f"a part of its polygon is no list of numbers: {error}") from None
    with np.errstate(over="ignore"):
        line = numbers.astype("<f4")
    if line.size % _POINT or not np.isfinite(line).all():
        raise RowError(
            field,
            row,
            f"a part of its polygon has {line.size} numbers; it has x and y of each point, all finite",
        )
    return line


def turned_part(part: npt.ArrayLike, turn: UprightTurn) -> object:
    """A list of x and y, turned; one that is none stays as it is, and is an error when it is stored."""
    points = np.asarray(part, np.float64).reshape(-1)
    return part if points.size % _POINT else turn.points(points.reshape(-1, _POINT)).reshape(-1).tolist()


def polygons_of(row: memoryview) -> Polygons:
    """Polygons as csrc/engine/polygons.h writes them, in the first bytes of `row`, which may go on: of
    each object its parts."""
    numbers = np.frombuffer(row, "<u4", len(row) // 4)
    objects = int(numbers[0])
    parts = numbers[1 : 1 + objects]
    points = numbers[1 + objects : 1 + objects + int(parts.sum(dtype=np.int64))]
    first = 4 * (1 + objects + len(points))
    return _parsed(
        (parts, points), np.frombuffer(row, np.uint8, 4 * _POINT * int(points.sum(dtype=np.int64)), first)
    )


def _parsed(lengths: tuple[npt.NDArray[np.uint32], ...], values: npt.NDArray[np.uint8]) -> Polygons:
    points = values.copy().view("<f4").reshape(-1, _POINT)
    ends = np.cumsum(lengths[1], dtype=np.int64)
    lines = [points[end - size : end] for end, size in zip(ends.tolist(), lengths[1].tolist(), strict=True)]
    out, at = [], 0
    for size in lengths[0].tolist():
        out.append(lines[at : at + size])
        at += size
    return out
