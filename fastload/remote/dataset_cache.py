"""DatasetCache: the local cache of one dataset in a bucket: its shards as sparse files, and which units of them are there.

NOTE [ cache: when a part is there ]
A unit is a group of a shard's records (`Groups`), or one of the shard's columns. A unit's byte in the state file becomes 1 after the unit's
bytes were fetched, compared with the checksums of the dataset, and written; nothing else writes where its bytes lie. A process that is
killed before that leaves 0 there, and its lock on the unit ends with it. After a power failure the disk may have a state without its bytes:
so every read compares a record with its checksum, as on any disk, and a record that differs is fetched again (`forget`).
A process reads the state file where its own copy says 0: others set units at any time. Only `forget` turns 1 into 0.
A process writes only to the files that it found or made when it opened the dataset. If somebody removes the cache and other files take
their place, it writes nothing more.

Records of one group are fetched, checked and marked together. A record of GROUP_BYTES or more is a group of its own, so that no other bytes
are fetched with it. Smaller records go with their neighbours: a request for each would cost more than the bytes beside it, and records that
share a page of the disk cannot be counted one by one.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from fastload._native import core
from fastload.common.files import check_entry, open_entry
from fastload.common.urls import shown
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
from fastload.store.schema import CRC_COLUMN
from fastload.store.sidecar import Section

GROUP_BYTES = 32 << 10
"""Bytes of small records after which the next group begins; part of the names of state files, whose bytes stand for groups."""
_WINDOW = 8 * GROUP_BYTES
"""Bytes of the file within which all records of a group begin, even if they are few and far apart."""


class Groups:
    """The groups of one shard, numbered in the order of the file.

    Attributes:
        starts, stops: the range of each group in the file, in bytes.
    """

    def __init__(self, places: npt.NDArray[np.uint32], file_bytes: int) -> None:
        """Takes the places of a shard's stored samples (three numbers each, as `core.Store.places` returns them), and the file's size.

        Raises:
            Bad: there are no places, or one lies outside the file.
        """
        low, high, lengths = places.reshape(-1, 3).T
        starts = low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)
        sizes = lengths.astype(np.uint64)
        if not len(starts) or np.any(starts > np.uint64(file_bytes)) or np.any(sizes > np.uint64(file_bytes) - starts):
            raise Bad("its sidecar names places outside of its shards")
        self._group: npt.NDArray[np.uint32] | None = None  # group of each row; None: row i is group i
        self._order: npt.NDArray[np.uint32] | None = None  # rows in the order of their places
        self._firsts: npt.NDArray[np.uint32] | None = None  # index into _order of each group's first row, and the end
        ends = starts + sizes
        self._starts, self._sizes = starts, sizes.astype(np.uint32)  # one entry for each row
        if sizes.min() >= GROUP_BYTES and np.all(starts[1:] >= ends[:-1]):
            self.starts, self.stops = starts, ends
            return
        order = np.argsort(starts, kind="stable")
        begins, finishes = starts[order], ends[order]
        sorted_sizes = sizes[order]
        before = np.cumsum(sorted_sizes) - sorted_sizes
        new = np.ones(len(order), bool)
        # a gap is no part of a group: places are hostile, and two records may be said to lie a terabyte apart
        new[1:] = (before[1:] // GROUP_BYTES != before[:-1] // GROUP_BYTES) | (begins[1:] > finishes[:-1] + np.uint64(GROUP_BYTES))
        new[1:] |= begins[1:] // np.uint64(_WINDOW) != begins[:-1] // np.uint64(_WINDOW)
        firsts = np.flatnonzero(new)
        self.starts = begins[firsts]
        self.stops = np.maximum.reduceat(finishes, firsts)
        self._order = order.astype(np.uint32)
        self._firsts = np.append(firsts, len(order)).astype(np.uint32)
        self._group = np.empty(len(order), np.uint32)
        self._group[order] = np.cumsum(new, dtype=np.uint32) - np.uint32(1)

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def single(self) -> bool:
        """True if each group is exactly one record, and group i is row i."""
        return self._order is None

    def of(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The groups that hold stored rows."""
        return rows if self._group is None else self._group[rows].astype(np.int64)

    def place(self, row: int) -> tuple[int, int]:
        """(start, size) of a stored row's record in the file."""
        return int(self._starts[row]), int(self._sizes[row])

    def records(self, first: int, last: int) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        """(starts in the file, sizes, stored rows) of the records in groups first .. last."""
        if self._order is None or self._firsts is None:
            return self._starts[first : last + 1], self._sizes[first : last + 1], np.arange(first, last + 1)
        rows = self._order[self._firsts[first] : self._firsts[last + 1]].astype(np.int64)
        return self._starts[rows], self._sizes[rows], rows


SLAB = 8 << 20
"""Bytes of one grant: a grant takes a lock that all processes of the host share."""
THERE = b"\1"
"""State of a unit that is in the cache."""
LOOK_S = 0.05
"""Seconds for which the state of a whole shard counts as fresh; then it is read again, so that units of others are not fetched twice."""
_SLABS_LEAST = 64
_UNITS_MOST = 1 << 30
_numbers = itertools.count()


class CachedShard:
    """One shard's sparse file and the state of its units: first the groups of its records, then its columns.

    Attributes:
        entry: the shard's entry in the manifest.
        groups: the groups of its records.
        columns: (unit, offset, size) of each column, by name.
        path: the sparse file.
        state: one byte for each unit: 1 if the unit is known to be there.
        read_at: time at which all of the state was last read.
        identity, state_identity: (device, inode) of the two files, as they were found or made.
        absent: True if the folder has neither, for lack of room or permission: what is fetched is used from memory.
    """

    def __init__(self, folder: Path, entry: ShardEntry, section: Section) -> None:
        """Takes a shard's entry in the manifest and its section of the sidecar. Raises Bad if the two contradict each other."""
        self.entry = entry
        checksums, columns = section.chunks.get(CRC_COLUMN, memoryview(b"")), section.columns
        if len(checksums) != 4 * entry.stored or any(offset + size > entry.bytes for _, offset, size in columns):
            raise Bad(f"what its sidecar says of {entry.file} does not hold")
        self.groups = Groups(section.places, entry.bytes)
        self._checksums = np.frombuffer(checksums, "<u4").copy()  # one for each stored record
        units = len(self.groups)
        self.columns = {name.decode("utf-8", "replace"): (units + i, offset, size) for i, (name, offset, size) in enumerate(columns)}
        stem = f"{entry.crc32c:08x}-{entry.bytes}-{Path(entry.file).stem}"
        self.path = folder / f"{stem}.lmdb"
        self.state_path = folder / f"{stem}.{GROUP_BYTES}.state"
        self._raw = bytearray(units + len(self.columns))
        self.state = np.frombuffer(self._raw, np.uint8)
        self.read_at = 0.0
        self.identity = self.state_identity = (0, 0)
        self.absent = False

    def range_of(self, unit: int) -> tuple[int, int]:
        """(start, stop) of a unit in the file."""
        if unit < len(self.groups):
            return int(self.groups.starts[unit]), int(self.groups.stops[unit])
        return next((offset, offset + size) for at, offset, size in self.columns.values() if at == unit)

    def exists(self, folder: int) -> bool:
        """Returns True if both files exist with their sizes; notes their identities. `folder`: the open folder."""
        try:
            within = os.fstat(folder)
            data, state = (os.lstat(path.name, dir_fd=folder) for path in (self.path, self.state_path))
            for status, path in ((data, self.path), (state, self.state_path)):
                check_entry(status, within, path)
        except OSError:
            return False
        self.identity, self.state_identity = identity_of(data), identity_of(state)
        return all(S_ISREG(file.st_mode) for file in (data, state)) and (data.st_size, state.st_size) == (self.entry.bytes, len(self.state))

    def create(self, folder: int) -> None:
        """Makes both files, of which one is missing or of another size. Call it under the folder's lock. Raises OSError."""
        for path in (self.state_path, self.path):  # the state first: no unit may be marked without its file
            with suppress(FileNotFoundError):
                os.unlink(path.name, dir_fd=folder)
        for path, size in ((self.path, self.entry.bytes), (self.state_path, len(self.state))):
            file = open_entry(folder, path.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            try:
                os.ftruncate(file, size)
            finally:
                os.close(file)

    def drop(self, folder: int) -> int:
        """Removes both files, and returns the bytes of the disk that are free by then, but for those of an empty shard. Raises OSError."""
        freed = -(_pages(0, len(self.state)) + PAGE)
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

    def damaged(self, first: int, last: int, data: memoryview) -> set[int]:
        """The units in first .. last whose bytes differ from the dataset's checksums. `data` begins with the first unit's bytes."""
        if first >= len(self.groups):
            name = next(name for name, (unit, _, _) in self.columns.items() if unit == first)
            return set() if core.crc32c(data) == self.entry.columns.get(name, -1) else {first}
        if first == last and self.groups.single:  # ten times faster than with arrays
            return set() if self.is_record(first, data) else {first}
        starts, sizes, rows = self.groups.records(first, last)
        bad = core.crc32c_differ(data, starts - self.groups.starts[first], sizes, self._checksums[rows])
        return {int(self.groups.of(rows[each : each + 1])[0]) for each in bad}

    def is_record(self, row: int, data: Buffer) -> bool:
        """Returns True if bytes are the record of a stored row, by its checksum."""
        return core.crc32c(memoryview(data)) == int(self._checksums[row])

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


class DatasetCache:
    """The cache of one dataset, for one process.

    1. Methods that write (`keep`, `forget`, `claim`) are for one thread at a time; any may read a shard's `state` and `path`.
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

    def shards(self, found: Iterable[tuple[ShardEntry, Section]], segments: Iterable[Segment]) -> list[CachedShard]:
        """The shards of a manifest, ready to be opened. Where there is no room for a file, the shard is absent.

        Cached files of earlier versions, which belong to neither the shards nor the segments, are removed if nobody else uses them.
        """
        out = [CachedShard(self.path, *each) for each in found]
        above = 0
        try:
            if self.root.writable:
                with self.root.lock.held(), dataset_folder(self.path) as folder:
                    self._keep_only({self.segment_path(segment).name for segment in segments}, out)
                    above = self._drop_above(folder, out)
                    missing = [shard for shard in out if not shard.exists(folder)]
                    room = sum(_pages(0, len(shard.state)) + PAGE for shard in missing)
                    if missing and self.root.grant(self.path, room, room):
                        for shard in missing:
                            shard.create(folder)
        except OSError as error:
            self.root.give_up(error)
        self.root.warn()
        if above:
            self.root.warn_above(above)
        lost = self._unreadable(out)
        self._full = self._full or bool(lost)
        for shard in lost:
            shard.give_up()
        return out

    def _unreadable(self, shards: list[CachedShard]) -> list[CachedShard]:
        """The shards whose files are not in the folder, or cannot be read; reads the states of the others."""
        try:
            with dataset_folder(self.path) as folder:
                return [shard for shard in shards if not shard.is_readable(folder)]
        except OSError:
            return shards

    def _keep_only(self, segments: set[str], shards: Iterable[CachedShard]) -> None:
        """Removes files of earlier versions of the dataset, unless another process uses it. Call it under the lock. Raises OSError."""
        known = segments | {path.name for shard in shards for path in (shard.path, shard.state_path)} | {"users", "claims"}
        if self._users.exclusive():
            remove_files(self.path, lambda name: name not in known)
            count_anew(self.path)
        self._users.shared()

    def _drop_above(self, folder: int, shards: Sequence[CachedShard]) -> int:
        """Removes shards until the caches are within the size, unless another process uses the dataset. Call it under the lock.

        Returns the bytes that are still above it. Raises OSError.
        """
        above = self.root.above(self.path)
        if above and self._users.exclusive():
            for shard in reversed(shards):
                if above > 0:
                    above -= shard.drop(folder)
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
                    if remove_in_dataset(path):  # it was damaged; or, seldom, another process was a moment ahead
                        count_anew(self.path)
                    if self.root.grant(self.path, size, size):
                        with dataset_folder(self.path) as opened:
                            replace_file(opened, path.name, bytes(data))
        except OSError:
            self._full = True

    # ---- units

    def claim(self, shard: CachedShard, first: int, last: int) -> bool:
        """Claims units first .. last for this process to fetch; False: another process has claimed some of them."""
        try:
            return self._claims.claim(_lock_start(shard, first), last - first + 1)
        except OSError:  # no locks here: each process fetches for itself
            self._full = True
            return True

    def disclaim(self, shard: CachedShard, first: int, last: int) -> None:
        """Gives a claim up."""
        with suppress(OSError):  # closed: no claim is held
            self._claims.disclaim(_lock_start(shard, first), last - first + 1)

    def grant(self, start: int, stop: int, smaller: bool = False) -> bool:
        """Reserves room for bytes start .. stop-1 of a shard. False: there is none. The cache is then full, unless `smaller`."""
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

    def give_back(self, start: int, stop: int, used: int = 0) -> None:
        """Gives back the room reserved for bytes start .. stop-1, but for `used` bytes."""
        reserved = _room(start, stop)
        with self._lock:
            self._reserved -= reserved
            self._granted += reserved - used

    def refresh(self, shard: CachedShard, first: int, last: int) -> bool:
        """Reads the state of units first .. last, which other processes may have set. Returns True if all of them are there."""
        if not shard.has(first, last):
            try:
                state = self._files.of(shard.state_path, shard.state_identity)
                shard.take_state(first, os.pread(state, last - first + 1, first))
            except OSError:
                return False
        return shard.has(first, last)

    def look(self, shard: CachedShard) -> None:
        """Reads a shard's state, which other processes may have changed, unless it was read less than LOOK_S ago."""
        now = time.monotonic()
        if now - shard.read_at > LOOK_S:
            shard.read_at = now
            self.refresh(shard, 0, len(shard.state) - 1)

    def keep(self, shard: CachedShard, start: int, data: Buffer, units: Iterable[tuple[int, int]]) -> bool:
        """Writes bytes at `start` of a shard, for which room is reserved, and marks the units in runs of (first, last).

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
            self.give_back(start, start + len(view), used)
        return True

    def forget(self, shard: CachedShard, unit: int) -> None:
        """Marks a unit as missing, since its bytes are not those of the dataset."""
        shard.state[unit] = 0
        if self.root.writable:
            with suppress(OSError):  # then other processes find out by themselves
                os.pwrite(self._files.of(shard.state_path, shard.state_identity), b"\0", unit)

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


def _lock_start(shard: CachedShard, unit: int) -> int:
    """Offset of a unit in the file of claims. Two shards with one checksum share offsets; then their fetches wait for each other."""
    return shard.entry.crc32c * _UNITS_MOST + unit % _UNITS_MOST


def _room(start: int, stop: int) -> int:
    """Most bytes that writing a range takes on the disk: its pages, and one page of the file's block map."""
    return _pages(start, stop) + PAGE


def _pages(start: int, stop: int) -> int:
    """Bytes of the pages that a range touches."""
    return (stop + PAGE - 1) // PAGE * PAGE - start // PAGE * PAGE
