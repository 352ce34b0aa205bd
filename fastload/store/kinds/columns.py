"""Kinds of fixed size, which are columns: whole numbers and floats. `fastload.store.kinds.arrays` has
arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from fastload.store.kinds.base import (
    Collated,
    FieldKind,
    SampleFacts,
    SampleParts,
    Value,
    decimals,
    refuse,
    wrong,
)

if TYPE_CHECKING:
    from types import ModuleType

    import pyarrow as pa

    from fastload.store.field import Field


class ColumnKind(FieldKind):
    """Base of the kinds whose values have one size: a row of a column each."""

    entry = -1
    is_extended = False
    is_column = True
    can_be_added = True
    collated: Collated = "stack"

    def encode(self, field: Field, number: int, value: object, parts: SampleParts) -> None:
        parts.row.append(self.checked(field, value))

    def checked(self, field: Field, value: object) -> Value:
        """The value as a row of the column. Raises PackError."""
        raise NotImplementedError(self.name)

    def parse(self, field: Field, kind: int, data: bytes, facts: SampleFacts) -> NoReturn:
        raise wrong(f"field {field.name!r} is a column, and its record has an entry of it")

    def to_json(self, value: Any) -> Value:
        return decimals(value) if isinstance(value, np.ndarray | np.generic) else value

    def exported_type(self, field: Field, arrow: ModuleType) -> pa.DataType:
        found = arrow.from_numpy_dtype(np.dtype(field.dtype))
        for side in reversed(field.shape):
            found = arrow.list_(found, side)
        return found


class NumberKind(ColumnKind):
    """Base of the kinds that are one number, of a dtype that follows from the kind."""

    shows_dtype = False

    def json_keys(self, field: Field) -> dict[str, Any]:
        return {}


class IntKind(NumberKind):
    """Whole numbers of 64 bits."""

    name = "int"
    dtypes = ("int64",)
    can_label = True
    finds_samples = True

    def checked(self, field: Field, value: object) -> int:
        if not isinstance(value, int | np.integer | np.bool_):
            raise refuse(field, value, "it is no whole number")
        number = int(value)
        if not -(2**63) <= number < 2**63:
            raise refuse(field, value, "it does not fit 64 bits")
        return number

    def parse_cell(self, cell: str) -> int:
        number = int(cell)
        if not -(2**63) <= number < 2**63:
            raise ValueError("does not fit 64 bits")
        return number

    def from_python(self, field: Field, value: Any) -> int:
        return int(value)


class FloatKind(NumberKind):
    """Floats of 64 bits."""

    name = "float"
    dtypes = ("float64",)

    def checked(self, field: Field, value: object) -> float:
        if not isinstance(value, int | float | np.integer | np.floating | np.bool_):
            raise refuse(field, value, "it is no number")
        try:
            return float(value)
        except OverflowError:
            raise refuse(field, value, "it does not fit a float64") from None

    def from_json(self, field: Field, value: Value) -> Value:
        return float(value) if isinstance(value, int) and not isinstance(value, bool) else value

    def parse_cell(self, cell: str) -> float:
        return float(cell)
