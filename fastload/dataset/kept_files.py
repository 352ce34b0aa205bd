"""KeptFiles: the part of a cache folder that keeps image files in place for later epochs and runs: what was
learnt of them, forms that decode faster, and the bytes of those that lie on a slow disk.

NOTE [ kept: one folder for the files of a place ]
The files of a list have a dataset's folder in the cache folder, by the deepest folder that has all of them.
In it, beside the files of NOTE [ cache: the folder ]:
  HASH.table   of a list: see csrc/store/kept.h; HASH is that of its paths, and of the places in them
  HASH.paths   of a list of whole files: u64 hash of each path
  N.log        bytes of all lists; a process writes the one that it has locked, N from 00000 on
Processes and lists share what others wrote: an entry names its log, and a new list begins with the entries
that others have of the same paths. Room is granted by slabs, as for buckets; a table's when it is made.
The stamp of a file is made of size and times, and of the inode on a disk that this host alone has. On any
other, which counts as slow, inodes may be made up anew at each mount.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import os
import re
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.common.limits import parse_size
from fastload.common.system import hosts_of_job
from fastload.errors import ArgumentError, FastloadError
from fastload.remote.cache_folder import (
    FORMAT,
    PAGE,
    RENEWED_S,
    CacheFolder,
    LockFile,
    default_folder,
)
from fastload.remote.shared_files import dataset_folder, open_in_dataset, replace_file

if sys.platform != "win32":
    import fcntl

_TENDED_S = 0.25
_SLAB, _SLOW_SLAB = 64 << 20, 256 << 20
"""Bytes of one grant, for facts and forms and for files: what a second may write."""
_LEAST = 64 << 10
_LOCAL = core.KEEP_FORMS
"""Kept of files on a disk of this host."""
_SIDE_MOST = 1 << 16
LOG, TABLE = re.compile(r"(\d{5})\.log"), re.compile(r"[0-9a-f]{32}\.table")
PATHS = re.compile(r"([0-9a-f]{32})\.paths")
_ROW, _HASH = core.KEPT_ROW, 8
"""Bytes of an image in a table, and of a path's hash."""
_BLOCK = 1 << 16
Hashes: TypeAlias = npt.NDArray[np.uint64]
_numbers = itertools.count()


class CachePlace(NamedTuple):
    """The cache folder that a loader was given.

    Attributes:
        folder: the folder.
        size: most bytes of all that is in it; None: 0.8 of the free ones.
        side: most pixels of an image's shorter side; None: images are as they are.
    """

    folder: str
    size: int | str | None
    side: int | None = None

    @classmethod
    def of(
        cls, cache: str | os.PathLike[str] | None, size: int | str | None, side: int | None = None
    ) -> CachePlace | None:
        """The place that `cache=`, `cache_size=` and `cache_side=` name; None without a cache.

        Raises:
            ArgumentError: a size or a side without a folder, no size, or no side.
        """
        if cache is None:
            for name, given in (("cache_size", size), ("cache_side", side)):
                if given is not None:
                    raise ArgumentError(f'{name}={given!r} needs a folder: give cache=, or cache="auto"')
            return None
        if size is not None:
            parse_size(size, "cache_size")
        if side is not None and not (type(side) is int and 0 < side <= _SIDE_MOST):
            raise ArgumentError(f"cache_side={side!r} is no number of pixels from 1 to {_SIDE_MOST:,}")
        return cls(os.fspath(default_folder() if cache == "auto" else cache), size, side)


class FilesFolder:
    """A dataset's folder in a cache folder, of files that lie elsewhere. It counts as used, and stays, as
    long as this object lives.

    Args:
        place: the cache folder.
        url: the name of these files; `fastload cache` shows it.
        kind: distinguishes folders of one URL.

    Raises:
        ArgumentError: the cache folder is none.
        DatasetError: another host, or another user, has it.
    """

    def __init__(self, place: CachePlace, url: str, kind: str) -> None:
        self.root = CacheFolder(place.folder, place.size)
        self.path = self.root.folder_of(url, kind)
        self._users = LockFile(self.path / "users", open_in_dataset)
        if self.root.writable:
            try:
                with self.root.lock.held():
                    self.root.admit(self.path, json.dumps({"format": FORMAT, "url": url}).encode())
                    self._users.shared()
            except OSError as error:
                self.root.give_up(error)


class KeptFiles(FilesFolder):
    """Facts and bytes that are kept of the files of one list.

    A thread asks for room, renews the host's use of the folder, and looks for logs of other processes. A
    forked child reads what is kept, and adds nothing. See NOTE [ kept: one folder for the files of a place ].

    Args:
        place: the cache folder.
        folder: the deepest folder that has all files.
        listing: bytes that distinguish the list from any other.
        files: the list, of which nothing was read.
        slow: the files' bytes are kept, too.
        paths: makes a hash of each path; None: the images are parts of files.

    Raises:
        ArgumentError: the cache folder is none.
        DatasetError: another host, or another user, has it.
    """

    def __init__(
        self,
        place: CachePlace,
        folder: str,
        listing: Iterable[bytes],
        files: core.Files,
        slow: bool,
        paths: Callable[[], Hashes] | None = None,
    ) -> None:
        smaller = "" if place.side is None else f" at {place.side} pixels"
        super().__init__(place, f"file://{folder}{smaller}", f"files{smaller}")
        self.slow, self._side = slow, place.side
        self._count = len(files)
        self._kept: core.Kept | None = None
        self._logs: set[int] = set()
        self._left_out = 0  # parts, when it was last looked
        self._full = False
        self._grant = LockFile(self.path / f"grant-{os.getpid()}-{next(_numbers)}", open_in_dataset)
        self._renewed = 0.0
        digest = hashlib.blake2b(digest_size=16)
        for part in listing:
            digest.update(part)
        try:
            self._open(digest.hexdigest(), files, paths)
        except (OSError, FastloadError) as error:
            self.root.note(error if isinstance(error, OSError) else OSError(errno.EIO, str(error)))
        self.root.warn()

    def _open(self, name: str, files: core.Files, paths: Callable[[], Hashes] | None) -> None:
        """Opens the table and the logs; makes those that are to be written. Raises OSError, FastloadError."""
        table = f"{name}.table"
        if not self.root.writable:
            with suppress(FileNotFoundError):
                self._attach(os.O_RDONLY, table, files)
            return
        with self.root.lock.held():
            is_new = not (self.path / table).exists()
            room = -(-self._count * (_ROW + _HASH) // PAGE + 2) * PAGE
            if is_new and not self.root.grant(self.path, room, room):
                self._full = True
                return
            self._attach(os.O_RDWR | os.O_CREAT, table, files)
            if is_new and paths is not None:
                _adopt(self.path, name, paths())
            self._ask()
        threading.Thread(target=_tend, args=(weakref.ref(self),), name="fastload-kept", daemon=True).start()

    def _attach(self, flags: int, table: str, files: core.Files) -> None:
        self._kept = core.Kept(open_in_dataset(self.path / table, flags), self._count)
        if flags & os.O_CREAT:
            self._take_log()
        self.find_logs()
        local = _LOCAL if self._side is None else core.KEEP_FACTS
        files.keep(self._kept, core.KEEP_BYTES if self.slow else local)

    def find_logs(self) -> None:
        """Opens logs that other processes have made since. Raises nothing."""
        with suppress(OSError), dataset_folder(self.path) as opened:
            names = [match for name in os.listdir(opened) if (match := LOG.fullmatch(name))]
            for number in {int(match[1]) for match in names} - self._logs:
                self._add_log(number, open_in_dataset(self._log(number), os.O_RDONLY))

    def _take_log(self) -> None:
        """Locks the first log that nobody writes, or makes one. Under the lock of the folder."""
        for number in range(core.KEPT_LOGS):
            descriptor = open_in_dataset(self._log(number), os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(descriptor)
                continue
            self._add_log(number, descriptor)
            self._table.append(number, os.fstat(descriptor).st_size)
            return

    def _add_log(self, number: int, descriptor: int) -> None:
        """Gives a log's descriptor to the table."""
        try:
            self._table.add_log(number, descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        self._logs.add(number)

    def _log(self, number: int) -> Path:
        return self.path / f"{number:05}.log"

    @property
    def _table(self) -> core.Kept:
        assert self._kept is not None
        return self._kept

    def _ask(self) -> None:
        """Asks for a slab, and notes in the grant's file what is not written yet. Under the lock of the
        folder. Raises OSError."""
        granted = 0
        if self._grant.exclusive():
            granted = self.root.grant(self.path, self._slab, _LEAST)
            counts = self._table.counts()
            self._grant.resize(counts["granted"] - counts["written"] + granted)
        self._full = not granted
        self._table.grant(granted)

    @property
    def _slab(self) -> int:
        return _SLOW_SLAB if self.slow else _SLAB

    def tend(self, now: float) -> None:
        """Asks for room where little is left; does what else is to be done from time to time. Raises
        nothing."""
        if self._kept is None or not self.root.writable:
            return
        counts = self._kept.counts()
        short = counts["left_out"] > self._left_out or counts["granted"] - counts["written"] < self._slab // 2
        self._left_out = counts["left_out"]
        try:
            if counts["failed"]:
                raise OSError(counts["failed"], os.strerror(counts["failed"]))
            if short and not self._full:
                with self.root.lock.held():
                    self._ask()
        except OSError as error:
            self.root.give_up(error)
            self.root.warn()
            return
        self.find_logs()
        if now - self._renewed > RENEWED_S:
            self._renewed = now
            self.root.renew()

    def report(self) -> str:
        """Text on what is kept, for explain()."""
        if self._kept is None:
            return f"nothing is kept in {self.root.path}: {self.root.why or 'its size leaves no room'}"
        facts, whole, forms = self._kept.entries()
        known = f"{facts:,} of {self._count:,} files are known, and "
        if self._side is not None:
            shares = f"{forms:,} of {self._count:,} images are there at {self._side} pixels"
        elif self.slow:
            shares = f"{known}the bytes of {whole:,} are there, which lie on a slow disk"
        else:
            shares = f"{known}{forms:,} are there in a form that decodes faster, made while the loop is busy"
        why = f"; it takes no more ({self.root.why or 'cache_size= is reached'})" * (
            self._full or not self.root.writable
        )
        hosts = hosts_of_job()
        others = f"; each of {hosts} hosts has a folder, with about 1/{hosts} after one epoch" * (hosts > 1)
        return f"{shares}, in {self.path}{others}{why}"


def hash_of(path: str) -> int:
    """The hash of a path, as lists note it."""
    whole = os.fsencode(os.path.abspath(path))
    return int.from_bytes(hashlib.blake2b(whole, digest_size=_HASH).digest(), "little")


def hashes_of(folder: Path, name: str) -> Hashes:
    """The hashes of a list's paths; raises OSError."""
    with open(open_in_dataset(folder / f"{name}.paths", os.O_RDONLY), "rb") as file:
        data = file.read()
    return np.frombuffer(data[: len(data) // _HASH * _HASH], np.uint64)


def _adopt(folder: Path, name: str, paths: Hashes) -> None:
    """Fills a new table with the entries that other lists have of the same paths, and notes its own. Under
    the lock of the folder. Raises OSError."""
    left = np.ones(len(paths), bool)
    with dataset_folder(folder) as opened:
        for other in (match[1] for each in os.listdir(opened) if (match := PATHS.fullmatch(each))):
            with suppress(OSError):  # a list of which a file is gone, or none of ours
                _adopt_from(folder, other, name, paths, left)
        replace_file(opened, f"{name}.paths", paths.tobytes())


def _adopt_from(folder: Path, other: str, name: str, paths: Hashes, left: npt.NDArray[np.bool_]) -> None:
    """Takes over what one list has of the paths that are left. Raises OSError."""
    theirs = hashes_of(folder, other)
    if not len(theirs):
        return
    rows, order = np.flatnonzero(left), np.argsort(theirs)
    places = np.searchsorted(theirs, paths[rows], sorter=order)
    at = order[np.minimum(places, len(order) - 1)]
    hits = theirs[at] == paths[rows]
    left[_copy_rows(folder / f"{other}.table", at[hits], folder / f"{name}.table", rows[hits])] = False


def _copy_rows(
    source: Path, at: npt.NDArray[np.intp], table: Path, rows: npt.NDArray[np.intp]
) -> npt.NDArray[np.intp]:
    """Copies rows of a table to other rows of another, blocks of them at a time; returns those of which the
    first has something."""
    order, there = np.argsort(rows), [rows[:0]]
    with (
        open(open_in_dataset(source, os.O_RDONLY), "rb") as theirs,
        open(open_in_dataset(table, os.O_RDWR), "r+b") as ours,
    ):
        for start in range(0, len(order), _BLOCK):
            block = order[start : start + _BLOCK]
            found = _rows_of(theirs, at[block])[at[block] - int(at[block].min())]
            some = found.any(axis=1)
            if some.any():
                kept, first = _rows_of(ours, rows[block]), int(rows[block].min())
                kept[rows[block][some] - first] = found[some]
                os.pwrite(ours.fileno(), kept.tobytes(), core.KEPT_HEAD + first * _ROW)
                there.append(rows[block][some])
    return np.concatenate(there)


def _rows_of(file: BinaryIO, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.uint8]:
    """The rows of a table from the least of some to the last; what the file lacks is zero."""
    first, stop = int(rows.min()), int(rows.max()) + 1
    out = np.zeros((stop - first, _ROW), np.uint8)
    data = os.pread(file.fileno(), out.size, core.KEPT_HEAD + first * _ROW)
    out.reshape(-1)[: len(data)] = np.frombuffer(data, np.uint8)
    return out


def _tend(found: weakref.ref[KeptFiles]) -> None:
    while (kept := found()) is not None:
        kept.tend(time.monotonic())
        del kept
        time.sleep(_TENDED_S)
