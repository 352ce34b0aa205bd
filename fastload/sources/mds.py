"""MDS shards of MosaicML Streaming: a folder with an index.json that names them."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from typing import Any

import numpy as np

from fastload.errors import PackError
from fastload.remote.foreign import ForeignURL
from fastload.sources import row_files
from fastload.sources.foreign import ForeignFiles
from fastload.sources.protocol import Choice, Value
from fastload.sources.row_files import ROWS_MOST, Column, Decode, RowFile, RowFolder, RowSource, below
from fastload.store.checked import Bad, get_int, get_list, get_object, get_str, shown
from fastload.store.field import KindName

_NUMBERS = {
    "int": "q", "int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint8": "B", "uint16": "H",
    "uint32": "I", "uint64": "Q",
    "float16": "e", "float32": "f", "float64": "d",
}  # fmt: skip
_OTHERS: dict[str, tuple[KindName, Decode]] = {
    "bytes": ("bytes", row_files.plain),
    "str": ("text", row_files.text),
    "json": ("json", row_files.json_value),
    "str_int": ("int", row_files.int_text),
    "str_float": ("float", row_files.float_text),
    "jpeg": ("image", row_files.plain),
    "png": ("image", row_files.plain),
    "pil": ("image", row_files.pil_pixels),
}
_ARRAY_CODES = {
    8: "uint8", 9: "int8", 16: "uint16", 17: "int16", 18: "float16", 32: "uint32", 33: "int32", 34: "float32",
    64: "uint64", 65: "int64",
    66: "float64",
}  # fmt: skip


def mds_folder(folder: str, index: dict[str, Any]) -> RowFolder:
    """The shards that an index.json names.

    The image is the column of a usual name (image, img, jpg, ...), or the only one of encoding jpeg, png or
    pil, or of bytes. ``label`` or an integer of another usual name is the label. Numbers, text, bytes, JSON
    and arrays of one shape become fields.

    Raises:
        PackError: shards that are compressed, of another format or of an encoding that is not read, or a
            damaged index.
    """
    path = os.path.join(folder, "index.json")
    try:
        get_int(index.get("version"), "its version", 2, 2)
        shards = [
            get_object(shard, "a shard") for shard in get_list(index.get("shards"), "its list of shards")
        ]
        if not shards:
            raise Bad("it names no shard")
        files = [_file(folder, shard) for shard in shards]
        described = [
            (shard.get("column_names"), shard.get("column_encodings"), shard.get("column_sizes"))
            for shard in shards
        ]
        if any(each != described[0] for each in described[1:]):
            raise Bad("its shards have different columns")
        columns = _columns(*(get_list(value, "the columns of a shard") for value in described[0]))
    except Bad as error:
        raise PackError(f"{path}: {error}; make it again, or pack a Dataset that reads it") from None
    return RowFolder(folder, files, columns, "MDS shards")


def _file(folder: str, shard: dict[str, Any]) -> RowFile:
    form = get_str(shard.get("format"), "the format of a shard")
    if form != "mds":
        raise Bad(f"a shard of format {form!r}; only mds is read")
    if shard.get("compression") is not None or shard.get("zip_data") is not None:
        raise Bad(
            "its shards are compressed, so that no sample can be read by itself; write them with "
            "compression=None"
        )
    raw = get_object(shard.get("raw_data"), "the raw_data of a shard")
    return RowFile(
        below(folder, raw.get("basename")),
        get_int(shard.get("samples"), "the number of samples of a shard", 0, ROWS_MOST),
    )


def _columns(names: list[Any], encodings: list[Any], sizes: list[Any]) -> list[Column]:
    if not len(names) == len(encodings) == len(sizes):
        raise Bad("a shard has not as many names, encodings and sizes of columns")
    columns = []
    for name, encoding, size in zip(names, encodings, sizes, strict=True):
        get_str(name, "the name of a column")
        kind, fixed, decode = _codec(name, get_str(encoding, f"the encoding of {shown(name)}"))
        stored = get_int(size, f"the size of {shown(name)}", 0, 2**32 - 1) if size else None
        if stored != fixed:
            raise Bad(
                f"the column {shown(name)} of encoding {encoding!r} has a size of {shown(size)}, not {fixed}"
            )
        columns.append(Column(name, encoding, stored, kind, decode))
    if len(set(names)) < len(names):
        raise Bad("a shard has two columns of one name")
    return columns


def _codec(name: str, encoding: str) -> tuple[KindName, int | None, Decode]:
    """(kind of field, fixed size, decoder) of an encoding."""
    if code := _NUMBERS.get(encoding):
        return ("float" if code in "efd" else "int"), struct.calcsize(code), row_files.number(code)
    if encoding in _OTHERS:
        kind, decode = _OTHERS[encoding]
        return kind, None, decode
    if encoding.split(":")[0] == "ndarray":
        dtype, shape = _array_type(name, encoding)
        fixed = None if dtype is None or shape is None else int(np.prod(shape)) * dtype.itemsize
        return "array", fixed, lambda data: _array(data, dtype, shape)
    reason = "would run code when it is read" if encoding == "pkl" else "is not read"
    raise Bad(
        f"the column {shown(name)} is of encoding {encoding!r}, which {reason}; write the dataset without it"
    )


def _array_type(name: str, encoding: str) -> tuple[np.dtype[Any] | None, tuple[int, ...] | None]:
    """The dtype and shape in an encoding such as ndarray:float32:2,3; None for what each value says of
    itself."""
    parts = encoding.split(":")
    sides = parts[2].split(",") if len(parts) == 3 else []
    if (
        len(parts) > 3
        or (len(parts) > 1 and parts[1] not in _ARRAY_CODES.values())
        or not all(side.isascii() and side.isdigit() and 0 < len(side) < 10 and int(side) for side in sides)
    ):
        raise Bad(f"the column {shown(name)} is of encoding {shown(encoding)}, which is no array's")
    return np.dtype(parts[1]) if len(parts) > 1 else None, tuple(map(int, sides)) if sides else None


def _array(data: bytes, dtype: np.dtype[Any] | None, shape: tuple[int, ...] | None) -> Value:
    """An array, after a byte for its dtype and its shape, where the encoding does not say them."""
    at = 0
    if dtype is None:
        code = data[0] if data else 0
        if code not in _ARRAY_CODES:
            raise ValueError(f"{code} stands for no dtype")
        dtype, at = np.dtype(_ARRAY_CODES[code]), 1
    if shape is None:
        if len(data) <= at:
            raise ValueError("it ends before its shape")
        side = f"<u{1 << (data[at] & 3)}"
        count, at = data[at] >> 2, at + 1
        end = at + count * np.dtype(side).itemsize
        if end > len(data):
            raise ValueError("it ends inside its shape")
        shape, at = tuple(np.frombuffer(data[at:end], side).tolist()), end
    return row_files.array_of(data, dtype, shape, at)


def in_store(folder: ForeignURL, index: dict[str, Any], found: Iterable[ForeignURL]) -> ForeignFiles:
    """The shards below a URL. Raises PackError."""
    return mds_folder(folder, index).in_store(found)


FOLDER = Choice(
    lambda given: "shards" in given.index,
    lambda given: RowSource(mds_folder(given.path, given.index)),
)
