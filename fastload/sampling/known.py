"""SamplerFacts: facts about samplers, such as when each draws. They decide whether one may be asked for indices earlier than torch asks.

NOTE [ samplers: drawn when torch draws them ]
A sampler may look at what the loop has written (losses, difficulties), and it may draw from a generator that the program uses as well. So
each index batch is drawn when torch's DataLoader draws it. With num_workers=0 that is one at each next(). With workers it is
prefetch_factor * num_workers of them at iter(), and one more at each next(). Native threads would read further ahead than that where
batches are small. They do so only if nobody can see it: the sampler's class is known here, with its own code (see NOTE [ originals: how
replaced code is found ]), and once the first index is drawn nothing that the program does changes the rest of the order, nor do later
draws change anything that the program sees. The next epoch is begun early only for samplers whose draws can be undone: see NOTE [ epochs:
the next one, begun early ].

`shuffle_class` is the sampler that the argument shuffle= names. `coverage` is the set of samples that a pass may ask for, in blocks or not,
which its sampler tells before anything is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler
from torch.utils.data.dataloader import _InfiniteConstantSampler

from fastload.common.originals import OwnCode
from fastload.common.positions import as_positions, listed_positions
from fastload.errors import ArgumentError
from fastload.sampling.buckets import BucketBatchSampler
from fastload.sampling.keyed import KeyedSampler, RandomKeyedSampler
from fastload.sampling.sampler import ShardSampler
from fastload.sampling.window import BLOCK, BUFFER, RandomWindowSampler, WindowSampler, usable_block, window_sizes

_NAMED: dict[str, type[RandomWindowSampler | RandomKeyedSampler]] = {"window": RandomWindowSampler, "huge": RandomKeyedSampler}
SHUFFLES: tuple[type[RandomSampler], ...] = (RandomSampler, RandomWindowSampler, RandomKeyedSampler)
"""Classes of which a sampler, without replacement, gives each sample of its data once, and draws at its first index only."""


def shuffle_class(shuffle: Any) -> type[RandomWindowSampler | RandomKeyedSampler] | None:
    """The sampler of a loader's shuffle=; None: what is no text is torch's. Raises ArgumentError for a text that names none."""
    if not isinstance(shuffle, str):
        return None
    if shuffle not in _NAMED:
        raise ArgumentError(f'shuffle={shuffle!r}: choose True, False, "window" or "huge"')
    return _NAMED[shuffle]


def coverage(sampler: Any, count: int) -> npt.NDArray[np.int64] | None:
    """Positions that the next pass of a sampler may ask for, ascending, without a draw; None: any, or nobody can tell.

    Args:
        sampler: a loader's, the innermost one: the one that decides the order.
        count: samples of the loader's dataset.
    """
    kind = type(sampler)
    if kind is WindowSampler:
        positions = sampler.positions()
    elif kind is KeyedSampler:
        positions = sampler.indices() if sampler.seed is not None else np.arange(count)
    elif kind is DistributedSampler:
        positions = as_positions(list(sampler))  # a function of its seed and epoch
    elif kind is SubsetRandomSampler:
        listed = listed_positions(sampler.indices)
        if listed is None:
            return None
        positions = listed
    else:
        return None
    found = np.zeros(count, np.bool_)
    try:
        found[positions] = True
    except IndexError:
        return None  # the loop will say which position the dataset has not
    return np.flatnonzero(found)


def blocks_of(sampler: Any) -> tuple[int, int] | None:
    """(samples of a block, samples of the buffer) of a sampler that asks for blocks of positions; block k begins at k times its size.

    None for any other sampler.
    """
    kind = type(sampler)
    if kind is WindowSampler:
        data, sizes = sampler.dataset, (sampler.block, sampler.buffer)
    elif kind is RandomWindowSampler:
        data, sizes = sampler.data_source, (BLOCK, BUFFER)
    else:
        return None
    block, buffer = window_sizes(data, *sizes)
    return usable_block(len(data), block, buffer), buffer


class Draws(Enum):
    """Times at which a pass of a sampler draws from generators that others use, or reads values that others write.

    NOTHING: never. FIRST: at its first index only. ANY: at any index, as far as is known.
    """

    NOTHING = "nothing"
    FIRST = "first"
    ANY = "any"


_NOTHING: tuple[type[Any], ...] = (SequentialSampler, DistributedSampler, BucketBatchSampler, _InfiniteConstantSampler)
_FIRST: tuple[type[Any], ...] = (*SHUFFLES, SubsetRandomSampler, WeightedRandomSampler, WindowSampler, KeyedSampler)


@dataclass(frozen=True, eq=False)
class SamplerFacts:
    """Facts about a loader's sampler as it is now.

    Attributes:
        deciding: the sampler that decides the order: the one in torch's BatchSampler, else the index sampler itself.
        is_own: True if it iterates as its library defined it, and so does torch's BatchSampler around it.
        draws: the time at which a pass draws.
        can_be_undone: True if a begun pass leaves no trace once generators are restored, and returns every sample of its data once.
        draws_nothing: True if it has the __iter__ of a class that draws from no generator.
        draws_at_first: True if, without a generator of its own, it draws from torch's at its first index only.
        is_stateful: True if it has a state_dict() and a load_state_dict().
    """

    deciding: Any = None
    is_own: bool = False
    draws: Draws = Draws.ANY
    can_be_undone: bool = False
    draws_nothing: bool = False
    draws_at_first: bool = False
    is_stateful: bool = False


def facts_of(index_sampler: Any, private: torch.Generator | None = None) -> SamplerFacts:
    """Collects the facts about a sampler.

    Args:
        index_sampler: sampler that returns the loader's indices, by the batch or one by one.
        private: generator that is seeded anew for every pass, and that nothing else draws from.
    """
    sampler = index_sampler.sampler if type(index_sampler) is BatchSampler else index_sampler
    kinds: tuple[type, type] = (type(index_sampler), type(sampler))
    is_own = not _iteration(*kinds).replaced()
    return SamplerFacts(
        deciding=sampler,
        is_own=is_own,
        draws=_draws_of(sampler, private) if is_own else Draws.ANY,
        can_be_undone=is_own and _can_be_undone(sampler),
        draws_nothing=is_own and _iterates_as(sampler, _NOTHING),
        draws_at_first=is_own and _iterates_as(sampler, _FIRST),
        is_stateful=is_stateful(sampler),
    )


def is_stateful(thing: Any) -> bool:
    """Returns True if a sampler or a dataset has both state_dict() and load_state_dict()."""
    return callable(getattr(thing, "state_dict", None)) and callable(getattr(thing, "load_state_dict", None))


def _draws_of(sampler: Any, private: torch.Generator | None) -> Draws:
    kind = type(sampler)
    if kind in _NOTHING or kind is ShardSampler:
        return Draws.NOTHING
    if isinstance(sampler, RandomSampler) and kind in SHUFFLES:
        if private is not None and sampler.generator is private:
            return Draws.NOTHING
        # RandomSampler goes on to draw from a generator of the user's at later indices, and at its end.
        return Draws.ANY if kind is RandomSampler and sampler.generator is not None else Draws.FIRST
    if isinstance(sampler, WindowSampler | KeyedSampler) and kind in _FIRST:
        return Draws.FIRST if sampler.seed is None else Draws.NOTHING
    return Draws.FIRST if kind is WeightedRandomSampler else Draws.ANY  # a SubsetRandomSampler reads its list of indices one by one


def _can_be_undone(sampler: Any) -> bool:
    if type(sampler) in (SequentialSampler, ShardSampler):
        return True
    if not isinstance(sampler, RandomSampler) or type(sampler) not in SHUFFLES:
        return False
    return not sampler.replacement and (sampler._num_samples is None or sampler._num_samples == len(sampler.data_source))


def _iterates_as(sampler: Any, kinds: tuple[type[Any], ...]) -> bool:
    return any(getattr(type(sampler), "__iter__", None) is kind.__iter__ for kind in kinds)


@cache
def _iteration(*kinds: type) -> OwnCode:
    """The iteration of samplers' classes."""
    bases = {base: None for kind in kinds for base in kind.__mro__ if "__iter__" in vars(base) and base is not object}
    return OwnCode(*((base, ("__iter__",)) for base in bases))
