"""Which sample, when: seeds of epochs, substitutes for bad samples, and where a pass stands for state_dict()."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.errors import ArgumentError

ORDER_STREAM = 0xFFFE
SUBSTITUTE_STREAM = 0xFFFF
SUBSTITUTES = 16
"""How many substitutes are tried for a sample that cannot be made."""


def checked_seed(seed: Any) -> int | None:
    """A seed argument as an int of 64 bits; None stays None.

    Raises:
        ArgumentError: it is no integer from 0 to 2**64 - 1.
    """
    if seed is None:
        return None
    number = _natural(seed)
    if number is None or number >= 1 << 64:
        raise ArgumentError(f"seed={seed!r}: give an integer from 0 to 2**64 - 1, or None for a seed from torch's generator")
    return number


def checked_epoch(epoch: Any) -> int:
    """An epoch's number as an int.

    Raises:
        ArgumentError: it is no integer from 0 to 2**63 - 1.
    """
    number = _natural(epoch)
    if number is None or number >= 1 << 63:
        raise ArgumentError(f"epoch {epoch!r}: give its number, an integer from 0 to 2**63 - 1")
    return number


def _natural(value: Any) -> int | None:
    """The value as an int; None where it is negative or no integer."""
    try:
        number = position_of(value)
    except TypeError:
        return None
    return number if number >= 0 else None


def order_seed(seed: int, epoch: int) -> int:
    """The seed of one epoch's order, a pure function of (seed, epoch); 63 bits."""
    low, high = core.random_words(seed, epoch, 0, ORDER_STREAM, 2)
    return (high << 32 | low) & 0x7FFF_FFFF_FFFF_FFFF


def substitutes(seed: int, epoch: int, index: int, count: int) -> list[int]:
    """Positions (0 .. count-1) to try, in order, in place of the sample `index`: a pure function of its arguments."""
    return [word % count for word in core.random_words(seed, epoch, index, SUBSTITUTE_STREAM, SUBSTITUTES)]


def as_positions(values: Any) -> npt.NDArray[np.int64]:
    """Positions of samples as int64; it may share an integer array's memory.

    Args:
        values: integers in a list, a range, an array, a tensor on the CPU, or another sized collection.

    Raises:
        TypeError: a value is no integer (it has no `__index__`), or is a bool: a mask is no list of positions.
    """
    if isinstance(values, range):
        return np.arange(values.start, values.stop, values.step, dtype=np.int64)
    if hasattr(values, "__array__"):
        array = np.asarray(values)
        if array.dtype.kind not in "iu" or array.ndim != 1:
            raise TypeError(
                f"samples are found by integers in one dimension, not by an array of {array.dtype} with shape {array.shape}: "
                "of a mask, give np.flatnonzero(mask)"
            )
        return array.astype(np.int64, copy=False)
    values = values if isinstance(values, list | tuple) else list(values)
    if set(map(type, values)) <= {int}:
        return np.array(values, np.int64)
    return np.fromiter((position_of(value) for value in values), np.int64, len(values))


def position_of(value: Any) -> int:
    """One position as an int.

    Raises:
        TypeError: it is no integer (it has no `__index__`), or is a bool.
    """
    if isinstance(value, bool) or str(getattr(value, "dtype", "")) in ("bool", "torch.bool"):
        raise TypeError(f"samples are found by integers, not by {value!r}: of a mask, give the positions where it is true")
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"samples are found by integers, not by {value!r} ({type(value).__name__})") from None


@dataclass
class Replica:
    """One copy of a dataset that is iterable, or has a state of its own, as far as its batches were returned to the caller.

    Attributes:
        batches: how many, of this pass.
        state: the dataset's own state; None where it has none.
        at: how many of `batches` came before that state was taken. 0: it was taken before the pass, which begins anew from it.
        ended: it was exhausted in making the last of them.
    """

    batches: int = 0
    state: dict[str, Any] | None = None
    at: int = 0
    ended: bool = False


@dataclass
class Course:
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
    replicas: list[Replica] = field(default_factory=list)
    turn: int = 0
    exhausted: bool = False
    first: int = 0
    rewind: bool = False
    ended: bool = False
    live: Callable[[], Replica] | None = None
    pulls: Pulls | None = None
    _taken: list[tuple[int | None, int, int | None, Replica | None]] = field(default_factory=list)

    def take(self, number: int | None, samples: int, worker: int | None = None, replica: Replica | None = None) -> None:
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
        if self.pulls is not None:
            self.pulls.forget(self.position)

    def _advance(self, worker: int, replica: Replica | None) -> None:
        theirs = self.replicas[worker]
        theirs.batches += 1
        if replica is not None:
            self.place(worker, replica)
        self.turn = (worker + 1) % len(self.replicas)

    def place(self, worker: int, replica: Replica) -> None:
        """A worker's replica of the dataset stands there, after the batches counted so far."""
        theirs = self.replicas[worker]
        theirs.state, theirs.ended = replica.state, replica.ended
        theirs.at = theirs.batches if replica.state is not None else 0

    def end(self) -> None:
        """The user has seen the end of the pass."""
        self.ended = True


class Pulls(Iterator[Any]):
    """A pass's index batches, numbered, from where its course stands.

    1. Batches that the course is done with are drawn and dropped, so that the sampler's draws are those of an uninterrupted pass; a sampler
       with a state of its own (`told` asks for it) was set to that position already.
    2. What the sampler's state was after each pull is kept until the user has had that batch, and what comes before it.
    3. A sampler that was set to a state of its own, and gives nothing at all where its course has `rewind`, is iterated again by `again`.
    """

    def __init__(
        self, course: Course, indices: Iterator[Any], told: Callable[[], Any] | None, again: Callable[[], Iterator[Any]] | None = None
    ) -> None:
        self._course = course
        self._indices = indices
        self._told = told
        self._again = again if course.rewind else None
        self._over = course.exhausted
        self._last: Any = course.sampler.get("state") if course.exhausted else None
        self._states: dict[int, Any] = {course.position: course.sampler.get("state")}
        self._next = course.position if self._states[course.position] is not None else 0
        self._peeked: list[tuple[int, Any]] = []
        course.at = course.position - 1
        course.pulls = self
        while self._next < course.position:
            next(self._indices)
            self._next += 1
        self._done = frozenset(course.beyond)

    def __next__(self) -> Any:
        number, index = self._peeked.pop() if self._peeked else self._pull()
        self._course.at = number
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
        if self._told is None or self._course.position != self._next - len(self._peeked) or (length is not None and self._next < length):
            return False
        if not self._over and not self._peeked:
            try:
                self._peeked.append(self._pull())
            except StopIteration:
                pass
        return self._over and not self._peeked

    def state(self, exhausted: bool = False) -> Any:
        """The sampler's own state with everything before the course's position drawn; None where it has none."""
        return self._last if exhausted else self._states.get(self._course.position)

    def forget(self, position: int) -> None:
        for number in [number for number in self._states if number < position]:
            del self._states[number]
