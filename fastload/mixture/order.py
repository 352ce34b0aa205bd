"""MixtureOrder: which sample of which source is at each position of each epoch of a mixture, as a pure function.

NOTE [ mixture: which sample comes when ]
An epoch of N positions has an exact count of each source's samples: its share of N by the weights. Positions are divided into blocks of
BLOCK. How many samples of a source come before a block follows from its count and the block's place by whole-number division, so that every
block has the sources in the epoch's proportions, and any block is found without the ones before it. Within a block the sources are in
random order. A source's draws are numbered through all epochs, in the order of positions: number d is place d % n of the source's pass
d // n, and each pass over its n samples is a keyed permutation of its own. So a source is used up before a sample of it comes again,
within an epoch, at its end, and where weights change.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.common.rng import KeyedPermutation, interleaving_seed, mixed, source_seed

BLOCK = 64
"""Positions of a block: few, since a block is computed whole for any position of it; enough that its sources come in no pattern."""
SPAN = 64 * BLOCK
"""Positions whose rows are computed together where they are asked for in sequence."""
SAMPLES_LIMIT = 1 << 31
"""Limit on an epoch's samples: the product of two of them stays below 2**63."""
_KEPT = 256
"""Keyed permutations that are kept: the sources' latest passes."""

Changes = tuple[tuple[int, tuple[float, ...]], ...]
"""Weights by the epoch from which they hold, ascending; the first holds from epoch 0."""
_Positions = npt.NDArray[np.int64]


def shares(weights: Sequence[float], samples: int) -> tuple[int, ...]:
    """Whole numbers in proportion to `weights` whose sum is `samples`, by largest remainders; of equal ones the first is served first."""
    exact = [Fraction(weight) for weight in weights]
    total = sum(exact)
    wanted = [weight * samples / total for weight in exact]
    counts = [int(each) for each in wanted]
    by_remainder = sorted(range(len(counts)), key=lambda k: counts[k] - wanted[k])
    for k in by_remainder[: samples - sum(counts)]:
        counts[k] += 1
    return tuple(counts)


@dataclass(frozen=True)
class _Epoch:
    """One epoch: the counts of the sources, the numbers of their first draws, and the key of the order within blocks."""

    counts: tuple[int, ...]
    starts: tuple[int, ...]
    key: int


class MixtureOrder:
    """The order of a mixture's samples. See NOTE [ mixture: which sample comes when ].

    Args:
        seed: 0 .. 2**64-1.
        samples: of an epoch, fewer than SAMPLES_LIMIT.
        lengths: samples of each source, 1 or more.
        changes: the weights by epoch; those of an epoch are not all zero.
    """

    def __init__(self, seed: int, samples: int, lengths: tuple[int, ...], changes: Changes) -> None:
        self.identity = seed, samples, lengths, changes
        self._seed, self._samples, self._lengths, self._changes = seed, samples, lengths, changes
        self._epochs: OrderedDict[int, _Epoch] = OrderedDict()
        self._passes: OrderedDict[tuple[int, int], KeyedPermutation] = OrderedDict()
        self._spans: OrderedDict[tuple[int, int], tuple[npt.NDArray[np.uint32], _Positions]] = OrderedDict()

    def __len__(self) -> int:
        return self._samples

    def counts(self, epoch: int) -> tuple[int, ...]:
        """Samples of each source in an epoch."""
        return shares(next(weights for first, weights in reversed(self._changes) if first <= epoch), self._samples)

    def starts(self, epoch: int) -> tuple[int, ...]:
        """Samples of each source in all epochs before."""
        out = [0] * len(self._lengths)
        ends = [min(first, epoch) for first, _ in self._changes[1:]] + [epoch]
        for (first, weights), end in zip(self._changes, ends, strict=True):
            if end > first:
                out = [all_ + (end - first) * one for all_, one in zip(out, shares(weights, self._samples), strict=True)]
        return tuple(out)

    def rows(self, epoch: int, positions: _Positions) -> tuple[npt.NDArray[np.uint32], _Positions]:
        """Source, and index of the sample there, of each position, 0 .. samples-1."""
        spans = np.unique(positions // SPAN).tolist()
        if len(spans) > 2:
            return self._rows(epoch, positions)
        source, index = np.empty(len(positions), np.uint32), np.empty(len(positions), np.int64)
        for each in spans:
            mine = positions // SPAN == each
            sources, indices = self._span(epoch, each)
            source[mine], index[mine] = sources[positions[mine] - each * SPAN], indices[positions[mine] - each * SPAN]
        return source, index

    def _span(self, epoch: int, number: int) -> tuple[npt.NDArray[np.uint32], _Positions]:
        """A span's rows, for passes that ask for one position after another: at once they cost a tenth of as many batches."""
        found = self._spans.get((epoch, number))
        if found is None:
            where = np.arange(number * SPAN, min((number + 1) * SPAN, self._samples))
            found = self._spans[epoch, number] = self._rows(epoch, where)
            _keep(self._spans, 4)
        return found

    def _rows(self, epoch: int, positions: _Positions) -> tuple[npt.NDArray[np.uint32], _Positions]:
        plan = self._epoch(epoch)
        blocks, which = np.unique(positions // BLOCK, return_inverse=True)
        sources, numbers = self._blocks(plan, blocks)
        place = positions % BLOCK
        source, number = sources[which, place], numbers[which, place]
        index = np.empty(len(positions), np.int64)
        for each in np.unique(source).tolist():
            mine = source == each
            index[mine] = self._drawn(each, number[mine] + plan.starts[each])
        return source.astype(np.uint32), index

    def _epoch(self, epoch: int) -> _Epoch:
        found = self._epochs.get(epoch)
        if found is None:
            found = self._epochs[epoch] = _Epoch(self.counts(epoch), self.starts(epoch), interleaving_seed(self._seed, epoch))
            _keep(self._epochs, 4)
        return found

    def _blocks(self, plan: _Epoch, blocks: _Positions) -> tuple[_Positions, _Positions]:
        """Source of each position of some blocks, and the number of its draw in the epoch: two arrays of a row for each block."""
        low, high = self._before(plan, blocks * BLOCK), self._before(plan, np.minimum((blocks + 1) * BLOCK, self._samples))
        lacking = BLOCK - (high - low).sum(axis=1, keepdims=True)  # of the last block: a source of nothing, at its end
        each = np.concatenate([high - low, lacking], axis=1)
        kinds = np.tile(np.arange(each.shape[1]), len(blocks))
        sorted_sources = np.repeat(kinds, each.ravel()).reshape(len(blocks), BLOCK)
        places = blocks[:, None] * BLOCK + np.arange(BLOCK)
        keys = mixed(places.astype(np.uint64), plan.key) >> np.uint64(1)
        keys[sorted_sources == len(plan.counts)] = np.uint64(1 << 63)
        sources = np.take_along_axis(sorted_sources, keys.argsort(axis=1, kind="stable"), 1)
        by_source = sources.argsort(axis=1, kind="stable")  # the places of the first source, ascending, then those of the next
        firsts = np.cumsum(each, axis=1) - each
        base = np.concatenate([low, np.zeros_like(lacking)], axis=1) - firsts
        numbers = np.empty_like(sources)
        np.put_along_axis(numbers, by_source, np.arange(BLOCK) + np.take_along_axis(base, sorted_sources, 1), 1)
        return sources, numbers

    def _before(self, plan: _Epoch, ends: _Positions) -> _Positions:
        """Samples of each source before positions at which blocks end: it never falls, and at the epoch's end it is the source's count."""
        out = np.empty((len(ends), len(plan.counts)), np.int64)
        rest, left = ends, self._samples
        for k, count in enumerate(plan.counts):
            out[:, k] = rest * count // max(1, left)
            rest, left = rest - out[:, k], left - count
        return out

    def _drawn(self, source: int, numbers: _Positions) -> _Positions:
        """The samples that some draws of a source are."""
        passes, places = np.divmod(numbers, self._lengths[source])
        out = np.empty(len(numbers), np.int64)
        for each in np.unique(passes).tolist():
            mine = passes == each
            out[mine] = self._pass(source, each).at(places[mine])
        return out

    def _pass(self, source: int, number: int) -> KeyedPermutation:
        key = source, number
        found = self._passes.get(key)
        if found is None:
            found = self._passes[key] = KeyedPermutation(self._lengths[source], source_seed(self._seed, source, number))
            _keep(self._passes, _KEPT)
        return found


def _keep(cache: OrderedDict[Any, Any], most: int) -> None:
    while len(cache) > most:
        cache.popitem(last=False)
