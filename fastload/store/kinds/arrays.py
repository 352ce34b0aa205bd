"""Arrays: of one shape, which are a column, and of any number of rows, which lie in the record."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastload.store.checked import shown
from fastload.store.kinds.base import FieldKind, Value, array_of_json, array_value, is_side, unfit
from fastload.store.kinds.columns import ColumnKind
from fastload.store.kinds.rows import RowsKind

if TYPE_CHECKING:
    from fastload.store.field import Field

ARRAY_DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
    "float64",
)  # fmt: skip
ROW_LIMIT = 1 << 24
"""Limit on one row of an array field, in bytes; larger values belong in a field of kind bytes."""
SIDES_MOST = 16


class ArrayKind(ColumnKind):
    """Arrays of one shape. A field whose first side is None is one of `ArrayRowsKind`."""

    name = "array"
    dtypes = ARRAY_DTYPES
    is_array = True

    def settled(self, field: Field) -> tuple[str, tuple[int | None, ...]]:
        if field.dtype not in ARRAY_DTYPES:
            raise unfit(field, f"dtype {shown(field.dtype)}", f"arrays have one of {', '.join(ARRAY_DTYPES)}")
        if len(field.shape) > SIDES_MOST:
            raise unfit(field, f"shape {shown(field.shape)}", f"at most {SIDES_MOST} sides")
        varying = field.shape[:1] == (None,)
        if not all(is_side(side) for side in field.shape[varying:]):
            raise unfit(
                field, f"shape {field.shape}", "every side must be at least 1, or None if it is the first"
            )
        row = math.prod(int(side or 1) for side in field.shape) * np.dtype(field.dtype).itemsize
        if row > ROW_LIMIT:
            raise unfit(
                field,
                f"{row} bytes a {'row' if varying else 'sample'}",
                f"the limit is {ROW_LIMIT}; pack it as bytes",
            )
        return field.dtype, field.shape

    def for_field(self, field: Field) -> FieldKind:
        return ROWS if field.shape[:1] == (None,) else self

    def json_keys(self, field: Field) -> dict[str, Any]:
        return {"dtype": field.dtype, "shape": list(field.shape)}

    def checked(self, field: Field, value: object) -> npt.NDArray[Any]:
        return array_value(field, value)

    def from_json(self, field: Field, value: Value) -> npt.NDArray[Any]:
        return array_of_json(field, value)


class ArrayRowsKind(RowsKind):
    """Arrays of any number of rows, which may belong to boxes."""

    name = "array"
    is_array = True
    has_objects = True
    can_be_added = True
    native_name = "rows"

    def row_shape(self, field: Field) -> tuple[int, ...]:
        return tuple(side for side in field.shape if side is not None)


ROWS = ArrayRowsKind()
