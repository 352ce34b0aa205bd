"""Sources of samples: the choice of the one that fits what the user gave. Each kind is a module of its own.

To add one, write a module with a class that satisfies `Source` (`protocol`), and name it in `open_source`.
"""

from __future__ import annotations

import os
from pathlib import Path

from fastload.common.files import expanded
from fastload.errors import ArgumentError, PackError
from fastload.packing.options import BoxFormat, LmdbOptions, ObjectOptions, SourceOptions, TableOptions
from fastload.packing.sources.arrow import ArrowSource, arrow_files
from fastload.packing.sources.dataset import DatasetSource
from fastload.packing.sources.layouts import class_folders, layout_source, recognised_source
from fastload.packing.sources.litdata import litdata_source
from fastload.packing.sources.lmdb import LmdbSource
from fastload.packing.sources.mds import mds_source
from fastload.packing.sources.parquet import ParquetSource
from fastload.packing.sources.protocol import Item, Place, Placed, Source
from fastload.packing.sources.ray_data import with_rows
from fastload.packing.sources.shards import read_index
from fastload.packing.sources.table import TableSource
from fastload.packing.sources.tar import expand, tar_source
from fastload.packing.sources.tfrecord import TFRecordSource, is_tfrecord, one_split
from fastload.packing.sources.unpacked import UNFINISHED, UnpackedSource, is_unpacked

__all__ = ["Item", "Place", "Placed", "Source", "open_source"]

_GIVE = (
    "give a folder of class folders, a dataset in the layout of COCO, VOC, YOLO, Cityscapes or ADE20K, a .csv/.tsv, .tar, .parquet, .arrow "
    "or TFRecord files, a folder of MDS shards or LitData chunks, or an LMDB file"
)
_SEVERAL = "of several sources, all are .tar files, all are .parquet, all are .arrow, or all are TFRecord files"
NOTHING_GIVEN = SourceOptions()
_COMPRESSED = (".gz", ".tgz", ".zst", ".xz", ".bz2")


def open_source(source: object, options: SourceOptions = NOTHING_GIVEN) -> Source:
    """The source for what the user passed as SRC.

    A folder of class folders, of another layout (`layouts`), or that `fastload unpack` wrote, a .csv or .tsv file, one or many .tar,
    .parquet, .arrow or TFRecord files (a path, a pattern such as ``train-{000..003}.tar`` or ``train-*.tar``, a list of them, or a folder
    that holds them, as save_to_disk() of Hugging Face's library writes one), a folder of MDS shards or LitData chunks with its index.json,
    an LMDB file or the folder of its data.mdb, a map-style Dataset, a ray.data.Dataset, or any object that satisfies `Source`. Of the
    options, `table` says what the columns of a .csv or .tsv are, `lmdb` which keys of an LMDB file are images and labels, `layout` what a
    folder's files are, and `objects` what the boxes in a column of objects are.

    Raises:
        PackError: nothing here can be packed; the message names what was looked for.
        ArgumentError: options are given for a source of another kind.
    """
    found = _open(with_rows(source), options)
    boxes = options.objects and options.objects.box_format
    if boxes is not None and getattr(found, "box_format", None) != boxes:
        raise ArgumentError(
            f"box_format={boxes!r} (--box-format) is for a column of objects with their boxes (bbox), in Parquet or Arrow files or a "
            f"Dataset; {found.title} has none"
        )
    return found


def _open(source: object, options: SourceOptions) -> Source:
    """`open_source`, of what may be a RayDataset."""
    table, lmdb, layout = options.table, options.lmdb, options.layout
    boxes = None if options.objects is None else options.objects.box_format
    path = expanded(source) if isinstance(source, str | os.PathLike) else None
    if path is not None and os.path.isdir(os.path.join(path, UNFINISHED)):
        raise PackError(f"{path} is unfinished: `fastload unpack` was stopped before its end; the same command goes on with it")
    file = None if path is None else _lmdb_file(path)
    if lmdb is not None and file is None:
        raise ArgumentError("key_pattern and label_pattern (--key-pattern, --label-pattern) are for an LMDB file")
    if layout is not None:
        if path is None or table is not None or lmdb is not None:
            raise ArgumentError("format, annotations, masks and split (--format, ...) are for one folder, or one file that describes it")
        return layout_source(path, layout)
    if path is not None and _is_table(path):
        return TableSource(path, table or TableOptions())
    if table is not None:
        raise ArgumentError("path_column, label_column and header (--path-column, --label-column, --no-header) are for a .csv or .tsv")
    if file is not None:
        return LmdbSource(file, lmdb or LmdbOptions())
    if path is not None:
        return _open_path(path, boxes)
    if isinstance(source, list | tuple) and source and all(isinstance(entry, str | os.PathLike) for entry in source):
        return _open_paths([expanded(entry) for entry in source], boxes)
    if isinstance(source, Source):
        return source
    if hasattr(source, "__getitem__") and hasattr(source, "__len__"):
        return DatasetSource(source, boxes)
    raise PackError(
        f"cannot pack a {type(source).__name__}: {_GIVE}, or a map-style Dataset with __getitem__ and __len__ (an iterable Dataset has no "
        "order to shuffle or to resume)"
    )


def _is_table(path: str) -> bool:
    return path.lower().endswith((".csv", ".tsv"))


def _lmdb_file(path: str) -> str | None:
    """The LMDB file that a path names: x.lmdb, x.mdb, or a folder that holds a data.mdb."""
    inner = os.path.join(path, "data.mdb")
    if os.path.isfile(inner):
        return inner
    return path if path.lower().endswith((".lmdb", ".mdb")) and os.path.isfile(path) else None


def _open_paths(paths: list[str], boxes: BoxFormat | None) -> Source:
    """Several tars as one source, or Parquet, Arrow or TFRecord files; of anything else only one can be packed."""
    if len(paths) == 1:
        return _open(paths[0], SourceOptions(objects=ObjectOptions(boxes)))
    for path in paths:
        if os.path.isdir(path) or _is_table(path):
            what = "a table" if _is_table(path) else "a folder"
            how = "put all lines into one table" if _is_table(path) else "put the class folders, or links to them, into one folder"
            raise PackError(
                f"{path} is {what}: {_SEVERAL}. To pack them together, {how}; or "
                "pack each by itself and join them with torch.utils.data.ConcatDataset, which FastLoader reads natively"
            )
    return _of_files(paths, boxes)


def _of_files(patterns: list[str], boxes: BoxFormat | None) -> Source:
    """Tars, or Parquet, Arrow or TFRecord files, by their names."""
    kinds = {_file_kind(pattern) for pattern in patterns}
    if len(kinds) > 1:
        raise PackError(f"{patterns[0]} and others: {_SEVERAL}")
    kind = kinds.pop()
    if kind == "Parquet file":
        return ParquetSource([path for pattern in patterns for path in expand(pattern, kind)], boxes)
    if kind == "Arrow file":
        return ArrowSource([path for pattern in patterns for path in expand(pattern, kind)], boxes)
    if kind == "TFRecord file":
        return TFRecordSource([path for pattern in patterns for path in expand(pattern, kind)])
    return tar_source(patterns)


def _file_kind(pattern: str) -> str:
    """The kind of files that a path or pattern names, as messages call it."""
    if pattern.lower().endswith(".parquet"):
        return "Parquet file"
    if pattern.lower().endswith(".arrow"):
        return "Arrow file"
    if is_tfrecord(pattern):
        return "TFRecord file"
    if not pattern.lower().endswith(".tar") and any(mark in pattern for mark in "*?{["):
        # a pattern such as train-* or train-*-of-00010 does not end as its files do
        found = expand(pattern)
        return _file_kind(found[0]) if not any(mark in found[0] for mark in "*?{[") else "tar file"
    return "tar file"


def _open_path(text: str, boxes: BoxFormat | None) -> Source:
    if os.path.isdir(text):
        return _open_folder(text, boxes)
    lower = text.lower()
    if lower.endswith((".tar", ".parquet", ".arrow")) or any(mark in text for mark in "*?{["):
        return _of_files([text], boxes)
    if not os.path.exists(text):
        raise PackError(f"{text}: no such folder or file; {_GIVE}")
    if (found_layout := recognised_source(text)) is not None:
        return found_layout
    if is_tfrecord(text):
        return _of_files([text], boxes)
    if lower.endswith(_COMPRESSED):
        plain = text[: lower.rindex(".")]
        if lower.endswith(".tgz") or plain.lower().endswith(".tar"):
            raise PackError(f"{text}: a compressed tar cannot be read at any position; unpack it to a plain .tar first")
        if is_tfrecord(plain):
            raise PackError(f"{text}: a compressed TFRecord file cannot be read at any position; unpack it first (gunzip)")
    raise PackError(f"{text}: not a source fastload knows; {_GIVE}")


def _open_folder(folder: str, boxes: BoxFormat | None) -> Source:
    if is_unpacked(folder):
        return UnpackedSource(folder)
    with os.scandir(folder) as entries:
        listed = [(entry.name, entry.is_dir()) for entry in entries]
    files = sorted(name for name, is_dir in listed if not is_dir)
    if "index.json" in files:
        try:
            index = read_index(folder)
        except PackError:
            if len(files) == len(listed):
                raise
            index = {}  # somebody's own file beside class folders
        if "shards" in index:
            return mds_source(folder, index)
        if "chunks" in index:
            return litdata_source(folder, index)
    if found := arrow_files(folder, files):
        return ArrowSource(found, boxes)
    if len(files) == len(listed):
        for ending in (".tar", ".parquet"):
            found = [name for name in files if name.lower().endswith(ending)]
            if found:
                return _of_files([str(Path(folder, name)) for name in found], boxes)
        found = [name for name in files if is_tfrecord(name)]
        if found:
            one_split(folder, found)
            return TFRecordSource([str(Path(folder, name)) for name in found])
    return recognised_source(folder) or class_folders(folder)
