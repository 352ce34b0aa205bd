"""Loose objects: images that are objects of a store, one each: where they lie in a foreign shard, and which
object each of them is.

NOTE [ loose: a shard of many objects ]
A foreign shard may be many objects, each the file of one image. Its bytes are then theirs, as if they lay one
behind the other in the order of the samples, each at a multiple of PAGE and with more than GROUP_BYTES
between two: so each is a unit of the cache by itself, is asked for by itself, and the gaps take no room in a
sparse file. A segment says which object each is: a value for each stored sample, which is read where it lies
when the object is asked for, so that no process holds all names. See NOTE [ segments: values that are checked
by themselves ].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastload.errors import DatasetError, PackError
from fastload.store.groups import GROUP_BYTES
from fastload.store.segment_file import SegmentFile, checked_content, checked_value, value_at

PAGE = 4096
_LIMIT = 8192
"""Limit on the bytes of a name and its tag."""


def offsets_of(sizes: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.uint64], int]:
    """(offset of each object, bytes of all) in a shard of objects of these sizes."""
    steps = (sizes + np.uint64(GROUP_BYTES + PAGE)) // np.uint64(PAGE) * np.uint64(PAGE)
    offsets = np.cumsum(steps) - steps
    return offsets, int(offsets[-1] + sizes[-1])


class LooseObject(NamedTuple):
    """One object.

    Attributes:
        name: the rest of its URL.
        size: its bytes.
        etag: its tag; None: the store gives none.
    """

    name: str
    size: int
    etag: str | None

    def packed(self, row: int) -> bytes:
        """The value of a stored sample's object. Raises PackError: its name is too long."""
        text = f"{self.size}\0{self.etag or ''}\0{self.name}".encode("utf-8", "surrogatepass")
        if len(text) > _LIMIT:
            raise PackError(f"its name and tag have {len(text):,} bytes, more than can be stored")
        return checked_value(row, text)

    @classmethod
    def parsed(cls, row: int, value: bytes) -> LooseObject:
        """The object in a stored sample's value. Raises DatasetError: it is damaged."""
        if (text := checked_content(row, value)) is None:
            raise DatasetError(f"the name of object {row} is damaged: copy the dataset again")
        return cls._of(text)

    @classmethod
    def _of(cls, text: bytes) -> LooseObject:
        size, etag, name = text.decode("utf-8", "surrogatepass").split("\0", 2)
        return cls(name, int(size), etag or None)


def object_at(file: SegmentFile, stored: int, row: int) -> LooseObject:
    """The object of a stored sample, of so many. Raises DatasetError: it is damaged; OSError: the segment is
    not there."""
    return LooseObject._of(value_at(file, stored, row, _LIMIT))
