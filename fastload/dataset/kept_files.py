"""KeptFiles: the part of a cache folder that keeps image files in place for later epochs and runs: what was
learnt of them, forms that decode faster, and the bytes of those that lie on a slow disk. See NOTE [ kept: one
folder for the files of a place ]."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.common.system import hosts_of_job
from fastload.dataset.kept_folder import cut_logs
from fastload.remote.cache_folder import count_anew
from fastload.remote.kept_table import HASH, CachePlace, KeptTable
from fastload.remote.shared_files import dataset_folder, open_in_dataset, replace_file

_SLAB, _SLOW_SLAB = 64 << 20, 256 << 20
"""Bytes of one grant, for facts and forms and for files: what a second may write."""
_CUT_SHARE = 100
"""Time for which logs are not cut after a look, in terms of the time that it took."""
_LOCAL = core.KEEP_FORMS
"""Kept of files on a disk of this host."""
PATHS = re.compile(r"([0-9a-f]{32})\.paths")
_BLOCK = 1 << 16
Hashes: TypeAlias = npt.NDArray[np.uint64]


class KeptFiles(KeptTable):
    """Facts and bytes that are kept of the files of one list.

    Args:
        place: the cache folder.
        folder: the deepest folder that has all files.
        listing: bytes that distinguish the list from any other.
        files: the list, of which nothing was read.
        slow: the files' bytes are kept, too.
        paths: makes a hash of each path; None: the images are parts of files.

    Raises:
        ArgumentError, DatasetError: as of KeptTable.
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
        self.slow, self._side = slow, place.side
        self._files, self._paths = files, paths
        digest = hashlib.blake2b(digest_size=16)
        for part in listing:
            digest.update(part)
        slab = _SLOW_SLAB if slow else _SLAB
        url, kind = f"file://{folder}{smaller}", f"files{smaller}"
        local = _LOCAL if place.side is None else core.KEEP_FACTS
        self._keeps = core.KEEP_BYTES if slow else local
        self._forms = 0  # made by this process, when it was last looked
        self._cut_at, self._next_cut = -1, 0.0  # forms when logs were last cut, and the time of the next
        odd = self._keeps == core.KEEP_FORMS or (slow and place.side is not None)
        super().__init__(place, url, kind, digest.hexdigest(), len(files), slab, odd=odd)

    def _begin(self, name: str, is_new: bool) -> None:
        self._files.keep(self._table, self._keeps)
        if is_new and self._paths is not None:
            _adopt(self.path, name, self._paths())
        del self._files, self._paths

    def _give_back(self, now: float) -> None:
        before, self._forms = self._forms, self._table.counts()["forms_put"]
        rests = before == self._forms != self._cut_at  # all are made, or a pause is
        if rests and now >= self._next_cut and len(self._own) > 1:
            self._cut_at = self._forms
            with self.root.lock.held():
                if cut_logs(self.path, self._own[1]):
                    count_anew(self.path)
            self._next_cut = now + _CUT_SHARE * (time.monotonic() - now)

    def report(self) -> str:
        """Text on what is kept, for explain()."""
        if self._kept is None:
            return self._nothing
        facts, whole, forms = self._kept.entries()
        known = f"{facts:,} of {self._count:,} files are known, and "
        if self._side is not None:
            shares = f"{forms:,} of {self._count:,} images are there at {self._side} pixels"
        elif self.slow:
            shares = f"{known}the bytes of {whole:,} are there, which lie on a slow disk"
        else:
            shares = f"{known}{forms:,} are there in a form that decodes faster, made while the loop is busy"
        hosts = hosts_of_job()
        others = f"; each of {hosts} hosts has a folder, with about 1/{hosts} after one epoch" * (hosts > 1)
        return f"{shares}, in {self.path}{others}{self._ends}"


def hash_of(path: str) -> int:
    """The hash of a path, as lists note it."""
    whole = os.fsencode(os.path.abspath(path))
    return int.from_bytes(hashlib.blake2b(whole, digest_size=HASH).digest(), "little")


def hashes_of(folder: Path, name: str) -> Hashes:
    """The hashes of a list's paths; raises OSError."""
    with open(open_in_dataset(folder / f"{name}.paths", os.O_RDONLY), "rb") as file:
        data = file.read()
    return np.frombuffer(data[: len(data) // HASH * HASH], np.uint64)


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
                os.pwrite(ours.fileno(), kept.tobytes(), core.KEPT_HEAD + first * core.KEPT_ROW)
                there.append(rows[block][some])
    return np.concatenate(there)


def _rows_of(file: BinaryIO, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.uint8]:
    """The rows of a table from the least of some to the last; what the file lacks is zero."""
    first, stop = int(rows.min()), int(rows.max()) + 1
    out = np.zeros((stop - first, core.KEPT_ROW), np.uint8)
    data = os.pread(file.fileno(), out.size, core.KEPT_HEAD + first * core.KEPT_ROW)
    out.reshape(-1)[: len(data)] = np.frombuffer(data, np.uint8)
    return out
