"""CacheFolder: the folder on the local disk that holds what was fetched of datasets in buckets, and its budget.

NOTE [ cache: the folder ]
  fastload-cache.json          says that the folder is fastload's, and which host uses it
  lock                         held for a moment by whoever counts, makes or removes
  NAME-HASH/                   one dataset: HASH is of its whole URL and of where the store is, so that two never meet
    dataset.json               its URL, without secrets
    users                      share-locked by every process that has the dataset open
    claims                     ranges of it are locked by whoever fetches what they stand for
    used                       bytes that were granted to it, u64
    grant-PID-N                locked by a process; its size is what that process was granted and had not written when it last asked
    CRC-SIZE-shard-NNNNN.lmdb  a shard as a sparse file; CRC and SIZE are the shard's, so that another one of that name is another file
    CRC-SIZE-shard-NNNNN.state what of it is there: a byte for each group of records and for each column
    CRC-SIZE-index-NNNNN.bin   a segment, whole
Nothing is written to a shard's file before the budget has granted its pages, whoever of all processes asks: `used` is changed under `lock`.
A process is granted more than it writes at once. What a process that was killed had left is found when room is short: then `used` is
counted anew, as what the files take on the disk and what living processes were granted. That may count a byte twice, and forgets none.
Nothing is taken away from a dataset that is in use: what is cached stays. Where there is no room, other datasets that nobody uses go, the
one that was opened longest ago first. Only files of the names above are removed, only from folders of such a name whose dataset.json is
fastload's; whatever else lies there stays, and so does its folder.

NOTE [ cache: one host ]
Locks hold among the processes of one kernel, and on some network file systems not beyond. So the folder is one host's: who finds another's
boot ID in fastload-cache.json, and that it was there a short while ago, is refused. Whoever has a dataset open renews the file's time every
RENEWED_S, whether it fetches or not. Who was stopped for so long that another host took the folder writes nothing to it from then on.
A host that was started anew has another boot ID, and is not to wait for itself. Where the folder lay on a file system of one host's own
disk for whoever wrote fastload-cache.json (`local`), and does so here, both have had that disk, and the other one's time on it is over: it
is taken at once. Who exports such a disk finds no `local` in what a host of the network has written, and waits. A name, an address or
/etc/machine-id would not do: containers and cloned machines have them in common.

Hosts: what tells this host's kernel from others, and which folders no other host can see.

Locks of a cache folder: held by open files, so that a process that is killed lets go of them, and nobody cleans up after it.

OpenFiles: files of a cache that a process has open for writing.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
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

from fastload.common.files import check_own, expanded
from fastload.common.limits import parse_size
from fastload.common.urls import name_of, normalized, shown
from fastload.errors import ArgumentError, DatasetError
from fastload.remote.shared_files import TEMPORARY, dataset_folder, open_in_dataset, open_in_root, replace_file, root_folder

# f_type of file systems on a disk, or in memory, that one kernel alone has mounted for writing. Network file systems, those of clusters,
# and those of which it is not known (FUSE, 9p, virtiofs) are not among them.
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
    """What tells this host since its start from any other: containers of one kernel have the same, and share their locks."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()


def is_local(folder: Path) -> bool:
    """Whether a folder lies on a file system that only this host has mounted; False where that is not known."""
    if not sys.platform.startswith("linux"):
        return False
    found = ctypes.create_string_buffer(_STATFS_BYTES)
    if ctypes.CDLL(None).statfs(os.fsencode(folder), found) != 0:
        return False
    kind = int.from_bytes(found.raw[: ctypes.sizeof(ctypes.c_long)], sys.byteorder) & 0xFFFFFFFF
    return kind in _LOCAL


HELD_S = 30.0
"""Seconds that a lock which others hold for a moment is waited for; after that its holder counts as stopped."""
_FLOCK = struct.Struct("hhqqi4x")
"""struct flock of 64-bit Linux: type, whence, start, length, pid."""
_BUSY = (errno.EAGAIN, errno.EACCES)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.0002, 0.02
_open: weakref.WeakSet[LockFile] = weakref.WeakSet()


class SelfClosing:
    """Something that its last reference closes, if nothing did before; at the end of the program it is left alone.

    The garbage collector may do so while another thread closes it: a descriptor is taken out by one step that only one thread can take.
    """

    def close(self) -> None:
        """Lets go of what it has; idempotent, also for two threads at once."""
        raise NotImplementedError

    def __del__(self, ends: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ends():
            self.close()


class LockFile(SelfClosing):
    """An open file that locks are taken on.

    1. Locks belong to the open file: two LockFiles exclude each other, in one process too. A forked child that kept the parent's
       descriptor would keep its locks after the parent's death, so it is closed there.
    2. Any thread may use it. `held` excludes the threads of this process from each other, too.
    3. On a file that may not be written, every lock is refused. After close(), every call raises OSError (EBADF).
    4. The file is closed with the last reference, if not before.
    """

    def __init__(self, path: Path, open_file: Callable[[Path, int], int]) -> None:
        """Notes the path; `open_file` opens it when the first lock is taken: `fastload.remote.shared_files` has them."""
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
        """Takes the whole file's shared lock without a wait; False: somebody has the exclusive one."""
        return self._flock(fcntl.LOCK_SH)

    def exclusive(self) -> bool:
        """Takes the whole file's exclusive lock without a wait; a shared one that is held becomes it, or stays."""
        return self._flock(fcntl.LOCK_EX)

    def _flock(self, kind: int) -> bool:
        file = self._descriptor()  # EACCES means here that it may not be opened, and below that it is locked
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _BUSY:
                return False
            raise
        return True

    @contextmanager
    def held(self) -> Iterator[None]:
        """Waits for the exclusive lock, and holds it in the block. Those who hold it do so for a moment only.

        Raises:
            OSError: EAGAIN: somebody has held it for HELD_S; EBADF: the file was closed; or it cannot be opened.
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
        """Takes the lock of a range of bytes, which need not exist; False: another LockFile has some of it."""
        file = self._descriptor()
        try:
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, length, 0))
        except OSError as error:
            if error.errno in _BUSY:
                return False
            raise
        return True

    def disclaim(self, start: int, length: int) -> None:
        """Lets go of the lock of a range."""
        fcntl.fcntl(self._descriptor(), fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, start, length, 0))

    def resize(self, size: int) -> None:
        """Makes the file have so many bytes. Raises OSError."""
        os.ftruncate(self._descriptor(), size)

    def close(self) -> None:
        """Lets go of all locks, for good; idempotent."""
        self._closed = True
        close_all(self._file)


def close_all(files: list[int]) -> None:
    """Closes descriptors and takes them out of a list."""
    while files:
        with suppress(IndexError):
            os.close(files.pop())


def _after_fork() -> None:
    for lock in list(_open):
        close_all(lock._file)
        lock._threads = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


_MOST = 64


class OpenFiles(SelfClosing):
    """Files that are open for writing, the last ones used. For one thread at a time."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._files: OrderedDict[tuple[int, int], int] = OrderedDict()  # by identity: a path's hash is computed anew each time
        self._closed = False

    def of(self, path: Path, identity: tuple[int, int]) -> int:
        """The descriptor of a file, valid until the next call. Raises OSError: ESTALE where it is not the one of that (device, inode)."""
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
        """Closes all, for good; idempotent. In a forked child too, whose copies they are."""
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
"""Seconds after which another host's use of the folder counts as over."""
RENEWED_S = 30.0
"""Seconds after which a user of the folder renews its time."""
FREE_PART = 0.8
"""Part of what is free on the disk that a cache without a size may take."""
LEAST = 64 << 10
"""Bytes below which a cache is not worth its own files: nothing is written then."""
PAGE = 4096
"""Bytes in which the disk is counted."""
_OWN_PAGES = 3  # the folder itself, fastload-cache.json, and it again while it is replaced
_DATASET_PAGES = 5  # a dataset's folder, dataset.json, used, and its index block
_NUMBER = 8
_warned: set[Path] = set()
_FOLDER = re.compile(r".+-[0-9a-f]{20}")
_STATE = re.compile(r"[0-9a-f]{8}-[0-9]+-.+\.state")
_GRANT = re.compile(r"grant-[0-9]+-[0-9]+")
_CONTENT = re.compile(rf"[0-9a-f]{{8}}-[0-9]+-.+|{_GRANT.pattern}|{TEMPORARY.pattern}|users|claims")
_LAST = (DATASET + ".tmp", "used", DATASET)  # what says that a folder is a dataset's goes at the end


def default_folder() -> Path:
    """FASTLOAD_CACHE, or fastload in the user's cache folder."""
    named = os.environ.get("FASTLOAD_CACHE")
    if named:
        return Path(expanded(named))
    return Path(os.environ.get("XDG_CACHE_HOME") or expanded("~/.cache")) / "fastload"


class BudgetError(OSError):
    """The cache's size leaves no room; the text has the size, and what was needed."""

    def __init__(self, reason: str) -> None:
        super().__init__(errno.ENOSPC, reason)


class CacheFolder:
    """The folder of all caches, with a budget. See NOTE [ cache: the folder ].

    Args:
        path: of the folder, made where it is missing; None: `default_folder`.
        size: most bytes that all caches in it take, as an int or a text such as "200GiB"; None: what they have, and 0.8 of what is free.

    Raises:
        ArgumentError: the size or path is none.
        DatasetError: another host uses the folder.

    Attributes:
        writable: whether anything can be written to it.
        why: why something could not be, in a few words; "" as long as all could.
        lacks_room: whether that is its size, and not the folder.
        closed: whether `close` was called.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, size: int | str | None = None) -> None:
        self.path = (default_folder() if path is None else Path(expanded(path))).absolute()
        self.size = None if size is None else parse_size(size, "cache_size")
        if self.size is not None and self.size < 0:
            raise ArgumentError(f"cache_size={size!r} is negative: write the most bytes that the cache may take, or 0 for none")
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
            raise ArgumentError(f"cache={os.fspath(self.path)!r} is no folder: name one on a local disk") from None
        except DatasetError:
            self.lock.close()
            raise
        except OSError as error:
            self.give_up(error)
        if self.size is None:
            self.size = int(FREE_PART * shutil.disk_usage(self.path if self.writable else "/").free) + self.used()

    def _check_owner(self) -> None:
        """Refuses another user's folder. Raises DatasetError. See NOTE [ cache: whom it trusts ]."""
        try:
            check_own(self.path)
        except PermissionError as error:
            if error.errno == errno.EPERM:
                raise DatasetError(
                    f"the cache {self.path} is refused: {error.strerror}, who could put other data into it; name a folder of your own as "
                    "cache= or FASTLOAD_CACHE, or have its owner be root"
                ) from None
        except OSError:  # there is none yet, or it is no folder, which is said elsewhere
            pass

    def _own(self) -> None:
        """Takes the folder for this host. Under the lock. Raises DatasetError, OSError. See NOTE [ cache: one host ]."""
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
        """Boot ID and name of the host that has the folder, seconds since it renewed that, and whether the disk was its own.

        Empty where nobody has it.
        """
        file = self.path / OWNER
        try:
            found = json.loads(read_small(file, open_in_root))
            return str(found["boot"]), str(found["host"]), time.time() - file.lstat().st_mtime, found.get("local") is True
        except (OSError, ValueError, LookupError, TypeError):
            return "", "", ALIVE_S, False

    def give_up(self, error: OSError) -> None:
        """Notes that the folder cannot be written, and why."""
        self.writable = False
        self.note(error)

    def note(self, error: OSError) -> None:
        """Notes why something could not be written."""
        self.lacks_room = self.lacks_room or isinstance(error, BudgetError)
        self.why = self.why or error.strerror or type(error).__name__

    def renew(self) -> None:
        """Says that the folder is still in use, as long as it is this host's. Raises nothing."""
        if self.writable:
            try:
                if self._owner()[0] == boot_id():
                    _touch(self.path / OWNER)
                    return
            except OSError:
                pass
            self.lose()

    def warn(self) -> None:
        """Warns the user, once a program and not in its worker processes, that the folder cannot be written."""
        if self.why and not self.writable and self.path not in _warned and multiprocessing.parent_process() is None:
            _warned.add(self.path)
            fetched = "what it lacks is fetched again in every epoch"
            if self.lacks_room:
                text = (
                    f"the cache {self.path} is full: {self.why}; {fetched}: give it more as cache_size= (--cache-size), or remove a dataset"
                )
            else:
                text = (
                    f"the cache {self.path} cannot be written ({self.why}): {fetched}; name a folder that can be written as cache= or "
                    "FASTLOAD_CACHE"
                )
            warnings.warn(text, stacklevel=2)

    def lose(self) -> None:
        """Notes that the folder is gone, or another host's."""
        self.writable = False
        self.why = self.why or "it was removed, or another host took it"

    def folder_of(self, url: str, place: str) -> Path:
        """The folder of the dataset at a URL; `place`: what else tells its store from others, such as an endpoint."""
        name = "".join(c if c.isalnum() or c in "._-" else "_" for c in name_of(url))[:60] or "dataset"
        digest = hashlib.blake2b(f"{normalized(url)}\0{place}".encode(), digest_size=10).hexdigest()
        return self.path / f"{name}-{digest}"

    def datasets(self) -> Iterator[Path]:
        """The folders of datasets that are fastload's."""
        try:
            with os.scandir(self.path) as entries:
                found = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:
            return
        yield from (folder for folder in found if _FOLDER.fullmatch(folder.name) and _is_dataset(folder))

    def used(self) -> int:
        """Bytes that were granted to all caches, and those of the folder's own files."""
        return _OWN_PAGES * PAGE + sum(read_used(folder) for folder in self.datasets())

    def grant(self, folder: Path, wanted: int, least: int) -> int:
        """Grants a dataset `wanted` more bytes, or as many as there is room for if they are at least `least`; else 0. Under the lock.

        Raises OSError.
        """
        if self._owner()[0] != boot_id():
            self.lose()
            return 0
        room = self._room(folder, wanted)
        granted = wanted if room >= wanted else room if room >= least else 0
        if granted:
            write_used(folder, read_used(folder) + granted)
        return granted

    def admit(self, folder: Path, description: bytes) -> None:
        """Makes a dataset's folder, if there is room for its own few files. Under the lock. Raises OSError: ENOSPC where there is none."""
        if not _is_dataset(folder) and self._room(folder, _DATASET_PAGES * PAGE) < _DATASET_PAGES * PAGE:
            source = " (0.8 of what was free on its disk)" if self._default_size else ""
            raise BudgetError(
                f"cache_size={self.size:,} bytes{source} leaves no room for another dataset, which needs {_DATASET_PAGES * PAGE:,} bytes "
                f"to begin with: {self.used():,} are taken by datasets in use and the folder's own files"
            )
        folder.mkdir(0o775, exist_ok=True)
        with dataset_folder(folder) as opened:
            replace_file(opened, DATASET, description)
        count_anew(folder)

    def _room(self, folder: Path, wanted: int) -> int:
        """Bytes that are left, after other datasets went where they are not used. Under the lock."""
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
    """When a dataset was last opened."""
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
    """Whether a folder's dataset.json is fastload's."""
    try:
        found = json.loads(read_small(folder / DATASET))
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and found.get("format") == FORMAT


def read_small(file: Path, open_file: Callable[[Path, int], int] = open_in_dataset) -> bytes:
    """The first bytes of a file of a dataset's folder. Raises OSError: also where it is not to be trusted."""
    descriptor = open_file(file, os.O_RDONLY)
    try:
        return os.read(descriptor, PAGE)
    finally:
        os.close(descriptor)


def remove_unused(folder: Path) -> bool:
    """Removes a dataset's cache unless a process uses it. Under the folder's lock. Returns whether what was granted to it is free."""
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
        folder.rmdir()
    return True


def remove_files(folder: Path, doomed: Callable[[str], bool]) -> None:
    """Removes those files of a dataset's cache, states first: nothing counts as there without its file. Raises OSError."""
    with dataset_folder(folder) as opened:
        with os.scandir(opened) as entries:
            names = [entry.name for entry in entries if _CONTENT.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)]
        for name in sorted(names, key=lambda name: _STATE.fullmatch(name) is None):
            if doomed(name):
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=opened)


def read_used(folder: Path) -> int:
    """Bytes that a dataset was granted; a file that does not say so counts as its size on the disk."""
    try:
        data = read_small(folder / "used")
    except OSError:
        data = b""
    return int.from_bytes(data, "little") if len(data) == _NUMBER else on_disk(folder)


def count_anew(folder: Path) -> None:
    """Counts what a dataset takes, and what living processes were granted for it. Under the folder's lock. Raises OSError."""
    write_used(folder, on_disk(folder))  # first: it takes a page itself
    used = on_disk(folder)
    for file in folder.glob("grant-*"):
        if _GRANT.fullmatch(file.name):
            lock = LockFile(file, open_in_dataset)
            try:
                if lock.exclusive():
                    file.unlink(missing_ok=True)  # its process is gone
                else:
                    used += file.lstat().st_size
            finally:
                lock.close()
    write_used(folder, used)


def write_used(folder: Path, used: int) -> None:
    """Notes them, in one write: a kill leaves the old number or the new one."""
    file = open_in_dataset(folder / "used", os.O_WRONLY | os.O_CREAT)
    try:
        os.pwrite(file, used.to_bytes(_NUMBER, "little"), 0)
    finally:
        os.close(file)


def on_disk(folder: Path) -> int:
    """Bytes that a folder and its files take on the disk; 0 if there is none."""
    total = 0
    for path in (folder, *folder.glob("*")):
        with suppress(FileNotFoundError):
            total += path.lstat().st_blocks * 512
    return total


def described(folder: Path) -> str:
    """The URL of a dataset's cache, without secrets; "" where its file does not say."""
    try:
        return shown(str(json.loads(read_small(folder / DATASET))["url"]))
    except (OSError, ValueError, LookupError, TypeError):
        return ""
