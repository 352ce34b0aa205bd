"""RecordColumn: the values of one field that lies in records, gathered block by block, as an Arrow array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastload.common.optional import optional
from fastload.errors import SampleError
from fastload.store import DatasetReader, Field, parse_value

if TYPE_CHECKING:
    import pyarrow as pa


def arrow_array(values: npt.NDArray[Any], *, lists: bool = False) -> pa.Array:
    """An array (rows, *shape) as an Arrow array of rows, which shares its memory unless it holds bools.

    Args:
        values: contiguous, of a numeric dtype or bool.
        lists: as `Columns.table` has it.

    Raises:
        ArgumentError: pyarrow is not installed.
    """
    arrow = optional("pyarrow", "a table of columns")
    if lists and values.dtype == np.float16:
        values = values.astype(np.float32)
    array = arrow.array(values.reshape(-1))
    for side in reversed(values.shape[1:]):
        if lists:
            array = arrow.LargeListArray.from_arrays(np.arange(0, len(array) + 1, side, dtype=np.int64), array)
        else:
            array = arrow.FixedSizeListArray.from_arrays(array, side)
    return array


def arrow_type(field: Field) -> Any:
    """The Arrow type of a field that lies in records and is no array of any number of rows.

    Raises:
        ArgumentError: pyarrow is not installed.
    """
    arrow = optional("pyarrow", "a table of columns")
    if field.kind == "instances":
        return arrow.large_list(arrow.struct([("size", arrow.list_(arrow.int32())), ("counts", arrow.large_string())]))
    if field.kind == "polygons":
        return arrow.large_list(arrow.large_list(arrow.large_list(arrow.float32())))
    return arrow.large_binary() if field.kind == "bytes" else arrow.large_string()


class RecordColumn:
    """The column of one field that lies in records: text, JSON, bytes, or of any number of rows.

    `value` and `block` may be called by any thread; `join` is called once, and before `array`.
    """

    def __init__(self, reader: DatasetReader, field: Field) -> None:
        self._reader = reader
        self._field = field
        self._is_numeric = field.is_varying and field.kind not in ("instances", "polygons")
        self._joined: Any = None
        self.number = reader.schema.number(field.name)

    def value(self, index: int, kind: int, data: bytes | None) -> Any:
        """The value of a sample, from the entry in its record; None: the record lacks it. Raises SampleError."""
        field = self._field
        try:
            value = parse_value(self._reader, index, field, kind, data, runs=True)
        except SampleError as error:
            raise self._reader.sample_error(index, error.reason) from None
        if field.kind == "json" and data is not None:
            return data.decode("utf-8")
        return [[part.reshape(-1) for part in parts] for parts in value] if field.kind == "polygons" else value

    def block(self, values: Sequence[Any]) -> Any:
        """The values of neighbouring samples as one."""
        if not self._is_numeric:
            return optional("pyarrow", "a table of columns").array(values, arrow_type(self._field))
        empty = np.empty((0, *self._field.row_shape), self._field.stored_dtype)
        return np.concatenate([empty, *values]), np.array([len(each) for each in values], np.int64)

    def join(self, blocks: Sequence[Any]) -> None:
        """Makes the column of all blocks, in their order."""
        if not self._is_numeric:
            arrow = optional("pyarrow", "a table of columns")
            self._joined = arrow.chunked_array(blocks, arrow_type(self._field)).combine_chunks()
        elif blocks:
            self._joined = tuple(np.concatenate([block[part] for block in blocks]) for part in (0, 1))
        else:
            self._joined = self.block([])

    def array(self, lists: bool) -> pa.Array:
        """The column as an Arrow array; `lists` as `Columns.table` has it."""
        if not self._is_numeric:
            return self._joined
        values, counts = self._joined
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return optional("pyarrow", "a table of columns").LargeListArray.from_arrays(offsets, arrow_array(values, lists=lists))
