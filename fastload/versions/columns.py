"""add_columns, drop_columns: fields added to every sample of a dataset, and taken away, without writing a sample anew."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.common.system import available_cpus
from fastload.errors import ArgumentError, PackError, printable
from fastload.store import DatasetChange, DatasetReader, Schema
from fastload.store.sidecar import packed_values
from fastload.versions.column_files import ColumnFile, NewColumn, read_columns

_GO_ON = "run `fastload columns` again: nothing is lost"
_BLOCK = 1024
"""Samples whose keys a thread reads at a time."""


@dataclass(frozen=True, slots=True)
class ColumnsSummary:
    """Result of `add_columns` and `drop_columns`.

    Attributes:
        version: the dataset's new version.
        samples: samples in it.
        names: the fields that were added or taken away.
        unused: rows of the file whose key no sample has.
    """

    version: int
    samples: int
    names: tuple[str, ...]
    unused: int = 0


def add_columns(
    path: str | os.PathLike[str], file: str | os.PathLike[str], *, key: str | None = None, columns: Sequence[str] | None = None
) -> ColumnsSummary:
    """Adds the columns of a file as fields of every sample, as a new version. No record is written; a shard's file stays as it is.

    Args:
        path: the dataset's directory.
        file: a .csv or .tsv whose first line names its columns, or a .npy, which is one column of its name. A column of a table is int,
            float, json or text, the first of these that all its cells are, or of the kind given in the first line or in `columns`.
        key: the field, int or text, whose value says which row is a sample's: the file has a column of that name. Samples of the same
            value get the same row. By default the rows are in the order of the samples, as many as there are.
        columns: the columns that are added, as "name" or "name:kind"; all by default.

    Raises:
        ArgumentError: a column that the file has not or the dataset has already, or a key that is no int or text field.
        DatasetError: there is no finished dataset, or it is damaged.
        SampleError: a sample's key cannot be read.
        PackError: the file cannot be read, has too many or too few rows, a key twice, or none for some sample; the disk is full; or another
            process is writing to the dataset. The dataset is as it was.
    """
    if isinstance(columns, str):
        raise ArgumentError(f"columns={columns!r} is one text, not a sequence of names: write columns=({columns!r},)")
    found = read_columns(file, key, columns)
    with DatasetChange(path, _GO_ON) as change:
        known = {field.name for field in change.manifest.schema}
        for column in found.columns:
            if column.field.name in known:
                drop = f"`fastload columns {change.path} drop {column.field.name}`"
                raise ArgumentError(f"{change.path} has a field {column.field.name!r} already: take it away first ({drop}), or name others")
        schema = Schema((*change.manifest.schema, *(column.field for column in found.columns)))
        with DatasetReader(change.path, manifest=change.manifest) as reader:
            order, unused = _order(reader, found, key)
            shards = list(reader.manifest.shards)
            for column in found.columns:
                segments = change.write_segments("values", _segments(reader, column, order))
                added = zip(shards, segments, strict=True)
                shards = [replace(shard, added={**shard.added, column.field.name: part}) for shard, part in added]
        before = change.manifest.schema
        new = replace(change.manifest, schema=schema, shards=tuple(shard.hiding(before, schema) for shard in shards))
        manifest = change.commit(new)
    return ColumnsSummary(manifest.version, manifest.count, tuple(column.field.name for column in found.columns), unused)


def _order(reader: DatasetReader, file: ColumnFile, key: str | None) -> tuple[npt.NDArray[np.int64] | None, int]:
    """The file's row of each sample (None: the rows are in order), and how many rows are no sample's."""
    if key is None or file.keys is None:
        if len(file) != len(reader):
            raise PackError(
                f"{file.path} has {len(file):,} rows, and {reader.path} {len(reader):,} samples: give a row for each, in their order, or a "
                "column of keys (--key)"
            )
        return None, 0
    field = reader.schema[key]
    if field.kind not in ("int", "text"):
        raise ArgumentError(f"field {key!r} of {reader.path} is {field.kind}; rows are found by an int or a text field")
    rows: dict[Any, int] = {}
    for row, cell in enumerate(file.keys):
        found = rows.setdefault(_key(file, cell, row) if field.kind == "int" else cell, row)
        if found != row:
            first = file.lines[found]
            raise PackError(
                f"{file.path}, line {file.lines[row]}: the key {printable(cell)} is on line {first} already; remove one of the two"
            )
    keys = reader.column(key).tolist() if field.kind == "int" else _texts(reader, key)
    try:
        order = np.fromiter((rows[each] for each in keys), np.int64, len(reader))
    except KeyError as error:
        missing = error.args[0]
        index = keys.index(missing)
        text = printable(str(missing))
        raise PackError(f"{file.path} has no row for sample {index} of {reader.path}, whose {key} is {text}; add one") from None
    return order, len(rows) - len(np.unique(order))


def _key(file: ColumnFile, cell: str, row: int) -> int:
    try:
        return int(cell)
    except ValueError:
        raise PackError(f"{file.path}, line {file.lines[row]}: the key {printable(cell)} is no whole number, as the field's are") from None


def _texts(reader: DatasetReader, name: str) -> list[str]:
    """The values of a text field. Where they lie in records, every record is read."""

    def block(start: int) -> list[str]:
        return [reader.stored_values(index, [name])[name] for index in range(start, min(start + _BLOCK, len(reader)))]

    with ThreadPoolExecutor(available_cpus(), "fastload-columns") as pool:
        return [text for texts in pool.map(block, range(0, len(reader), _BLOCK)) for text in texts]


def _segments(reader: DatasetReader, column: NewColumn, order: npt.NDArray[np.int64] | None) -> Iterator[Any]:
    """The bytes of a column's segment in each shard: a value for each stored sample, nothing for those that do not count."""
    for number, shard in enumerate(reader.manifest.shards):
        at = slice(shard.first, shard.first + shard.count)
        rows = reader.counting(number)
        if isinstance(column.values, list):
            texts = column.values[at] if order is None else [column.values[row] for row in order[at].tolist()]
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
    """Takes fields away, as a new version. No record is written; what was packed stays in the shards' files, where nothing reads it.

    Args:
        path: the dataset's directory.
        names: of the fields.

    Raises:
        ArgumentError: no field of that name, or it is the image.
        DatasetError: there is no finished dataset, or it is damaged.
        PackError: the disk is full, or another process is writing to the dataset.
    """
    if not names:
        raise ArgumentError("no field is named: give the names of those to take away")
    with DatasetChange(path, _GO_ON) as change:
        before = change.manifest.schema
        for name in names:
            if before[name] == before.image:
                raise ArgumentError(f"field {name!r} of {change.path} is the image, without which there is no dataset")
        after = Schema(tuple(field for field in before if field.name not in names))
        shards = tuple(shard.hiding(before, after) for shard in change.manifest.shards)
        manifest = change.commit(replace(change.manifest, schema=after, shards=shards))
    return ColumnsSummary(manifest.version, manifest.count, tuple(dict.fromkeys(names)))
