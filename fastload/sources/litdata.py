"""LitData chunks, as `litdata.optimize` writes them: a folder with an index.json that names them."""

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
from fastload.store.checked import Bad, get_int, get_list, get_object, get_str, parse_json, shown
from fastload.store.field import KindName

_FORMATS: dict[str, tuple[KindName, Decode]] = {
    "bool": ("int", row_files.number("?")),
    "int": ("int", row_files.number("q")),
    "float": ("float", row_files.number("d")),
    "str": ("text", row_files.text),
    "text": ("text", row_files.text),
    "bytes": ("bytes", row_files.plain),
    "file": ("bytes", row_files.plain),
    "json": ("json", row_files.json_value),
    "jpeg": ("image", row_files.plain),
    "image": ("image", row_files.plain),
    "tifffile": ("image", row_files.plain),
    "tiff": ("image", row_files.plain),
    "pil": ("image", row_files.pil_pixels),
}
_NUMPY = "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 - - bool".split()
# "-": complex numbers and bfloat16, which no field holds.
_TORCH = (
    "float32 float32 float64 float64 - - - - float16 float16 - uint8 int8 int16 int16 int32 int32 "
    "int64 int64 bool uint16"
).split()
_LISTS = ("builtins.list", "builtins.tuple")
_DICTS = ("builtins.dict", "collections.OrderedDict")


def litdata_folder(folder: str, index: dict[str, Any]) -> RowFolder:
    """The chunks that an index.json names.

    Names of values are the keys of the sample that was written, joined by a dot where dicts lie in each
    other; a tuple or list is (image, label, more, ...). The image is the value of a usual name (image, img,
    jpg, ...), or the only one of format jpeg, image, tiff or pil, or of bytes. ``label`` or an integer of
    another usual name is the label.

    Raises:
        PackError: chunks that are compressed, encrypted or of a format that is not read, or a damaged index.
    """
    path = os.path.join(folder, "index.json")
    try:
        config = get_object(index.get("config"), "its config")
        _refuse_wrapped(config)
        formats = [
            get_str(each, "a format of data")
            for each in get_list(config.get("data_format"), "its data_format")
        ]
        names = _names(config.get("data_spec"), len(formats))
        columns = [_column(name, form) for name, form in zip(names, formats, strict=True)]
        chunks = [
            get_object(chunk, "a chunk") for chunk in get_list(index.get("chunks"), "its list of chunks")
        ]
        if not chunks:
            raise Bad("it names no chunk")
        files = [
            RowFile(
                below(folder, chunk.get("filename")),
                get_int(chunk.get("chunk_size"), "the size of a chunk", 0, ROWS_MOST),
            )
            for chunk in chunks
        ]
    except Bad as error:
        raise PackError(f"{path}: {error}; make it again, or pack a Dataset that reads it") from None
    return RowFolder(folder, files, columns, "LitData chunks")


def _refuse_wrapped(config: dict[str, Any]) -> None:
    """Raises Bad if chunks are not rows in the clear."""
    if config.get("encryption") is not None:
        raise Bad("its chunks are encrypted")
    for name in ("compression", "compression_level", "ipc_compression"):
        if config.get(name) is not None:
            raise Bad(
                "its chunks are compressed, so that no sample can be read by itself; write them with "
                "compression=None"
            )
    loader = config.get("item_loader", "PyTreeLoader")
    if loader != "PyTreeLoader":
        raise Bad(f"its chunks are for litdata's {shown(loader)}, not for the PyTreeLoader")


def _names(spec: object, count: int) -> list[str]:
    """The names of a sample's values, from the description of its dicts and lists."""
    if spec is None:
        return [str(place) for place in range(count)]
    try:
        parsed = get_list(parse_json(get_str(spec, "its data_spec")), "its data_spec")
    except ValueError as error:
        raise Bad(f"its data_spec cannot be read: {error}") from None
    if len(parsed) != 2 or parsed[0] != 1:
        raise Bad("its data_spec is of a version that is not known")
    names: list[str] = []
    _walk(parsed[1], "", names)
    if len(names) != count or len(set(names)) < count:
        raise Bad(f"its data_spec names {len(set(names))} values, where its data_format has {count}")
    return names


def _walk(node: object, name: str, names: list[str]) -> None:
    """Adds the names below a node. The depth is limited by `parse_json`."""
    spec = get_object(node, "a part of its data_spec")
    kind, children = spec.get("type"), get_list(spec.get("children_spec"), "a part of its data_spec")
    if kind is None:
        names.append(name or "image")
        return
    if kind in _DICTS:
        try:
            keys = get_list(
                parse_json(get_str(spec.get("context"), "the keys of a dict")), "the keys of a dict"
            )
        except ValueError as error:
            raise Bad(f"the keys of a dict cannot be read: {error}") from None
    elif kind in _LISTS:
        # (image, label, more, ...), as items of a Dataset
        keys = (
            ["image", "label", *(f"field{place}" for place in range(2, len(children)))]
            if not name
            else list(range(len(children)))
        )
        keys = keys[: len(children)]
    else:
        raise Bad(f"its samples hold a {shown(kind)}, which is not read")
    if len(keys) != len(children):
        raise Bad("a dict has not as many keys as values")
    for key, child in zip(keys, children, strict=True):
        if not isinstance(key, str | int):
            raise Bad(f"a dict has the key {shown(key)}")
        _walk(child, f"{name}.{key}" if name else str(key), names)


def _column(name: str, form: str) -> Column:
    """The column of a value, by its format: ``jpeg``, ``image:png``, ``no_header_numpy:9``, ..."""
    base, _, detail = form.partition(":")
    if base in _FORMATS:
        kind, decode = _FORMATS[base]
    elif base in ("no_header_numpy", "no_header_tensor"):
        dtype = _dtype(
            _NUMPY if base == "no_header_numpy" else _TORCH,
            int(detail) if detail.isascii() and detail.isdigit() else -1,
        )
        kind, decode = "array", row_files.flat_array(dtype)
    elif base == "numpy":
        kind, decode = "array", lambda data: _array(data, "<", _NUMPY)
    elif base == "tensor":
        kind, decode = "array", lambda data: _array(data, ">", _TORCH)
    else:
        reason = "would run code when it is read" if base == "pickle" else "is not read"
        raise Bad(
            f"the value {shown(name)} is of format {shown(form)}, which {reason}; write the dataset "
            "without it"
        )
    return Column(name, base, None, kind, decode)


def _dtype(names: list[str], code: int) -> np.dtype[Any]:
    if not 0 <= code < len(names) or names[code] == "-":
        raise Bad(f"arrays of type {code} are not read")
    return np.dtype(names[code])


def _array(data: bytes, order: str, names: list[str]) -> Value:
    """An array after its type, its number of dimensions and its sides (uint32 each; big-endian in
    tensors)."""
    if len(data) < 8:
        raise ValueError("it ends inside its header")
    code, count = struct.unpack_from(f"{order}II", data)
    if count > 16 or len(data) < 8 + 4 * count:
        raise ValueError(f"a shape of {count:,} sides")
    shape = struct.unpack_from(f"{order}{count}I", data, 8)
    return row_files.array_of(data, _dtype(names, code), shape, 8 + 4 * count)


def in_store(folder: ForeignURL, index: dict[str, Any], found: Iterable[ForeignURL]) -> ForeignFiles:
    """The chunks below a URL. Raises PackError."""
    return litdata_folder(folder, index).in_store(found)


FOLDER = Choice(
    lambda given: "chunks" in given.index,
    lambda given: RowSource(litdata_folder(given.path, given.index)),
)
