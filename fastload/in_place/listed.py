"""ListedImages: the images of a dataset in place as the engine has them, and what is learnt of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.common.system import available_memory
from fastload.errors import FastloadError
from fastload.in_place.index_cache import IndexCache

_INDEX_SHARE = 32
_INDEX_LEAST, _INDEX_USUAL, _INDEX_MOST = 16 << 20, 256 << 20, 4 << 30
BLOCK = 4096


@dataclass(frozen=True, eq=False)
class Places:
    """Images that are parts of files.

    Attributes:
        stamps: of each path, the stamp (core.file_stamp) that its file must have; 0: any.
        offsets, sizes: of each image in its file, bytes; size 0, offset 0: the whole file.
        numbers: of each image, the number of its path.
    """

    stamps: npt.NDArray[np.uint64]
    offsets: npt.NDArray[np.uint64]
    sizes: npt.NDArray[np.uint32]
    numbers: npt.NDArray[np.uint32]

    def key(self) -> bytes:
        """What tells the list from another of the same paths."""
        return b"".join(np.ascontiguousarray(each).tobytes() for each in (self.offsets, self.sizes, self.numbers))


class ListedImages:
    """The images of a dataset: made for the engine on first use; shared by a dataset and its snapshots, and what is learnt of them with it.

    Args:
        paths: of files.
        cache: the folder of index caches; None: what is learnt stays in memory.
        places: where in them the images lie; None: each file is one.
    """

    def __init__(self, paths: Sequence[str], cache: str | os.PathLike[str] | None, places: Places | None = None) -> None:
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
            prefix = first[: next((at for at, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), len(first))]
            names = bytearray()
            for start in range(0, len(self.paths), BLOCK):  # a million short texts at once would take more memory than all else
                block = [path[len(prefix) :] + "\0" for path in self.paths[start : start + BLOCK]]
                names += os.fsencode("".join(block))
            places = None if self.places is None else (self.places.stamps, self.places.offsets, self.places.sizes, self.places.numbers)
            self._files = core.Files(os.fsencode(prefix), bytes(names), len(self.paths), self.room, places)
            if self._folder is not None:
                key = b"" if self.places is None else self.places.key()
                self._cache = IndexCache(self._folder, os.fsencode(prefix), bytes(names), key)
                self._cache.load(self._files)
        return self._files

    def path(self, index: int) -> str:
        """The path of the file that holds image index."""
        return self.paths[index if self.places is None else int(self.places.numbers[index])]

    def longer_sides(self, most: int) -> list[int]:
        """Longer sides of at most so many images, evenly spaced; of files that are no JPEGs, none."""
        found = []
        for index in evenly_spaced(len(self), most):
            try:
                header = core.jpeg_header(self.files.read(index))
            except (OSError, FastloadError):
                continue
            found.append(max(header.width, header.height))
        return found

    def save(self) -> None:
        """Writes what was learnt to the index cache, if there is one."""
        if self._cache is not None and self._files is not None:
            self._cache.save(self._files)


def evenly_spaced(count: int, most: int) -> list[int]:
    """At most so many numbers below count, evenly spaced, ascending."""
    return sorted({int(number) for number in np.linspace(0, count - 1, min(count, most))})


def _index_room() -> int:
    """Memory for the entropy indexes of a dataset, bytes: a 32nd of what is free. A JPEG of 100 KB has an index of about 1.4 KB."""
    free = available_memory()
    return _INDEX_USUAL if free is None else min(max(free // _INDEX_SHARE, _INDEX_LEAST), _INDEX_MOST)
