"""ListedImages: the images of a dataset in place, as the engine has them, and the facts learnt of them.
IndexCache: these facts, kept on disk for the next run.

NOTE [ index cache: the file ]
One file for each list of paths, or of places in them, named by a hash of it, little-endian:
  8 bytes   "FLINDEX2"
  u64       count of images, as in the list
  u64       bytes of all indexes
  u32, u32  CRC32C of all that follows; zero
  count x   u64 stamp (csrc/store/files.h; 0: the image is not known), u32 size of its index, 0 for none
  the indexes, one after another.
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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.common.files import expanded, open_entry, open_folder
from fastload.common.positions import evenly_spaced
from fastload.common.system import available_memory
from fastload.dataset.in_place.formats import NATIVE, START, formats, is_native, suffixes
from fastload.dataset.in_place.known import NotInPlaceError
from fastload.errors import ArgumentError, FastloadError

_MAGIC = b"FLINDEX2"
"""Changes where other files count as sound: those of FLINDEX1 may be such as NOTE [ jpeg: files that
decoders smooth ] describes."""
_HEADER = struct.Struct("<8sQQII")
_ENTRY = np.dtype([("stamp", "<u8"), ("size", "<u4")])
_NEW = ".new"
_STALE_S = 3600.0
_MOST = 1 << 32
"""Bytes of a cache file that are read."""


class IndexCache:
    """The cache file of one list of image files.

    Args:
        folder: folder of cache files; it is made if it is missing.
        prefix, names: the paths of the list, as core.Files takes them.
        places: bytes that distinguish it from other lists of the same paths.

    Raises:
        ArgumentError: the folder is a file, or cannot be made.
    """

    def __init__(
        self, folder: str | os.PathLike[str], prefix: bytes, names: bytes, places: bytes = b""
    ) -> None:
        self._folder = Path(expanded(folder)).absolute()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ArgumentError(
                f"index_cache={os.fspath(folder)!r}: the folder cannot be made: {error.strerror}"
            ) from error
        digest = hashlib.blake2b(
            b"\0".join((prefix, names, *([places] if places else []))), digest_size=16
        ).hexdigest()
        self.path = self._folder / f"{digest}.index"
        self._saved = 0

    def load(self, files: core.Files) -> None:
        """Takes over what the cache file holds of these files; nothing where there is none that holds."""
        found = self._read(len(files))
        if found is not None:
            files.learn(*found)
        self._saved = files.learnt()[0]

    def save(self, files: core.Files) -> None:
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

    def _read(self, count: int) -> tuple[np.ndarray, np.ndarray, bytes] | None:
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
        magic, files, size, crc, _ = _HEADER.unpack_from(data)
        end = _HEADER.size + count * _ENTRY.itemsize
        if (
            magic != _MAGIC
            or files != count
            or len(data) != end + size
            or core.crc32c(memoryview(data)[_HEADER.size :]) != crc
        ):
            return None
        entries = np.frombuffer(data, _ENTRY, count, _HEADER.size)
        if int(entries["size"].sum(dtype=np.uint64)) != size:
            return None
        return entries["stamp"].astype(np.uint64), entries["size"].astype(np.uint32), data[end:]


_SAMPLED = 200
"""Images that are looked at to tell how many of all are native."""
_INDEX_SHARE = 32
_INDEX_LEAST, _INDEX_USUAL, _INDEX_MOST = 16 << 20, 256 << 20, 4 << 30
BLOCK = 4096


@dataclass(frozen=True, eq=False)
class Places:
    """Images that are parts of files.

    Attributes:
        stamps: for each path, the stamp (core.file_stamp) that its file must have; 0: any.
        offsets, sizes: place of each image in its file, bytes; size 0, offset 0: the whole file.
        numbers: for each image, the number of its path.
    """

    stamps: npt.NDArray[np.uint64]
    offsets: npt.NDArray[np.uint64]
    sizes: npt.NDArray[np.uint32]
    numbers: npt.NDArray[np.uint32]

    def key(self) -> bytes:
        """Bytes that distinguish the list from another of the same paths."""
        return b"".join(
            np.ascontiguousarray(each).tobytes() for each in (self.offsets, self.sizes, self.numbers)
        )


class ListedImages:
    """The images of a dataset: made for the engine on first use; a dataset and its snapshots share them, and
    the facts learnt of them.

    Args:
        paths: paths of the files.
        cache: folder of the index caches; None: facts stay in memory.
        places: places of the images in the files; None: each file is one image.
    """

    def __init__(
        self, paths: Sequence[str], cache: str | os.PathLike[str] | None, places: Places | None = None
    ) -> None:
        self.paths = paths
        self.places = places
        self._folder = cache
        self.room = _index_room()
        self._cache: IndexCache | None = None
        self._files: core.Files | None = None

    def __len__(self) -> int:
        return len(self.paths) if self.places is None else len(self.places.sizes)

    @property
    def files(self) -> core.Files:
        """The list, with what the index cache holds of it."""
        if self._files is None:
            first, last = (min(self.paths), max(self.paths)) if self.paths else ("", "")
            prefix = first[
                : next(
                    (at for at, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]),
                    len(first),
                )
            ]
            names = bytearray()
            # A million short texts at once would take more memory than all else.
            for start in range(0, len(self.paths), BLOCK):
                block = [path[len(prefix) :] + "\0" for path in self.paths[start : start + BLOCK]]
                names += os.fsencode("".join(block))
            places = (
                None
                if self.places is None
                else (self.places.stamps, self.places.offsets, self.places.sizes, self.places.numbers)
            )
            kinds = [each.kind for each in formats()]
            self._files = core.Files(
                os.fsencode(prefix), bytes(names), len(self.paths), self.room, places, kinds
            )
            if self._folder is not None:
                key = b"" if self.places is None else self.places.key()
                self._cache = IndexCache(self._folder, os.fsencode(prefix), bytes(names), key)
                self._cache.load(self._files)
        return self._files

    def path(self, index: int) -> str:
        """The path of the file that holds image index."""
        return self.paths[index if self.places is None else int(self.places.numbers[index])]

    def longer_sides(self, most: int) -> list[int]:
        """Longer sides of at most so many images, evenly spaced; of files that native threads do not
        decode, none."""
        sides = map(self._longer_side, evenly_spaced(len(self), most))
        return [side for side in sides if side is not None]

    def _longer_side(self, index: int) -> int | None:
        try:
            data = self.files.read(index)
            return max(core.stored_size(core.stored_kind(data), data))
        except (OSError, FastloadError):
            return None

    def check_formats(self, positions: npt.NDArray[np.int64] | None = None) -> None:
        """Looks at some images, of all or of those at some positions, spread over them.

        Raises:
            NotInPlaceError: few of them are JPEGs, PNGs or WebPs, or a file cannot be read.
        """
        some = np.array(evenly_spaced(len(self) if positions is None else len(positions), _SAMPLED), np.int64)
        rows = some if positions is None else positions[some]
        found = sum(self._is_native(int(row)) for row in rows)
        if found < NATIVE * len(rows):
            raise NotInPlaceError(
                f"{found} of {len(rows)} of its images are JPEGs, PNGs or WebPs: pack it (fastload pack)"
            )

    def _is_native(self, index: int) -> bool:
        assert self.places is not None
        path = self.path(index)
        if not self.places.sizes[index]:
            return path.lower().endswith(suffixes())
        try:
            with open(path, "rb", buffering=0) as file:
                file.seek(int(self.places.offsets[index]))
                return is_native(file.read(START))
        except OSError as error:
            raise NotInPlaceError(f"{path} cannot be read: {error.strerror}") from error

    def save(self) -> None:
        """Writes what was learnt to the index cache, if there is one."""
        if self._cache is not None and self._files is not None:
            self._cache.save(self._files)


def _index_room() -> int:
    """Memory for the entropy indexes of a dataset, bytes: a 32nd of what is free. A JPEG of 100 KB has an
    index of about 1.4 KB."""
    free = available_memory()
    return _INDEX_USUAL if free is None else min(max(free // _INDEX_SHARE, _INDEX_LEAST), _INDEX_MOST)
