"""KeptTable: a table in a cache folder of images of which facts, forms and bytes are kept for later epochs
and runs.

NOTE [ kept: one folder for the files of a place ]
The files of a list have a dataset's folder in the cache folder, by the deepest folder that has all of them.
In it, beside the files of NOTE [ cache: the folder ]:
  HASH.table   of a list: see csrc/store/kept.h; HASH is that of its paths, and of the places in them
  HASH.paths   of a list of whole files: u64 hash of each path
  N.log        bytes of all lists; a process writes those that it has locked, N from 00000 on. An odd one
               has what was learnt of images, until these have a form that decodes faster, or files, until
               there are smaller images of them. It is cut when nothing in it is needed any more
Processes and lists share what others wrote: an entry names its log, and a new list begins with the entries
that others have of the same paths. Room is granted by slabs, as for buckets; a table's when it is made.
The stamp of a file is made of size and times, and of the inode on a disk that this host alone has. On any
other, which counts as slow, inodes may be made up anew at each mount.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import re
import sys
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from fastload._native import core
from fastload.common.limits import parse_size
from fastload.errors import ArgumentError, FastloadError
from fastload.remote.cache_folder import (
    FORMAT,
    PAGE,
    RENEWED_S,
    CacheFolder,
    LockFile,
    default_folder,
)
from fastload.remote.shared_files import dataset_folder, open_in_dataset

if sys.platform != "win32":
    import fcntl

LOG, TABLE = re.compile(r"(\d{5})\.log"), re.compile(r"[0-9a-f]{32}\.table")
HASH = 8
"""Bytes of a path's hash."""
_TENDED_S = 0.25
_LEAST = 64 << 10
_SIDE_MOST = 1 << 16
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


class KeptTable(FilesFolder):
    """A table of images of which facts and bytes are kept, and the logs of those bytes.

    A thread asks for room, renews the host's use of the folder, and looks for logs of other processes. A
    forked child reads what is kept, and adds nothing. See NOTE [ kept: one folder for the files of a place ].

    Args:
        place, url, kind: as of FilesFolder.
        name: distinguishes the table from others of the folder.
        count: rows of the table.
        slab: bytes of one grant.
        odd: it has facts or bytes that lose their worth, and appends them to an odd log.

    Raises:
        ArgumentError: the cache folder is none.
        DatasetError: another host, or another user, has it.
    """

    def __init__(
        self, place: CachePlace, url: str, kind: str, name: str, count: int, slab: int, *, odd: bool = False
    ) -> None:
        super().__init__(place, url, kind)
        self._count, self._slab = count, slab
        self._firsts = (0, 1) if odd else (0,)  # the first logs that it would write
        self._own: list[int] = []  # those that it writes
        self._kept: core.Kept | None = None
        self._logs: set[int] = set()
        self._left_out = 0  # parts, when it was last looked
        self._full = False
        self._grant = LockFile(self.path / f"grant-{os.getpid()}-{next(_numbers)}", open_in_dataset)
        self._renewed = 0.0
        try:
            self._open(name)
        except (OSError, FastloadError) as error:
            self.root.note(error if isinstance(error, OSError) else OSError(errno.EIO, str(error)))
        self.root.warn()

    def _open(self, name: str) -> None:
        """Opens the table and the logs; makes those that are to be written. Raises OSError, FastloadError."""
        table = f"{name}.table"
        if not self.root.writable:
            with suppress(FileNotFoundError):
                self._attach(os.O_RDONLY, table)
                self._begin(name, is_new=False)
            return
        with self.root.lock.held():
            is_new = not (self.path / table).exists()
            room = -(-self._count * (core.KEPT_ROW + HASH) // PAGE + 2) * PAGE
            if is_new and not self.root.grant(self.path, room, room):
                self._full = True
                return
            self._attach(os.O_RDWR | os.O_CREAT, table)
            self._begin(name, is_new)
            self._ask()
        threading.Thread(target=_tend, args=(weakref.ref(self),), name="fastload-kept", daemon=True).start()

    def _begin(self, name: str, is_new: bool) -> None:
        """Puts the open table to use; where it is written, under the lock of the folder. Raises OSError."""

    def _attach(self, flags: int, table: str) -> None:
        self._kept = core.Kept(open_in_dataset(self.path / table, flags), self._count)
        if flags & os.O_CREAT:
            for first in self._firsts:
                self._take_log(first)
        self.find_logs()

    def find_logs(self) -> None:
        """Opens logs that other processes have made since. Raises nothing."""
        with suppress(OSError), dataset_folder(self.path) as opened:
            names = [match for name in os.listdir(opened) if (match := LOG.fullmatch(name))]
            for number in {int(match[1]) for match in names} - self._logs:
                self._add_log(number, open_in_dataset(self._log(number), os.O_RDONLY))

    def _take_log(self, first: int) -> None:
        """Locks the first log that nobody writes, of every second one, or makes one. Under the lock of the
        folder."""
        for number in range(first, core.KEPT_LOGS, 2):
            descriptor = open_in_dataset(self._log(number), os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(descriptor)
                continue
            self._add_log(number, descriptor)
            self._table.append(number, os.fstat(descriptor).st_size)
            self._own.append(number)
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

    def _give_back(self, now: float) -> None:
        """Gives back the room of what nobody needs any more. Raises OSError."""

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
            self._give_back(now)
        except OSError as error:
            self.root.give_up(error)
            self.root.warn()
            return
        self.find_logs()
        if now - self._renewed > RENEWED_S:
            self._renewed = now
            self.root.renew()

    @property
    def _ends(self) -> str:
        """A clause that says why nothing more is kept; "" if it is."""
        ends = self._full or not self.root.writable
        return f"; it takes no more ({self.root.why or 'cache_size= is reached'})" * ends

    @property
    def _nothing(self) -> str:
        return f"nothing is kept in {self.root.path}: {self.root.why or 'its size leaves no room'}"


def _tend(found: weakref.ref[KeptTable]) -> None:
    while (kept := found()) is not None:
        kept.tend(time.monotonic())
        del kept
        time.sleep(_TENDED_S)
