"""Repeats: the samples that a view of datasets holds at several positions, and how often it had each before.
See NOTE [ occurrences: an index that comes again ].
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.dataset.packed import PackedDataset

_Positions = npt.NDArray[np.int64]
_PART = 1 << 16
"""Positions that are looked up at a time."""


@dataclass(frozen=True)
class Repeats:
    """For each position of a view, the number of lower positions with the same sample; and the most
    positions that one sample has."""

    before: npt.NDArray[np.uint32]
    most: int

    def occurrences(
        self, positions: _Positions, again: npt.NDArray[np.uint32] | None
    ) -> npt.NDArray[np.uint32]:
        """Occurrences of the samples at some positions, each of which came `again` times before in the
        pass."""
        before = self.before[positions]
        return before if again is None else again * np.uint32(self.most) + before


def identity_of(dataset: object) -> Hashable:
    """Two datasets with the same identity have the same samples: one object, or one version of a packed
    dataset."""
    return (str(dataset.path), dataset.version) if isinstance(dataset, PackedDataset) else id(dataset)


def are_distinct(datasets: Sequence[Any]) -> bool:
    """Returns True if no two datasets have the same samples."""
    return len(set(map(identity_of, datasets))) == len(datasets)


def has_repeats(positions: _Positions, count: int) -> bool:
    """Returns True if some position among `count` samples comes twice; positions out of range are left
    out."""
    where = np.where(positions < 0, positions + count, positions)
    where = where[(where >= 0) & (where < count)]
    return bool(len(where)) and bool(core.count_occurrences(np.zeros(count, np.uint32), where).any())


def repeats_of(
    count: int,
    datasets: Sequence[Any],
    existing: Callable[[_Positions], _Positions],
    rows: Callable[[_Positions], tuple[Any, Any]],
) -> Repeats | None:
    """Counts the samples of a view of `count` positions; None: each is at one position.

    Args:
        count: number of positions.
        datasets: the view's datasets, by source number.
        existing: leaves out positions that have no sample.
        rows: source and index of each position.
    """
    numbers = {identity_of(each): number for number, each in reversed(list(enumerate(datasets)))}
    first = np.array([numbers[identity_of(each)] for each in datasets])
    counts: dict[int, npt.NDArray[np.uint32]] = {}
    before = np.zeros(count, np.uint32)
    for begin in range(0, count, _PART):
        where = existing(np.arange(begin, min(begin + _PART, count)))
        sources, indices = rows(where)
        sources, indices = first[sources], indices.astype(np.int64)
        for number in np.unique(sources).tolist():
            mine = sources == number
            if number not in counts:
                counts[number] = np.zeros(len(datasets[number]), np.uint32)
            before[where[mine]] = core.count_occurrences(counts[number], indices[mine])
    most = int(before.max(initial=0)) + 1
    return Repeats(before, most) if most > 1 else None
