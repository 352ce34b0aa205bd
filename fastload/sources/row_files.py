"""Files of rows: the common parts of MDS shards and LitData chunks.

Both begin with the number of rows, and the offset of each row and of the end of the last one (uint32 each). A
row is the sizes of those of its values that have no fixed size (uint32 each), and the values, one after the
other. Both formats name an encoding for each column, by which bytes become a field's value. MosaicML
Streaming and LitData write an index.json into a folder of shards.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastload.errors import ArgumentError, PackError
from fastload.remote.foreign import ForeignURL, Walk
from fastload.sources.foreign import ForeignFiles
from fastload.sources.names import field_name, image_name, label_name
from fastload.sources.options import ColumnOptions
from fastload.sources.protocol import (
    FileRanges,
    Files,
    Item,
    NumberedInFiles,
    Place,
    Source,
    Value,
    file_stamp,
    first_readable,
)
from fastload.store import Field
from fastload.store.checked import Bad, get_str, parse_json, shown
from fastload.store.field import KindName
from fastload.store.kinds import KINDS

Decode = Callable[[bytes], Value]
Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a source.

    Attributes:
        name: the field's name.
        encoding: the format's name of how values are stored.
        size: bytes of each value; None if each value has a size of its own.
        kind: kind of the field; "image" where values are pictures' files.
        decode: the value of stored bytes; raises ValueError.
    """

    name: str
    encoding: str
    size: int | None
    kind: KindName
    decode: Decode


def number(code: str) -> Decode:
    """Decoder of one little-endian number, by its code in the module struct."""
    layout = struct.Struct(f"<{code}")

    def decode(data: bytes) -> Value:
        if len(data) != layout.size:
            raise ValueError(f"{len(data)} bytes, where a number has {layout.size}")
        value: int | float = layout.unpack(data)[0]
        return value

    return decode


def text(data: bytes) -> Value:
    return data.decode("utf-8")


def plain(data: bytes) -> Value:
    return data


def json_value(data: bytes) -> Value:
    value: Value = parse_json(data)
    return value


def int_text(data: bytes) -> Value:
    return int(data.decode("ascii"))


def float_text(data: bytes) -> Value:
    return float(data.decode("ascii"))


def pil_pixels(data: bytes) -> Array:
    """Pixels that both libraries store as width, height and the length of the mode's name (uint32 each), the
    name, and rows.

    Raises:
        ValueError: a mode other than RGB and L, or another number of bytes than the size says.
    """
    if len(data) < 12:
        raise ValueError("its pixels end inside the header")
    width, height, length = struct.unpack_from("<III", data)
    mode = data[12 : 12 + length] if length <= 16 else b""
    channels = {b"RGB": 3, b"L": 1}.get(mode)
    if channels is None:
        raise ValueError(
            f"pixels of mode {mode.decode('ascii', 'replace') or '?'} are not stored; convert them to RGB"
        )
    if not width or not height or width * height * channels != len(data) - 12 - length:
        raise ValueError(f"{width} x {height} pixels in {len(data) - 12 - length:,} bytes")
    pixels = np.frombuffer(data, np.uint8, offset=12 + length)
    return pixels.reshape((height, width, 3) if channels == 3 else (height, width))


def array_of(data: bytes, dtype: np.dtype[Any], shape: Sequence[int], at: int) -> Array:
    """The array in the bytes from `at` on. Raises ValueError if they are not exactly its values."""
    if math.prod(shape) * dtype.itemsize != len(data) - at:
        raise ValueError(f"{len(data) - at:,} bytes for an array of {dtype} of shape {tuple(shape)}")
    return np.frombuffer(data, dtype, offset=at).reshape(shape)


def flat_array(dtype: np.dtype[Any]) -> Decode:
    """Decoder of an array of one dimension, whose length follows from the number of bytes."""

    def decode(data: bytes) -> Value:
        return array_of(data, dtype, (len(data) // dtype.itemsize,), 0)

    return decode


def leads_out(name: str) -> bool:
    """Returns True for a name that a file of a dataset gives, and that is no path below a folder. Links in
    the folder lead anywhere."""
    return not name or "\0" in name or os.path.isabs(name) or ".." in name.split("/")


def below(folder: str, name: object) -> str:
    """The path of a file that an index names.

    Raises:
        Bad: no relative path, or one that leads out of the folder.
    """
    relative = get_str(name, "the name of a file")
    if leads_out(relative):
        raise Bad(f"it names the file {shown(relative)}, which is not in the folder")
    path = os.path.join(folder.url if isinstance(folder, ForeignURL) else folder, relative)
    return ForeignURL(path, folder.objects) if isinstance(folder, ForeignURL) else path


_OFFSETS = struct.Struct("<II")
ROWS_MOST = 1 << 24
"""Limit on the rows of one file: their offsets are read at once."""


@dataclass(frozen=True, slots=True)
class RowFile:
    """A file of rows, and the number of them that the source's index says."""

    path: str
    rows: int


class RowFolder(NamedTuple):
    """A folder of files of rows, as its index describes them.

    Attributes:
        title: the folder.
        files: the files.
        columns: all columns, in the order of the values in a row.
        layout: name of the format.
    """

    title: str
    files: Sequence[RowFile]
    columns: Sequence[Column]
    layout: str

    def in_store(self, found: Iterable[ForeignURL]) -> ForeignFiles:
        """The files in a store, of which the objects that were found there tell size and tag. Raises
        PackError: one is not there."""
        known, by_path = {each.url: each for each in found}, dict[str, RowFile]()
        for file in self.files:
            assert isinstance(file.path, ForeignURL)
            if (url := known.get(file.path.url)) is None:
                raise PackError(f"{file.path}: no such object, which {self.title}/index.json names")
            by_path[url] = RowFile(url, file.rows)

        def opened(paths: list[str], columns: ColumnOptions) -> Source:
            return RowSource(self._replace(files=[by_path[path] for path in paths]))

        return ForeignFiles(Files(by_path.__contains__, opened), [file.path for file in by_path.values()])  # type: ignore[misc]


class RowSource(NumberedInFiles):
    """Rows of several files, in the order of the files. Of files in a store the tables of offsets stay in
    memory, and `place` and `read_fields` read small parts from front to back.

    Args:
        folder: the folder.

    Raises:
        PackError: a file is missing, damaged, or not the one that the index describes; no column can be the
            image, or several can.
    """

    classes: tuple[str, ...] | None = None
    concurrent = True

    def __init__(self, folder: RowFolder) -> None:
        title, files, columns, layout = folder
        super().__init__([file.path for file in files], "sample", title)
        self.layout = layout
        if len({file.path for file in files}) < len(files):
            raise PackError(f"{title}: its index names a file twice; copy the index again")
        self._ranges = FileRanges(self.paths)
        self._columns = columns
        self._tables: dict[int, Array] = {}  # by file, of those in a store
        self._walks: dict[int, Walk] = {}
        image, label = _image_and_label(title, columns)
        self._image = next(place for place, column in enumerate(columns) if column.name == image)
        self._names = [field_name(column.name, label) for column in columns]
        self._head = struct.Struct(f"<{sum(column.size is None for column in columns)}I")
        for number, file in enumerate(files):
            self._check_table(number, file.rows)
        self._firsts = np.cumsum([0, *(file.rows for file in files)])
        if not self._firsts[-1]:
            raise PackError(f"{title}: no sample in it")
        try:
            self.fields = tuple(self._field(place) for place in range(len(columns)) if place != self._image)
        except ArgumentError as error:
            raise PackError(f"{title}: a column that cannot be stored: {error}") from error

    def _check_table(self, number: int, rows: int) -> None:
        """Checks the offsets of a file's rows, and of the end of the last one; they are read again with
        each row."""
        path, size = self.paths[number], self._ranges.size(number)
        header = 4 * (rows + 2)
        if rows > ROWS_MOST or size < header:
            raise PackError(
                f"{path}: {size:,} bytes cannot hold the {rows:,} samples that the index says; copy "
                "both again"
            )
        table = np.frombuffer(self._ranges.read(number, 0, header), "<u4")
        if table[0] != rows:
            raise PackError(
                f"{path}: it has {table[0]:,} samples where the index says {rows:,}; copy both again"
            )
        offsets = table[1:]
        if isinstance(path, ForeignURL):
            self._tables[number] = offsets
        if offsets[0] < header or offsets[-1] > size or not bool((offsets[1:] >= offsets[:-1]).all()):
            raise PackError(
                f"{path}: its offsets of samples lie outside its {size:,} bytes, or run backwards; "
                "copy it again"
            )

    def _field(self, place: int) -> Field:
        column, name = self._columns[place], self._names[place]
        if KINDS[column.kind].is_array:
            value = first_readable(lambda position: self._values(position)[name], len(self))
            assert isinstance(value, np.ndarray)
            return Field(name, "array", shape=value.shape, dtype=value.dtype.name)
        return Field(name, "bytes" if KINDS[column.kind].is_image else column.kind)

    def __len__(self) -> int:
        return int(self._firsts[-1])

    def _row(self, position: int) -> tuple[int, int, int, int]:
        """(file, row in the file, offset, size) of a sample."""
        number, row = self.numbered(position)
        if (table := self._tables.get(number)) is not None:
            return number, row, int(table[row]), int(table[row + 1] - table[row])
        begin, end = _OFFSETS.unpack(self._ranges.read(number, 4 * (row + 1), _OFFSETS.size))
        if end < begin:
            raise PackError(
                f"{self.paths[number]}: its offsets of samples have changed since it was opened; "
                "copy it again"
            )
        return number, row, begin, end - begin

    def numbered(self, position: int) -> tuple[int, int]:
        number = int(np.searchsorted(self._firsts, position, side="right")) - 1
        return number, position - int(self._firsts[number])

    def stamp(self, position: int) -> tuple[int, int]:
        number, _, _, size = self._row(position)
        return size, file_stamp(self.paths[number])[1]

    def _parts(self, position: int, head: bytes, size: int) -> list[tuple[int, int]]:
        """(offset in the row, size) of each value of a row, from the row's first bytes."""
        if size < self._head.size:
            raise PackError(
                f"{self.name(position)}: {size} bytes are too few for its {len(self._columns)} values"
            )
        own = iter(self._head.unpack_from(head))
        parts, at = [], self._head.size
        for column in self._columns:
            length = column.size if column.size is not None else next(own)
            parts.append((at, length))
            at += length
        if at != size:
            raise PackError(
                f"{self.name(position)}: its values have {at:,} bytes in all, where the row has "
                f"{size:,}; copy the file again"
            )
        return parts

    def place(self, position: int) -> Place | None:
        if self._columns[self._image].encoding == "pil":
            return None
        number, _, begin, _ = self._row(position)
        at, length = self._small_parts(position)[self._image]
        return Place(self.paths[number], begin + at, length)

    def _small_parts(self, position: int) -> list[tuple[int, int]]:
        """`_parts` of a row, of which the first bytes are read."""
        number, _, begin, size = self._row(position)
        return self._parts(position, self._small(number, begin, min(self._head.size, size)), size)

    def _small(self, number: int, begin: int, size: int) -> bytes:
        """A small part of a file, of which others are read in their order."""
        path = self.paths[number]
        if not isinstance(path, ForeignURL):
            return self._ranges.read(number, begin, size)
        return self._walks.setdefault(number, Walk(path)).part(begin, size)

    def read_fields(self, position: int) -> dict[str, Value]:
        """The fields beside the image, without reading it."""
        number, _, begin, _ = self._row(position)
        return {
            self._names[place]: self._decoded(position, place, self._small(number, begin + at, size))
            for place, (at, size) in enumerate(self._small_parts(position))
            if place != self._image
        }

    def read(self, position: int) -> Item:
        data, parts = self._data(position)
        at, size = parts[self._image]
        image = data[at : at + size]
        if self._columns[self._image].encoding == "pil":
            pixels = self._decoded(position, self._image, image)
            assert isinstance(pixels, np.ndarray)
            return Item(self.name(position), pixels, self._values(position, data, parts))
        return Item(self.name(position), image, self._values(position, data, parts))

    def _data(self, position: int) -> tuple[bytes, list[tuple[int, int]]]:
        number, _, begin, size = self._row(position)
        data = self._ranges.read(number, begin, size)
        return data, self._parts(position, data, size)

    def _values(
        self, position: int, data: bytes = b"", parts: list[tuple[int, int]] | None = None
    ) -> dict[str, Value]:
        if parts is None:
            data, parts = self._data(position)
        return {
            self._names[place]: self._decoded(position, place, data[at : at + size])
            for place, (at, size) in enumerate(parts)
            if place != self._image
        }

    def _decoded(self, position: int, place: int, data: bytes) -> Value:
        column = self._columns[place]
        try:
            return column.decode(data)
        except ValueError as error:
            raise PackError(
                f"{self.name(position)}: its {column.name!r} is no {column.encoding}: {error}"
            ) from error


def _image_and_label(title: str, columns: Sequence[Column]) -> tuple[str, str | None]:
    """Names of the column that is the image, and of the label's.

    Raises:
        PackError: none can be the image, or several can; or a second one holds pixels.
    """
    names = [column.name for column in columns]
    sure = [column.name for column in columns if KINDS[column.kind].is_image]
    image = image_name(
        title, names, sure, [*sure, *(column.name for column in columns if KINDS[column.kind].can_be_file)]
    )
    for column in columns:
        if column.encoding == "pil" and column.name != image:
            raise PackError(
                f"{title}: the column {column.name!r} of pixels (pil) cannot be stored beside the "
                f"image {image!r}"
            )
    rest = [column for column in columns if column.name != image]
    return image, label_name(
        [column.name for column in rest if KINDS[column.kind].can_label], [column.name for column in rest]
    )
