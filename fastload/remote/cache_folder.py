"""CacheFolder: the folder on the local disk that holds what was fetched of datasets in buckets, and its budget.

NOTE [ cache: the folder ]
  fastload-cache.json          says that the folder is fastload's, and which host uses it
  lock                         held for a moment by whoever counts, makes or removes
  NAME-HASH/                   one dataset: HASH is of its whole URL and of where the store is, so that two never meet
    dataset.json               its URL, without secrets
    users                      share-locked by every process that has the dataset open
    claims                     ranges of it are locked by whoever fetches what they stand for
    used                       bytes that were granted to it, u64
    CRC-SIZE-shard-NNNNN.lmdb  a shard as a sparse file; CRC and SIZE are the shard's, so that another one of that name is another file
    CRC-SIZE-shard-NNNNN.state what of it is there: a byte for each group of records and for each column
    CRC-SIZE-index-NNNNN.bin   a segment, whole
Nothing is written to a shard's file before the budget has granted its pages, whoever of all processes asks: `used` is changed under `lock`.
Nothing is taken away from a dataset that is in use: what is cached stays. Where there is no room, other datasets that nobody uses go, the
one that was opened longest ago first; only folders with a dataset.json, which are fastload's own.

NOTE [ cache: one host ]
Locks hold among the processes of one kernel, and on some network file systems not beyond. So the folder is one host's: who finds another's
boot ID in fastload-cache.json, and that it was there a short while ago, is refused. A user of the folder renews the file's time.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

from fastload.errors import ArgumentError, DatasetError
from fastload.files import expanded
from fastload.remote.locks import LockFile
from fastload.sizes import parse_size
from fastload.store.manifest import write_atomically
from fastload.urls import name_of, normalized, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

OWNER = "fastload-cache.json"
DATASET = "dataset.json"
ALIVE_S = 120.0
"""Seconds after which another host's use of the folder counts as over."""
RENEWED_S = 30.0
"""Seconds after which a user of the folder renews its time."""
FREE_PART = 0.8
"""Part of what is free on the disk that a cache without a size may take."""
_NUMBER = 8


def default_folder() -> Path:
    """FASTLOAD_CACHE, or fastload in the user's cache folder."""
    named = os.environ.get("FASTLOAD_CACHE")
    if named:
        return Path(expanded(named))
    return Path(os.environ.get("XDG_CACHE_HOME") or expanded("~/.cache")) / "fastload"


def boot_id() -> str:
    """What tells this host since its start from any other: containers of one kernel have the same, and share their locks."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()


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
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, size: int | str | None = None) -> None:
        self.path = (default_folder() if path is None else Path(expanded(path))).absolute()
        self.size = None if size is None else parse_size(size, "cache_size")
        self.writable = True
        self._renewed = 0.0
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.lock = LockFile(self.path / "lock")
            with self.lock.held():
                self._own()
        except (FileExistsError, NotADirectoryError):
            raise ArgumentError(f"cache={os.fspath(self.path)!r} is no folder: name one on a local disk") from None
        except DatasetError:
            raise
        except OSError:
            self.writable = False
        if self.size is None:
            self.size = int(FREE_PART * shutil.disk_usage(self.path if self.path.exists() else "/").free) + self.used()

    def _own(self) -> None:
        """Takes the folder for this host. Raises DatasetError. See NOTE [ cache: one host ]."""
        file, boot = self.path / OWNER, boot_id()
        try:
            found = json.loads(file.read_bytes())
            age = time.time() - file.stat().st_mtime
            other = str(found.get("boot")) if isinstance(found, dict) else ""
            host = str(found.get("host")) if isinstance(found, dict) else ""
        except (OSError, ValueError):
            other, age, host = "", ALIVE_S, ""
        if other and other != boot and age < ALIVE_S:
            raise DatasetError(
                f"the cache {self.path} is in use by another host ({host[:60]}, {max(age, 0):.0f} s ago): "
                "give each host a folder on a disk of its own"
            )
        if other != boot:
            owner = {"format": "fastload-cache", "boot": boot, "host": socket.gethostname()}
            write_atomically(file, json.dumps(owner).encode(), durable=False)
        self.renew()

    def renew(self) -> None:
        """Says that the folder is still in use; cheap, where it was said a short while ago."""
        now = time.monotonic()
        if self.writable and now - self._renewed > RENEWED_S:
            self._renewed = now
            try:
                os.utime(self.path / OWNER)
            except OSError:
                self.writable = False

    def folder_of(self, url: str, place: str) -> Path:
        """The folder of the dataset at a URL; `place`: what else tells its store from others, such as an endpoint."""
        name = "".join(c if c.isalnum() or c in "._-" else "_" for c in name_of(url))[:60] or "dataset"
        digest = hashlib.blake2b(f"{normalized(url)}\0{place}".encode(), digest_size=10).hexdigest()
        return self.path / f"{name}-{digest}"

    def datasets(self) -> Iterator[Path]:
        """The folders of datasets that are fastload's."""
        try:
            found = [Path(entry.path) for entry in os.scandir(self.path) if entry.is_dir(follow_symlinks=False)]
        except OSError:
            return
        yield from (folder for folder in found if (folder / DATASET).is_file())

    def used(self) -> int:
        """Bytes that were granted to all caches."""
        return sum(read_used(folder) for folder in self.datasets())

    def grant(self, folder: Path, wanted: int, least: int) -> int:
        """Grants a dataset `wanted` more bytes, or as many as there is room for if they are at least `least`; else 0."""
        if not self.writable:
            return 0
        try:
            with self.lock.held():
                room = self._room(folder, wanted)
                granted = wanted if room >= wanted else room if room >= least else 0
                if granted:
                    write_used(folder, read_used(folder) + granted)
                return granted
        except OSError:
            return 0

    def give_back(self, folder: Path, unused: int) -> None:
        """Takes back bytes that were granted and not used."""
        if unused > 0 and self.writable:
            try:
                with self.lock.held():
                    write_used(folder, max(0, read_used(folder) - unused))
            except OSError:
                pass  # it is counted anew when the dataset is next opened by one process alone

    def _room(self, folder: Path, wanted: int) -> int:
        """Bytes that are left, after other datasets went where they are not used. Under the lock."""
        assert self.size is not None
        room = self.size - self.used()
        if room >= wanted:
            return room
        for other in sorted(self.datasets(), key=_opened):
            if other != folder and room < wanted:
                size = read_used(other)
                if remove_unused(other):
                    room += size
        return room

    def close(self) -> None:
        """Closes the lock's file."""
        self.lock.close()


def _opened(folder: Path) -> float:
    """When a dataset was last opened."""
    try:
        return (folder / DATASET).stat().st_mtime
    except OSError:
        return 0.0


def remove_unused(folder: Path) -> bool:
    """Removes a dataset's cache unless a process uses it. Under the folder's lock. Returns whether it is gone."""
    users = LockFile(folder / "users")
    try:
        if not users.exclusive():
            return False
        doomed = folder.with_name(f".removed-{os.getpid()}-{folder.name}")
        os.rename(folder, doomed)
        shutil.rmtree(doomed, ignore_errors=True)
        return True
    except OSError:
        return False
    finally:
        users.close()


def read_used(folder: Path) -> int:
    """Bytes that a dataset was granted; a file that does not say so counts as its size on the disk."""
    try:
        data = (folder / "used").read_bytes()
    except OSError:
        return 0
    return int.from_bytes(data, "little") if len(data) == _NUMBER else on_disk(folder)


def write_used(folder: Path, used: int) -> None:
    """Notes them, in one write: a kill leaves the old number or the new one."""
    file = os.open(folder / "used", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        os.pwrite(file, used.to_bytes(_NUMBER, "little"), 0)
    finally:
        os.close(file)


def on_disk(folder: Path) -> int:
    """Bytes that the files of a folder take on the disk."""
    total = 0
    for entry in os.scandir(folder):
        try:
            total += entry.stat(follow_symlinks=False).st_blocks * 512
        except OSError:  # noqa: PERF203
            continue
    return total


def described(folder: Path) -> str:
    """The URL of a dataset's cache, without secrets; "" where its file does not say."""
    try:
        found = json.loads((folder / DATASET).read_bytes())
        return shown(str(found["url"]))
    except (OSError, ValueError, KeyError, TypeError):
        return ""
