"""Places of the values of a Parquet column in its file, from the headers of its pages.

NOTE [ parquet: where values lie ]
A value of an uncompressed column of bytes lies in one piece: in a page in the encoding PLAIN, as its length
(u32) and its bytes, or once in the dictionary page, to which indices in data pages point. Writers begin a
column with a dictionary and go on in PLAIN where that grows too large, so both come in one column. Source:
the format's specification, parquet.thrift and Encodings.md of apache/parquet-format 2.11. A page that is
anything else (compressed, encrypted, DELTA_...) has no places. Everything read here is hostile: each number
is checked before it is used, and no value is longer than the rest of its page.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastload.store.pages import CODECS, PageSlots

if TYPE_CHECKING:
    import pyarrow.parquet as pq

Read = Callable[[int, int], bytes]
"""Reads exactly so many bytes at an offset of the file."""
Extents = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""Offsets and sizes of values in the file, in bytes."""

_HEADER_FIRST, _HEADER_MOST = 256, 1 << 20
_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
_PLAIN, _PLAIN_DICTIONARY, _RLE, _RLE_DICTIONARY = 0, 2, 3, 8
_DEPTH = 8
_ROWS_MOST = 1 << 28
"""Limit on the rows of a row group whose places are noted, 16 bytes each."""
_BLOCK = 1 << 16
_U32 = struct.Struct("<I")


@dataclass(frozen=True)
class ColumnChunk:
    """One column of a row group, as the file's footer describes it.

    Attributes:
        offset, size: place of its pages in the file, bytes.
        rows: number of its values, nulls included.
        levels: the definition level of a value that is there; 0: none is null.
        codec: compression of its pages, by its number in `fastload.store.pages.CODECS`.
    """

    offset: int
    size: int
    rows: int
    levels: int
    codec: int = 0


def chunk_of(meta: pq.FileMetaData, group: int, path: str) -> ColumnChunk | None:
    """A column of bytes by its path, as pyarrow's metadata of a file have it; None if it is none, or its
    values have no places."""
    columns = meta.row_group(group)
    for number in range(columns.num_columns):
        each, schema = columns.column(number), meta.schema.column(number)
        if each.path_in_schema == path:
            plain = (
                each.physical_type == "BYTE_ARRAY"
                and each.compression in CODECS
                and not schema.max_repetition_level
            )
            if not plain or each.num_values != columns.num_rows or not 0 <= each.num_values <= _ROWS_MOST:
                return None
            first = min(
                filter(
                    None,
                    (
                        each.dictionary_page_offset if each.has_dictionary_page else None,
                        each.data_page_offset,
                    ),
                )
            )
            codec = CODECS.index(each.compression)
            return ColumnChunk(
                first, each.total_compressed_size, each.num_values, schema.max_definition_level, codec
            )
    return None


def value_places(read: Read, chunk: ColumnChunk, slots: PageSlots | None = None) -> Extents | None:
    """The place of each value of a column, offset 0 and size -1 for a null; None where a page gives none.

    Args:
        read: reads the file.
        chunk: the column.
        slots: the pages as they are decompressed, to which those of the column are added; places are in
            these. None: places are in the file, and no page is compressed.

    Raises:
        ValueError: a page is not as it should be.
    """
    offsets, sizes = np.zeros(chunk.rows, np.int64), np.full(chunk.rows, -1, np.int64)
    dictionary: Extents | None = None
    at, end, row = chunk.offset, chunk.offset + chunk.size, 0
    if not 0 <= at <= end:
        raise ValueError(f"a column of {chunk.size:,} bytes at byte {chunk.offset:,}")
    while row < chunk.rows:
        header, length = _header(read, at, end)
        body, size, whole = at + length, _int(header, 3), _int(header, 2)
        if size < 0 or body + size > end or not 0 <= whole or (slots is None and size != whole):
            raise ValueError(f"the page at byte {at:,} does not fit into its column")
        kind, at = _int(header, 1), body + size
        if kind == _DICTIONARY:
            about = _struct(header, 7)
            if _int(about, 2) not in (_PLAIN, _PLAIN_DICTIONARY):
                return None
            page = _Body(read, body, at, whole, chunk.codec, slots)
            dictionary = _plain(page.read, page.start, page.end, _int(about, 1))
        elif kind in (_DATA, _DATA_V2):
            about = _struct(header, 5 if kind == _DATA else 8)
            count, encoding = _int(about, 1), _int(about, 2 if kind == _DATA else 4)
            if not 0 <= count <= chunk.rows - row:
                raise ValueError(f"a page of {count:,} values, where {chunk.rows - row:,} are left")
            if kind == _DATA:
                page = _Body(read, body, at, whole, chunk.codec, slots)
                given, first = _given(page.read, page.start, page.end, chunk.levels, count, about, kind)
            else:  # its levels lie before what is compressed
                given, values = _given(read, body, at, chunk.levels, count, about, kind)
                codec = chunk.codec if about.get(7, True) else 0
                page = _Body(read, values, at, whole - (values - body), codec, slots)
                first = page.start
            there = int(given.sum())
            if encoding == _PLAIN:
                found = _plain(page.read, first, page.end, there)
            elif encoding in (_PLAIN_DICTIONARY, _RLE_DICTIONARY) and dictionary is not None:
                found = _looked_up(page.read(first, page.end - first), there, dictionary)
            else:
                return None
            rows = row + np.flatnonzero(given)
            offsets[rows], sizes[rows] = found
            row += count
    return offsets, sizes


class _Body:
    """The bytes of a page, decompressed where there are slots; `read` reads some of them.

    Attributes:
        start, end: their place, in the file or in the slots.
    """

    def __init__(
        self, read: Read, start: int, end: int, whole: int, codec: int, slots: PageSlots | None
    ) -> None:
        self.read, self.start, self.end = read, start, end
        if slots is None:
            return
        page = slots.add(start, end - start, whole, codec)
        data = page.decompressed(read(start, end - start))
        self.start, self.end = page.start, page.start + len(data)
        self.read = lambda at, size: data[at - page.start : at - page.start + size]


def _plain(read: Read, at: int, end: int, count: int) -> Extents:
    """The places of values that follow each other, each after its length."""
    if not 0 <= count <= (end - at) // _U32.size:
        raise ValueError(f"{count:,} values in a page of {end - at:,} bytes")
    offsets, sizes = np.zeros(count, np.int64), np.zeros(count, np.int64)
    start, block = at, b""
    for number in range(count):
        if at + _U32.size > end:
            raise ValueError("a page ends before its values do")
        if not start <= at <= start + len(block) - _U32.size:
            start, block = (
                at,
                read(at, min(_BLOCK if number and sizes[number - 1] < _BLOCK // 8 else _U32.size, end - at)),
            )
        size = _U32.unpack_from(block, at - start)[0]
        at += _U32.size
        if size > end - at:
            raise ValueError("a value is longer than its page")
        offsets[number], sizes[number] = at, size
        at += size
    return offsets, sizes


def _given(
    read: Read, body: int, end: int, levels: int, count: int, about: dict[int, Any], kind: int
) -> tuple[npt.NDArray[np.bool_], int]:
    """(values that are there, where they begin): from the definition levels, before the values."""
    if kind == _DATA_V2:
        before, size = _int(about, 6), _int(about, 5)
        if before or size < 0 or body + size > end:
            raise ValueError("a page has levels of another length than it says")
        first = body
    elif levels:
        size, first = _U32.unpack(read(body, _U32.size))[0], body + _U32.size
        if first + size > end:
            raise ValueError("a page has levels beyond its end")
    else:
        size, first = 0, body
    if not levels:
        return np.ones(count, np.bool_), first + size
    return _hybrid(read(first, size), levels.bit_length(), count) == levels, first + size


def _looked_up(data: bytes, count: int, dictionary: Extents) -> Extents:
    """The places of values that are given by their numbers in the dictionary."""
    if not count:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    if not data:
        raise ValueError("a page of values without their width")
    numbers = _hybrid(data[1:], data[0], count)
    if numbers.max(initial=0) >= len(dictionary[0]):
        raise ValueError("a value is not in its dictionary")
    return dictionary[0][numbers], dictionary[1][numbers]


def _hybrid(data: bytes, width: int, count: int) -> npt.NDArray[np.int64]:
    """Numbers of so many bits in the encoding RLE, of runs and of groups of eight (Encodings.md, "RLE /
    bit-packing hybrid")."""
    if not 0 <= width <= 32:
        raise ValueError(f"numbers of {width} bits")
    found, filled, at, bytes_each = np.zeros(count, np.int64), 0, 0, (width + 7) // 8
    while filled < count:
        try:
            head, at = _varint(data, at)
        except IndexError:
            raise ValueError("numbers end before their count") from None
        if head & 1:
            size = (head >> 1) * width
            bits = np.unpackbits(np.frombuffer(data, np.uint8, -1)[at : at + size], bitorder="little")
            many = min((head >> 1) * 8, count - filled)
            if width and len(bits) < many * width:
                raise ValueError("numbers end before their count")
            values = bits[: many * width].reshape(many, width).astype(np.int64) @ (
                1 << np.arange(width, dtype=np.int64)
            )
            found[filled : filled + many] = values
            at += size
        else:
            many = min(head >> 1, count - filled)
            if not many or at + bytes_each > len(data):
                raise ValueError("a run of numbers is cut off")
            found[filled : filled + many] = int.from_bytes(data[at : at + bytes_each], "little")
            at += bytes_each
        filled += many
        if not many:
            raise ValueError("a group without numbers")
    return found


def _header(read: Read, at: int, end: int) -> tuple[dict[int, Any], int]:
    """(header of a page, its length): fields by number."""
    size = _HEADER_FIRST
    while True:
        data = read(at, min(size, end - at))
        try:
            return _thrift(data, 0, _DEPTH)
        except IndexError:
            if size >= min(_HEADER_MOST, end - at):
                raise ValueError(f"the header of the page at byte {at:,} is cut off, or too long") from None
            size *= 16


def _thrift(data: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """A struct in Thrift's compact protocol: (fields by number, end). Of lists and maps, which no header has,
    nothing is read.

    Raises:
        IndexError: the data end first.
        ValueError: it is no such struct.
    """
    fields: dict[int, Any] = {}
    number = 0
    while kind := data[at]:
        at += 1
        number = number + (kind >> 4) if kind >> 4 else 0
        if not number:
            number, at = _zigzag(data, at)
        kind &= 15
        if kind in (1, 2):
            fields[number] = kind == 1
        elif kind == 3:
            at += 1
        elif kind in (4, 5, 6):
            fields[number], at = _zigzag(data, at)
        elif kind == 7:
            at += 8
        elif kind == 8:
            size, at = _varint(data, at)
            at += size
        elif kind == 12 and depth:
            fields[number], at = _thrift(data, at, depth - 1)
        else:
            raise ValueError("a page has a header of another kind")
    return fields, at + 1


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """(a number of seven bits a byte, its end). Raises IndexError where the data end first."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _int(fields: dict[int, Any], number: int) -> int:
    value = fields.get(number, 0)
    if type(value) is not int:
        raise ValueError("a page has a header of another kind")
    return value


def _struct(fields: dict[int, Any], number: int) -> dict[int, Any]:
    value = fields.get(number)
    if not isinstance(value, dict):
        raise ValueError("a page has a header of another kind")
    return value
