"""WindowRest: the samples that ranks left of an epoch in windows, for other ranks to go on with.

NOTE [ rest: places in place of samples ]
The parts of the first split, one after another, are a list of places: rank 0's first sample, its second, and
so on. What a split leaves of such a list is the end of each rank's stretch, one after another, hence
ascending places. So the rest after any number of splits is a list of intervals of places, some for each rank
that there ever was, whatever the number of samples. Which samples have these places is computed when they are
asked for, a part at a time. A sample has several places where "pad" repeats it: that is so of fewer samples
than there are ranks, and they are looked for when the rest is made. Of a repeated sample the first place
stays if no rank had it; else none. Samples that are in no part ("drop") have the last places, in ascending
order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, groupby

import numpy as np

from fastload.sampling.sharding import Positions, Rule, Split, stretch
from fastload.sampling.window import WindowOrder

_Intervals = list[tuple[int, int]]

_NEAR = 1 << 14
"""Places that are passed over rather than computing the order from a new beginning."""


class WindowRest:
    """Samples left after some splits of an epoch, each once, in the order in which other ranks go on with
    them.

    See NOTE [ rest: places in place of samples ].

    Args:
        count: samples of the epoch.
        splits: the splits, one or more.
        rule: the rule for a last round.
        order: order of the part of a rank of the first split.
    """

    def __init__(
        self, count: int, splits: Sequence[Split], rule: Rule, order: Callable[[int], WindowOrder]
    ) -> None:
        first, *others = splits
        self._rule, self._order = rule, order
        self._parts = [stretch(count, first.world, rank, rule) for rank in range(first.world)]
        self._total = sum(length for _, length in self._parts)
        self._count = count
        self._left = _without(self._begun(first.had), self._repeated(first.had), self._total)
        if self._total < count:
            self._left.append((self._total, count))
        for split in others:
            self._left = _picked(self._left, _not_had(len(self), split, rule))

    def __len__(self) -> int:
        """Number of the samples."""
        return sum(end - begin for begin, end in self._left)

    def part(self, split: Split, rank: int) -> Iterator[Positions]:
        """The samples of a rank in the rest of a split that begins here, some thousand at a time: a
        stretch of what is left."""
        begin, length = stretch(len(self), split.world, rank, self._rule)
        for lap in _laps(begin + split.had, begin + length, len(self)):
            yield from self._samples(_picked(self._left, [lap]))

    def _samples(self, places: _Intervals) -> Iterator[Positions]:
        firsts = [begin for begin, _ in self._parts]
        cuts = _cut(places, [*firsts[1:], self._total])
        for rank, mine in groupby(
            cuts, lambda each: bisect_right(firsts, each[0]) - 1 if each[0] < self._total else -1
        ):
            if rank < 0:
                others = np.sort(self._order(0).line.positions(self._total, self._count))
                yield from (others[begin - self._total : end - self._total] for begin, end in mine)
            else:
                yield from _of_order(
                    self._order(rank), [(begin - firsts[rank], end - firsts[rank]) for begin, end in mine]
                )

    def _begun(self, had: int) -> _Intervals:
        """Places that are left of the first split, of repeated samples all."""
        return [(begin + min(had, length), begin + length) for begin, length in self._parts if had < length]

    def _repeated(self, had: int) -> _Intervals:
        """Places of repeated samples that are none of the rest."""
        again = min(self._total - self._count, self._count)
        if again <= 0:
            return []
        found: dict[int, list[tuple[int, bool]]] = {}
        for rank, (begin, length) in enumerate(self._parts):
            for low, high in _overlaps(begin, begin + length, self._count, again):
                samples, places = self._order(rank).places_of(low - begin, high - begin)
                for sample, place in zip(samples.tolist(), places.tolist(), strict=True):
                    found.setdefault(sample, []).append((begin + place, place < had))
        gone: list[int] = []
        for each in found.values():
            places_ = sorted(place for place, _ in each)
            gone += places_ if any(was_had for _, was_had in each) else places_[1:]
        return [(place, place + 1) for place in sorted(gone)]


def _overlaps(begin: int, end: int, count: int, again: int) -> Iterator[tuple[int, int]]:
    """The parts of begin .. end-1 that are, modulo `count`, below `again`."""
    for lap in range(begin // count, -(-end // count)):
        low, high = max(begin, lap * count), min(end, lap * count + again)
        if low < high:
            yield low, high


def _not_had(count: int, split: Split, rule: Rule) -> _Intervals:
    """The places of `count` that no rank of a split has had."""
    stretches = (stretch(count, split.world, rank, rule) for rank in range(split.world))
    had = [lap for begin, length in stretches for lap in _laps(begin, begin + min(split.had, length), count)]
    return _without([(0, count)] if count else [], sorted(had), count)


def _laps(begin: int, end: int, count: int) -> Iterator[tuple[int, int]]:
    """The places begin .. end-1, modulo `count`, as intervals in their order."""
    while begin < end and count:
        at = begin % count
        length = min(end - begin, count - at)
        yield at, at + length
        begin += length


def _without(intervals: _Intervals, gone: _Intervals, end: int) -> _Intervals:
    """Ascending intervals without others, ascending, which may overlap each other; all end at `end` or
    before."""
    out: _Intervals = []
    holes = iter([*gone, (end, end)])
    hole = next(holes)
    for begin, stop in intervals:
        while begin < stop:
            while hole[1] <= begin and hole[0] < end:
                hole = next(holes)
            if hole[0] > begin:
                out.append((begin, min(stop, hole[0])))
            begin = max(begin, min(stop, hole[1])) if hole[0] < stop else stop
    return out


def _picked(intervals: _Intervals, wanted: Iterable[tuple[int, int]]) -> _Intervals:
    """Those of the numbers of some intervals that come at the wanted places among them."""
    ends = list(accumulate(end - begin for begin, end in intervals))
    out: _Intervals = []
    for low, high in wanted:
        at = bisect_right(ends, low)
        while low < high:
            end = intervals[at][1]
            begin = end - (ends[at] - low)
            stop = min(end, begin + high - low)
            out.append((begin, stop))
            low, at = low + stop - begin, at + 1
    return out


def _cut(intervals: _Intervals, borders: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Intervals cut where a border lies in them; borders ascend."""
    for begin, end in intervals:
        while begin < end:
            at = bisect_right(borders, begin)
            stop = min(end, borders[at]) if at < len(borders) else end
            yield begin, stop
            begin = stop


def _of_order(order: WindowOrder, places: _Intervals) -> Iterator[Positions]:
    """The samples of an order at ascending intervals of places."""
    chunks: Iterator[Positions] = iter(())
    at, chunk = 0, np.empty(0, np.int64)
    for begin, end in places:
        if not len(chunk) or begin > at + len(chunk) + _NEAR:
            chunks, at, chunk = order.chunks(begin), begin, chunk[:0]
        while begin < end:
            now = chunk[begin - at : end - at]
            if len(now):
                yield now
                begin += len(now)
            else:
                at += len(chunk)
                chunk = next(chunks)
