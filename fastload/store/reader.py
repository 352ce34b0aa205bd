"""DatasetReader: reads the manifest, columns and records of a packed dataset, in any process. Engines decode
the pixels.

`DatasetFiles` are the files of a packed dataset, as its reader asks for them: here those in a folder;
`fastload.remote` has those in a bucket. Values of fields come from the bytes of records; each is checked
against the schema and the columns:

| kind | value |
|---|---|
| text, bytes, json | str, bytes, the value of the JSON text; with `plain` the text |
| image of 8-bit RGB | StoredImage, not decoded |
| other images, mask | uint8 or uint16 (height, width), or (height, width, channels) of several channels |
| boxes, keypoints, array of any number of rows | an array, rows first |
| instances | uint8 (number, height, width) of 0 and 1; with `plain` a list of COCO's RLE as dicts |
| polygons | of each object a list of parts, each float32 (points, 2) |
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from fastload._native import core
from fastload.common.files import open_regular
from fastload.errors import ArgumentError, ClosedError, DatasetError, RemoteError, SampleError
from fastload.store.columns import HELD_BYTES, TableValues, Values, held
from fastload.store.entries import Segment, ShardEntry, base_path, file_path, one_base
from fastload.store.field import Field
from fastload.store.kinds.base import HEIGHT_COLUMN, WIDTH_COLUMN
from fastload.store.kinds.codecs import BY_ENTRY
from fastload.store.loose import object_at
from fastload.store.manifest import Manifest, dataset_folder
from fastload.store.schema import CRC_COLUMN, Schema
from fastload.store.segment_file import SegmentFile
from fastload.store.sidecar import (
    PLACES,
    AddedFields,
    Section,
    Sidecars,
    damaged_column,
    open_sidecars,
    read_segment,
    rows_of,
    unplaced,
    useful,
    walked,
)


class DatasetFiles:
    """The files of one dataset.

    1. Its answers about a file are as hostile as the file: the reader checks all of them.
    2. Any thread may ask. After a fork the child asks the same object.
    3. Where `remote`, a shard's file may lack records and columns: `record` and `fetch_columns` come before
       they are read.

    Args:
        folder: folder of the dataset.
        base: folder of its attached files, if that is not the one that the dataset names.

    Attributes:
        name: name of the dataset, for messages.
        remote: True if a shard's file may lack a part of its content.
    """

    remote = False

    def __init__(self, folder: Path, base: Path | None = None) -> None:
        self.name: Path | str = folder
        self._folder = folder
        self._base = base
        self._seen: tuple[int | None, Manifest] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return DatasetFiles, (self._folder, self._base)

    def manifest(self, version: int | None = None) -> Manifest:
        """The dataset's manifest, as it is now or of an older version. Raises DatasetError as
        Manifest.load does."""
        seen, self._seen = self._seen, None
        return seen[1] if seen is not None and seen[0] == version else Manifest.load(self._folder, version)

    def looked_at(self, version: int | None) -> Manifest:
        """The same; the next `manifest` of this version returns it, and reads nothing."""
        self._seen = version, self.manifest(version)
        return self._seen[1]

    def check(self, manifest: Manifest) -> None:
        """Checks that a base that was given belongs to such a dataset. Raises DatasetError."""
        if self._base is None or manifest.schema.images is not None:  # it is that of the images' dataset
            return
        one_base(self._folder, manifest.shards)  # raises where there is nothing to be replaced
        if not os.path.isdir(self._base):
            raise DatasetError(
                f"base={os.fspath(self._base)!r} is no folder: name the one that holds the attached "
                f"files of {self._folder}"
            )

    def open_shards(self, manifest: Manifest) -> Sidecars:
        """Makes a manifest's shards ready to be opened, and returns what sidecars say of them."""
        return open_sidecars(self._folder, useful(manifest.shards, manifest.sidecars))

    def shard_path(self, shard: ShardEntry) -> Path | None:
        """The path of a shard's file on this machine; None: nothing of it is here, nor will be."""
        return None if shard.foreign is not None else file_path(self._folder, shard.folder, shard.file)

    def base_path(self, shard: ShardEntry) -> str | None:
        """The folder of a shard's attached files; None: it holds its images."""
        base = base_path(self._folder, shard)
        return base if base is None or self._base is None else os.fspath(self._base)

    def segment_file(self, segment: Segment) -> SegmentFile:
        """A segment that is read in parts."""
        path = file_path(self._folder, segment.folder, segment.file)
        return SegmentFile(segment, lambda: open_regular(path)[0], segment.offset)

    def segment(self, segment: Segment, into: memoryview | None = None) -> npt.NDArray[np.uint8]:
        """The bytes of a segment, checked. Raises DatasetError as `fastload.store.sidecar.read_segment`
        does."""
        return read_segment(self._folder, segment, into)

    def fetch_tables(self, shards: Iterable[int], name: str) -> None:
        """Makes tables of the shards' sections ready to be read, by the name of a column, or PLACES.
        Raises RemoteError, DatasetError."""

    def fetch_columns(self, shards: Iterable[int], name: str, heal: bool = False) -> dict[int, Buffer]:
        """The chunks of a column that the shards' files lack, checked, by shard; `heal`: those that are
        damaged there, where there are others. Raises RemoteError, DatasetError."""
        return {}

    def record(self, index: int) -> Buffer | None:
        """The bytes of a sample that its shard's file lacks, checked; None: they are there. Raises
        RemoteError, SampleError."""
        return None

    @contextmanager
    def held(self, indices: Sequence[int]) -> Iterator[None]:
        """Fetches records together, before they are read one by one in the block. Raises RemoteError."""
        yield

    def heal(self, index: int) -> Buffer | None:
        """The bytes of a sample that were found damaged in the shard's file, from elsewhere, checked; None:
        there are no others.

        Raises RemoteError, SampleError.
        """
        return None

    def learn(self, store: core.Store, manifest: Manifest) -> None:
        """Has readers of a store learn of images that nobody has checked; once all shards are open."""
        if manifest.is_foreign:
            store.learn(FACTS_BYTES)

    def close(self) -> None:
        """Lets go of what is open; idempotent."""


FACTS_BYTES = 256 << 20
"""Bytes of entropy indexes that a process keeps in memory."""


def read_chunk(
    files: DatasetFiles,
    store: core.Store,
    number: int,
    shard: ShardEntry,
    name: str,
    into: memoryview,
    known: Buffer | None,
) -> None:
    """Reads and checks a column's rows of all samples that a shard stores.

    Args:
        files: files of the dataset.
        store: store with the shard opened.
        number: the shard's.
        shard: its entry.
        name: the column's.
        into: a writable buffer of exactly their size.
        known: the rows, where they were read and checked before.

    Raises:
        DatasetError: they are not those that were packed.
        RemoteError: they cannot be fetched.
    """
    if name in shard.added:
        files.segment(shard.added[name], into)
        return
    if known is not None and memoryview(known).nbytes == len(into):
        into[:] = memoryview(known).cast("B")
        return
    if shard.foreign is not None:
        raise unplaced(shard)
    try:
        store.column(number, name, into)
        if core.crc32c(into) == shard.columns[name]:
            return
    except DatasetError:
        if not files.remote:
            raise
    healed = files.fetch_columns([number], name, heal=True).get(number)
    if healed is None or memoryview(healed).nbytes != len(into):
        raise damaged_column(name, shard.file)
    into[:] = memoryview(healed).cast("B")


@dataclass(frozen=True, slots=True)
class _Facts:
    """SampleFacts of one sample of an open dataset."""

    reader: DatasetReader
    index: int

    def size(self, field: Field | None = None) -> tuple[int, int]:
        return stored_size(self.reader, self.index, field)

    def count(self, field: Field) -> int:
        (name,) = self.reader.schema.hidden_names(field)
        return int(self.reader.values(name)[self.index])


def parse_value(
    reader: DatasetReader, index: int, field: Field, kind: int, data: bytes | None, *, plain: bool = False
) -> Any:
    """The value of a field of sample `index`.

    Args:
        reader: reader of the dataset, whose columns say what the bytes must be.
        index: index of the sample.
        field: the field; none that is a column.
        kind: kind of the entry in the record.
        data: the entry's bytes; None: the record lacks it.
        plain: give it as files and tables have it: instances as run lengths, JSON as its text.

    Raises:
        SampleError: the bytes do not hold, or the record lacks them; with the reason alone.
    """
    if data is None:
        reason = f"its record lacks the field {field.name!r}"
        raise SampleError(reason, reason=reason)
    parse = field.handler.plain if plain else field.handler.parse
    return parse(field, kind, data, _Facts(reader, index))


def stored_size(reader: DatasetReader, index: int, field: Field | None = None) -> tuple[int, int]:
    """(height, width) of an image of sample `index` as the columns say; by default the first one's, which
    is that of masks too."""
    hidden = () if field is None or not field.handler.is_image else reader.schema.hidden_names(field)
    height, width = hidden or (HEIGHT_COLUMN, WIDTH_COLUMN)
    return int(reader.values(height)[index]), int(reader.values(width)[index])


T = TypeVar("T")

_CHUNK_BYTES = 1 << 20
"""Bytes of a column that are read at once when a dataset is opened."""


class DatasetReader:
    """Reader of an open packed dataset.

    1. Any thread may read.
    2. Its pickle holds the path and the version alone. After a fork the child opens the files again on first
       use, and keeps the columns that were read before the fork.
    3. The arrays that it returns are in the memory of this process: they stay valid and unchanged after
       `close`, in a forked child, and if the files change.
    4. It stays with the version of the dataset that it was opened with, in other processes too, whatever is
       changed later.

    NOTE [ reader: what is checked when ]
      opening      every shard's size against the manifest's, and every page of its trees, unless a sidecar
      says what they hold;
                   columns that fit into HELD_BYTES are read and compared with the manifest's checksums, and
                   so are the records' checksums of shards that no sidecar knows.
      column()     other columns are read and compared on first use.
      take()       single values of other columns are read in sidecars: NOTE [ table: read in place ].
      a record     is read and compared with its checksum each time.
    NOTE [ segments: what is checked when ] has the rest: rows that were dropped, and fields that were added
    later; and NOTE [ sidecars: what they are worth ] what is read in the place of the trees.
    All data are read into the memory of this process, checked there and used from there; no file is mapped.
    So a dataset that is truncated, overwritten or removed while it is open gives what was packed, or an
    error. Where a block of a sidecar is damaged, the shard itself says what it was to say. NOTE [ store: open
    files ] says which files stay open.
    With a sidecar a process holds four bytes for 256 samples, and four more for a block of each column that
    was copied. Without one, opening takes one read of the trees and the records' checksums, and a process
    holds 16 bytes a sample; forked workers share what was read before. NOTE [ columns: where they are ] has
    the rest of what is in memory; what `column` returned stays there too.

    Attributes:
        path: the dataset's folder, absolute, or its URL.
        files: files of the dataset.
        manifest: the dataset's manifest.
        count: the number of samples.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | DatasetFiles,
        version: int | None = None,
        base: Path | None = None,
        *,
        manifest: Manifest | None = None,
    ) -> None:
        """Opens the dataset in the folder `path`, or of such files: as it is now, or an older version of it,
        or as `manifest` describes it. `base`: where its attached files are, if that is not where it says.

        Raises:
            DatasetError: the dataset or the version is missing, unfinished or of a later version; a shard is
                missing, damaged or of another size; or a column's checksum differs; `base` is given, and is
                no folder, or images are packed.
        """
        self.files = (
            path if isinstance(path, DatasetFiles) else DatasetFiles(dataset_folder(path).absolute(), base)
        )
        self.path = self.files.name
        self._describe(self.files.manifest(version) if manifest is None else manifest)
        self._closed = False
        self._columns: dict[str, npt.NDArray[Any]] = {}
        self._held: dict[str, tuple[Values, int]] = {}
        self._read_of: dict[str, Manifest] = {}  # what described each column when it was read
        self._rows: list[npt.NDArray[np.uint32] | None] = []
        self._numbers: dict[int, dict[int, int]] = {}
        self._added = AddedFields(self.files.segment)
        self._sections: list[Section | None] = []
        self._joined: dict[str, core.JoinedTables | None] = {}
        self._crcs: list[
            npt.NDArray[np.uint32]
        ] = []  # checksums of the records of shards without a section, which the store borrows
        try:
            self._open()
        except RemoteError:
            raise
        except DatasetError:
            now = self.files.manifest() if version is None and manifest is None else self.manifest
            if now.version == self.manifest.version:
                raise
            self._describe(now)  # the latest version became an old one, and was pruned, while it was opened
            self._open()

    def _describe(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.files.check(manifest)
        self.count = manifest.count
        self._firsts = [shard.first for shard in manifest.shards]
        self._starts = np.asarray(self._firsts, np.int64)

    def _open(self) -> None:
        store, sections = self._open_shards()
        columns = {name: column for name, column in self._columns.items() if self._is_current(name)}
        held = {name: found for name, found in self._held.items() if self._is_current(name)}
        for name in self.schema.columns:
            if name not in columns and name not in held:
                found = self._read_held(
                    store, name, sections, HELD_BYTES - sum(size for _, size in held.values())
                )
                held |= {} if found is None else {name: found}
        for number, section in enumerate(sections):
            if section is None:
                store.set_checksums(number, self._read_rows(store, CRC_COLUMN, range(number, number + 1)))
        self._store, self._columns, self._held, self._pid = store, columns, held, os.getpid()
        self._sections, self._joined = sections, {}
        self._read_of = dict.fromkeys((*columns, *held), self.manifest)

    def _read_held(
        self, store: core.Store, name: str, sections: Sequence[Section | None], room: int
    ) -> tuple[Values, int] | None:
        """Reads a column that fits into `room` bytes of memory; None: it does not, or a bucket's sidecars
        lack it.

        A folder's is read as far as it is seen to fit; a bucket's, from which that would take a request each
        time, has to fit as it is.
        """
        row, shards = self._row_bytes(name), range(len(self.manifest.shards))
        if name == CRC_COLUMN or not self.count or row * self.count > HELD_BYTES:
            return None
        if self.files.remote:
            if row * self.count > room or not all(
                section is not None and section.has(name, row) for section in sections
            ):
                return None
            self.files.fetch_tables(shards, name)
        step = max(1, _CHUNK_BYTES * len(shards) // max(1, row * self.count))
        chunks = (
            self._read_rows(store, name, shards[at : at + step], sections)
            for at in range(0, len(shards), step)
        )
        return held(chunks, self.count, room)

    def _row_bytes(self, name: str) -> int:
        dtype, shape = self.schema.columns[name]
        return dtype.itemsize * int(np.prod(shape, dtype=np.int64))

    def _is_current(self, name: str) -> bool:
        """Returns True if a column read before is still valid: rows and checksum of each shard are the
        same."""
        then, now = self._read_of[name].shards, self.manifest.shards
        return then is now or [shard.origin(name) for shard in then] == [shard.origin(name) for shard in now]

    def _open_shards(self) -> tuple[core.Store, list[Section | None]]:
        """Opens every shard; if shards were replaced, by the current manifest. See NOTE [ rewrite: what is
        durable when ]. Returns the section of each shard in a sidecar, too; None: it has none."""
        while True:
            store = core.Store()
            sidecars = self.files.open_shards(self.manifest)
            try:
                sections = [
                    self._add_shard(store, shard, sidecars.get(shard)) for shard in self.manifest.shards
                ]
                self._rows = [
                    self._set_rows(store, number, shard) for number, shard in enumerate(self.manifest.shards)
                ]
            except RemoteError:
                raise
            except DatasetError as error:
                now = self.files.manifest(self.manifest.version)
                if now.shards == self.manifest.shards or not now.same_samples(self.manifest):
                    raise DatasetError(f"{self.path}: {error}") from None
                self.manifest = now
            else:
                self.files.learn(store, self.manifest)
                return store, sections

    def _add_shard(self, store: core.Store, shard: ShardEntry, section: Section | None) -> Section | None:
        """Adds a shard to the store, and returns its section if it holds."""
        base = self.files.base_path(shard)
        path = self.files.shard_path(shard)
        name = shard.file if path is None else os.fspath(path)
        arguments = name, shard.first, shard.count, shard.bytes, shard.key, shard.stored, base
        if section is not None:
            number = None if shard.foreign is None else self.manifest.image_number
            pointed = shard.foreign is not None and shard.foreign.pointed
            try:
                store.add(
                    *arguments,
                    section.table(),
                    section.columns,
                    path is None,
                    self.files.remote,
                    number,
                    pointed,
                )
                return section
            except DatasetError:
                if shard.foreign is not None:
                    raise
        if shard.foreign is not None:
            raise unplaced(shard)
        store.add(*arguments)  # where the section is not to blame, the walk fails too
        return None

    def _set_rows(self, store: core.Store, number: int, shard: ShardEntry) -> npt.NDArray[np.uint32] | None:
        """Tells the store which samples of a shard count, and returns their numbers; None: all."""
        if shard.rows is None:
            return None
        rows = rows_of(self.files.segment(shard.rows))
        store.set_rows(number, rows)
        return rows

    def __reduce__(self) -> tuple[Any, ...]:
        return DatasetReader, (self.files, self.manifest.version)

    def __enter__(self) -> DatasetReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        version = "" if self.manifest.version == 1 else f", version {self.manifest.version}"
        return f"DatasetReader({os.fspath(self.path)!r}, {self.count} samples{version})"

    @property
    def schema(self) -> Schema:
        """The fields of every sample."""
        return self.manifest.schema

    @property
    def store(self) -> core.Store:
        """The native store of this process, with the records' checksums set.

        Raises:
            ClosedError: after `close`.
            DatasetError: reopening in a forked child fails.
        """
        if self._closed:
            raise ClosedError(f"{self.path} was closed: open it again")
        if self._pid != os.getpid():
            self._open()
        return self._store

    def close(self) -> None:
        """Closes the reader; idempotent. The files are closed with the last engine that uses them."""
        if not self._closed:
            self._closed = True
            self.files.close()
            self._columns, self._held, self._joined, self._sections = {}, {}, {}, []
            self._store.close()
            del self._store

    def column(self, name: str) -> npt.NDArray[Any]:
        """All values of a fixed-size field, or of a hidden column, as a read-only array (count, *shape).

        Read and checked once, and kept: every call returns the same array.

        Raises:
            ArgumentError: no such column.
            DatasetError: its bytes are not those that were packed.
        """
        store = self.store
        if name not in self._columns:
            if name not in self.schema.columns:
                raise ArgumentError(
                    f"{self.path} has no column {name!r}; it has {', '.join(self.schema.columns)}"
                )
            if name in self._held:
                self._columns[name] = self._held_range(name, 0, self.count)
            else:
                self._columns[name] = self._read_rows(store, name, range(len(self.manifest.shards)))
            self._read_of[name] = self.manifest
        return self._columns[name]

    def column_range(self, name: str, start: int, stop: int) -> npt.NDArray[Any]:
        """The values of the column `name` of the samples start .. stop-1, one or more, read-only.

        Unless the column was read before, the shards that have them are read and checked, and nothing is
        kept. Raises as `column` does.
        """
        store = self.store
        if name in self._columns or name not in self.schema.columns:
            return self.column(name)[start:stop]
        if name in self._held:
            return self._held_range(name, start, stop)
        numbers = range(self.shard_number(start), self.shard_number(stop - 1) + 1)
        first = self._firsts[numbers.start]
        return self._read_rows(store, name, numbers)[start - first : stop - first]

    def _held_range(self, name: str, start: int, stop: int) -> npt.NDArray[Any]:
        found = np.ascontiguousarray(self._held[name][0][start:stop])
        found.setflags(write=False)
        return found

    def chunk(self, number: int, name: str) -> npt.NDArray[Any]:
        """The rows of the column `name` in shard `number`, read-only. Raises DatasetError as `column`
        does."""
        return self._read_rows(self.store, name, range(number, number + 1), self._sections)

    def take(self, name: str, indices: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Values of a fixed-size field, or of a hidden column, of samples: an array (len(indices), *shape) of
        the caller's own.

        A column that is not in memory is read in the sidecars, and stays there. Raises IndexError;
        ArgumentError, DatasetError as `column`.
        """
        values: npt.NDArray[Any] = self.values(name)[indices]
        return values

    def values(self, name: str) -> Values:
        """The values of a column, by sample: in memory, or TableValues of a large column that all sidecars
        have. Raises as `column`."""
        self.store  # noqa: B018 -- opens the dataset again in a forked child
        if name not in self._columns and name in self.schema.columns:
            if name in self._held:
                return self._held[name][0]
            if (joined := self.tables(name)) is not None:
                return TableValues(partial(self._take_joined, name, joined), len(joined))
        return self.column(name)

    def tables(self, name: str) -> core.JoinedTables | None:
        """The tables of a column in the sidecars, which native code reads, in a bucket once they were
        fetched; None: not all have it."""
        if name not in self._joined:
            self._joined[name] = self._join(name)
        return self._joined[name]

    def _join(self, name: str) -> core.JoinedTables | None:
        width, tables = self._row_bytes(name), []
        for shard, section in zip(self.manifest.shards, self._sections, strict=True):
            if section is None or section.widths.get(name) != width or name in shard.added:
                return None
            tables.append(section.table(name))
        return core.JoinedTables(self._starts, tables, list(self._rows), self.count) if tables else None

    def _take_joined(
        self, name: str, joined: core.JoinedTables, indices: npt.NDArray[np.int64]
    ) -> npt.NDArray[Any]:
        dtype, shape = self.schema.columns[name]
        with suppress(DatasetError):  # a damaged sidecar: the shards have the values too
            if self.files.remote:
                self.files.fetch_tables(
                    np.unique(np.searchsorted(self._starts, indices, side="right") - 1).tolist(), name
                )
            return joined.take(indices).view(dtype).reshape(len(indices), *shape)
        values: npt.NDArray[Any] = self.column(name)[indices]
        return values

    def _read_rows(
        self, store: core.Store, name: str, numbers: range, sections: Sequence[Section | None] = ()
    ) -> npt.NDArray[Any]:
        """Reads and checks a column's rows of some shards. Memory is allocated only once the shards are known
        to hold as many bytes. `sections`: what sidecars say of all shards; (): nothing."""
        dtype, shape = self.schema.columns[name]
        row = self._row_bytes(name)
        sections = sections or (self._sections if self.manifest.is_foreign else ())
        shards = [self.manifest.shards[number] for number in numbers]
        copied = [
            sections and (section := sections[number]) is not None and section.has(name, row)
            for number in numbers
        ]
        self.files.fetch_tables(
            [number for number, there in zip(numbers, copied, strict=True) if there],
            PLACES if name == CRC_COLUMN else name,
        )
        elsewhere = self.files.fetch_columns(
            [number for number, there in zip(numbers, copied, strict=True) if not there], name
        )
        try:
            for number, shard in zip(numbers, shards, strict=True):
                if self._has_column(shard, name) and store.column_bytes(number, name) != shard.stored * row:
                    raise damaged_column(name, shard.file)
            out = np.empty((sum(shard.count for shard in shards), *shape), dtype)
            content, at = out.reshape(-1).view(np.uint8).data, 0
            for number, shard, there in zip(numbers, shards, copied, strict=True):
                chunk, rows = content[at : at + shard.count * row], self._rows[number]
                known = elsewhere.get(number)
                if there and (section := sections[number]) is not None and name not in shard.added:
                    with suppress(DatasetError):  # a damaged sidecar: the shard has the rows too
                        known = section.values(name)
                elif shard.foreign is not None and name not in (*shard.columns, CRC_COLUMN):
                    known = bytes(shard.stored * row)  # sizes of images, which are not known
                if rows is None:
                    read_chunk(self.files, store, number, shard, name, chunk, known)
                else:
                    stored = np.empty((shard.stored, row), np.uint8)
                    read_chunk(self.files, store, number, shard, name, stored.reshape(-1).data, known)
                    np.take(
                        stored, rows, axis=0, out=np.frombuffer(chunk, np.uint8).reshape(shard.count, row)
                    )
                at += shard.count * row
        except RemoteError:
            raise
        except DatasetError as error:
            raise DatasetError(f"{self.path}: {error}") from None
        out.setflags(write=False)
        return out

    @staticmethod
    def _has_column(shard: ShardEntry, name: str) -> bool:
        """True if a shard's file has a column."""
        return name not in shard.added and shard.foreign is None

    def shard_number(self, index: int) -> int:
        """The number of the shard that holds sample `index`. Raises IndexError."""
        if not 0 <= index < self.count:
            raise IndexError(f"index {index} is out of range for {self.count} samples")
        return bisect_right(self._firsts, index) - 1

    def is_foreign(self, index: int) -> bool:
        """True if the image of sample `index` lies in an object of a store, as somebody else wrote it. Raises
        IndexError."""
        return self.manifest.shards[self.shard_number(index)].foreign is not None

    def shard_of(self, index: int) -> str:
        """The name of the file or object that holds sample `index`, as ShardEntry.title. Raises
        IndexError."""
        number = self.shard_number(index)
        shard = self.manifest.shards[number]
        if shard.foreign is not None and shard.foreign.objects is not None:
            rows, at = self._rows[number], index - shard.first
            names = self.files.segment_file(shard.foreign.objects)
            with suppress(DatasetError, OSError):  # they may not be here yet
                row = at if rows is None else int(rows[at])
                return shard.title + object_at(names, shard.stored, row).name
        return shard.title

    def record(self, index: int) -> bytes:
        """The stored record of sample `index`, with its checksum verified. Raises as `record_fields` does."""
        return self._sample(index, self._record)

    def _record(self, index: int) -> bytes:
        elsewhere = self.files.record(index)
        if elsewhere is None:
            try:
                return self.store.get(index)
            except (SampleError, DatasetError):
                elsewhere = self.healed(index)
                if elsewhere is None:
                    raise
        return self.store.get(index, elsewhere) if self.is_foreign(index) else bytes(elsewhere)

    def healed(self, index: int) -> Buffer | None:
        """The bytes of a sample that lies in a cache, as its shard's file has them: what is there if it
        holds, else what its files have elsewhere.

        None: it lies in no cache, and there is no other. Raises RemoteError, SampleError with the reason
        alone.
        """
        if not self.files.remote:
            return self._walked_record(index)
        with suppress(SampleError, DatasetError):  # other bytes, or none: the file was cut
            if self.store.vouches(index):
                return self.store.stored(index)
        return self.files.heal(index)

    def _walked_record(self, index: int) -> bytes | None:
        """The record of a sample whose place cannot be read in its sidecar: its shard is walked. None:
        another fault, or no sidecar."""
        number = self.shard_number(index)
        section, shard, rows = self._sections[number], self.manifest.shards[number], self._rows[number]
        if section is None:
            return None
        row = index - shard.first if rows is None else int(rows[index - shard.first])
        try:
            section.table().read(row, 1)
        except DatasetError:
            with suppress(DatasetError, SampleError):
                store = walked(Path(self.path), shard)
                try:
                    record = store.get(row)
                    crcs = bytearray(4 * shard.stored)
                    store.column(0, CRC_COLUMN, crcs)
                    good = core.crc32c(crcs) == shard.columns[CRC_COLUMN]
                    return record if good and core.crc32c(record) == np.frombuffer(crcs, "<u4")[row] else None
                finally:
                    store.close()
        return None

    def record_fields(self, index: int) -> list[tuple[int, int, bytes]]:
        """The fields in sample index's record: (field number, kind as in `core.KIND_...`, bytes). The entropy
        index of an image, of kind `core.KIND_INDEX`, has the image's number plus `core.RECORD_INDEX`.

        Raises:
            IndexError: no such sample.
            SampleError: its bytes are not those that were packed, its lengths do not hold, or the file cannot
                be read.
        """
        return self._sample(index, lambda found: core.split_record(self._record(found)))

    def stored_fields(self, index: int) -> dict[int, tuple[int, bytes]]:
        """(kind, bytes) of every field of sample `index` that is no column, by the field's number in the
        schema: those of its record, as `record_fields` has them, and those that were added later. Raises as
        `record_fields` does."""
        return self._sample(index, self._stored_fields)

    def _stored_fields(self, index: int) -> dict[int, tuple[int, bytes]]:
        number = self.shard_number(index)
        shard = self.manifest.shards[number]
        fields = core.split_record(self._record(index))
        if shard.fields is None and not shard.added:
            return {number: (kind, data) for number, kind, data in fields}
        places, found = self._places(number), {}
        for at, kind, data in fields:
            place = places.get(at & ~core.RECORD_INDEX)
            if place is not None:
                found[place | at & core.RECORD_INDEX] = kind, data
        for name in shard.added:
            if name not in self.schema.columns:
                entry = self.schema[name].handler.entry
                found[self.schema.number(name)] = entry, self._added_bytes(index, name)
        return found

    def read_image(self, index: int, kind: int, data: bytes) -> tuple[int, bytes]:
        """(kind, bytes) of the image of sample `index` from those in its record: an attached one is read from
        its file.

        Raises:
            SampleError: the file is missing, cannot be read, or was changed since it was attached.
        """
        codec = BY_ENTRY.get(kind)
        if codec is None:
            return kind, data
        return codec.opened(
            data,
            lambda place: self._sample(
                index, lambda found: core.read_attached(place, self.store.base(found))
            ),
        )

    def _places(self, number: int) -> dict[int, int]:
        """The schema's number of each field in the records of a shard that counts there, by its number in
        the records."""
        if number not in self._numbers:
            shard = self.manifest.shards[number]
            packed = {
                name: place
                for place, name in enumerate(shard.packed_fields(self.schema))
                if name not in shard.added
            }
            self._numbers[number] = {
                packed[field.name]: place for place, field in enumerate(self.schema) if field.name in packed
            }
        return self._numbers[number]

    def counting(self, number: int) -> npt.NDArray[np.uint32] | None:
        """Numbers in the file of the samples of shard `number` that count, ascending, read-only; None: all
        count."""
        return self._rows[number]

    def is_added(self, index: int, name: str) -> bool:
        """Returns True if the field's value of sample `index` was added later, so that its record need not
        be read for it."""
        return name in self.manifest.shards[self.shard_number(index)].added

    def added_bytes(self, index: int, name: str) -> bytes:
        """The bytes of a text, JSON or bytes field of sample `index` that was added later.

        Raises:
            SampleError: its file is damaged or cannot be read.
        """
        return self._sample(index, lambda found: self._added_bytes(found, name))

    def _added_bytes(self, index: int, name: str) -> bytes:
        number = self.shard_number(index)
        shard, rows = self.manifest.shards[number], self._rows[number]
        row = index - shard.first
        return self._added.values(shard.added[name], shard.stored)[row if rows is None else int(rows[row])]

    def stored_values(self, index: int, names: Sequence[str]) -> dict[str, Any]:
        """The values of fields stored in the record of sample `index`, or added later;
        `fastload.store.reader` has their types. The record is read only if one of them lies there.

        Raises:
            SampleError: as `record_fields`; or a field is missing, not UTF-8 text, or not JSON.
        """
        return self._sample(index, lambda found: self._stored_values(found, names))

    def _stored_values(self, index: int, names: Sequence[str]) -> dict[str, Any]:
        schema, added = self.schema, self.manifest.shards[self.shard_number(index)].added
        if added and all(name in added for name in names):
            entries = {name: (schema[name].handler.entry, self._added_bytes(index, name)) for name in names}
        else:
            found = self._stored_fields(index)
            entries = {name: found[schema.number(name)] for name in names if schema.number(name) in found}
        return {name: parse_value(self, index, schema[name], *entries.get(name, (0, None))) for name in names}

    def sample_error(self, index: int, reason: str) -> SampleError:
        """The exception that names sample `index`, its file and the reason."""
        file = self.shard_of(index)
        return SampleError(
            f"sample {index} of {self.path} ({file}): {reason}. `fastload verify {self.path}` lists "
            "every bad one",
            index=index,
            shard=file,
            reason=reason,
        )

    def _sample(self, index: int, read: Callable[[int], T]) -> T:
        # Raise IndexError; DatasetError where reopening in a forked child fails.
        (
            self.shard_number(index),
            self.store,
        )
        try:
            return read(index)
        except RemoteError:  # says nothing of the sample: a bucket that is out of reach is no bad sample
            raise
        except (SampleError, DatasetError) as error:
            raise self.sample_error(index, getattr(error, "reason", None) or str(error)) from None
