"""Parquet files, as Hugging Face's hub has them: a column of images, and others of any type. Needs pyarrow.

NOTE [ parquet: row groups ]
Parquet is compressed by row groups: to read one row, its whole group is decoded. So the last few groups that were read are kept, and
samples are read in the order of the files at the cost of one pass. With shuffle=True nearly every sample decodes a group of its own.
"""

from __future__ import annotations

import json
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from fastload.errors import PackError
from fastload.files import open_regular, read_regular
from fastload.packing.sources.protocol import IMAGE_KEYS, LABEL_KEYS, Item, Value, file_stamp
from fastload.query import optional
from fastload.store import Field

_KEPT = 4
"""Row groups that stay decoded."""
_GROUP_MOST = 8 << 30
"""Bytes of a row group, decoded."""


class ParquetSource:
    """One or many .parquet files of one schema, read in the order given, row group by row group.

    The image is the column that is named image, img, jpg, ... (or the only one that can be an image): bytes of a file, or Hugging Face's
    struct of `bytes` and `path`, where a path is read if there are no bytes. `label`, `labels`, `target` or `cls` of integers is the field
    ``label``; its class names come from Hugging Face's ClassLabel or from `fastload export`. Integers, floats, booleans, text and bytes
    keep their types, lists of fixed size become arrays, other nested values JSON, and dates, times and decimals text.

    Raises:
        PackError: a file is missing, damaged, or of another schema than the first; no column can be an image.
        ArgumentError: pyarrow is not installed.
    """

    concurrent = True

    def __init__(self, paths: list[str]) -> None:
        self.title = paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
        self._arrow = optional("pyarrow", "packing Parquet")
        self._parquet = optional("pyarrow.parquet", "packing Parquet")
        self._paths = paths
        self._lock = threading.Lock()
        self._groups: OrderedDict[tuple[int, int], Any] = OrderedDict()
        self._schema: Any = None
        self._starts: list[tuple[int, int, int]] = []  # (file, row group, first row in the file), of each row group
        firsts = [0]
        for number, path in enumerate(paths):
            row = 0
            for group, rows in enumerate(self._row_groups(path)):
                self._starts.append((number, group, row))
                firsts.append(firsts[-1] + rows)
                row += rows
        self._firsts = np.array(firsts, np.int64)
        if not firsts[-1]:
            raise PackError(f"{self.title}: no row in it")
        self._image = self._image_column()
        self._names = self._field_names()
        self.fields = tuple(self._field(column, name) for column, name in self._names.items())
        self.classes = self._class_names()

    def _row_groups(self, path: str) -> list[int]:
        """The rows of each row group; notes the schema, or compares it."""
        with self._open(path) as file:
            schema, meta = file.schema_arrow, file.metadata
            sizes = [meta.row_group(group).total_byte_size for group in range(meta.num_row_groups)]
            rows = [meta.row_group(group).num_rows for group in range(meta.num_row_groups)]
        if max(sizes, default=0) > _GROUP_MOST or min([*sizes, *rows], default=0) < 0:
            raise PackError(f"{path}: a row group of {max(sizes):,} bytes, more than the limit of {_GROUP_MOST:,}")
        if self._schema is None:
            self._schema = schema
        elif not schema.equals(self._schema):
            raise PackError(f"{path}: its columns are not those of {self._paths[0]}: pack files of one schema together")
        return rows

    @contextmanager
    def _open(self, path: str) -> Iterator[Any]:
        try:
            descriptor, _ = open_regular(path)
        except OSError as error:
            raise PackError(f"{path}: cannot be read: {error.strerror}") from error
        with os.fdopen(descriptor, "rb") as raw:
            try:
                file = self._parquet.ParquetFile(raw)
            except Exception as error:  # of a damaged file pyarrow raises whatever it meets
                raise PackError(f"{path}: not a whole Parquet file: {_brief(error)}") from error
            yield file

    def _image_column(self) -> str:
        can_be = [field.name for field in self._schema if self._is_image(field.type)]
        named = [name for name in IMAGE_KEYS if name in can_be]
        if named:
            return named[0]
        structs = [name for name in can_be if self._is_struct(self._schema.field(name).type)]
        for found in (structs, can_be):
            if len(found) == 1:
                return str(found[0])
        how_many = "several columns" if can_be else "no column"
        raise PackError(f"{self.title}: {how_many} of {', '.join(self._schema.names)} can be the image: name one 'image'")

    def _is_struct(self, kind: Any) -> bool:
        """Hugging Face's Image: bytes, or the path of a file."""
        return bool(self._arrow.types.is_struct(kind)) and {field.name for field in kind} == {"bytes", "path"}

    def _is_image(self, kind: Any) -> bool:
        types = self._arrow.types
        return bool(types.is_binary(kind) or types.is_large_binary(kind)) or self._is_struct(kind)

    def _field_names(self) -> dict[str, str]:
        """The fields' names by column: the label's is ``label``."""
        others = [name for name in self._schema.names if name != self._image]
        integers = self._arrow.types.is_integer
        label = next((name for name in LABEL_KEYS if name in others and integers(self._schema.field(name).type)), None)
        names = {name: "label" if name == label else name for name in others}
        if len(set(self._schema.names)) < len(self._schema.names) or len(set(names.values())) < len(names):
            raise PackError(f"{self.title}: two columns of one name among {', '.join(self._schema.names)}")
        return names

    def _field(self, column: str, name: str) -> Field:
        types, kind = self._arrow.types, self._schema.field(column).type
        if types.is_integer(kind) or types.is_boolean(kind):
            return Field(name, "int")
        if types.is_floating(kind):
            return Field(name, "float")
        if types.is_binary(kind) or types.is_large_binary(kind):
            return Field(name, "bytes")
        if types.is_fixed_size_list(kind) and (types.is_integer(kind.value_type) or types.is_floating(kind.value_type)):
            return Field(name, "array", shape=(kind.list_size,), dtype=str(np.dtype(kind.value_type.to_pandas_dtype())))
        return Field(name, "json" if types.is_nested(kind) else "text")

    def _class_names(self) -> tuple[str, ...] | None:
        """Of the label: from Hugging Face's description of the columns, or from `fastload export`."""
        column = next((column for column, name in self._names.items() if name == "label"), None)
        meta = self._schema.metadata or {}
        try:
            own = json.loads(meta.get(b"fastload.classes", b"null"))
            told = json.loads(meta.get(b"huggingface", b"{}"))
            names = own if own is not None else told.get("info", {}).get("features", {}).get(column, {}).get("names")
        except (ValueError, AttributeError, RecursionError):
            return None
        if isinstance(names, list) and names and all(isinstance(name, str) for name in names):
            return tuple(names)
        return None

    def __len__(self) -> int:
        return int(self._firsts[-1])

    def _place(self, position: int) -> tuple[int, int, int, int]:
        """(file, row group, row in the group, row in the file) of a sample."""
        at = int(np.searchsorted(self._firsts, position, side="right")) - 1
        number, group, first = self._starts[at]
        row = position - int(self._firsts[at])
        return number, group, row, first + row

    def name(self, position: int) -> str:
        number, _, _, row = self._place(position)
        return f"{self._paths[number]}: row {row}"

    def key(self, position: int) -> str:
        number, _, _, row = self._place(position)
        return f"{number}:{row}"

    def stamp(self, position: int) -> tuple[int, int]:
        return file_stamp(self._paths[self._place(position)[0]])

    def fields_of(self, position: int) -> None:
        """None: its row has to be read."""

    def read(self, position: int) -> Item:
        number, group, row, _ = self._place(position)
        name = self.name(position)
        table = self._group(number, group)
        if row >= table.num_rows:
            raise PackError(f"{self._paths[number]}: row group {group} has {table.num_rows} rows, less than the file says")
        values = {field: self._value(name, table.column(column)[row], column) for column, field in self._names.items()}
        return Item(name, self._bytes(name, number, table.column(self._image)[row].as_py()), values)

    def _group(self, number: int, group: int) -> Any:
        """A row group as a table, decoded once while it is among the last that were read."""
        with self._lock:
            found = self._groups.get((number, group))
            if found is None:
                with self._open(self._paths[number]) as file:
                    try:
                        found = file.read_row_group(group, columns=[self._image, *self._names])
                    except Exception as error:
                        raise PackError(f"{self._paths[number]}: row group {group} cannot be read: {_brief(error)}") from error
                self._groups[number, group] = found
                while len(self._groups) > _KEPT:
                    self._groups.popitem(last=False)
            self._groups.move_to_end((number, group))
        return found

    def _bytes(self, name: str, number: int, value: Any) -> bytes:
        path = None
        if isinstance(value, dict):
            value, path = value["bytes"], value["path"]
        if value is None and path:
            return read_regular(os.path.join(os.path.dirname(self._paths[number]), path))
        if value is None:
            raise PackError(f"{name}: its {self._image} is null")
        return bytes(value)

    def _value(self, name: str, scalar: Any, column: str) -> Value:
        kind = next(field.kind for field in self.fields if field.name == self._names[column])
        value = scalar.as_py()
        if kind == "json":
            return _as_json(value)
        if value is None:
            raise PackError(f"{name}: its {column} is null")
        if kind == "array":
            return np.asarray(value, scalar.type.value_type.to_pandas_dtype())
        if kind == "int":
            return int(value)
        return value if isinstance(value, str | bytes | float) else str(value)


def _as_json(value: Any) -> Value:
    """A nested value of JSON's types: bytes, dates and the like as text."""
    if isinstance(value, dict):
        return {str(key): _as_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(each) for each in value]
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)


def _brief(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
