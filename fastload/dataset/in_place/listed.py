"""ListedImages: the images of a dataset in place, as the engine has them, and the facts learnt of them."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.common.ahead import ahead
from fastload.common.images import open_image
from fastload.common.positions import evenly_spaced
from fastload.dataset.in_place.formats import NATIVE, START, formats, is_native, suffixes
from fastload.dataset.in_place.known import NotInPlaceError
from fastload.dataset.index_cache import index_room
from fastload.dataset.kept_files import KeptFiles, hash_of
from fastload.errors import DatasetError, FastloadError
from fastload.remote.cache_folder import is_local
from fastload.remote.kept_table import CachePlace

HEAD = 1 << 16
"""Bytes of a file that are read first."""
_BLOCK = 256
_THREADS, _SLOW_THREADS = 4, 64

Read = Callable[[int, int], bytes]
"""Returns at most so many of the first bytes of an image, by its index; -1: all of them."""


def header_sizes(count: int, read: Read, slow: bool) -> npt.NDArray[np.int64]:
    """(count, 2) heights and widths; 0 x 0 of a file that is gone or no image, which is an error of its
    sample when that is read.

    Args:
        count: number of images.
        read: reads one of them.
        slow: files lie on a disk that many reads at once make faster.

    Raises:
        DatasetError: a file cannot be read.
    """
    sizes = np.zeros((count, 2), np.int64)

    def look(start: int) -> None:
        for index in range(start, min(start + _BLOCK, count)):
            sizes[index] = _size(index, read)

    threads = _SLOW_THREADS if slow else _THREADS
    with ThreadPoolExecutor(threads, "fastload-headers") as pool:
        for _ in ahead(pool, look, range(0, count, _BLOCK), 2 * threads):
            pass
    return sizes


def _size(index: int, read: Read) -> tuple[int, int]:
    try:
        head = read(index, HEAD)
        try:
            height, width = core.stored_size(core.stored_kind(head), head)
        except FastloadError:  # another format, or a longer header
            with open_image(io.BytesIO(read(index, -1))) as image:
                width, height = image.size
    except FileNotFoundError:
        return 0, 0
    except OSError as error:
        if error.errno is None:  # Pillow's: it is no image
            return 0, 0
        raise DatasetError(f"{error.filename or index}: its size cannot be read: {error.strerror}") from error
    except FastloadError:
        return 0, 0
    return height, width


_SAMPLED = 200
"""Images that are looked at to tell how many of all are native."""
_FOLDERS = 8
"""Folders that are looked at to tell whether all are on this host's disks."""
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
        cache: the cache folder; None: facts stay in memory.
        places: places of the images in the files; None: each file is one image.
    """

    def __init__(self, paths: Sequence[str], cache: CachePlace | None, places: Places | None = None) -> None:
        self.paths = paths
        self.places = places
        self._cache = cache
        self.room = index_room()
        self._kept: KeptFiles | None = None
        self._files: core.Files | None = None

    def __len__(self) -> int:
        return len(self.paths) if self.places is None else len(self.places.sizes)

    @property
    def files(self) -> core.Files:
        """The list, with what is kept of it."""
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
            if self._cache is not None:
                if self._cache.side is not None:
                    self._files.shrink(self._cache.side)
                listing = [os.fsencode(prefix), bytes(names)]
                listing += [] if self.places is None else [self.places.key()]
                folder = os.path.abspath(os.path.dirname(prefix))
                paths = None if self.places is not None else self._hashes
                self._kept = KeptFiles(self._cache, folder, listing, self._files, self._are_slow(), paths)
        return self._files

    def slow_bytes(self, index: int) -> bytes | None:
        """The bytes of an image whose file lies on a slow disk, kept or read; None: it does not, or cannot be
        read."""
        if self._kept is not None and self._kept.slow:
            with suppress(FastloadError):
                return self.files.read(index)
        return None

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

    def sizes(self) -> npt.NDArray[np.int64]:
        """(number, 2) heights and widths of the images, by a pass over their headers; as header_sizes."""
        return header_sizes(len(self), self._start_of, self._are_slow())

    def _start_of(self, index: int, most: int) -> bytes:
        """The first bytes of an image; -1: all. Raises OSError."""
        size = 0 if self.places is None else int(self.places.sizes[index])
        with open(self.path(index), "rb", buffering=0) as file:
            if size:
                file.seek(int(self.places.offsets[index]))  # type: ignore[union-attr]
                most = size if most < 0 else min(most, size)
            return file.read(most)

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
            return is_native(self._start_of(index, START))
        except OSError as error:
            raise NotInPlaceError(f"{path} cannot be read: {error.strerror}") from error

    def _hashes(self) -> npt.NDArray[np.uint64]:
        """A hash of each path."""
        return np.fromiter(map(hash_of, self.paths), np.uint64, len(self.paths))

    def _are_slow(self) -> bool:
        """True if some of the files lie on a disk that is not this host's alone."""
        some = (self.paths[at] for at in evenly_spaced(len(self.paths), _FOLDERS))
        return any(not is_local(Path(folder)) for folder in {os.path.dirname(path) or "." for path in some})

    def report(self) -> str:
        """Text on what is learnt of the images, and where it is kept."""
        if self._kept is not None:
            return self._kept.report()
        count, held = self.files.learnt()
        return (
            f"of {count:,} files, {held / 2**20:,.1f} MiB of memory ({self.room >> 20:,} MiB at most); "
            "learnt when a file is first read"
        )
