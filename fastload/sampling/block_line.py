"""BlockLine: the blocks of a dataset in random order, one after another as a line of samples, computed a
stretch at a time.

NOTE [ block line: a portion at a time ]
The blocks are sorted by a key each: a random word, with the block's number in its lower bits. A billion
samples are 50 million blocks, and a rank needs those of its own stretch of the line, a part at a time. So the
keys are not kept. The words are those of a Philox generator, which makes them again at some nanoseconds each.
One pass over them counts the keys by their upper BUCKET_BITS bits: from then on the places of each bucket's
blocks in the line are known. A *portion* is as many neighbouring buckets as have `portion` blocks; another
pass collects their keys, and only these are sorted. With up to LEAST_PORTION blocks all keys are sorted at
once. The order is the same either way. A portion grows with the root of the number of blocks, so that the
passes of an epoch cost less than giving out its samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from math import isqrt

import numpy as np
import numpy.typing as npt

LEAST_PORTION = 1 << 16
"""Blocks that are sorted at once in any case: 512 KiB of keys."""
BUCKET_BITS = 16
_WORDS = 1 << 15
"""Words that are made at a time: they stay in a core's own cache."""

Positions = npt.NDArray[np.int64]
_Keys = npt.NDArray[np.uint64]


class BlockLine:
    """The line of all samples, block by block, blocks in the order that `key` gives. See NOTE [ block line: a
    portion at a time ].

    Places in the line are 0 .. count-1. All blocks have `block` samples, but for the one at the dataset's
    end. An array that it returns is the caller's.

    Args:
        count: samples of the dataset.
        block: samples of a block, 1 or more.
        key: 0 .. 2**64-1.
        portion: blocks that are sorted at a time; None: LEAST_PORTION, or more where there are billions of
            samples.
    """

    def __init__(self, count: int, block: int, key: int, portion: int | None = None) -> None:
        self._count, self.block, self._key = count, block, key
        self._blocks = -(-count // block)
        self._missing = self._blocks * block - count  # samples that the dataset's last block lacks
        self._mask = np.uint64((1 << max(1, (self._blocks - 1).bit_length())) - 1)
        self._portion = max(LEAST_PORTION, isqrt(self._blocks) << 7) if portion is None else portion

    def number_at(self, place: int) -> int:
        """The number, counted along the line, of the block that has a place of it."""
        in_order = place < (self._short_number + 1) * self.block - self._missing
        return (place if in_order else place + self._missing) // self.block

    def start_of(self, number: int) -> int:
        """The place of a block's first sample, by the block's number along the line."""
        return number * self.block - (self._missing if number > self._short_number else 0)

    def blocks(self, first: int, last: int) -> Iterator[Positions]:
        """First position of each block from number `first` to before number `last` along the line, a
        portion at a time."""
        while first < last:
            order, begins = self._portion_at(first, last)
            now = order[first - begins : last - begins]
            yield now * self.block
            first += len(now)

    def lengths(self, starts: Positions) -> Positions:
        """Number of samples of each block, by its first position."""
        return np.minimum(self.block, self._count - starts)

    def short_numbers(self, first: int, last: int) -> list[int]:
        """The number along the line of the block that is shorter than the others, if it is `first` ..
        `last`."""
        return [self._short_number] if first <= self._short_number <= last else []

    def stretches(self, begin: int, end: int) -> list[Stretch]:
        """The stretches that hold the places from `begin` to before `end` of a line that goes on at its
        beginning."""
        found = []
        while begin < end:
            at = begin % self._count
            length = min(end - begin, self._count - at)
            found.append(Stretch(self, at, at + length))
            begin += length
        return found

    def positions(self, begin: int, end: int) -> Positions:
        """The samples at the places from `begin` to before `end` of a line that goes on at its beginning."""
        return np.concatenate(
            [_NONE, *(expanded(*runs) for stretch in self.stretches(begin, end) for runs in stretch.runs())]
        )

    @cached_property
    def _short_number(self) -> int:
        """The number along the line of the block at the dataset's end; beyond the line where it is as long
        as the others."""
        if not self._missing:
            return self._blocks
        if self._blocks <= self._portion:
            return int(np.flatnonzero(self._whole == self._blocks - 1)[0])
        (short,) = self._keys(self._blocks - 1, self._blocks)
        return sum(int(np.count_nonzero(keys < short)) for keys in self._all_keys())

    @cached_property
    def _ends(self) -> Positions:
        """Number of blocks in all buckets up to each."""
        counts = np.zeros(1 << BUCKET_BITS, np.int64)
        for keys in self._all_keys():
            counts += np.bincount((keys >> np.uint64(64 - BUCKET_BITS)).view(np.int64), minlength=len(counts))
        return np.cumsum(counts)

    def _portion_at(self, number: int, last: int) -> tuple[Positions, int]:
        """(blocks of a portion in their order, the number along the line of its first): the portion has
        the block of a number in it."""
        if self._blocks <= self._portion:
            return self._whole, 0
        ends = self._ends
        first = int(np.searchsorted(ends, number, "right"))
        begins = int(ends[first - 1]) if first else 0
        beyond = int(np.searchsorted(ends, min(last, begins + self._portion), "left")) + 1
        if beyond > first + 1 and int(ends[beyond - 1]) - begins > self._portion:
            beyond -= 1
        low, high = np.uint64(first << (64 - BUCKET_BITS)), np.uint64((beyond << (64 - BUCKET_BITS)) - 1)
        return self._sorted(
            np.concatenate([keys[(keys >= low) & (keys <= high)] for keys in self._all_keys()])
        ), begins

    @cached_property
    def _whole(self) -> Positions:
        return self._sorted(self._keys(0, self._blocks))

    def _sorted(self, keys: _Keys) -> Positions:
        keys.sort()
        keys &= self._mask
        return keys.view(np.int64)

    def _all_keys(self) -> Iterator[_Keys]:
        for begin in range(0, self._blocks, _WORDS):
            yield self._keys(begin, min(begin + _WORDS, self._blocks))

    def _keys(self, first: int, last: int) -> _Keys:
        keys = np.asarray(words_at(first, key=self._key).random_raw(last - first), np.uint64)
        keys &= ~self._mask
        keys |= np.arange(first, last, dtype=np.uint64)
        return keys


_NONE = np.empty(0, np.int64)


class Stretch:
    """A stretch of a line: the places from `begin` to before `end`, one or more. Its runs are blocks, and
    at its ends parts of blocks."""

    def __init__(self, line: BlockLine, begin: int, end: int) -> None:
        self._line = line
        self._begin, self._end = begin, end
        self._first = line.number_at(begin)
        self._last = line.number_at(end - 1)

    def __len__(self) -> int:
        """Number of its runs."""
        return self._last - self._first + 1

    @property
    def samples(self) -> int:
        """Number of its samples."""
        return self._end - self._begin

    def run_at(self, place: int) -> int:
        """The number of the run that has the sample number `place` of the stretch."""
        return self._line.number_at(self._begin + place) - self._first

    def runs(self, first: int = 0) -> Iterator[tuple[Positions, Positions]]:
        """First position and length of each run from number `first` on, a portion at a time."""
        number = self._first + first
        for starts in self._line.blocks(number, self._last + 1):
            lengths = self._line.lengths(starts)
            number += len(starts)
            if number == self._last + 1:
                lengths[-1] -= self._line.start_of(number) - self._end
            if number - len(starts) == self._first:
                before = self._begin - self._line.start_of(self._first)
                starts[0] += before
                lengths[0] -= before
            yield starts, lengths

    def short_runs(self) -> Iterator[tuple[int, int]]:
        """(number, length) of the runs that are shorter than a block."""
        for number in sorted({self._first, self._last, *self._line.short_numbers(self._first, self._last)}):
            begin, end = (
                min(max(self._line.start_of(each), self._begin), self._end) for each in (number, number + 1)
            )
            if end - begin < self._line.block:
                yield number - self._first, end - begin


def expanded(starts: Positions, lengths: Positions) -> Positions:
    """The positions of all runs, one run after another."""
    ends = np.cumsum(lengths)
    shift = np.repeat(starts - (ends - lengths), lengths)
    out: Positions = np.arange(len(shift), dtype=np.int64) + shift
    return out


def words_at(first: int, *, key: int, stream: tuple[int, int] = (0, 0)) -> np.random.Philox:
    """A Philox generator whose next word is number `first` of a key and stream, reached without making
    those before it."""
    words = np.random.Philox(key=key, counter=[first // 4, 0, *stream])  # it makes four words for each count
    if first % 4:
        words.random_raw(first % 4)
    return words
