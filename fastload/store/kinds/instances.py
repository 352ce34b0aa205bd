"""Instances: of each object a binary mask as large as the first image, stored as COCO's run lengths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.errors import PackError
from fastload.store.kinds.base import (
    Data,
    RowError,
    SampleFacts,
    Size,
    UprightTurn,
    Value,
    is_list,
    refuse,
    u32,
    wrong,
)
from fastload.store.kinds.polygons import turned_part
from fastload.store.kinds.rows import AnyRowsKind
from fastload.store.kinds.run_lengths import Counts, counts_of, counts_text

if TYPE_CHECKING:
    from types import ModuleType

    import pyarrow as pa

    from fastload.store.field import Field


class InstancesKind(AnyRowsKind):
    """Binary masks: uint8 (number, height, width) of 0 and 1. Plain ones are COCO's RLE, {"size": [height,
    width], "counts": text}."""

    name = "instances"
    has_objects = True
    is_as_large = True
    has_pixels = True
    follows_image = True
    collated = "masks"
    member = "json"
    moved_as = "masks"
    tv_class = "Mask"
    coco_part = "segmentation"
    levels = 1

    def encoded(self, field: Field, value: object, canvas: Size) -> tuple[tuple[Data, ...], int]:
        if not is_list(value):
            raise refuse(
                field,
                value,
                "instances are a list of run lengths, masks or polygons, or an array (number, height, width)",
            )
        counts = [_counts(field, row, each, canvas) for row, each in enumerate(value)]
        lengths = u32(len(counts), *(len(each) for each in counts))
        values = np.concatenate(counts).astype("<u4") if counts else np.empty(0, "<u4")
        return (lengths, values.view(np.uint8)), len(counts)

    def unit(self, field: Field) -> int:
        return 4

    def parse(self, field: Field, kind: int, data: bytes, facts: SampleFacts) -> npt.NDArray[np.uint8]:
        self.split(field, kind, data, facts)
        return core.decode_instances(data, *facts.size())

    def plain(self, field: Field, kind: int, data: bytes, facts: SampleFacts) -> list[dict[str, Any]]:
        _, lengths, values = self.split(field, kind, data, facts)
        return _parsed(lengths[0], values, facts.size())

    def from_json(self, field: Field, value: Value) -> list[Any]:
        if not isinstance(value, list):
            raise ValueError(f"{self.name} are a list")
        return value

    def empty(self, field: Field) -> list[Any]:
        return []

    def arrow_type(self, field: Field, arrow: ModuleType) -> pa.DataType:
        return arrow.large_list(
            arrow.struct([("size", arrow.list_(arrow.int32())), ("counts", arrow.large_string())])
        )

    def exported_type(self, field: Field, arrow: ModuleType) -> pa.DataType:
        return self.arrow_type(field, arrow)

    def can_turn(self, field: Field) -> bool:
        return True

    def turned(self, field: Field, value: Iterable[object], turn: UprightTurn) -> list[Any]:
        return [_turned(each, turn) for each in value]

    def native_dtype(self, field: Field) -> np.dtype[Any]:
        return np.dtype(np.uint8)


def _counts(field: Field, row: int, value: object, canvas: Size) -> Counts:
    try:
        return counts_of(value, canvas)
    except PackError as error:
        raise RowError(field, row, str(error)) from None


def _turned(value: object, turn: UprightTurn) -> list[object] | npt.NDArray[Any]:
    if isinstance(value, list):
        return [turned_part(part, turn) for part in value]
    height, width = turn.size
    if isinstance(value, Mapping):
        counts = counts_of(value, turn.size)
        return turn.pixels(np.repeat(np.arange(counts.size) % 2 == 1, counts).reshape(width, height).T)
    return turn.pixels(np.asarray(value))


def _parsed(
    lengths: npt.NDArray[np.uint32], values: npt.NDArray[np.uint8], canvas: Size
) -> list[dict[str, Any]]:
    counts = values.copy().view("<u4")
    ends, total = np.cumsum(lengths, dtype=np.int64), canvas[0] * canvas[1]
    runs = [counts[end - size : end] for end, size in zip(ends.tolist(), lengths.tolist(), strict=True)]
    for each in runs:
        if (found := int(each.sum(dtype=np.uint64))) != total:
            raise wrong(
                f"the run lengths of a mask sum to {found}, its {canvas[1]} x {canvas[0]} pixels are {total}"
            )
    return [{"size": list(canvas), "counts": counts_text(each)} for each in runs]
