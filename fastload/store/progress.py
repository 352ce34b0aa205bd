"""Files of an unfinished dataset: the journal, the sample log and the lock, and all names that fastload
writes into a dataset's folder.

`Journal` is the description in progress.json, with which a pack goes on after a kill. `SampleLog` is the file
progress.samples: its entries let a resume check that the source has not changed. The journal holds the valid
length of that file, and its checksum; later entries belong to an unfinished shard. The lock on the folder, by
which a dataset has one writer at a time, ends with the process, however that ends.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from typing_extensions import Self

from fastload._native import core
from fastload.common.files import open_regular, read_regular
from fastload.errors import DatasetError, PackError
from fastload.store import checked
from fastload.store.checked import Bad, get_int, get_list, get_object
from fastload.store.entries import COUNT_LIMIT, SHARD_NAME, SIDE_NAME
from fastload.store.lists import FOLDER
from fastload.store.manifest import (
    CLUSTER_FORMAT,
    JOURNAL_NAME,
    LOST,
    MANIFEST_BYTES,
    MANIFEST_NAME,
    VERSION_NAME,
    Manifest,
    can_go_on,
    check_version,
    is_pull,
    sync_folder,
    write_atomically,
)
from fastload.store.schema import Schema

if sys.platform != "win32":  # where nothing calls what needs it
    import fcntl

SHARD_SIZE_LIMIT = 1 << 40

_FORMAT = "fastload-progress"
_VERSION = 1


@dataclass(frozen=True)
class CompleteShard:
    """A closed shard that has to be synced and added to the journal."""

    file: str
    first: int
    key: int
    count: int
    columns: dict[str, int]
    state: dict[str, Any]
    noted: bytes


@dataclass(frozen=True)
class Journal:
    """Content of progress.json, as JSON values. NOTE [ writer: what is durable when ] says when it is
    written.

    Attributes:
        schema: the fields of every sample.
        options: the options of the pack.
        shard_size: bytes after which a new shard begins.
        shards: the complete shards, as the manifest stores them.
        state: the packer's own state, with which it goes on.
        log: length and checksum of progress.samples.
        objects: for a pack to a URL: size, ETag and section of the objects that the shards have become, by
            name.
    """

    schema: object
    options: Mapping[str, Any]
    shard_size: int
    shards: Sequence[object]
    state: Mapping[str, Any]
    log: object
    objects: Mapping[str, Any] = field(default_factory=dict)

    def write(self, folder: Path, durable: bool = True) -> None:
        """Writes it into a folder, by rename. Raises OSError."""
        content = {
            "format": _FORMAT,
            "version": _VERSION,
            "schema": self.schema,
            "options": dict(self.options),
            "shard_size": self.shard_size,
            "shards": list(self.shards),
            "state": dict(self.state),
            "log": self.log,
            **({"objects": dict(self.objects)} if self.objects else {}),
        }
        write_atomically(folder / JOURNAL_NAME, checked.seal(content), durable)

    @classmethod
    def load(cls, folder: Path) -> Journal:
        """The journal in a folder.

        Raises:
            DatasetError: it is of a later version, or damaged.
            PackError: it is that of a pack on a cluster.
            Bad: a value is not of its type.
            OSError: it cannot be read.
        """
        path = folder / JOURNAL_NAME
        content = checked.parse(read_regular(path, MANIFEST_BYTES), str(path))
        if is_cluster(content):
            raise PackError(
                f"{folder} was begun on a cluster: go on with ray= (--ray), or --overwrite starts again"
            )
        check_version(content, _FORMAT, _VERSION, str(path))
        content = checked.unseal(content, str(path))
        return cls(
            schema=content.get("schema"),
            options=get_object(content.get("options"), "the options"),
            shard_size=get_int(content.get("shard_size"), "the shard size", 1, SHARD_SIZE_LIMIT),
            shards=get_list(content.get("shards"), "the shard list"),
            state=get_object(content.get("state"), "the packer's state"),
            log=content.get("log"),
            objects=get_object(content.get("objects", {}), "the objects"),
        )


def is_cluster(content: Mapping[str, Any]) -> bool:
    """Returns True if a journal's content is that of a pack on a cluster."""
    return content.get("format") == CLUSTER_FORMAT


Begun = tuple[object, Mapping[str, Any], int]
"""Schema, options and shard size of a pack, as the journal has them."""


def check_same(title: str, begun: Begun, now: Begun, varying: Collection[str]) -> None:
    """Checks that a pack is resumed as it was begun.

    Raises:
        PackError: the fields differ, or an option that is not in `varying`.
    """
    if begun[0] != now[0]:
        raise PackError(
            f"{title} was begun with other fields, so it cannot be resumed: --overwrite starts again"
        )
    before, after = ({**options, "shard_size": size} for _, options, size in (begun, now))
    for name in sorted((before.keys() | after.keys()) - set(varying)):
        if before.get(name) != after.get(name):
            raise PackError(
                f"{title} was begun with {name}={before.get(name)!r}, now it is {after.get(name)!r}: "
                "resume with the same options, or --overwrite starts again"
            )


class LockedError(PackError):
    """Another process, or another writer in this one, is writing to the folder."""


def lock_folder(folder: Path) -> int:
    """Opens and locks a folder; the lock holds until the returned descriptor is closed.

    Raises:
        OSError: the folder cannot be opened.
        LockedError: another process, or another writer in this one, holds the lock.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise LockedError(f"another process is writing to {folder}; wait until it is done") from None
    except OSError:
        pass  # some network file systems do not support locks
    return descriptor


def claim_folder(folder: Path) -> int:
    """Creates a folder to write a dataset to, if it does not exist, and locks it as `lock_folder` does.

    Raises:
        PackError: there is a file, the folder cannot be made, or another writer holds the lock.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return lock_folder(folder)
    except FileExistsError:
        raise PackError(f"{folder} is a file; choose another OUT") from None
    except OSError as error:
        raise PackError(f"cannot make the folder {folder}: {error.strerror}") from None


class HoldsLock:
    """The holder of a folder's lock until `close`, or the end of a ``with`` block."""

    _lock: int

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Releases the lock; idempotent."""
        lock, self._lock = self._lock, -1  # first: Ctrl-C may come in between
        if lock >= 0:
            os.close(lock)


LOG_NAME = "progress.samples"
_BLOCK = 1 << 20


class LoggedEntries:
    """The entries of a sample log that a journal covers, read from the file. A writer appends to the file,
    and changes none of them."""

    def __init__(self, descriptor: int = -1, size: int = 0) -> None:
        """`descriptor`: the open file, which is closed with this object; -1 for no entries."""
        self._descriptor = descriptor
        self._size = size

    def __len__(self) -> int:
        return self._size

    def read(self, offset: int, size: int) -> bytes:
        """The bytes of a range, which must be there. Raises OSError."""
        data = os.pread(self._descriptor, size, offset) if size else b""
        while len(data) < size:
            more = os.pread(self._descriptor, size - len(data), offset + len(data))
            if not more:
                raise OSError(errno.EIO, f"{LOG_NAME} has lost its end")
            data += more
        return data

    def __del__(
        self, close: Callable[[int], None] = os.close
    ) -> None:  # a default, since at the program's end `os` may be gone
        if getattr(self, "_descriptor", -1) >= 0:
            close(self._descriptor)


class SampleLog:
    """Log of packed samples, a file in the dataset's folder.

    The thread that appends samples calls `note` and `cut`; the thread that completes shards calls `extend`.

    Attributes:
        content: the entries that the journal covered when the dataset was opened for a resume; none
            otherwise.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOG_NAME
        self._pending = bytearray()
        self._size = 0
        self._crc = 0
        self.content = LoggedEntries()

    def note(self, entry: bytes) -> None:
        """Adds an entry, which is stored with the shard of the next sample."""
        self._pending += entry

    def cut(self) -> bytes:
        """Returns the entries added since the last call."""
        entries = bytes(self._pending)
        self._pending.clear()
        return entries

    def extend(self, entries: bytes) -> None:
        """Appends entries to the file and syncs it, so that a journal may name them. Raises OSError."""
        if entries:
            if not self._size:
                self.remove()
            with open(self._path, "r+b" if self._size else "xb") as file:
                file.truncate(self._size)
                file.seek(self._size)
                file.write(entries)
                file.flush()
                os.fsync(file.fileno())
        self._size += len(entries)
        self._crc = core.crc32c(entries, self._crc)

    def to_json(self) -> dict[str, int]:
        """The length and checksum of the file, for the journal."""
        return {"bytes": self._size, "crc32c": self._crc}

    def load(self, value: object) -> None:
        """Reads the file, and checks it against the journal's length and checksum.

        Raises:
            Bad: the file does not match.
            OSError: it cannot be read.
        """
        stored = get_object({"bytes": 0, "crc32c": 0} if value is None else value, "the log of samples")
        size = get_int(stored.get("bytes"), "the size of the log of samples", 0, COUNT_LIMIT)
        crc = get_int(stored.get("crc32c"), "the checksum of the log of samples", 0, 2**32 - 1)
        content = LoggedEntries()
        found = 0
        if size:
            content = LoggedEntries(open_regular(self._path)[0], size)
            if os.stat(self._path).st_size < size:
                raise Bad(f"{LOG_NAME} is not of the size and checksum that it names")
            for offset in range(0, size, _BLOCK):
                found = core.crc32c(content.read(offset, min(_BLOCK, size - offset)), found)
        if found != crc:
            raise Bad(f"{LOG_NAME} is not of the size and checksum that it names")
        self._size, self._crc, self.content = size, crc, content

    def remove(self) -> None:
        """Removes the file. Raises OSError."""
        self._path.unlink(missing_ok=True)


WORK_NAME = "append.tmp"
"""The folder, inside a dataset's, into which the source of an append is packed."""
DONE_NAME = "append.old"
"""Name of that folder once its samples were added: it is only to be removed."""
PART_END = ".part"
"""End of the name of a data file that is being downloaded."""

_OF_TASKS = re.compile(r"(shard-[0-9]{5,9}\.(lmdb|done|section)|progress\.json)(\.[0-9a-f]{16}\.part)?")
"""Names of what the tasks and the driver of a pack on a cluster write, and of what is not complete of it."""

_OURS = frozenset(
    {LOG_NAME}.union(name + end for name in (MANIFEST_NAME, JOURNAL_NAME) for end in ("", ".tmp"))
)


def is_packed_file(name: str) -> bool:
    """Returns True if a file has the name of one that fastload writes into a dataset's folder."""
    if VERSION_NAME.fullmatch(name.removesuffix(".tmp")):
        return True
    return (
        name in _OURS
        or _OF_TASKS.fullmatch(name) is not None
        or any(pattern.fullmatch(name.removesuffix(PART_END)) for pattern in (SHARD_NAME, SIDE_NAME))
    )


def check_free(folder: Path, title: str, *, resume: bool, overwrite: bool) -> None:
    """Checks that a dataset may be made in a folder; `title` names it in messages.

    Raises:
        PackError: the folder holds other files only, or a dataset or parts of one where neither is to be
            resumed or overwritten.
    """
    names = sorted(os.listdir(folder))
    ours = [name for name in names if is_packed_file(name)]
    if names and not ours:
        raise PackError(
            f"{folder} exists and holds other files ({names[0]}, ...), which are left alone; choose "
            "another OUT"
        )
    # A kill in the first write leaves no more.
    if resume or overwrite or all(name.endswith((".tmp", PART_END)) for name in ours):
        return
    if MANIFEST_NAME in ours:
        raise PackError(
            f"{title} already holds a packed dataset; --overwrite replaces it, or choose another OUT"
        )
    if not can_go_on(folder):
        raise PackError(f"{title} {LOST}; --overwrite packs it again")
    if is_pull(folder):
        raise PackError(
            f"{title} holds an unfinished download: `fastload pull` goes on with it, --overwrite replaces it"
        )
    raise PackError(f"{title} holds an unfinished pack: --resume finishes it, --overwrite starts again")


def clear(folder: Path) -> None:
    """Removes a dataset's files: the manifest first, so that there never is a manifest without its shards.

    Raises:
        OSError: a file cannot be removed.
        PackError: as `remove_work`.
    """
    names, images = [name for name in os.listdir(folder) if is_packed_file(name)], folder / FOLDER
    lists = images.is_dir() and _has_lists(folder)
    for name in sorted(names, key=lambda name: (name != MANIFEST_NAME, name)):
        (folder / name).unlink()
    remove_appends(folder)
    if lists:
        clear(images)
        with suppress(OSError):  # other files, which are left alone
            images.rmdir()
    sync_folder(folder)


def _has_lists(folder: Path) -> bool:
    """True if a dataset, finished or not, has lists of images. Otherwise what lies where these would be is
    not its own."""
    with suppress(DatasetError):
        return Manifest.load(folder).schema.images is not None
    with suppress(PackError, DatasetError, Bad, OSError):
        return Schema.from_json(Journal.load(folder).schema).images is not None
    return False


def remove_appends(dataset: Path) -> None:
    """Removes what appends that were stopped have left in a dataset's folder. Raises PackError as
    `remove_work` does."""
    for name in (WORK_NAME, DONE_NAME):
        remove_work(dataset / name)


def remove_work(folder: Path) -> None:
    """Removes a folder in which an append was packed, where there is one.

    Raises:
        PackError: it holds other files, or cannot be removed.
    """
    try:
        if folder.is_symlink():
            folder.unlink()
        if not folder.is_dir():
            return
        for name in sorted(os.listdir(folder), key=lambda name: (name != MANIFEST_NAME, name)):
            if is_packed_file(name):
                (folder / name).unlink()
        folder.rmdir()
    except OSError as error:
        raise PackError(
            f"cannot remove {folder}, which an append left: {error.strerror}; move it elsewhere"
        ) from None
