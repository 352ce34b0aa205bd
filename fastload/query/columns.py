"""Columns: the fields of a packed dataset as Arrow arrays: all but the pixels of images and masks."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from fastload.common.optional import optional
from fastload.common.system import available_cpus
from fastload.query.record_columns import RecordColumn, arrow_array
from fastload.store import COUNT_COLUMN, HEIGHT_COLUMN, WIDTH_COLUMN, DatasetReader, Field, Schema

if TYPE_CHECKING:
    import pyarrow as pa

_BLOCK = 256
"""Records that a thread reads at a time: enough that handing out blocks costs nothing beside reading them."""
_WORDS = {COUNT_COLUMN: "count", HEIGHT_COLUMN: "height", WIDTH_COLUMN: "width"}


class Columns:
    """Arrow arrays of one open dataset, made when they are asked for.

    1. Any thread may ask.
    2. Numbers share the memory of the reader's columns, except bools, which Arrow packs into bits.
    3. Fields that lie in records (text, JSON, bytes, and what has any number of rows) are read once, by reading every record, and kept;
       where they were added later, no record is read for them.
    4. A forked child keeps what its parent has read.

    Attributes:
        kinds: kind of each column by name, in the order of the fields. What the dataset's hidden columns say comes last, unless fields have
            these names: `width` and `height` of the stored image, pixels, and those of a further image (`right_width`), and the number of
            rows of what has any number of its own (`boxes_count`).
        pixels: the fields that are no columns, by name: images and masks.
    """

    def __init__(self, reader: DatasetReader) -> None:
        self._reader = reader
        self.pixels: dict[str, Field] = {field.name: field for field in reader.schema if field.kind in ("image", "mask")}
        self._fields: dict[str, Field] = {field.name: field for field in reader.schema if field.name not in self.pixels}
        taken = {field.name for field in reader.schema}
        self._hidden = {name: column for name, column in _hidden_columns(reader.schema) if name not in taken}
        self._read: dict[str, RecordColumn] = {}
        self.kinds: dict[str, str] = {}
        self.kinds.update((name, field.kind) for name, field in self._fields.items())
        self.kinds.update((name, "int") for name in self._hidden)

    def lies_in_records(self, name: str) -> bool:
        """Whether the column is read out of records, which costs a pass over the dataset."""
        return name not in self._hidden and not self._fields[name].is_column

    def table(self, names: Iterable[str] | None = None, *, lists: bool = False) -> pa.Table:
        """The named columns, or all, as an Arrow table of one chunk a column.

        Text and JSON are large strings, bytes large binary. What has any number of rows is a large list of rows; polygons are lists of
        parts, each a flat list of x and y; instances are COCO's RLE, structs of `size` and `counts`.

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
        if name in self._hidden:
            return arrow_array(self._reader.column(self._hidden[name]))
        if name in self._read:
            return self._read[name].array(lists)
        return arrow_array(self._reader.column(name), lists=lists)

    def _read_records(self, names: Sequence[str]) -> None:
        """Reads every record for the named fields that are not kept yet."""
        missing = [name for name in names if name not in self._read]
        if not missing:
            return
        columns = [RecordColumn(self._reader, self._fields[name]) for name in missing]
        stopped = threading.Event()

        def block(start: int) -> list[Any]:
            values: list[list[Any]] = [[] for _ in columns]
            for index in range(start, min(start + _BLOCK, self._reader.count)):
                if stopped.is_set():
                    break
                found: list[tuple[int, bytes | None]]
                if all(self._reader.is_added(index, name) for name in missing):
                    found = [(0, self._reader.added_bytes(index, name)) for name in missing]
                else:
                    stored = self._reader.stored_fields(index)
                    found = [stored.get(column.number, (0, None)) for column in columns]
                for column, (kind, data), into in zip(columns, found, values, strict=True):
                    into.append(column.value(index, kind, data))
            return [column.block(each) for column, each in zip(columns, values, strict=True)]

        with ThreadPoolExecutor(available_cpus(), "fastload-query") as pool:
            try:
                blocks = list(pool.map(block, range(0, self._reader.count, _BLOCK)))
            finally:
                stopped.set()
        for place, (name, column) in enumerate(zip(missing, columns, strict=True)):
            column.join([each[place] for each in blocks])
            self._read[name] = column


def _hidden_columns(schema: Schema) -> list[tuple[str, str]]:
    """(name, hidden column) of what the hidden columns say of samples: sizes of images, and numbers of rows."""
    found = [("width", WIDTH_COLUMN), ("height", HEIGHT_COLUMN)]
    for field in schema:
        if field.of:  # as many rows as there are boxes
            continue
        hidden = sorted(schema.hidden_names(field), reverse=True)  # the width first
        found += [(f"{field.name}_{_WORDS[each.partition(':')[0]]}", each) for each in hidden]
    return found
