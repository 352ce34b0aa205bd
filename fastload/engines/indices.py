"""EpochState: position of a pass. How a pass begins: random generators are captured, or set to the states
that a loaded state holds.

NOTE [ resuming: draws are made again ]
The order of a pass is what its sampler draws from the generators' states at the beginning of the pass. So a
saved state holds these states and the number of batches already returned to the caller. To resume, the
generators are set to them, and everything is drawn again in the same sequence (iter() of the sampler, base
seed, indices). The index batches of returned batches are dropped before anything is read. Prefetched batches
are not in the state, so a resumed pass may prefetch more or less. The model too uses torch's global
generator: if the rest of the pass draws nothing from it, it is set, after these draws, to the state that it
had when the saved state was taken.

NOTE [ resuming: one rank's generator is no other's ]
Ranks save one state and load it on every rank, while each has a global generator of its own, by which its
dropout differs from others'. So a state says whose generator it holds, and on another rank of several the
global generator keeps its own state. An order that is drawn from it comes first: the sampler's draws up to
the first index are made from the state's generator, and the rank's own is put back after them. It is not put
back where the sampler may draw from it later: one of an unknown class that drew from it, and one whose draws
ranks share out, since the order of later epochs has to be the same on every rank.
"""

from __future__ import annotations

import base64
import random
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler
from torch.utils.data.dataloader import _BaseDataLoaderIter

from fastload.dataset.resolver import begin_epoch
from fastload.engines.resume.datasets import DatasetState, create_fetcher, load_at_start
from fastload.engines.resume.ranks import begin_agreement
from fastload.engines.settings import Settings
from fastload.errors import ArgumentError
from fastload.sampling.known import gives_each_at_most_once, ranks_of
from fastload.sampling.occurrences import OccurrenceCounter, Occurrences, unmarked
from fastload.sampling.sampler import Sharded
from fastload.sampling.sharding import Agreement, Split, process_rank


@dataclass
class EpochState:
    """Position of one pass: the batches already returned to the caller, whatever was prefetched after them.

    1. Batches are numbered from 0 at the epoch's beginning, in the order of the sampler, through all resumes
       of the epoch.
    2. An iterator calls take() for the batch whose turn it is, and deliver() when it is returned to the
       caller. A batch that was taken and failed counts as done from the next delivery on; until then it does
       not, so that a resume tries it again.
    3. `start` and `now` hold what capture() and capture_now() found; the other values that state_dict() saves
       are plain data.

    Attributes:
        epoch: the epoch's number in the loader.
        start: states of the generators before the first draw of the pass, by name.
        now: states that the generators get after the draws that a resume repeats, by name.
        resumed: True if the pass began with a loaded state.
        drawn: True if the pass drew a base seed of its own; persistent workers draw one for all their passes.
        base_seed, passes: the workers' base seed, and the number of passes that they made before.
        sampler: name, epoch and own state of the sampler at the beginning of the pass.
        batches, samples: number of each that were returned to the caller.
        position: number below which every batch is done: returned to the caller, or passed over.
        beyond: numbers above it that are done as well (in_order=False).
        at: the number of the index batch drawn last.
        again: number of times that each index of that batch came before in the pass, uint32; None: none did.
        counts: the counts of occurrences in a loaded state, or None.
        replicas, turn: for an iterable or stateful dataset, the state of each worker's copy, and the worker
            whose turn is next.
        exhausted: True if a stateful sampler has no more batches for this pass; its state may then be the
            next pass's beginning.
        first: `batches` when the pass began.
        rewind: a loaded state may have left the sampler or dataset at its own end: if it yields nothing, it
            is iterated once more.
        ended: True if the iterator has raised StopIteration.
        live: function that returns the state of a dataset in this process.
        splits: under shard=, how ranks had gone through the epoch when the pass began; the last one is the
            pass's own.
        split_at: `position` when the pass began.
        agreement: compares the pass with those of other ranks, under shard=.
        rank: the rank whose generators `start` and `now` of a loaded state are of; None: this process's, or
            an unknown one.
        put_back: state that torch's global generator gets after the first draws of a pass that resumes from
            another rank's state.
    """

    epoch: int = 0
    start: dict[str, Any] = field(default_factory=dict)
    now: dict[str, Any] = field(default_factory=dict)
    resumed: bool = False
    drawn: bool = True
    base_seed: int | None = None
    passes: int = 0
    sampler: dict[str, Any] = field(default_factory=dict)
    batches: int = 0
    samples: int = 0
    position: int = 0
    beyond: set[int] = field(default_factory=set)
    at: int = -1
    again: Occurrences | None = None
    counts: Any = None
    replicas: list[DatasetState] = field(default_factory=list)
    turn: int = 0
    exhausted: bool = False
    first: int = 0
    rewind: bool = False
    ended: bool = False
    live: Callable[[], DatasetState] | None = None
    index_batches: IndexBatches | None = None
    splits: tuple[Split, ...] = ()
    split_at: int = 0
    agreement: Agreement | None = None
    rank: int | None = None
    put_back: Any = None
    _taken: list[tuple[int | None, int, int | None, DatasetState | None]] = field(default_factory=list)

    def take(
        self, number: int | None, samples: int, worker: int | None = None, replica: DatasetState | None = None
    ) -> None:
        """Notes that batch `number` (None for an iterable dataset) left the queue. `replica`: the state of
        `worker`'s dataset after it."""
        self._taken.append((number, samples, worker, replica))

    def deliver(self) -> None:
        """Notes that the batch taken last was returned to the caller. Batches taken before it failed, and
        count as done.

        Raises:
            ArgumentError: under shard=, another rank's pass is of other samples.
        """
        self.batches += 1
        self.samples += self._taken[-1][1]
        for number, _, worker, replica in self._taken:
            if worker is not None and self.replicas:
                self._advance(worker, replica)
            if number is not None:
                self.beyond.add(number)
        self._taken.clear()
        while self.position in self.beyond:
            self.beyond.remove(self.position)
            self.position += 1
        if self.index_batches is not None:
            self.index_batches.forget(self.position)
        if self.agreement is not None:
            self.agreement.step()

    def _advance(self, worker: int, replica: DatasetState | None) -> None:
        theirs = self.replicas[worker]
        theirs.batches += 1
        if replica is not None:
            self.place(worker, replica)
        self.turn = (worker + 1) % len(self.replicas)

    def place(self, worker: int, replica: DatasetState) -> None:
        """Notes the state of a worker's copy of the dataset after the batches counted so far."""
        theirs = self.replicas[worker]
        theirs.state, theirs.ended = replica.state, replica.ended
        theirs.at = theirs.batches if replica.state is not None else 0

    def end(self) -> None:
        """Notes that the caller has seen the end of the pass."""
        self.ended = True
        if self.agreement is not None:
            self.agreement.check()


class IndexBatches(Iterator[Any]):
    """Iterator over an epoch's index batches, numbered, from its position on.

    1. Batches below the position are drawn and dropped, so that the sampler draws as in an uninterrupted
       epoch; `skipped` is called with each. A stateful sampler, whose state `get_state` returns, was set to
       that position already; under shard= the indices begin there.
    2. The sampler's state after each draw is kept until that batch, and all before it, were returned to the
       caller.
    3. If a sampler that was set to a state yields nothing at all, and the epoch has `rewind`, it is iterated
       again by `again`.
    4. With a `counter`, occurrences are counted; `marked`: the indices come with their occurrences already.
    """

    def __init__(
        self,
        epoch_state: EpochState,
        indices: Iterator[Any],
        get_state: Callable[[], Any] | None,
        again: Callable[[], Iterator[Any]] | None = None,
        skipped: Callable[[Any], object] = id,
        counter: OccurrenceCounter | None = None,
        marked: bool = False,
        batched: bool = True,
    ) -> None:
        # The state refers to its batches: a cycle would keep the order of a pass that was left.
        self._state_of = weakref.ref(epoch_state)
        self._counter, self._marked, self._batched = counter, marked, batched
        self._ahead: dict[int, Any] = {}  # of a stateful sampler, the index batches that a resume draws again
        self._indices = indices
        self._get_state = get_state
        self._again = again if epoch_state.rewind else None
        self._over = epoch_state.exhausted
        self._last: object = epoch_state.sampler.get("state") if epoch_state.exhausted else None
        self._states: dict[int, Any] = {epoch_state.position: epoch_state.sampler.get("state")}
        there = bool(epoch_state.splits) or self._states[epoch_state.position] is not None
        self._next = epoch_state.position if there else 0
        self._peeked: list[tuple[int, Any, Occurrences | None]] = []
        epoch_state.at = epoch_state.position - 1
        epoch_state.index_batches = self
        while self._next < epoch_state.position:
            skipped(self._counted(next(self._indices))[0])
            self._next += 1
        self._done = frozenset(epoch_state.beyond)

    @property
    def _epoch_state(self) -> EpochState:
        state = self._state_of()
        assert state is not None, "an iterator holds the state of its pass"
        return state

    def __next__(self) -> object:
        number, index, again = self._peeked.pop() if self._peeked else self._pull()
        self._epoch_state.at, self._epoch_state.again = number, again
        return index

    def peek(self) -> None:
        """Draws the next index batch already, and keeps it for next()."""
        try:
            self._peeked.append(self._pull())
        except StopIteration:
            pass

    def _pull(self) -> tuple[int, Any, Occurrences | None]:
        while True:
            index, again = self._counted(self._draw())
            number = self._next
            self._next += 1
            if self._get_state is not None:
                self._states[self._next] = self._get_state()
                if self._counter is not None:
                    self._ahead[number] = index if self._batched else [index]
            if number not in self._done:
                return number, index, again

    def _counted(self, index: Any) -> tuple[Any, Occurrences | None]:
        """An index batch, as it can be read again and again, and its occurrences. See NOTE [ occurrences:
        an index that comes again ]."""
        if self._marked:
            return unmarked(index)
        if self._batched and isinstance(index, Iterator):
            index = list(index)
        if self._counter is None:
            return index, None
        return index, self._counter.of_batch(index if self._batched else [index])

    def _draw(self) -> object:
        if self._over:
            raise StopIteration
        again, self._again = self._again, None
        try:
            return next(self._indices)
        except StopIteration:
            if again is None:
                self._over = True
                self._last = None if self._get_state is None else self._get_state()
                raise
        self._indices = again()
        return self._draw()

    def exhausted(self, length: int | None) -> bool:
        """Returns True if a stateful sampler is exhausted, and all its batches were returned to the caller.

        If `length`, the sampler's, does not rule that out, one more batch is drawn to find out, and kept.
        """
        if (
            self._get_state is None
            or self._epoch_state.position != self._next - len(self._peeked)
            or (length is not None and self._next < length)
        ):
            return False
        if not self._over and not self._peeked:
            self.peek()
        return self._over and not self._peeked

    def state(self, exhausted: bool = False) -> Any:
        """The sampler's own state at the epoch's position; None if it has none."""
        return self._last if exhausted else self._states.get(self._epoch_state.position)

    def counts(self) -> dict[str, Any] | None:
        """The counts of occurrences at the epoch's position, of a stateful sampler; None: a resume counts
        again, or they are too many."""
        if self._counter is None or self._get_state is None:
            return None
        return self._counter.state(self._ahead.values())

    def forget(self, position: int) -> None:
        """Forgets what was kept of batches before a position."""
        for kept in (self._states, self._ahead):
            for number in [number for number in kept if number < position]:
                del kept[number]


@dataclass
class Progress:
    """Progress of a loader through its epochs.

    Attributes:
        next_epoch: the number of the epoch that the next iter() begins.
        epoch_state: the state of the epoch begun last.
        pending: a loaded state that the next epoch begins with.
    """

    next_epoch: int = 0
    epoch_state: EpochState | None = None
    pending: dict[str, Any] | None = None

    def count_epoch(self) -> int:
        """Counts an epoch that begins now, and returns its number."""
        self.next_epoch += 1
        return self.next_epoch - 1

    @property
    def epoch(self) -> int:
        """The number of the epoch that was begun last."""
        return self.next_epoch - 1


def begin(
    settings: Settings, progress: Progress, epoch: int, *, base_drawn: bool = True, kept: bool = False
) -> EpochState:
    """State of the epoch that begins now: resumed if a state was loaded for it, else fresh.

    Args:
        settings: the loader's settings.
        progress: the loader's progress, whose epoch_state is set to the result.
        epoch: the epoch's number.
        base_drawn: True if the epoch will draw a base seed.
        kept: True if persistent workers of an earlier epoch continue, with the base seed that was drawn then.
    """
    begin_epoch(settings.dataset, epoch)
    state, progress.pending = progress.pending, None
    previous = progress.epoch_state
    if state is None or state["epoch"] != epoch:
        progress.epoch_state = epoch_state = fresh(settings, epoch, base_drawn=base_drawn, kept=kept)
        epoch_state.rewind = previous is not None and previous.resumed and previous.batches == previous.first
        _begin_part(settings, epoch_state)
        return epoch_state
    progress.epoch_state = epoch_state = resumed(settings, state)
    _keep_own_generator(settings, epoch_state)
    _begin_part(settings, epoch_state)
    # Before set_generators: a dataset's state may contain the state of a generator.
    if epoch_state.replicas and settings.num_workers == 0:
        load_at_start(epoch_state.replicas[0], settings.dataset, lambda: _fetcher(settings))
    set_generators(settings, epoch_state.start)
    _load_sampler(settings, epoch_state)
    return epoch_state


def _keep_own_generator(settings: Settings, epoch_state: EpochState) -> None:
    """Puts this rank's global generator in the place of another rank's, so far as the order allows.

    See NOTE [ resuming: one rank's generator is no other's ].
    """
    rank, world = process_rank(settings.shard)
    whose, epoch_state.rank = epoch_state.rank, None
    if world == 1 or whose == rank or "default" not in epoch_state.start:
        return
    own = torch.default_generator.get_state()
    if torch.default_generator in settings.order.generators or not _is_known(settings):
        epoch_state.put_back = own
        return
    epoch_state.start = {**epoch_state.start, "default": own}
    epoch_state.now = {name: state for name, state in epoch_state.now.items() if name != "default"}
    if not settings.iterable and not epoch_state.replicas:  # samples of these may follow from the base seed
        epoch_state.base_seed, epoch_state.drawn = None, True


def _put_back(settings: Settings, epoch_state: EpochState, index_batches: IndexBatches) -> None:
    """Gives the global generator its own state again after the draws up to the first index, unless more of
    the order may follow from it."""
    own, epoch_state.put_back = epoch_state.put_back, None
    if own is None:
        return
    index_batches.peek()
    if not _is_known(settings) and not settings.order.is_stateful:
        before, now = epoch_state.start["default"], torch.default_generator.get_state()
        if not any(torch.equal(now, each) for each in (before, _after_base_seed(before))):
            return
        epoch_state.start = {**epoch_state.start, "default": own}
    elif not settings.order.draws_then_rests:
        return
    torch.default_generator.set_state(own)


def _after_base_seed(state: torch.Tensor) -> torch.Tensor:
    """The state of a generator that a pass has drawn its base seed from, and nothing else."""
    generator = torch.Generator()
    generator.set_state(state)
    torch.empty((), dtype=torch.int64).random_(generator=generator)
    return generator.get_state()


def _begin_part(settings: Settings, epoch_state: EpochState) -> None:
    sharded = settings.order.sharded
    if sharded is not None:
        epoch_state.splits = sharded.continued(epoch_state.splits)
        sharded.begin(epoch_state.sampler["epoch"])
        begin_agreement(
            settings,
            sharded,
            epoch_state.sampler["epoch"],
            epoch_state.splits,
            epoch_state.start.get("default"),
        )
        epoch_state.agreement = sharded.agreement


def _fetcher(settings: Settings) -> object:
    return create_fetcher(
        settings.kind, settings.dataset, settings.auto_collation, settings.collate_fn, settings.drop_last
    )


def fresh(settings: Settings, epoch: int, *, base_drawn: bool = True, kept: bool = False) -> EpochState:
    """State of an epoch that begins at its first batch. See begin()."""
    sampler, sharded = settings.order.deciding, settings.order.sharded
    its_epoch = getattr(sampler, "epoch", None) if sharded is None else sharded.epoch_of(epoch)
    position = {"name": type(sampler).__name__, "epoch": its_epoch, **ranks_of(sampler)}
    stateful = _stateful(settings)
    if stateful is not None:
        position["state"] = stateful.state_dict()
    splits = () if sharded is None else sharded.continued(())
    return EpochState(
        epoch=epoch, start=capture(settings, base_drawn), drawn=not kept, sampler=position, splits=splits
    )


def resumed(settings: Settings, state: dict[str, Any]) -> EpochState:
    """State of an epoch that continues from a loaded state.

    Between epochs the state may be one of a loader with another sampler, with shard= or without: the epoch is
    this loader's own then.
    """
    sharded, deciding = settings.order.sharded, settings.order.deciding
    position = {**state["sampler"], "name": type(deciding).__name__, **ranks_of(deciding)}
    splits = tuple(Split(world, had) for world, had in state["split"]["ranks"]) if state["split"] else ()
    if sharded is not None and not splits:
        splits, position["epoch"] = sharded.continued(()), sharded.epoch_of(state["epoch"])
    return EpochState(
        epoch=state["epoch"],
        start=state["start"],
        now=state["now"],
        resumed=True,
        drawn=state["drawn"],
        base_seed=state["base_seed"],
        passes=state["passes"],
        sampler=position,
        batches=state["batches"],
        samples=state["samples"],
        position=state["position"],
        beyond=set(state["beyond"]),
        replicas=[DatasetState(**each) for each in state["replicas"]],
        turn=state["turn"],
        exhausted=state["exhausted"],
        counts=state["counts"],
        first=state["batches"],
        rewind=not state["batches"],
        splits=splits,
        split_at=state["position"],
        rank=state["rank"],
    )


def _load_sampler(settings: Settings, epoch_state: EpochState) -> None:
    sampler = _stateful(settings)
    if sampler is not None and epoch_state.sampler.get("state") is not None:
        sampler.load_state_dict(epoch_state.sampler["state"])


def follow(
    settings: Settings, epoch_state: EpochState, indices: Iterator[Any], skipped: Callable[[Any], object] = id
) -> IndexBatches:
    """The epoch's index batches from its position on. Then sets the generators as they were when the state
    was taken.

    `skipped` is called with each batch before that position. Under shard= the indices are not the sampler's
    own iterator's: they are bound to the epoch and to what was had of it, whatever the sampler is told
    meanwhile. A generator of the loader's own is seeded at the first draw, so that two passes of different
    epochs can begin before either draws.
    """
    counter = _counter(settings, epoch_state)
    sharded = settings.order.sharded
    marked = counter is not None and sharded is not None
    if sharded is not None:
        indices = _part_of(settings, sharded, epoch_state, counter)
    if settings.own_generator:
        indices = _seeded(settings, epoch_state.epoch, indices)
    sampler = _stateful(settings)
    get_state: Callable[[], Any] | None = None
    again: Callable[[], Iterator[Any]] | None = None
    if sampler is not None and (not epoch_state.resumed or epoch_state.sampler.get("state") is not None):
        get_state = sampler.state_dict
        again = partial(iter, settings.index_sampler)
    batched = settings.auto_collation
    index_batches = IndexBatches(
        epoch_state, indices, get_state, again, skipped, counter, marked=marked, batched=batched
    )
    set_generators(settings, epoch_state.now if epoch_state.put_back is None else {})
    _put_back(settings, epoch_state, index_batches)
    return index_batches


def _seeded(settings: Settings, epoch: int, indices: Iterator[Any]) -> Iterator[Any]:
    settings.seed_order(epoch)
    yield from indices


def attach(
    iterator: Any, arguments: Any, settings: Settings, epoch_state: EpochState, replicas: int = 0
) -> None:
    """Sets an iterator derived from torch's, new or reset, to an epoch that has begun.

    Args:
        iterator: the iterator.
        arguments: the attributes of a loader that torch's iterator class reads.
        settings: the loader's settings.
        epoch_state: the epoch's state.
        replicas: number of copies of the dataset whose states are tracked.
    """
    # The base class drew a base seed, which this pass must not.
    if epoch_state.resumed and not epoch_state.drawn:
        set_generators(settings, epoch_state.start)
        _load_sampler(settings, epoch_state)
        _BaseDataLoaderIter._reset(iterator, arguments)
    elif epoch_state.drawn and settings.num_workers:
        iterator._sampler_iter = iterated_again(settings, epoch_state)
    if epoch_state.resumed and epoch_state.base_seed is not None:
        iterator._base_seed = epoch_state.base_seed
    epoch_state.base_seed = int(iterator._base_seed)
    iterator._num_yielded = epoch_state.batches
    if replicas and not epoch_state.replicas:
        epoch_state.replicas = [DatasetState() for _ in range(replicas)]
    iterator._sampler_iter = follow(settings, epoch_state, iterator._sampler_iter)


def iterated_again(
    settings: Settings, epoch_state: EpochState, made: Callable[[Any], Iterator[Any]] = iter
) -> Iterator[Any]:
    """The second iterator of the sampler that torch's DataLoader makes for new workers, after their base
    seed; it drops the first one.

    `made` makes it."""
    if epoch_state.resumed:
        _load_sampler(settings, epoch_state)
    return made(settings.index_sampler)


def _counter(settings: Settings, epoch_state: EpochState) -> OccurrenceCounter | None:
    """The counter of a pass; None if its sampler gives each index once. See NOTE [ occurrences: an index
    that comes again ]."""
    if settings.iterable or gives_each_at_most_once(settings.order):
        return None
    rank, world = (0, 1) if settings.order.sharded is not None else process_rank(None)
    counter = OccurrenceCounter(dataset_length(settings.dataset), rank, world)
    if epoch_state.counts is not None and epoch_state.sampler.get("state") is not None:
        counter.load(epoch_state.counts)
    return counter


def dataset_length(dataset: Any) -> int | None:
    """Number of samples of a map-style dataset; None if it has no length."""
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        return None


def _part_of(
    settings: Settings, sharded: Sharded, epoch_state: EpochState, counter: OccurrenceCounter | None
) -> Iterator[Any]:
    part = sharded.part(epoch_state.sampler["epoch"], epoch_state.splits, sharded.rank, counter)
    index = settings.index_sampler
    return iter(BatchSampler(part, index.batch_size, index.drop_last)) if settings.order.in_batches else part


def _stateful(settings: Settings) -> Any:
    return settings.order.deciding if settings.order.is_stateful else None


def generators_of(settings: Settings, base_drawn: bool) -> dict[str, torch.Generator]:
    """The generators that a pass draws from, by name: "default" is torch's global one. `base_drawn`: it
    draws a base seed."""
    found = [
        *([settings.generator or torch.default_generator] if base_drawn else []),
        *settings.order.generators,
    ]
    out: dict[str, torch.Generator] = {}
    for each in found:
        if not isinstance(each, torch.Generator):
            continue
        if each is settings.generator:
            out["loader"] = each
        elif each is torch.default_generator:
            out["default"] = each
        else:
            out["sampler"] = each
    return out


def _captured(settings: Settings, base_drawn: bool) -> dict[str, torch.Generator]:
    """Those whose states a saved state holds: not the loader's own, which is seeded again for every epoch."""
    return {} if settings.ordered_by_seed else generators_of(settings, base_drawn)


def _is_known(settings: Settings) -> bool:
    return settings.ordered_by_seed or settings.order.is_known


def capture(settings: Settings, base_drawn: bool) -> dict[str, Any]:
    """States of the generators that the next pass draws from; for a sampler of an unknown class also those
    of random and NumPy."""
    out: dict[str, Any] = {name: each.get_state() for name, each in _captured(settings, base_drawn).items()}
    order = settings.order
    settled = order.draws_nothing or order.draws_at_first or settings.ordered_by_seed or order.is_stateful
    if not settled:
        out["random"] = random.getstate()
        out["numpy"] = np.random.get_state()
    return out


def capture_now(settings: Settings, epoch_state: EpochState) -> dict[str, Any]:
    """Current state of torch's global generator, if the rest of the epoch draws nothing from it; else an
    empty dict."""
    if "default" not in epoch_state.start or not settings.order.draws_then_rests:
        return {}
    return {"default": torch.default_generator.get_state()}


def set_generators(settings: Settings, states: dict[str, Any]) -> None:
    """Sets generators to captured states."""
    known = _known(settings) if states else {}
    for name, state in states.items():
        if name == "random":
            random.setstate(state)
        elif name == "numpy":
            np.random.set_state(state)
        else:
            known[name].set_state(state)


def check_generators(settings: Settings, states: dict[str, Any]) -> None:
    """Checks captured states, without setting any generator of the loader.

    Raises:
        ArgumentError: one is the state of a generator that this loader lacks.
        RuntimeError, ValueError, TypeError: one is not a valid state of its generator.
    """
    known = _known(settings)
    for name, state in states.items():
        if name == "random":
            random.Random().setstate(state)
        elif name == "numpy":
            np.random.RandomState().set_state(state)
        elif name in known:
            torch.Generator(known[name].device).set_state(state)
        else:
            whose = "generator=" if name == "loader" else "a sampler that has a generator"
            raise ArgumentError(
                f"the state was taken with {whose}, which this loader lacks: make it with one as well"
            )


def _known(settings: Settings) -> dict[str, torch.Generator]:
    return {"default": torch.default_generator, **_captured(settings, True)}


def packed_states(states: dict[str, Any]) -> dict[str, Any]:
    """Captured states in a form that JSON can hold."""
    out: dict[str, Any] = {}
    for name, state in states.items():
        if name == "random":
            out[name] = [state[0], _text(np.array(state[1], "<u4")), state[2]]
        elif name == "numpy":
            out[name] = [_text(np.asarray(state[1], "<u4")), *state[2:]]
        else:
            out[name] = _text(state.numpy())
    return out


def unpacked_states(states: dict[str, Any]) -> dict[str, Any]:
    """Inverse of packed_states()."""
    out: dict[str, Any] = {}
    for name, state in states.items():
        if name == "random":
            out[name] = (state[0], tuple(_array(state[1], "<u4").tolist()), state[2])
        elif name == "numpy":
            out[name] = ("MT19937", _array(state[0], "<u4").astype(np.uint32), *state[1:])
        else:
            out[name] = torch.from_numpy(_array(state, "u1").copy())
    return out


def _text(array: np.ndarray[Any, Any]) -> str:
    return base64.b64encode(array.tobytes()).decode()


def _array(text: str, dtype: str) -> np.ndarray[Any, Any]:
    return np.frombuffer(base64.b64decode(text, validate=True), dtype)
