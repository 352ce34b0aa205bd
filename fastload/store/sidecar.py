"""Sidecars: files that say where everything lies in shards, so that a dataset opens by one read instead of a walk over each shard's trees.

NOTE [ sidecars: what they are worth ]
A sidecar is a copy of facts in the shards. So a sidecar that is missing, damaged or of a later version is skipped, and shards that no
sidecar knows are walked. A section of it belongs to the shard of its key, size, number of samples and file's checksum: after a shard was
written anew, or taken out, its old section is no shard's. Sections may come in any order, and a shard's may lie in any sidecar.
Its content is used after these checks: the sidecar's checksum, which the manifest has; every length; that places lie in the shard's file
(`core.Store.add`); columns against the manifest's checksums. A record is compared with its checksum at each read, as ever: a wrong place is
that sample's error, and never another sample's bytes.

NOTE [ segments: what is checked when ]
  rows           the numbers of a shard's samples that count: read and checked when the dataset is opened, since all reads need them.
  fixed values   rows of an int, float or array field that was added: read and checked with their column, as a shard's own chunk is.
  other values   text, JSON and bytes that were added: a shard's segment is read whole and checked on first use, and kept.
Only the checked copy is used; no file is mapped.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.common.files import open_regular
from fastload.errors import DatasetError
from fastload.store.checked import Bad
from fastload.store.entries import OFFSET_BYTES, Segment, ShardEntry, file_path
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
        into: a writable buffer of exactly its size; by default one is made, once the file is known to be long enough.

    Raises:
        DatasetError: the file is missing, too short, or not what was written.
    """
    path = file_path(dataset, segment.folder, segment.file)
    try:
        descriptor, size = open_regular(path)
        try:
            if size < segment.offset + segment.bytes:
                raise DatasetError(f"{path} has {size} bytes, the manifest names {segment.offset + segment.bytes}: {_AGAIN}")
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
    """The numbers of the stored samples that count, as their segment has them: `core.Store.set_rows` checks their order."""
    rows = data.view("<u4").astype(np.uint32, copy=False)
    rows.setflags(write=False)
    return rows


def packed_values(values: Sequence[bytes]) -> bytes:
    """A segment of values of any length, as `AddedValues` reads it."""
    ends = np.zeros(len(values) + 1, "<u8")
    np.cumsum(np.fromiter(map(len, values), np.uint64, len(values)), out=ends[1:])
    return b"".join((ends.tobytes(), *values))


class AddedValues:
    """Text, JSON and bytes that were added to one shard, by stored sample. See NOTE [ segments: what is checked when ]."""

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

    Any thread may ask, and a forked child keeps what was read before: two threads that ask at once both read, and one result is kept.
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


MAGIC = b"FLX1"
VERSION = 1
SIDECARS_MOST = 8
"""Sidecars of a dataset that is appended to; where there would be more, they are written as one."""
ROW_MOST = 64
"""Bytes of a column's row up to which its values are copied too."""
COLUMN_MOST = 64 << 20
"""Bytes of a column in one sidecar above which its values are not copied: opening does not read them either. The records' checksums are."""

WALKED_SAMPLES = 1024
WALKED_SHARDS = 4
"""Limits below which a dataset's shards are walked, which takes less time than reading a sidecar."""

_HEAD = struct.Struct("<4sIQQQQII")
_COLUMN = struct.Struct("<QIHH")
_PLACE_BYTES = 12
_ALIGNED = 8
"""Sections begin at multiples of this."""

Identity = tuple[int, int, int, int]
Chunk = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True, eq=False)
class Section:
    """A sidecar's section about one shard.

    Attributes:
        places: place of each stored sample: three u32 for each, as `core.Store.add` takes them.
        columns: (name, offset, size) of each of its columns.
        chunks: rows of the columns that were copied, by name; they have the checksums in the manifest.
    """

    places: npt.NDArray[np.uint32]
    columns: tuple[tuple[bytes, int, int], ...]
    chunks: Mapping[str, memoryview]


def identity(shard: ShardEntry) -> Identity:
    """Key of a shard's section."""
    return shard.key, shard.stored, shard.bytes, shard.crc32c


def split(data: memoryview) -> dict[Identity, memoryview]:
    """The sections of a sidecar, unread, by the shards that they belong to.

    Raises:
        Bad: its lengths do not hold, or it is of a later version.
    """
    found: dict[Identity, memoryview] = {}
    at = 0
    while at < len(data):
        if len(data) - at < _HEAD.size:
            raise Bad("it ends within a section's head")
        magic, version, size, key, stored, file_bytes, crc, _ = _HEAD.unpack_from(data, at)
        if magic != MAGIC or version != VERSION:
            raise Bad(f"the section at {at} is of version {version}" if magic == MAGIC else f"there is no section at {at}")
        if size < _HEAD.size or size % _ALIGNED or size > len(data) - at:
            raise Bad(f"the section at {at} has {size} bytes")
        found[key, stored, file_bytes, crc] = data[at : at + size]
        at += size
    return found


def parse(data: memoryview, shard: ShardEntry) -> Section:
    """The section of a shard.

    Raises:
        Bad: its lengths do not hold, or its columns are not the shard's.
    """
    count = _HEAD.unpack_from(data)[-1]
    names = _HEAD.size + count * _COLUMN.size
    if names > len(data):
        raise Bad(f"{count} columns in {len(data)} bytes")
    table = list(_COLUMN.iter_unpack(data[_HEAD.size : names]))
    places = names + sum(length for _, _, length, _ in table)
    places += -places % 4
    chunks = places + shard.stored * _PLACE_BYTES
    if chunks + sum(size for _, size, _, copied in table if copied) > len(data):
        raise Bad(f"{shard.stored} samples and their columns in {len(data)} bytes")
    columns: list[tuple[bytes, int, int]] = []
    copies: dict[str, memoryview] = {}
    at, chunk = names, chunks
    for offset, size, length, copied in table:
        name = data[at : at + length].tobytes()
        columns.append((name, offset, size))
        at += length
        if copied:
            copies[name.decode("utf-8", "replace")] = data[chunk : chunk + size]
            chunk += size
    known = {name for name, _, _ in columns}
    for wanted, crc in shard.columns.items():
        if wanted.encode() not in known or (wanted in copies and core.crc32c(copies[wanted]) != crc):
            raise Bad(f"column {wanted} is missing or not what was packed")
    kept = {name: copy for name, copy in copies.items() if name in shard.columns}
    return Section(np.frombuffer(data[places:chunks], np.uint32), tuple(columns), kept)


class Sidecars:
    """The sidecars of a dataset, read into memory. See NOTE [ sidecars: what they are worth ]."""

    def __init__(self, read: SegmentReader, segments: Iterable[Segment]) -> None:
        """Reads them by `read`; those that do not hold are passed over."""
        self.sections: dict[Identity, memoryview] = {}
        for segment in segments:
            try:
                self.sections |= sections_of(read(segment).data, segment.file)
            except DatasetError:  # noqa: PERF203
                continue

    def get(self, shard: ShardEntry) -> Section | None:
        """The section of a shard; None: it has to be walked."""
        data = self.sections.get(identity(shard))
        if data is None:
            return None
        try:
            return parse(data, shard)
        except Bad:
            return None


def useful(shards: Sequence[ShardEntry], segments: Iterable[Segment]) -> Iterable[Segment]:
    """The sidecars of a dataset of these shards that are worth reading; none where it is so small that a walk is as fast."""
    small = len(shards) < WALKED_SHARDS and sum(shard.stored for shard in shards) < WALKED_SAMPLES
    return () if small else segments


def read_sidecar(dataset: Path, segment: Segment) -> dict[Identity, memoryview]:
    """The sections of one sidecar.

    Raises:
        DatasetError: it is missing, damaged or of a later version.
    """
    return sections_of(read_segment(dataset, segment).data, str(file_path(dataset, segment.folder, segment.file)))


def sections_of(data: memoryview, name: str) -> dict[Identity, memoryview]:
    """The sections in the bytes of a sidecar; `name` is its, for messages.

    Raises:
        DatasetError: it is damaged or of a later version.
    """
    try:
        return split(data)
    except Bad as error:
        raise DatasetError(f"{name} does not hold ({error})") from None


def walked(dataset: Path, shard: ShardEntry) -> core.Store:
    """A store of all samples that one shard stores, whose trees were walked. Raises DatasetError."""
    store = core.Store()
    store.add(os.fspath(file_path(dataset, shard.folder, shard.file)), 0, shard.stored, shard.bytes, shard.key, shard.stored)
    return store


def section(dataset: Path, shard: ShardEntry, samples: int) -> Iterator[Chunk]:
    """The parts of a shard's section, in a sidecar of so many samples; the shard is walked. Raises DatasetError."""
    store = walked(dataset, shard)

    def rows(name: str, size: int) -> Chunk:
        chunk = bytearray(size)
        store.column(0, name, chunk)
        if core.crc32c(chunk) != shard.columns[name]:
            raise DatasetError(f"column {name} in {shard.file} is damaged: copy the shard again or pack again")
        return chunk

    return _encoded(shard, store.columns(0), store.places(0), rows, samples)


def cut_section(data: memoryview, shard: ShardEntry, samples: int) -> Iterator[Chunk]:
    """The parts of a shard's section made for a sidecar of fewer samples, as one of so many has them. Raises Bad."""
    known = parse(data, shard)
    places = known.places.tobytes()
    return _encoded(shard, known.columns, places, lambda name, _: known.chunks[name], samples)


class Sections(Mapping[Identity, memoryview]):
    """Sections of a dataset's shards, each read when it is asked for.

    Args:
        shards: shards of the dataset.
        read: returns the section of a shard, as a sidecar of so many samples has it.
    """

    def __init__(self, shards: Iterable[ShardEntry], read: Callable[[ShardEntry, int], memoryview]) -> None:
        self._shards = {identity(shard): shard for shard in shards}
        self._samples = sum(shard.stored for shard in self._shards.values())
        self._read = read

    def __getitem__(self, key: Identity) -> memoryview:
        return self._read(self._shards[key], self._samples)

    def __iter__(self) -> Iterator[Identity]:
        return iter(self._shards)

    def __len__(self) -> int:
        return len(self._shards)


def _encoded(
    shard: ShardEntry, columns: Sequence[tuple[bytes, int, int]], places: bytes, rows: Callable[[str, int], Chunk], samples: int
) -> Iterator[Chunk]:
    """The parts of a section; `rows` returns a column's rows, by its name and size."""
    copied = []
    for name, _, size in columns:
        row = size // shard.stored
        small = row <= ROW_MOST and row * samples <= COLUMN_MOST
        copied.append(name.decode("utf-8", "replace") in shard.columns and (small or name == CRC_COLUMN.encode()))
    names = b"".join(name for name, _, _ in columns)
    head = _HEAD.size + len(columns) * _COLUMN.size + len(names)
    filled = head + -head % 4
    content = filled + shard.stored * _PLACE_BYTES + sum(size for (_, _, size), copy in zip(columns, copied, strict=True) if copy)
    total = content + -content % _ALIGNED
    yield _HEAD.pack(MAGIC, VERSION, total, *identity(shard), len(columns))
    for (name, offset, size), copy in zip(columns, copied, strict=True):
        yield _COLUMN.pack(offset, size, len(name), copy)
    yield names + bytes(filled - head)
    yield places
    for (name, _, size), copy in zip(columns, copied, strict=True):
        if copy:
            yield rows(name.decode(), size)
    yield bytes(total - content)


def write_sidecar(
    dataset: Path,
    name: str,
    shards: Iterable[ShardEntry],
    known: Mapping[Identity, memoryview] | None = None,
    into: Path | None = None,
) -> Segment:
    """Writes a sidecar, and syncs file and folder. One shard's section is in memory at a time.

    Args:
        dataset: the dataset's folder.
        name: an unused name for the file.
        shards: those that it covers.
        known: sections, which are copied; shards without one are walked.
        into: the folder to write it into; default: the dataset's.

    Raises:
        DatasetError: a shard is missing or damaged.
        OSError: the disk is full or fails.
    """
    covered = list({identity(shard): shard for shard in shards}.values())
    samples = sum(shard.stored for shard in covered)
    sections = known or {}
    folder = dataset if into is None else into
    crc = size = 0
    with open(folder / name, "xb") as file:
        for shard in covered:
            found = sections.get(identity(shard))
            for part in section(dataset, shard, samples) if found is None else (found,):
                file.write(part)
                crc = core.crc32c(part, crc)
                size += len(part)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(folder)
    return Segment(name, 0, size, crc)


def check_sidecar(dataset: Path, segment: Segment, shards: Iterable[ShardEntry]) -> str:
    """Describes what is wrong with a sidecar, compared with what its shards say; "" if nothing is."""
    again = "it is passed over; `fastload index` writes it anew"
    try:
        sections = read_sidecar(dataset, segment)
    except DatasetError as error:
        return f"{error} ({again})"
    for shard in shards:
        data = sections.get(identity(shard))
        if data is None:
            continue
        try:
            section = parse(data, shard)
            store = walked(dataset, shard)
            if section.places.tobytes() != store.places(0) or list(section.columns) != store.columns(0):
                raise Bad("it names other places than the shard has")
        except DatasetError:
            continue  # the shard's own damage
        except Bad as error:
            path = file_path(dataset, segment.folder, segment.file)
            return f"{path}: what it says of {shard.file} does not hold ({error}): `fastload index` writes it anew"
    return ""
