"""Files of columns: a .csv or .tsv with a header line, or a .npy, as columns to add to a dataset."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from fastload.common.files import expanded, read_regular
from fastload.errors import ArgumentError, PackError
from fastload.packing.images import read_npy
from fastload.packing.sources.table import guess_kind, parse_cell, read_rows
from fastload.store import Field
from fastload.store.field import Kind

KINDS = ("int", "float", "text", "json")
"""Kinds that a column of a table may be given."""


@dataclass(frozen=True)
class NewColumn:
    """A column to be added.

    Attributes:
        field: the field that it becomes.
        values: a value for each row of the file: an array for int, float and array, else UTF-8 texts or bytes.
    """

    field: Field
    values: npt.NDArray[Any] | list[bytes]


@dataclass(frozen=True)
class ColumnFile:
    """What a file holds.

    Attributes:
        path: the file.
        columns: the columns to be added.
        keys: the cells of the column that is matched with a field of the dataset; None: rows are in the dataset's order.
        lines: the line of each row, for messages.
    """

    path: str
    columns: tuple[NewColumn, ...]
    keys: list[str] | None
    lines: Sequence[int]

    def __len__(self) -> int:
        return len(self.lines)


def read_columns(path: str | os.PathLike[str], key: str | None, wanted: Sequence[str] | None) -> ColumnFile:
    """Reads the columns of a .csv, .tsv or .npy.

    Args:
        path: the file.
        key: the header's name of the column that is matched; None: there is none.
        wanted: the columns that are taken, each as "name" or "name:kind"; None: all but the key.

    Raises:
        ArgumentError: a column that the file has not, or of a kind that there is not.
        PackError: the file cannot be read, or a value is not of its column's kind.
    """
    text = expanded(path)
    if text.lower().endswith(".npy"):
        return _read_array(text, key, wanted)
    if not text.lower().endswith((".csv", ".tsv")):
        raise PackError(f"{text}: columns come from a .csv, .tsv or .npy file; give one that ends so")
    return _read_table(text, key, wanted)


def _read_table(path: str, key: str | None, wanted: Sequence[str] | None) -> ColumnFile:
    lines, rows = read_rows(path)
    given = [cell.strip() for cell in rows[0]]
    kinds = dict(_split(cell) for cell in given)
    names = [_split(cell)[0] for cell in given]
    lines, rows = lines[1:], rows[1:]
    if not rows:
        raise PackError(f"{path}: only one line; the first names the columns, and a line for each sample follows")
    if len(set(names)) != len(names) or "" in names:
        raise PackError(f"{path}: the first line names the columns, each by a name of its own; it is {', '.join(map(repr, names))}")
    for line, row in zip(lines, rows, strict=True):
        if len(row) != len(names):
            raise PackError(f"{path}, line {line}: {len(row)} cells where the first line has {len(names)}")
    if wanted is not None:
        kinds |= {name: kind for name, kind in map(_split, wanted) if kind is not None}
    chosen = [name for name in names if name != key] if wanted is None else [_split(each)[0] for each in wanted]
    for name in (*chosen, *(() if key is None else (key,))):
        if name not in names:
            raise ArgumentError(f"{path} has no column {name!r}; its first line names {', '.join(names)}")
    if not chosen:
        raise ArgumentError(f"{path} has no column to add besides {key!r}")
    cells = {name: [row[names.index(name)] for row in rows] for name in (*chosen, *(() if key is None else (key,)))}
    columns = tuple(_column(path, name, kinds[name], cells[name], lines) for name in chosen)
    return ColumnFile(path, columns, None if key is None else cells[key], lines)


def _split(text: str) -> tuple[str, str | None]:
    """The name and the kind in "name:kind"; a name may hold colons."""
    name, colon, kind = text.rpartition(":")
    if colon and kind in KINDS:
        return name.strip(), kind
    return text.strip(), None


def _column(path: str, name: str, kind: str | None, cells: list[str], lines: Sequence[int]) -> NewColumn:
    kind = kind or guess_kind(cells)
    field = Field(name, cast(Kind, kind))
    if kind == "text":
        return NewColumn(field, [cell.encode("utf-8", "surrogatepass") for cell in cells])
    values: list[Any] = []
    for line, cell in zip(lines, cells, strict=True):
        try:
            values.append(parse_cell(cell, kind))
        except ValueError as error:  # noqa: PERF203
            raise PackError(f"{path}, line {line}: column {name!r}: {cell!r} is not {kind}: {error}") from None
    if kind == "json":
        return NewColumn(field, [cell.strip().encode() for cell in cells])
    return NewColumn(field, np.array(values, field.stored_dtype))


def _read_array(path: str, key: str | None, wanted: Sequence[str] | None) -> ColumnFile:
    if key is not None:
        raise ArgumentError(f"{path} has no keys: the rows of a .npy are in the dataset's order; give a .csv or .tsv")
    if wanted is not None and len(wanted) != 1:
        raise ArgumentError(f"{path} is one column; {len(wanted)} are named")
    try:
        values = read_npy(read_regular(path, 1 << 40))
    except OSError as error:
        raise PackError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise PackError(f"{path}: {error}") from None
    if values.ndim < 1:
        raise PackError(f"{path}: its array has no rows; give one value for each sample")
    name = wanted[0].strip() if wanted else Path(path).stem
    plain = {"<i8": "int", "<f8": "float"} if values.ndim == 1 else {}
    kind = plain.get(values.dtype.newbyteorder("<").str, "array")
    field = Field(name, cast(Kind, kind), *((str(values.dtype.newbyteorder("=")), values.shape[1:]) if kind == "array" else ()))
    return ColumnFile(path, (NewColumn(field, np.ascontiguousarray(values, field.stored_dtype)),), None, range(len(values)))
