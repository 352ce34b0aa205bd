"""NativeView: positions of a loader's dataset, resolved to native sources and indices in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fastload.common.positions import positions_within
from fastload.dataset.mixture import MixtureOrder
from fastload.dataset.native_source import NativeSource
from fastload.dataset.parts import Part
from fastload.dataset.repeats import Repeats, repeats_of

Occurrences = npt.NDArray[np.uint32]


@dataclass(frozen=True, eq=False)
class MixedRows:
    """Rows of a Mixture.

    Attributes:
        order: source and sample at each position.
        parts: for each source, the number of its first native dataset among the view's, and its rows.
        epoch: epoch of the pass.
    """

    order: MixtureOrder
    parts: tuple[tuple[int, NativeView], ...]
    epoch: int = 0

    def rows(self, positions: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint64]]:
        """Native dataset, by its number, and index there, of each position."""
        numbers, places = self.order.rows(self.epoch, positions)
        source, index = np.empty(len(positions), np.uint32), np.empty(len(positions), np.uint64)
        for number in np.unique(numbers).tolist():
            mine = numbers == number
            first, view = self.parts[number]
            datasets, at = view.rows(places[mine])
            source[mine], index[mine] = datasets + np.uint32(first), at
        return source, index

    def occurrences(self, positions: npt.NDArray[np.int64], again: Occurrences | None) -> Occurrences | None:
        """Occurrences of the samples at some positions: the passes over their sources are counted, and
        repeats within a source."""
        numbers, places, turns = self.order.samples(self.epoch, positions)
        found = turns if again is None else again * self.order.passes(self.epoch)[numbers] + turns
        for number in np.unique(numbers).tolist():
            mine, view = numbers == number, self.parts[number][1]
            if view.repeats is not None:
                found[mine] = view.repeats.occurrences(places[mine], found[mine])
        return found if found.any() else None


@dataclass(frozen=True, eq=False)
class ListedRows:
    """Samples of a batch that have any number of images each, which are its rows.

    Attributes:
        sources, indices: native dataset, by its number, and index there, of each sample.
        offsets: int64 (samples + 1): sample i has the rows from offsets[i] to offsets[i + 1].
        drawn_as: index of the draws of each row.
    """

    sources: npt.NDArray[np.uint32]
    indices: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    drawn_as: npt.NDArray[np.uint64]

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """The number of images of each sample."""
        return np.diff(self.offsets)

    def sample_of(self, row: int) -> tuple[int, int]:
        """The sample that a row is of, by its place in the batch, and the row's number among its images."""
        sample = int(np.searchsorted(self.offsets, row, side="right")) - 1
        return sample, row - int(self.offsets[sample])


@dataclass(frozen=True, eq=False)
class NativeView:
    """Positions of a loader's dataset, resolved to a native dataset (source) and an index in it.

    Attributes:
        datasets: the native datasets, by source number; alike (NativeSource.alike).
        tree: the tree of datasets in which a position is looked up; None if position i is simply sample i of
            dataset 0, and for a Mixture.
        mixed: the rows of a Mixture, in one epoch; else None.
    """

    datasets: tuple[NativeSource, ...]
    tree: Part | None = None
    mixed: MixedRows | None = None

    def __len__(self) -> int:
        if self.tree is not None:
            return self.tree.count
        return len(self.datasets[0]) if self.mixed is None else len(self.mixed.order)

    def at(self, epoch: int) -> NativeView:
        """The view of one epoch's pass: itself, but for a Mixture."""
        return self if self.mixed is None else replace(self, mixed=replace(self.mixed, epoch=epoch))

    @property
    def is_asked(self) -> bool:
        """True if finding rows runs code of the user's. See NOTE [ subsets: what their indices say ]."""
        if self.tree is not None:
            return self.tree.is_asked
        return self.mixed is not None and any(part.is_asked for _, part in self.mixed.parts)

    def rows(self, positions: Sequence[int]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint64]]:
        """Source and index of each position.

        Raises:
            IndexError: a position, or the index of a Subset there, is out of range, as a Dataset raises it.
            TypeError: a position is no integer.
            Whatever the indices of a Subset raise that are asked for.
        """
        if self.tree is not None and self.tree.is_asked:
            source, index = self.tree.rows(positions, 0)
            return source, index.astype(np.uint64)
        where = positions_within(positions, len(self))
        if self.mixed is not None:
            return self.mixed.rows(where)
        if self.tree is None:
            return np.zeros(len(where), np.uint32), where.astype(np.uint64)
        try:
            source, index = self.tree.rows(where, 0)
        except IndexError:
            missing = where[~self.tree.has(where)]
            raise IndexError(
                f"sample {missing[0]} is by the indices of a Subset one that its dataset does not have"
            ) from None
        return source, index.astype(np.uint64)

    @property
    def has_lists(self) -> bool:
        """True if samples have any number of images."""
        return self.datasets[0].lists is not None

    def image_rows(
        self, positions: Sequence[int]
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint64], ListedRows | None]:
        """Source and index of each native row of the samples at some positions, as `rows` has them; where
        samples have any number of images, each image is a row, and the third value has the samples.

        Raises as `rows`, and DatasetError where images are not there.
        """
        sources, samples = self.rows(positions)
        if not self.has_lists:
            return sources, samples, None
        indices, counts = samples.astype(np.int64), np.zeros(len(samples), np.int64)
        found: list[tuple[npt.NDArray[np.bool_], npt.NDArray[np.uint64], npt.NDArray[np.uint64]]] = []
        for number in np.unique(sources).tolist():
            mine = sources == number
            images, offsets, drawn = self.datasets[number].listed(indices[mine])
            counts[mine] = np.diff(offsets)
            found.append((mine, images, drawn))
        rows, drawn_as = np.empty((2, int(counts.sum())), np.uint64)
        for mine, images, drawn in found:
            places = np.repeat(mine, counts)
            rows[places], drawn_as[places] = images, drawn
        offsets = np.concatenate(([0], np.cumsum(counts)))
        return np.repeat(sources, counts), rows, ListedRows(sources, indices, offsets, drawn_as)

    @cached_property
    def repeats(self) -> Repeats | None:
        """The samples at several positions; None: there are none, or nobody can tell before they are asked
        for."""
        tree = self.tree
        if tree is None or tree.is_asked or tree.is_distinct:
            return None
        return repeats_of(len(self), self.datasets, self.existing, lambda where: tree.rows(where, 0))

    def occurrences(self, positions: Sequence[int], again: Occurrences | None) -> Occurrences | None:
        """Occurrences of the samples at some positions, which exist; None: all are 0. See NOTE [ occurrences:
        an index that comes again ].

        Args:
            positions: the positions.
            again: number of times that each came before in the pass; None: none did.
        """
        if self.mixed is None and self.repeats is None:
            return again if again is not None and again.any() else None
        where = positions_within(positions, len(self))
        if self.mixed is not None:
            return self.mixed.occurrences(where, again)
        assert self.repeats is not None
        return self.repeats.occurrences(where, again)

    def existing(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The positions whose samples exist."""
        return positions if self.tree is None else positions[self.tree.has(positions)]
