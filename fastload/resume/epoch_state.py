"""EpochState: how far the caller has come in an epoch, for state_dict()."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from fastload.resume.dataset_state import DatasetState


@dataclass
class EpochState:
    """Where one pass stands: the batches that the user has had, whatever was pulled or made ahead of that.

    1. Batches count from 0 at the epoch's beginning, in the order of the sampler, over all the resumes of the epoch.
    2. An iterator calls take() for the batch whose turn it is and deliver() when the user gets it. A batch that was taken and failed is
       passed over by the next delivery; until then it counts as not had, so that a resume tries it again.
    3. Everything here but `start` and `now`, which belong to whoever captured them, is JSON.

    Attributes:
        epoch: the loader's number of it.
        start: generators as they were before the first draw of the pass, by name.
        now: generators to be set after the draws that a resume replays, by name.
        resumed: the pass began with a loaded state.
        drawn: the pass drew a base seed of its own; persistent workers draw one for all their passes.
        base_seed, passes: of the workers: their seed, and how many passes they had made before.
        sampler: name, epoch and own state of the sampler, as of the beginning.
        batches, samples: how many the user has had.
        position: every batch below it is done with.
        beyond: those above it that are done with as well (in_order=False).
        at: the number of the batch that was pulled last.
        replicas, turn: of an iterable or stateful dataset, by worker; whose turn is next.
        exhausted: a sampler with a state of its own has nothing more for this pass; that state may be the next pass's beginning.
        first: `batches` when the pass began.
        rewind: the sampler or dataset may stand at its own end, where a loaded state left it: if nothing comes, it is iterated once more.
        ended: the iterator has raised StopIteration.
        live: asks a dataset in this process for its state.
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
    _taken: list[tuple[int | None, int, int | None, DatasetState | None]] = field(default_factory=list)

    def take(self, number: int | None, samples: int, worker: int | None = None, replica: DatasetState | None = None) -> None:
        """The batch `number` (None: of an iterable dataset) leaves the queue, made by `worker`, whose dataset then stood at `replica`."""
        self._taken.append((number, samples, worker, replica))

    def deliver(self) -> None:
        """The batch taken last is the user's; what failed before it is passed over."""
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

    def _advance(self, worker: int, replica: DatasetState | None) -> None:
        theirs = self.replicas[worker]
        theirs.batches += 1
        if replica is not None:
            self.place(worker, replica)
        self.turn = (worker + 1) % len(self.replicas)

    def place(self, worker: int, replica: DatasetState) -> None:
        """A worker's replica of the dataset stands there, after the batches counted so far."""
        theirs = self.replicas[worker]
        theirs.state, theirs.ended = replica.state, replica.ended
        theirs.at = theirs.batches if replica.state is not None else 0

    def end(self) -> None:
        """The user has seen the end of the pass."""
        self.ended = True


class IndexBatches(Iterator[Any]):
    """An epoch's index batches, numbered, from its position on.

    1. Batches below the position are drawn and dropped, so that the sampler's draws are those of an uninterrupted epoch; a sampler
       with a state of its own (`told` asks for it) was set to that position already.
    2. What the sampler's state was after each pull is kept until the user has had that batch, and what comes before it.
    3. A sampler that was set to a state of its own, and gives nothing at all, is iterated again by `again` if the epoch has `rewind`.
    """

    def __init__(
        self,
        epoch_state: EpochState,
        indices: Iterator[Any],
        told: Callable[[], Any] | None,
        again: Callable[[], Iterator[Any]] | None = None,
    ) -> None:
        self._epoch_state = epoch_state
        self._indices = indices
        self._told = told
        self._again = again if epoch_state.rewind else None
        self._over = epoch_state.exhausted
        self._last: Any = epoch_state.sampler.get("state") if epoch_state.exhausted else None
        self._states: dict[int, Any] = {epoch_state.position: epoch_state.sampler.get("state")}
        self._next = epoch_state.position if self._states[epoch_state.position] is not None else 0
        self._peeked: list[tuple[int, Any]] = []
        epoch_state.at = epoch_state.position - 1
        epoch_state.index_batches = self
        while self._next < epoch_state.position:
            next(self._indices)
            self._next += 1
        self._done = frozenset(epoch_state.beyond)

    def __next__(self) -> Any:
        number, index = self._peeked.pop() if self._peeked else self._pull()
        self._epoch_state.at = number
        return index

    def _pull(self) -> tuple[int, Any]:
        while True:
            index = self._draw()
            number = self._next
            self._next += 1
            if self._told is not None:
                self._states[self._next] = self._told()
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
                self._last = None if self._told is None else self._told()
                raise
        self._indices = again()
        return self._draw()

    def exhausted(self, length: int | None) -> bool:
        """Whether a sampler with a state of its own has nothing more, and the caller has had all that it gave.

        Where `length`, the sampler's, does not rule that out, one more batch is drawn to find out, and kept.
        """
        if (
            self._told is None
            or self._epoch_state.position != self._next - len(self._peeked)
            or (length is not None and self._next < length)
        ):
            return False
        if not self._over and not self._peeked:
            try:
                self._peeked.append(self._pull())
            except StopIteration:
                pass
        return self._over and not self._peeked

    def state(self, exhausted: bool = False) -> Any:
        """The sampler's own state with everything before the epoch's position drawn; None where it has none."""
        return self._last if exhausted else self._states.get(self._epoch_state.position)

    def forget(self, position: int) -> None:
        for number in [number for number in self._states if number < position]:
            del self._states[number]


@dataclass
class Progress:
    """How far a loader has come.

    Attributes:
        next_epoch: the number of the epoch that the next iter() begins.
        epoch_state: of the epoch that was begun last.
        pending: a loaded state that the next epoch begins with.
    """

    next_epoch: int = 0
    epoch_state: EpochState | None = None
    pending: dict[str, Any] | None = None

    def count_epoch(self) -> int:
        """The number of the epoch that begins now."""
        self.next_epoch += 1
        return self.next_epoch - 1

    @property
    def epoch(self) -> int:
        """The number of the epoch that was begun last."""
        return self.next_epoch - 1
