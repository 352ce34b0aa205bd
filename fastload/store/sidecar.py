"""Sidecars: files that say where everything lies in shards, so that a dataset opens by few reads instead of a
walk over each shard's trees.

NOTE [ sidecars: what they are worth ]
A sidecar is a copy of facts in the shards. So a sidecar that is missing, damaged or of a later version is
skipped, and shards that no sidecar knows are walked. A section of it belongs to the shard of its key, size,
number of samples and file's checksum: after a shard was written anew, or taken out, its old section is no
shard's. Sections may come in any order, and a shard's may lie in any sidecar. A sidecar is tables, one after
another, and at its end a directory: the head of each shard's section, which says where the section's tables
are, and has the CRC32C of each of their blocks. The manifest has the checksum of the directory, and that of
the whole file.
  opening      reads the directory, and checks it and every length. Tables stay on the disk: NOTE [ table:
  read in place ]. a place      is read with its block, which is compared with its checksum; it has to lie in
  the shard's file. a record     is compared with its checksum at each read, as ever: a wrong place is that
  sample's error, and never another sample's bytes. a copy       of a column's values, too, is a table.
A block that is found damaged after the dataset was opened is an error that names the file. `fastload verify`
compares all of a sidecar.

NOTE [ segments: what is checked when ]
  rows           the numbers of a shard's samples that count: read and checked when the dataset is opened,
  since all reads need them. fixed values   rows of an int, float or array field that was added: read and
  checked with their column, as a shard's own chunk is. other values   text, JSON and bytes that were added: a
  shard's segment is read whole and checked on first use, and kept.
Only the checked copy is used; no file is mapped.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.common.files import open_regular
from fastload.errors import DatasetError
from fastload.store.checked import Bad
from fastload.store.entries import OFFSET_BYTES, Segment, ShardEntry, file_path
from fastload.store.groups import Groups
from fastload.store.manifest import sync_folder
from fastload.store.schema import CRC_COLUMN

SegmentReader = Callable[[Segment], npt.NDArray[np.uint8]]
"""Function that returns the checked bytes of a segment, as `read_segment` does; raises DatasetError."""

_AGAIN = "copy the dataset again; `fastload verify` checks the rest"


def read_segment(dataset: Path, segment: Segment, into: memoryview | None = None) -> npt.NDArray[np.uint8]:
    """The bytes of a segment, checked.

    Args:
        dataset: the dataset's folder.
        segment: the part of a file.
        into: a writable buffer of exactly its size; by default one is made, once the file is known to be long
            enough.

    Raises:
        DatasetError: the file is missing, too short, or not what was written.
    """
    path = file_path(dataset, segment.folder, segment.file)
    try:
        descriptor, size = open_regular(path)
        try:
            if size < segment.offset + segment.bytes:
                raise DatasetError(
                    f"{path} has {size} bytes, the manifest names {segment.offset + segment.bytes}: {_AGAIN}"
                )
            data = np.empty(segment.bytes, np.uint8) if into is None else np.frombuffer(into, np.uint8)
            view, at = data.data, 0
            while at < segment.bytes:
                read = os.preadv(descriptor, [view[at:]], segment.offset + at)
                if not read:
                    raise DatasetError(f"{path} was cut while it was read: {_AGAIN}")
                at += read
        finally:
            os.close(descriptor)
    except DatasetError:
        raise
    except OSError as error:
        raise DatasetError(f"cannot read {path}: {error.strerror}; {_AGAIN}") from None
    if core.crc32c(data) != segment.crc32c:
        raise DatasetError(f"{path} is damaged (its checksum does not match): {_AGAIN}")
    return data


def rows_of(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """The numbers of the stored samples that count, as their segment has them: `core.Store.set_rows`
    checks their order."""
    rows = data.view("<u4").astype(np.uint32, copy=False)
    rows.setflags(write=False)
    return rows


def packed_values(values: Sequence[bytes]) -> bytes:
    """A segment of values of any length, as `AddedValues` reads it."""
    ends = np.zeros(len(values) + 1, "<u8")
    np.cumsum(np.fromiter(map(len, values), np.uint64, len(values)), out=ends[1:])
    return b"".join((ends.tobytes(), *values))


class AddedValues:
    """Text, JSON and bytes that were added to one shard, by stored sample. See NOTE [ segments: what is
    checked when ]."""

    def __init__(self, data: npt.NDArray[np.uint8], stored: int, what: str) -> None:
        """Takes a checked segment of `stored` values; `what` names it.

        Raises:
            DatasetError: its offsets do not hold.
        """
        head = (stored + 1) * OFFSET_BYTES
        offsets = data[:head].view("<u8")
        self._content = data[head:].data
        if offsets[0] != 0 or offsets[-1] != len(self._content) or np.any(offsets[1:] < offsets[:-1]):
            raise DatasetError(f"{what} does not hold (its offsets are not ascending): {_AGAIN}")
        self._offsets = offsets

    def __getitem__(self, row: int) -> bytes:
        return bytes(self._content[int(self._offsets[row]) : int(self._offsets[row + 1])])


class AddedFields:
    """The values that were added to a dataset's shards, read on first use and kept.

    Any thread may ask, and a forked child keeps what was read before: two threads that ask at once both read,
    and one result is kept.
    """

    def __init__(self, read: SegmentReader) -> None:
        self._read_segment = read
        self._read: dict[tuple[Segment, int], AddedValues] = {}

    def values(self, segment: Segment, stored: int) -> AddedValues:
        """The values in a segment, read on first use. Raises as the reader that was given does."""
        found = self._read.get((segment, stored))
        if found is None:
            values = AddedValues(self._read_segment(segment), stored, segment.file)
            found = self._read.setdefault((segment, stored), values)
        return found


def damaged_column(name: str, file: str) -> DatasetError:
    """The exception for a column of a shard whose bytes are not those that were packed."""
    return DatasetError(
        f"column {name} in {file} is damaged (its bytes are not those that were packed): "
        "copy the shard again or pack again; `fastload verify` checks the rest"
    )


MAGIC = b"FLX2"
DIRECTORY = b"FLXD"
VERSION = 2
SIDECARS_MOST = 8
"""Sidecars of a dataset that is appended to; where there would be more, they are written as one."""
ROW_MOST = 64
"""Bytes of a column's row up to which its values are copied too."""
PLACES = ""
"""Name of the table of places, beside those of columns: a row is low and high half of the offset, size,
CRC32C of the record, u32 each."""

WALKED_SAMPLES = 1024
WALKED_SHARDS = 4
"""Limits below which a dataset's shards are walked, which takes less time than reading a sidecar."""

_HEAD = struct.Struct("<4sIQQQIIIIQ")
_COLUMN = struct.Struct("<QIHH")
_DIRECTORY = struct.Struct("<4sIQ")
_AT = struct.Struct("<Q")
_PLACE_BYTES = 16
_WALKED_BYTES = 12
_ALIGNED = 8
"""Tables and heads begin at multiples of this."""
_COPIED_BYTES = 1 << 20

Identity = tuple[int, int, int, int]
Chunk = bytes | bytearray | memoryview
Parts = Iterable[Chunk]
"""The content of a section: its head, and then its tables in chunks."""


def identity(shard: ShardEntry) -> Identity:
    """Key of a shard's section."""
    return shard.key, shard.stored, shard.bytes, shard.crc32c


@dataclass(frozen=True, slots=True, eq=False)
class TablePart:
    """A table's part of a section.

    Attributes:
        width: bytes of a row.
        start: offset of its first row among the section's tables.
        crcs: CRC32C of each of its blocks.
    """

    width: int
    start: int
    crcs: npt.NDArray[np.uint32]


@lru_cache(64)
def _widths_of(names: bytes, described: tuple[tuple[int, int], ...]) -> Mapping[str, int]:
    """The width of each table of a section by name. Sections of one form share them: a dataset may have
    100,000 shards.

    Args:
        names: names of the shard's columns, one after another.
        described: (bytes of its name, bytes of a row if it is copied, else 0) of each column.

    Raises:
        Bad: two columns have one name.
    """
    widths, at, copied = {PLACES: _PLACE_BYTES}, 0, 1
    for length, width in described:
        if width:
            widths[names[at : at + length].decode("utf-8", "replace")] = width
            copied += 1
        at += length
    if len(widths) < copied:
        raise Bad("two of its columns have one name")
    return MappingProxyType(widths)


class Section:
    """A sidecar's section about one shard.

    Attributes:
        widths: bytes of a row of each of its tables, in their order, by the name of the column, and `PLACES`.
        stored: samples that the shard stores.
        size: bytes of its tables.
        units: number of groups of the shard's records, as `Groups` forms them.
        single: True if each group is one record.
        file: the open file of the tables; None: it is not open here.
        at: offset of the first table in the file.
    """

    __slots__ = ("_sums", "_words", "at", "file", "single", "size", "stored", "units", "widths")

    def __init__(self, words: npt.NDArray[np.uint32], file: core.TableFile | None, at: int) -> None:
        """Takes the section's head, as words. Raises Bad: its lengths do not hold."""
        self._words, self.file, self.at = words, file, at
        head = self._head
        _, _, _, self.stored, _, _, count, self.units, single, self.size = _HEAD.unpack_from(head)
        self.single = bool(single)
        names = _HEAD.size + count * _COLUMN.size
        if names > len(head):
            raise Bad(f"{count} columns in a head of {len(head)} bytes")
        described = tuple((length, width) for _, _, length, width in self._listed(count))
        sums = names + sum(length for length, _ in described)
        self.widths = _widths_of(head[names:sums].tobytes(), described)
        self._sums = -(-sums // 4)
        start, first = 0, self._sums
        for width in self.widths.values():
            start, first = start + self._table_bytes(width), first + self._blocks(width)
            if not self.stored or width > core.TABLE_BLOCK or first > len(words):
                raise Bad(f"{self.stored} samples and their columns in a head of {len(head)} bytes")
        if start != self.size or not (
            self.units == self.stored or (not self.single and 0 < self.units <= self.stored)
        ):
            raise Bad(
                f"its tables have {self.size} bytes and not {start}, or its {self.stored} records "
                f"{self.units} groups"
            )

    @property
    def _head(self) -> memoryview:
        return self._words.data.cast("B")

    def _listed(self, count: int) -> Iterator[tuple[int, int, int, int]]:
        """(offset, size, bytes of its name, width of its table or 0) of each of the shard's columns."""
        return _COLUMN.iter_unpack(self._head[_HEAD.size : _HEAD.size + count * _COLUMN.size])

    def _table_bytes(self, width: int) -> int:
        size: int = self.stored * width
        return size + -size % _ALIGNED

    def _blocks(self, width: int) -> int:
        blocks: int = -(-self.stored // max(1, core.TABLE_BLOCK // width))
        return blocks

    @property
    def columns(self) -> tuple[tuple[bytes, int, int], ...]:
        """(name, offset, size) of each of the shard's columns."""
        head = self._head
        count = _HEAD.unpack_from(head)[6]
        columns, at = [], _HEAD.size + count * _COLUMN.size
        for offset, size, length, _ in self._listed(count):
            columns.append((head[at : at + length].tobytes(), offset, size))
            at += length
        return tuple(columns)

    def part(self, name: str) -> TablePart:
        """The place and the checksums of a table. Raises KeyError: the column was not copied."""
        start, first = 0, self._sums
        for key, width in self.widths.items():
            if key == name:
                return TablePart(width, start, self._words[first : first + self._blocks(width)])
            start, first = start + self._table_bytes(width), first + self._blocks(width)
        raise KeyError(name)

    def table(self, name: str = PLACES) -> core.Table:
        """A table of the section. Raises KeyError: the column was not copied."""
        part = self.part(name)
        assert self.file is not None
        return core.Table(self.file, self.at + part.start, self.stored, part.width, part.crcs)

    def has(self, name: str, width: int) -> bool:
        """Returns True if the section has the values of a column, whose rows have so many bytes."""
        return name == CRC_COLUMN or self.widths.get(name) == width

    def values(self, name: str) -> memoryview:
        """The rows of a column that it has, of all stored samples. Raises DatasetError: they are not what
        was written."""
        found = (
            self.rows()[:, 3].tobytes()
            if name == CRC_COLUMN
            else self.table(name).read(0, self.stored).reshape(-1).data
        )
        return memoryview(found)

    def rows(self) -> npt.NDArray[np.uint32]:
        """The table of places as an array (stored, 4). Raises DatasetError."""
        return self.table().read(0, self.stored).view("<u4")

    def content(self) -> Iterator[Chunk]:
        """The section as another sidecar has it. Raises DatasetError: a table is not what was written."""
        yield self._head
        for name, width in self.widths.items():
            table, step = self.table(name), max(1, _COPIED_BYTES // width)
            for first in range(0, self.stored, step):
                yield table.read(first, min(step, self.stored - first)).reshape(-1).data
            yield bytes(-(self.stored * width) % _ALIGNED)


def _head_of(data: memoryview, at: int) -> tuple[Identity, memoryview]:
    """(the shard's identity, bytes) of a section's head at this place. Raises Bad."""
    if len(data) - at < _HEAD.size:
        raise Bad("it ends within a section's head")
    magic, size, key, stored, file_bytes, crc, *_ = _HEAD.unpack_from(data, at)
    if magic != MAGIC or size < _HEAD.size or size % _ALIGNED or size > len(data) - at:
        raise Bad(f"there is no head of a section at {at}")
    return (key, stored, file_bytes, crc), data[at : at + size]


def open_section(data: memoryview, shard: ShardEntry) -> Parts:
    """The content of a section that is a file by itself, as `section` made it. Raises Bad: it is none of
    this shard."""
    found, head = _head_of(data, 0)
    if found != identity(shard) or len(data) - len(head) != Section(np.frombuffer(head, "<u4"), None, 0).size:
        raise Bad("it is another shard's, or was cut")
    return head, data[len(head) :]


class Sidecars:
    """The open sidecars of a dataset. See NOTE [ sidecars: what they are worth ]."""

    def __init__(self) -> None:
        self._heads: dict[Identity, tuple[npt.NDArray[np.uint32], core.TableFile | None, int]] = {}
        self._sections: dict[Identity, Section] = {}

    def add(self, directory: memoryview, file: core.TableFile | None, start: int, tables: int) -> None:
        """Adds the sections of one sidecar.

        Args:
            directory: its checked directory.
            file: the open file of its tables; None: it is opened later.
            start: offset of the first table in the file.
            tables: bytes of all tables.

        Raises:
            Bad: the directory does not hold, or is of a later version.
        """
        if len(directory) < _DIRECTORY.size:
            raise Bad("it ends within its directory")
        magic, version, count = _DIRECTORY.unpack_from(directory)
        if magic != DIRECTORY or version != VERSION:
            raise Bad(
                f"its directory is of version {version}" if magic == DIRECTORY else "it has no directory"
            )
        found: dict[Identity, tuple[npt.NDArray[np.uint32], core.TableFile | None, int]] = {}
        words, at = np.frombuffer(directory, "<u4", len(directory) // 4), _DIRECTORY.size
        for _ in range(count):
            if len(directory) - at < _AT.size:
                raise Bad("its directory ends within a section")
            (place,) = _AT.unpack_from(directory, at)
            known, head = _head_of(directory, at + _AT.size)
            if place > tables or _HEAD.unpack_from(head)[-1] > tables - place:
                raise Bad(f"a section lies outside of its {tables} bytes of tables")
            at += _AT.size + len(head)
            found[known] = words[(at - len(head)) // 4 : at // 4], file, start + place
        self._heads |= found

    def get(self, shard: ShardEntry) -> Section | None:
        """The section of a shard, the same each time; None: it has to be walked."""
        key = identity(shard)
        if key not in self._sections and key in self._heads:
            with suppress(Bad):
                self._sections[key] = Section(*self._heads[key])
        return self._sections.get(key)

    def opened(self, first: int, last: int) -> list[Section]:
        """The sections that shards were asked for, among those numbered first .. last-1 in the order in
        which they were added."""
        keys = islice(self._heads, first, last)
        return [self._sections[key] for key in keys if key in self._sections]

    def content(self, shard: ShardEntry) -> Parts | None:
        """The content of a shard's section, for another sidecar; None: there is none. Raises DatasetError
        when it is read."""
        found = self.get(shard)
        return None if found is None else found.content()

    def covers(self, shards: Iterable[ShardEntry]) -> bool:
        """Returns True if there are sections of these shards, and of no others."""
        return self._heads.keys() == {identity(shard) for shard in shards}

    def identities(self) -> Iterator[Identity]:
        """The identities of the shards that there are sections of."""
        return iter(self._heads)

    def __len__(self) -> int:
        return len(self._heads)


def useful(shards: Sequence[ShardEntry], segments: Iterable[Segment]) -> Iterable[Segment]:
    """The sidecars of a dataset of these shards that are worth reading; none where it is so small that a
    walk is as fast."""
    small = len(shards) < WALKED_SHARDS and sum(shard.stored for shard in shards) < WALKED_SAMPLES
    return () if small and all(shard.foreign is None for shard in shards) else segments


def open_sidecars(dataset: Path, segments: Iterable[Segment]) -> Sidecars:
    """The sidecars of a dataset's folder; those that do not hold are passed over."""
    sidecars = Sidecars()
    for segment in segments:
        with suppress(DatasetError):
            add_sidecar(sidecars, dataset, segment)
    return sidecars


def add_sidecar(sidecars: Sidecars, dataset: Path, segment: Segment) -> None:
    """Opens one sidecar.

    Raises:
        DatasetError: it is missing, its directory is damaged, or it is of a later version.
    """
    path = file_path(dataset, segment.folder, segment.file)
    part = directory_of(segment)
    directory = read_segment(dataset, part)
    try:
        descriptor, _ = open_regular(path)
    except OSError as error:
        raise DatasetError(f"cannot read {path}: {error.strerror}; {_AGAIN}") from None
    add_directory(
        sidecars, directory.data, core.TableFile(descriptor, path), segment.offset, segment.bytes - part.bytes
    )


def directory_of(segment: Segment) -> Segment:
    """The part of a sidecar that opening reads."""
    assert segment.directory is not None  # parse_sidecars() saw to that
    size, crc = segment.directory
    return replace(
        segment, offset=segment.offset + segment.bytes - size, bytes=size, crc32c=crc, directory=None
    )


def add_directory(
    sidecars: Sidecars,
    directory: memoryview,
    file: core.TableFile | None,
    start: int,
    tables: int,
    name: str = "",
) -> None:
    """Adds a sidecar as `Sidecars.add` does. Raises DatasetError, which has its name, where it does not
    hold."""
    try:
        sidecars.add(directory, file, start, tables)
    except Bad as error:
        raise DatasetError(f"{name or 'a sidecar'} does not hold ({error})") from None


def walked(dataset: Path, shard: ShardEntry) -> core.Store:
    """A store of all samples that one shard stores, whose trees were walked. Raises DatasetError."""
    if shard.foreign is not None:
        raise unplaced(shard)
    store = core.Store()
    store.add(
        os.fspath(file_path(dataset, shard.folder, shard.file)),
        0,
        shard.stored,
        shard.bytes,
        shard.key,
        shard.stored,
    )
    return store


def unplaced(shard: ShardEntry) -> DatasetError:
    """The exception for a foreign shard that no sidecar knows."""
    return DatasetError(
        f"what says where the images in {shard.title} lie is missing or damaged: copy the dataset again, or "
        "attach the data again"
    )


def foreign_section(shard: ShardEntry, places: npt.NDArray[np.uint32], columns: Mapping[str, Chunk]) -> Parts:
    """The content of a foreign shard's section.

    Args:
        shard: the entry.
        places: (stored, 4): low and high half of an image's offset in the object, its size, and its CRC32C,
            0 where that is not known.
        columns: rows of each column, which the object has not, by name.

    Raises:
        Bad: a place lies outside of the object.
    """
    named = [(name.encode(), 0, memoryview(rows).nbytes) for name, rows in columns.items()]
    return _encoded(
        identity(shard),
        named,
        np.ascontiguousarray(places[:, :3], "<u4").reshape(-1).view(np.uint8).data,
        np.ascontiguousarray(places[:, 3], "<u4").view(np.uint8).data,
        columns,
        apart=True,
    )


def section(dataset: Path, shard: ShardEntry) -> Parts:
    """The content of a shard's section; the shard is walked. Raises DatasetError."""
    store = walked(dataset, shard)

    def rows(name: str, size: int) -> Chunk:
        chunk = bytearray(size)
        store.column(0, name, chunk)
        if core.crc32c(chunk) != shard.columns[name]:
            raise DatasetError(
                f"column {name} in {shard.file} is damaged: copy the shard again or pack again"
            )
        return chunk

    columns = store.columns(0)
    sizes = {name.decode("utf-8", "replace"): size for name, _, size in columns}
    copied = [
        name
        for name in sizes
        if name in shard.columns and name != CRC_COLUMN and 0 < sizes[name] // shard.stored <= ROW_MOST
    ]
    if sizes.get(CRC_COLUMN) != 4 * shard.stored:
        raise DatasetError(
            f"{shard.file} has no checksums of its records: copy the shard again or pack again"
        )
    copies = {name: rows(name, sizes[name]) for name in copied}
    return _encoded(identity(shard), columns, store.places(0), rows(CRC_COLUMN, sizes[CRC_COLUMN]), copies)


def _encoded(
    key: Identity,
    columns: Sequence[tuple[bytes, int, int]],
    places: Chunk,
    checksums: Chunk,
    copies: Mapping[str, Chunk],
    apart: bool = False,
) -> Iterator[Chunk]:
    """The content of a section.

    Args:
        key: identity of the shard.
        columns: (name, offset, size) of each of its columns.
        places: twelve bytes for each stored sample, as `core.Store.places` returns them.
        checksums: CRC32C of each record, u32.
        copies: rows of the columns that are copied, by name.
        apart: the shard's file has no columns: all are copies alone.
    """
    stored = key[1]
    table = np.empty((stored, 4), "<u4")
    table[:, :3] = np.frombuffer(places, "<u4").reshape(stored, 3)
    table[:, 3] = np.frombuffer(checksums, "<u4")
    groups = Groups(table, key[2])
    tables = [(_PLACE_BYTES, table.reshape(-1).view(np.uint8).data)]
    listed = []
    for name, offset, size in columns:
        copy = copies.get(name.decode("utf-8", "replace"))
        width = 0 if copy is None else size // stored
        listed.append(_COLUMN.pack(offset, 0 if apart else size, len(name), width))
        if copy is not None:
            tables.append((size // stored, memoryview(copy)))
    described = b"".join((*listed, *(name for name, _, _ in columns)))
    described += bytes(-len(described) % 4)
    described += b"".join(_block_crcs(data, width) for width, data in tables)
    described += bytes(-(_HEAD.size + len(described)) % _ALIGNED)
    size = sum(len(data) + -len(data) % _ALIGNED for _, data in tables)
    head = _HEAD.pack(
        MAGIC, _HEAD.size + len(described), *key, len(columns), len(groups), groups.single, size
    )
    yield head + described
    for _, data in tables:
        yield data
        yield bytes(-len(data) % _ALIGNED)


def _block_crcs(data: memoryview, width: int) -> bytes:
    """CRC32C of each block of a table, u32."""
    block = core.TABLE_BLOCK // width * width
    return np.fromiter(
        (core.crc32c(data[at : at + block]) for at in range(0, len(data), block)), "<u4"
    ).tobytes()


def _written(file: BinaryIO, sections: Iterable[Parts], name: str) -> Segment:
    """Writes a sidecar to an open file; `name` is its. One table is in memory at a time, and the heads."""
    crc = at = 0
    heads: list[Chunk] = []

    def put(part: Chunk) -> None:
        nonlocal crc, at
        file.write(part)
        crc = core.crc32c(part, crc)
        at += len(part)

    for parts in sections:
        content = iter(parts)
        head = next(content)
        heads += (_AT.pack(at), bytes(head))  # a view of a section would keep all of it
        for part in content:
            put(part)
    directory = b"".join((_DIRECTORY.pack(DIRECTORY, VERSION, len(heads) // 2), *heads))
    put(directory)
    return Segment(name, 0, at, crc, None, (len(directory), core.crc32c(directory)))


def write_sidecar(
    dataset: Path,
    name: str,
    shards: Iterable[ShardEntry],
    known: Callable[[ShardEntry], Parts | None] = lambda shard: None,
    into: Path | None = None,
) -> Segment:
    """Writes a sidecar, and syncs file and folder. One shard's section is in memory at a time.

    Args:
        dataset: the dataset's folder.
        name: an unused name for the file.
        shards: those that it covers.
        known: returns the content of a shard's section, which is copied; None: the shard is walked.
        into: the folder to write it into; default: the dataset's.

    Raises:
        DatasetError: a shard is missing or damaged.
        OSError: the disk is full or fails.
    """
    covered = {identity(shard): shard for shard in shards}.values()
    folder = dataset if into is None else into

    def content(shard: ShardEntry) -> Parts:
        found = known(shard)
        return section(dataset, shard) if found is None else found

    with open(folder / name, "xb") as file:
        segment = _written(file, map(content, covered), name)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(folder)
    return segment


_CHECKED_BYTES = 4 << 20


def check_file(dataset: Path, segment: Segment) -> None:
    """Compares all bytes of a sidecar with the manifest's checksum. Raises DatasetError."""
    path = file_path(dataset, segment.folder, segment.file)
    try:
        descriptor, size = open_regular(path)
        with open(descriptor, "rb", buffering=0) as file:
            if size < segment.offset + segment.bytes:
                raise DatasetError(
                    f"{path} has {size} bytes, the manifest names {segment.offset + segment.bytes}: {_AGAIN}"
                )
            file.seek(segment.offset)
            crc, left = 0, segment.bytes
            while left and (data := file.read(min(left, _CHECKED_BYTES))):
                crc, left = core.crc32c(data, crc), left - len(data)
    except DatasetError:
        raise
    except OSError as error:
        raise DatasetError(f"cannot read {path}: {error.strerror}; {_AGAIN}") from None
    if left or crc != segment.crc32c:
        raise DatasetError(f"{path} is damaged (its checksum does not match): {_AGAIN}")


def check_sidecar(dataset: Path, segment: Segment, shards: Mapping[Identity, ShardEntry]) -> str:
    """Describes what is wrong with a sidecar, compared with what its shards say; "" if nothing is.
    `shards`: of the dataset."""
    path = file_path(dataset, segment.folder, segment.file)
    sidecars = Sidecars()
    try:
        check_file(dataset, segment)
        add_sidecar(sidecars, dataset, segment)
    except DatasetError as error:
        return f"{error} (it is passed over; `fastload index` writes it anew)"
    for key in sidecars.identities():
        shard = shards.get(key)
        if shard is None:
            continue
        try:
            if wrong := _difference(sidecars, dataset, shard):
                return (
                    f"{path}: what it says of {shard.file} does not hold ({wrong}): `fastload index` "
                    "writes it anew"
                )
        except DatasetError:
            continue  # the shard's own damage
    return ""


def _difference(sidecars: Sidecars, dataset: Path, shard: ShardEntry) -> str:
    """Describes how a shard's section differs from the shard; "" if it does not. Raises DatasetError: the
    shard is damaged."""
    wanted = b"".join(section(dataset, shard))
    found = sidecars.content(shard)
    try:
        said = None if found is None else b"".join(found)
    except DatasetError as error:
        return str(error)
    if said is None:
        return "its head does not hold"
    return "" if said == wanted else "it names other places, or has other values, than the shard"
