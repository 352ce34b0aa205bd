"""WindowOrder: the order of one pass under shuffle="window", as a pure function of a key.

NOTE [ window: which sample comes when ]
A block is a run of consecutive samples, which one range request can fetch. Blocks are opened in random order. Time is counted in rounds: in
each round every open block gives one sample, in random order among the blocks; which of its samples a block gives next is random too. Block
number p, counted in the order of opening, opens in round p * B // S, for blocks of B samples, and is finished B rounds later. So S blocks
are open at a time, with 1 to B samples left in each, and any S samples in a row come from about S different blocks: batches of fewer than
S samples have as many distinct classes as independent draws, even where a block is all of one class.
The buffer is what a reader has to hold if it fetches a block whole when its first sample is asked for: the samples of open blocks that were
not given yet. At most ceil(k * S / B) blocks open in any k rounds in a row, so that it holds, summed over k = 1 .. B, at most
(S + 1) * (B + 1) / 2 - 1 samples. For a buffer of M samples S is therefore 2 * (M + 1) // (B + 1) - 1, which is at least 1 where M >= B.
Permuting windows of the same size one after another would mix less (a window of M samples has only M / B blocks, about half of S), and so
would a shuffle buffer from which samples are drawn at random: benchmarks/bench_shuffle.py compares the three.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from fastload.errors import ArgumentError

COUNT_LIMIT = 1 << 32
"""Limit on samples: rounds are the upper 32 bits of the numbers that are sorted."""
_STEP = 1 << 14
"""Samples that are ordered at a time: few enough that the first index comes at once, many enough that NumPy's calls cost nothing."""

_Words = npt.NDArray[np.uint64]
_Positions = npt.NDArray[np.int64]


class WindowOrder:
    """Order of one pass over a part of a dataset. See NOTE [ window: which sample comes when ].

    All blocks of the dataset, in the order that `key` gives them, form a line of `count` samples; a part is a stretch of that line, which
    goes on at its beginning where it is longer. Parts that share nothing of the line share no sample. A block on the border of two parts
    is in both, with some of its samples in each.

    Args:
        count: samples of the dataset.
        block: consecutive samples of a block; a block is never larger than the buffer.
        buffer: limit on samples that are fetched and not yet given, if blocks are fetched whole at their first sample. If it holds the
            whole part, the order is a permutation drawn uniformly.
        key: 0 .. 2**64-1; the order is a pure function of the arguments.
        first: place in the line of the part's first sample.
        samples: number of the part's samples; None: all.

    Raises:
        ArgumentError: there are too many samples.
    """

    def __init__(self, count: int, block: int, buffer: int, key: int, first: int = 0, samples: int | None = None) -> None:
        if count >= COUNT_LIMIT:
            raise ArgumentError(f'a dataset of {count:,} samples: shuffle="window" orders at most {COUNT_LIMIT - 1:,}; use shuffle=True')
        self.samples = count if samples is None else samples
        self.block = usable_block(count, block, buffer)
        self.buffer = buffer
        self.open_blocks = 2 * (buffer + 1) // (self.block + 1) - 1
        self._count, self._key, self._first = count, key, first

    def indices(self) -> _Positions:
        """The whole order."""
        return np.concatenate([np.empty(0, np.int64), *self.chunks()])

    def chunks(self) -> Iterator[_Positions]:
        """The order in pieces of some thousand samples, each computed when it is asked for."""
        if not self.samples:
            return
        starts, lengths = self.runs()
        words = np.random.Philox(key=self._key, counter=[0, 0, self._first, 1])
        if self.buffer >= self.samples:
            positions = expanded(starts, lengths)
            yield positions[_permutation(words, len(positions))]
            return
        step = max(1, max(_STEP, self.buffer // 4) // self.block)
        times, positions = np.empty(0, np.uint64), np.empty(0, np.int64)
        for begin in range(0, len(starts), step):
            end = min(begin + step, len(starts))
            new_times, new_positions = self._scheduled(begin, starts[begin:end], lengths[begin:end], words)
            times, positions = np.concatenate([times, new_times]), np.concatenate([positions, new_positions])
            due = np.full(len(times), True) if end == len(starts) else times < np.uint64(self._round(end) << 32)
            now = positions[due]
            yield now[times[due].argsort(kind="stable")]
            times, positions = times[~due], positions[~due]

    def _round(self, number: int) -> int:
        """The round in which a block opens."""
        return number * self.block // self.open_blocks

    def _scheduled(self, begin: int, starts: _Positions, lengths: _Positions, words: np.random.Philox) -> tuple[_Words, _Positions]:
        """Time and position of each sample of the blocks from number `begin` on. A time is a round and, below it, 32 random bits."""
        draws = np.asarray(words.random_raw(len(starts) * self.block), np.uint64).reshape(len(starts), self.block)
        turn = np.arange(self.block, dtype=np.int64)
        there = turn < lengths[:, None]
        upper = np.where(there, draws >> np.uint64(32), np.uint64(1 << 32))  # what a short block lacks comes last in it
        chosen = upper.argsort(axis=1, kind="stable")
        rounds = (np.arange(begin, begin + len(starts), dtype=np.int64) * self.block // self.open_blocks)[:, None] + turn
        times = rounds.astype(np.uint64) << np.uint64(32) | draws & np.uint64(0xFFFF_FFFF)
        return times[there], (starts[:, None] + chosen)[there]

    def runs(self) -> tuple[_Positions, _Positions]:
        """First position and length of the part's runs, in the order of opening: blocks, and parts of blocks at its ends."""
        if not self.samples:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        count, block = self._count, self.block
        blocks = -(-count // block)
        order = _permutation(np.random.Philox(key=self._key), blocks)
        lengths = np.minimum(block, count - order * block)
        ends = np.cumsum(lengths)
        starts_found, lengths_found, at, left = [], [], self._first % count, self.samples
        while left:
            stop = min(count, at + left)
            low, high = int(np.searchsorted(ends, at, "right")), int(np.searchsorted(ends, stop, "left"))
            starts, some = order[low : high + 1] * block, lengths[low : high + 1].copy()
            before = at - int(ends[low] - lengths[low])
            starts[0] += before
            some[0] -= before
            some[-1] -= int(ends[high]) - stop
            starts_found.append(starts)
            lengths_found.append(some)
            at, left = 0, left - (stop - at)
        return np.concatenate(starts_found), np.concatenate(lengths_found)


def usable_block(count: int, block: int, buffer: int) -> int:
    """Samples of a block: no more than the buffer holds, nor than there are."""
    return max(1, min(block, buffer, count))


def _permutation(words: np.random.Philox, count: int) -> _Positions:
    """The numbers 0 .. count-1 in random order: sorted by random upper bits, with the number itself in the lower bits."""
    below = np.uint64((1 << max(1, (count - 1).bit_length())) - 1)
    keys = np.asarray(words.random_raw(count), np.uint64) & ~below | np.arange(count, dtype=np.uint64)
    keys.sort()
    out: _Positions = (keys & below).astype(np.int64)
    return out


def expanded(starts: _Positions, lengths: _Positions) -> _Positions:
    """The positions of all runs, at least one, one run after another."""
    shift = np.repeat(starts - np.concatenate([[0], np.cumsum(lengths)[:-1]]), lengths)
    out: _Positions = np.arange(int(lengths.sum()), dtype=np.int64) + shift
    return out
