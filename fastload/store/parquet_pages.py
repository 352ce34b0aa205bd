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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from fastload.common.files import FILE_BYTES
from fastload.store.pages import CODECS, LEVEL, POINTED, POINTER_BYTES, Page, PageSlots, pointers

if TYPE_CHECKING:
    import pyarrow.parquet as pq

Read = Callable[[int, int], bytes]
"""Reads exactly so many bytes at an offset of the file."""
Extents = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""Offsets and sizes of values in the file, in bytes."""
_Taken = tuple[npt.NDArray[np.bool_], Extents]

_HEADER_FIRST, _HEADER_MOST = 256, 1 << 20
_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
_ABOUT = {_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}
"""Field of a page's header that is about a page of its kind."""
_PLAIN, _PLAIN_DICTIONARY, _RLE, _RLE_DICTIONARY = 0, 2, 3, 8
_DEPTH = 8
_ROWS_MOST = 1 << 28
"""Limit on the rows of a row group whose places are noted, 16 bytes each."""
_BLOCK = 1 << 16
_WHOLE_MOST = 64 << 20
"""Bytes of a page that is read whole although it is not compressed."""
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


class _Found(NamedTuple):
    """A page of a column.

    Attributes:
        at, body, end: places of its header, of its body, and of what follows it.
        whole: bytes of the body, decompressed.
        kind: kind of the page.
        about: the part of the header that is about such pages.
        values: number of its values; of a page of data nulls included.
        encoding: encoding of the values.
    """

    at: int
    body: int
    end: int
    whole: int
    kind: int
    about: dict[int, Any]
    values: int
    encoding: int

    @property
    def levels(self) -> int:
        """Bytes of the levels before what is compressed."""
        return _int(self.about, 5) + _int(self.about, 6) if self.kind == _DATA_V2 else 0

    def codec(self, codec: int) -> int:
        """Its compression in a column of that one."""
        return codec if self.kind != _DATA_V2 or self.about.get(7, True) else 0


def _pages(read: Read, at: int, end: int, rows: int) -> Iterator[_Found]:
    """The pages of dictionaries and data in a column, up to its last row. Raises ValueError: one is not as it
    should be."""
    while rows > 0:
        header, length = _header(read, at, end)
        body, size, whole, kind = at + length, _int(header, 3), _int(header, 2), _int(header, 1)
        if size < 0 or body + size > end or whole < 0:
            raise ValueError(f"the page at byte {at:,} does not fit into its column")
        begin, at = at, body + size
        if kind not in _ABOUT:
            continue
        about = _struct(header, _ABOUT[kind])
        count, encoding = _int(about, 1), _int(about, 4 if kind == _DATA_V2 else 2)
        found = _Found(begin, body, at, whole, kind, about, count, encoding)
        if kind == _DICTIONARY:
            if not 0 <= count <= whole // _U32.size:
                raise ValueError(f"{count:,} values in a page of {whole:,} bytes")
        else:
            if not 0 <= count <= rows:
                raise ValueError(f"a page of {count:,} values, where {rows:,} are left")
            if not 0 <= found.levels <= min(size, whole):
                raise ValueError("a page has levels of another length than it says")
            rows -= count
        yield found


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

    def body(each: _Found) -> _Body:
        if slots is None and each.whole != each.end - each.body:
            raise ValueError(f"the page at byte {each.at:,} does not fit into its column")
        return _Body(read, each, chunk.codec, slots)

    def plain(each: _Found) -> _Taken:
        page = body(each)
        given, first = page.given(chunk.levels)
        return given, _plain(page.read, first, page.end, int(given.sum()))

    return _places(read, chunk, plain, body)


def pointer_places(read: Read, chunk: ColumnChunk, slots: PageSlots) -> Extents | None:
    """The place of each value of a column, as that of a pointer in a page as `content_of` makes it: of values
    that no dictionary has nothing is read. See NOTE [ pages: lengths that are not known ]. Nulls, of which
    there are none or few, have no place where a dictionary is used, and pointers to nothing elsewhere.

    Args:
        read: reads the file.
        chunk: the column.
        slots: the pages, to which those of the column are added.

    Raises:
        ValueError: a page is not as it should be.
    """

    def plain(each: _Found) -> _Taken | None:
        levels = 0 if each.kind == _DICTIONARY else chunk.levels
        found = _add_pointed(slots, each, chunk, levels)
        return None if found is None else (np.ones(each.values, np.bool_), found)

    return _places(read, chunk, plain, lambda each: _Body(read, each, chunk.codec, PageSlots()))


def _places(
    read: Read,
    chunk: ColumnChunk,
    plain: Callable[[_Found], _Taken | None],
    body: Callable[[_Found], _Body],
) -> Extents | None:
    """The place of each value of a column; None where a page gives none.

    Args:
        read: reads the file.
        chunk: the column.
        plain: (values that are there, their places) of a page of values, or of a dictionary; None: it gives
            none.
        body: the content of a page of numbers of values in the dictionary.

    Raises:
        ValueError: a page is not as it should be.
    """
    offsets, sizes = np.zeros(chunk.rows, np.int64), np.full(chunk.rows, -1, np.int64)
    dictionary: Extents | None = None
    row = 0
    for each in _pages(read, *_edges(chunk), chunk.rows):
        if each.kind == _DICTIONARY:
            if each.encoding not in (_PLAIN, _PLAIN_DICTIONARY):
                return None
            if (taken := plain(each)) is None:
                return None
            dictionary = taken[1]
            continue
        if each.encoding == _PLAIN:
            if (taken := plain(each)) is None:
                return None
            given, found = taken
        elif each.encoding in (_PLAIN_DICTIONARY, _RLE_DICTIONARY) and dictionary is not None:
            page = body(each)
            given, first = page.given(chunk.levels)
            found = _looked_up(page.read(first, page.end - first), int(given.sum()), dictionary)
        else:
            return None
        rows = row + np.flatnonzero(given)
        offsets[rows], sizes[rows] = found
        row += each.values
    return offsets, sizes


def _add_pointed(slots: PageSlots, each: _Found, chunk: ColumnChunk, levels: int) -> Extents | None:
    """Adds a page with pointers; returns the place of each, up to the page's end. None: it is large, and its
    values can be read by themselves."""
    length = each.whole - each.levels
    if length > _WHOLE_MOST and not each.codec(chunk.codec):
        return None
    if not 0 <= each.values <= length + chunk.rows or length + each.values * POINTER_BYTES > FILE_BYTES:
        raise ValueError(f"{each.values:,} values in a page of {length:,} bytes")
    codec = each.codec(chunk.codec) | POINTED | levels * LEVEL
    page = slots.add(each.at, each.end - each.at, each.values * POINTER_BYTES + length, codec)
    at = np.arange(each.values, dtype=np.int64) * POINTER_BYTES
    return page.start + at, page.length - at


def content_of(page: Page, data: Buffer) -> bytes:
    """The bytes of a page as its shard has them, of those of the object. Raises ValueError: they are no such
    page; ArgumentError: pyarrow is missing."""
    if not page.codec & POINTED:
        return page.decompressed(data)
    view, codec, levels = memoryview(data).cast("B"), page.codec & POINTED - 1, page.codec // LEVEL

    def read(at: int, size: int) -> bytes:
        return bytes(view[at : at + size])

    each = next(_pages(read, 0, len(view), max(1, page.length // POINTER_BYTES)))
    body = _Body(read, each, codec, PageSlots())
    given, first = body.given(levels)
    found = _plain(body.read, first, body.end, int(given.sum()))
    offsets, sizes = np.zeros(len(given), np.int64), np.full(len(given), -1, np.int64)
    offsets[given], sizes[given] = found[0] - body.start, found[1]
    made = pointers(offsets, sizes) + body.read(body.start, body.end - body.start)
    if len(made) != page.length or len(view) != page.size:
        raise ValueError(f"a page of {len(made):,} bytes that should have {page.length:,}")
    return made


def _edges(chunk: ColumnChunk) -> tuple[int, int]:
    """(begin, end) of a column. Raises ValueError."""
    if not 0 <= chunk.offset <= chunk.offset + chunk.size:
        raise ValueError(f"a column of {chunk.size:,} bytes at byte {chunk.offset:,}")
    return chunk.offset, chunk.offset + chunk.size


class _Body:
    """The bytes of a page behind those levels that are not compressed; decompressed where there are slots.

    Attributes:
        start, end: their place, in the file or in the slots.
        read: reads some of them.
    """

    def __init__(self, read: Read, page: _Found, codec: int, slots: PageSlots | None) -> None:
        self._whole, self._page = read, page
        self.read, self.start, self.end = read, page.body + page.levels, page.end
        if slots is None:
            return
        size, length = self.end - self.start, page.whole - page.levels
        slot = slots.add(self.start, size, length, page.codec(codec))
        data = slot.decompressed(read(self.start, size))
        self.start, self.end = slot.start, slot.start + len(data)
        self.read = lambda at, size: data[at - slot.start : at - slot.start + size]

    def given(self, levels: int) -> tuple[npt.NDArray[np.bool_], int]:
        """(values that are there, where they begin): from the definition levels, before the values."""
        page = self._page
        if page.kind == _DICTIONARY:
            return np.ones(page.values, np.bool_), self.start
        if page.kind == _DATA_V2:
            if _int(page.about, 6):
                raise ValueError("a page has levels of another length than it says")
            read, at, size, first = self._whole, page.body, page.levels, self.start
        elif levels:
            at = self.start + _U32.size
            size = _U32.unpack(self.read(self.start, _U32.size))[0]
            read, first = self.read, at + size
            if first > self.end:
                raise ValueError("a page has levels beyond its end")
        else:
            read, at, size, first = self.read, self.start, 0, self.start
        if not levels:
            return np.ones(page.values, np.bool_), first
        return _hybrid(read(at, size), levels.bit_length(), page.values) == levels, first


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
