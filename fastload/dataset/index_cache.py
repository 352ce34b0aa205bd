"""IndexCache: entropy indexes of the JPEGs that a Dataset of Python opens, kept in a cache folder for the
next run.

NOTE [ index cache: the file ]
One file in a folder of the dataset's, little-endian:
  8 bytes   "FLINDEX2"
  u64       count of images
  u64       bytes of all indexes
  u32, u32  CRC32C of all that follows; zero
  count x   u64 key of an image's bytes (csrc/engine/shm_indexes.h), u32 size of its index
  the indexes, one after another; the order of entries has no meaning.
The file is replaced by rename. A writer first copies entries that another process has put there since, so
that ranks add to each other's. Nothing depends on it: a file counts as missing if it is damaged or
unreadable.
"""

from __future__ import annotations

import os
import struct
from urllib.parse import quote

import numpy as np

from fastload._native import core
from fastload.common.system import available_memory
from fastload.remote.cache_folder import count_anew
from fastload.remote.kept_table import CachePlace, FilesFolder
from fastload.remote.shared_files import dataset_folder, open_in_dataset, replace_file

_MAGIC = b"FLINDEX2"
"""Changes where other files count as sound: those of FLINDEX1 may be such as NOTE [ jpeg: files that
decoders smooth ] describes."""
_HEADER = struct.Struct("<8sQQII")
_ENTRY = np.dtype([("key", "<u8"), ("size", "<u4")])
_FILE = "facts.index"
_MOST = 1 << 32
"""Bytes of a cache file that are read."""


KIND = "indexes"
"""Distinguishes the folders of images that datasets open."""


_SCHEME = "opened://"


def url_of(purpose: str) -> str:
    """The name in a cache of the images that a dataset opens."""
    return f"{_SCHEME}{quote(purpose)}"


def is_opened(url: str) -> bool:
    """Returns True for a name that url_of() has made."""
    return url.startswith(_SCHEME)


class IndexCache:
    """The cache file of the images that a dataset opens. See NOTE [ index cache: the file ].

    Args:
        place: the cache folder.
        purpose: distinguishes these images from others; `fastload cache` shows it.

    Raises:
        ArgumentError: the cache folder is none.
        DatasetError: another host, or another user, has it.
    """

    def __init__(self, place: CachePlace, purpose: str) -> None:
        self._folder = FilesFolder(place, url_of(purpose), KIND)
        self.path = self._folder.path / _FILE
        self._saved = 0
        self._folder.root.warn()

    def load(self, indexes: core.SharedIndexes) -> None:
        """Takes over what the cache file holds; nothing where there is none that holds."""
        found = self._read()
        if found is not None:
            indexes.learn(*found)
        self._saved = indexes.learnt()[0]

    def save(self, indexes: core.SharedIndexes) -> None:
        """Writes what is learnt by now, where that is more than what was written; a disk that refuses is
        told once by a warning."""
        root = self._folder.root
        if indexes.learnt()[0] <= self._saved or not root.writable:
            return
        self.load(indexes)  # facts that other processes learnt
        keys, sizes, bytes_ = indexes.export()
        entries = np.empty(len(keys), _ENTRY)
        entries["key"], entries["size"] = keys, sizes
        table = entries.tobytes()
        header = _HEADER.pack(_MAGIC, len(keys), len(bytes_), core.crc32c(bytes_, core.crc32c(table)), 0)
        data = b"".join((header, table, bytes_))
        try:
            with root.lock.held():
                if root.grant(self._folder.path, len(data), len(data)):
                    with dataset_folder(self._folder.path) as opened:
                        replace_file(opened, _FILE, data)
                    count_anew(self._folder.path)
        except OSError as error:
            root.give_up(error)
            root.warn()
        self._saved = indexes.learnt()[0]

    def _read(self) -> tuple[np.ndarray, np.ndarray, bytes] | None:
        try:
            with open(open_in_dataset(self.path, os.O_RDONLY), "rb") as file:
                data = file.read(_MOST + 1)
        except OSError:
            return None
        if not _HEADER.size <= len(data) <= _MOST:
            return None
        magic, count, size, crc, _ = _HEADER.unpack_from(data)
        end = _HEADER.size + count * _ENTRY.itemsize
        if magic != _MAGIC or len(data) != end + size or core.crc32c(memoryview(data)[_HEADER.size :]) != crc:
            return None
        entries = np.frombuffer(data, _ENTRY, count, _HEADER.size)
        if int(entries["size"].sum(dtype=np.uint64)) != size:
            return None
        return entries["key"].astype(np.uint64), entries["size"].astype(np.uint32), data[end:]


_INDEX_SHARE = 32
_INDEX_LEAST, _INDEX_USUAL, _INDEX_MOST = 16 << 20, 256 << 20, 4 << 30


def index_room() -> int:
    """Memory for the entropy indexes of a dataset, bytes: a 32nd of what is free. A JPEG of 100 KB has an
    index of about 1.4 KB."""
    free = available_memory()
    return _INDEX_USUAL if free is None else min(max(free // _INDEX_SHARE, _INDEX_LEAST), _INDEX_MOST)
