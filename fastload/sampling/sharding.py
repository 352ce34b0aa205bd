"""Splits of an order over ranks, as arithmetic: the part of each rank, the samples that all have had, and
those left for others.

NOTE [ splits: states without a rank ]
Ranks go through an epoch in step: each has had the same number of batches, of the same size. A *split* is a
number of ranks, and how many samples each of them has had. In strided orders rank r of N has the samples r, r
+ N, r + 2N ... of the order, so that N ranks with k samples each have had its first N * k, whoever they are.
What is left is a suffix, which M other ranks stride over in the same way: the next split. So the list of an
epoch's splits says what was had, it is the same on every rank, and any number of ranks goes on from it. Where
ranks have stretches of an order and not strides (`shuffle="window"`), what is left is the ends of these
stretches, one after another. Padding is then anywhere in the last stretches: N ranks with k samples each may
have had fewer than N * k different ones before the last round, and only the order itself says how many.

`Agreement` finds out, without a wait, whether all ranks of a process group share out the same samples in the
same way. `shard=` names the rank of this process, and the number of ranks.

NOTE [ agreement: no rank waits for another ]
Ranks that differ (in world size, dataset, seed, batch size, epoch, or in the state that they have loaded)
would give samples twice or never, and nobody would notice. A collective would tell, and hang the group where
a rank does not come to it. So the first rank that begins a pass writes down what it is, in the store that the
process group was made with, and each other rank compares. One that differs says so in the store and goes on.
All ranks look for that after their 2nd, 4th, 8th ... batch, and at the end of the pass, and raise the same
error there. In a training loop every rank that comes to its second batch has been in the first step's
collective with all others, which had begun by then. So all ranks end together, and a rank that never comes is
left to the training's own collectives, and their timeout. Passes are matched by their number among the passes
of a loader, and loaders by their number among those of the process that have shard=. With shard=(rank, world)
ranks may have loaders that differ on purpose: only passes over datasets of one length are compared.
fastload/engines/resume/ranks.py lists what is compared.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from torch import distributed

from fastload.common.positions import position_of
from fastload.errors import ArgumentError
from fastload.sampling.window import grouped

_LENGTH = "a dataset of length"
_NOTHING = "(none)"
_numbers = itertools.count()


class Agreement:
    """Compares one loader's passes with those of the same loader on other ranks. See NOTE [ agreement: no
    rank waits for another ].

    Without a process group, and where the group's store cannot be asked, nothing is compared.
    """

    def __init__(self) -> None:
        self._loader = next(_numbers)
        self._passes = itertools.count()
        self._store: Any = None
        self._key = ""
        self._batches = 0

    def begin(self, length: int, strict: bool, found: Callable[[], Mapping[str, Any]]) -> None:
        """Begins a pass.

        Args:
            length: number of samples in the dataset.
            strict: True if the length, too, has to be equal on every rank.
            found: returns all that has to be equal on every rank, by the names that an error gives it, as
                JSON can hold it. A rank may lack a name that others have. Called only where there are other
                ranks.
        """
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        self._key, self._batches = f"fastload/{attempt}/{self._loader}/{next(self._passes)}", 0
        group = distributed.group.WORLD if grouped() and distributed.get_world_size() > 1 else None
        self._store = None if group is None else group.get_group_store()
        if self._store is None:
            return
        rank, mine = (
            distributed.get_rank(),
            {_LENGTH: str(length)} | {name: _told(value) for name, value in found().items()},
        )
        try:
            whose, first = json.loads(self._store.compare_set(self._key, "", json.dumps([rank, mine])))
            differs = next((name for name in {**mine, **first} if first.get(name) != mine.get(name)), None)
            if differs is not None and (strict or differs != _LENGTH):
                # set() of a TCPStore does not wait for the server: another rank could look before it is
                # there. The first to differ is told.
                told = (
                    f"rank {whose} has {differs} {first.get(differs, _NOTHING)}, rank {rank} has "
                    f"{mine.get(differs, _NOTHING)}"
                )
                self._store.compare_set(f"{self._key}/differs", "", told)
        except (RuntimeError, ValueError):  # the store is gone, or its text is another program's
            self._store = None

    def step(self) -> None:
        """Notes a batch that reaches the loop.

        Raises:
            ArgumentError: ranks differ.
        """
        self._batches += 1
        if self._store is not None and self._batches > 1 and not self._batches & (self._batches - 1):
            self.check()

    def check(self) -> None:
        """Asks the store whether a rank has found a difference.

        Raises:
            ArgumentError: ranks differ.
        """
        if self._store is None:
            return
        try:
            found = None
            if self._store.check([f"{self._key}/differs"]):
                found = self._store.get(f"{self._key}/differs").decode()
        except RuntimeError:
            self._store = found = None
        if found is not None:
            raise ArgumentError(
                f"ranks share out samples in different ways: {found}. Give shard= and all that the "
                "order follows from alike"
            )


def _told(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


Shard = Literal["auto"] | tuple[int, int]


def checked_shard(shard: Any) -> Shard | None:
    """The argument shard= as "auto" or (rank, world); None stays None.

    Raises:
        ArgumentError: it is neither, or the rank is none of that many.
    """
    if shard is None:
        return None
    if isinstance(shard, str) and shard == "auto":
        return "auto"
    try:
        rank, world = (position_of(each) for each in shard)
    except (TypeError, ValueError):
        raise ArgumentError(f'shard={shard!r}: give "auto", or (rank, world), such as (0, 8)') from None
    return _checked(rank, world, f"shard={shard!r}")


def rank_and_world(shard: Shard) -> tuple[int, int]:
    """(rank, world) as they are now: of "auto" those of the process group, else of torchrun's variables, else
    (0, 1).

    Raises:
        ArgumentError: RANK and WORLD_SIZE are no rank and number of ranks.
    """
    if shard != "auto":
        return shard
    if grouped():
        return distributed.get_rank(), distributed.get_world_size()
    rank, world = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    if not rank and (world or "1") == "1":
        return 0, 1
    told = f'shard="auto": the environment has RANK={rank or ""} and WORLD_SIZE={world or ""}'
    if not ((rank or "").isdecimal() and (world or "").isdecimal()):
        raise ArgumentError(
            f"{told}, which do not tell the rank: call torch.distributed.init_process_group(), or "
            "give shard=(rank, world)"
        )
    return _checked(int(rank or 0), int(world or 1), told)


def process_rank(shard: Shard | None) -> tuple[int, int]:
    """(rank, world) of this process, whatever part of the samples it has: of the process group, else of
    torchrun's variables, else of shard=(rank, world), else (0, 1)."""
    if not grouped() and not _from_environment():
        return shard if shard is not None and shard != "auto" else (0, 1)
    return rank_and_world("auto")


def _from_environment() -> bool:
    rank, world = os.environ.get("RANK") or "", os.environ.get("WORLD_SIZE") or ""
    return rank.isdecimal() and world.isdecimal() and int(rank) < int(world)


def _checked(rank: int, world: int, told: str) -> tuple[int, int]:
    if world < 1 or not 0 <= rank < world:
        raise ArgumentError(f"{told}: of a world of {world}, ranks are counted from 0 to {world - 1}")
    return rank, world


Rule = Literal["pad", "drop", "uneven"]
"""Rule for a last round that is not full: filled with the first samples again, left out, or given to the
first ranks only."""
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
    if not even:
        return "uneven"
    return "drop" if drop_last else "pad"


def share(count: int, world: int, rank: int, rule: Rule) -> int:
    """Number of samples that a rank gets of `count`."""
    if rule == "drop":
        return count // world
    return -(-count // world) if rule == "pad" else len(range(rank, count, world))


def begun_at(count: int, splits: Sequence[Split]) -> int:
    """Position in a strided order at which the last split begins: as many samples were had in those before
    it.

    It is that number in an order of stretches too, but under "pad".
    """
    had = 0
    for split in splits[:-1]:
        had += min(split.world * split.had, count - had)
    return had


def continued(splits: Sequence[Split], world: int) -> tuple[Split, ...]:
    """The splits, the last of which is for `world` ranks: those that were there go on, or others go on
    from where they were."""
    begun = tuple(split for split in splits if split.had)
    return begun if begun and begun[-1].world == world else (*begun, Split(world))


def advanced(
    splits: Sequence[Split], rest: int, rule: Rule, samples: int, batch: int
) -> tuple[tuple[Split, ...], bool]:
    """The splits after each rank has had `samples` more; and True if the rank with the most then has no batch
    left.

    Args:
        splits: the splits with which the pass began.
        rest: number of samples with which the last split began: those that no rank had in the splits before
            it.
        rule: the rule for a last round.
        samples: samples that each rank has had in full batches; the last batch may have been smaller.
        batch: least number of samples that make a batch: the batch size if partial ones are dropped, else 1.
    """
    last = splits[-1]
    most = share(rest, last.world, 0, rule)
    had = min(last.had + samples, most)
    return (*splits[:-1], replace(last, had=had)), most - had < batch


def strided_places(
    count: int, splits: Sequence[Split], rank: int, rule: Rule, step: int = 1 << 14
) -> Iterator[Positions]:
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
    """First place and length of a rank's stretch of an order; under "pad" the order goes on at its
    beginning."""
    length = share(count, world, rank, rule)
    before = rank * (count // world) + min(rank, count % world) if rule == "uneven" else rank * length
    return before, length
