"""DatasetCache: the local cache of one dataset in a bucket: its shards as sparse files, and which units of
them are there.

NOTE [ cache: when a part is there ]
A unit is a group of a shard's records (`Groups`), or one of the shard's columns. A unit's byte in the state
file becomes 1 after the unit's bytes were fetched, compared with the checksums of the dataset, and written;
nothing else writes where its bytes lie. A process that is killed before that leaves 0 there, and its lock on
the unit ends with it. After a power failure the disk may have a state without its bytes: so every read
compares a record with its checksum, as on any disk, and a record that differs is fetched again (`forget`). A
process reads the state file where its own copy says 0: others set units at any time. Only `forget` turns 1
into 0. A process writes only to the files that it found or made when it opened the dataset. If somebody
removes the cache and other files take their place, it writes nothing more.

NOTE [ cache: places once a host ]
The tables of a sidecar are units of a sparse file as well (`CachedSidecar`): fetched when the first process
of the host needs one, claimed by it, and read in place by all. So a process holds no place of a sample. Room
for a whole sidecar is taken on the disk when its file is made, before any record's: where a table found no
room later, each process would hold its own copy. Where there is no room even so, or no folder that can be
written, the tables are kept in memory that this process alone has.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from fastload._native import core
from fastload.common.files import check_entry, open_entry
from fastload.common.urls import shown
from fastload.errors import DatasetError
from fastload.remote.cache_folder import (
    FORMAT,
    PAGE,
    CacheFolder,
    LockFile,
    OpenFiles,
    count_anew,
    identity_of,
    remove_files,
)
from fastload.remote.shared_files import dataset_folder, open_in_dataset, remove_in_dataset, replace_file
from fastload.store.checked import Bad
from fastload.store.entries import Segment, ShardEntry
from fastload.store.groups import GROUP_BYTES, Groups, SingleGroups
from fastload.store.pages import POINTER_BYTES, pointed_in
from fastload.store.segment_file import SegmentFile
from fastload.store.sidecar import Section, TablePart

SLAB = 8 << 20
"""Bytes of one grant: a grant takes a lock that all processes of the host share."""
THERE = b"\1"
"""State of a unit that is in the cache."""
LOOK_S = 0.05
"""Seconds for which the state of a whole shard counts as fresh; then it is read again, so that units of
others are not fetched twice."""
_SLABS_LEAST = 64
_UNITS_MOST = 1 << 30
_numbers = itertools.count()


GROUPS_BYTES = 32 << 20
"""Most bytes of groups of small records that a process keeps in memory, of the shards used last."""


class GroupStore:
    """The groups of the shards used last, of one process. Any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By path: a shard refers to its store, and is not to be held by it.
        self._found: OrderedDict[Path, Groups] = OrderedDict()
        self._bytes = 0

    def of(self, shard: CachedShard, make: Callable[[], Groups]) -> Groups:
        """The groups of a shard, made where they are not kept. Raises as `make` does."""
        with self._lock:
            if (found := self._found.get(shard.path)) is not None:
                self._found.move_to_end(shard.path)
                return found
        found = make()
        with self._lock:
            if shard.path not in self._found:
                self._found[shard.path] = found
                self._bytes += found.nbytes
            while self._bytes > GROUPS_BYTES and len(self._found) > 1:
                self._bytes -= self._found.popitem(last=False)[1].nbytes
        return found


class CachedFile:
    """One file of a dataset as a sparse file, and the state of its units.

    Attributes:
        entry: the file's entry in the manifest.
        path: the sparse file.
        state: one byte for each unit: 1 if the unit is known to be there.
        read_at: time at which all of the state was last read.
        identity, state_identity: (device, inode) of the two files, as they were found or made.
        absent: True if the folder has neither, for lack of room or permission: what is fetched is used from
            memory.
        reserved: True if the disk has the room for all of it.
    """

    reserved = False

    def __init__(self, folder: Path, entry: ShardEntry | Segment, units: int, suffix: str) -> None:
        self.entry = entry
        stem = f"{entry.crc32c:08x}-{entry.bytes}-{Path(entry.file).stem}"
        self.path = folder / f"{stem}{suffix}"
        self.state_path = folder / f"{stem}.{GROUP_BYTES}.state"
        self._raw = bytearray(units)
        self.state = np.frombuffer(self._raw, np.uint8)
        self.read_at = 0.0
        self.identity = self.state_identity = (0, 0)
        self.absent = False

    @property
    def grouped(self) -> int:
        """Number of the units that are groups of records; those after them lie by themselves."""
        return 0

    def range_of(self, unit: int) -> tuple[int, int]:
        """(start, stop) of a unit in the file."""
        raise NotImplementedError

    def damaged(self, first: int, last: int, data: memoryview) -> set[int]:
        """The units in first .. last whose bytes differ from the dataset's checksums. `data` begins with
        the first unit's bytes."""
        raise NotImplementedError

    @property
    def state_bytes(self) -> int:
        """Bytes of the state file, which begins with the states."""
        return len(self.state)

    def size_of(self, unit: int) -> int:
        """Bytes of a unit, about."""
        start, stop = self.range_of(unit)
        return stop - start

    def exists(self, folder: int) -> bool:
        """Returns True if both files exist with their sizes; notes their identities. `folder`: the open
        folder."""
        try:
            within = os.fstat(folder)
            data, state = (os.lstat(path.name, dir_fd=folder) for path in (self.path, self.state_path))
            for status, path in ((data, self.path), (state, self.state_path)):
                check_entry(status, within, path)
        except OSError:
            return False
        self.identity, self.state_identity = identity_of(data), identity_of(state)
        return all(S_ISREG(file.st_mode) for file in (data, state)) and (data.st_size, state.st_size) == (
            self.entry.bytes,
            self.state_bytes,
        )

    def create(self, folder: int) -> None:
        """Makes both files, of which one is missing or of another size. Call it under the folder's lock.
        Raises OSError."""
        for path in (self.state_path, self.path):  # the state first: no unit may be marked without its file
            with suppress(FileNotFoundError):
                os.unlink(path.name, dir_fd=folder)
        for path, size in ((self.path, self.entry.bytes), (self.state_path, self.state_bytes)):
            file = open_entry(folder, path.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            try:
                os.ftruncate(file, size)
                if self.reserved and path == self.path:
                    os.posix_fallocate(file, 0, size)
            finally:
                os.close(file)

    def drop(self, folder: int) -> int:
        """Removes both files, and returns the bytes of the disk that are free by then, but for those of an
        empty shard. Raises OSError."""
        freed = -(_pages(0, self.state_bytes) + PAGE)
        for path in (self.state_path, self.path):  # the state first: no unit may be marked without its file
            with suppress(FileNotFoundError):
                freed += os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_blocks * 512
                os.unlink(path.name, dir_fd=folder)
        return max(freed, 0)

    def give_up(self) -> None:
        """Notes that there is no file in the folder: what is fetched is used from memory."""
        self.absent = True
        self.state[:] = 0
        self.identity = self.state_identity = (0, 0)

    def is_readable(self, folder: int) -> bool:
        """Returns True if both files exist and may be read; reads the state."""
        try:
            if not self.exists(folder) or not os.access(self.path.name, os.R_OK, dir_fd=folder):
                return False
            with open(open_entry(folder, self.state_path.name, os.O_RDONLY), "rb", buffering=0) as file:
                self.take_state(0, file.read(len(self._raw)))
        except OSError:
            return False
        return True

    def take_state(self, first: int, found: bytes) -> None:
        """Copies the state of units from `first` on, as the file has it."""
        if first + len(found) <= len(self._raw):
            self._raw[first : first + len(found)] = found

    def has(self, first: int, last: int) -> bool:
        """Returns True if units first .. last are known to be there."""
        return self._raw.count(THERE, first, last + 1) == last + 1 - first


class CachedShard(CachedFile):
    """A shard in the cache; its units are first the groups of its records, then its columns.

    Attributes:
        columns: (unit, offset, size) of each column, by name.
        single: True if each group is one record, and group i is row i.
        beside: names of its loose objects, or its table of pages; None: it has neither.
        pointed: places are those of pointers in pages.
        is_plain: and no page is compressed.
    """

    entry: ShardEntry
    beside: SegmentFile | None = None

    def __init__(self, folder: Path, entry: ShardEntry, section: Section, kept: GroupStore) -> None:
        """Takes a shard's entry in the manifest and its section of the sidecar. Raises Bad if the two
        contradict each other."""
        if any(offset + size > entry.bytes for _, offset, size in section.columns):
            raise Bad(f"what its sidecar says of {entry.file} does not hold")
        foreign = entry.foreign
        self.pointed = foreign is not None and foreign.pages is not None and foreign.pointed
        self.is_plain = self.pointed and foreign is not None and not foreign.compressed
        super().__init__(folder, entry, section.units + len(section.columns), ".lmdb")
        self._section, self._kept, self.single = section, kept, section.single
        self._pointers: npt.NDArray[np.uint64] | None = None
        names = [name.decode("utf-8", "replace") for name, _, _ in section.columns]
        self._apart = [
            (name, offset, offset + size)
            for name, (_, offset, size) in zip(names, section.columns, strict=True)
        ]
        self.columns = {
            name: (section.units + i, start, stop - start)
            for i, (name, start, stop) in enumerate(self._apart)
        }

    @property
    def grouped(self) -> int:
        """Number of the units that are groups of records."""
        units: int = self._section.units
        return units

    @property
    def groups(self) -> Groups | SingleGroups:
        """The groups of its records, once the table of their places is there. Raises DatasetError: it is
        damaged."""
        if self.single:
            return SingleGroups(self._section.table(), self.entry.bytes)
        return self._kept.of(self, self._make_groups)

    def _make_groups(self) -> Groups:
        try:
            groups = Groups(self._section.rows(), self.entry.bytes)
            if len(groups) != self._section.units:
                raise Bad(
                    f"its sidecar says {self._section.units} groups, and its places are in {len(groups)}"
                )
        except Bad as error:
            raise DatasetError(f"what the sidecar says of {self.entry.file} does not hold: {error}") from None
        return groups

    @property
    def in_pages(self) -> bool:
        """True if its units come by pages."""
        return self.entry.foreign is not None and self.entry.foreign.pages is not None

    @property
    def state_bytes(self) -> int:
        """Bytes of the state file, which has a pointer for each stored sample behind the states where places
        are those of pointers, and images can be read by themselves."""
        return len(self.state) + self.is_plain * POINTER_BYTES * self.entry.stored

    @property
    def pointers(self) -> npt.NDArray[np.uint64]:
        """The pointers of stored samples that no file keeps, in memory; 0: not known."""
        if self._pointers is None:
            self._pointers = np.zeros(self.entry.stored, np.uint64)
        return self._pointers

    def size_of(self, unit: int) -> int:
        """Bytes of a unit, about."""
        foreign = self.entry.foreign
        if self.pointed and foreign is not None and foreign.size is not None and unit < self.grouped:
            return foreign.size // self.entry.stored
        return super().size_of(unit)

    def record_in(self, row: int, start: int, data: Buffer) -> memoryview:
        """The bytes of a stored row's record, or of its image, in bytes from `start` of the file on."""
        at, size = self.groups.place(row)
        place = memoryview(data)[at - start : at - start + size]
        return pointed_in(place) if self.pointed else place

    def range_of(self, unit: int) -> tuple[int, int]:
        """(start, stop) of a unit in the file."""
        if unit >= self.grouped:
            _, start, stop = self._apart[unit - self.grouped]
            return start, stop
        groups = self.groups
        return int(groups.starts[unit]), int(groups.stops[unit])

    def damaged(self, first: int, last: int, data: memoryview) -> set[int]:
        """The units in first .. last whose bytes differ from the dataset's checksums. `data` begins with
        the first unit's bytes."""
        if first >= self.grouped:
            return (
                set()
                if core.crc32c(data) == self.entry.columns.get(self._apart[first - self.grouped][0], -1)
                else {first}
            )
        groups = self.groups
        if first == last and groups.single:  # ten times faster than with arrays
            return set() if self.is_record(first, data) else {first}
        starts, sizes, rows = groups.records(first, last)
        expected = groups.checksums(rows)
        if self.entry.foreign is not None:
            known = np.flatnonzero(expected)
            starts, sizes, rows, expected = starts[known], sizes[known], rows[known], expected[known]
        bad = core.crc32c_differ(data, starts - groups.starts[first], sizes, expected)
        return {int(groups.of(rows[each : each + 1])[0]) for each in bad}

    def is_record(self, row: int, data: Buffer) -> bool:
        """Returns True if bytes are the record of a stored row, by its checksum; of a foreign one without,
        if nothing says that they are not."""
        expected = int(self.groups.checksums(np.array([row], np.int64))[0])
        return (self.entry.foreign is not None and not expected) or core.crc32c(memoryview(data)) == expected


class CachedSidecar(CachedFile):
    """A sidecar in the cache; its units are tables. See NOTE [ cache: places once a host ].

    Attributes:
        file: the open file with the tables, in the cache or in memory.
    """

    entry: Segment
    reserved = True

    def __init__(self, folder: Path, entry: Segment, sections: Iterable[Section]) -> None:
        self._tables: list[tuple[int, TablePart, int]] = []  # offset in the file, the table, its bytes
        self._units: dict[tuple[int, str], int] = {}
        for section in sections:
            for name in section.widths:
                part = section.part(name)
                self._units[section.at, name] = len(self._tables)
                self._tables.append((section.at + part.start, part, section.stored * part.width))
        super().__init__(folder, entry, len(self._tables), ".tables")
        self._memory = -1

    def unit_of(self, section: Section, name: str) -> int | None:
        """The unit of a section's table; None: it has none of this name."""
        return self._units.get((section.at, name))

    def range_of(self, unit: int) -> tuple[int, int]:
        """(start, stop) of a table in the file."""
        start, _, size = self._tables[unit]
        return start, start + size

    @property
    def ranges(self) -> tuple[list[int], list[int]]:
        """Starts and stops of all tables in the file."""
        starts = [start for start, _, _ in self._tables]
        return starts, [start + size for start, _, size in self._tables]

    def damaged(self, first: int, last: int, data: memoryview) -> set[int]:
        """The tables in first .. last of which a block differs from its checksum. `data` begins with the
        first."""
        begin, found = self._tables[first][0], set[int]()
        for unit in range(first, last + 1):
            start, part, size = self._tables[unit]
            rows = data[start - begin : start - begin + size]
            block = core.TABLE_BLOCK // part.width * part.width
            starts = np.arange(0, size, block, dtype=np.uint64)
            sizes = np.minimum(np.uint64(block), np.uint64(size) - starts).astype(np.uint32)
            if len(rows) != size or len(core.crc32c_differ(rows, starts, sizes, part.crcs)):
                found.add(unit)
        return found

    def open(self, writable: bool) -> core.TableFile:
        """Opens the file of its tables: that in the cache, or one in memory, where it lacks some and is
        not `writable`. Raises OSError."""
        if not self.absent and (writable or self.has(0, len(self.state) - 1)):
            with suppress(OSError):
                descriptor = open_in_dataset(self.path, os.O_RDONLY)
                if identity_of(os.fstat(descriptor)) == self.identity:
                    return core.TableFile(descriptor, self.path)
                os.close(descriptor)
        self.give_up()
        descriptor = os.memfd_create("fastload-tables", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, self.entry.bytes)
        self._memory = os.dup(descriptor)
        return core.TableFile(descriptor, self.entry.file)

    def take(self, unit: int, data: Buffer) -> None:
        """Puts a fetched table that was not kept where `open` opened the file. Raises OSError."""
        descriptor = self._memory if self._memory >= 0 else open_in_dataset(self.path, os.O_RDWR)
        try:
            if self._memory < 0 and identity_of(os.fstat(descriptor)) != self.identity:
                raise OSError(errno.ESTALE, "it was replaced")
            view, at = memoryview(data).cast("B"), 0
            while at < len(view):
                at += os.pwrite(descriptor, view[at:], self.range_of(unit)[0] + at)
        finally:
            if descriptor != self._memory:
                os.close(descriptor)
        self.state[unit] = 1

    def __del__(
        self, close: Callable[[int], None] = os.close
    ) -> None:  # a default, since at the program's end `os` may be gone
        if self._memory >= 0:
            close(self._memory)


class DatasetCache:
    """The cache of one dataset, for one process.

    1. Methods that write (`keep`, `forget`, `claim`) are for one thread at a time; any may read a shard's
       `state` and `path`.
    2. Where the folder cannot be written, cached units are read, and none is added.

    Args:
        folder: the folder of all caches.
        url, place: the dataset's URL and the place of its store, as `CacheFolder.folder_of` takes them.
    """

    def __init__(self, folder: CacheFolder, url: str, place: str) -> None:
        self.root = folder
        self.path = folder.folder_of(url, place)
        self._full = False
        self._users = LockFile(self.path / "users", open_in_dataset)
        self._claims = LockFile(self.path / "claims", open_in_dataset)
        self._files = OpenFiles()
        self._groups = GroupStore()
        self._grant = LockFile(self.path / f"grant-{os.getpid()}-{next(_numbers)}", open_in_dataset)
        self._granted = 0  # bytes granted, neither written nor reserved
        self._reserved = 0  # bytes reserved for ranges on their way
        self._asked = False  # True once the grant's file was made
        self._lock = threading.Lock()  # guards the two numbers
        if folder.writable:
            try:
                with folder.lock.held():
                    folder.admit(self.path, json.dumps({"format": FORMAT, "url": shown(url)}).encode())
                    self._users.shared()
            except OSError as error:
                folder.give_up(error)

    @property
    def full(self) -> bool:
        """True if this process writes nothing more to the cache."""
        return self._full or not self.root.writable

    def shards(
        self,
        found: Iterable[tuple[ShardEntry, Section]],
        sidecars: Sequence[CachedSidecar],
        segments: Iterable[Segment],
    ) -> list[CachedShard]:
        """The shards of a manifest, ready to be opened, and the sidecars as well. Where there is no room for
        a file, it is absent.

        Cached files of earlier versions, which belong to neither of them nor to the segments, are removed if
        nobody else uses them.
        """
        out = [CachedShard(self.path, *each, self._groups) for each in found]
        files: list[CachedFile] = [*sidecars, *out]
        above = 0
        try:
            if self.root.writable:
                with self.root.lock.held(), dataset_folder(self.path) as folder:
                    self._keep_only({self.segment_path(segment).name for segment in segments}, files)
                    above = self._drop_above(folder, files)
                    # In this order: see NOTE [ cache: places once a host ].
                    parts: tuple[Sequence[CachedFile], ...] = (
                        sidecars,
                        out,
                    )
                    for part in parts:
                        missing = [file for file in part if not file.exists(folder)]
                        room = sum(_pages(0, file.state_bytes) + PAGE for file in missing)
                        room += sum(_room(0, file.entry.bytes) for file in missing if file.reserved)
                        if missing and self.root.grant(self.path, room, room):
                            for file in missing:
                                file.create(folder)
        except OSError as error:
            self.root.give_up(error)
        self.root.warn()
        if above:
            self.root.warn_above(above)
        lost = self._unreadable(files)
        self._full = self._full or any(isinstance(file, CachedShard) for file in lost)
        for file in lost:
            file.give_up()
        return out

    def _unreadable(self, shards: Sequence[CachedFile]) -> Sequence[CachedFile]:
        """The files that are not in the folder, or cannot be read; reads the states of the others."""
        try:
            with dataset_folder(self.path) as folder:
                return [shard for shard in shards if not shard.is_readable(folder)]
        except OSError:
            return shards

    def _keep_only(self, segments: set[str], shards: Iterable[CachedFile]) -> None:
        """Removes files of earlier versions of the dataset, unless another process uses it. Call it under
        the lock. Raises OSError."""
        known = (
            segments
            | {path.name for shard in shards for path in (shard.path, shard.state_path)}
            | {"users", "claims"}
        )
        if self._users.exclusive():
            remove_files(self.path, lambda name: name not in known)
            count_anew(self.path)
        self._users.shared()

    def _drop_above(self, folder: int, files: Sequence[CachedFile]) -> int:
        """Removes files, the last ones first, until the caches are within the size, unless another process
        uses the dataset.

        Call it under the lock.

        Returns the bytes that are still above it. Raises OSError.
        """
        above = self.root.above(self.path)
        if above and self._users.exclusive():
            for file in reversed(files):
                if above > 0:
                    above -= file.drop(folder)
            count_anew(self.path)
        self._users.shared()
        return max(above, 0)

    # ---- segments

    def segment_path(self, segment: Segment) -> Path:
        """Path of a segment in the cache, whether it is there or not."""
        return self.path / f"{segment.crc32c:08x}-{segment.bytes}-{segment.file}"

    def keep_segment(self, segment: Segment, data: Buffer) -> None:
        """Writes a checked segment to the cache, if there is room."""
        path, size = self.segment_path(segment), _pages(0, segment.bytes) + PAGE
        try:
            if not self.full:
                with self.root.lock.held():  # all processes write a segment under the same temporary name
                    # It was damaged; or, seldom, another process was a moment ahead.
                    if remove_in_dataset(path):
                        count_anew(self.path)
                    if self.root.grant(self.path, size, size):
                        with dataset_folder(self.path) as opened:
                            replace_file(opened, path.name, bytes(data))
        except OSError:
            self._full = True

    # ---- units

    def claim(self, shard: CachedFile, first: int, last: int) -> bool:
        """Claims units first .. last for this process to fetch; False: another process has claimed some of
        them."""
        try:
            return self._claims.claim(_lock_start(shard, first), last - first + 1)
        except OSError:  # no locks here: each process fetches for itself
            self._full = True
            return True

    def disclaim(self, shard: CachedFile, first: int, last: int) -> None:
        """Gives a claim up."""
        with suppress(OSError):  # closed: no claim is held
            self._claims.disclaim(_lock_start(shard, first), last - first + 1)

    def grant(self, file: CachedFile, start: int, stop: int, smaller: bool = False) -> bool:
        """Reserves room for bytes start .. stop-1 of a file. False: there is none. The cache is then full,
        unless `smaller`."""
        if file.reserved:
            return not file.absent
        if self.full:
            return False
        need = _room(start, stop)
        with self._lock:
            if self._granted < need:
                assert self.root.size is not None
                lacking = need - self._granted
                self._ask(max(lacking, min(SLAB, self.root.size // _SLABS_LEAST)), lacking)
            if self._granted < need:
                self._full = self._full or not smaller
                return False
            self._granted -= need
            self._reserved += need
        return True

    def _ask(self, wanted: int, least: int) -> None:
        """Asks the folder for more bytes, and notes the sum in the grant's file. Call it under _lock."""
        with suppress(OSError), self.root.lock.held():
            self._asked = True
            if self._grant.exclusive():
                granted = self.root.grant(self.path, wanted, least)
                self._grant.resize(max(0, self._reserved + self._granted + granted))
                self._granted += granted

    def give_back(self, file: CachedFile, start: int, stop: int, used: int = 0) -> None:
        """Gives back the room reserved for bytes start .. stop-1 of a file, but for `used` bytes."""
        if file.reserved:
            return
        reserved = _room(start, stop)
        with self._lock:
            self._reserved -= reserved
            self._granted += reserved - used

    def refresh(self, shard: CachedFile, first: int, last: int) -> bool:
        """Reads the state of units first .. last, which other processes may have set. Returns True if all
        of them are there."""
        if not shard.has(first, last):
            try:
                state = self._files.of(shard.state_path, shard.state_identity)
                shard.take_state(first, os.pread(state, last - first + 1, first))
            except OSError:
                return False
        return shard.has(first, last)

    def look(self, shard: CachedFile) -> None:
        """Reads a shard's state, which other processes may have changed, unless it was read less than
        LOOK_S ago."""
        now = time.monotonic()
        if now - shard.read_at > LOOK_S:
            shard.read_at = now
            self.refresh(shard, 0, len(shard.state) - 1)

    def keep(self, shard: CachedFile, start: int, data: Buffer, units: Iterable[tuple[int, int]]) -> bool:
        """Writes bytes at `start` of a shard, for which room is reserved, and marks the units in runs of
        (first, last).

        Returns False if the disk does not take them. Reserved room that the disk did not need is given back.
        """
        view = memoryview(data).cast("B")
        used = _room(start, start + len(view))
        try:
            file, at = self._files.of(shard.path, shard.identity), 0
            before = os.fstat(file).st_blocks
            while at < len(view):
                at += os.pwrite(file, view[at:], start + at)
            # other processes may have written to the file in between: that counts too much, never too little
            used = (os.fstat(file).st_blocks - before) * 512
            state = self._files.of(shard.state_path, shard.state_identity)
            for first, last in units:
                os.pwrite(state, THERE * (last - first + 1), first)
                shard.take_state(first, THERE * (last - first + 1))
        except OSError as error:  # full, broken, read-only, or gone: the fetched bytes are used from memory
            self._full = True
            self.root.note(error)
            return False
        finally:
            self.give_back(shard, start, start + len(view), used)
        return True

    def forget(self, shard: CachedFile, unit: int) -> None:
        """Marks a unit as missing, since its bytes are not those of the dataset."""
        shard.state[unit] = 0
        if self.root.writable:
            with suppress(OSError):  # then other processes find out by themselves
                os.pwrite(self._files.of(shard.state_path, shard.state_identity), b"\0", unit)

    # ---- pointers

    def pointers(self, shard: CachedShard, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        """The pointers of stored samples that lie near each other; 0: not known. See NOTE [ pages: images
        without room ]."""
        first, stop = int(rows.min()), int(rows.max()) + 1
        try:
            file = self._files.of(shard.state_path, shard.state_identity)
            data = os.pread(file, (stop - first) * POINTER_BYTES, len(shard.state) + first * POINTER_BYTES)
            if len(data) == (stop - first) * POINTER_BYTES:
                return np.frombuffer(data, "<u8")[rows - first]
        except OSError:
            pass
        return shard.pointers[rows]

    def keep_pointers(
        self, shard: CachedShard, rows: npt.NDArray[np.int64], pointers: npt.NDArray[np.uint64]
    ) -> None:
        """Notes the pointers of stored samples: in the state file, which has the room, or in memory."""
        order = np.argsort(rows, kind="stable")
        rows, pointers = rows[order], np.ascontiguousarray(pointers[order], "<u8")
        cuts = np.flatnonzero(np.diff(rows) != 1) + 1
        try:
            file = self._files.of(shard.state_path, shard.state_identity)
            for run, values in zip(np.split(rows, cuts), np.split(pointers, cuts), strict=True):
                os.pwrite(file, values.tobytes(), len(shard.state) + int(run[0]) * POINTER_BYTES)
        except OSError:
            shard.pointers[rows] = pointers

    def close(self) -> None:
        """Ends the use of the folder; idempotent."""
        self._full = True
        if self._asked:
            self._asked = False
            with suppress(OSError), self.root.lock.held():
                remove_in_dataset(self._grant.path)
                count_anew(self.path)
        for each in (self._files, self._grant, self._claims, self._users):
            each.close()


def _lock_start(shard: CachedFile, unit: int) -> int:
    """Offset of a unit in the file of claims. Two shards with one checksum share offsets; then their
    fetches wait for each other."""
    return shard.entry.crc32c * _UNITS_MOST + unit % _UNITS_MOST


def _room(start: int, stop: int) -> int:
    """Most bytes that writing a range takes on the disk: its pages, and one page of the file's block map."""
    return _pages(start, stop) + PAGE


def _pages(start: int, stop: int) -> int:
    """Bytes of the pages that a range touches."""
    return (stop + PAGE - 1) // PAGE * PAGE - start // PAGE * PAGE
