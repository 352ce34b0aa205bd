"""ThreadEpochs: the epochs of a loader over packed data. All use one engine, and the next epoch may begin
early. NativeIterator: iterates packed data by native threads, with a number of batches in flight.

NOTE [ epochs: the next one, begun early ]
When an epoch's last batches are in flight, the threads would idle until the next iter(). So the next epoch
begins at once, on the assumption that nothing changes: the generators are saved, the draws are made, and the
generators are restored. iter() uses the early epoch only if everything that it was made from is unchanged:
the epoch, the engine with its transforms, the dataset's rows, the samplers and their parameters, and the
generators. Then the generators are set to their states after the draws. Otherwise the early epoch is dropped.
So the user's own random numbers, and every batch, are the same as without it. A sampler of the user's is not
drawn early: its draws cannot be undone. Nor is any without workers, where torch draws nothing of the order at
iter().

What an early epoch fetches from a bucket is wasted after a loop's last epoch, and nobody says which that is.
So until iter() it fetches EARLY_SHARE of the bytes that the pass before it asked for, and nothing beside what
its batches ask for. That is all of READ_AHEAD_BYTES where a dataset has a few GB; of a small one, batches
whose samples the cache lacks begin at iter().

Files outside of packed data, in place or attached, may change between the early reading and iter(). So the
batches that are in flight at iter() are marked, and rows of theirs whose files have another stamp (inode,
size, times of change) are made again when their batch is finished. Only the files of those batches are asked
for their status; batches that are submitted later read the files as they are then.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from fastload._native import core
from fastload.batch.bad_samples import NOTHING
from fastload.dataset.resolver import same_objects
from fastload.device.pinning import PinnedCache
from fastload.engines.indices import EpochState, Progress, begin, follow, fresh, generators_of, iterated_again
from fastload.engines.iterator import LoaderIterator, LossCounts
from fastload.engines.plan import ExecutionPlan
from fastload.engines.settings import Settings
from fastload.engines.threads.assemble import BatchAssembler
from fastload.engines.threads.bucket import BucketPass
from fastload.engines.threads.device_prefetch import DevicePrefetcher
from fastload.engines.threads.engine import ThreadEngine
from fastload.errors import LoaderTimeout
from fastload.health import tracing
from fastload.sampling.arrays import index_batches
from fastload.sampling.known import Coverage, coverage
from fastload.sampling.occurrences import Occurrences

EARLY_SHARE = 1 / 128
"""Bytes that an epoch begun early fetches, as a share of those that the pass before it asked for."""

Drawn = tuple[int, Any, Occurrences | None]
"""(number, index batch, how often each index came before) of a batch."""


class IndexQueue:
    """The index batches of a pass, drawn when torch draws them. See NOTE [ samplers: drawn when torch draws
    them ].

    1. begin() is called at iter(), asked() as the loop asks for a batch, taken() as one leaves the queue.
       Each draws what is due then.
    2. take() gives the next index batch that is drawn. If the sampler may be drawn ahead it draws one, once a
       first one is due. It may not where a Subset is asked for its indices (`asks_subset`): see
       NOTE [ subsets: what their indices say ].

    Attributes:
        batches: the sampler's iterator; None: it is exhausted.
    """

    def __init__(
        self, batches: Iterator[Any], settings: Settings, epoch_state: EpochState, *, asks_subset: bool
    ) -> None:
        self.batches: Iterator[Any] | None = batches
        self._epoch_state = epoch_state
        self._at_iter = settings.drawn_at_iter
        self._ahead = settings.may_draw_ahead and not asks_subset
        self._due = 0
        self._drawn: deque[Drawn] = deque()

    @property
    def exhausted(self) -> bool:
        """True if take() will return no more index batches."""
        return self.batches is None and not self._drawn

    def begin(self) -> None:
        self._draw(self._at_iter)

    def asked(self) -> None:
        if not self._at_iter:
            self._draw(1)

    def taken(self) -> None:
        if self._at_iter:
            self._draw(1)

    def take(self) -> Drawn | None:
        """The next batch's indices; None: there is none, or none is due yet."""
        if not self._drawn and self._ahead and self._due:
            self._pull()
        return self._drawn.popleft() if self._drawn else None

    def put_back(self, drawn: Drawn) -> None:
        """Puts back what `take` returned last."""
        self._drawn.appendleft(drawn)

    def drop(self) -> None:
        """Drops all index batches that are left."""
        self.batches = None
        self._drawn.clear()

    def _draw(self, count: int) -> None:
        self._due += count
        for _ in range(0 if self._ahead else count):
            self._pull()

    def _pull(self) -> None:
        if self.batches is None:
            return
        try:
            index = next(self.batches)
        except StopIteration:
            self.batches = None
        else:
            self._drawn.append((self._epoch_state.at, index, self._epoch_state.again))


class NativeIterator(LoaderIterator):
    """Iterator over one epoch of packed data, or, with persistent_workers, over one after another.

    1. The loader creates it, with a seed and an epoch. It draws from the sampler as IndexQueue says.
    2. A batch's error is raised when that batch's turn comes, and the batches after it stay deliverable.
    3. When the sampler is exhausted, free depth is used by `successor`, the next epoch begun early, if the
       loader makes one.
    4. If batches are moved or transformed, a thread does that ahead of the loop: see
       fastload.engines.threads.device_prefetch. It runs from the first start() without a depth until the end
       of the pass, close(), or the iterator's collection. Batches in flight and batches moved ahead are then
       limited separately.
    5. Dropping the iterator half-way is safe: see core.Batch.
    """

    def __init__(
        self,
        engine: ThreadEngine,
        batches: Iterator[Sequence[int] | int],
        plan: ExecutionPlan,
        counts: LossCounts,
        seed: int,
        epoch: int,
        successor: Callable[[int], NativeIterator | None],
        epoch_state: EpochState,
        bucket_pass: BucketPass | None,
    ) -> None:
        self._engine = engine
        self._index_queue = IndexQueue(batches, plan.settings, epoch_state, asks_subset=engine.view.is_asked)
        self._bucket_pass = bucket_pass
        self._plan = plan
        self._seed = seed
        self.epoch = epoch
        self.epoch_state = epoch_state
        self._make_successor = successor
        self._successor: NativeIterator | None = None
        self._succeeded = False
        self._announced: deque[core.Batch | Exception] = deque()
        self._waiting = 0  # samples of the announced batches; 1 for each that is an error
        self._allowed: int | None = None  # bytes that it may fetch before its iter(); None: iter() was called
        self._samples = 0  # samples of all batches that were announced
        self._in_flight: deque[core.Batch | Exception] = deque()
        self._numbers: deque[int] = deque()  # numbers of the batches in flight, then of the announced ones
        self._depth, self._in_order, self._batched = (
            plan.depth,
            plan.settings.in_order,
            plan.settings.auto_collation,
        )
        self._threaded = plan.finished_ahead and bool(engine.core.threads)
        self._view = engine.view.at(epoch_state.epoch)
        self._assembler = BatchAssembler(engine, self._view, plan, counts, seed, epoch)
        self._prefetcher: DevicePrefetcher | None = None
        self._closing: weakref.finalize[..., Any] | None = None
        self._appear_as_torchs(batches)

    def begin(self) -> NativeIterator:
        """Draws the index batches that are due at iter(). Returns the iterator itself."""
        self._index_queue.begin()
        return self

    def begin_transfer(self) -> NativeIterator:
        """Begins the transfer of its batches, at iter(). Returns the iterator itself."""
        self._assembler.begin()
        return self

    def start(self, depth: int | None = None) -> NativeIterator:
        """Submits batches until `depth` are in flight. Returns the iterator itself."""
        if depth is None and self._threaded:
            return self._start_prefetcher()
        budget = self._depth if depth is None else depth
        while len(self._in_flight) < budget and self._announce(1):
            batch = self._next_announced()
            if isinstance(batch, core.Batch):
                batch.submit()
            self._in_flight.append(batch)
        self._announce(self._engine.read_ahead)
        return self

    def _start_prefetcher(self) -> NativeIterator:
        """Gives announced batches to the prefetcher's thread, as many as it may hold."""
        if self._prefetcher is None:
            depth, most = self._depth, self._plan.transfer.ahead
            left = self._engine.spare_cpus if self._plan.transfer.on_cpu else None
            enter = self._assembler.enter_thread
            self._prefetcher = DevicePrefetcher(
                self._engine.ring, depth, most, self._in_order, self._assembler, left, enter
            )
            self._closing = weakref.finalize(self, self._prefetcher.close)
            while self._in_flight:
                self._prefetcher.put(self._numbers.popleft(), self._in_flight.popleft(), submitted=True)
        room = self._depth + self._plan.transfer.ahead - self._prefetcher.undelivered
        while room > 0 and self._announce(1):
            self._prefetcher.put(self._numbers.popleft(), self._next_announced())
            room -= 1
        self._announce(self._engine.read_ahead)
        return self

    def hold_back(self, allowed: int) -> NativeIterator:
        """Lets it fetch at most `allowed` bytes before iter(). Returns the iterator itself."""
        self._allowed = allowed
        if self._bucket_pass is not None:
            self._bucket_pass.hold_back(True)
        return self

    @property
    def early_bytes(self) -> int:
        """Bytes that the next epoch may fetch before its iter()."""
        return int(EARLY_SHARE * self._engine.bytes_of(self._samples))

    def taken(self) -> NativeIterator:
        """Marks the batches in flight as read before iter(), which now returns this iterator, begun early.
        Returns the iterator itself."""
        self._allowed = None
        if self._bucket_pass is not None:
            self._bucket_pass.hold_back(False)
        for batch in self._in_flight:
            if isinstance(batch, core.Batch):
                batch.early = True
        return self

    def close(self) -> None:
        """Ends the prefetcher's thread, if there is one; idempotent. In mid-pass, next() then raises
        ClosedError."""
        if self._closing is not None:
            self._closing()

    @property
    def base_seed(self) -> int:
        """The base seed that its first pass drew; with a seed of the loader's, that."""
        return int(self._base_seed)

    @property
    def passes(self) -> int:
        """The passes begun since that base seed was drawn."""
        return self.epoch_state.passes + 1

    @property
    def usable(self) -> bool:
        """True if it can go on with another pass: it belongs to this process."""
        return self._engine.pid == os.getpid()

    def drop(self) -> None:
        """Ends the pass: drops its batches in flight, and ends its thread."""
        self.close()
        self._index_queue.drop()
        self._in_flight.clear()
        self._announced.clear()
        self._waiting = 0
        self._numbers.clear()
        self._prefetcher = self._successor = None

    def go_on_as(self, other: NativeIterator) -> None:
        """Takes over the pass of another iterator, which nobody uses afterwards: a kept iterator is one
        object in all passes."""
        if other._closing is not None:
            other._closing.detach()
        vars(self).update(vars(other))
        if self._prefetcher is not None:
            self._closing = weakref.finalize(self, self._prefetcher.close)

    def _announce(self, samples: int) -> bool:
        """Draws index batches and announces them until `samples` samples are waiting. Returns False if no
        batch is left to submit."""
        while self._waiting < samples and (drawn := self._index_queue.take()) is not None:
            number, picked, again = drawn
            positions = picked if self._batched else [picked]
            if not self._may_fetch(positions):
                self._index_queue.put_back(drawn)
                break
            tracer = tracing.active
            began = 0 if tracer is None else core.clock_ns()
            batch: core.Batch | Exception
            try:
                batch = self._engine.announce(
                    positions,
                    self._seed,
                    self.epoch,
                    self._bucket_pass,
                    self._view,
                    self._assembler.layout,
                    again,
                )
            except Exception as error:  # a Subset's indices may raise any
                batch = error
            if tracer is not None:
                tracer.add("announce", began, {"batch": number, "samples": len(positions)})
            self._announced.append(batch)
            self._numbers.append(number)
            self._waiting += _samples_of(batch)
            self._samples += _samples_of(batch)
        return bool(self._announced)

    def _may_fetch(self, positions: Sequence[int]) -> bool:
        """Returns True if it may fetch what the caches lack of a batch now, and notes that it does."""
        if self._allowed is None:
            return True
        self._allowed -= self._engine.lacking_bytes(positions, self._view)
        return self._allowed >= 0

    def _next_announced(self) -> core.Batch | Exception:
        """Takes the batch that was announced first."""
        batch = self._announced.popleft()
        self._waiting -= _samples_of(batch)
        return batch

    def _appear_as_torchs(self, batches: Iterator[Any]) -> None:
        """Sets the attributes of torch's iterators that programs read. They do not affect the batches."""
        settings = self._plan.settings
        self._dataset, self._dataset_kind = settings.dataset, settings.kind
        self._index_sampler, self._sampler_iter = settings.index_sampler, batches
        self._num_workers, self._persistent_workers = settings.num_workers, settings.persistent_workers
        self._auto_collation, self._collate_fn, self._drop_last = (
            settings.auto_collation,
            settings.collate_fn,
            settings.drop_last,
        )
        self._timeout, self._pin_memory = settings.timeout, self._plan.transfer.pin
        self._base_seed, self._num_yielded = self._seed, self.epoch_state.batches
        self._profile_name = f"enumerate(DataLoader)#{type(self).__name__}.__next__"
        self._shared_seed = self._pin_memory_device = self._IterableDataset_len_called = None

    def _next_data(self) -> Any:
        while True:
            self._index_queue.asked()
            self.start()
            self._begin_next_epoch()
            if not self._in_flight and (
                self._prefetcher is None or self._prefetcher.exhausted(self.epoch_state.ended)
            ):
                self.epoch_state.end()
                self.close()
                self._assembler.losses.check(self.epoch_state.batches)
                raise StopIteration
            delivered = (
                self._taken_transferred(self._prefetcher) if self._prefetcher is not None else self._taken()
            )
            if delivered is not NOTHING:
                self.epoch_state.deliver()
                return delivered

    def _begin_next_epoch(self) -> None:
        spare = self._depth - (
            len(self._in_flight) if self._prefetcher is None else self._prefetcher.in_flight
        )
        if not self._index_queue.exhausted or self._announced or spare <= 0:
            return
        if not self._succeeded:
            self._succeeded = True
            self._successor = self._make_successor(self.early_bytes)
        if self._successor is not None:
            self._successor.start(spare)

    def _taken(self) -> object:
        """Waits for the batch whose turn it is, and finishes it in this thread."""
        number, batch = self._take()
        if isinstance(batch, Exception):
            raise batch
        return self._assembler.hand_over(self._assembler(number, batch))

    def _take(self) -> tuple[int, core.Batch | Exception]:
        """Waits for the batch whose turn it is. Returns it with its number; it is no longer in flight."""
        which = 0
        waiting = [b for b in self._in_flight if isinstance(b, core.Batch)]
        if self._in_order:
            waiting = waiting[:1] if isinstance(self._in_flight[0], core.Batch) else []
        if waiting and not self._engine.core.threads:
            self._wait_for_records(waiting[0])
        if waiting:
            which = self._in_flight.index(waiting[core.wait_any(waiting, self._plan.settings.timeout)])
        batch, number = self._in_flight[which], self._numbers[which]
        del self._in_flight[which]
        self.epoch_state.take(number, batch.samples if isinstance(batch, core.Batch) else 0)
        del self._numbers[which]
        self._index_queue.taken()
        if len(self._in_flight) < self._depth:
            self.start()
        return number, batch

    def _wait_for_records(self, batch: core.Batch) -> None:
        """Waits for what a batch has on its way from a bucket: its rows are made in this thread. Raises
        LoaderTimeout."""
        timeout = self._plan.settings.timeout
        if batch.held and not batch.fetch.wait(timeout):
            raise LoaderTimeout.after(timeout)

    def _taken_transferred(self, prefetcher: DevicePrefetcher) -> object:
        """Takes the batch whose turn it is from the prefetcher's thread, which has finished it."""
        done = prefetcher.take(self._plan.settings.timeout)
        self.epoch_state.take(done.number, done.rows)
        self._index_queue.taken()
        self.start()
        if done.error is not None:
            raise done.error
        return self._assembler.hand_over(done.result)


@dataclass(frozen=True)
class EarlyEpoch:
    """An epoch begun before its iter(), with the values that it was made from."""

    iterator: NativeIterator
    plan: ExecutionPlan
    drawn_from: tuple[Any, ...]
    generators: list[torch.Generator]
    before: tuple[torch.Tensor, ...]
    after: tuple[torch.Tensor, ...]


class ThreadEpochs:
    """The epochs of one loader on native threads: one engine for all of them, and the next epoch begun early.

    The iterators refer to it weakly, so that dropping the loader ends the threads at once.
    """

    def __init__(self, progress: Progress, counts: LossCounts) -> None:
        self._progress = progress
        self._counts = counts
        self._engine: ThreadEngine | None = None
        self._made_from: tuple[Any, ...] = ()
        self._plan: ExecutionPlan | None = None  # the plan of the last call of engine()
        self._early: EarlyEpoch | None = None
        self._iterators: weakref.WeakSet[NativeIterator] = weakref.WeakSet()

    def iterate(self, plan: ExecutionPlan, kept: NativeIterator | None = None) -> NativeIterator:
        """Begins the loader's next epoch and returns its iterator, with batches in flight.

        Without a seed, an epoch draws a base seed. If `kept` is the loader's iterator of persistent_workers,
        the epoch goes on with its base seed, as torch's workers go on with theirs.
        """
        engine = self.engine(plan)
        early, self._early = self._early, None
        settings, epoch = plan.settings, self._progress.count_epoch()
        epoch_state = begin(
            settings, self._progress, epoch, base_drawn=settings.seed is None, kept=kept is not None
        )
        if kept is not None and not epoch_state.resumed:
            epoch_state.base_seed, epoch_state.passes = kept.base_seed, kept.passes
        if early is not None and not epoch_state.resumed and self._is_right(plan, early, epoch_state):
            _set_states(early.generators, early.after)
            early.iterator.epoch_state.agreement = epoch_state.agreement
            self._progress.epoch_state = early.iterator.epoch_state
            return early.iterator.taken().begin_transfer().start()
        del early
        return self._start(plan, engine, epoch_state).begin().begin_transfer().start()

    def engine(self, plan: ExecutionPlan) -> ThreadEngine:
        """The engine of this process. It is made again after a fork, after close(), and if the plan that
        it depends on changed."""
        engine = self.running if self.running is not None and not self.running.core.closed else None
        if engine is not None and plan is self._plan:
            return engine
        view, outputs = plan.native, plan.outputs
        assert view is not None
        assert outputs is not None
        threads = plan.settings.num_workers
        made_from = (
            view,
            threads,
            [(each.dtype, each.layout, each.patches) for each in outputs],
            plan.slots,
            plan.size.rows,
            plan.host_memory,
        )
        self._plan = plan
        if engine is not None and made_from == self._made_from:
            return engine
        self._retire()
        memory = PinnedCache() if plan.host_memory == "pinned" else None
        self._engine, self._made_from = (
            ThreadEngine(view, threads, outputs, plan.slots, plan.size.rows, memory),
            made_from,
        )
        return self._engine

    def _retire(self) -> None:
        """Gives the engine up to be replaced: it ends now, or with the last epoch that still uses it."""
        self.forget_early()
        if not any(not iterator.epoch_state.ended for iterator in self._iterators):
            self.close()
        self._engine = None

    @property
    def running(self) -> ThreadEngine | None:
        """The engine of this process, if there is one."""
        return self._engine if self._engine is not None and self._engine.pid == os.getpid() else None

    @property
    def early(self) -> EarlyEpoch | None:
        """The next epoch, if it was begun early."""
        return self._early

    def forget_early(self) -> None:
        """Drops the early epoch, so that the next epoch begins at iter()."""
        self._early = None

    def close(self) -> None:
        """Stops the threads; idempotent."""
        self.forget_early()
        for iterator in list(self._iterators):
            iterator.close()
        if self.running is not None:
            self.running.close()
        self._engine = None

    def _start(self, plan: ExecutionPlan, engine: ThreadEngine, epoch_state: EpochState) -> NativeIterator:
        """Makes an epoch's iterator. It draws as DataLoader does: first the base seed, then, at the first
        index, the sampler's draws."""
        settings, seed, drawn_epoch = plan.settings, plan.transform_seed, epoch_state.epoch
        settings.seed_order(epoch_state.epoch)
        asked = engine.view.is_asked
        # The code that is asked takes integers of Python.
        iterated = iter if asked else partial(index_batches, facts=settings.order)
        batches = iterated(settings.index_sampler)
        if settings.seed is None:
            base = epoch_state.base_seed
            if epoch_state.drawn or base is None:
                base = int(torch.empty((), dtype=torch.int64).random_(generator=settings.generator))
            seed, drawn_epoch = (base, epoch_state.passes) if seed is None else (seed, drawn_epoch)
        if epoch_state.drawn and settings.num_workers:
            batches = iterated_again(settings, epoch_state, iterated)
        assert seed is not None
        epoch_state.base_seed = seed
        known = _coverage(settings, epoch_state) if engine.in_buckets and not asked else None
        indices = follow(settings, epoch_state, batches, id if known is None else known.leave_out)
        bucket_pass = engine.bucket_pass(known, engine.view.at(epoch_state.epoch))
        successor = partial(_begin_early, weakref.ref(self), plan, engine, epoch_state)
        iterator = NativeIterator(
            engine, indices, plan, self._counts, seed, drawn_epoch, successor, epoch_state, bucket_pass
        )
        self._iterators.add(iterator)
        return iterator

    def begin_early(
        self, plan: ExecutionPlan, engine: ThreadEngine, before: EpochState, allowed: int
    ) -> NativeIterator | None:
        """Begins the epoch after `before` for idle threads. Returns None if the draws could not be undone.
        `allowed`: see `hold_back`."""
        settings = plan.settings
        if (
            self._early is not None
            or engine is not self._engine
            or engine.view.is_asked
            or not _can_begin_early(settings)
        ):
            return None
        generators = list(generators_of(settings, settings.seed is None).values())
        states = _states(generators)
        kept = settings.persistent_workers
        epoch_state = fresh(settings, self._progress.next_epoch, base_drawn=settings.seed is None, kept=kept)
        if kept:
            epoch_state.base_seed, epoch_state.passes = before.base_seed, before.passes + 1
        drawn_from = _drawn_from(settings, epoch_state)
        iterator = self._start(plan, engine, epoch_state).hold_back(allowed).begin().start(1)
        self._early = EarlyEpoch(iterator, plan, drawn_from, generators, states, _states(generators))
        _set_states(generators, states)
        return iterator

    def _is_right(self, plan: ExecutionPlan, early: EarlyEpoch, epoch_state: EpochState) -> bool:
        """Returns True if everything that made the early epoch is as iter() finds it now; iter() has begun
        its epoch with `epoch_state`."""
        settings = plan.settings
        if early.plan is not plan or not _can_begin_early(settings):
            return False
        if not same_objects(early.drawn_from, _drawn_from(settings, epoch_state)):
            return False
        if settings.ordered_by_seed and settings.seed is not None:
            return True  # the order is a function of (seed, epoch) alone
        return all(torch.equal(a, b) for a, b in zip(early.before, _states(early.generators), strict=True))


def _samples_of(batch: core.Batch | Exception) -> int:
    """Samples that an announced batch counts as; an error counts as one."""
    return batch.samples if isinstance(batch, core.Batch) else 1


def _begin_early(
    epochs: weakref.ref[ThreadEpochs],
    plan: ExecutionPlan,
    engine: ThreadEngine,
    before: EpochState,
    allowed: int,
) -> NativeIterator | None:
    alive = epochs()
    return None if alive is None else alive.begin_early(plan, engine, before, allowed)


def _coverage(settings: Settings, epoch_state: EpochState) -> Coverage | None:
    """The coverage of a pass, of which nothing was drawn yet; None: a sampler that is not known decides."""
    order = settings.order
    if not order.is_own or (settings.auto_collation and not order.in_batches):
        return None
    return coverage(
        order.deciding, len(settings.dataset), epoch_state.sampler["epoch"] or 0, epoch_state.splits
    )


def _drawn_from(settings: Settings, epoch_state: EpochState) -> tuple[Any, ...]:
    """Everything that determines an epoch's order and draws, but for the generators' states.
    `epoch_state`: before any draw."""
    index, deciding = settings.index_sampler, settings.order.deciding
    found: list[Any] = [
        epoch_state.epoch,
        epoch_state.drawn,
        epoch_state.base_seed,
        epoch_state.passes,
        index,
        deciding,
    ]
    if settings.order.sharded is not None:
        return (*found, epoch_state.sampler["epoch"], *settings.order.sharded.identity())
    for sampler in (index, deciding):
        found += [value for _, value in sorted(vars(sampler).items())]
        found.append(len(sampler.data_source) if hasattr(sampler, "data_source") else None)
    return tuple(found)


def _can_begin_early(settings: Settings) -> bool:
    """Returns True if the draws of the next epoch's iter() can be made now, and undone."""
    return settings.num_workers > 0 and settings.order.can_be_undone


def _states(generators: list[torch.Generator]) -> tuple[torch.Tensor, ...]:
    return tuple(g.get_state() for g in generators)


def _set_states(generators: list[torch.Generator], states: tuple[torch.Tensor, ...]) -> None:
    for generator, state in zip(generators, states, strict=True):
        generator.set_state(state)
