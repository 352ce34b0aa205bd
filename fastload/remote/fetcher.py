"""Fetcher: fetches what a dataset's cache lacks, in the order in which it is wanted, many ranges at once.

NOTE [ fetcher: what is fetched when ]
1. Units are fetched in the order of the requests, each once: who wants one that is on its way waits for it.
2. A range is one unit; or several that lie side by side and are wanted, up to RANGE_BYTES.
3. Where a pass is known to need more than what was asked for so far (`cover`), where there is room in the cache, and where the loop does
   not wait, a range takes in all of its block of RANGE_BYTES that will be needed: one large request costs half the CPU of many small ones.
   What is fetched so is at most FILL bytes for each byte that is asked for, so that decoders keep their CPUs. The loop counts as waiting
   unless at least half of the requests that it has not used yet are finished: on a slow link nothing is fetched but what comes next.
4. What finds no room in the cache is handed to those who asked for it, from memory. Nothing that is cached makes room for it: in a
   shuffled epoch each sample is used once, and every policy hits at most as often as one that never evicts (Mohan et al., CoorDL, VLDB
   2021).
5. Before a range is fetched into the cache its units are claimed for the host. What another process has claimed is looked for again every
   LOOK_S, and fetched here after all, past the cache, if it does not come within `timeout`.
6. Bytes that are not the dataset's are fetched again, up to TRIES times.
All of this runs in the thread of the FetchLoop; nothing here is locked.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from fastload.errors import RemoteError
from fastload.remote.dataset_cache import CachedShard, DatasetCache
from fastload.remote.objects import Objects
from fastload.remote.requests import Request, Unit

RANGE_BYTES = 2 << 20
"""Bytes of a large request: 70 us of CPU for 100 KB, where single samples of that size take 120 to 160."""
IN_FLIGHT_BYTES = 16 << 20
"""Bytes that are on their way at once: at 50 ms, 320 MB/s. They are in memory."""
IN_FLIGHT = 96
"""Requests at once."""
GAP = 16 << 10
"""Bytes between two units, of tree pages, that are fetched for nothing in order to have them by one request."""
FILL = 4
"""Bytes that are fetched before anybody asks for them, for each byte that somebody does ask for."""
LOOK_S = 0.01
TRIES = 3


@dataclass
class Span:
    """Units first .. last of a shard, which are fetched by one request."""

    shard: int
    first: int
    last: int
    start: int
    stop: int
    kept: bool = False


class Fetcher:
    """The requests of one dataset, in one process. See NOTE [ fetcher: what is fetched when ].

    Args:
        objects: of the dataset.
        cache: its cache.
        shards: of the cache.
        timeout: seconds after which another process's claim is no reason to wait.
    """

    def __init__(self, objects: Objects, cache: DatasetCache, shards: list[CachedShard], timeout: float) -> None:
        self.objects = objects
        self.cache = cache
        self.fetched = 0
        """Bytes of all ranges that were asked for."""
        self.ranges = 0
        self._shards = shards
        self._timeout = timeout
        self._queue: deque[Unit] = deque()
        self._waiting: dict[Unit, list[Request]] = {}
        self._flying: set[Unit] = set()
        self._elsewhere: dict[Unit, float] = {}
        self._requests: deque[Request] = deque()
        self._cover: list[npt.NDArray[np.bool_]] | None = None
        self._credit = 0
        self._bytes = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._looking = False

    def cover(self, units: list[npt.NDArray[np.bool_]] | None) -> None:
        """Says which units of each shard the passes under way need; None: that is not known."""
        self._cover = units

    def add(self, request: Request) -> None:
        """Begins to fetch what a request lacks."""
        self._requests.append(request)
        self._credit = min(self._credit + FILL * request.size, FILL * IN_FLIGHT_BYTES)
        for shard in {shard for shard, _ in request.units}:
            self.cache.look(self._shards[shard])
        for unit in request.units:
            if self._shards[unit[0]].state[unit[1]]:
                request.arrived(unit)
                continue
            waiting = self._waiting.setdefault(unit, [])
            waiting.append(request)
            if len(waiting) == 1:
                self._queue.append(unit)
        if not request.units:
            request.finish()
        self._pump()

    def stop(self, error: RemoteError) -> None:
        """Ends all requests with an error."""
        for task in self._tasks:
            task.cancel()
        for request in list(self._requests):
            request.finish(error)
        self._queue.clear()
        self._waiting.clear()
        self._requests.clear()

    # ---- what comes next

    def _pump(self) -> None:
        """Starts requests while there is room for them."""
        while self._queue and self._bytes < IN_FLIGHT_BYTES and len(self._tasks) < IN_FLIGHT:
            unit = self._queue.popleft()
            if unit in self._waiting and unit not in self._flying and self._is_wanted(unit):
                self._start(unit)

    def _is_wanted(self, unit: Unit) -> bool:
        """Whether somebody still waits for a unit; if not, it is dropped."""
        alive = [request for request in self._waiting[unit] if request.wanted]
        if alive:
            self._waiting[unit] = alive
        else:
            del self._waiting[unit]
        return bool(alive)

    def _start(self, unit: Unit) -> None:
        for span in (self._span(unit), self._alone(unit)):
            if not self.cache.grant(span.start, span.stop):
                self._send(self._run(unit, self._asked_for))
                return
            if self.cache.claim(self._shards[span.shard], span.first, span.last):
                span.kept = True
                self._send(span)
                return
            self.cache.give_back(span.start, span.stop)
        self._look_later(unit)

    def _send(self, span: Span) -> None:
        units = [(span.shard, number) for number in range(span.first, span.last + 1)]
        self._flying.update(units)
        self._bytes += span.stop - span.start
        task = asyncio.get_running_loop().create_task(self._fetch(span))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _alone(self, unit: Unit) -> Span:
        start, stop = self._shards[unit[0]].range_of(unit[1])
        return Span(unit[0], unit[1], unit[1], start, stop)

    def _span(self, unit: Unit) -> Span:
        """The range to fetch for a unit."""
        if self._may_fill():
            span = self._run(unit, self._needed)
            own = self._alone(unit)
            self._credit -= (span.stop - span.start) - (own.stop - own.start)
            return span
        return self._run(unit, self._asked_for)

    def _may_fill(self) -> bool:
        if self._cover is None or self.cache.full or self._credit < RANGE_BYTES:
            return False
        while self._requests and (not self._requests[0].wanted):
            self._requests.popleft()
        unused = [request for request in self._requests if request.wanted]
        return len(unused) > 1 and 2 * sum(request.finished for request in unused) >= len(unused)

    def _asked_for(self, shard: int, number: int) -> bool:
        return (shard, number) in self._waiting

    def _needed(self, shard: int, number: int) -> bool:
        assert self._cover is not None
        return bool(self._cover[shard][number]) or self._asked_for(shard, number)

    def _run(self, unit: Unit, takes: Callable[[int, int], bool]) -> Span:
        """The units around one that lie side by side, are not there and are taken, within a block of RANGE_BYTES."""
        number, groups = unit[0], self._shards[unit[0]].groups
        if unit[1] >= len(groups):
            return self._alone(unit)
        state = self._shards[number].state
        starts, stops = groups.starts, groups.stops
        first = last = unit[1]
        block = int(starts[first]) // RANGE_BYTES

        def fits(other: int) -> bool:
            return (
                0 <= other < len(groups)
                and not state[other]
                and int(starts[other]) // RANGE_BYTES == block
                and (number, other) not in self._flying
                and takes(number, other)
            )

        while fits(first - 1) and int(starts[first]) - int(stops[first - 1]) <= GAP:
            first -= 1
        while fits(last + 1) and int(starts[last + 1]) - int(stops[last]) <= GAP:
            last += 1
        stop = stops[last] if first == last else stops[first : last + 1].max()
        return Span(number, first, last, int(starts[first]), int(stop))

    # ---- what another process fetches

    def _look_later(self, unit: Unit) -> None:
        self._elsewhere.setdefault(unit, time.monotonic())
        if not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        """Looks for units that other processes have claimed."""
        self._looking = False
        units, now = list(self._elsewhere.items()), time.monotonic()
        for unit, since in units:
            shard, number = unit
            if unit not in self._waiting or not self._is_wanted(unit):
                del self._elsewhere[unit]
            elif self.cache.refresh(self._shards[shard], number, number):
                del self._elsewhere[unit]
                self._arrived(unit)
            elif now - since > self._timeout:
                del self._elsewhere[unit]
                self._send(self._alone(unit))
            elif unit not in self._flying:
                self._start(unit)
                if unit in self._flying:
                    del self._elsewhere[unit]
        if self._elsewhere and not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_later(LOOK_S, self._look)

    # ---- what has come

    async def _fetch(self, span: Span) -> None:
        """Fetches a range, checks it, keeps it, and tells those who wait."""
        shard, size = self._shards[span.shard], span.stop - span.start
        error: RemoteError | None = None
        data: Buffer = b""
        kept = False
        try:
            if span.kept and self.cache.refresh(shard, span.first, span.last):
                kept = True  # another process was a moment ahead
                self.cache.give_back(span.start, span.stop)
            else:
                data, good = await self._checked(span)
                kept = span.kept and self.cache.keep(shard, span.start, data, _runs(good))
        except Exception as failure:  # belongs to those who wait
            error = failure if isinstance(failure, RemoteError) else RemoteError(f"{self.objects.url}: {failure}", url=self.objects.url)
            if span.kept:
                self.cache.give_back(span.start, span.stop)
        finally:
            if span.kept:
                self.cache.disclaim(shard, span.first, span.last)
            self._bytes -= size
            units = [(span.shard, number) for number in range(span.first, span.last + 1)]
            self._flying.difference_update(units)
        view = memoryview(data)
        for unit in units:
            if error is not None:
                self._failed(unit, error)
            elif kept and shard.state[unit[1]]:
                self._arrived(unit)
            else:
                start, stop = shard.range_of(unit[1])
                self._arrived(unit, (start, view[start - span.start : stop - span.start]))
        self._pump()

    async def _checked(self, span: Span) -> tuple[Buffer, list[int]]:
        """The bytes of a range, and which of its units are the dataset's. They are asked for again where one is not."""
        shard = self._shards[span.shard]
        for _ in range(TRIES):
            data = await self.objects.fetch(shard.entry.file, span.start, span.stop)
            self.fetched += span.stop - span.start
            self.ranges += 1
            bad = shard.damaged(span.first, span.last, memoryview(data))
            if not bad:
                break
        return data, [unit for unit in range(span.first, span.last + 1) if unit not in bad]

    def _arrived(self, unit: Unit, taken: tuple[int, Buffer] | None = None) -> None:
        for request in self._waiting.pop(unit, ()):
            request.arrived(unit, taken)

    def _failed(self, unit: Unit, error: RemoteError) -> None:
        for request in self._waiting.pop(unit, ()):
            request.failed(unit, error)


def _runs(numbers: list[int]) -> list[tuple[int, int]]:
    """Runs (first, last) of consecutive numbers."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1] = runs[-1][0], number
        else:
            runs.append((number, number))
    return runs
