"""KeptBytes: the bytes of image files on a slow disk, as loaders kept them in a cache folder, for who reads
these files in another way."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.common.files import expanded, read_regular
from fastload.dataset.kept_files import PATHS, Hashes, hash_of, hashes_of
from fastload.dataset.kept_folder import names_of
from fastload.errors import ArgumentError, DatasetError
from fastload.remote.cache_folder import CacheFolder, LockFile, default_folder
from fastload.remote.kept_table import LOG
from fastload.remote.shared_files import open_in_dataset


class _List(NamedTuple):
    """The files of one list: what is kept of them, hashes of their paths with the order that sorts them, and
    which were read."""

    kept: core.Kept
    hashes: Hashes
    order: npt.NDArray[np.intp]
    taken: npt.NDArray[np.bool_]


class KeptBytes:
    """The bytes of image files that are kept in a cache folder. Any thread.

    Its folders count as used, and stay, until close().

    Args:
        cache: the cache folder.

    Attributes:
        taken: number of files that were read from it.

    Raises:
        ArgumentError: there is no such folder.
        DatasetError: another user has it.
    """

    def __init__(self, cache: str | os.PathLike[str]) -> None:
        folder = default_folder() if cache == "auto" else Path(expanded(cache))
        if not folder.is_dir():
            raise ArgumentError(f"from_cache={os.fspath(cache)!r} is no folder: name the cache= of a loader")
        self._held = ExitStack()
        self._lists: list[_List] = []
        root = self._held.enter_context(closing(CacheFolder(folder)))
        for each in root.datasets():
            users = self._held.enter_context(closing(LockFile(each / "users", open_in_dataset)))
            with suppress(OSError):  # a dataset of another kind, or one that is being removed
                if users.shared():
                    self._lists += _lists_of(each)

    @property
    def taken(self) -> int:
        return sum(int(each.taken.sum()) for each in self._lists)

    def read(self, path: str) -> bytes:
        """The bytes of a file, kept or read. Raises OSError."""
        found = self._find(path)
        return read_regular(path) if found is None else found

    def _find(self, path: str) -> bytes | None:
        stamp, wanted = core.content_stamp(os.fsencode(path)), np.uint64(hash_of(path))
        for kept, hashes, order, taken in self._lists if stamp else ():
            at = int(np.searchsorted(hashes, wanted, sorter=order))
            row = int(order[min(at, len(order) - 1)])
            if hashes[row] == wanted and (found := kept.bytes_of(row, stamp)) is not None:
                taken[row] = True
                return found
        return None

    def close(self) -> None:
        """Lets go of the folders; idempotent."""
        self._held.close()


def _lists_of(folder: Path) -> Iterator[_List]:
    """The lists of whole files in a dataset's folder. Raises OSError."""
    logs = names_of(folder, LOG)
    for name in (each.removesuffix(".paths") for each in names_of(folder, PATHS)):
        hashes = hashes_of(folder, name)
        if not len(hashes):
            continue
        with suppress(DatasetError):  # the table is none
            kept = core.Kept(open_in_dataset(folder / f"{name}.table", os.O_RDONLY), len(hashes))
            for log in logs:
                kept.add_log(int(log.removesuffix(".log")), open_in_dataset(folder / log, os.O_RDONLY))
            yield _List(kept, hashes, np.argsort(hashes), np.zeros(len(hashes), bool))
