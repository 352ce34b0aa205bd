"""IndexCache: facts about image files that were learnt when they were first read, kept on disk for the next
run.

NOTE [ index cache: the file ]
One file for each list of paths, or of places in them, and one for the images that a Dataset of Python opens,
named by a hash of what it is for, little-endian:
  8 bytes   "FLINDEX2"
  u64       count of images, as in the list
  u64       bytes of all indexes
  u32, u32  CRC32C of all that follows; zero
  count x   u64 stamp (0: the image is not known), u32 size of its index, 0 for none
  the indexes, one after another.
The stamp of a listed file is that of csrc/store/files.h. Of an image that is opened it is the key of its
bytes (csrc/engine/shm_indexes.h): the order of entries then has no meaning.
The file is replaced by rename. A writer first copies entries that another process has put there since, so
that ranks add to each other's. Nothing depends on it: a file counts as missing if it is damaged, of another
list, unreadable, a link, or another user's in a folder that everybody may write. An entry whose stamp differs
is proved anew.
"""

from __future__ import annotations

import hashlib
import logging
import os
import struct
import tempfile
import time
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.common.files import expanded, open_entry, open_folder
from fastload.common.system import available_memory
from fastload.errors import ArgumentError

_MAGIC = b"FLINDEX2"
"""Changes where other files count as sound: those of FLINDEX1 may be such as NOTE [ jpeg: files that
decoders smooth ] describes."""
_HEADER = struct.Struct("<8sQQII")
_ENTRY = np.dtype([("stamp", "<u8"), ("size", "<u4")])
_NEW = ".new"
_STALE_S = 3600.0
_MOST = 1 << 32
"""Bytes of a cache file that are read."""


class Learnt(Protocol):
    """Facts about images, by a number that stands for the image as it is, its stamp."""

    def learnt(self) -> tuple[int, int]:
        """(files, bytes): how many entropy indexes are held, and the memory that they take."""

    def export(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint32], bytes]:
        """(stamps, sizes, indexes): of each image its stamp, and the size of its index; the bytes of the
        indexes, all in one."""

    def learn(self, stamps: npt.NDArray[np.uint64], sizes: npt.NDArray[np.uint32], indexes: bytes) -> None:
        """Takes over what export() gave, where nothing is known yet."""


class IndexCache:
    """The cache file of some images. See NOTE [ index cache: the file ].

    Args:
        folder: folder of cache files; it is made if it is missing.
        purpose: bytes that distinguish these images from others.
        count: number of images; None: any.

    Raises:
        ArgumentError: the folder is a file, or cannot be made.
    """

    def __init__(self, folder: str | os.PathLike[str], purpose: bytes, count: int | None) -> None:
        self._folder = Path(expanded(folder)).absolute()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ArgumentError(
                f"index_cache={os.fspath(folder)!r}: the folder cannot be made: {error.strerror}"
            ) from error
        digest = hashlib.blake2b(purpose, digest_size=16).hexdigest()
        self.path = self._folder / f"{digest}.index"
        self._count, self._saved = count, 0

    def load(self, files: Learnt) -> None:
        """Takes over what the cache file holds of these files; nothing where there is none that holds."""
        found = self._read()
        if found is not None:
            files.learn(*found)
        self._saved = files.learnt()[0]

    def save(self, files: Learnt) -> None:
        """Writes what is learnt by now, where that is more than what was written; a disk that refuses is
        told once by the log."""
        if files.learnt()[0] <= self._saved:
            return
        self.load(files)  # facts that other processes learnt
        stamps, sizes, indexes = files.export()
        entries = np.empty(len(stamps), _ENTRY)
        entries["stamp"], entries["size"] = stamps, sizes
        table = entries.tobytes()
        header = _HEADER.pack(_MAGIC, len(stamps), len(indexes), core.crc32c(indexes, core.crc32c(table)), 0)
        try:
            self._replace((header, table, indexes))
        except OSError as error:
            logging.getLogger("fastload").warning(
                "index_cache: %s cannot be written: %s", self.path, error.strerror
            )
        self._saved = files.learnt()[0]

    def _replace(self, parts: tuple[bytes, ...]) -> None:
        for left in self._folder.glob(f"{self.path.stem}*{_NEW}"):  # by a process that was killed
            if time.time() - left.lstat().st_mtime > _STALE_S:
                left.unlink(missing_ok=True)
        handle, name = tempfile.mkstemp(dir=self._folder, prefix=self.path.stem, suffix=_NEW)
        try:
            with open(handle, "wb") as file:
                for part in parts:
                    file.write(part)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, self.path)
        except BaseException:
            os.unlink(name)
            raise

    def _read(self) -> tuple[np.ndarray, np.ndarray, bytes] | None:
        try:
            folder = open_folder(self._folder)
            try:
                with open(open_entry(folder, self.path.name, os.O_RDONLY), "rb") as file:
                    data = file.read(_MOST + 1)
            finally:
                os.close(folder)
        except OSError:
            return None
        if len(data) > _MOST:
            return None
        if len(data) < _HEADER.size:
            return None
        magic, count, size, crc, _ = _HEADER.unpack_from(data)
        end = _HEADER.size + count * _ENTRY.itemsize
        if (
            magic != _MAGIC
            or self._count not in (None, count)
            or len(data) != end + size
            or core.crc32c(memoryview(data)[_HEADER.size :]) != crc
        ):
            return None
        entries = np.frombuffer(data, _ENTRY, count, _HEADER.size)
        if int(entries["size"].sum(dtype=np.uint64)) != size:
            return None
        return entries["stamp"].astype(np.uint64), entries["size"].astype(np.uint32), data[end:]


_INDEX_SHARE = 32
_INDEX_LEAST, _INDEX_USUAL, _INDEX_MOST = 16 << 20, 256 << 20, 4 << 30


def index_room() -> int:
    """Memory for the entropy indexes of a dataset, bytes: a 32nd of what is free. A JPEG of 100 KB has an
    index of about 1.4 KB."""
    free = available_memory()
    return _INDEX_USUAL if free is None else min(max(free // _INDEX_SHARE, _INDEX_LEAST), _INDEX_MOST)
