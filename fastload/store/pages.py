"""Pages: parts of a foreign object that are compressed, and as which bytes of its shard they are read.

NOTE [ pages: a shard of decompressed pages ]
The images of a compressed Parquet column lie in no piece of their object. Its shard is then the pages, as
they are decompressed, one behind the other, each at a multiple of PAGE and with more than GROUP_BYTES between
two. An image has its place there. A page comes by one request, is decompressed, and goes to the cache with
all of its images. A segment says which page is where; it is read and checked whenever a page is fetched.

NOTE [ pages: lengths that are not known ]
How long the images in a page are stands between them. So that nobody has to read all of an object to make an
index of it, the places of a `pointed` shard are those of pointers: a page begins with one for each of its
values, two u32: bytes from the pointer's first one to the value, and the value's bytes, NULL for none. They
are made when the page is fetched. A place goes on to the end of its page.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from fastload._native import core
from fastload.common.files import FILE_BYTES
from fastload.common.optional import optional
from fastload.errors import DatasetError
from fastload.store.groups import GROUP_BYTES
from fastload.store.loose import PAGE
from fastload.store.segment_file import SegmentFile

CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD")
"""Compressions of pages, as Parquet calls them, by the numbers that a table of pages has."""
_ROW = np.dtype("<u8")
POINTED, LEVEL = 1 << 8, 1 << 16
_POINTER = struct.Struct("<II")
POINTER_BYTES = _POINTER.size
NULL = 2**32 - 1


class Page(NamedTuple):
    """One page.

    Attributes:
        start, length: its place in the shard, decompressed.
        offset, size: its place in the object.
        codec: its compression, of `CODECS`; of a pointed page it has POINTED, and the definition level of a
            value that is there, times LEVEL; `offset` is then that of its header.
    """

    start: int
    length: int
    offset: int
    size: int
    codec: int

    @property
    def is_compressed(self) -> bool:
        return self.codec % POINTED != CODECS.index("UNCOMPRESSED")

    def decompressed(self, data: Buffer) -> bytes:
        """Its bytes, decompressed. Raises ValueError: they are no such page; ArgumentError: pyarrow is
        missing."""
        view = memoryview(data).cast("B")
        name = CODECS[self.codec] if self.codec < len(CODECS) else ""
        if len(view) != self.size or not name or not 0 <= self.length <= FILE_BYTES:
            raise ValueError(f"a page of {self.length:,} bytes, of another compression or size than are read")
        if name == "UNCOMPRESSED":
            found = bytes(view)
        elif name == "GZIP":
            try:
                found = zlib.decompressobj(wbits=31).decompress(view, self.length + 1)
            except zlib.error as error:
                raise ValueError(f"a page that cannot be decompressed: {error}") from None
        else:
            found = self._by_arrow(name, view)
        if len(found) != self.length:
            raise ValueError(f"a page of {len(found):,} bytes that should have {self.length:,}")
        return found

    def _by_arrow(self, name: str, view: memoryview) -> bytes:
        # Arrow fills what a snappy page says it has, up to what is asked for: the rest would be anybody's.
        if name == "SNAPPY" and _snappy_size(view) != self.length:
            raise ValueError(f"a page that does not have the {self.length:,} bytes that it should")
        arrow: Any = optional("pyarrow", "reading compressed Parquet")
        try:
            found: bytes = arrow.Codec(name.lower()).decompress(view, self.length, asbytes=True)
        except (arrow.ArrowException, OSError) as error:
            raise ValueError(f"a page that cannot be decompressed: {error}") from None
        return found


def _snappy_size(view: memoryview) -> int:
    """The bytes that a compressed page says it has."""
    size = 0
    for number, byte in enumerate(view[:5]):
        size |= (byte & 127) << 7 * number
        if byte < 128:
            break
    return size


def pointed_in(place: memoryview) -> memoryview:
    """The bytes that are pointed to in a place; b"": there are none."""
    offset, size = _POINTER.unpack_from(place) if len(place) >= _POINTER.size else (0, 0)
    return place[offset : offset + size] if 0 < offset <= len(place) - size else place[:0]


def pointers(offsets: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> bytes:
    """The pointers to values that lie at these offsets behind them; a size below 0: to none."""
    own = np.arange(len(offsets), dtype=np.int64) * POINTER_BYTES
    there = sizes >= 0
    found = np.zeros((len(offsets), 2), "<u4")
    found[:, 0] = np.where(there, offsets + len(offsets) * POINTER_BYTES - own, 0)
    found[:, 1] = np.where(there, sizes, NULL)
    return found.tobytes()


class PageSlots:
    """The pages of one object, which are put one behind the other.

    Attributes:
        pointed: they have pointers.
        compressed: some are compressed.
        bytes: bytes of the shard.
        content: bytes of all pages.
    """

    def __init__(self, pointed: bool = False) -> None:
        self.pointed, self.compressed = pointed, False
        self._pages: list[Page] = []
        self._next = self.bytes = self.content = 0

    def add(self, offset: int, size: int, length: int, codec: int) -> Page:
        """Adds a page: its place in the object, its bytes decompressed, and its compression."""
        page = Page(self._next, length, offset, size, codec)
        self._pages.append(page)
        self.compressed |= page.is_compressed
        self.bytes = page.start + length
        self.content += length
        self._next += (length + GROUP_BYTES + PAGE) // PAGE * PAGE
        return page

    def take(self, others: PageSlots) -> int:
        """Adds pages that were put behind each other by themselves; returns the place of the first."""
        first = self._next
        for page in others._pages:
            self.add(page.offset, page.size, page.length, page.codec)
        return first

    def at(self, start: int) -> Page:
        """The page of a place in the shard."""
        starts = [page.start for page in self._pages]
        return self._pages[int(np.searchsorted(starts, start, side="right")) - 1]

    def packed(self) -> bytes:
        """The table of the pages, as `page_at` reads it."""
        return np.array(self._pages, _ROW).tobytes()


def page_at(file: SegmentFile, start: int, stop: int) -> Page:
    """The page that has bytes start .. stop-1 of the shard. Raises DatasetError: the table is damaged, or no
    page has them; OSError: it is not there."""
    data = file.read(0, file.segment.bytes)
    if core.crc32c(data) != file.segment.crc32c:
        raise DatasetError("the table of its pages is damaged: copy the dataset again, or attach again")
    rows = np.frombuffer(data, _ROW).reshape(-1, len(Page._fields))
    number = int(np.searchsorted(rows[:, 0], start, side="right")) - 1
    page = Page(*rows[max(number, 0)].tolist())
    if not page.start <= start <= stop <= page.start + page.length:
        raise DatasetError("the places of its images do not hold: attach the data again")
    return page
