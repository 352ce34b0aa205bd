"""Span: units of a shard that lie side by side and are fetched by one request."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fastload.remote.dataset_cache import CachedShard
from fastload.remote.passes import Pass
from fastload.remote.requests import Request, Unit

RANGE_BYTES = 2 << 20
"""Bytes of a large request: 70 us of CPU for 100 KB, where single samples of that size take 120 to 160."""
GAP = 16 << 10
"""Bytes between two units, of tree pages, that are fetched for nothing in order to have them by one request."""


@dataclass
class Span:
    """Units first .. last of a shard, which are fetched by one request.

    Attributes:
        start, stop: their bytes in the file.
        kept: there is room for them in the cache.
        heals: who wants them from memory, whatever the cache says.
        of: the pass that they are fetched for.
        reserved: bytes of room for what the pass is to hold of them.
    """

    shard: int
    first: int
    last: int
    start: int
    stop: int
    kept: bool = False
    heals: Request | None = None
    of: Pass | None = None
    reserved: int = 0

    def hold(self, shard: CachedShard, units: Iterable[int], data: memoryview) -> None:
        """Lets the pass hold what it has not asked for yet of some units of the span, whose bytes came."""
        self.give_back()
        if self.of is None:
            return
        for unit in units:
            start, stop = shard.range_of(unit)
            self.of.hold((self.shard, unit), start, data[start - self.start : stop - self.start])

    def give_back(self) -> None:
        """Gives the reserved room back; idempotent."""
        if self.of is not None:
            self.of.reserve(-self.reserved)
        self.reserved = 0


def alone(shard: CachedShard, unit: Unit) -> Span:
    """The span of one unit of a shard."""
    start, stop = shard.range_of(unit[1])
    return Span(unit[0], unit[1], unit[1], start, stop)


def around(shard: CachedShard, unit: Unit, takes: Callable[[int], bool], most: int = 0) -> Span:
    """The units around one that lie side by side and are taken.

    Args:
        shard: of the unit.
        unit: which is in the span, whether it is taken or not.
        takes: whether a unit of the shard is; asked once of each.
        most: bytes of the span, unless the unit alone has more; 0: the span is within the unit's block of RANGE_BYTES.
    """
    groups = shard.groups
    count = len(groups)
    if unit[1] >= count:
        return alone(shard, unit)  # a column: they lie far apart
    starts, stops = groups.starts, groups.stops
    first = last = unit[1]
    block = int(starts[first]) // RANGE_BYTES

    def near(other: int) -> bool:
        if most:
            return max(int(stops[other]), int(stops[last])) - min(int(starts[other]), int(starts[first])) <= most
        return int(starts[other]) // RANGE_BYTES == block

    def fits(other: int) -> bool:
        return 0 <= other < count and near(other) and takes(other)

    while fits(first - 1) and int(starts[first]) - int(stops[first - 1]) <= GAP:
        first -= 1
    while fits(last + 1) and int(starts[last + 1]) - int(stops[last]) <= GAP:
        last += 1
    stop = stops[last] if first == last else stops[first : last + 1].max()
    return Span(unit[0], first, last, int(starts[first]), int(stop))


def units_of(span: Span) -> list[Unit]:
    """The units of a span."""
    return [(span.shard, number) for number in range(span.first, span.last + 1)]


def runs_of(numbers: list[int]) -> list[tuple[int, int]]:
    """Runs (first, last) of consecutive numbers."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1] = runs[-1][0], number
        else:
            runs.append((number, number))
    return runs
