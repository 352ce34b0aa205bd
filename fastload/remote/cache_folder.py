"""CacheFolder: the local folder that caches datasets in buckets, its budget, and the locks that processes
share.

NOTE [ cache: the folder ]
  fastload-cache.json          marks the folder as fastload's, and names the host that uses it
  lock                         held for a moment by a process that counts, makes or removes
  NAME-HASH/                   one dataset: HASH is the hash of its whole URL and of its store's place, so
  that two never share a folder
    dataset.json               its URL, without secrets
    users                      share-locked by every process that has the dataset open
    claims                     one byte stands for each unit; a process locks the bytes of the units that it
    fetches used                       bytes granted to the dataset, u64
    grant-PID-N                locked by one process; its size is the bytes that were granted to the process
    and not yet written CRC-SIZE-shard-NNNNN.lmdb  a shard as a sparse file; CRC and SIZE are the shard's, so
    that another shard of that name is another file CRC-SIZE-shard-NNNNN.state which parts of the shard are
    there: a byte for each group of records and for each column CRC-SIZE-index-NNNNN.bin   a segment, whole
A process writes to a shard's file only after the budget has granted the pages. All processes share the
budget: `used` is changed under `lock`. A grant is larger than one write. When room is short, `used` is
counted anew: the bytes of the files on the disk, and the grants of living processes. That finds the grants of
killed processes. It may count a byte twice, and forgets none. A dataset in use loses nothing: cached bytes
stay. Where there is no room, datasets that nobody uses are removed, the one that was opened longest ago
first. A process that opens a dataset with a smaller size than the caches have by then removes, of what nobody
else has open, what is above it: other datasets, then whole shards of its own, the last ones first. The lock
on `users` tells what is open. A reader that holds no lock (a forked child that has fetched nothing itself)
goes on with the files that it has open. Only files with the names above are removed, and only from folders
with such a name whose dataset.json is fastload's. Other files stay, and so do their folders.

NOTE [ cache: one host ]
Locks hold among the processes of one kernel, and on some network file systems not beyond. So the folder
belongs to one host: a process that finds the boot ID of another host in fastload-cache.json, with a recent
time, is refused. Every process that has a dataset open renews the file's time every RENEWED_S, even when it
fetches nothing. A process that was stopped for so long that another host took the folder writes nothing to it
from then on. A host that restarts has another boot ID, and must not wait for itself. fastload-cache.json says
whether the folder lay on a disk of one host alone (`local`). Where it did, and does so here, both hosts have
had that disk, and the other one's time on it is over: the folder is taken at once. A host that exports such a
disk finds no `local` in the file of a network host, and waits. A name, an address or /etc/machine-id would
not do: containers and cloned machines have them in common.

Locks belong to open files: the kernel releases them when a process is killed, and nobody cleans up after it.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import multiprocessing
import os
import re
import shutil
import socket
import struct
import sys
import threading
import time
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fastload.common.files import close_all, expanded
from fastload.common.forks import call_in_children
from fastload.common.limits import parse_size
from fastload.common.urls import name_of, normalized, shown
from fastload.errors import ArgumentError, DatasetError

if sys.platform != "win32":  # where nothing calls what needs it
    import fcntl
from fastload.remote.shared_files import (
    TEMPORARY,
    dataset_folder,
    make_dataset_folder,
    open_in_dataset,
    open_in_root,
    remove_dataset_folder,
    remove_in_dataset,
    replace_file,
    root_folder,
    trust,
)

# f_type of file systems on a disk, or in memory, that one kernel alone has mounted for writing. The list has
# no network or cluster file systems, and none whose backing is unknown (FUSE, 9p, virtiofs).
_LOCAL = frozenset(
    {
        0xEF53,  # ext2, ext3, ext4
        0x58465342,  # XFS
        0x9123683E,  # Btrfs
        0x2FC12FC1,  # ZFS
        0xF2F52010,  # F2FS
        0xCA451A4E,  # bcachefs
        0x01021994,  # tmpfs
        0x858458F6,  # ramfs
        0x794C7630,  # overlayfs, whose upper folder is on one of these
    }
)
_STATFS_BYTES = 256  # more than struct statfs has anywhere; f_type is its first word


def boot_id() -> str:
    """Boot ID of the running kernel: it differs after each start and on each host. Containers of one
    kernel share it, and share locks."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()


def is_local(folder: Path) -> bool:
    """Returns True if a folder lies on a file system that only this host has mounted; False if that is not
    known."""
    if not sys.platform.startswith("linux"):
        return False
    found = ctypes.create_string_buffer(_STATFS_BYTES)
    if ctypes.CDLL(None).statfs(os.fsencode(folder), found) != 0:
        return False
    kind = int.from_bytes(found.raw[: ctypes.sizeof(ctypes.c_long)], sys.byteorder) & 0xFFFFFFFF
    return kind in _LOCAL


HELD_S = 30.0
"""Seconds to wait for a lock that is held only for a moment; after that, its holder counts as stopped."""
_FLOCK = struct.Struct("hhqqi4x")
"""struct flock of 64-bit Linux: type, whence, start, length, pid."""
_BUSY = (errno.EAGAIN, errno.EACCES)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.0002, 0.02
_open: weakref.WeakSet[LockFile] = weakref.WeakSet()


class SelfClosing:
    """Base class of objects that close themselves with their last reference; at the end of the program they
    stay open.

    The garbage collector may call close() while another thread does: one atomic step takes a descriptor out,
    so one thread closes it.
    """

    def close(self) -> None:
        """Releases the object's resources; idempotent, also for two threads at once."""
        raise NotImplementedError

    def __del__(self, ends: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ends():
            self.close()


class LockFile(SelfClosing):
    """An open file with locks: on the whole file, or on ranges of bytes.

    1. Locks belong to the open file: two LockFiles exclude each other, in one process too. A forked child
       that kept the parent's descriptor would keep its locks after the parent's death, so it is closed there.
    2. Any thread may use it. `held` excludes the threads of this process from each other, too.
    3. On a file that may not be written, every lock is refused. After close(), every call raises OSError
       (EBADF).
    4. The file is closed with the last reference, if not before.
    """

    def __init__(self, path: Path, open_file: Callable[[Path, int], int]) -> None:
        """Notes the path. `open_file` opens it for the first lock; `fastload.remote.shared_files` has such
        functions."""
        self.path = path
        self._open_file = open_file
        self._file: list[int] = []  # the descriptor, once it is open
        self._closed = False
        self._threads = threading.Lock()  # held in `held`
        _open.add(self)

    def _descriptor(self) -> int:
        if self._closed:
            raise OSError(errno.EBADF, f"{self.path} was closed")
        try:
            return self._file[0]
        except IndexError:
            self._file.append(self._open_file(self.path, os.O_RDWR | os.O_CREAT))
            return self._file[0]

    def shared(self) -> bool:
        """Takes the shared lock of the whole file without a wait; False: another LockFile has the
        exclusive one."""
        return self._flock(fcntl.LOCK_SH)

    def exclusive(self) -> bool:
        """Takes the exclusive lock of the whole file without a wait; it replaces a shared lock, which
        stays if this fails."""
        return self._flock(fcntl.LOCK_EX)

    def _flock(self, kind: int) -> bool:
        # EACCES means here that the file may not be opened, and below that it is locked.
        file = self._descriptor()
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _BUSY:
                return False
            raise
        return True

    @contextmanager
    def held(self) -> Iterator[None]:
        """Waits for the exclusive lock, and holds it in the block. Every holder holds it for a moment only.

        Raises:
            OSError: EAGAIN: the lock was held for HELD_S; EBADF: the file was closed; others: the file cannot
                be opened.
        """
        end = time.monotonic() + HELD_S
        if not self._threads.acquire(timeout=HELD_S):
            raise OSError(errno.EAGAIN, f"{self.path} is locked by another thread")
        try:
            pause = _FIRST_PAUSE_S
            while not self._flock(fcntl.LOCK_EX):
                if time.monotonic() > end:
                    raise OSError(errno.EAGAIN, f"{self.path} is locked by another process")
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)
            try:
                yield
            finally:
                with suppress(OSError):  # the block may have closed it
                    fcntl.flock(self._descriptor(), fcntl.LOCK_UN)
        finally:
            self._threads.release()

    def claim(self, start: int, length: int) -> bool:
        """Takes the lock of a range of bytes, which need not exist; False: another LockFile has a part of
        it."""
        file = self._descriptor()
        try:
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, length, 0))
        except OSError as error:
            if error.errno in _BUSY:
                return False
            raise
        return True

    def disclaim(self, start: int, length: int) -> None:
        """Releases the lock of a range."""
        fcntl.fcntl(
            self._descriptor(), fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, start, length, 0)
        )

    def size(self) -> int:
        """The file's size in bytes. Raises OSError."""
        return os.fstat(self._descriptor()).st_size

    def resize(self, size: int) -> None:
        """Sets the file's size in bytes. Raises OSError."""
        os.ftruncate(self._descriptor(), size)

    def close(self) -> None:
        """Releases all locks and closes the file; idempotent."""
        self._closed = True
        close_all(self._file)


def _after_fork() -> None:
    for lock in list(_open):
        close_all(lock._file)
        lock._threads = threading.Lock()


call_in_children(_after_fork)


_MOST = 64


class OpenFiles(SelfClosing):
    """Files of a cache that are open for writing: the _MOST used last. For one thread at a time."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        # By identity: a path's hash is computed anew each time.
        self._files: OrderedDict[tuple[int, int], int] = OrderedDict()
        self._closed = False

    def of(self, path: Path, identity: tuple[int, int]) -> int:
        """The descriptor of a file, valid until the next call. Raises OSError: ESTALE if the file at
        `path` has another (device, inode)."""
        if self._closed or self._pid != os.getpid():
            raise OSError(errno.EBADF, f"{path} was closed")
        found = self._files.pop(identity, -1)
        if found < 0:
            while len(self._files) >= _MOST:
                os.close(self._files.popitem(last=False)[1])
            found = open_in_dataset(path, os.O_RDWR)
            if identity_of(os.fstat(found)) != identity:
                os.close(found)
                raise OSError(errno.ESTALE, f"{path} was replaced")
        self._files[identity] = found
        return found

    def close(self) -> None:
        """Closes all files; idempotent. A forked child may call it too: it closes its own copies."""
        self._closed = True
        while self._files:
            with suppress(KeyError):
                os.close(self._files.popitem()[1])


def identity_of(found: os.stat_result) -> tuple[int, int]:
    """(device, inode) of a file."""
    return found.st_dev, found.st_ino


OWNER = "fastload-cache.json"
DATASET = "dataset.json"
FORMAT = "fastload-dataset"
ALIVE_S = 120.0
"""Seconds without renewal after which another host no longer uses the folder."""
RENEWED_S = 30.0
"""Seconds between two renewals by a process that uses the folder."""
FREE_PART = 0.8
"""Share of the disk's free bytes that a cache without a size may take."""
LEAST = 64 << 10
"""Smallest useful cache, in bytes: with less, nothing is written."""
PAGE = 4096
"""Bytes of a page; disk use is counted in pages."""
_OWN_PAGES = 3  # the folder itself, fastload-cache.json, and it again while it is replaced
_DATASET_PAGES = 5  # a dataset's folder, dataset.json, used, and its index block
_NUMBER = 8
_SLACK = 1 << 20  # by which a count may be above the size: files of the folder grow by pages
_warned: set[Path] = set()
_warned_of_pages: set[Path] = set()
_FOLDER = re.compile(r".+-[0-9a-f]{20}")
_STATE = re.compile(r"[0-9a-f]{8}-[0-9]+-.+\.state")
_GRANT = re.compile(r"grant-[0-9]+-[0-9]+")
# See NOTE [ kept: one folder for the files of a place ].
_OF_FILES = r"[0-9a-f]{32}\.(?:table|paths)|[0-9]{5}\.log|facts\.index"
_CONTENT = re.compile(
    rf"[0-9a-f]{{8}}-[0-9]+-.+|{_OF_FILES}|{_GRANT.pattern}|{TEMPORARY.pattern}|users|claims"
)
_LAST = (DATASET + ".tmp", "used", DATASET)  # removed last: these files mark a folder as a dataset's


def default_folder() -> Path:
    """The folder that FASTLOAD_CACHE names; without it, fastload in the user's cache folder."""
    named = os.environ.get("FASTLOAD_CACHE")
    if named:
        return Path(expanded(named))
    return Path(os.environ.get("XDG_CACHE_HOME") or expanded("~/.cache")) / "fastload"


class BudgetError(OSError):
    """The cache's size leaves no room; the text has the size and the bytes needed."""

    def __init__(self, reason: str) -> None:
        super().__init__(errno.ENOSPC, reason)


class CacheFolder:
    """The folder that holds all caches, with a budget. See NOTE [ cache: the folder ].

    Args:
        path: the folder, made if it is missing; None: `default_folder`.
        size: most bytes of all caches together, as an int or a text such as "200GiB"; None: the bytes they
            have, and 0.8 of the free ones.

    Raises:
        ArgumentError: the size is negative or no size, or the path is no folder.
        DatasetError: another host uses the folder.

    Attributes:
        writable: True if files can be written to the folder.
        why: the reason of the first failed write, in a few words; "" if none failed.
        lacks_room: True if the reason is the cache's size, and not the folder.
        closed: True after `close`.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, size: int | str | None = None) -> None:
        self.path = (default_folder() if path is None else Path(expanded(path))).absolute()
        self.size = None if size is None else parse_size(size, "cache_size")
        if self.size is not None and self.size < 0:
            raise ArgumentError(
                f"cache_size={size!r} is negative: write the most bytes that the cache may take, or "
                "0 for none"
            )
        self.writable = self.size is None or self.size >= LEAST
        self.why = ""
        self.closed = False
        self._default_size = self.size is None
        self.lacks_room = False
        self.lock = LockFile(self.path / "lock", open_in_root)
        self._check_owner()
        try:
            if self.writable:
                self.path.mkdir(0o775, parents=True, exist_ok=True)
                self._check_owner()
                with self.lock.held():
                    self._own()
        except (FileExistsError, NotADirectoryError):
            raise ArgumentError(
                f"cache={os.fspath(self.path)!r} is no folder: name one on a local disk"
            ) from None
        except DatasetError:
            self.lock.close()
            raise
        except OSError as error:
            self.give_up(error)
        if self.size is None:
            self.size = (
                int(FREE_PART * shutil.disk_usage(self.path if self.writable else "/").free) + self.used()
            )

    def _check_owner(self) -> None:
        """Refuses another user's folder. Raises DatasetError. See NOTE [ cache: whom it trusts ]."""
        try:
            trust(self.path)
        except PermissionError as error:
            if error.errno == errno.EPERM:
                raise DatasetError(
                    f"the cache {self.path} is refused: {error.strerror}, who could put other data "
                    "into it; name a folder of your own as "
                    "cache= or FASTLOAD_CACHE, or have its owner be root"
                ) from None
        except OSError:  # there is no folder yet, or the path is no folder, which __init__ reports
            pass

    def _own(self) -> None:
        """Takes the folder for this host. Under the lock. Raises DatasetError, OSError. See NOTE [ cache:
        one host ]."""
        file, boot, local = self.path / OWNER, boot_id(), is_local(self.path)
        other, host, age, was_local = self._owner()
        if other and other != boot and age < ALIVE_S and not (local and was_local):
            raise DatasetError(
                f"the cache {self.path} is in use by another host ({host[:60]}, {max(age, 0):.0f} s ago): "
                "give each host a folder on a disk of its own"
            )
        if other != boot:
            owner = {"format": "fastload-cache", "boot": boot, "host": socket.gethostname(), "local": local}
            with root_folder(self.path) as folder:
                replace_file(folder, OWNER, json.dumps(owner).encode())
        _touch(file)

    def _owner(self) -> tuple[str, str, float, bool]:
        """(boot ID, name, seconds since the last renewal, whether the disk was its own) of the host that uses
        the folder.

        Both names are empty if no host uses it.
        """
        file = self.path / OWNER
        try:
            found = json.loads(read_small(file, open_in_root))
            return (
                str(found["boot"]),
                str(found["host"]),
                time.time() - file.lstat().st_mtime,
                found.get("local") is True,
            )
        except (OSError, ValueError, LookupError, TypeError):
            return "", "", ALIVE_S, False

    def give_up(self, error: OSError) -> None:
        """Marks the folder as one that cannot be written, and notes the reason."""
        self.writable = False
        self.note(error)

    def note(self, error: OSError) -> None:
        """Notes the reason of a failed write."""
        self.lacks_room = self.lacks_room or isinstance(error, BudgetError)
        self.why = self.why or error.strerror or type(error).__name__

    def renew(self) -> None:
        """Renews this host's use of the folder; where another host has it, nothing is written from then
        on. Raises nothing."""
        if self.writable:
            try:
                if self._owner()[0] == boot_id():
                    _touch(self.path / OWNER)
                    return
            except OSError:
                pass
            self.lose()

    def warn(self) -> None:
        """Warns the user that the folder cannot be written: once a program, and not in worker processes."""
        if (
            self.why
            and not self.writable
            and self.path not in _warned
            and multiprocessing.parent_process() is None
        ):
            _warned.add(self.path)
            fetched = "what it lacks is fetched again in every epoch"
            if self.lacks_room:
                text = (
                    f"the cache {self.path} is full: {self.why}; {fetched}: give it more as cache_size= "
                    "(--cache-size), or remove a dataset"
                )
            else:
                text = (
                    f"the cache {self.path} cannot be written ({self.why}): {fetched}; name a folder "
                    "that can be written as cache= or "
                    "FASTLOAD_CACHE"
                )
            warnings.warn(text, stacklevel=2)

    def warn_above(self, above: int) -> None:
        """Warns the user that the size limits what is added only, since other processes have all of it
        open: once a program."""
        if self.path not in _warned and multiprocessing.parent_process() is None:
            _warned.add(self.path)
            warnings.warn(
                f"the cache {self.path} has {above:,} bytes more than cache_size={self.size:,}: "
                "other processes have them open, so that "
                "they stay, and nothing is added; the next process that opens the dataset alone removes them",
                stacklevel=2,
            )

    def warn_of_pages(self, wanted: int) -> None:
        """Warns the user where a dataset of so many bytes, whose images come by compressed pages, finds no
        room: once a program."""
        size = self.size if self.writable else 0
        if size is not None and wanted > size and self.path not in _warned_of_pages:
            _warned_of_pages.add(self.path)
            warnings.warn(
                f"the images come by compressed pages, {wanted:,} bytes in all, and the cache {self.path} "
                f"has room for {size:,}: each image beyond fetches its whole page again, in every epoch; "
                'give cache_size= for all, shuffle="window", or pack the dataset with `fastload pack`',
                stacklevel=2,
            )

    def lose(self) -> None:
        """Notes that the folder was removed, or taken by another host."""
        self.writable = False
        self.why = self.why or "it was removed, or another host took it"

    def folder_of(self, url: str, place: str) -> Path:
        """The folder of the dataset at a URL. `place` distinguishes stores that have the same URL, such as
        by an endpoint."""
        name = "".join(c if c.isalnum() or c in "._-" else "_" for c in name_of(url))[:60] or "dataset"
        digest = hashlib.blake2b(f"{normalized(url)}\0{place}".encode(), digest_size=10).hexdigest()
        return self.path / f"{name}-{digest}"

    def datasets(self) -> Iterator[Path]:
        """The folders of fastload's datasets in the cache folder."""
        try:
            with root_folder(self.path) as root, os.scandir(root) as entries:
                found = [self.path / entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:
            return
        yield from (folder for folder in found if _FOLDER.fullmatch(folder.name) and _is_dataset(folder))

    def used(self) -> int:
        """Bytes granted to all caches, and bytes of the folder's own files."""
        return _OWN_PAGES * PAGE + sum(read_used(folder) for folder in self.datasets())

    def grant(self, folder: Path, wanted: int, least: int) -> int:
        """Grants a dataset `wanted` more bytes; with less room, all of it if that is `least` or more, else 0.
        Call it under the lock.

        Raises OSError.
        """
        if self._owner()[0] != boot_id():
            self.lose()
            return 0
        room = self._room(folder, wanted)
        granted = min(wanted, room) if room >= min(wanted, least) else 0
        if granted:
            write_used(folder, read_used(folder) + granted)
        return granted

    def admit(self, folder: Path, description: bytes) -> None:
        """Makes a dataset's folder, if there is room for its own few files. Call it under the lock. Raises
        OSError: ENOSPC without room."""
        if not _is_dataset(folder) and self._room(folder, _DATASET_PAGES * PAGE) < _DATASET_PAGES * PAGE:
            source = " (0.8 of what was free on its disk)" if self._default_size else ""
            raise BudgetError(
                f"cache_size={self.size:,} bytes{source} leaves no room for another dataset, which "
                f"needs {_DATASET_PAGES * PAGE:,} bytes "
                f"to begin with: {self.used():,} are taken by datasets in use and the folder's own files"
            )
        make_dataset_folder(folder)
        with dataset_folder(folder) as opened:
            replace_file(opened, DATASET, description)
        count_anew(folder)

    def above(self, folder: Path) -> int:
        """Bytes that the caches have above the size, once datasets that nobody uses are removed; 0 if it is a
        few pages only.

        Call it under the lock. Raises OSError.
        """
        assert self.size is not None
        # What is granted is counted twice at times: the disk tells.
        if self.used() <= self.size or not self._above():
            return 0
        self._room(folder, 0)
        return self._above()

    def _above(self) -> int:
        assert self.size is not None
        above = _OWN_PAGES * PAGE + sum(on_disk(each) for each in self.datasets()) - self.size
        return above if above > min(_SLACK, self.size // 64) else 0

    def _room(self, folder: Path, wanted: int) -> int:
        """Bytes that are left; removes datasets that nobody uses until `wanted` are. Call it under the
        lock."""
        assert self.size is not None
        room = self.size - self.used()
        if room >= wanted:
            return room
        for each in self.datasets():
            count_anew(each)
        room = self.size - self.used()
        for other in sorted(self.datasets(), key=_opened):
            if other != folder and room < wanted:
                size = read_used(other)
                if remove_unused(other):
                    room += size
        return room

    def close(self) -> None:
        """Closes the lock's file; idempotent."""
        self.closed = True
        self.lock.close()


def _opened(folder: Path) -> float:
    """Time at which a dataset was last opened; 0.0 if unknown."""
    try:
        return (folder / DATASET).lstat().st_mtime
    except OSError:
        return 0.0


def _touch(file: Path) -> None:
    """Sets the time of a file of the cache folder to now. Raises OSError."""
    descriptor = open_in_root(file, os.O_RDONLY)
    try:
        os.utime(descriptor)
    finally:
        os.close(descriptor)


def _is_dataset(folder: Path) -> bool:
    """Returns True if a folder has a dataset.json of fastload's."""
    try:
        found = json.loads(read_small(folder / DATASET))
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and found.get("format") == FORMAT


def read_small(file: Path, open_file: Callable[[Path, int], int] = open_in_dataset) -> bytes:
    """The first PAGE bytes of a file of a dataset's folder. Raises OSError, also if the file is not to be
    trusted."""
    descriptor = open_file(file, os.O_RDONLY)
    try:
        return os.read(descriptor, PAGE)
    finally:
        os.close(descriptor)


def remove_unused(folder: Path) -> bool:
    """Removes a dataset's cache if no process uses it. Call it under the folder's lock. Returns True if
    its granted bytes are free now."""
    users = LockFile(folder / "users", open_in_dataset)
    try:
        if not users.exclusive():
            return False
        remove_files(folder, lambda _: True)
        with dataset_folder(folder) as opened:
            for name in _LAST:
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=opened)
    except OSError:
        return False
    finally:
        users.close()
    with suppress(OSError):  # not empty: the rest is not fastload's
        remove_dataset_folder(folder)
    return True


def remove_files(folder: Path, doomed: Callable[[str], bool]) -> None:
    """Removes the files of a dataset's cache that `doomed` names, state files first: a unit must not be
    marked without its file.

    Raises OSError.
    """
    with dataset_folder(folder) as opened:
        with os.scandir(opened) as entries:
            names = [
                entry.name
                for entry in entries
                if _CONTENT.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)
            ]
        for name in sorted(names, key=lambda name: _STATE.fullmatch(name) is None):
            if doomed(name):
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=opened)


def read_used(folder: Path) -> int:
    """Bytes granted to a dataset; without a readable `used`, the bytes of its files on the disk."""
    try:
        data = read_small(folder / "used")
    except OSError:
        data = b""
    return int.from_bytes(data, "little") if len(data) == _NUMBER else on_disk(folder)


def count_anew(folder: Path) -> None:
    """Counts a dataset's bytes on the disk, and the grants of living processes. Call it under the folder's
    lock. Raises OSError."""
    write_used(folder, on_disk(folder))  # before the count: the file itself takes a page
    used = on_disk(folder)
    with dataset_folder(folder) as opened:
        grants = [name for name in os.listdir(opened) if _GRANT.fullmatch(name)]
    for name in grants:
        lock = LockFile(folder / name, open_in_dataset)
        try:
            if lock.exclusive():
                remove_in_dataset(folder / name)  # its process is gone
            else:
                used += lock.size()
        finally:
            lock.close()
    write_used(folder, used)


def write_used(folder: Path, used: int) -> None:
    """Writes the number of granted bytes in one write: a kill leaves the old number or the new one."""
    file = open_in_dataset(folder / "used", os.O_WRONLY | os.O_CREAT)
    try:
        os.pwrite(file, used.to_bytes(_NUMBER, "little"), 0)
    finally:
        os.close(file)


def on_disk(folder: Path) -> int:
    """Bytes that a folder and its files take on the disk; 0 if the folder is missing."""
    total = 0
    with suppress(FileNotFoundError), dataset_folder(folder) as opened:
        total += os.fstat(opened).st_blocks * 512
        for name in os.listdir(opened):
            with suppress(FileNotFoundError):
                total += os.stat(name, dir_fd=opened, follow_symlinks=False).st_blocks * 512
    return total


def described(folder: Path) -> str:
    """The URL of a cached dataset, without secrets; "" if dataset.json cannot be read."""
    try:
        return shown(str(json.loads(read_small(folder / DATASET))["url"]))
    except (OSError, ValueError, LookupError, TypeError):
        return ""
