"""Splits of an order over ranks, as arithmetic: which part is whose, what all ranks together have had, and what is left for others.

NOTE [ splits: states without a rank ]
Ranks go through an epoch in step: each has had the same number of batches, of the same size. A *split* is a number of ranks, and how
many samples each of them has had. In strided orders rank r of N has the samples r, r + N, r + 2N ... of the order, so that N ranks with
k samples each have had its first N * k, whoever they are. What is left is a suffix, which M other ranks stride over in the same way: the
next split. So the list of an epoch's splits says what was had, it is the same on every rank, and any number of ranks goes on from it.
Where ranks have stretches of an order and not strides (`shuffle="window"`), what is left is the ends of these stretches, one after
another. Padding is then anywhere in the last stretches: N ranks with k samples each may have had fewer than N * k different ones before
the last round, and only the order itself says how many.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

Rule = Literal["pad", "drop", "uneven"]
"""What becomes of a last round that is not full: filled with the first samples again, left out, or given to the first ranks only."""
Positions = npt.NDArray[np.int64]

_Unit = TypeVar("_Unit")


@dataclass(frozen=True)
class Split:
    """A number of ranks that went through a part of an order in step.

    Attributes:
        world: number of ranks, at least 1.
        had: samples that each of them has had.
    """

    world: int
    had: int = 0


def rule_of(drop_last: bool, even: bool) -> Rule:
    """The rule that the arguments drop_last= and even= ask for."""
    return "uneven" if not even else "drop" if drop_last else "pad"


def share(count: int, world: int, rank: int, rule: Rule) -> int:
    """Number of samples that a rank gets of `count`."""
    if rule == "drop":
        return count // world
    return -(-count // world) if rule == "pad" else len(range(rank, count, world))


def begun_at(count: int, splits: Sequence[Split]) -> int:
    """Position in a strided order at which the last split begins: as many samples were had in those before it.

    It is that number in an order of stretches too, but under "pad".
    """
    had = 0
    for split in splits[:-1]:
        had += min(split.world * split.had, count - had)
    return had


def continued(splits: Sequence[Split], world: int) -> tuple[Split, ...]:
    """The splits, the last of which is for `world` ranks: those that were there go on, or others go on from where they were."""
    begun = tuple(split for split in splits if split.had)
    return begun if begun and begun[-1].world == world else (*begun, Split(world))


def advanced(splits: Sequence[Split], rest: int, rule: Rule, samples: int, batch: int) -> tuple[tuple[Split, ...], bool]:
    """The splits after each rank has had `samples` more, and whether the rank with the most then has no batch left.

    Args:
        splits: as the pass began.
        rest: samples that the last split began with: those that no rank had in the splits before it.
        rule: what becomes of a last round.
        samples: how many each rank has had in full batches; the last batch may have been smaller.
        batch: least number of samples that make a batch: the batch size where partial ones are dropped, else 1.
    """
    last = splits[-1]
    most = share(rest, last.world, 0, rule)
    had = min(last.had + samples, most)
    return (*splits[:-1], replace(last, had=had)), most - had < batch


def strided_places(count: int, splits: Sequence[Split], rank: int, rule: Rule, step: int = 1 << 14) -> Iterator[Positions]:
    """Places in a strided order that a rank has in the rest of the last split, some thousand at a time."""
    start, last = begun_at(count, splits), splits[-1]
    rest = count - start
    turns = range(last.had, share(rest, last.world, rank, rule))
    size = min(step, 1024)  # the first ones come at once
    while turns:
        now, turns, size = turns[:size], turns[size:], step
        yield start + (rank + np.arange(now.start, now.stop, dtype=np.int64) * last.world) % rest


def strided(units: Iterable[_Unit], start: int, split: Split, rank: int, rule: Rule) -> Iterator[_Unit]:
    """A rank's units of an order of unknown length, from its unit `start` on, which the split begins at."""
    rest = itertools.islice(units, start, None)
    first: list[_Unit] = []
    for turn in itertools.count():
        units_of_turn = list(itertools.islice(rest, split.world))
        missing = split.world - len(units_of_turn)
        first += units_of_turn[: split.world - len(first)]
        if missing and (not units_of_turn or rule == "drop"):
            return
        if missing and rule == "pad":
            units_of_turn += (first * split.world)[:missing]
        if turn >= split.had and rank < len(units_of_turn):
            yield units_of_turn[rank]
        if missing:
            return


def stretch(count: int, world: int, rank: int, rule: Rule) -> tuple[int, int]:
    """First place and length of a rank's stretch of an order; under "pad" the order goes on at its beginning."""
    length = share(count, world, rank, rule)
    before = rank * (count // world) + min(rank, count % world) if rule == "uneven" else rank * length
    return before, length


def left_of(order: Positions, parts: Sequence[Positions], had: int) -> Positions:
    """What is left of an order after each rank has had its first `had` samples of its part: each sample once, part after part.

    `order` has each sample once; what it has and no part has comes last.
    """
    done = np.zeros(int(order.max()) + 1 if len(order) else 0, np.bool_)
    for part in parts:
        done[part[:had]] = True
    rest = np.concatenate([*(part[had:] for part in parts), order])
    rest = rest[~done[rest]]
    _, first = np.unique(rest, return_index=True)
    found: Positions = rest[np.sort(first)]
    return found
