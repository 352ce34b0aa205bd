"""add_columns, drop_columns: fields added to every sample of a dataset, and removed, without writing a sample
anew. Added columns come from a file: a .csv or .tsv with a header line, or a .npy.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from fastload.common.files import expanded, read_regular
from fastload.common.spill import Texts
from fastload.common.system import available_cpus
from fastload.errors import ArgumentError, PackError, printable
from fastload.sources.pixels import read_npy
from fastload.sources.table import guess_kind, read_rows
from fastload.store import DatasetChange, DatasetReader, Field, Schema
from fastload.store.field import KindName
from fastload.store.sidecar import packed_values

CELL_KINDS = ("int", "float", "text", "json")
"""Kinds that a column of a table may be given."""


@dataclass(frozen=True)
class NewColumn:
    """A column to be added.

    Attributes:
        field: the field that it becomes.
        values: a value for each row of the file: an array for int, float and array, else UTF-8 texts, bytes,
            or encoded rows of any number.
        counts: number of these rows, int32; None: the field has one value.
    """

    field: Field
    values: npt.NDArray[Any] | list[bytes] | Texts
    counts: npt.NDArray[np.int32] | None = None


@dataclass(frozen=True)
class ColumnFile:
    """A file of columns to add to a dataset.

    Attributes:
        path: the file.
        columns: the columns to be added.
        keys: the cells of the column that is matched with a field of the dataset; None: rows are in the
            dataset's order.
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
    numbered = list(read_rows(path))
    lines, rows = [line for line, _ in numbered], [row for _, row in numbered]
    given = [cell.strip() for cell in rows[0]]
    kinds = dict(_split(cell) for cell in given)
    names = [_split(cell)[0] for cell in given]
    lines, rows = lines[1:], rows[1:]
    if not rows:
        raise PackError(
            f"{path}: only one line; the first names the columns, and a line for each sample follows"
        )
    if len(set(names)) != len(names) or "" in names:
        raise PackError(
            f"{path}: the first line names the columns, each by a name of its own; it is "
            f"{', '.join(map(repr, names))}"
        )
    for line, row in zip(lines, rows, strict=True):
        if len(row) != len(names):
            raise PackError(f"{path}, line {line}: {len(row)} cells where the first line has {len(names)}")
    if wanted is not None:
        kinds |= {name: kind for name, kind in map(_split, wanted) if kind is not None}
    chosen = (
        [name for name in names if name != key] if wanted is None else [_split(each)[0] for each in wanted]
    )
    for name in (*chosen, *(() if key is None else (key,))):
        if name not in names:
            raise ArgumentError(f"{path} has no column {name!r}; its first line names {', '.join(names)}")
    if not chosen:
        raise ArgumentError(f"{path} has no column to add besides {key!r}")
    cells = {
        name: [row[names.index(name)] for row in rows] for name in (*chosen, *(() if key is None else (key,)))
    }
    columns = tuple(_column(path, name, kinds[name], cells[name], lines) for name in chosen)
    return ColumnFile(path, columns, None if key is None else cells[key], lines)


def _split(text: str) -> tuple[str, str | None]:
    """The name and the kind in "name:kind"; a name may hold colons."""
    name, colon, kind = text.rpartition(":")
    if colon and kind in CELL_KINDS:
        return name.strip(), kind
    return text.strip(), None


def _column(path: str, name: str, kind: str | None, cells: list[str], lines: Sequence[int]) -> NewColumn:
    kind = kind or guess_kind(cells)
    field = Field(name, cast(KindName, kind))
    values: list[Any] = []
    for line, cell in zip(lines, cells, strict=True):
        try:
            values.append(field.handler.parse_cell(cell))
        except ValueError as error:  # noqa: PERF203
            raise PackError(
                f"{path}, line {line}: column {name!r}: {cell!r} is not {kind}: {error}"
            ) from None
    if field.is_column:
        return NewColumn(field, np.array(values, field.stored_dtype))
    return NewColumn(field, [field.handler.cell_bytes(cell) for cell in cells])


def _read_array(path: str, key: str | None, wanted: Sequence[str] | None) -> ColumnFile:
    if key is not None:
        raise ArgumentError(
            f"{path} has no keys: the rows of a .npy are in the dataset's order; give a .csv or .tsv"
        )
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
    plain: dict[str, KindName] = {"<i8": "int", "<f8": "float"} if values.ndim == 1 else {}
    kind = plain.get(values.dtype.newbyteorder("<").str)
    field = (
        Field(name, "array", str(values.dtype.newbyteorder("=")), values.shape[1:])
        if kind is None
        else Field(name, kind)
    )
    return ColumnFile(
        path, (NewColumn(field, np.ascontiguousarray(values, field.stored_dtype)),), None, range(len(values))
    )


_GO_ON = "run `fastload columns` again: nothing is lost"
_BLOCK = 1024
"""Samples whose keys a thread reads at a time."""


@dataclass(frozen=True, slots=True)
class ColumnsSummary:
    """Result of `add_columns` and `drop_columns`.

    Attributes:
        version: the new version.
        samples: samples in it.
        names: fields added or taken away.
        unused: rows whose key no sample has.
    """

    version: int
    samples: int
    names: tuple[str, ...]
    unused: int = 0


def add_columns(
    path: str | os.PathLike[str],
    file: str | os.PathLike[str],
    *,
    key: str | None = None,
    columns: Sequence[str] | None = None,
) -> ColumnsSummary:
    """Adds the columns of a file as fields of every sample, as a new version. No record is written.

    Args:
        path: the dataset's directory.
        file: a .csv or .tsv whose first line names its columns, or a .npy, one column of its name. A table's
            column is the first of int, float, json and text that fits all cells.
        key: int or text field, also a column of the file, by whose value a sample finds its row; by default
            rows are in order.
        columns: columns to add, as "name" or "name:kind"; all by default.

    Raises:
        ArgumentError: a column is missing, or a field already; or the key is no int or text field.
        DatasetError: as in `append`.
        SampleError: a sample's key cannot be read.
        PackError: as in `append`; or the file cannot be read, has a wrong number of rows, a key twice, or
            none for a sample.
    """
    if isinstance(columns, str):
        raise ArgumentError(
            f"columns={columns!r} is one text, not a sequence of names: write columns=({columns!r},)"
        )
    found = read_columns(file, key, columns)
    with DatasetChange(path, _GO_ON) as change:
        check_names(change, (column.field for column in found.columns))
        with DatasetReader(change.path, manifest=change.manifest) as reader:
            order, unused = _order(reader, found, key)
            return replace(commit_columns(change, reader, found.columns, order), unused=unused)


def check_names(change: DatasetChange, fields: Iterable[Field]) -> None:
    """Raises ArgumentError: the dataset has a field of a new one's name."""
    known = {field.name for field in change.manifest.schema}
    for field in fields:
        if field.name in known:
            drop = f"`fastload columns {change.path} drop {field.name}`"
            raise ArgumentError(
                f"{change.path} has a field {field.name!r} already: take it away first "
                f"({drop}), or name others"
            )


def commit_columns(
    change: DatasetChange,
    reader: DatasetReader,
    columns: Sequence[NewColumn],
    order: npt.NDArray[np.int64] | None = None,
) -> ColumnsSummary:
    """Adds columns as a new version.

    Args:
        change: the change under way.
        reader: reader of the dataset as it is.
        columns: the columns, whose names are none of its fields'.
        order: the row of each sample; None: they are in order.
    """
    schema = Schema((*change.manifest.schema, *(column.field for column in columns)))
    shards = list(reader.manifest.shards)
    for column in columns:
        parts = {column.field.name: column}
        if column.counts is not None:
            (name,) = schema.hidden_names(column.field)
            parts[name] = replace(column, values=column.counts)
        for name, part in parts.items():
            segments = change.write_segments("values", _segments(reader, part, order))
            shards = [
                replace(shard, added={**shard.added, name: segment})
                for shard, segment in zip(shards, segments, strict=True)
            ]
    before = change.manifest.schema
    new = replace(
        change.manifest, schema=schema, shards=tuple(shard.hiding(before, schema) for shard in shards)
    )
    manifest = change.commit(new)
    return ColumnsSummary(manifest.version, manifest.count, tuple(column.field.name for column in columns))


def _order(
    reader: DatasetReader, file: ColumnFile, key: str | None
) -> tuple[npt.NDArray[np.int64] | None, int]:
    """The file's row of each sample (None: the rows are in order), and how many rows are no sample's."""
    if key is None or file.keys is None:
        if len(file) != len(reader):
            raise PackError(
                f"{file.path} has {len(file):,} rows, and {reader.path} {len(reader):,} samples: "
                "give a row for each, in their order, or a "
                "column of keys (--key)"
            )
        return None, 0
    field = reader.schema[key]
    if not field.handler.finds_samples:
        raise ArgumentError(
            f"field {key!r} of {reader.path} is {field.kind}; rows are found by an int or a text field"
        )
    rows: dict[Any, int] = {}
    for row, cell in enumerate(file.keys):
        found = rows.setdefault(_key(file, cell, row) if field.is_column else cell, row)
        if found != row:
            first = file.lines[found]
            raise PackError(
                f"{file.path}, line {file.lines[row]}: the key {printable(cell)} is on line {first} "
                "already; remove one of the two"
            )
    keys = reader.column(key).tolist() if field.is_column else _texts(reader, key)
    try:
        order = np.fromiter((rows[each] for each in keys), np.int64, len(reader))
    except KeyError as error:
        missing = error.args[0]
        index = keys.index(missing)
        text = printable(str(missing))
        raise PackError(
            f"{file.path} has no row for sample {index} of {reader.path}, whose {key} is {text}; add one"
        ) from None
    return order, len(rows) - len(np.unique(order))


def _key(file: ColumnFile, cell: str, row: int) -> int:
    try:
        return int(cell)
    except ValueError:
        raise PackError(
            f"{file.path}, line {file.lines[row]}: the key {printable(cell)} is no whole number, as "
            "the field's are"
        ) from None


def _texts(reader: DatasetReader, name: str) -> list[str]:
    """The values of a text field. Where they lie in records, every record is read."""

    def block(start: int) -> list[str]:
        return [
            reader.stored_values(index, [name])[name]
            for index in range(start, min(start + _BLOCK, len(reader)))
        ]

    with ThreadPoolExecutor(available_cpus(), "fastload-columns") as pool:
        return [text for texts in pool.map(block, range(0, len(reader), _BLOCK)) for text in texts]


def _segments(reader: DatasetReader, column: NewColumn, order: npt.NDArray[np.int64] | None) -> Iterator[Any]:
    """The bytes of a column's segment in each shard: a value for each stored sample, nothing for those
    that do not count."""
    for number, shard in enumerate(reader.manifest.shards):
        at = slice(shard.first, shard.first + shard.count)
        rows = reader.counting(number)
        if not isinstance(column.values, np.ndarray):
            places = range(at.start, at.stop) if order is None else order[at].tolist()
            texts = [column.values[row] for row in places]
            if rows is not None:
                placed = [b""] * shard.stored
                for row, text in zip(rows.tolist(), texts, strict=True):
                    placed[row] = text
                texts = placed
            yield packed_values(texts)
            continue
        values = column.values[at] if order is None else column.values[order[at]]
        if rows is not None:
            stored = np.zeros((shard.stored, *values.shape[1:]), values.dtype)
            stored[rows] = values
            values = stored
        yield np.ascontiguousarray(values).reshape(-1).view(np.uint8)


def drop_columns(path: str | os.PathLike[str], *names: str) -> ColumnsSummary:
    """Takes fields away, as a new version. No record is written; the values stay in the shards, unread.

    Args:
        path: the dataset's directory.
        names: the fields.

    Raises:
        ArgumentError: there is no field of that name, or it is the image.
        DatasetError: as in `append`.
        PackError: as in `append`.
    """
    if not names:
        raise ArgumentError("no field is named: give the names of those to take away")
    with DatasetChange(path, _GO_ON) as change:
        before = change.manifest.schema
        for name in names:
            if before[name] == before.image:
                raise ArgumentError(
                    f"field {name!r} of {change.path} is the image, without which there is no dataset"
                )
        after = Schema(tuple(field for field in before if field.name not in names))
        shards = tuple(shard.hiding(before, after) for shard in change.manifest.shards)
        manifest = change.commit(replace(change.manifest, schema=after, shards=shards))
    return ColumnsSummary(manifest.version, manifest.count, tuple(dict.fromkeys(names)))
