"""DatasetCache: what is on the local disk of one dataset in a bucket: its shards as sparse files, and which parts of them are there.

NOTE [ cache: when a part is there ]
A unit is a group of a shard's records (`fastload.remote.groups`), or one of its columns. A unit's byte in the state file becomes 1 after
its bytes were fetched, compared with the checksums of the dataset, and written; nothing else writes where its bytes lie. A process that is
killed before leaves 0 there, and the lock that it held on the unit ends with it. After a power failure a state may be on the disk and the
bytes not: so a record is compared with its checksum at each read, as on any disk, and one that differs is fetched again (`forget`).
A process reads the state file where its own copy says 0: others add to it at any time. 1 never becomes 0 but by `forget`.
"""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from typing_extensions import Buffer

from fastload._native import core
from fastload.remote.cache_folder import DATASET, CacheFolder, on_disk, write_used
from fastload.remote.groups import GROUP_BYTES, Groups
from fastload.remote.locks import LockFile
from fastload.store.entries import Segment, ShardEntry
from fastload.store.manifest import write_atomically
from fastload.store.schema import CRC_COLUMN
from fastload.store.sidecar import Section
from fastload.urls import shown

PAGE = 4096
"""Bytes in which the disk is counted."""
SLAB = 8 << 20
"""Bytes that a process has granted at once: a grant takes a lock that all processes of the host share."""
THERE = b"\1"
"""A unit's state, once it is there."""
LOOK_S = 0.05
"""Seconds for which the state of a whole shard counts as read: others' work is then seen, and not fetched again."""
_SLABS_LEAST = 64
_FILES = 64
_UNITS_MOST = 1 << 30


class OpenFiles:
    """Files that are open for writing, the last ones used. For one thread at a time."""

    def __init__(self) -> None:
        self._files: OrderedDict[Path, int] = OrderedDict()
        self._pid = os.getpid()

    def of(self, path: Path) -> int:
        """The descriptor of a file that exists; valid until the next call."""
        if self._pid != os.getpid():
            self._files, self._pid = OrderedDict(), os.getpid()  # the parent's are its own to close
        found = self._files.pop(path, -1)
        if found < 0:
            while len(self._files) >= _FILES:
                os.close(self._files.popitem(last=False)[1])
            found = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._files[path] = found
        return found

    def close(self) -> None:
        """Closes all."""
        if self._pid == os.getpid():
            for file in self._files.values():
                os.close(file)
        self._files.clear()


class CachedShard:
    """One shard's sparse file and the state of its units: first its groups of records, then its columns.

    Attributes:
        entry: of the manifest.
        groups: of its records.
        columns: (offset, size) of each column, and its unit, by name.
        path: of the sparse file.
        state: one byte a unit: 1 where it is known to be there.
        read_at: when all of it was last read.
    """

    def __init__(self, folder: Path, entry: ShardEntry, section: Section) -> None:
        self.entry = entry
        self.groups = Groups(section.places)
        self._checksums = np.frombuffer(section.chunks[CRC_COLUMN], "<u4").copy()  # of stored records
        columns = section.columns
        units = len(self.groups)
        self.columns = {name.decode("utf-8", "replace"): (units + i, offset, size) for i, (name, offset, size) in enumerate(columns)}
        stem = f"{entry.crc32c:08x}-{entry.bytes}-{Path(entry.file).stem}"
        self.path = folder / f"{stem}.lmdb"
        self._memory: int | None = None  # the descriptor of an empty file of that size, where there can be none in the folder
        self.state_path = folder / f"{stem}.{GROUP_BYTES}.state"
        self._raw = bytearray(units + len(self.columns))
        self.state = np.frombuffer(self._raw, np.uint8)
        self.read_at = 0.0

    def range_of(self, unit: int) -> tuple[int, int]:
        """(start, stop) of a unit in the file."""
        if unit < len(self.groups):
            return int(self.groups.starts[unit]), int(self.groups.stops[unit])
        return next((offset, offset + size) for at, offset, size in self.columns.values() if at == unit)

    def exists(self) -> bool:
        """Whether both files are there, in their size."""
        return _size(self.path) == self.entry.bytes and _size(self.state_path) == len(self.state)

    def create(self) -> None:
        """Makes the files where they are missing, or of another size. Under the folder's lock. Raises OSError."""
        if not self.exists():
            self.state_path.unlink(missing_ok=True)  # first: nothing may count as there without its file
            self.path.unlink(missing_ok=True)
            for path, size in ((self.path, self.entry.bytes), (self.state_path, len(self.state))):
                with open(path, "xb") as file:
                    file.truncate(size)

    def in_memory(self) -> None:
        """Takes an empty file of anonymous memory in the place of one in the folder: it has the size, and nothing is there."""
        self._memory = os.memfd_create("fastload-shard", os.MFD_CLOEXEC)
        os.ftruncate(self._memory, self.entry.bytes)
        self.path = Path(f"/proc/self/fd/{self._memory}")
        self.state[:] = 0

    def close(self) -> None:
        """Closes what is in memory."""
        if self._memory is not None:
            os.close(self._memory)
            self._memory = None

    def damaged(self, first: int, last: int, data: memoryview) -> set[int]:
        """Which of units first .. last have other bytes than the dataset's checksums say; `data` are theirs, from the first one's on."""
        if first >= len(self.groups):
            name = next(name for name, (unit, _, _) in self.columns.items() if unit == first)
            return set() if core.crc32c(data) == self.entry.columns.get(name, -1) else {first}
        starts, sizes, rows = self.groups.records(first, last)
        bad = core.crc32c_differ(data, starts - self.groups.starts[first], sizes, self._checksums[rows])
        return {int(self.groups.of(rows[each : each + 1])[0]) for each in bad}

    def is_record(self, row: int, data: Buffer) -> bool:
        """Whether bytes are the record of a stored row, by its checksum."""
        return core.crc32c(memoryview(data)) == int(self._checksums[row])

    def read_state(self) -> None:
        """Reads the state file. Raises OSError."""
        with open(self.state_path, "rb") as file:
            self.take_state(0, file.read(len(self._raw)))

    def take_state(self, first: int, found: bytes) -> None:
        """Takes over the state of units from `first` on, as the file has it."""
        if first + len(found) <= len(self._raw):
            self._raw[first : first + len(found)] = found

    def has(self, first: int, last: int) -> bool:
        """Whether units first .. last are known to be there."""
        return self._raw.count(THERE, first, last + 1) == last + 1 - first


class DatasetCache:
    """The cache of one dataset, for one process.

    1. What writes (`keep`, `forget`, `claim`) is for one thread at a time; `state` and `path` of shards may be read by any.
    2. Where the folder cannot be written, what is there is read, and nothing is added.

    Args:
        folder: the caches' folder.
        url, place: of the dataset, as `CacheFolder.folder_of` takes them.
    """

    def __init__(self, folder: CacheFolder, url: str, place: str) -> None:
        self.root = folder
        self.path = folder.folder_of(url, place)
        self.full = not folder.writable
        self._users = LockFile(self.path / "users")
        self._claims = LockFile(self.path / "claims")
        self._files = OpenFiles()
        self._granted = 0
        self._lock = threading.Lock()  # guards _granted
        if folder.writable:
            try:
                with folder.lock.held():
                    self._enter(url)
            except OSError as error:
                self._not_writable(error)

    def _enter(self, url: str) -> None:
        """Begins to use the folder, and counts what it takes if nobody else does. Under the folder's lock."""
        self.path.mkdir(exist_ok=True)
        alone = self._users.exclusive()
        if alone:
            write_used(self.path, on_disk(self.path))
        self._users.shared()
        write_atomically(self.path / DATASET, json.dumps({"format": "fastload-dataset", "url": shown(url)}).encode(), durable=False)

    def reenter(self) -> None:
        """Begins to use the folder in a forked child, which has none of its parent's locks. Raises nothing."""
        self._granted = 0
        if self.root.writable:
            try:
                with self.root.lock.held():
                    self._users.shared()
            except OSError as error:
                self._not_writable(error)

    def _not_writable(self, error: OSError) -> None:
        if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT):
            raise error
        self.full, self.root.writable = True, False

    def shards(self, found: Iterable[tuple[ShardEntry, Section]]) -> list[CachedShard]:
        """The shards of a manifest, ready to be opened. Where there is no room for a file it is empty, and in memory."""
        out = [CachedShard(self.path, *each) for each in found]
        new = sum(len(shard.state) + 2 * PAGE for shard in out if not shard.exists())
        if new and not (self.root.writable and self.root.grant(self.path, new, new)):
            self.full = True
        elif new:
            try:
                with self.root.lock.held():
                    for shard in out:
                        shard.create()
            except OSError as error:
                self._not_writable(error)
        for shard in out:
            if shard.exists():
                shard.read_state()
            else:
                shard.in_memory()
        return out

    # ---- segments

    def segment_path(self, segment: Segment) -> Path:
        """Where a segment lies, once it is there."""
        return self.path / f"{segment.crc32c:08x}-{segment.bytes}-{segment.file}"

    def keep_segment(self, segment: Segment, data: Buffer) -> None:
        """Keeps a segment that was checked, if there is room."""
        if self.full or not self.root.grant(self.path, _pages(0, segment.bytes), _pages(0, segment.bytes)):
            return
        try:
            write_atomically(self.segment_path(segment), bytes(data), durable=False)
        except OSError as error:
            self._not_writable(error)

    # ---- units

    def claim(self, shard: CachedShard, first: int, last: int) -> bool:
        """Takes the right to fetch units first .. last for the host; False: another process has some of them."""
        return self._claims.claim(_lock_start(shard, first), last - first + 1)

    def disclaim(self, shard: CachedShard, first: int, last: int) -> None:
        """Gives it up."""
        self._claims.disclaim(_lock_start(shard, first), last - first + 1)

    def grant(self, start: int, stop: int) -> bool:
        """Whether there is room for bytes start .. stop-1 of a shard; then it is taken."""
        if self.full:
            return False
        need = _pages(start, stop)
        with self._lock:
            if self._granted < need:
                assert self.root.size is not None
                slab = min(SLAB, self.root.size // _SLABS_LEAST)
                self._granted += self.root.grant(self.path, max(need, slab), need)
            if self._granted < need:
                self.full = True
                return False
            self._granted -= need
        return True

    def give_back(self, start: int, stop: int) -> None:
        """Gives back room that was taken and not used."""
        with self._lock:
            self._granted += _pages(start, stop)

    def refresh(self, shard: CachedShard, first: int, last: int) -> bool:
        """Reads what others have added to units first .. last. Returns whether all of them are there."""
        if not shard.has(first, last):
            try:
                shard.take_state(first, os.pread(self._files.of(shard.state_path), last - first + 1, first))
            except OSError:
                return False
        return shard.has(first, last)

    def look(self, shard: CachedShard) -> None:
        """Reads what others have added to a shard, unless it was read a moment ago."""
        now = time.monotonic()
        if now - shard.read_at > LOOK_S:
            shard.read_at = now
            self.refresh(shard, 0, len(shard.state) - 1)

    def keep(self, shard: CachedShard, start: int, data: Buffer, units: Iterable[tuple[int, int]]) -> bool:
        """Writes bytes at `start` of a shard, and marks the units in runs of (first, last). False: the disk does not take them."""
        view = memoryview(data).cast("B")
        try:
            file, at = self._files.of(shard.path), 0
            while at < len(view):
                at += os.pwrite(file, view[at:], start + at)
            for first, last in units:
                os.pwrite(self._files.of(shard.state_path), THERE * (last - first + 1), first)
                shard.take_state(first, THERE * (last - first + 1))
        except OSError as error:
            self.full = True
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ENOENT):
                raise
            return False
        return True

    def forget(self, shard: CachedShard, unit: int) -> None:
        """Marks a unit as not there: its bytes are not those of the dataset."""
        shard.state[unit] = 0
        if self.root.writable:
            os.pwrite(self._files.of(shard.state_path), b"\0", unit)

    def close(self) -> None:
        """Ends the use of the folder; idempotent."""
        with self._lock:
            granted, self._granted = self._granted, 0
        self.root.give_back(self.path, granted)
        self._files.close()
        self._claims.close()
        self._users.close()


def _lock_start(shard: CachedShard, unit: int) -> int:
    """Where in the file of claims a unit is. Shards with one checksum share it, which makes them wait for each other and nothing else."""
    return shard.entry.crc32c * _UNITS_MOST + unit % _UNITS_MOST


def _pages(start: int, stop: int) -> int:
    """Bytes of the pages that a range touches."""
    return (stop + PAGE - 1) // PAGE * PAGE - start // PAGE * PAGE


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return -1
