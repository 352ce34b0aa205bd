"""Samplers of shard=: each gives one rank its part of an order, from where all ranks stand in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch.utils.data import DistributedSampler, Sampler

from fastload.common.rng import KeyedPermutation, checked_epoch, order_seed
from fastload.errors import ArgumentError
from fastload.sampling.occurrences import OccurrenceCounter
from fastload.sampling.rest import WindowRest
from fastload.sampling.sharding import (
    Agreement,
    Positions,
    Rule,
    Shard,
    Split,
    begun_at,
    continued,
    rank_and_world,
    rule_of,
    share,
    stretch,
    strided,
    strided_places,
)
from fastload.sampling.token_batches import TokenBatches
from fastload.sampling.window import BLOCK, BUFFER, WindowOrder, window_sizes

_WORDS = 1 << 64
_UNKNOWN = 1 << 62
"""Length of an order whose sampler has none."""


class Sharded:
    """Base of the samplers of shard=. See NOTE [ splits: states without a rank ].

    1. The rank of this process, and the number of ranks, are found out when a pass begins, and when its
       length is asked for.
    2. The loader sets the epoch of each pass. Where a program or a framework has called set_epoch() itself,
       its epoch holds for one pass.
    3. Iterating the sampler itself gives the whole part of the epoch that set_epoch() named last.

    Attributes:
        shard: the argument shard=.
        rule: the rule for the last round, if the ranks do not divide the order.
        epoch: the epoch of the pass that was begun last, or that set_epoch() named.
        agreement: compares its passes with those of other ranks.
        num_replicas, rank: number of ranks, and rank of this process, as they were found out last.
        num_samples: number of samples in the rank's part of an epoch.
        total_size: number of samples in all parts together.
    """

    kind = ""
    """Name of the order; a state belongs to one kind of order."""

    def __init__(self, shard: Shard, drop_last: bool, even: bool) -> None:
        self.shard = shard
        self.drop_last, self.even = drop_last, even
        self.rule: Rule = rule_of(drop_last, even)
        self.epoch = 0
        self.agreement = Agreement()
        self._told: int | None = None

    @property
    def count(self) -> int:
        """Number of samples, or of batches, in an epoch of all ranks."""
        raise NotImplementedError

    @property
    def shared_out(self) -> Iterable[Any] | None:
        """The user's sampler or batch sampler that ranks share out; None: the loader made the order."""
        return None

    @property
    def length(self) -> int:
        """Length of what ranks share out; a number beyond any if a user's sampler has none."""
        try:
            return self.count
        except (TypeError, NotImplementedError):
            return _UNKNOWN

    def part(
        self, epoch: int, splits: Sequence[Split], rank: int, counter: OccurrenceCounter | None = None
    ) -> Iterator[Any]:
        """Samples of a rank in the rest of the last split; with a counter of the whole order, each with
        its occurrence (Counted)."""
        raise NotImplementedError

    def begun(self, epoch: int, count: int, splits: Sequence[Split]) -> int:
        """Number of an epoch's `count` samples, or batches, that ranks had before the last split, each
        counted once."""
        return begun_at(count, splits)

    def __iter__(self) -> Iterator[Any]:
        self.find_rank()
        return self.part(self.epoch, (Split(self.num_replicas),), self.rank)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "agreement"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, agreement=Agreement())

    def __len__(self) -> int:
        self.find_rank()
        return share(self.count, self.num_replicas, self.rank, self.rule)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that the next pass has."""
        self.epoch = self._told = checked_epoch(epoch)

    def epoch_of(self, loaders: int) -> int:
        """The epoch of the order in the pass that would begin now as the loader's epoch of that number."""
        return loaders if self._told is None else self._told

    def identity(self) -> tuple[Any, ...]:
        """All that a pass which would begin now follows from, but for its epoch, as objects and numbers."""
        self.find_rank()
        return self.rank, self.num_replicas, self.count, self.rule, self.kind

    def begin(self, epoch: int) -> None:
        """Notes that a pass begins, with the order of that epoch."""
        self.epoch, self._told = epoch, None

    def find_rank(self) -> None:
        """Sets num_replicas and rank to what this process is now, and the lengths by them where the order
        has one."""
        self.rank, self.num_replicas = rank_and_world(self.shard)
        try:
            count = self.count
        except (TypeError, NotImplementedError):
            return  # a user's sampler may have no length
        self.num_samples = share(count, self.num_replicas, self.rank, self.rule)
        self.total_size = count if self.rule == "uneven" else self.num_samples * self.num_replicas

    def continued(self, splits: Sequence[Split]) -> tuple[Split, ...]:
        """The splits of a pass that goes on after `splits`, with the ranks that there are now."""
        self.find_rank()
        return continued(splits, self.num_replicas)


class ShardSampler(Sharded, DistributedSampler[int]):
    """The sampler of FastLoader(shard=): a DistributedSampler, to torch and to frameworks, whose position can
    be moved to other ranks.

    Its indices are DistributedSampler's for the same seed, epoch and ranks, but with even=False, where
    nothing is repeated, and for the orders that DistributedSampler does not have. It draws from no generator.

    Args:
        dataset: has a length.
        shard: "auto", or (rank, world).
        shuffle: False, True, "window" or "huge".
        seed: seed of the order; None is 0, as DistributedSampler's.
        drop_last: True: the last samples, which the ranks cannot share evenly, are left out.
        even: False: ranks get different numbers of samples where need be, and nothing is repeated.
    """

    def __init__(
        self, dataset: Any, shard: Shard, *, shuffle: Any, seed: int | None, drop_last: bool, even: bool
    ) -> None:
        Sharded.__init__(self, shard, drop_last, even)
        self.dataset: Any = dataset
        self.shuffle = shuffle
        self.seed = seed or 0
        if isinstance(shuffle, str):
            self.kind = shuffle
        else:
            self.kind = "shuffled" if shuffle else "sequential"
        self._begun: tuple[Any, int] = None, 0
        self.find_rank()

    @property
    def count(self) -> int:
        """Number of samples."""
        return len(self.dataset)

    def part(
        self, epoch: int, splits: Sequence[Split], rank: int, counter: OccurrenceCounter | None = None
    ) -> Iterator[int]:
        """Indices that a rank gets in the rest of the last split; each comes once."""
        for chunk in self._part_chunks(epoch, splits, rank):
            yield from chunk.tolist()

    def begun(self, epoch: int, count: int, splits: Sequence[Split]) -> int:
        """Number of an epoch's `count` samples that ranks had before the last split, each counted once.

        Under "window" padding comes anywhere among a rank's samples, so that the order is made to count them;
        the last number is kept.
        """
        if self.kind != "window" or self.rule != "pad" or len(splits) < 2:
            return begun_at(count, splits)
        before = tuple(splits[:-1])
        asked, begun = self._begun
        return begun if asked == (epoch, count, before) else count - len(self._window_rest(epoch, before))

    def covered(self, epoch: int, splits: Sequence[Split]) -> Iterator[Positions]:
        """The indices of this rank in the rest of the last split, many thousand at a time, in no promised
        order."""
        if self.kind == "window" and len(splits) == 1 and not splits[0].had:
            return self._window(epoch, splits[0].world, self.rank).covered()
        return self._part_chunks(epoch, splits, self.rank)

    def _part_chunks(self, epoch: int, splits: Sequence[Split], rank: int) -> Iterator[Positions]:
        if self.kind == "window":
            return self._window_chunks(epoch, splits, rank)
        return map(self._order(epoch), strided_places(self.count, splits, rank, self.rule))

    def _order(self, epoch: int) -> Callable[[Positions], Positions]:
        """The order of an epoch, as a function of places in it."""
        if self.kind == "sequential":
            return lambda places: places
        if self.kind == "huge":
            return KeyedPermutation(self.count, order_seed(self.seed, epoch)).at
        generator = torch.Generator().manual_seed((self.seed + epoch) % _WORDS)
        return torch.randperm(self.count, generator=generator).numpy().__getitem__

    def _window_chunks(self, epoch: int, splits: Sequence[Split], rank: int) -> Iterator[Positions]:
        *before, last = splits
        if before:
            return self._window_rest(epoch, tuple(before)).part(last, rank)
        return self._window(epoch, last.world, rank).chunks(last.had)

    def _window_rest(self, epoch: int, splits: tuple[Split, ...]) -> WindowRest:
        """Samples left after splits; new ranks get stretches of them, so that each has blocks of its own
        as far as that goes."""
        rest = WindowRest(self.count, splits, self.rule, partial(self._window, epoch, splits[0].world))
        self._begun = (epoch, self.count, splits), self.count - len(rest)
        return rest

    def _window(self, epoch: int, world: int, rank: int) -> WindowOrder:
        first, length = stretch(self.count, world, rank, self.rule)
        return WindowOrder(
            self.count,
            *window_sizes(self.dataset, BLOCK, BUFFER),
            order_seed(self.seed, epoch),
            first,
            length,
        )


class ShardedSampler(Sharded, DistributedSampler[Any]):
    """A user's sampler under shard=: every rank draws the whole order, and takes its stride of it.

    The sampler has to give the same order on every rank: by a seed, or from a generator with the same seed.
    """

    kind = "sampler"

    def __init__(self, dataset: Any, sampler: Any, shard: Shard, *, drop_last: bool, even: bool) -> None:
        Sharded.__init__(self, shard, drop_last, even)
        self.dataset, self.sampler = dataset, sampler
        self.shuffle, self.seed = False, 0
        self.find_rank()

    @property
    def shared_out(self) -> Any:
        """The user's sampler."""
        return self.sampler

    @property
    def count(self) -> int:
        """Number of samples in the user's order."""
        return len(self.sampler)

    def part(
        self, epoch: int, splits: Sequence[Split], rank: int, counter: OccurrenceCounter | None = None
    ) -> Iterator[Any]:
        """Indices that a rank gets in the rest of the last split."""
        return _strided(
            self,
            self.sampler if counter is None else counter.marked(self.sampler, batches=False),
            splits,
            rank,
        )

    def begin(self, epoch: int) -> None:
        """Notes that a pass begins, and tells the user's sampler its epoch."""
        Sharded.begin(self, epoch)
        _tell(self.sampler, epoch)


class ShardedBatchSampler(Sharded, Sampler[Any]):
    """A user's batch sampler under shard=: every rank draws all batches, and takes its stride of them.

    Raises:
        ArgumentError: TokenBatches that are one rank's, or whose steps cannot be shared out; also
        find_rank().
    """

    kind = "batch_sampler"

    def __init__(self, batch_sampler: Any, shard: Shard, *, drop_last: bool, even: bool) -> None:
        Sharded.__init__(self, shard, drop_last, even)
        self.batches = batch_sampler
        if isinstance(batch_sampler, TokenBatches) and batch_sampler.shard is not None:
            raise ArgumentError(
                f"shard={shard!r} and TokenBatches(shard={batch_sampler.shard!r}): "
                "give it to the loader alone"
            )
        self.find_rank()

    @property
    def shared_out(self) -> Any:
        """The user's batch sampler."""
        return self.batches

    @property
    def count(self) -> int:
        """Number of batches of the user's batch sampler."""
        if isinstance(self.batches, TokenBatches):
            return self.batches.batches_in(self.epoch)
        return len(self.batches)

    @property
    def batch_size(self) -> int | None:
        """The batch size, where the user's batch sampler has one."""
        return getattr(self.batches, "batch_size", None)

    def part(
        self, epoch: int, splits: Sequence[Split], rank: int, counter: OccurrenceCounter | None = None
    ) -> Iterator[Any]:
        """Batches that a rank gets in the rest of the last split."""
        return _strided(
            self,
            self.batches if counter is None else counter.marked(self.batches, batches=True),
            splits,
            rank,
        )

    def find_rank(self) -> None:
        if isinstance(self.batches, TokenBatches):
            self.batches.check_world(rank_and_world(self.shard)[1])
        Sharded.find_rank(self)

    def begin(self, epoch: int) -> None:
        """Notes that a pass begins, and tells the user's batch sampler, and the sampler in it, its epoch."""
        Sharded.begin(self, epoch)
        _tell(self.batches, epoch)
        _tell(getattr(self.batches, "sampler", None), epoch)


def _strided(sharded: Sharded, units: Any, splits: Sequence[Split], rank: int) -> Iterator[Any]:
    if len(splits) == 1:
        return strided(units, 0, splits[0], rank, sharded.rule)
    try:
        count = sharded.count
    except (TypeError, NotImplementedError):
        raise ArgumentError(
            f"{type(sharded.shared_out).__name__} has no length, by which what other ranks had could "
            "be left out: resume with "
            f"{splits[-2].world} ranks, or give it a __len__"
        ) from None
    return strided(units, begun_at(count, splits), splits[-1], rank, sharded.rule)


def _tell(sampler: object, epoch: int) -> None:
    tell = getattr(sampler, "set_epoch", None)
    if callable(tell):
        tell(epoch)
