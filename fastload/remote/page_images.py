"""PageImages, PagesAtHand: images in the pages of a foreign object (`fastload.store.pages`), of which the
cache has no room for all.

NOTE [ pages: images without room ]
1. How long the images of a page are is known once it has come. Of a page that is not compressed the pointers
   to all of them are kept then, behind the states in the shard's state file: u64 for each stored row, 0: not
   known. All processes of the host read them there. Where nothing can be written they are kept in memory.
2. From then on an image is fetched by itself, with the length before it, as Parquet stores it. Where that is
   another one, the whole page is fetched, and its pointers are kept anew.
3. Requests for images of a page that is on its way share it, and the last pages that came stay in memory, as
   far as AT_HAND bytes go: neighbours are asked for soon after each other.
4. A request takes the pointer to an image, and the image alone, so that it holds no page.
"""

from __future__ import annotations

import asyncio
import struct
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import numpy as np

from fastload.remote.dataset_cache import CachedShard, DatasetCache
from fastload.store.groups import NEARBY, Numbered
from fastload.store.pages import POINTER_BYTES, pointed_in

_POINTER = struct.Struct("<II")
_LENGTH = struct.Struct("<I")


class PageImages:
    """Places of the images of some units in a shard of uncompressed pages, as far as they are known.

    Attributes:
        starts, stops: the range of each unit's image in the shard, from the length before it on; by the
            number of the unit, or a slice of numbers.
    """

    def __init__(self, shard: CachedShard, cache: DatasetCache, unit: int) -> None:
        """Takes the shard, its cache, and a unit, around which the units are. Raises DatasetError."""
        first, last = max(0, unit - NEARBY), min(shard.grouped - 1, unit + NEARBY)
        places, sizes, rows = shard.groups.records(first, last)
        units = shard.groups.of(rows) - first
        counts = np.bincount(units, minlength=last - first + 1)
        offsets, lengths = np.divmod(cache.pointers(shard, rows), np.uint64(1 << 32))[::-1]
        known = (
            (offsets >= POINTER_BYTES + _LENGTH.size) & (offsets + lengths <= sizes) & (counts[units] == 1)
        )
        found = np.zeros((2, len(counts)), np.uint64)
        found[:, units[known]] = (places + offsets)[known] + np.array([[0], [1]], np.uint64) * lengths[known]
        found[0, units[known]] -= np.uint64(_LENGTH.size)
        self.starts, self.stops = (Numbered(each, first) for each in found)

    def knows(self, unit: int) -> bool:
        """Returns True if it is known where the image of a unit lies."""
        return bool(self.stops[unit])

    def size_of(self, unit: int) -> int:
        """Bytes of a unit's image, and of its length; 0: they are not known."""
        return int(self.stops[unit]) - int(self.starts[unit])

    def holds(self, unit: int, start: int, data: memoryview) -> bool:
        """Returns True if bytes from `start` of the shard on have an image of the right length there."""
        at, stop = int(self.starts[unit]) - start, int(self.stops[unit]) - start
        return 0 <= at <= stop - _LENGTH.size <= len(data) - _LENGTH.size and _LENGTH.unpack_from(data, at)[
            0
        ] == (stop - at - _LENGTH.size)

    def taken(self, unit: int, start: int, data: memoryview) -> bytes:
        """A unit as a request takes it, of bytes from `start` of the shard on."""
        at, stop = int(self.starts[unit]) - start + _LENGTH.size, int(self.stops[unit]) - start
        return _POINTER.pack(POINTER_BYTES, stop - at) + data[at:stop]


def taken_of(shard: CachedShard, unit: int, data: memoryview) -> bytes:
    """A unit of pages with pointers as a request takes it, of its own bytes."""
    if shard.groups.records(unit, unit)[0].size > 1:
        return bytes(data)  # of several small images
    image = pointed_in(data)
    return _POINTER.pack(POINTER_BYTES, len(image)) + image if len(image) else bytes(data[:POINTER_BYTES])


def keep_pointers(
    cache: DatasetCache, shard: CachedShard, first: int, last: int, start: int, page: memoryview
) -> None:
    """Keeps the pointers of units first .. last, of the bytes of their page, which begins at `start` of the
    shard. Raises DatasetError."""
    places, _, rows = shard.groups.records(first, last)
    at = places.astype(np.int64) - start
    whole = np.frombuffer(page, "<u8", len(page) // POINTER_BYTES)
    fit = (at % POINTER_BYTES == 0) & (at >= 0) & (at // POINTER_BYTES < len(whole))
    cache.keep_pointers(shard, rows[fit], whole[at[fit] // POINTER_BYTES])


AT_HAND = 32 << 20
"""Bytes of pages that stay in memory."""
_Page = tuple[int, int]


class PagesAtHand:
    """Pages on their way, and those that came last, by shard and place. For the fetcher's thread."""

    def __init__(self) -> None:
        self._coming: dict[_Page, asyncio.Task[memoryview]] = {}
        self._last: OrderedDict[_Page, memoryview] = OrderedDict()

    def there(self, page: _Page) -> memoryview | None:
        """The bytes of a page; None: it is not at hand."""
        return self._last.get(page)

    async def get(self, page: _Page, fetch: Callable[[], Coroutine[Any, Any, memoryview]]) -> memoryview:
        """The bytes of a page, which is fetched unless it is at hand or on its way. Raises as `fetch`."""
        if (found := self._last.get(page)) is not None:
            self._last.move_to_end(page)
            return found
        if (task := self._coming.get(page)) is None:
            task = self._coming[page] = asyncio.create_task(fetch())
            task.add_done_callback(partial(self._came, page))
        found = await asyncio.shield(task)
        self._last[page] = found
        while self._last and sum(map(len, self._last.values())) > AT_HAND:
            self._last.popitem(last=False)
        return found

    def _came(self, page: _Page, task: asyncio.Task[memoryview]) -> None:
        del self._coming[page]
        if not task.cancelled():
            task.exception()  # it is that of those who wait, of whom there may be none by now

    @property
    def coming(self) -> list[asyncio.Task[memoryview]]:
        """The fetches of pages that are on their way."""
        return list(self._coming.values())
