"""EpochState: the caller's position in an epoch, for state_dict(); DatasetState: the state of a dataset, taken after a batch and loaded
before a resumed pass; and the versions of packed datasets in a state, which find the state's samples in a dataset that was changed since.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch.utils.data import ConcatDataset, Subset

from fastload.dataset.mixture import Mixture
from fastload.dataset.packed import PackedDataset
from fastload.errors import ArgumentError
from fastload.sampling.known import is_stateful
from fastload.sampling.sharding import Agreement, Split


@dataclass
class DatasetState:
    """State of one copy of an iterable or stateful dataset, after the batches already returned to the caller.

    Attributes:
        batches: number of these batches in this pass.
        state: the dataset's own state; None if it has none.
        at: number of `batches` that came before that state was taken. 0: it was taken before the pass, which begins from it.
        ended: True if the dataset was exhausted in making the last of them.
    """

    batches: int = 0
    state: dict[str, Any] | None = None
    at: int = 0
    ended: bool = False


def dataset_state_of(dataset: Any, fetcher: Any = None) -> DatasetState:
    """The state of a dataset and of its iterator in torch's `fetcher`, as far as they have one."""
    walk: Any = getattr(fetcher, "dataset_iter", None)
    state: dict[str, Any] = {}
    if is_stateful(walk):
        state["iterator"] = copy.deepcopy(walk.state_dict())
    if dataset is not walk and is_stateful(dataset):
        state["dataset"] = copy.deepcopy(dataset.state_dict())
    return DatasetState(state=state or None, ended=bool(getattr(fetcher, "ended", False)))


def load_at_start(past: DatasetState, dataset: Any, make: Callable[[], Any]) -> None:
    """Loads a state that was taken before the pass began. The pass's own fetcher is made afterwards.

    The state of an iterator is loaded into an iterator that is then dropped: loading it may also set the dataset, or random generators.
    """
    if past.state is not None and not past.at:
        _restored(past.state, dataset, make if "iterator" in past.state else lambda: None)


def fetcher_at(past: DatasetState, batch_size: int, dataset: Any, make: Callable[[], Any]) -> Any:
    """A fetcher that continues after `past`: the dataset's own state is loaded, and the samples after that are drawn and dropped.

    A state from before the pass was loaded already: see load_at_start().

    Raises:
        ArgumentError: there is a state, and no object here has load_state_dict().
    """
    fetcher = _restored(past.state, dataset, make) if past.state is not None and past.at else make()
    samples = (past.batches - past.at) * batch_size
    if samples and hasattr(fetcher, "dataset_iter"):
        next(itertools.islice(fetcher.dataset_iter, samples, samples), None)
    return fetcher


def state_after(dataset: Any, fetcher: Any, batches: int, every: int) -> DatasetState | None:
    """The state that a worker sends after its batch number `batches`, or None.

    A stateful dataset's is sent after every `every` batches (0: never), any dataset's once it is exhausted.
    """
    ended = getattr(fetcher, "ended", False)
    if not ended and (not every or batches % every):
        return None
    stands = dataset_state_of(dataset, fetcher)
    return stands if ended or stands.state is not None else None


def fetched(fetcher: Any, index: Any, again: Callable[[], Any] | None) -> Any:
    """The next batch of an iterable dataset. If it is exhausted and `again` is given, the first batch of the fetcher that `again` makes.

    Raises:
        StopIteration: the dataset is exhausted.
    """
    try:
        return fetcher.fetch(index)
    except StopIteration:
        if again is None:
            raise
    return again().fetch(index)


def _restored(state: dict[str, Any], dataset: Any, make: Callable[[], Any]) -> Any:
    if "dataset" in state:
        _load(dataset, state["dataset"])
    fetcher = make()
    if "iterator" in state:
        _load(getattr(fetcher, "dataset_iter", None), state["iterator"])
    return fetcher


def _load(thing: Any, state: Any) -> None:
    if not is_stateful(thing):
        raise ArgumentError(
            f"the state to resume from holds a state of the dataset, and {type(thing).__name__} has no load_state_dict() that takes it: "
            "resume with the dataset's class that the state was taken with"
        )
    thing.load_state_dict(copy.deepcopy(state))


@dataclass
class EpochState:
    """Position of one pass: the batches already returned to the caller, whatever was prefetched after them.

    1. Batches are numbered from 0 at the epoch's beginning, in the order of the sampler, through all resumes of the epoch.
    2. An iterator calls take() for the batch whose turn it is, and deliver() when it is returned to the caller. A batch that was taken and
       failed counts as done from the next delivery on; until then it does not, so that a resume tries it again.
    3. `start` and `now` hold what fastload.engines.resume.start captured; the other values that state_dict() saves are plain data.

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
        replicas, turn: for an iterable or stateful dataset, the state of each worker's copy, and the worker whose turn is next.
        exhausted: True if a stateful sampler has no more batches for this pass; its state may then be the next pass's beginning.
        first: `batches` when the pass began.
        rewind: a loaded state may have left the sampler or dataset at its own end: if it yields nothing, it is iterated once more.
        ended: True if the iterator has raised StopIteration.
        live: function that returns the state of a dataset in this process.
        splits: under shard=, how ranks had gone through the epoch when the pass began; the last one is the pass's own.
        split_at: `position` when the pass began.
        agreement: compares the pass with those of other ranks, under shard=.
        rank: the rank whose generators `start` and `now` of a loaded state are of; None: this process's, or an unknown one.
        put_back: state that torch's global generator gets after the first draws of a pass that resumes from another rank's state.
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

    def take(self, number: int | None, samples: int, worker: int | None = None, replica: DatasetState | None = None) -> None:
        """Notes that batch `number` (None for an iterable dataset) left the queue. `replica`: the state of `worker`'s dataset after it."""
        self._taken.append((number, samples, worker, replica))

    def deliver(self) -> None:
        """Notes that the batch taken last was returned to the caller. Batches taken before it failed, and count as done.

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

    1. Batches below the position are drawn and dropped, so that the sampler draws as in an uninterrupted epoch; `skipped` is called with
       each. A stateful sampler, whose state `get_state` returns, was set to that position already; under shard= the indices begin there.
    2. The sampler's state after each draw is kept until that batch, and all before it, were returned to the caller.
    3. If a sampler that was set to a state yields nothing at all, and the epoch has `rewind`, it is iterated again by `again`.
    """

    def __init__(
        self,
        epoch_state: EpochState,
        indices: Iterator[Any],
        get_state: Callable[[], Any] | None,
        again: Callable[[], Iterator[Any]] | None = None,
        skipped: Callable[[Any], object] = id,
    ) -> None:
        self._epoch_state = epoch_state
        self._indices = indices
        self._get_state = get_state
        self._again = again if epoch_state.rewind else None
        self._over = epoch_state.exhausted
        self._last: Any = epoch_state.sampler.get("state") if epoch_state.exhausted else None
        self._states: dict[int, Any] = {epoch_state.position: epoch_state.sampler.get("state")}
        there = bool(epoch_state.splits) or self._states[epoch_state.position] is not None
        self._next = epoch_state.position if there else 0
        self._peeked: list[tuple[int, Any]] = []
        epoch_state.at = epoch_state.position - 1
        epoch_state.index_batches = self
        while self._next < epoch_state.position:
            skipped(next(self._indices))
            self._next += 1
        self._done = frozenset(epoch_state.beyond)

    def __next__(self) -> Any:
        number, index = self._peeked.pop() if self._peeked else self._pull()
        self._epoch_state.at = number
        return index

    def peek(self) -> None:
        """Draws the next index batch already, and keeps it for next()."""
        try:
            self._peeked.append(self._pull())
        except StopIteration:
            pass

    def _pull(self) -> tuple[int, Any]:
        while True:
            index = self._draw()
            number = self._next
            self._next += 1
            if self._get_state is not None:
                self._states[self._next] = self._get_state()
            if number not in self._done:
                return number, index

    def _draw(self) -> Any:
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

    def forget(self, position: int) -> None:
        for number in [number for number in self._states if number < position]:
            del self._states[number]


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


def packed_state(dataset: Any) -> dict[str, Any]:
    """The part of a state about the loader's datasets, as JSON values: [version, digest of the samples] of each packed dataset, in Subsets
    and the like too, as "packed", and what the order of a Mixture follows from, as "mixture"; {} without any."""
    found = _versions(dataset)
    mixture = {"mixture": dataset.described()} if isinstance(dataset, Mixture) else {}
    return ({"packed": found} if found else {}) | mixture


def check_mixture(dataset: Any, stored: Any) -> None:
    """Checks that a state, which holds `stored` as its mixture, goes with a dataset.

    Raises:
        ArgumentError: one is of a Mixture and the other is not, or they differ in more than weights, or the state is damaged.
    """
    if not isinstance(dataset, Mixture):
        if stored is not None:
            raise ArgumentError(f"the state was taken with a Mixture, and this loader's dataset is a {type(dataset).__name__}: give it one")
        return
    if stored is None:
        raise ArgumentError("the state was taken without a Mixture, and this loader's dataset is one: resume with the same dataset")
    why = dataset.fits(stored)
    if why:
        raise ArgumentError(
            f"the state does not fit this loader's Mixture: {why}. Resume with the same sources, samples_per_epoch and seed"
        )


def _versions(dataset: Any) -> list[list[Any]]:
    return [[packed.version, packed.opened.reader.manifest.samples_digest] for packed in _leaves(dataset)]


def _leaves(dataset: Any) -> Iterator[PackedDataset]:
    if isinstance(dataset, PackedDataset):
        yield dataset
    elif type(dataset) is Subset:
        yield from _leaves(dataset.dataset)
    elif isinstance(dataset, Mixture):
        for source in dataset.sources:
            yield from _leaves(source)
    elif type(dataset) is ConcatDataset:
        for part in dataset.datasets:
            yield from _leaves(part)


def check_versions(dataset: Any, stored: list[Any]) -> None:
    """Checks that positions in a state mean the same samples now. Fields may have been added or taken away.

    Raises:
        ArgumentError: a packed dataset is of another version than it was, with other samples.
    """
    leaves, versions = list(_leaves(dataset)), _versions(dataset)
    if len(stored) != len(leaves):
        return
    for packed, (before, digest), (now, samples) in zip(leaves, stored, versions, strict=True):
        if before != now and digest != samples:
            raise ArgumentError(
                f"the state was taken in mid-epoch with version {before} of {packed.path}, this loader has version {now}, "
                f"whose samples are others: resume with PackedDataset(..., version={before})"
            )


def is_versions(value: object) -> bool:
    """Returns True if a value of a state has the form that `packed_state` makes."""
    return isinstance(value, list) and all(isinstance(each, list) and [type(part) for part in each] == [int, str] for each in value)
