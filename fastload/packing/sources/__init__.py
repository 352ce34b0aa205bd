"""Sources of samples: the choice of the one that fits what the user gave. Each kind is a module of its own.

To add one, write a module with a class that satisfies `Source` (`protocol`), and name it in `open_source`.
"""

from __future__ import annotations

import os
from pathlib import Path

from fastload.errors import ArgumentError, PackError
from fastload.files import expanded
from fastload.packing.options import TableOptions
from fastload.packing.sources.dataset import DatasetSource
from fastload.packing.sources.folder import FolderSource
from fastload.packing.sources.parquet import ParquetSource
from fastload.packing.sources.protocol import Item, Place, Placed, Source
from fastload.packing.sources.table import TableSource
from fastload.packing.sources.tar import TarSource, expand

__all__ = ["Item", "Place", "Placed", "Source", "open_source"]


def open_source(source: object, table: TableOptions | None = None) -> Source:
    """The source for what the user passed as SRC.

    A folder of class folders, a .csv or .tsv file, one or many .tar or .parquet files (a path, a pattern such as
    ``train-{000..003}.tar`` or ``train-*.tar``, a list of them, or a folder that holds them), a map-style Dataset, or
    any object that satisfies `Source`. `table` says what the columns of a .csv or .tsv are.

    Raises:
        PackError: nothing here can be packed; the message names what was looked for.
        ArgumentError: `table` is given for a source that is none.
    """
    if isinstance(source, str | os.PathLike) and _is_table(os.fsdecode(source)):
        return TableSource(expanded(source), table or TableOptions())
    if table is not None:
        raise ArgumentError("path_column, label_column and header (--path-column, --label-column, --no-header) are for a .csv or .tsv")
    if isinstance(source, str | os.PathLike):
        return _open_path(expanded(source))
    if isinstance(source, list | tuple) and source and all(isinstance(entry, str | os.PathLike) for entry in source):
        return _open_paths([expanded(entry) for entry in source])
    if isinstance(source, Source):
        return source
    if hasattr(source, "__getitem__") and hasattr(source, "__len__"):
        return DatasetSource(source)
    raise PackError(
        f"cannot pack a {type(source).__name__}: give a folder, a .csv/.tsv, .tar or .parquet files, or a map-style Dataset with "
        "__getitem__ and __len__ (an iterable Dataset has no order to shuffle or to resume)"
    )


def _is_table(path: str) -> bool:
    return path.lower().endswith((".csv", ".tsv"))


def _open_paths(paths: list[str]) -> Source:
    """Several tars as one source; of anything else only one can be packed."""
    if len(paths) == 1:
        return open_source(paths[0])
    for path in paths:
        if os.path.isdir(path) or _is_table(path):
            what = "a table" if _is_table(path) else "a folder"
            how = "put all lines into one table" if _is_table(path) else "put the class folders, or links to them, into one folder"
            raise PackError(
                f"{path} is {what}: of several sources, all are .tar files, or all are .parquet files. To pack them together, {how}; or "
                "pack each by itself and join them with torch.utils.data.ConcatDataset, which FastLoader reads natively"
            )
    return _of_files(paths)


def _of_files(patterns: list[str]) -> Source:
    """Tars, or Parquet files, by their names."""
    parquet = [pattern.lower().endswith(".parquet") for pattern in patterns]
    if not any(parquet):
        return TarSource(patterns)
    if not all(parquet):
        raise PackError(f"{patterns[0]} and others: of several sources, all are .tar files, or all are .parquet files")
    return ParquetSource([path for pattern in patterns for path in expand(pattern, "Parquet file")])


def _open_path(text: str) -> Source:
    lower = text.lower()
    if os.path.isdir(text):
        with os.scandir(text) as entries:
            listed = [(entry.name, entry.is_dir()) for entry in entries]
        for ending in (".tar", ".parquet"):
            found = sorted(name for name, is_dir in listed if name.lower().endswith(ending) and not is_dir)
            if found and not any(is_dir for _, is_dir in listed):
                return _of_files([str(Path(text, name)) for name in found])
        return FolderSource(text)
    if lower.endswith((".tar", ".parquet")) or any(mark in text for mark in "*?{["):
        return _of_files([text])
    if not os.path.exists(text):
        raise PackError(f"{text}: no such folder or file; give a folder of class folders, a .csv/.tsv, .tar or .parquet files")
    if lower.endswith((".tar.gz", ".tgz", ".tar.zst", ".tar.xz", ".tar.bz2")):
        raise PackError(f"{text}: a compressed tar cannot be read at any position; unpack it to a plain .tar first")
    raise PackError(f"{text}: not a source fastload knows; give a folder of class folders, a .csv/.tsv, .tar or .parquet files")
