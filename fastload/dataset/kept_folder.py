"""Images in place in a cache folder, as `fastload cache` sees them: how many are kept, whether that is whole,
and the room of what no list refers to any more. See NOTE [ kept: one folder for the files of a place ]."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.errors import DatasetError
from fastload.remote.cache_folder import LockFile, count_anew, on_disk
from fastload.remote.kept_table import LOG, TABLE
from fastload.remote.shared_files import dataset_folder, open_in_dataset

_ENTRY = np.dtype([("stamp", "<u8"), ("place", "<u8"), ("size", "<u4"), ("crc", "<u4")])
_LOG_BITS = 16
"""Lowest bits of an entry's place."""
_CHECKED = 20
"""Bytes of an entry that its checksum is of, too: those before it."""
_BLOCK = 1 << 16
"""Entries that are looked at together."""
_Entries: TypeAlias = npt.NDArray[np.void]


class KeptShare(NamedTuple):
    """Images of a list of which something is kept.

    Attributes:
        images: images of the list.
        known: those that are known to be sound.
        whole: those whose files' bytes are kept.
        forms: those that are kept in a form that decodes faster.
    """

    images: int
    known: int
    whole: int
    forms: int


def has_lists(folder: Path) -> bool:
    """True for a dataset's folder of files in place. Raises OSError."""
    return bool(names_of(folder, TABLE))


def shares_of(folder: Path) -> list[KeptShare]:
    """The shares of the lists of a dataset's folder; none of a folder of something else, or one that cannot
    be read."""
    found: list[KeptShare] = []
    with suppress(OSError):
        for name in names_of(folder, TABLE):
            table = folder / name
            with suppress(DatasetError):  # it is no table
                images = _count(table)
                found.append(
                    KeptShare(images, *core.Kept(open_in_dataset(table, os.O_RDONLY), images).entries())
                )
    return found


def verify(folder: Path) -> tuple[int, int]:
    """Reads all that is kept in a dataset's folder, and removes entries whose bytes are damaged or gone.

    Returns:
        Number of entries, and of those that were removed.

    Raises:
        OSError: the folder cannot be read or written.
    """
    checked = damaged = 0
    with _Logs(folder) as logs:
        for table in names_of(folder, TABLE):
            for at, entries in _blocks(folder / table):
                rows = np.flatnonzero(entries["stamp"])
                bad = [row for row in rows.tolist() if logs.bytes_of(entries[row]) is None]
                checked, damaged = checked + len(rows), damaged + len(bad)
                if bad:
                    entries[bad] = np.zeros(1, _ENTRY)
                    _write(folder / table, at, entries)
    return checked, damaged


def prune(folder: Path) -> int:
    """Copies what lists of a dataset's folder refer to into a new log, and removes the others, if no process
    uses the folder. Call it under the lock of the cache folder.

    The copy needs room on the disk. A kill leaves every entry with its old bytes or with the new ones.

    Returns:
        Bytes on the disk that were given back; 0, too, where a process uses the folder.

    Raises:
        OSError: the folder cannot be read or written, or there is no room.
    """
    users = LockFile(folder / "users", open_in_dataset)
    try:
        old = names_of(folder, LOG)
        if not old or not users.exclusive():
            return 0
        before = on_disk(folder)
        number = next(number for number in range(0, core.KEPT_LOGS, 2) if f"{number:05}.log" not in old)
        _copy(folder, number)
        with dataset_folder(folder) as opened:
            for name in old:
                os.unlink(name, dir_fd=opened)
        count_anew(folder)
        return max(before - on_disk(folder), 0)
    except StopIteration:
        return 0  # no number is left for a log
    finally:
        users.close()


def cut_logs(folder: Path, own: int) -> bool:
    """Cuts the odd logs of a dataset's folder to which no entry refers any more. Call it under the lock of
    the cache folder.

    Args:
        folder: the dataset's folder.
        own: number of the one that this process writes. Logs that other processes write are left.

    Returns:
        True if one was cut.

    Raises:
        OSError: the folder cannot be read or written.
    """
    numbers = {int(name[:-4]) for name in names_of(folder, LOG) if (folder / name).stat().st_size}
    numbers = {number for number in numbers if number % 2}
    for table in names_of(folder, TABLE):
        for _, entries in _blocks(folder / table) if numbers else ():
            refer = entries["place"][(entries["stamp"] != 0) & (entries["size"] > 0)]
            numbers -= set(np.unique(refer & np.uint64((1 << _LOG_BITS) - 1)).tolist())
    return bool([number for number in numbers if _cut(folder / f"{number:05}.log", number == own)])


def _cut(log: Path, own: bool) -> bool:
    lock = LockFile(log, open_in_dataset)
    try:
        if own or lock.exclusive():
            lock.resize(0)
            return True
        return False
    finally:
        lock.close()


def _copy(folder: Path, number: int) -> None:
    """Copies all that entries of all tables refer to into log `number`, and has them refer to that."""
    moved: dict[int, int] = {}  # where bytes lie in the new log, by their place before
    end = 0
    descriptor = open_in_dataset(folder / f"{number:05}.log", os.O_RDWR | os.O_CREAT | os.O_EXCL)
    with _Logs(folder) as logs, open(descriptor, "wb") as made:
        for table in names_of(folder, TABLE):
            for at, entries in _blocks(folder / table):
                for row in np.flatnonzero(entries["stamp"]).tolist():
                    entry, data = entries[row], logs.bytes_of(entries[row])
                    if data is None:
                        entries[row] = np.zeros((), _ENTRY)
                        continue
                    place = int(entry["place"])
                    if data and place not in moved:
                        made.write(data)
                        moved[place], end = end, end + len(data)
                    entry["place"] = moved[place] << _LOG_BITS | number if data else number
                    entry["crc"] = _crc(entry, data)
                made.flush()
                os.fsync(made.fileno())
                _write(folder / table, at, entries)


class _Logs:
    """The logs of a dataset's folder, open for reading."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[int, int | None] = {}

    def __enter__(self) -> _Logs:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._open.values():
            if descriptor is not None:
                os.close(descriptor)

    def bytes_of(self, entry: np.void) -> bytes | None:
        """The bytes of an entry; None if they are damaged or gone."""
        offset, number = divmod(int(entry["place"]), 1 << _LOG_BITS)
        size, data = int(entry["size"]), b""
        if size:
            log = self._log(number)
            if log is None or offset + size > os.fstat(log).st_size:
                return None
            data = os.pread(log, size, offset)
        return data if len(data) == size and _crc(entry, data) == int(entry["crc"]) else None

    def _log(self, number: int) -> int | None:
        if number not in self._open:
            self._open[number] = None
            with suppress(OSError):
                self._open[number] = open_in_dataset(self._folder / f"{number:05}.log", os.O_RDONLY)
        return self._open[number]


def _crc(entry: np.void, data: bytes) -> int:
    found: int = core.crc32c(data, core.crc32c(entry.tobytes()[:_CHECKED]))
    return found


def names_of(folder: Path, kind: re.Pattern[str]) -> list[str]:
    """Names of a dataset's folder's files of a kind: tables, logs, lists of paths. Raises OSError."""
    with dataset_folder(folder) as opened:
        return sorted(name for name in os.listdir(opened) if kind.fullmatch(name))


def _count(table: Path) -> int:
    """Images of a table's list. Raises OSError."""
    descriptor = open_in_dataset(table, os.O_RDONLY)
    try:
        return int.from_bytes(os.pread(descriptor, 8, 8), "little")
    finally:
        os.close(descriptor)


def _blocks(table: Path) -> Iterator[tuple[int, _Entries]]:
    """The entries of a table, whole rows at a time, with the place of the first in the file; none of a file
    that is no table. Raises OSError."""
    at = core.KEPT_HEAD
    with open(open_in_dataset(table, os.O_RDONLY), "rb") as file:
        if file.read(at)[: len(core.KEPT_MAGIC)] != core.KEPT_MAGIC:
            return
        end = os.fstat(file.fileno()).st_size  # what is written back may make it longer
        while at < end and (data := os.pread(file.fileno(), min(_BLOCK * core.KEPT_ROW, end - at), at)):
            row = bytearray(
                data + bytes(-len(data) % core.KEPT_ROW)
            )  # nobody may have written all of the last
            yield at, np.frombuffer(row, _ENTRY)
            at += len(row)


def _write(table: Path, at: int, entries: _Entries) -> None:
    descriptor = open_in_dataset(table, os.O_WRONLY)
    try:
        os.pwrite(descriptor, entries.tobytes(), at)
    finally:
        os.close(descriptor)
