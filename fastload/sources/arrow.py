"""Arrow files, as Hugging Face's library keeps its datasets: in its cache, and in folders that save_to_disk()
wrote. Needs pyarrow.

NOTE [ arrow: images are left where they are ]
A record batch is read whole but for the buffer of the images' bytes, into memory of the batch's own size;
nobody touches the pages of that buffer. The addresses of the buffers in memory tell where they lie in the
file: that gives each image its place, from which it is read by itself. No file is mapped, so that a file that
is cut meanwhile is an error, and a batch's values are validated before the first is used. Compressed batches
are read and decompressed whole, and their images have no place.

Source: the Arrow columnar format, "Serialization and interprocess communication": a stream of messages, each
a length, metadata in a flatbuffer and a body; a file (ARROW1) holds such a stream behind its first 8 bytes.
Of the flatbuffers (Message.fbs) only these are read: of Message the kind of its header, the header and the
length of the body; of RecordBatch the number of rows and whether it is compressed.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import struct
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fastload.common.files import read_regular
from fastload.common.optional import optional
from fastload.errors import PackError
from fastload.sources.arrow_columns import brief, columns_of, file_columns, python_value
from fastload.sources.options import NO_COLUMNS, ColumnOptions
from fastload.sources.protocol import (
    UNKNOWN,
    Choice,
    FileRanges,
    Files,
    Given,
    Item,
    NumberedInFiles,
    Place,
    Value,
    file_stamp,
)
from fastload.sources.tar import expand_all

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA, DICTIONARY, BATCH = 1, 2, 3
"""Kinds of header, as MessageHeader in Message.fbs has them."""
_CONTINUED = 0xFFFFFFFF
_MAGIC = b"ARROW1\0\0"
_HEAD = 8
_METADATA_MOST = 64 << 20
_BODY_MOST = 8 << 30
"""Bytes of a record batch."""


@dataclass(frozen=True)
class Message:
    """One message.

    Attributes:
        offset: first byte of the message in the file.
        size: bytes of its length and metadata: its body begins there.
        body: bytes of its body.
        kind: SCHEMA, DICTIONARY, BATCH, or another.
        rows: number of rows of a record batch.
        compressed: True if its buffers are compressed.
    """

    offset: int
    size: int
    body: int
    kind: int
    rows: int
    compressed: bool


def messages(path: str, size: int, read: Callable[[int, int], bytes]) -> Iterator[Message]:
    """The messages of a file in their order.

    Args:
        path: path of the file, for errors.
        size: bytes of the file.
        read: reads a number of bytes at an offset.

    Raises:
        PackError: the file is cut or damaged, or of a kind that is not read.
    """
    at = len(_MAGIC) if size >= len(_MAGIC) and read(0, len(_MAGIC)) == _MAGIC else 0
    try:
        while size - at >= _HEAD:
            mark, length = struct.unpack("<II", read(at, _HEAD))
            if mark != _CONTINUED or length > min(_METADATA_MOST, size - at - _HEAD):
                raise PackError(f"{path}: not a whole Arrow file: no message at byte {at}")
            if not length:
                return
            found = _message(at, _HEAD + length, read(at + _HEAD, length))
            if not 0 <= found.body <= min(_BODY_MOST, size - at - found.size) or found.rows < 0:
                raise PackError(
                    f"{path}: not a whole Arrow file: the message at byte {at} has {found.body} "
                    f"bytes and {found.rows} rows"
                )
            yield found
            at += found.size + found.body
    except (struct.error, IndexError) as error:
        raise PackError(f"{path}: not a whole Arrow file: the message at byte {at} is damaged") from error
    if at != size:
        raise PackError(f"{path}: not a whole Arrow file: it is cut at byte {size}")


def _message(offset: int, size: int, metadata: bytes) -> Message:
    root = _number("<I", metadata, 0)
    kind = _field("<B", metadata, root, 1)
    body = _field("<q", metadata, root, 3)
    if kind != BATCH:
        return Message(offset, size, body, kind, 0, False)
    where = _slot(metadata, root, 2)
    batch = where + _number("<I", metadata, where)
    return Message(
        offset, size, body, kind, _field("<q", metadata, batch, 0), bool(_slot(metadata, batch, 3))
    )


def _number(form: str, data: bytes, at: int) -> int:
    if at < 0:  # unpack_from would count from the end
        raise IndexError(at)
    found: int = struct.unpack_from(form, data, at)[0]
    return found


def _slot(data: bytes, table: int, field: int) -> int:
    """Place of a field of a table; 0: the field has its default."""
    entries = table - _number("<i", data, table)
    at = 4 + 2 * field
    found = _number("<H", data, entries + at) if at + 2 <= _number("<H", data, entries) else 0
    return table + found if found else 0


def _field(form: str, data: bytes, table: int, field: int) -> int:
    at = _slot(data, table, field)
    return _number(form, data, at) if at else 0


_KEPT = 4
"""Record batches that stay read."""
_STATE, _STATE_MOST = "state.json", 64 << 20
_CACHED = "cache-"
_OF = re.compile(r"-\d{5}-of-\d{5}$")


@dataclass(frozen=True)
class _Batch:
    """A record batch without the bytes of its images, unless it is compressed.

    Attributes:
        columns: a pyarrow.RecordBatch.
        images: the column of the images, or of the elements of their lists.
        offsets, sizes: place of each image's bytes in its file; None if they are in the batch.
        given: for each image, True if it has bytes.
        memory: memory in which the columns lie.
    """

    columns: pa.RecordBatch
    images: pa.Array
    offsets: npt.NDArray[np.int64] | None
    sizes: npt.NDArray[np.int64] | None
    given: npt.NDArray[np.bool_]
    memory: mmap.mmap


class ArrowSource(NumberedInFiles):
    """One or many .arrow files of one schema, read in the order given; ArrowColumns says what the columns
    are.

    An image that has a path and no bytes is read from that file. See NOTE [ arrow: images are left where they
    are ].

    Raises:
        PackError: a file is missing, damaged, of another schema than the first, or has dictionaries; no
            column can be an image.
        ArgumentError: pyarrow is not installed.
    """

    layout = "Arrow files"
    concurrent = True

    def __init__(self, paths: list[str], options: ColumnOptions = NO_COLUMNS) -> None:
        super().__init__(paths, "row")
        self._arrow = optional("pyarrow", "packing Arrow files")
        self._ranges = FileRanges(paths)
        self._lock = threading.Lock()
        self._read: OrderedDict[int, _Batch] = OrderedDict()
        self._schema: pa.Schema | None = None
        self._batches: list[tuple[int, Message, int]] = []  # (file, message, first row in the file)
        for number in range(len(paths)):
            self._add_file(number)
        self._firsts = np.cumsum([0, *(message.rows for _, message, _ in self._batches)])
        if not self._firsts[-1]:
            raise PackError(f"{self.title}: no row in it")
        self._columns = columns_of(self.title, self._schema, options)
        self.image_list = self._columns.image_list
        self._file_columns = file_columns(self._schema)
        self._files_of: dict[int, bool] = {}
        if self._columns.has_pictures:
            self._columns.settle(self._batch(0).columns, self.paths[self._batches[0][0]])
        self.fields, self.classes = self._columns.fields, self._columns.classes
        self.form = self._columns.form
        self.image_field, self.box_format = self._columns.image_field, self._columns.box_format
        self.image_name = self._columns.image_name
        self.notices, self.label_limits = self._columns.notices, self._columns.label_limits

    def _add_file(self, number: int) -> None:
        path, row, schema = self.paths[number], 0, None
        try:
            size = self._ranges.size(number)
            for message in messages(
                path, size, lambda offset, count: self._ranges.read(number, offset, count)
            ):
                if message.kind == SCHEMA and schema is None:
                    schema = self._schema_of(number, message)
                elif message.kind == BATCH and schema is not None:
                    self._batches.append((number, message, row))
                    row += message.rows
                elif message.kind == DICTIONARY:
                    raise PackError(f"{path}: it has dictionaries, which are not read: write it without")
        except OSError as error:
            raise PackError(f"{path}: cannot be read: {error.strerror or error}") from error
        if schema is None:
            raise PackError(f"{path}: not an Arrow file")
        if self._schema is None:
            self._schema = schema
        elif not schema.equals(self._schema):
            raise PackError(
                f"{path}: its columns are not those of {self.paths[0]}: pack files of one schema together"
            )

    def _schema_of(self, number: int, message: Message) -> pa.Schema:
        data = self._ranges.read(number, message.offset, message.size + message.body)
        try:
            return self._arrow.ipc.read_schema(self._arrow.py_buffer(data))
        except Exception as error:  # pyarrow raises any error on a damaged file
            raise PackError(f"{self.paths[number]}: its schema cannot be read: {brief(error)}") from error

    def __len__(self) -> int:
        return int(self._firsts[-1])

    def _find(self, position: int) -> tuple[int, int]:
        """(batch, row in it) of a sample."""
        at = int(np.searchsorted(self._firsts, position, side="right")) - 1
        return at, position - int(self._firsts[at])

    def numbered(self, position: int) -> tuple[int, int]:
        at, row = self._find(position)
        number, _, first = self._batches[at]
        return number, first + row

    def stamp(self, position: int) -> tuple[int, int]:
        at = self._find(position)[0]
        return UNKNOWN if self._has_files(at) else file_stamp(self.paths[self._batches[at][0]])

    def _has_files(self, at: int) -> bool:
        """Returns True if pictures of a batch lie in files of their own."""
        if at not in self._files_of:
            columns = [self._batch(at).columns.column(name) for name in self._file_columns]
            columns = [each.flatten() if hasattr(each.type, "value_type") else each for each in columns]
            self._files_of[at] = any(
                column.null_count or column.field("bytes").null_count for column in columns
            )
        return self._files_of[at]

    def place(self, position: int) -> Place | None:
        at, row = self._find(position)
        return self._place(position, at, row)

    def places(self, position: int) -> list[Place]:
        """Places of a list's images. Raises PackError where they are compressed."""
        at, numbers = self._listed(position)
        found = [place for number in numbers if (place := self._place(position, at, number))]
        if len(found) < len(numbers):
            raise PackError("its images are compressed: pack the source with `fastload pack`")
        return found

    def described(self, position: int) -> tuple[dict[str, Value], int]:
        """The values of a sample, and the number of its images."""
        return self.read_fields(position), len(self._listed(position)[1])

    def read(self, position: int) -> Item:
        name, values = self.name(position), self.read_fields(position)
        if not self.image_list:
            return Item(name, self._image(position, *self._find(position)), values)
        at, numbers = self._listed(position)
        return Item(name, b"", values, images=[self._image(position, at, number) for number in numbers])

    def _listed(self, position: int) -> tuple[int, list[int]]:
        """The batch of a sample with a list, and the numbers of its images, which are all but nulls."""
        at, row = self._find(position)
        batch = self._batch(at)
        lists = batch.columns.column(self.image_list)
        if not lists[row].is_valid:
            return at, []
        first, end = lists.offsets[row].as_py(), lists.offsets[row + 1].as_py()
        return at, [number for number in range(first, end) if batch.images[number].is_valid]

    def _place(self, position: int, at: int, number: int) -> Place | None:
        """The place of an image of a batch; None: it has none of its own."""
        batch = self._batch(at)
        if not batch.given[number]:
            named = self._path(position, batch, number)
            return Place(named, 0, os.stat(named).st_size)
        if batch.offsets is None or batch.sizes is None:
            return None
        path = self.paths[self._batches[at][0]]
        return Place(path, int(batch.offsets[number]), int(batch.sizes[number]))

    def _image(self, position: int, at: int, number: int) -> bytes:
        batch = self._batch(at)
        if not batch.given[number]:
            return read_regular(self._path(position, batch, number))
        place = self._place(position, at, number)
        if place is None:
            scalar = batch.images[number]
            value = python_value(scalar, f"{self.name(position)}: its {self._columns.image}")
            return bytes(value["bytes"] if isinstance(value, dict) else value)
        return self._ranges.read(self._batches[at][0], place.offset, place.size)

    def read_fields(self, position: int) -> dict[str, Value]:
        """The fields besides the image."""
        at, row = self._find(position)
        return self._columns.values(
            self.name(position), self._batch(at).columns, row, self.paths[self._batches[at][0]]
        )

    def _path(self, position: int, batch: _Batch, number: int) -> str:
        images = batch.images
        named = self._arrow.types.is_struct(images.type) and images[number].is_valid
        path = (
            python_value(images.field("path")[number], f"{self.name(position)}: its path") if named else None
        )
        return self._columns.beside(self.name(position), self.paths[self.numbered(position)[0]], path)

    def _batch(self, at: int) -> _Batch:
        """A record batch, read once while it is among the last that were asked for."""
        with self._lock:
            found = self._read.get(at)
            if found is None:
                number, message, _ = self._batches[at]
                try:
                    found = self._read_batch(number, message)
                except (self._arrow.ArrowException, ValueError, MemoryError) as error:
                    where = f"{self.paths[number]}: the record batch at byte {message.offset}"
                    raise PackError(f"{where} cannot be read: {brief(error)}") from error
                self._read[at] = found
                while len(self._read) > _KEPT:
                    self._read.popitem(last=False)
            self._read.move_to_end(at)
        return found

    def _read_batch(self, number: int, message: Message) -> _Batch:
        whole = message.size + message.body
        memory = mmap.mmap(-1, whole)  # anonymous: pages that are not written take no memory
        base = self._arrow.py_buffer(memory)
        self._fill(number, message, memory, 0, whole if message.compressed else message.size)
        columns = self._arrow.ipc.read_record_batch(self._arrow.ipc.read_message(base), self._schema)
        image = columns.column(self._columns.image)
        image = image.values if self.image_list else image
        is_struct = self._arrow.types.is_struct(image.type)
        at = 2
        if is_struct:
            at = 3 if image.type.field(0).name == "bytes" else 6
        values = image.buffers()[at]
        if not message.compressed:
            for buffer in (
                each
                for column in columns.columns
                for each in column.buffers()
                if each is not None and each.size
            ):
                if values is None or buffer.address != values.address:
                    self._fill(number, message, memory, buffer.address - base.address, buffer.size)
        # Before anything else is asked of it: what does not hold may end the process.
        columns.validate(full=True)
        if columns.num_rows != message.rows:
            raise ValueError(f"it has {columns.num_rows} rows, and says {message.rows}")
        data = image.field("bytes") if is_struct else image
        given = data.is_valid().to_numpy(zero_copy_only=False)
        if is_struct:
            given &= image.is_valid().to_numpy(zero_copy_only=False)
        if message.compressed or values is None or not values.size:  # an empty buffer lies anywhere
            return _Batch(columns, image, None, None, given, memory)
        start, edges = values.address - base.address, _edges(data)
        if not 0 <= start <= start + values.size <= whole:
            raise ValueError("its images lie outside of it")
        return _Batch(columns, image, edges[:-1] + message.offset + start, np.diff(edges), given, memory)

    def _fill(self, number: int, message: Message, memory: mmap.mmap, start: int, size: int) -> None:
        """Reads a part of a message into the memory of its batch, where pyarrow says that a buffer lies."""
        if not 0 <= start <= start + size <= len(memory):
            raise ValueError("a buffer lies outside of it")
        memory[start : start + size] = self._ranges.read(number, message.offset + start, size)


def _edges(data: pa.Array) -> npt.NDArray[np.int64]:
    """Offsets at which the values of a column of bytes begin in its buffer, and the end of the last one."""
    dtype = np.dtype(np.int64 if str(data.type).startswith("large_") else np.int32)
    return np.frombuffer(data.buffers()[1], dtype, len(data) + 1, data.offset * dtype.itemsize).astype(
        np.int64
    )


def arrow_files(folder: str, names: list[str]) -> list[str]:
    """The files of one dataset of Hugging Face's library in a folder, in their order; empty where it has
    none.

    A folder that save_to_disk() wrote names them in its state.json. In a folder of the cache they are those
    of one split; what map() and the like keep there besides (cache-*.arrow) is left out.

    Raises:
        PackError: the folder holds several splits, or its state.json names files elsewhere.
    """
    if "dataset_dict.json" in names:
        raise PackError(f"{folder}: it holds several splits, each in a folder: give one of these")
    found = [name for name in names if name.lower().endswith(".arrow")]
    if found and _STATE in names:
        found = _saved(folder)
    else:
        found = [name for name in found if not name.startswith(_CACHED)]
        splits = sorted({_OF.sub("", name[: -len(".arrow")]) for name in found})
        if len(splits) > 1:
            raise PackError(
                f"{folder}: it holds the Arrow files of {', '.join(splits[:5])}: give those of one, "
                f"such as '{splits[0]}*.arrow'"
            )
    return [os.path.join(folder, name) for name in found]


def _saved(folder: str) -> list[str]:
    path = os.path.join(folder, _STATE)
    try:
        names = [each["filename"] for each in json.loads(read_regular(path, _STATE_MOST))["_data_files"]]
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise PackError(
            f"{path}: it does not name the dataset's files ({type(error).__name__}): give the .arrow files"
        ) from error
    if not all(isinstance(name, str) and name == os.path.basename(name) for name in names):
        raise PackError(f"{path}: it names files outside of its folder: give the .arrow files")
    return names


def _in_folder(given: Given) -> list[str]:
    return arrow_files(given.path, list(given.files))


FOLDER = Choice(
    lambda given: bool(_in_folder(given)), lambda given: ArrowSource(_in_folder(given), given.options.columns)
)
FILES = Files(
    lambda path: path.lower().endswith(".arrow"),
    lambda patterns, columns: ArrowSource(expand_all(patterns, "Arrow file"), columns),
)
