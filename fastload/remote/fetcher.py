"""Fetcher: fetches what a dataset's cache lacks, in the order in which it is wanted, many ranges at once.

NOTE [ fetcher: what is fetched when ]
1. Units are fetched in the order of the requests, each once: who wants one that is on its way waits for it.
2. A range is one unit; or several that lie side by side and are wanted, up to RANGE_BYTES.
3. Where a pass is known to need more than what was asked for so far (`Pass`), and there is room in the cache, a range may take in all of
   its block of RANGE_BYTES that will be needed: one large request costs half the CPU of many small ones. A pass by blocks of its own
   takes in the rest of those, also where the cache has no room: NOTE [ pass: what is held in memory ]. What is fetched so is at most FILL
   bytes for each byte that is asked for. It is done where the loop does not wait, which is where at least half of the requests that it has
   not used yet are finished; and where it waits for requests and not for bytes, which is where a byte of a large one comes much sooner
   than a byte of a small one (`Pace`). On a slow link both take as long, and nothing is fetched but what comes next.
4. What finds no room in the cache is handed to those who ask for it, from memory. Nothing that is cached makes room for it: in a
   shuffled epoch each sample is used once, and every policy hits at most as often as one that never evicts (Mohan et al., CoorDL, VLDB
   2021).
5. Before a range is fetched into the cache its units are claimed for the host. What another process has claimed is looked for again every
   LOOK_S, and fetched here after all, past the cache, if it does not come within `timeout`.
6. Bytes that are not the dataset's are fetched again, up to TRIES times. Where they stay wrong, or an object is missing, the manifest at
   the URL is read again: if the dataset was replaced or deleted, that is the error of those who wait. If not, they get what came, and find
   by its checksum which sample is damaged.
7. Whatever goes wrong here is the error of those who wait for it: nobody waits for what nobody fetches.
All of this runs in the thread of the FetchLoop; nothing here is locked.

Pace: how long bytes take in small and in large requests; tells waiting for requests from waiting for bytes.

ReplacedCheck: whether the dataset at a URL is still the one that was opened, asked after bytes of it were missing or wrong.

Ranges are not asked for with If-Match. The checksum of each record says more than an ETag: bytes of another object never pass for those of
a sample, and an object that was uploaded again as it was, which changes its ETag, goes on being read. A range with a check of the ETag
takes obstore two calls and a fifth more CPU, and the ETags of all shards are requests that opening a dataset does not need.

Span: units of a shard that lie side by side and are fetched by one request.

LargeRequests: decides whether the next request takes in more than what is asked for. See NOTE [ fetcher: what is fetched when ].

UnitQueue: the units that are to be fetched, in the order in which they are wanted, but near ones of one shard follow each other.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice

from typing_extensions import Buffer

from fastload.errors import DatasetError, RemoteError, RemoteMissingError
from fastload.remote.dataset_cache import CachedShard, DatasetCache
from fastload.remote.manifest import read_manifest
from fastload.remote.objects import Objects, remote_error
from fastload.remote.obstore import MOST
from fastload.remote.requests import Pass, Request, Unit
from fastload.store.entries import ShardEntry
from fastload.store.manifest import Manifest, version_name
from fastload.store.sidecar import Identity, identity

SMALL_BYTES = 256 << 10
"""Requests of fewer bytes are small."""
LARGE_BYTES = 512 << 10
"""Requests of as many bytes are large."""
MUCH_SOONER = 0.4
"""A byte of a large request comes much sooner if it takes less than this part of a small one's time."""
TRIED_FIRST = 4
"""Large requests that are tried to know their pace, before anything else is asked for."""
TRIED_AGAIN = 32
"""Requests after which a large one is tried again where they were found to be no faster."""


class Pace:
    """Seconds that a byte takes in small and in large requests: moving means over one dataset's requests."""

    def __init__(self) -> None:
        self._small = self._large = 0.0
        self._requests = self._tried = self._tries = 0

    def note(self, size: int, seconds: float) -> None:
        """Notes a request that succeeded at once."""
        self._requests += 1
        if size < SMALL_BYTES:
            self._small = self._small * 0.9 + 0.1 * seconds / size if self._small else seconds / size
        elif size >= LARGE_BYTES:
            self._large = self._large * 0.8 + 0.2 * seconds / size if self._large else seconds / size

    @property
    def learning(self) -> bool:
        """Whether large requests are being tried for the first time, and none has come yet; not for long, since there may be none."""
        return not self._large and self._tries >= TRIED_FIRST and self._requests - self._tried < TRIED_FIRST

    def large_is_better(self) -> bool:
        """Whether to make the next request a large one: a byte comes much sooner in it, or that is to be learnt."""
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


LIMIT_S = 5.0
"""Seconds that an answer is waited for, and for which it counts."""


class ReplacedCheck:
    """What the manifest at a dataset's URL says by now. For the thread that fetches.

    Args:
        objects: of the dataset.
        opened: its manifest when it was opened; None: that is not known, and nothing is ever said.
    """

    def __init__(self, objects: Objects, opened: Manifest | None) -> None:
        self._objects = objects
        self._opened = opened
        self._asked = 0.0
        self._answer: asyncio.Future[set[Identity] | None] | None = None

    async def words(self, shard: ShardEntry) -> str:
        """What became of the dataset that a shard belongs to; "": nothing that is known."""
        if self._opened is None:
            return ""
        now = time.monotonic()
        if self._answer is None or now - self._asked > LIMIT_S:
            self._asked, self._answer = now, self._ask()
        try:
            known = await asyncio.wait_for(asyncio.shield(self._answer), LIMIT_S)
        except (TimeoutError, asyncio.TimeoutError):
            return ""
        if known is None or identity(shard) in known:
            return ""
        if not known:
            return "the dataset there was deleted after it was opened"
        return "the dataset there was replaced by another after it was opened: open it again"

    def _ask(self) -> asyncio.Future[set[Identity] | None]:
        """Reads the manifest in a thread of its own."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[set[Identity] | None] = loop.create_future()

        def settle(found: set[Identity] | None) -> None:
            if not answer.done():
                answer.set_result(found)

        def run() -> None:
            found = self._now()
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(settle, found)

        threading.Thread(target=run, name="fastload-manifest", daemon=True).start()
        return answer

    def _now(self) -> set[Identity] | None:
        """The shards that the manifests at the URL name; none if there is no dataset; None where nobody answers."""
        assert self._opened is not None
        try:
            found = read_manifest(self._objects)
            if found.version > self._opened.version:
                with suppress(RemoteMissingError):
                    old = read_manifest(self._objects, version_name(self._opened.version))
                    return {identity(shard) for shard in (*found.shards, *old.shards)}
            return {identity(shard) for shard in found.shards}
        except RemoteMissingError:
            return set()
        except (DatasetError, RuntimeError):
            return None


RANGE_BYTES = 2 << 20
"""Bytes of a large request: 70 us of CPU for 100 KB, where single samples of that size take 120 to 160."""
GAP = 16 << 10
"""Bytes between two units, of tree pages, that are fetched for nothing in order to have them by one request."""


@dataclass
class Span:
    """Units first .. last of a shard, which are fetched by one request.

    Attributes:
        start, stop: their bytes in the file.
        kept: there is room for them in the cache.
        heals: who wants them from memory, whatever the cache says.
        owner: the pass that they are fetched for.
        reserved: bytes of room for what the pass is to hold of them.
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

    def hold(self, shard: CachedShard, units: Iterable[int], data: memoryview) -> None:
        """Lets the pass hold what it has not asked for yet of some units of the span, whose bytes came."""
        self.give_back()
        if self.owner is None:
            return
        for unit in units:
            start, stop = shard.range_of(unit)
            self.owner.hold((self.shard, unit), start, data[start - self.start : stop - self.start])

    def give_back(self) -> None:
        """Gives the reserved room back; idempotent."""
        if self.owner is not None:
            self.owner.reserve(-self.reserved)
        self.reserved = 0


def alone(shard: CachedShard, unit: Unit) -> Span:
    """The span of one unit of a shard."""
    start, stop = shard.range_of(unit[1])
    return Span(unit[0], unit[1], unit[1], start, stop)


def around(shard: CachedShard, unit: Unit, takes: Callable[[int], bool], most: int = 0) -> Span:
    """The units around one that lie side by side and are taken.

    Args:
        shard: of the unit.
        unit: which is in the span, whether it is taken or not.
        takes: whether a unit of the shard is; asked once of each.
        most: bytes of the span, unless the unit alone has more; 0: the span is within the unit's block of RANGE_BYTES.
    """
    groups = shard.groups
    count = len(groups)
    if unit[1] >= count:
        return alone(shard, unit)  # a column: they lie far apart
    starts, stops = groups.starts, groups.stops
    first = last = unit[1]
    block = int(starts[first]) // RANGE_BYTES

    def near(other: int) -> bool:
        if most:
            return max(int(stops[other]), int(stops[last])) - min(int(starts[other]), int(starts[first])) <= most
        return int(starts[other]) // RANGE_BYTES == block

    def fits(other: int) -> bool:
        return 0 <= other < count and near(other) and takes(other)

    while fits(first - 1) and int(starts[first]) - int(stops[first - 1]) <= GAP:
        first -= 1
    while fits(last + 1) and int(starts[last + 1]) - int(stops[last]) <= GAP:
        last += 1
    stop = stops[last] if first == last else stops[first : last + 1].max()
    return Span(unit[0], first, last, int(starts[first]), int(stop))


def units_of(span: Span) -> list[Unit]:
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
"""Bytes that are fetched before anybody asks for them, for each byte that somebody does ask for."""


class LargeRequests:
    """What a fetcher knows of its requests, to decide by.

    Args:
        saved: bytes for which credit is kept at most.

    Attributes:
        pace: of its requests.
    """

    def __init__(self, saved: int) -> None:
        self.pace = Pace()
        self._saved = saved
        self._credit = 0
        self._requests: deque[weakref.ref[Request]] = deque()  # in their order; one that nobody holds any more was used

    def note(self, request: Request) -> None:
        """Notes a request that begins."""
        self._requests.append(weakref.ref(request))
        self._credit = min(self._credit + FILL * request.size, FILL * self._saved)

    def pay(self, size: int) -> None:
        """Takes bytes that nobody asked for off the credit."""
        self._credit -= size

    def may(self, owner: Pass) -> bool:
        """Whether the next one for a pass may be large."""
        if self._credit < RANGE_BYTES:
            return False
        while self._requests and ((first := self._requests[0]()) is None or not first.wanted):
            self._requests.popleft()
        unused = [request for each in self._requests if (request := each()) is not None and request.wanted]
        finished = sum(request.finished for request in unused)
        return len(unused) > 1 and (2 * finished >= len(unused) or (owner.begun and self.pace.large_is_better()))


NEAR = 64
"""Units of one shard are taken one after the other if at most so many others are between them: one batch."""


class UnitQueue:
    """A queue of units. `take` gives up to MOST of one shard in a row, since requests for one object that begin together cost less."""

    def __init__(self) -> None:
        self._units: deque[Unit] = deque()
        self._shard = -1
        self._left = 0  # that may be taken of the shard before the first in the queue has its turn

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
        """Takes the next unit; `in_order`: the first. Raises IndexError."""
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
        """Drops all."""
        self._units.clear()
        self._left = 0


IN_FLIGHT_BYTES = 16 << 20
"""Bytes that are on their way at once: at 50 ms, 320 MB/s. They are in memory."""
IN_FLIGHT = 96
"""Requests at once."""
BLOCK_MOST = 2 * RANGE_BYTES
"""Most bytes of a block of a pass that are fetched by one request: a sampler's block of 2 MiB has about as many, some more."""
LOOK_S = 0.01
TRIES = 3


class Fetcher:
    """The requests of one dataset, in one process. See NOTE [ fetcher: what is fetched when ].

    Args:
        objects: of the dataset.
        cache: its cache.
        shards: of the cache.
        timeout: seconds after which another process's claim is no reason to wait.
        replaced: says what became of the dataset at the URL.
    """

    def __init__(self, objects: Objects, cache: DatasetCache, shards: list[CachedShard], timeout: float, replaced: ReplacedCheck) -> None:
        self.objects = objects
        self.cache = cache
        self.fetched = 0
        """Bytes of all ranges that were asked for."""
        self.ranges = 0
        self._shards = shards
        self._timeout = timeout
        self._replaced = replaced
        self._stopped: RemoteError | None = None
        self._queue = UnitQueue()
        self._waiting: dict[Unit, list[Request]] = {}
        self._flying: set[Unit] = set()
        self._elsewhere: dict[Unit, float] = {}
        self._large = LargeRequests(IN_FLIGHT_BYTES)
        self._passes: weakref.WeakSet[Pass] = weakref.WeakSet()
        self._bytes = 0
        self._tasks: dict[asyncio.Task[None], Span] = {}
        self._looking = False
        self._error = partial(remote_error, objects.url)

    def begin(self, owner: Pass) -> None:
        """Begins a pass, which ends with the fetcher, or before."""
        self._passes.add(owner)
        if self._stopped is not None:
            owner.end()

    def add(self, request: Request) -> None:
        """Begins to fetch what a request lacks."""
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
        """Fetches units again whose bytes in the cache are damaged, at once."""
        for unit in request.units:
            span = alone(self._shards[unit[0]], unit)
            self.cache.forget(self._shards[span.shard], span.first)
            span.heals = request
            if self.cache.grant(span.start, span.stop):
                span.kept = self.cache.claim(self._shards[span.shard], span.first, span.last)
                if not span.kept:
                    self.cache.give_back(span.start, span.stop)
            self._send(span)

    def stop(self, error: RemoteError) -> None:
        """Ends all requests with an error, those that are still to come too."""
        self._stopped = error
        for span in self._tasks.values():
            if span.heals is not None:
                span.heals.finish(error)
        for task in list(self._tasks):
            task.cancel()
        for owner in list(self._passes):
            owner.end()
        waiting = [request for requests in self._waiting.values() for request in requests]
        self._queue.clear()
        self._waiting.clear()
        self._elsewhere.clear()
        for request in waiting:
            request.finish(error)

    # ---- what comes next

    def _pump(self) -> None:
        """Starts requests while there is room for them."""
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
        """Whether somebody still waits for a unit; if not, it is dropped."""
        alive = [request for request in self._waiting[unit] if request.wanted]
        if alive:
            self._waiting[unit] = alive
        else:
            del self._waiting[unit]
        return bool(alive)

    def _start(self, unit: Unit) -> None:
        if self.cache.full:
            self._send(self._past_cache(unit))
        elif not self._begin(unit, (self._span(unit), alone(self._shards[unit[0]], unit))):
            self._look_later(unit)

    def _begin(self, unit: Unit, spans: Sequence[Span]) -> bool:
        """Begins to fetch the first of some ranges, ever smaller, that finds room and no other process has; False: others have all."""
        for span in spans:
            if not self.cache.grant(span.start, span.stop, smaller=span is not spans[-1]):
                if not self.cache.full:
                    continue
                self._send(self._past_cache(unit))
                return True
            if self.cache.claim(self._shards[span.shard], span.first, span.last):
                span.kept = True
                self._send(span)
                return True
            self.cache.give_back(span.start, span.stop)
        return False

    def _send(self, span: Span) -> None:
        self._flying.update(units_of(span))
        self._bytes += span.stop - span.start
        task = asyncio.get_running_loop().create_task(self._fetch(span))
        self._tasks[task] = span
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """The end of a task, however it came: there is room for the next. In a regular one all that waited for its units know already."""
        span = self._tasks.pop(task)
        span.give_back()  # a task that is cancelled before it begins runs no line
        failure = None if task.cancelled() else task.exception()
        if failure is not None:
            self._settle(span, self._error(failure), b"", False)
        if self._stopped is None:
            self._pump()

    def _span(self, unit: Unit) -> Span:
        """The range to fetch for a unit into the cache."""
        owner = self._pass_of(unit)
        if owner is None or not self._large.may(owner):
            return self._run(unit, self._asked_for)
        span = self._run(unit, lambda *other: self._asked_for(*other) or owner.needs(*other), BLOCK_MOST if owner.blocks else 0)
        return self._paid(span, unit)

    def _past_cache(self, unit: Unit) -> Span:
        """The range to fetch for a unit that finds no room in the cache; its pass holds what nobody asks for yet."""
        owner, shard = self._pass_of(unit), self._shards[unit[0]]
        if owner is None or not owner.blocks:
            return self._run(unit, self._asked_for)
        room = free = owner.free if self._large.may(owner) else 0

        def takes(number: int, other: int) -> bool:
            nonlocal free
            if not self._asked_for(number, other):
                start, stop = shard.range_of(other)
                if not owner.needs(number, other) or stop - start > free:
                    return False
                free -= stop - start
            return True

        span = self._paid(self._run(unit, takes, BLOCK_MOST), unit)
        span.owner, span.reserved = owner, room - free
        owner.reserve(span.reserved)
        return span

    def _paid(self, span: Span, unit: Unit) -> Span:
        """A range, paid for with credit."""
        own = alone(self._shards[unit[0]], unit)
        self._large.pay((span.stop - span.start) - (own.stop - own.start))
        return span

    def _pass_of(self, unit: Unit) -> Pass | None:
        """The pass that asks for a unit; None: nobody does, or nothing is known of it."""
        waiting = self._waiting.get(unit)
        return waiting[0].share.owner if waiting and waiting[0].share is not None else None

    def _waits_to_learn(self, owner: Pass, unit: Unit) -> bool:
        """Whether nothing more is asked for yet: the first request comes first, and then it is found how the rest is fetched best."""
        if self.cache.full and not owner.blocks:
            return False  # nothing is fetched but what is asked for
        return self._large.pace.learning if owner.begun else not owner.waits_first_for(unit)

    def _asked_for(self, shard: int, number: int) -> bool:
        return (shard, number) in self._waiting

    def _run(self, unit: Unit, takes: Callable[[int, int], bool], most: int = 0) -> Span:
        """The units around one that lie side by side, are not there and are taken, within a block of RANGE_BYTES, or `most` bytes."""
        number = unit[0]
        shard = self._shards[number]
        return around(
            shard, unit, lambda other: not shard.state[other] and (number, other) not in self._flying and takes(number, other), most
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
        """Whether a unit that another process claimed need not be looked for any more: it is there, or fetched here, or nobody waits."""
        shard, number = unit
        if unit not in self._waiting or not self._is_wanted(unit) or unit in self._flying:
            return True
        if self.cache.refresh(self._shards[shard], number, number):
            self._arrived(unit)
            return True
        if time.monotonic() - since > self._timeout:
            self._send(alone(self._shards[unit[0]], unit))
            return True
        return self._begin(unit, (alone(self._shards[unit[0]], unit),))

    # ---- what has come

    async def _fetch(self, span: Span) -> None:
        """Fetches a range, checks it, keeps it, and tells those who wait."""
        shard = self._shards[span.shard]
        error: RemoteError | None = None
        data: Buffer = b""
        good: list[int] = []
        kept = False
        try:
            if span.kept and span.heals is None and self.cache.refresh(shard, span.first, span.last):
                kept = True  # another process was a moment ahead
                self.cache.give_back(span.start, span.stop)
            else:
                try:
                    data, good = await self._checked(span)
                except BaseException:
                    if span.kept:
                        self.cache.give_back(span.start, span.stop)
                    raise
                kept = span.kept and self.cache.keep(shard, span.start, data, runs_of(good))
        except Exception as failure:  # belongs to those who wait
            error = self._error(failure)
        finally:
            if span.kept:
                self.cache.disclaim(shard, span.first, span.last)
            self._bytes -= span.stop - span.start
            self._flying.difference_update(units_of(span))
        self._settle(span, error, data, kept)
        span.hold(shard, good, memoryview(data))

    def _settle(self, span: Span, error: RemoteError | None, data: Buffer, kept: bool) -> None:
        """Tells those who wait for a range what became of it."""
        shard, view = self._shards[span.shard], memoryview(data)
        for unit in units_of(span):
            if error is not None:
                self._failed(unit, error)
                if span.heals is not None:
                    span.heals.failed(unit, error)
                continue
            there = kept and shard.state[unit[1]]
            taken = None
            if not there or span.heals is not None:
                start, stop = shard.range_of(unit[1])
                taken = start, view[start - span.start : stop - span.start]
            self._arrived(unit, None if there else taken)
            if span.heals is not None:
                span.heals.arrived(unit, taken)

    async def _checked(self, span: Span) -> tuple[Buffer, list[int]]:
        """The bytes of a range, and which of its units are the dataset's. They are asked for again where one is not."""
        shard = self._shards[span.shard]
        place = f"{self.objects.url}/{shard.entry.file}"
        try:
            for _ in range(TRIES):
                began = time.monotonic()
                data = await self.objects.fetch(shard.entry.file, span.start, span.stop)
                self._large.pace.note(span.stop - span.start, time.monotonic() - began)
                self.fetched += span.stop - span.start
                self.ranges += 1
                bad = shard.damaged(span.first, span.last, memoryview(data))
                if not bad:
                    break
            else:
                if words := await self._replaced.words(shard.entry):
                    what = f"bytes {span.start}-{span.stop - 1} of {place} are not those of the dataset, after {TRIES} tries: {words}"
                    raise RemoteError(what, url=place, tries=TRIES)
        except RemoteError as error:
            if error.url != self.objects.url and (words := await self._replaced.words(shard.entry)) and words not in str(error):
                raise type(error)(f"{error.args[0]}: {words}", url=error.url, tries=error.tries) from None
            raise
        return data, [unit for unit in range(span.first, span.last + 1) if unit not in bad]

    def _arrived(self, unit: Unit, taken: tuple[int, Buffer] | None = None) -> None:
        for request in self._waiting.pop(unit, ()):
            request.arrived(unit, taken)

    def _failed(self, unit: Unit, error: RemoteError) -> None:
        for request in self._waiting.pop(unit, ()):
            request.failed(unit, error)
