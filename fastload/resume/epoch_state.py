"""EpochState: how far the caller has come in an epoch, for state_dict()."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from fastload.resume.dataset_state import DatasetState
from fastload.sampling.sharding import Agreement, Split


@dataclass
class EpochState:
    """Position of one pass: the batches already returned to the caller, whatever was prefetched after them.

    1. Batches are numbered from 0 at the epoch's beginning, in the order of the sampler, through all resumes of the epoch.
    2. An iterator calls take() for the batch whose turn it is, and deliver() when it is returned to the caller. A batch that was taken and
       failed counts as done from the next delivery on; until then it does not, so that a resume tries it again.
    3. `start` and `now` hold what fastload.resume.epoch_start captured; the other values that state_dict() saves are plain data.

    Attributes:
        epoch: the epoch's number in the loader.
        start: states of the generators before the first draw of the pass, by name.
        now: states that the generators get after the draws that a resume repeats, by name.
        resumed: whether the pass began with a loaded state.
        drawn: whether the pass drew a base seed of its own; persistent workers draw one for all their passes.
        base_seed, passes: the workers' base seed, and the number of passes that they made before.
        sampler: name, epoch and own state of the sampler at the beginning of the pass.
        batches, samples: how many were returned to the caller.
        position: every batch with a smaller number is done: returned to the caller, or passed over.
        beyond: numbers above it that are done as well (in_order=False).
        at: the number of the index batch drawn last.
        replicas, turn: for an iterable or stateful dataset, the state of each worker's copy, and the worker whose turn is next.
        exhausted: whether a stateful sampler has no more batches for this pass; its state may then be the next pass's beginning.
        first: `batches` when the pass began.
        rewind: a loaded state may have left the sampler or dataset at its own end: if it yields nothing, it is iterated once more.
        ended: whether the iterator has raised StopIteration.
        live: returns the state of a dataset in this process.
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
        """Whether a stateful sampler is exhausted, and all its batches were returned to the caller.

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
