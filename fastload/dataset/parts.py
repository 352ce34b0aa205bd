"""Parts: the tree of a loader's Subsets and ConcatDatasets, in which a position leads to a native source and
an index there.

NOTE [ subsets: what their indices say ]
A Subset's sample i is its dataset's sample `indices[i]`. Lists, tuples, ranges, arrays and tensors of
integers are read at once. Any other object is asked for `indices[i]` as each batch is begun: pandas' Series
and dicts look items up by label, and a sequence of the user's may compute them. An exception of theirs is
raised at that batch's turn, as is the IndexError of an index that the dataset does not have.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.common.positions import positions_within
from fastload.dataset.native_source import NativeSource
from fastload.dataset.repeats import are_distinct, has_repeats
from fastload.errors import ArgumentError


@dataclass(frozen=True)
class Leaf:
    """One native dataset, whole."""

    dataset: NativeSource
    count: int

    leaves = 1
    is_asked = False
    is_distinct = True
    line = 0, 0, 1

    def rows(self, wanted: Wanted, first: int) -> Rows:
        if self.dataset.takes_lists_indices and not isinstance(wanted, np.ndarray):
            # A dataset with a list takes True for 1, as the list does.
            wanted = [operator.index(each) for each in wanted]
        where = positions_within(wanted, self.count)
        return np.full(len(where), first, np.uint32), where

    def has(self, wanted: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        return _within(wanted, self.count)


@dataclass(frozen=True)
class Picked:
    """Some positions of what is inside."""

    inner: Part
    positions: npt.NDArray[np.int64] | range

    @property
    def leaves(self) -> int:
        return self.inner.leaves

    @property
    def is_asked(self) -> bool:
        return self.inner.is_asked

    @property
    def count(self) -> int:
        return len(self.positions)

    @cached_property
    def is_distinct(self) -> bool:
        picked = self.positions
        return self.inner.is_distinct and (
            isinstance(picked, range) or not has_repeats(picked, self.inner.count)
        )

    @cached_property
    def line(self) -> tuple[int, int, int] | None:
        inner, picked = self.inner.line, self.positions
        if (
            inner is None
            or not isinstance(picked, range)
            or (len(picked) and not 0 <= min(picked[0], picked[-1]))
        ):
            return None
        if len(picked) and max(picked[0], picked[-1]) >= self.inner.count:
            return None
        leaf, start, step = inner
        return leaf, start + step * picked.start, step * picked.step

    def rows(self, wanted: Wanted, first: int) -> Rows:
        return self.inner.rows(self._picked(positions_within(wanted, self.count)), first)

    def has(self, wanted: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        found = _within(wanted, self.count)
        found[found] = self.inner.has(self._picked(_from_start(wanted[found], self.count)))
        return found

    def _picked(self, where: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        picked = self.positions
        return picked.start + where * picked.step if isinstance(picked, range) else picked[where]


@dataclass(frozen=True)
class Asked:
    """Some samples of what is inside, by indices that are asked for. See NOTE [ subsets: what their
    indices say ]."""

    inner: Part
    indices: Any

    is_asked = True
    is_distinct = False
    line = None

    @property
    def leaves(self) -> int:
        return self.inner.leaves

    @property
    def count(self) -> int:
        return len(self.indices)

    def rows(self, wanted: Wanted, first: int) -> Rows:
        return self.inner.rows(
            [self.indices[each] for each in (wanted.tolist() if isinstance(wanted, np.ndarray) else wanted)],
            first,
        )

    def has(self, wanted: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        raise NotImplementedError  # nobody asks ahead of the batch that asks for its rows


@dataclass(frozen=True)
class Joined:
    """Several, one after another, each with the length that ConcatDataset noted when it was made."""

    parts: tuple[Part, ...]
    counts: tuple[int, ...]

    line = None

    @property
    def leaves(self) -> int:
        return sum(part.leaves for part in self.parts)

    @property
    def is_asked(self) -> bool:
        return any(part.is_asked for part in self.parts)

    @cached_property
    def is_distinct(self) -> bool:
        return all(part.is_distinct for part in self.parts) and are_distinct(sources_of(self))

    @property
    def count(self) -> int:
        return sum(self.counts)

    @cached_property
    def _begins(self) -> npt.NDArray[np.int64]:
        """First position of each part."""
        return np.cumsum([0, *self.counts[:-1]])

    @cached_property
    def _firsts(self) -> npt.NDArray[np.int64]:
        """Number of the first leaf of each part."""
        return np.cumsum([0, *(part.leaves for part in self.parts[:-1])])

    @cached_property
    def _lines(self) -> tuple[npt.NDArray[np.int64], ...] | None:
        """Leaf, start and step of each part's line; None where a part has none."""
        lines = [part.line for part in self.parts]
        found = np.array([line for line in lines if line is not None], np.int64).reshape(-1, 3)
        return (found[:, 0] + self._firsts, found[:, 1], found[:, 2]) if len(found) == len(lines) else None

    def rows(self, wanted: Wanted, first: int) -> Rows:
        where = positions_within(wanted, self.count)
        which = self._which(where)
        places = where - self._begins[which]
        if self._lines is not None:
            leaf, start, step = (each[which] for each in self._lines)
            return (leaf + first).astype(np.uint32), start + step * places
        source, index = np.empty(len(where), np.uint32), np.empty(len(where), np.int64)
        for number in np.unique(which).tolist():
            mine = which == number
            source[mine], index[mine] = self.parts[number].rows(
                places[mine], first + int(self._firsts[number])
            )
        return source, index

    def has(self, wanted: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        found = _within(wanted, self.count)
        where = _from_start(wanted, self.count)
        which = self._which(where)
        for number in np.unique(which[found]).tolist():
            mine = found & (which == number)
            found[mine] = self.parts[number].has(where[mine] - self._begins[number])
        return found

    def _which(self, where: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
        """The number of the part that has each position."""
        return np.searchsorted(self._begins + self.counts, where, "right")


Part = Leaf | Picked | Asked | Joined
"""A tree of datasets: `is_distinct` is True if no two positions have the same sample."""
Wanted = Sequence[Any] | npt.NDArray[np.int64]
Rows = tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]


def _within(wanted: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.bool_]:
    """True for the positions that `count` samples have; negative ones count from the end."""
    out: npt.NDArray[np.bool_] = (wanted >= -count) & (wanted < count)
    return out


def _from_start(wanted: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    """Positions with the negative ones, which count from the end, as positions from the start."""
    return np.where(wanted < 0, wanted + count, wanted)


def sources_of(node: Part) -> list[NativeSource]:
    """The native datasets of a tree, by source number."""
    if isinstance(node, Leaf):
        return [node.dataset]
    return [
        each
        for part in (node.parts if isinstance(node, Joined) else [node.inner])
        for each in sources_of(part)
    ]


def check_lengths(node: Part) -> None:
    """Raises ArgumentError for a ConcatDataset of which a part has become shorter."""
    if isinstance(node, Joined):
        for number, (part, count) in enumerate(zip(node.parts, node.counts, strict=True)):
            check_lengths(part)
            if part.count < count:
                raise ArgumentError(
                    f"part {number} of the ConcatDataset has {part.count} samples, and had {count} "
                    "when it was made: make it anew"
                )
    elif not isinstance(node, Leaf):
        check_lengths(node.inner)
