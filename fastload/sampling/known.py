"""SamplerFacts: facts about samplers, such as when each draws. They decide whether one may be asked for
indices earlier than torch asks.

NOTE [ samplers: drawn when torch draws them ]
A sampler may look at what the loop has written (losses, difficulties), and it may draw from a generator that
the program uses as well. So each index batch is drawn when torch's DataLoader draws it. With num_workers=0
that is one at each next(). With workers it is prefetch_factor * num_workers of them at iter(), and one more
at each next(). Native threads would read further ahead than that where batches are small. They do so only if
nobody can see it: the sampler's class is known here, with its own code (see NOTE [ originals: how replaced
code is found ]), and once the first index is drawn nothing that the program does changes the rest of the
order, nor do later draws change anything that the program sees. The next epoch is begun early only for
samplers whose draws can be undone: see NOTE [ epochs: the next one, begun early ].

`shuffle_class` is the sampler that the argument shuffle= names. `coverage` is the set of samples that a pass
may ask for, in blocks or not, which its sampler tells before anything is drawn. `drawn_by` lists the
properties that the order of a user's sampler follows from, for the comparison of ranks.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from itertools import islice
from typing import Any, Protocol, TypeGuard

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.dataloader import _InfiniteConstantSampler

from fastload.common.originals import OwnCode
from fastload.common.positions import as_positions, digest_of, listed_positions, positions_within, summary_of
from fastload.errors import ArgumentError
from fastload.sampling.buckets import BucketBatchSampler
from fastload.sampling.keyed import KeyedSampler, RandomKeyedSampler
from fastload.sampling.sampler import Sharded, ShardSampler
from fastload.sampling.sharding import Positions, Split
from fastload.sampling.token_batches import TokenBatches
from fastload.sampling.window import (
    BLOCK,
    BUFFER,
    RandomWindowSampler,
    WindowSampler,
    usable_block,
    window_sizes,
)

_NAMED: dict[str, type[RandomWindowSampler | RandomKeyedSampler]] = {
    "window": RandomWindowSampler,
    "huge": RandomKeyedSampler,
}
SHUFFLES: tuple[type[RandomSampler], ...] = (RandomSampler, RandomWindowSampler, RandomKeyedSampler)
"""Classes of which a sampler, without replacement, gives each sample of its data once, and draws at its
first index only."""


def shuffle_class(shuffle: object) -> type[RandomWindowSampler | RandomKeyedSampler] | None:
    """The sampler of a loader's shuffle=; None: what is no text is torch's. Raises ArgumentError for a
    text that names none."""
    if not isinstance(shuffle, str):
        return None
    if shuffle not in _NAMED:
        raise ArgumentError(f'shuffle={shuffle!r}: choose True, False, "window" or "huge"')
    return _NAMED[shuffle]


class Coverage:
    """The samples that a pass may ask for, known before it does, so that neighbours can be fetched together.

    It holds nothing where the pass asks for all, else a bit for each sample of the dataset.

    Args:
        count: samples of the dataset.
        parts: the samples that the pass asks for, some at a time; None: all.
        block: samples of a block, if the pass asks for blocks of consecutive positions, each within a short
            time; block k begins at position k * block. 0: it does not.
        buffer: most samples of such blocks that are open at a time and not asked for yet.

    Raises:
        IndexError: the dataset lacks one of the samples.
    """

    def __init__(
        self, count: int, parts: Iterable[Positions] | None, block: int = 0, buffer: int = 0
    ) -> None:
        self._count = count
        self._bits: npt.NDArray[np.uint8] | None = None
        self.block, self.buffer = block, buffer
        if parts is not None:
            self._bits = np.zeros(-(-count // 8), np.uint8)
            for part in parts:
                part = positions_within(part, count)
                np.bitwise_or.at(self._bits, part >> 3, _BIT[part & 7])

    def among(self, positions: Positions) -> Positions:
        """Those of some positions, ascending and 0 or more, that it asks for."""
        positions = positions[: np.searchsorted(positions, self._count)]
        if self._bits is None:
            return positions
        needed: Positions = positions[(self._bits[positions >> 3] & _BIT[positions & 7]) != 0]
        return needed

    def parts(self) -> Iterator[Positions]:
        """All that it asks for, ascending, some thousand at a time."""
        for begin in range(0, self._count, _PART):
            yield self.among(np.arange(begin, min(begin + _PART, self._count)))

    def leave_out(self, positions: Sequence[int] | Positions | int) -> None:
        """Notes positions that an earlier part of the pass was given."""
        left = positions_within(
            positions if isinstance(positions, Sequence | np.ndarray) else [positions], self._count
        )
        if self._bits is None:
            self._bits = np.full(-(-self._count // 8), 0xFF, np.uint8)
        np.bitwise_and.at(self._bits, left >> 3, ~_BIT[left & 7])


_BIT = (1 << np.arange(8)).astype(np.uint8)
_PART = 1 << 16


def coverage(sampler: Any, count: int, epoch: int = 0, splits: tuple[Split, ...] = ()) -> Coverage | None:
    """The coverage of the next pass of a sampler, without a draw; None: it may ask for anything, or nobody
    can tell.

    Args:
        sampler: a loader's, the one that decides the order. Its code is its library's own.
        count: samples of the loader's dataset.
        epoch, splits: the pass's, under shard=.
    """
    parts: Iterable[Positions] | None = None
    kind = type(sampler)
    if isinstance(sampler, ShardSampler):
        parts = sampler.covered(epoch, splits)
    elif kind is SequentialSampler or (kind in SHUFFLES and gives_each_once(sampler)):
        parts = _all_of(len(sampler.data_source), count)
    elif kind in (WindowSampler, KeyedSampler):
        parts = sampler.covered() if sampler.seed is not None else _all_of(len(sampler.dataset), count)
    elif kind is DistributedSampler:
        parts = map(as_positions, _in_parts(iter(sampler)))  # a function of its seed and epoch
    elif kind is SubsetRandomSampler and (listed := listed_positions(sampler.indices)) is not None:
        parts = [listed]
    else:
        return None
    try:
        return Coverage(count, parts, *_blocks_of(sampler))
    except IndexError:
        return None  # the loop will say which position the dataset has not


def _all_of(length: int, count: int) -> Iterable[Positions] | None:
    """The positions 0 .. length-1 of a sampler's data, for a dataset of `count` samples: None where these
    are all."""
    if length == count:
        return None
    return (np.arange(begin, min(begin + _PART, length)) for begin in range(0, length, _PART))


def _in_parts(indices: Iterator[int]) -> Iterator[list[int]]:
    while part := list(islice(indices, _PART)):
        yield part


LISTED_BYTES, DRAWN_BYTES = 48, 8
"""Bytes a sample of a permutation that torch draws, at its peak: with the list of Python's integers that
its samplers make, and without."""


def listed_order(sampler: Any) -> tuple[int, int]:
    """(samples, bytes for each) of an order that a process draws as a list; (0, 0) without a list, and
    where the sampler is not known."""
    kind = type(sampler)
    if kind is ShardSampler and sampler.kind == "shuffled":
        return sampler.count, DRAWN_BYTES
    if kind is RandomSampler and not sampler.replacement:
        return len(sampler.data_source), LISTED_BYTES
    if kind is DistributedSampler and sampler.shuffle:
        return len(sampler.dataset), LISTED_BYTES
    return (len(sampler.indices), LISTED_BYTES) if kind is SubsetRandomSampler else (0, 0)


def _blocks_of(sampler: Any) -> tuple[int, int] | tuple[()]:
    """(samples of a block, samples of the buffer) of a sampler that asks for blocks of positions; () for
    any other sampler."""
    kind = type(sampler)
    if kind is WindowSampler:
        data, sizes = sampler.dataset, (sampler.block, sampler.buffer)
    elif kind is RandomWindowSampler:
        data, sizes = sampler.data_source, (BLOCK, BUFFER)
    elif kind is ShardSampler and sampler.kind == "window":
        data, sizes = sampler.dataset, (BLOCK, BUFFER)
    else:
        return ()
    block, buffer = window_sizes(data, *sizes)
    return usable_block(len(data), block, buffer), buffer


class DrawTimes(Enum):
    """Times at which a pass of a sampler draws from generators that others use, or reads values that others
    write.

    NOTHING: never. FIRST: at its first index only. ANY: at any index, as far as is known.
    """

    NOTHING = "nothing"
    FIRST = "first"
    ANY = "any"


_NOTHING: tuple[type[Any], ...] = (
    SequentialSampler,
    DistributedSampler,
    BucketBatchSampler,
    TokenBatches,
    _InfiniteConstantSampler,
)
_FIRST: tuple[type[Any], ...] = (
    *SHUFFLES,
    SubsetRandomSampler,
    WeightedRandomSampler,
    WindowSampler,
    KeyedSampler,
)


@dataclass(frozen=True, eq=False)
class SamplerFacts:
    """Facts about a loader's sampler as it is now.

    Attributes:
        deciding: the sampler that decides the order: the one in torch's BatchSampler, else the index sampler
            itself.
        is_own: True if it iterates as its library defined it, and so does torch's BatchSampler around it.
        draws: the time at which a pass draws.
        can_be_undone: True if a begun pass leaves no trace once generators are restored, and returns every
            sample of its data once.
        draws_nothing: True if it has the __iter__ of a class that draws from no generator.
        draws_at_first: True if, without a generator of its own, it draws from torch's at its first index
            only.
        is_stateful: True if it has a state_dict() and a load_state_dict().
        in_batches: True if torch's BatchSampler makes batches of it.
        sharded: the sampler that gives this rank its part, under shard=.
        follows_seed_and_epoch: True if the order follows from the sampler's own seed and the pass's epoch.
        shared_out: facts about the user's sampler or batch sampler that it shares out, under shard=; None: it
            shares out none.
    """

    deciding: Any = None
    is_own: bool = False
    draws: DrawTimes = DrawTimes.ANY
    can_be_undone: bool = False
    draws_nothing: bool = False
    draws_at_first: bool = False
    is_stateful: bool = False
    in_batches: bool = False
    sharded: Sharded | None = None
    follows_seed_and_epoch: bool = False
    shared_out: SamplerFacts | None = None

    def is_same(self, other: SamplerFacts) -> bool:
        """Returns True if another value says the same of the same samplers."""
        mine, theirs = vars(self) | {"shared_out": None}, vars(other) | {"shared_out": None}
        if any(theirs[name] is not value for name, value in mine.items()) or (self.shared_out is None) != (
            other.shared_out is None
        ):
            return False
        return (
            self.shared_out is None or other.shared_out is None or self.shared_out.is_same(other.shared_out)
        )

    @property
    def origin(self) -> SamplerFacts:
        """Facts about the sampler that makes the order: under shard=, of the user's own sampler if there
        is one."""
        return self.shared_out or self

    @property
    def generators(self) -> list[Any]:
        """Generators that the order may be drawn from: the sampler's own, or of the one that it is made
        of; else torch's global one."""
        sampler = self.origin.deciding
        found = [getattr(each, "generator", None) for each in (sampler, getattr(sampler, "sampler", None))]
        own = [each for each in found if each is not None]
        return own or ([] if self.origin.draws_nothing else [torch.default_generator])

    @property
    def is_known(self) -> bool:
        """Returns True if it is known when the order is drawn: never, or at its first index."""
        return self.origin.draws_nothing or self.origin.draws_at_first

    @property
    def draws_then_rests(self) -> bool:
        """Returns True if all draws of a pass's order from torch's global generator happen at its first
        index."""
        if self.origin.draws_nothing:
            return True
        return (self.draws_at_first or self.is_stateful) and getattr(
            self.deciding, "generator", None
        ) is not torch.default_generator


def facts_of(index_sampler: object, private: torch.Generator | None = None) -> SamplerFacts:
    """Collects the facts about a sampler.

    Args:
        index_sampler: sampler that returns the loader's indices, by the batch or one by one.
        private: generator that is seeded anew for every pass, and that nothing else draws from.
    """
    sampler = index_sampler.sampler if type(index_sampler) is BatchSampler else index_sampler
    kinds: tuple[type, type] = (type(index_sampler), type(sampler))
    is_own = not _iteration(*kinds).replaced()
    sharded = sampler if isinstance(sampler, Sharded) else None
    given = None if sharded is None else sharded.shared_out
    return SamplerFacts(
        deciding=sampler,
        is_own=is_own,
        draws=_draws_of(sampler, private) if is_own else DrawTimes.ANY,
        can_be_undone=is_own and _can_be_undone(sampler),
        draws_nothing=is_own and _iterates_as(sampler, _NOTHING),
        draws_at_first=is_own and _iterates_as(sampler, _FIRST),
        is_stateful=is_stateful(sampler),
        in_batches=sampler is not index_sampler,
        sharded=sharded,
        follows_seed_and_epoch=isinstance(sampler, ShardSampler),
        shared_out=None if given is None else facts_of(given),
    )


def is_stateful(thing: object) -> bool:
    """Returns True if a sampler or a dataset has both load_state_dict() and a state_dict() that needs no
    arguments."""
    return _has_state(thing) and _needs_nothing(thing.state_dict)


def state_needs_arguments(thing: object) -> bool:
    """Returns True if only a caller who knows the dataset's own protocol can take its state, as Mosaic's
    and LitData's loaders do."""
    return _has_state(thing) and not _needs_nothing(thing.state_dict)


class _Stateful(Protocol):
    """An object with a state."""

    def state_dict(self) -> object: ...


def _has_state(thing: object) -> TypeGuard[_Stateful]:
    return callable(getattr(thing, "state_dict", None)) and callable(getattr(thing, "load_state_dict", None))


def _needs_nothing(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind()
    except TypeError:
        return False
    except ValueError:  # a function of C that tells no signature
        return True
    return True


def ranks_of(sampler: object) -> dict[str, int | None]:
    """Numbers of ranks, and of hosts (None: hosts keep nothing), by which a user's DistributedSampler gives a
    rank its part; {} of other samplers. A position in one rank's part says something of the others' only
    where these numbers are the same.
    """
    ranks = getattr(sampler, "num_replicas", None)
    if (
        not isinstance(sampler, DistributedSampler)
        or isinstance(sampler, Sharded)
        or not isinstance(ranks, int)
    ):
        return {}
    return {"ranks": ranks, "hosts": sampler.hosts if isinstance(sampler, WindowSampler) else None}


def _draws_of(sampler: object, private: torch.Generator | None) -> DrawTimes:
    kind = type(sampler)
    if kind in _NOTHING or kind is ShardSampler:
        return DrawTimes.NOTHING
    if isinstance(sampler, RandomSampler) and kind in SHUFFLES:
        if private is not None and sampler.generator is private:
            return DrawTimes.NOTHING
        # RandomSampler goes on to draw from a generator of the user's at later indices, and at its end.
        return DrawTimes.ANY if kind is RandomSampler and sampler.generator is not None else DrawTimes.FIRST
    if isinstance(sampler, WindowSampler | KeyedSampler) and kind in _FIRST:
        return DrawTimes.FIRST if sampler.seed is None else DrawTimes.NOTHING
    # A SubsetRandomSampler reads its list of indices one by one.
    return DrawTimes.FIRST if kind is WeightedRandomSampler else DrawTimes.ANY


def _can_be_undone(sampler: Any) -> bool:
    return type(sampler) in (SequentialSampler, ShardSampler) or (
        type(sampler) in SHUFFLES and gives_each_once(sampler)
    )


_EACH_ONCE: tuple[type[Any], ...] = (
    SequentialSampler,
    DistributedSampler,
    WindowSampler,
    KeyedSampler,
    BucketBatchSampler,
    ShardSampler,
)


def gives_each_at_most_once(facts: SamplerFacts) -> bool:
    """Returns True if it is known that no pass gives an index twice; of the last samples some may come on
    two ranks."""
    origin = facts.origin
    sampler, kind = origin.deciding, type(origin.deciding)
    if not origin.is_own:
        return False
    if kind in SHUFFLES:
        return not sampler.replacement and (
            sampler._num_samples is None or sampler._num_samples <= len(sampler.data_source)
        )
    if kind is TokenBatches:
        return bool(sampler.drop_last)  # else the last samples may come again
    return kind in _EACH_ONCE or (kind is WeightedRandomSampler and not sampler.replacement)


def gives_each_once(sampler: RandomSampler) -> bool:
    """Returns True if a pass gives each sample of its data once."""
    return not sampler.replacement and (
        sampler._num_samples is None or sampler._num_samples == len(sampler.data_source)
    )


def _iterates_as(sampler: object, kinds: tuple[type[Any], ...]) -> bool:
    return any(getattr(type(sampler), "__iter__", None) is kind.__iter__ for kind in kinds)


@cache
def _iteration(*kinds: type) -> OwnCode:
    """The iteration of samplers' classes. A class known here may be given an `__iter__` of its own later."""
    known = (*_NOTHING, *_FIRST)
    bases = {
        base: None
        for kind in kinds
        for base in kind.__mro__
        if ("__iter__" in vars(base) or base in known) and base is not object
    }
    return OwnCode(*((base, ("__iter__",)) for base in bases))


def _digest(values: torch.Tensor) -> str:
    return digest_of(len(values), lambda start, stop: values[start:stop].cpu().numpy())


_DRAWING = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)


def drawn_by(sharded: Sharded, default: torch.Tensor | None) -> Iterator[tuple[str, Any]]:
    """Properties from which the user's sampler that ranks share out, and the one inside it, draw, as far as
    their classes are known.

    By the names that an error gives them. `default`: the state of torch's global generator at the pass's
    beginning, where it is known.
    """
    given = sharded.shared_out
    made_of: list[Any] = [] if given is None else [given]
    if type(given) is BatchSampler:
        made_of.append(given.sampler)
    for each in made_of:
        kind = type(each)
        yield "a sampler of the class", f"{kind.__module__}.{kind.__qualname__}"
        if kind is BatchSampler:
            yield "a BatchSampler with batch_size and drop_last", [each.batch_size, bool(each.drop_last)]
        elif kind is BucketBatchSampler:
            yield "a BucketBatchSampler with the seed", each.seed
            yield (
                "a BucketBatchSampler with batch_size, shuffle and drop_last",
                [each.batch_size, each.shuffle, each.drop_last],
            )
            yield "a BucketBatchSampler with the buckets", summary_of(each.buckets)
        elif kind is TokenBatches:
            yield "TokenBatches with the seed", each.seed
            yield (
                "TokenBatches with max_tokens, bins, shuffle, on_long and drop_last",
                [each.max_tokens, each.bins, each.shuffle, each.on_long, each.drop_last],
            )
            yield "TokenBatches with the lengths", summary_of(each.lengths)
            yield "TokenBatches with the patches", summary_of(each.patches)
        elif kind is SubsetRandomSampler:
            yield "a SubsetRandomSampler with the indices", summary_of(each.indices)
        elif kind is WeightedRandomSampler:
            yield "a WeightedRandomSampler with the weights", _digest(each.weights)
        elif kind is RandomSampler:
            yield "a RandomSampler with replacement", bool(each.replacement)
        if kind in _DRAWING:
            state = each.generator.get_state() if each.generator is not None else default
            if state is not None:
                yield f"a {kind.__name__} that draws from a generator in the state", _digest(state)
