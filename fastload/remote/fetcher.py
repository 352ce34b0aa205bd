"""Fetcher: fetches the units that a dataset's cache lacks, in the order in which they are wanted, many ranges
at once.

NOTE [ fetcher: what is fetched when ]
1. Units are fetched in the order of the requests, each once: a request that wants a unit on its way waits for
   it.
2. A range is one unit, or several that lie side by side and are wanted, up to RANGE_BYTES.
3. A large range takes in all units of a block of RANGE_BYTES that the pass (`Pass`) will need: one large
   request costs half the CPU of many small ones. It needs a pass that is known to need more than was asked
   for so far, and room in the cache. A pass by blocks fetches the rest of its own blocks so, also without
   room in the cache: NOTE [ pass: what is held in memory ]. At most FILL bytes are fetched so for each byte
   that is asked for. Large ranges are fetched in two cases. In the first the loop does not wait: at least
   half of its unused requests are finished. In the second the loop waits for requests and not for bytes: a
   byte of a large request comes much sooner than a byte of a small one (`Pace`). On a slow link both take as
   long, and only the next units are fetched.
4. Units without room in the cache are handed to their requests from memory. No cached unit makes room for
   them: in a shuffled epoch each sample is used once, and every policy hits at most as often as one that
   never evicts (Mohan et al., CoorDL, VLDB 2021).
5. Before a range is fetched into the cache, its units are claimed for the host. Units that another process
   has claimed are looked for again every LOOK_S. If they do not come within `timeout`, or ELSEWHERE_S, they
   are fetched here, past the cache.
6. Bytes that are not the dataset's are fetched again, as NOTE [ failures: which are tried again ] says. Where
   the same wrong bytes come again and again, and the dataset was not replaced, the waiting requests get them,
   and find by the checksum which sample is damaged.
7. Every failure here is the error of the requests that wait for it: no request waits for a unit that nobody
   fetches.
8. A foreign object that is gone, was replaced, or may not be read is the error of the samples in it alone.
All of this runs in the thread of the FetchLoop; nothing here is locked.

Ranges of the dataset's own objects are not asked for with If-Match. The checksum of each record says more
than an ETag: bytes of another object never pass for a sample's, and an object that is uploaded again
unchanged, with another ETag, stays readable. A range with a check of the ETag takes obstore two calls and a
fifth more CPU, and the ETags of all shards are requests that opening a dataset does not need. Of foreign
objects no checksums are known before they are read: there the ETag says what the bytes are of.
"""

from __future__ import annotations

import asyncio
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Protocol, TypeVar

from typing_extensions import Buffer

from fastload._native import core
from fastload.errors import ArgumentError, DatasetError, RemoteError
from fastload.health import tracing
from fastload.remote.dataset_cache import CachedFile, CachedShard, CachedSidecar, DatasetCache
from fastload.remote.failures import BytesCheck
from fastload.remote.foreign import ForeignObjects
from fastload.remote.learnt_images import StoredIndexes
from fastload.remote.objects import MOST, Objects, remote_error
from fastload.remote.page_images import PageImages, PagesAtHand, keep_pointers, taken_of
from fastload.remote.requests import LostObjectError, Pass, Request, Unit
from fastload.store.entries import ForeignObject, ShardEntry
from fastload.store.groups import SingleGroups
from fastload.store.loose import LooseObject, object_at
from fastload.store.pages import Page, page_at
from fastload.store.parquet_pages import content_of
from fastload.store.segment_file import SegmentFile

SMALL_BYTES = 256 << 10
"""A request of fewer bytes is small."""
LARGE_BYTES = 512 << 10
"""A request of at least this many bytes is large."""
MUCH_SOONER = 0.4
"""A byte of a large request comes much sooner if it takes less than this share of a small one's time."""
TRIED_FIRST = 4
"""Large requests made to learn their pace, before anything else is asked for."""
TRIED_AGAIN = 32
"""Requests after which a large one is tried again, if large ones were no faster."""


T = TypeVar("T")


class Pace:
    """Seconds per byte in small and in large requests: moving means over one dataset's requests. Tells
    latency from bandwidth."""

    def __init__(self) -> None:
        self._small = self._large = 0.0
        self._requests = self._tried = self._tries = 0

    def note(self, size: int, seconds: float) -> None:
        """Notes the bytes and the seconds of a finished request."""
        self._requests += 1
        if size < SMALL_BYTES:
            self._small = self._small * 0.9 + 0.1 * seconds / size if self._small else seconds / size
        elif size >= LARGE_BYTES:
            self._large = self._large * 0.8 + 0.2 * seconds / size if self._large else seconds / size

    @property
    def learning(self) -> bool:
        """True while the first large requests are tried and none has come yet; it ends after a few
        requests, since there may be none."""
        return not self._large and self._tries >= TRIED_FIRST and self._requests - self._tried < TRIED_FIRST

    def large_is_better(self) -> bool:
        """Returns True if the next request should be a large one: its bytes come much sooner, or its pace
        is to be learnt."""
        if not self._small:
            return False
        if not self._large:
            self._tries += 1
            self._tried = self._requests if self._tries <= TRIED_FIRST else self._tried
            return self._tries <= TRIED_FIRST
        if self._large < MUCH_SOONER * self._small:
            return True
        again = self._requests - self._tried >= TRIED_AGAIN
        self._tried = self._requests if again else self._tried
        return again


RANGE_BYTES = 2 << 20
"""Bytes of a large request: it takes 70 us of CPU for 100 KB, where single samples of that size take 120
to 160."""
GAP = 16 << 10
"""Largest gap (tree pages) between two units that one request fetches; the gap's bytes are dropped."""


@dataclass
class UnitRange:
    """Units first .. last of a shard, which one request fetches.

    Attributes:
        start, stop: their range of bytes in the file.
        kept: True if the cache has room for them.
        heals: the request that wants them from memory, whatever the cache says.
        owner: the pass for which they are fetched.
        reserved: bytes of room that are reserved for the pass to hold units of the span.
        images: places of the units' images, if these alone are fetched.
    """

    shard: int
    first: int
    last: int
    start: int
    stop: int
    kept: bool = False
    heals: Request | None = None
    owner: Pass | None = None
    reserved: int = 0
    images: PageImages | None = None

    def taken(self, shard: CachedFile, unit: int, data: memoryview) -> tuple[int, Buffer]:
        """(start in the shard, bytes) of a unit as a request takes it, of the span's bytes."""
        start, stop = shard.range_of(unit)
        if self.images is not None:
            return start, self.images.taken(unit, self.start, data)
        own = data[start - self.start : stop - self.start]
        if isinstance(shard, CachedShard) and shard.pointed:
            return start, taken_of(shard, unit, own)
        return start, own

    def hold(self, shard: CachedFile, units: Iterable[int], data: memoryview) -> None:
        """Hands fetched units of the span to the pass, which holds those that it has not asked for yet."""
        self.give_back()
        if self.owner is None:
            return
        for unit in units:
            if self.owner.takes((self.shard, unit)):
                self.owner.hold((self.shard, unit), *self.taken(shard, unit, data))

    def give_back(self) -> None:
        """Gives the reserved room back; idempotent."""
        if self.owner is not None:
            self.owner.reserve(-self.reserved)
        self.reserved = 0


def alone(shard: CachedFile, unit: Unit) -> UnitRange:
    """The span that is one unit of a shard."""
    start, stop = shard.range_of(unit[1])
    return UnitRange(unit[0], unit[1], unit[1], start, stop)


def around(
    shard: CachedFile,
    unit: Unit,
    takes: Callable[[int], bool],
    most: int = 0,
    images: PageImages | None = None,
) -> UnitRange:
    """The span of units around one that lie side by side and are taken.

    Args:
        shard: the shard of the unit.
        unit: a unit that is in the span even if `takes` refuses it.
        takes: returns True if a unit of the shard may be in the span; called once for each unit.
        most: most bytes of the span, unless the unit alone has more; 0: the span lies within the unit's block
            of RANGE_BYTES.
        images: places of the units' images, if these alone are wanted; `takes` refuses others.
    """
    starts: Any
    stops: Any
    if isinstance(shard, CachedSidecar):
        count, (starts, stops) = len(shard.state), shard.ranges
    elif isinstance(shard, CachedShard) and unit[1] < shard.grouped:
        groups = shard.groups
        places = images or (groups.near(unit[1]) if isinstance(groups, SingleGroups) else groups)
        count, starts, stops = shard.grouped, places.starts, places.stops
    else:
        return alone(shard, unit)  # a column: they lie far apart
    first = last = unit[1]
    block = int(starts[first]) // RANGE_BYTES

    def near(other: int) -> bool:
        if most:
            return (
                max(int(stops[other]), int(stops[last])) - min(int(starts[other]), int(starts[first])) <= most
            )
        return int(starts[other]) // RANGE_BYTES == block

    def fits(other: int) -> bool:
        return 0 <= other < count and near(other) and takes(other)

    # places are hostile: groups that are no neighbours in the file make no span
    while (
        fits(first - 1)
        and starts[first - 1] <= starts[first]
        and int(starts[first]) - int(stops[first - 1]) <= GAP
    ):
        first -= 1
    while (
        fits(last + 1)
        and starts[last] <= starts[last + 1]
        and int(starts[last + 1]) - int(stops[last]) <= GAP
    ):
        last += 1
    stop = stops[last] if first == last else max(stops[first : last + 1])
    return UnitRange(unit[0], first, last, int(starts[first]), int(stop), images=images)


def units_of(span: UnitRange) -> list[Unit]:
    """The units of a span."""
    return [(span.shard, number) for number in range(span.first, span.last + 1)]


def runs_of(numbers: list[int]) -> list[tuple[int, int]]:
    """Runs (first, last) of consecutive numbers."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1] = runs[-1][0], number
        else:
            runs.append((number, number))
    return runs


FILL = 16
"""Bytes that may be fetched before any request asks for them, for each byte that a request does ask for."""


class LargeRequests:
    """Decides whether the next request takes in more than was asked for. See NOTE [ fetcher: what is fetched
    when ].

    Args:
        saved: most bytes for which credit is kept.

    Attributes:
        pace: pace of the fetcher's requests.
    """

    def __init__(self, saved: int) -> None:
        self.pace = Pace()
        self._saved = saved
        self._credit = 0
        # In order; a dead reference is a request that was used.
        self._requests: deque[weakref.ref[Request]] = deque()

    def note(self, request: Request) -> None:
        """Notes a request that begins."""
        self._requests.append(weakref.ref(request))
        self._credit = min(self._credit + FILL * request.size, FILL * self._saved)

    def pay(self, size: int) -> None:
        """Subtracts bytes that no request asked for from the credit."""
        self._credit -= size

    def may(self, owner: Pass) -> bool:
        """Returns True if the next range for a pass may be large."""
        if owner.early or self._credit < RANGE_BYTES:
            return False
        while self._requests and ((first := self._requests[0]()) is None or not first.wanted):
            self._requests.popleft()
        unused = [request for each in self._requests if (request := each()) is not None and request.wanted]
        finished = sum(request.finished for request in unused)
        return len(unused) > 1 and (
            2 * finished >= len(unused) or (owner.begun and self.pace.large_is_better())
        )


NEAR = 64
"""Units of one shard are taken one after the other if at most this many others lie between them: one
batch."""


class UnitQueue:
    """Units to be fetched, in the order in which they are wanted, but near units of one shard follow each
    other.

    `take` returns up to MOST units of one shard in a row, since requests for one object that begin together
    cost less.
    """

    def __init__(self) -> None:
        self._units: deque[Unit] = deque()
        self._shard = -1
        self._left = (
            0  # units that may be taken of the current shard before the first in the queue has its turn
        )

    def __len__(self) -> int:
        return len(self._units)

    @property
    def first(self) -> Unit:
        """The unit that is wanted first. Raises IndexError."""
        return self._units[0]

    def append(self, unit: Unit) -> None:
        """Adds a unit to the end."""
        self._units.append(unit)

    def take(self, in_order: bool = False) -> Unit:
        """Removes the next unit and returns it. `in_order`: it is the first in the queue. Raises
        IndexError."""
        if self._left and not in_order:
            self._left -= 1
            for at, unit in enumerate(islice(self._units, NEAR)):
                if unit[0] == self._shard:
                    del self._units[at]
                    return unit
        unit = self._units.popleft()
        self._shard, self._left = unit[0], MOST - 1
        return unit

    def clear(self) -> None:
        """Removes all units."""
        self._units.clear()
        self._left = 0


class Holds(Protocol):
    """Returns True if bytes that were fetched for a span are those of the dataset. `size`: bytes of the
    request; None: as many."""

    def __call__(self, data: Buffer, size: int | None = None, /) -> bool: ...


IN_FLIGHT_BYTES = 16 << 20
"""Most bytes in flight, which are in memory: 320 MB/s at a latency of 50 ms."""
IN_FLIGHT = 96
"""Most requests in flight."""
BLOCK_MOST = 2 * RANGE_BYTES
"""Most bytes of a pass's block that one request fetches: a sampler's block of 2 MiB has about as many,
some have more."""
LOOK_S = 0.01
ELSEWHERE_S = 60.0
"""Most seconds to wait for units that another process has claimed, which may have been stopped."""


class Fetcher:
    """Runs the requests for one dataset in one process. See NOTE [ fetcher: what is fetched when ].

    Args:
        name: URL of the dataset for messages.
        objects: the objects of the dataset; None: it lies in a folder.
        foreign: the objects that its foreign shards are.
        cache: the cache of the dataset.
        shards: the shards in the cache.
        timeout: seconds after which units that another process has claimed are fetched here, at most
            ELSEWHERE_S.
    """

    def __init__(
        self,
        name: str,
        objects: Objects | None,
        foreign: ForeignObjects,
        cache: DatasetCache,
        shards: list[CachedFile],
        timeout: float,
    ) -> None:
        self._objects = objects
        self._foreign = foreign
        self.cache = cache
        self.fetched = 0
        """Bytes of all ranges that were fetched."""
        self.ranges = 0
        self._shards = shards
        self._elsewhere_s = min(timeout, ELSEWHERE_S)
        self._stopped: RemoteError | None = None
        self._queue = UnitQueue()
        self._waiting: dict[Unit, list[Request]] = {}
        self._flying: set[Unit] = set()
        self._elsewhere: dict[Unit, float] = {}
        self._large = LargeRequests(IN_FLIGHT_BYTES)
        self._passes: weakref.WeakSet[Pass] = weakref.WeakSet()
        self._bytes = 0
        self._tasks: dict[asyncio.Task[None], UnitRange] = {}
        self._looking = False
        self._segments = asyncio.Lock()
        self._pages = PagesAtHand()
        self._brought: set[asyncio.Task[None]] = set()
        self.indexes: StoredIndexes | None = None
        """Those of images in foreign shards, given to readers as the images come."""
        self._error = partial(remote_error, name)

    def begin(self, owner: Pass) -> None:
        """Registers a pass; the fetcher ends it if its owner does not before."""
        self._passes.add(owner)
        if self._stopped is not None:
            owner.end()

    def add(self, request: Request) -> None:
        """Begins to fetch the units that a request lacks."""
        if self._stopped is not None:
            return request.finish(self._stopped)
        try:
            if request.heal:
                self._heal(request)
            else:
                self._add(request)
        except Exception as failure:
            request.finish(self._error(failure))

    def _add(self, request: Request) -> None:
        self._large.note(request)
        share = request.share
        if share is not None:
            share.owner.start(request)
            share.owner.open(share.opens)
        for shard in {shard for shard, _ in request.units}:
            self.cache.look(self._shards[shard])
        for unit in request.units:
            if self._shards[unit[0]].state[unit[1]]:
                request.arrived(unit)
                continue
            if share is not None and (held := share.owner.held(unit)) is not None:
                request.arrived(unit, held)
                continue
            waiting = self._waiting.setdefault(unit, [])
            waiting.append(request)
            if len(waiting) == 1:
                self._queue.append(unit)
        if share is not None:
            share.owner.use(share.asks)
        if not request.units:
            request.finish()
        self._pump()

    def _heal(self, request: Request) -> None:
        """Fetches units again at once, since their bytes in the cache are damaged."""
        for unit in request.units:
            span = alone(self._shards[unit[0]], unit)
            self.cache.forget(self._shards[span.shard], span.first)
            span.heals = request
            if self.cache.grant(self._shards[span.shard], span.start, span.stop):
                span.kept = self.cache.claim(self._shards[span.shard], span.first, span.last)
                if not span.kept:
                    self.cache.give_back(self._shards[span.shard], span.start, span.stop)
            self._send(span)

    def stop(self, error: RemoteError) -> list[asyncio.Task[Any]]:
        """Ends all requests with an error, and all later ones. Returns the tasks that it cancelled."""
        self._stopped, self.indexes = error, None
        for span in self._tasks.values():
            if span.heals is not None:
                span.heals.finish(error)
        tasks: list[asyncio.Task[Any]] = [*self._tasks, *self._pages.coming, *self._brought]
        for task in tasks:
            task.cancel()
        for owner in list(self._passes):
            owner.end()
        waiting = [request for requests in self._waiting.values() for request in requests]
        self._queue.clear()
        self._waiting.clear()
        self._elsewhere.clear()
        for request in waiting:
            request.finish(error)
        return tasks

    # ---- what comes next

    def _pump(self) -> None:
        """Starts requests while there is room in flight."""
        while self._queue and self._bytes < IN_FLIGHT_BYTES and len(self._tasks) < IN_FLIGHT:
            owner = self._pass_of(self._queue.first)
            if owner is not None and self._flying and self._waits_to_learn(owner, self._queue.first):
                return
            unit = self._queue.take(in_order=owner is not None and not owner.begun)
            if unit in self._waiting and unit not in self._flying and self._is_wanted(unit):
                try:
                    self._start(unit)
                except Exception as failure:
                    self._failed(unit, self._error(failure))

    def _is_wanted(self, unit: Unit) -> bool:
        """Returns True if a request still waits for a unit; if none does, the unit is dropped."""
        alive = [request for request in self._waiting[unit] if request.wanted]
        for request in self._waiting[unit]:
            if request not in alive:
                request.drop()
        if alive:
            self._waiting[unit] = alive
        else:
            del self._waiting[unit]
        return bool(alive)

    def _start(self, unit: Unit) -> None:
        file = self._shards[unit[0]]
        if self.cache.full and not (file.reserved and not file.absent):
            self._fetch_past_cache(unit)
        elif not self._begin(unit, (self._span(unit), alone(self._shards[unit[0]], unit))):
            self._look_later(unit)

    def _begin(self, unit: Unit, spans: Sequence[UnitRange]) -> bool:
        """Begins to fetch the first span that finds room and that no other process has claimed. False: others
        have claimed all.

        Each span is smaller than the one before. Once a span is claimed, it is cut to what other processes
        have not fetched by then.
        """
        for span in spans:
            shard = self._shards[span.shard]
            if not self.cache.claim(shard, span.first, span.last):
                continue
            try:
                there = self._cut(span, unit)
            except BaseException:
                self.cache.disclaim(shard, span.first, span.last)
                raise
            if there:
                self._arrived(unit)
                return True
            if self.cache.grant(shard, span.start, span.stop, smaller=span is not spans[-1]):
                span.kept = True
                self._send(span)
                return True
            self.cache.disclaim(shard, span.first, span.last)
            if self.cache.full or shard.absent:
                self._fetch_past_cache(unit)
                return True
        return False

    def _cut(self, span: UnitRange, unit: Unit) -> bool:
        """Cuts a claimed span to the missing units around one, and gives up its claim of others. Returns
        True if the unit is there."""
        shard, number = self._shards[span.shard], unit[1]
        if self.cache.refresh(shard, span.first, span.last) or shard.state[number]:
            self.cache.disclaim(shard, span.first, span.last)
            return True
        first = last = number
        while first > span.first and not shard.state[first - 1]:
            first -= 1
        while last < span.last and not shard.state[last + 1]:
            last += 1
        for left, right in ((span.first, first - 1), (last + 1, span.last)):
            if left <= right:
                self.cache.disclaim(shard, left, right)
        if (first, last) != (span.first, span.last):
            ranges = [shard.range_of(each) for each in range(first, last + 1)]
            span.first, span.last, span.start, span.stop = (
                first,
                last,
                ranges[0][0],
                max(stop for _, stop in ranges),
            )
        return False

    def _send(self, span: UnitRange) -> None:
        self._flying.update(units_of(span))
        self._bytes += span.stop - span.start
        task = asyncio.get_running_loop().create_task(self._fetch(span))
        self._tasks[task] = span
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Handles the end of a task: the next may start. After a regular end, all requests for its units
        know of it already."""
        span = self._tasks.pop(task)
        span.give_back()  # a task that is cancelled before it begins runs none of its lines
        failure = None if task.cancelled() else task.exception()
        if failure is not None:
            self._settle(span, self._error(failure), b"", False)
        if self._stopped is None:
            self._pump()

    def _span(self, unit: Unit) -> UnitRange:
        """The span to fetch into the cache for a unit."""
        shard = self._shards[unit[0]]
        if isinstance(shard, CachedShard) and shard.in_pages:
            return self._run(unit, lambda *_: True, shard.entry.bytes)  # all of its page
        owner = self._pass_of(unit)
        if owner is None or not self._large.may(owner):
            return self._run(unit, self._asked_for)
        span = self._run(
            unit,
            lambda *other: self._asked_for(*other) or owner.needs(*other),
            BLOCK_MOST if owner.blocks else 0,
        )
        return self._paid(span, unit)

    def _fetch_past_cache(self, unit: Unit) -> None:
        """Begins to fetch a unit without room in the cache, unless another process has put it there."""
        shard, number = self._shards[unit[0]], unit[1]
        self.cache.refresh(shard, max(number - NEAR, 0), min(number + NEAR, len(shard.state) - 1))
        if shard.state[number]:
            self._arrived(unit)
        else:
            self._send(self._past_cache(unit))

    def _past_cache(self, unit: Unit) -> UnitRange:
        """The span to fetch past the cache for a unit without room in it; the pass holds units that no
        request asks for yet."""
        owner, shard = self._pass_of(unit), self._shards[unit[0]]
        images = self._images_near(unit)
        if owner is None or not owner.blocks:
            return self._run(unit, self._asked_for, images=images)
        room = free = owner.free if self._large.may(owner) else 0
        in_page = images is None and isinstance(shard, CachedShard) and shard.in_pages

        def takes(number: int, other: int) -> bool:
            nonlocal free
            if not self._asked_for(number, other):
                size = shard.size_of(other) if images is None else images.size_of(other)
                if not owner.needs(number, other) or size > free:
                    return False
                free -= size
            return True

        most = shard.entry.bytes if in_page else BLOCK_MOST
        span = self._paid(self._run(unit, takes, most, images), unit)
        span.owner, span.reserved = owner, room - free
        owner.reserve(span.reserved)
        return span

    def _images_near(self, unit: Unit) -> PageImages | None:
        """Places of the images near a unit, if that of the unit's is known."""
        shard = self._shards[unit[0]]
        if not isinstance(shard, CachedShard) or not shard.is_plain or unit[1] >= shard.grouped:
            return None
        found = PageImages(shard, self.cache, unit[1])
        return found if found.knows(unit[1]) else None

    def _paid(self, span: UnitRange, unit: Unit) -> UnitRange:
        """Pays for a span with credit, and returns it."""
        shard, images = self._shards[unit[0]], span.images
        own = shard.size_of(unit[1]) if images is None else images.size_of(unit[1])
        self._large.pay((span.stop - span.start) - own)
        return span

    def _pass_of(self, unit: Unit) -> Pass | None:
        """The pass that asks for a unit; None: no request asks for it, or the request belongs to no pass."""
        waiting = self._waiting.get(unit)
        return waiting[0].share.owner if waiting and waiting[0].share is not None else None

    def _waits_to_learn(self, owner: Pass, unit: Unit) -> bool:
        """Returns True if no other unit is asked for yet: the first request goes first, then the pace of
        large requests is learnt."""
        if self.cache.full and not owner.blocks:
            return False  # only wanted units are fetched
        return self._large.pace.learning if owner.begun else not owner.waits_first_for(unit)

    def _asked_for(self, shard: int, number: int) -> bool:
        return (shard, number) in self._waiting

    def _run(
        self,
        unit: Unit,
        takes: Callable[[int, int], bool],
        most: int = 0,
        images: PageImages | None = None,
    ) -> UnitRange:
        """The span of missing units around one that `takes` accepts, within a block of RANGE_BYTES, or of
        `most` bytes; of their images alone, where these are known."""
        number = unit[0]
        shard = self._shards[number]
        return around(
            shard,
            unit,
            lambda other: (
                not shard.state[other]
                and (number, other) not in self._flying
                and (images is None or images.knows(other))
                and takes(number, other)
            ),
            most,
            images,
        )

    # ---- what another process fetches

    def _look_later(self, unit: Unit) -> None:
        self._elsewhere.setdefault(unit, time.monotonic())
        if not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        """Looks for units that other processes have claimed."""
        self._looking = False
        for unit, since in list(self._elsewhere.items()):
            try:
                done = self._came(unit, since)
            except Exception as failure:
                done = True
                self._failed(unit, self._error(failure))
            if done:
                self._elsewhere.pop(unit, None)
        self._pump()
        if self._elsewhere and not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _came(self, unit: Unit, since: float) -> bool:
        """Returns True if a unit claimed by another process is settled: it is there, it is fetched here,
        or no request waits for it."""
        shard, number = unit
        if unit not in self._waiting or not self._is_wanted(unit) or unit in self._flying:
            return True
        if self.cache.refresh(self._shards[shard], number, number):
            self._arrived(unit)
            return True
        if time.monotonic() - since > self._elsewhere_s:
            self._send(alone(self._shards[unit[0]], unit))
            return True
        return self._begin(unit, (alone(self._shards[unit[0]], unit),))

    # ---- what has come

    async def _fetch(self, span: UnitRange) -> None:
        """Fetches a span, checks it, writes it to the cache, and tells the requests that wait."""
        shard = self._shards[span.shard]
        error: RemoteError | None = None
        data: Buffer = b""
        good: list[int] = []
        kept, size = False, span.stop - span.start
        try:
            try:
                data, good = await self._traced(span)
            except BaseException:
                if span.kept:
                    self.cache.give_back(shard, span.start, span.stop)
                raise
            kept = span.kept and self.cache.keep(shard, span.start, data, runs_of(good))
        except Exception as failure:  # it belongs to the requests that wait
            error = self._error(failure)
        finally:
            if span.kept:
                self.cache.disclaim(shard, span.first, span.last)
            self._bytes -= size
            self._flying.difference_update(units_of(span))
        self._settle(span, error, data, kept)
        span.hold(shard, good, memoryview(data))

    def _settle(self, span: UnitRange, error: RemoteError | None, data: Buffer, kept: bool) -> None:
        """Tells the requests that wait for a span how its fetch ended."""
        shard, view = self._shards[span.shard], memoryview(data)
        if error is None and self.indexes is not None:
            self.indexes.give(span.shard, span.first, span.last, self._bring)
        for unit in units_of(span):
            if error is not None:
                self._failed(unit, error)
                if span.heals is not None:
                    span.heals.failed(unit, error)
                continue
            there = kept and shard.state[unit[1]]
            taken = None
            if not there or span.heals is not None:
                taken = span.taken(shard, unit[1], view)
            self._arrived(unit, None if there else taken)
            if span.heals is not None:
                span.heals.arrived(unit, taken)

    async def _traced(self, span: UnitRange) -> tuple[Buffer, list[int]]:
        """_checked(), told to the trace that is taken."""
        if tracing.active is None:
            return await self._checked(span)
        file, size = self._shards[span.shard].entry.file, span.stop - span.start
        with tracing.Span(
            tracing.active,
            "fetch",
            {"file": file, "bytes": size, "units": span.last - span.first + 1},
            "fetches",
        ):
            return await self._checked(span)

    async def _checked(self, span: UnitRange) -> tuple[Buffer, list[int]]:
        """The bytes of a span, and those of its units whose checksums hold. Wrong bytes that stay the same
        are the object's."""
        shard, bad = self._shards[span.shard], set[int]()
        began = time.monotonic()

        def holds(data: Buffer, size: int | None = None, /) -> bool:
            nonlocal bad, began
            now = time.monotonic()
            size = span.stop - span.start if size is None else size
            if size:
                self._large.pace.note(size, now - began)
                self.fetched += size
                self.ranges += 1
            bad, began = shard.damaged(span.first, span.last, memoryview(data)), now
            return not bad

        data = await self._read(shard, span, holds)
        return data, [unit for unit in range(span.first, span.last + 1) if unit not in bad]

    async def _read(self, file: CachedFile, span: UnitRange, holds: Holds) -> Buffer:
        """The bytes of a span, which `holds` checks. Raises RemoteError."""
        entry, check = file.entry, BytesCheck(holds)
        if not isinstance(entry, ShardEntry) or entry.foreign is None:
            assert self._objects is not None
            return await self._objects.fetch(entry.file, span.start, span.stop, check)
        lost = None
        url, etag, first = entry.foreign.url, entry.foreign.etag, 0
        try:
            if entry.foreign.pages is not None:
                return await self._in_page(file, span, entry.foreign, holds)
            if entry.foreign.objects is not None:
                name, _, etag = await self._object_of(file, span)
                url, first = url + name, span.start
            return await self._foreign.fetch(url, span.start - first, span.stop - first, check, etag)
        except RemoteError as error:
            if not error.sure:
                raise
            lost = LostObjectError(str(error), url=error.url, tries=error.tries, sure=True)
        raise lost

    async def _object_of(self, file: CachedFile, span: UnitRange) -> LooseObject:
        """The loose object that a span is. Raises LostObjectError: nothing here says it."""
        found = await self._said(file, lambda beside, entry: object_at(beside, entry.stored, span.first))
        assert isinstance(file, CachedShard)
        if not file.single or span.first != span.last or found.size != span.stop - span.start:
            raise LostObjectError(f"{file.entry.title}: its places do not hold: attach again", sure=True)
        return found

    async def _in_page(
        self, file: CachedFile, span: UnitRange, foreign: ForeignObject, holds: Holds
    ) -> Buffer:
        """The bytes of a span of one page. See NOTE [ pages: images without room ]. Raises RemoteError."""
        assert isinstance(file, CachedShard)
        page = await self._said(file, lambda beside, _: page_at(beside, span.start, span.stop))
        if span.images is not None:
            found = await self._images_in(page, span, foreign, holds)
            units = range(span.first, span.last + 1)
            if all(span.images.holds(unit, span.start, found) for unit in units):
                return found
            ranges = [file.range_of(unit) for unit in units]
            span.images, span.start, span.stop = None, ranges[0][0], max(stop for _, stop in ranges)

        def cut(whole: memoryview) -> memoryview:
            return whole[span.start - page.start : span.stop - page.start]

        async def fetch() -> memoryview:
            whole = await self._page(page, foreign, lambda whole: holds(cut(whole), page.size))
            if file.is_plain and not span.kept:
                units = around(file, (span.shard, span.first), lambda _: True, file.entry.bytes)
                keep_pointers(self.cache, file, units.first, units.last, page.start, whole)
            return whole

        if span.kept:
            return cut(await fetch())
        found = cut(await self._pages.get((span.shard, page.start), fetch))
        holds(found, 0)  # they may have come for another span
        return found

    async def _images_in(
        self, page: Page, span: UnitRange, foreign: ForeignObject, holds: Holds
    ) -> memoryview:
        """The bytes of a span of images in an uncompressed page: of the page, if it is at hand. Raises
        RemoteError."""
        if (whole := self._pages.there((span.shard, page.start))) is not None:
            return whole[span.start - page.start : span.stop - page.start]
        first = page.offset + page.size - (page.start + page.length)
        if page.is_compressed or span.start + first < page.offset:
            return memoryview(b"")
        start, stop, check = first + span.start, first + span.stop, BytesCheck(holds)
        return memoryview(await self._foreign.fetch(foreign.url, start, stop, check, foreign.etag))

    async def _page(
        self, page: Page, foreign: ForeignObject, holds: Callable[[memoryview], bool]
    ) -> memoryview:
        """The bytes of a page, which is fetched and decompressed, and which `holds` checks. Raises
        RemoteError."""
        whole, why = memoryview(b""), ""

        def fits(data: Buffer) -> bool:
            nonlocal whole, why
            try:
                whole, why = memoryview(content_of(page, data)), ""
            except (ValueError, ArgumentError) as error:
                why = str(error)
                return False
            return holds(whole)

        stop, check = page.offset + page.size, BytesCheck(fits)
        await self._foreign.fetch(foreign.url, page.offset, stop, check, foreign.etag)
        if why:
            raise LostObjectError(f"{foreign.shown}: {why}", sure=True)
        return whole

    async def _said(self, file: CachedFile, read: Callable[[SegmentFile, ShardEntry], T]) -> T:
        """The result of reading what lies beside a foreign shard, which is fetched where it is not here.
        Raises LostObjectError: it is damaged or gone; RemoteError."""
        assert isinstance(file, CachedShard)
        assert file.beside is not None
        try:
            try:
                return read(file.beside, file.entry)
            except OSError:
                if self._objects is not None:
                    await self._fetch_segment(file.beside)
                return read(file.beside, file.entry)
        except (DatasetError, OSError) as error:
            raise LostObjectError(f"{file.entry.title}: {error}", sure=True) from None

    def _bring(self, segment: SegmentFile) -> None:
        """Begins to fetch a segment into the cache, one after the other; it is no error where that fails."""

        async def fetch() -> None:
            with suppress(RemoteError):
                await self._fetch_segment(segment, hold=False)

        if self._objects is not None and self._stopped is None and not self.cache.full:
            task = asyncio.get_running_loop().create_task(fetch())
            self._brought.add(task)
            task.add_done_callback(self._brought.discard)

    async def _fetch_segment(self, beside: SegmentFile, hold: bool = True) -> None:
        """Fetches a segment into the cache, or into memory where that takes none, and `hold` is true."""
        assert self._objects is not None
        async with self._segments:
            with suppress(OSError):
                os.close(beside.opened())
                return
            segment = beside.segment
            check = BytesCheck(lambda body: core.crc32c(memoryview(body)) == segment.crc32c)
            stop = segment.offset + segment.bytes
            body = await self._objects.fetch(segment.file, segment.offset, stop, check)
            self.cache.keep_segment(segment, body)
            try:
                os.close(beside.opened())
            except OSError:
                beside.held = bytes(body) if hold else None

    def _arrived(self, unit: Unit, taken: tuple[int, Buffer] | None = None) -> None:
        for request in self._waiting.pop(unit, ()):
            request.arrived(unit, taken)

    def _failed(self, unit: Unit, error: RemoteError) -> None:
        for request in self._waiting.pop(unit, ()):
            request.failed(unit, error)
