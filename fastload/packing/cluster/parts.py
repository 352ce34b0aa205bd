"""Part: the samples of one range of the order, as the driver sends them to a task; and their source in the
task's process.

Only the driver knows the whole list of samples. Of a source that lists them (`Listed`) a task gets the rows
of its samples; of any other one, which the task opens itself, their positions. A digest of their names tells
whether the node has the same samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.packing.job import PackJob
from fastload.sources import Source
from fastload.sources.protocol import ABSENT, Item, Listed, Traced, Value, attribute_of


@dataclass(frozen=True)
class Part:
    """Samples of one range.

    Attributes:
        number: number of the range, from 0.
        digest: digest of their names.
        positions: their positions in the source; (first, end) where they are neighbours.
        rows: their rows, of a `Listed` source; None: the task opens the source.
    """

    number: int
    digest: str
    positions: npt.NDArray[np.int64] | tuple[int, int]
    rows: list[bytes] | None

    @property
    def most(self) -> int:
        """The last of the positions in the source."""
        return self.positions[1] - 1 if isinstance(self.positions, tuple) else int(self.positions.max())


def part_of(job: PackJob, number: int, samples: int) -> Part:
    """The part of a job's range of a number, of `samples` samples; the last range has fewer."""
    positions = job.order.read(number * samples, (number + 1) * samples)
    first, end = int(positions[0]), int(positions[-1]) + 1
    straight = end - first == len(positions) and bool((np.diff(positions) == 1).all())
    rows = job.source.rows(positions.tolist()) if isinstance(job.source, Listed) else None
    return Part(number, job.digest_of(positions), (first, end) if straight else positions, rows)


def source_of(part: Part, whole: Source) -> Source:
    """The source of a part's samples, from the source that the plan has, or that the process has opened."""
    positions = np.arange(*part.positions) if isinstance(part.positions, tuple) else part.positions
    if part.rows is not None:
        assert isinstance(whole, Listed)
        whole = whole.with_rows(positions.tolist(), part.rows)
    return (_TracedSlice if isinstance(whole, Traced) else Slice)(whole, positions)


class Slice:
    """Some samples of a source, in another order."""

    def __init__(self, source: Source, positions: npt.NDArray[np.int64]) -> None:
        self._source = source
        self._positions = positions
        self.title, self.fields, self.classes, self.concurrent = (
            source.title,
            source.fields,
            source.classes,
            source.concurrent,
        )
        for name in ABSENT:
            if name != "notices":  # they may be made when they are asked for, and the driver has them
                setattr(self, name, attribute_of(source, name))

    def __len__(self) -> int:
        return len(self._positions)

    def _at(self, position: int) -> int:
        return int(self._positions[position])

    def name(self, position: int) -> str:
        return self._source.name(self._at(position))

    def read(self, position: int) -> Item:
        return self._source.read(self._at(position))


class _TracedSlice(Slice):
    """Some samples of a source that knows what its samples are made from."""

    def _method(self, name: str) -> Callable[[int], Any]:
        method: Callable[[int], Any] = getattr(self._source, name)
        return method

    def key(self, position: int) -> str:
        key: str = self._method("key")(self._at(position))
        return key

    def stamp(self, position: int) -> tuple[int, int]:
        stamp: tuple[int, int] = self._method("stamp")(self._at(position))
        return stamp

    def fields_of(self, position: int) -> dict[str, Value] | None:
        fields: dict[str, Value] | None = self._method("fields_of")(self._at(position))
        return fields
