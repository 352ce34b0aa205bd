"""Columns: the fields of a packed dataset as Arrow arrays: all but images, masks, and what has any number of rows."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastload.errors import SampleError
from fastload.query.optional import optional
from fastload.store import HEIGHT_COLUMN, WIDTH_COLUMN, DatasetReader, Field, parse_stored
from fastload.system import available_cpus

if TYPE_CHECKING:
    import pyarrow as pa

_BLOCK = 256
"""Records that a thread reads at a time: enough that handing out blocks costs nothing beside reading them."""


class Columns:
    """Arrow arrays of one open dataset, made when they are asked for.

    1. Any thread may ask.
    2. Numbers share the memory of the reader's columns, except bools, which Arrow packs into bits.
    3. Fields that lie in records (text, JSON, bytes) are read once, by reading every record, and kept; where they were added later,
       no record is read for them.
    4. A forked child keeps what its parent has read.

    Attributes:
        kinds: kind of each column by name, in the order of the fields. `width` and `height` of the stored image, pixels, come last,
            unless fields have these names.
    """

    def __init__(self, reader: DatasetReader) -> None:
        self._reader = reader
        self._fields: dict[str, Field] = {field.name: field for field in reader.schema if not (field.kind == "image" or field.is_extended)}
        taken = {field.name for field in reader.schema}
        self._sizes = {name: column for name, column in (("width", WIDTH_COLUMN), ("height", HEIGHT_COLUMN)) if name not in taken}
        self._read: dict[str, pa.Array] = {}
        self.kinds: dict[str, str] = {}
        self.kinds.update((name, field.kind) for name, field in self._fields.items())
        self.kinds.update((name, "int") for name in self._sizes)

    def lies_in_records(self, name: str) -> bool:
        """Whether the column is read out of records, which costs a pass over the dataset."""
        return name not in self._sizes and not self._fields[name].is_column

    def table(self, names: Iterable[str] | None = None, *, lists: bool = False) -> pa.Table:
        """The named columns, or all, as an Arrow table of one chunk a column.

        Args:
            names: of `kinds`.
            lists: make array fields lists of any length, with float32 in place of float16, as SQL engines have them; else lists of
                fixed size, which take no memory of their own.

        Raises:
            ArgumentError: pyarrow is not installed.
            SampleError: a record is damaged, or lacks a field.
            DatasetError: a column is damaged.
        """
        arrow = optional("pyarrow", "a table of columns")
        wanted = list(self.kinds) if names is None else list(names)
        self._read_records([name for name in wanted if self.lies_in_records(name)])
        return arrow.table({name: self._array(name, lists) for name in wanted})

    def _array(self, name: str, lists: bool) -> pa.Array:
        if name in self._sizes:
            return arrow_array(self._reader.column(self._sizes[name]))
        if name in self._read:
            return self._read[name]
        return arrow_array(self._reader.column(name), lists=lists)

    def _read_records(self, names: Sequence[str]) -> None:
        """Reads every record for the named fields that are not kept yet."""
        missing = [name for name in names if name not in self._read]
        if not missing:
            return
        arrow = optional("pyarrow", "a table of columns")
        types = [arrow.large_binary() if self.kinds[name] == "bytes" else arrow.large_string() for name in missing]
        numbers = [self._reader.schema.number(name) for name in missing]
        fields = [self._fields[name] for name in missing]
        stopped = threading.Event()

        def block(start: int) -> list[pa.Array]:
            found: list[bytes | None]
            values: list[list[Any]] = [[] for _ in fields]
            for index in range(start, min(start + _BLOCK, self._reader.count)):
                if stopped.is_set():
                    break
                if all(self._reader.is_added(index, name) for name in missing):
                    found = [self._reader.added_bytes(index, name) for name in missing]
                else:
                    stored = self._reader.stored_fields(index)
                    found = [stored.get(number, (0, None))[1] for number in numbers]
                for field, data, into in zip(fields, found, values, strict=True):
                    into.append(self._value(field, index, data))
            return [arrow.array(each, kind) for each, kind in zip(values, types, strict=True)]

        with ThreadPoolExecutor(available_cpus(), "fastload-query") as pool:
            try:
                blocks = list(pool.map(block, range(0, self._reader.count, _BLOCK)))
            finally:
                stopped.set()
        for place, (name, kind) in enumerate(zip(missing, types, strict=True)):
            self._read[name] = arrow.chunked_array([each[place] for each in blocks], kind).combine_chunks()

    def _value(self, field: Field, index: int, data: bytes | None) -> Any:
        try:
            value = parse_stored(field, data)
        except SampleError as error:
            raise self._reader.sample_error(index, error.reason) from None
        return data.decode("utf-8") if field.kind == "json" and data is not None else value


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
