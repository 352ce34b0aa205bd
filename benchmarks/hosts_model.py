"""Simulation of hosts that train from one bucket: the events of a small epoch with the ranks, rates and rules
of a large one.

The model, with what it assumes, in the order of a request's way:

1. Training. R ranks on each of H hosts go in lockstep, as under DDP: step k begins when step k - 1 has ended
   and every rank has batch k. A step takes batch / rate seconds on each. Decoding takes no time: a batch is
   ready when the bytes of its last sample are there.
2. Orders. "shuffle" and "huge": rank r has the places r, r + HR, ... of a random permutation. "window": each
   rank has its stretch of blocks, by fastload's own WindowOrder, or with `keep` by WindowSampler(hosts=H),
   where a host has the same part in every epoch. Samples have one size, and no sample is two ranks' in one
   epoch.
3. Ahead of the loop, `depth` batches and 32 MiB of samples are asked for (READ_AHEAD_BYTES of
   fastload.engines.threads.engine).
4. A process asks for one sample at a time, in its order, or for a range as fastload.remote.fetcher makes it:
   neighbours that its own pass needs, within a block of 2 MiB, or 4 MiB of open blocks of a window, where the
   credit and Pace (fastload's own class) allow it. At most 96 requests and 16 MiB are on their way.
5. A host's cache is shared by its ranks, holds the share c of the data, and drops nothing. Its disk is fast
   enough.
6. The store answers after a lognormal time, given by its median and 99th percentile, sends one body at
   `stream` bytes a second, and all bodies together at `store_bytes` a second. It takes `store_requests` a
   second, and `burst` seconds of them at once after a pause. A request beyond that gets 503, after a time of
   the same distribution. The store never raises its limit; S3 does, within some time.
7. After 503 a process sends one request at a time, after pauses that double from 1 s to 16 s, until one is
   answered. Each request pauses by the same rule itself, and fails after `timeout`. In fastload that ends the
   training; here it is counted, and the sample is given.
8. A host's link is one queue for its ranks. The links of some hosts (stragglers) are slower.
9. Left out: TCP and TLS, opening the dataset, the early beginning of the next epoch, failures other than 503.

How it is scaled. Of many hosts some are simulated (16 unless told otherwise), with their share of the store's
limits; a step then waits for the slowest of fewer ranks. Each rank has some dozens of steps instead of an
epoch of the dataset, and a window's buffer has `buffer` blocks instead of 1 GiB. Shares stay: of the data
that a host reads in an epoch (1/H), that its cache holds (c), and that a rank needs of a block. So requests
and bytes of a sample, and the time of a step, are those of the dataset, and an epoch of it takes as many
times longer as it has more samples. The time of a step, and the bytes of a request, are those of the middle
of the steps, where as much is asked for ahead at the beginning as at the end: how an epoch starts and ends
weighs more in a small one. Where steps wait, and less comes in that time than they use, they live on what
came before: their time is then that in which as much comes.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter, deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from events import Events

from fastload.engines.threads.engine import READ_AHEAD, READ_AHEAD_BYTES
from fastload.remote.failures import FIRST_PAUSE, FIRST_PAUSE_BUSY, LONGEST_PAUSE
from fastload.remote.fetcher import BLOCK_MOST, FILL, IN_FLIGHT, IN_FLIGHT_BYTES, RANGE_BYTES, Pace
from fastload.remote.requests import HELD_BYTES
from fastload.sampling.window import WindowOrder, WindowSampler
from fastload.store.groups import GROUP_BYTES

ORDERS = ("shuffle", "huge", "window")
S3_REQUESTS = 5500
"""GET requests a second that S3 takes at least of each partitioned prefix: "Best practices design patterns:
optimizing Amazon S3 performance",
https://docs.aws.amazon.com/AmazonS3/latest/userguide/optimizing-performance.html."""
ENOUGH = 1.01
"""Steps that take longer than they compute by this factor have waited."""
BIN_S = 0.25
"""Seconds over which the peak of requests is counted."""
_P99 = 2.3263478740408408
"""The standard normal distribution's 99th percentile."""


@dataclass(frozen=True)
class Scenario:
    """What is simulated.

    Attributes:
        name: for the table.
        hosts, ranks: hosts, and ranks on each.
        simulated: hosts that are simulated; 0: SIMULATED of them, or all of fewer.
        order: "shuffle", "huge" or "window".
        keep: whether each host keeps its part of the data in all epochs, by WindowSampler(hosts=); for
            "window".
        cache: share c of the data that each host's cache may hold.
        filled: whether the caches are full when the first epoch begins.
        dataset_bytes: of the data; epochs are scaled to it.
        sample_bytes: of a sample.
        batch: samples of a rank's batch.
        buffer: blocks of a window's buffer, in the small epoch.
        held: bytes that a process may hold of blocks that find no room in the cache.
        depth: batches in flight beside those that are read ahead.
        rate: samples a second that a rank computes.
        link: bytes a second of a host.
        stragglers: share of the hosts whose link is slower.
        slower: how many times.
        latency, latency_p99: seconds to the first byte, median and 99th percentile.
        stream: bytes a second of one request.
        store_requests, store_bytes: the store's limits a second; 0: none.
        burst: seconds of store_requests that the store takes at once after a pause.
        timeout: seconds after which a request fails.
        epochs: how many.
        steps: of a simulated epoch; 0: some times as many as are asked for ahead.
        seed: of all that is drawn.
    """

    name: str = ""
    hosts: int = 64
    ranks: int = 8
    simulated: int = 0
    order: str = "window"
    keep: bool = False
    cache: float = 0.0
    filled: bool = False
    dataset_bytes: float = 10e12
    sample_bytes: int = 110_000
    batch: int = 64
    buffer: int = 8
    held: int = HELD_BYTES
    depth: int = 2
    rate: float = 500.0
    link: float = 12.5e9
    stragglers: float = 0.0
    slower: float = 4.0
    latency: float = 0.1
    latency_p99: float = 0.3
    stream: float = 85e6
    store_requests: float = S3_REQUESTS
    store_bytes: float = 0.0
    burst: float = 1.0
    timeout: float = 60.0
    epochs: int = 1
    steps: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.steps and self.steps < 4:
            raise ValueError(f"steps={self.steps}: simulate 4 or more")
        if self.order not in ORDERS:
            raise ValueError(f"order={self.order!r} is none of {', '.join(ORDERS)}")
        if self.keep and (self.order != "window" or self.filled):
            raise ValueError("keep is for order=window, and for caches that the epochs themselves fill")
        if self.sample_bytes < GROUP_BYTES:
            raise ValueError(
                f"samples of {self.sample_bytes} bytes: those below {GROUP_BYTES} come in groups, "
                "which is not simulated"
            )

    @property
    def processes(self) -> int:
        """Number of ranks on all hosts."""
        return self.hosts * self.ranks

    @property
    def samples(self) -> int:
        """Samples of the dataset."""
        return round(self.dataset_bytes / self.sample_bytes)

    @property
    def block(self) -> int:
        """Samples of a window's block."""
        return max(1, RANGE_BYTES // self.sample_bytes)

    @property
    def step_s(self) -> float:
        """Seconds that a step computes."""
        return self.batch / self.rate

    @property
    def asked_ahead(self) -> int:
        """Batches that are asked for before their turn."""
        return self.depth + -(-max(READ_AHEAD, READ_AHEAD_BYTES // self.sample_bytes) // self.batch)

    @property
    def mean_latency(self) -> float:
        """Mean of the time to the first byte."""
        return self.latency * math.exp(self._sigma**2 / 2)

    @property
    def _sigma(self) -> float:
        return math.log(self.latency_p99 / self.latency) / _P99 if self.latency else 0.0

    @property
    def seen_hosts(self) -> int:
        """Hosts that are simulated."""
        return min(self.simulated or SIMULATED, self.hosts)

    @property
    def slow_hosts(self) -> int:
        """Those of them whose link is slower."""
        return math.ceil(self.stragglers * self.seen_hosts)

    @property
    def simulated_steps(self) -> int:
        """Steps of a simulated epoch."""
        return self.steps or STEPS[self.order] * self.asked_ahead

    def latencies(self, count: int, rng: np.random.Generator) -> list[float]:
        """Draws of the time to the first byte."""
        drawn: list[float] = (self.latency * np.exp(self._sigma * rng.standard_normal(count))).tolist()
        return drawn


SIMULATED = 16
STEPS = {"shuffle": 6, "huge": 6, "window": 9}
"""Steps of a simulated epoch, in times of what is asked for ahead: an order of single samples has 19 times
as many requests."""


@dataclass(frozen=True)
class Epoch:
    """What one simulated epoch came to.

    Attributes:
        samples: of it, of the ranks that are simulated.
        steps: of it.
        step_s: mean seconds from the beginning of a step to that of the next,, in the middle of the epoch.
        range_bytes: mean bytes of a request that was answered there; 0: there was none.
        refusals: answers of 503 there for each request that was answered.
        first_s: seconds from the beginning of the epoch to its first step.
        seconds: of all of it.
        requests: answered with data.
        bytes: of their bodies.
        refused: answers of 503.
        failed: requests that were given up after `timeout`.
        peak: most requests a second of these hosts, over a quarter of a second, refused ones too.
        fetched_twice: samples that a host fetched although it had fetched and kept them.
        cached: mean share of the data in a host's cache at the end.
    """

    samples: int
    steps: int
    step_s: float
    range_bytes: float
    refusals: float
    first_s: float
    seconds: float
    requests: int
    bytes: int
    refused: int
    failed: int
    peak: float
    fetched_twice: int
    cached: float


class _Fetch:
    """One request of a process: units first .. last of the data."""

    __slots__ = ("began", "first", "kept", "last", "paused", "rank", "sent", "tries")

    def __init__(self, rank: _Rank, first: int, last: int, kept: bool, began: float) -> None:
        self.rank, self.first, self.last, self.kept, self.began = rank, first, last, kept, began
        self.sent = began
        self.tries = 1


class _Rank:
    """One process: its order, what it has asked for, and what is on its way."""

    def __init__(self, number: int, host: int, asks: list[int], batches: int) -> None:
        self.number, self.host, self.asks = number, host, asks
        self.left = [0] * batches  # samples of each batch that are still to come
        self.asked = self.taken = self.finished = 0  # batches
        self.queue: deque[int] = deque()
        self.flying = self.flying_bytes = 0
        self.held = 0
        self.credit = 0
        self.full = False
        self.pace = Pace()
        # a busy server: see fastload.remote.obstore.BusyServer
        self.busy = False
        self.rounds = 0
        self.closed_at = self.next = 0.0
        self.waiting: deque[_Fetch] = deque()


class Simulation:
    """Hosts with their caches, over a scenario's epochs."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.steps = scenario.simulated_steps
        self.count = scenario.processes * self.steps * scenario.batch
        self._rng = np.random.default_rng(scenario.seed)
        self._random = random.Random(scenario.seed)
        self._cached = [bytearray(self.count) for _ in range(scenario.seen_hosts)]
        self._room = [int(scenario.cache * self.count)] * scenario.seen_hosts
        if scenario.filled:
            for host in range(scenario.seen_hosts):
                self._fill(host)
        links = [scenario.link] * scenario.seen_hosts
        for host in range(scenario.slow_hosts):
            links[host] /= scenario.slower
        self._links = links

    def _fill(self, host: int) -> None:
        """Fills a host's cache with blocks at random."""
        block, room = self.scenario.block, self._room[host]
        order = self._rng.permutation(-(-self.count // block))
        units = (order[:, None] * block + np.arange(block)).ravel()
        units = units[units < self.count][:room]
        found = np.zeros(self.count, np.uint8)
        found[units] = 1
        self._cached[host] = bytearray(found.tobytes())
        self._room[host] = 0

    def orders(self, epoch: int) -> list[npt.NDArray[np.int64]]:
        """The samples of each rank that is simulated in an epoch, in their order."""
        scenario, world = self.scenario, self.scenario.processes
        share, seen = self.count // world, range(scenario.seen_hosts * scenario.ranks)
        if scenario.order != "window":
            order = np.random.default_rng((scenario.seed, epoch)).permutation(self.count)
            return [order[rank::world] for rank in seen]
        buffer = scenario.buffer * scenario.block
        key = scenario.seed * 1_000_003 + epoch
        if scenario.keep:
            return [self._kept(epoch, rank) for rank in seen]
        return [
            WindowOrder(self.count, scenario.block, buffer, key, rank * share, share).indices()
            for rank in seen
        ]

    def _kept(self, epoch: int, rank: int) -> npt.NDArray[np.int64]:
        s = self.scenario
        sizes = {"block": s.block, "buffer": s.buffer * s.block}
        sampler = WindowSampler(
            self.count, **sizes, seed=s.seed, num_replicas=s.processes, rank=rank, hosts=s.hosts
        )
        sampler.set_epoch(epoch)
        return sampler.indices()

    def run(self) -> list[Epoch]:
        """All epochs."""
        return [_Pass(self, epoch).epoch() for epoch in range(self.scenario.epochs)]


class _Pass(Events):
    """One epoch of a simulation."""

    def __init__(self, simulation: Simulation, epoch: int) -> None:
        super().__init__()
        self.s = scenario = simulation.scenario
        self.steps, self.count = simulation.steps, simulation.count
        self.cached, self.room, self.links = simulation._cached, simulation._room, simulation._links
        self._random = simulation._random
        self._latencies = itertools.cycle(scenario.latencies(1 << 18, simulation._rng)).__next__
        orders = simulation.orders(epoch)
        owner, place = np.full(self.count, -1), np.full(self.count, -1)
        for number, order in enumerate(orders):
            owner[order], place[order] = number, np.arange(len(order))
        self.owner: list[int] = owner.tolist()
        self.place: list[int] = place.tolist()
        self.state = bytearray(self.count)  # of each sample: 1 on its way, 2 there
        self.blocks = -(-self.count // scenario.block)
        # By rank and block.
        self.opened = bytearray(self.blocks * len(orders)) if scenario.order == "window" else None
        self.ranks = [
            _Rank(n, n // scenario.ranks, order.tolist(), self.steps) for n, order in enumerate(orders)
        ]
        self.window = scenario.order == "window"
        self.lacking = [len(orders)] * self.steps  # ranks that have not the batch of a step
        self.step, self.computing = 0, False
        seen = scenario.seen_hosts / scenario.hosts
        self.store_requests, self.store_bytes = seen * scenario.store_requests, seen * scenario.store_bytes
        self.tokens, self.tokens_at = self.s.burst * self.store_requests, 0.0
        self.store_free = 0.0
        self.link_free = [0.0] * scenario.seen_hosts
        self.requests = self.bytes = self.refused = self.failed = self.twice = 0
        self.marks: list[
            tuple[float, int, int, int]
        ] = []  # time, requests, bytes and refused ones as each step begins
        self.bins: Counter[int] = Counter()

    def epoch(self) -> Epoch:
        """Runs it to its end."""
        s = self.s
        for rank in self.ranks:
            self._ask(rank)
        self.run()
        if self.step < self.steps:
            raise RuntimeError(f"the simulation stands still in step {self.step}")
        first, last = 2 * s.asked_ahead, self.steps - 1 - s.asked_ahead
        if first >= last:
            first, last = self.steps // 4, self.steps - 1
        (begun, before, less, refused), (ended, after, more, refused_more) = (
            self.marks[first],
            self.marks[last],
        )
        held = [cache.count(1) for cache in self.cached]
        step_s, used = (ended - begun) / (last - first), self.bytes / self.steps * (last - first)
        if more > less and step_s > ENOUGH * s.step_s:
            step_s *= max(1.0, used / (more - less))
        return Epoch(
            samples=sum(len(rank.asks) for rank in self.ranks),
            steps=self.steps,
            step_s=step_s,
            range_bytes=(more - less) / (after - before) if after > before else 0.0,
            refusals=(refused_more - refused) / (after - before) if after > before else 0.0,
            first_s=self.marks[0][0],
            seconds=self.marks[-1][0] + s.step_s,
            requests=self.requests,
            bytes=self.bytes,
            refused=self.refused,
            failed=self.failed,
            peak=max(self.bins.values(), default=0) / BIN_S,
            fetched_twice=self.twice,
            cached=sum(held) / len(held) / self.count,
        )

    # ---- training

    def _begin_step(self) -> None:
        """All ranks take their batch, and ask for what comes then."""
        self.marks.append((self.now, self.requests, self.bytes, self.refused))
        self.computing = True
        self.push(self.now + self.s.step_s, self._step_ended, None)
        for rank in self.ranks:
            rank.taken += 1
            rank.finished -= 1
            self._ask(rank)

    def _step_ended(self, _: None) -> None:
        self.computing = False
        self.step += 1
        if self.step < self.steps and not self.lacking[self.step]:
            self._begin_step()

    def _came(self, rank: _Rank, unit: int) -> None:
        """A sample that was asked for is there."""
        batch = self.place[unit] // self.s.batch
        rank.left[batch] -= 1
        if not rank.left[batch]:
            self._ready(rank, batch)

    def _ready(self, rank: _Rank, batch: int) -> None:
        rank.finished += 1
        self.lacking[batch] -= 1
        if batch == self.step and not self.lacking[batch] and not self.computing:
            self.push(self.now, self._attempt, None)  # all that happens now happens before

    # ---- what a process asks for

    def _ask(self, rank: _Rank) -> None:
        """Asks for the batches that are due, and begins to fetch each before the next is asked for."""
        s, state, cached = self.s, self.state, self.cached[rank.host]
        due = min(self.steps, rank.taken + s.asked_ahead)
        while rank.asked < due:
            batch = rank.asked
            rank.asked += 1
            units = rank.asks[batch * s.batch : (batch + 1) * s.batch]
            if self.opened is not None:
                base = rank.number * self.blocks
                for unit in units:
                    self.opened[base + unit // s.block] = 1
            left = 0
            for unit in units:
                if cached[unit]:
                    continue
                if state[unit] == 2:
                    rank.held -= s.sample_bytes
                    continue
                left += 1
                if not state[unit]:
                    rank.queue.append(unit)
            rank.left[batch] = left
            rank.credit = min(rank.credit + FILL * s.batch * s.sample_bytes, FILL * IN_FLIGHT_BYTES)
            if not left:
                self._ready(rank, batch)
            self._pump(rank)

    def _pump(self, rank: _Rank) -> None:
        """Starts requests while there is room for them."""
        state, queue = self.state, rank.queue
        while queue and rank.flying_bytes < IN_FLIGHT_BYTES and rank.flying < IN_FLIGHT:
            unit = queue[0]
            if state[unit]:
                queue.popleft()
                continue
            if rank.flying and (self.window or not rank.full) and self._waits_to_learn(rank, unit):
                return
            queue.popleft()
            first, last, kept = self._range(rank, unit)
            state[first : last + 1] = b"\1" * (last + 1 - first)
            rank.flying += 1
            rank.flying_bytes += (last + 1 - first) * self.s.sample_bytes
            self._attempt(_Fetch(rank, first, last, kept, self.now))

    def _waits_to_learn(self, rank: _Rank, unit: int) -> bool:
        """The first batch comes first; then it is found how the rest is fetched best."""
        if rank.left[0] and not rank.taken:
            return self.place[unit] >= self.s.batch
        return rank.pace.learning

    def _may_be_large(self, rank: _Rank) -> bool:
        """fastload.remote.fetcher.LargeRequests.may"""
        unused = rank.asked - rank.taken
        if rank.credit < RANGE_BYTES or unused < 2:
            return False
        begun = rank.taken > 0 or not rank.left[0]
        return 2 * rank.finished >= unused or (begun and rank.pace.large_is_better())

    def _range(self, rank: _Rank, unit: int) -> tuple[int, int, bool]:
        """First and last sample of the request for one, and whether the cache has room for them; that is
        taken."""
        host, size, blocks = rank.host, self.s.sample_bytes, self.window
        rank.full = rank.full or self.room[host] < 1
        # The usual case of many ranks, and soon answered.
        if not blocks and self._is_lonely(rank.number, unit):
            self.room[host] -= not rank.full
            return unit, unit, not rank.full
        large = (blocks or not rank.full) and self._may_be_large(rank)
        free = self.s.held - rank.held if rank.full else size * self.count
        asked, place, owner, state, cached = (
            rank.asked * self.s.batch,
            self.place,
            self.owner,
            self.state,
            self.cached[host],
        )
        number, mine = rank.number, RANGE_BYTES
        opened, base = self.opened, number * self.blocks
        block = unit * size // mine
        first = last = unit

        def takes(other: int) -> bool:
            nonlocal free
            if not 0 <= other < self.count or state[other] or owner[other] != number or cached[other]:
                return False
            if blocks and large:
                if (max(other, last) - min(other, first) + 1) * size > BLOCK_MOST:
                    return False
            elif other * size // mine != block:
                return False
            if place[other] < asked:
                return True
            if not large or (opened is not None and not opened[base + other // self.s.block]) or free < size:
                return False
            free -= size
            return True

        while takes(first - 1):
            first -= 1
        while takes(last + 1):
            last += 1
        kept = not rank.full
        if kept and self.room[host] < last + 1 - first:
            first = last = unit  # smaller, and then past the cache
        if kept:
            self.room[host] -= last + 1 - first
        if large:
            rank.credit -= (last - first) * size
        return first, last, kept

    def _is_lonely(self, number: int, unit: int) -> bool:
        """Whether a rank may fetch neither neighbour of a sample with it."""
        before, after = unit - 1, unit + 1
        return (unit == 0 or self.owner[before] != number or self.state[before] != 0) and (
            after == self.count or self.owner[after] != number or self.state[after] != 0
        )

    # ---- the store, and the way back

    def _attempt(self, fetch: _Fetch | None) -> None:
        """Sends a request, or lets it wait for its turn at a busy server."""
        if fetch is None:
            return self._begin_step()
        s, now, rank = self.s, self.now, fetch.rank
        if rank.busy:
            if now - fetch.began >= s.timeout:
                return self._give_up(fetch)
            if now < rank.next:
                rank.waiting.append(fetch)
                if len(rank.waiting) == 1:
                    self.push(rank.next, self._wake, rank)
                return
            rank.next = now + self._busy_pause(rank)
        fetch.sent = now
        self.bins[int(now / BIN_S)] += 1
        answer = now + self._latencies()
        if self.store_requests:
            self.tokens = min(
                self.tokens + (now - self.tokens_at) * self.store_requests,
                max(1.0, self.s.burst * self.store_requests),
            )
            self.tokens_at = now
            if self.tokens < 1:
                return self.push(answer, self._refused, fetch)
            self.tokens -= 1
        size = (fetch.last + 1 - fetch.first) * s.sample_bytes
        if self.store_bytes:
            answer = self.store_free = max(answer, self.store_free) + size / self.store_bytes
        self.push(answer + size / s.stream, self._arrive, fetch)

    def _arrive(self, fetch: _Fetch) -> None:
        """The body stands before the host's link."""
        host = fetch.rank.host
        size = (fetch.last + 1 - fetch.first) * self.s.sample_bytes
        self.link_free[host] = free = max(self.now, self.link_free[host]) + size / self.links[host]
        self.push(free, self._done, fetch)

    def _done(self, fetch: _Fetch) -> None:
        """The body has come."""
        rank, size = fetch.rank, (fetch.last + 1 - fetch.first) * self.s.sample_bytes
        self.requests += 1
        self.bytes += size
        rank.pace.note(size, self.now - fetch.began)
        self._deliver(fetch)
        if rank.busy:
            rank.busy = False
            waiting, rank.waiting = rank.waiting, deque()
            for each in waiting:
                self._attempt(each)
        self._pump(rank)

    def _deliver(self, fetch: _Fetch) -> None:
        rank, state, cached = fetch.rank, self.state, self.cached[fetch.rank.host]
        asked, place, size = rank.asked * self.s.batch, self.place, self.s.sample_bytes
        rank.flying -= 1
        rank.flying_bytes -= (fetch.last + 1 - fetch.first) * size
        for unit in range(fetch.first, fetch.last + 1):
            state[unit] = 2
            self.twice += cached[unit]
            cached[unit] |= fetch.kept
            if place[unit] < asked:
                self._came(rank, unit)
            elif not fetch.kept:
                rank.held += size

    # ---- a busy server

    def _busy_pause(self, rank: _Rank) -> float:
        longest = min(FIRST_PAUSE_BUSY * 2.0 ** max(rank.rounds - 1, 0), LONGEST_PAUSE)
        return longest * self._random.uniform(0.5, 1.0)

    def _refused(self, fetch: _Fetch) -> None:
        """503: the process sends less, and this request pauses."""
        rank, now = fetch.rank, self.now
        self.refused += 1
        left = fetch.began + self.s.timeout - now
        if not rank.busy or fetch.sent >= rank.closed_at:
            rank.rounds = rank.rounds + 1 if rank.busy else 1
            rank.busy, rank.closed_at = True, now
            rank.next = now + min(self._busy_pause(rank), max(left, 0.0) / 2)
        if left < FIRST_PAUSE:
            return self._give_up(fetch)
        longest = min(FIRST_PAUSE_BUSY * 2.0 ** (fetch.tries - 1), LONGEST_PAUSE)
        fetch.tries += 1
        self.push(now + min(longest * self._random.uniform(0.5, 1.0), left / 2), self._attempt, fetch)

    def _wake(self, rank: _Rank) -> None:
        """A waiting request asks for its turn."""
        if rank.busy and rank.waiting:
            if self.now < rank.next:
                return self.push(rank.next, self._wake, rank)
            self._attempt(rank.waiting.popleft())
            if rank.waiting:
                self.push(rank.next, self._wake, rank)

    def _give_up(self, fetch: _Fetch) -> None:
        self.failed += 1
        self._deliver(fetch)
        self._pump(fetch.rank)
