"""PackedView: a loader's dataset resolved to rows of packed datasets, anew for every pass.

NOTE [ view: read at every pass ]
A user may change a Subset's indices or dataset, and a transform, at any time; what is in force is what the next iter() finds. So a Resolver
walks the dataset at every pass. Work on long lists of indices is done again only where they differ from the copy that it keeps, and a view
whose parts are all unchanged is the same object. Nothing is written into the user's datasets: a pass reads snapshots of them.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import ConcatDataset, Subset

from fastload.dataset import PackedDataset
from fastload.errors import ArgumentError
from fastload.in_place.base import InPlaceDataset
from fastload.in_place.datasets import LIBRARIES, InPlaceDatasets
from fastload.mixture import Mixture, MixtureOrder
from fastload.mixture.order import Changes
from fastload.originals import OwnCode
from fastload.plan.changes import TransformedDataset
from fastload.positions import as_positions
from fastload.torch_code import part_replaced

_MAKERS = (
    *("__getitem__", "__getitems__", "sample", "assemble", "is_pair", "values", "column"),
    *("column_values", "stored_values", "stored_fields", "before_python", "takes_whole_samples"),
    *(
        "decode",
        "_row",
        "image_sizes",
        "_sizes",
        "images",
        "image_field",
        "fields",
        "form",
        "kinds",
        "sizes",
        "plan",
        "source",
        "_source_for",
        "opened",
    ),
)
"""Of PackedDataset: what a sample comes through, on its way to `ds[i]`. Where one is another's code, the native engine does not do."""
_OWN = OwnCode((PackedDataset, _MAKERS), (TransformedDataset, ("plan", "transform")))

Draws = tuple[int | None, int, Changes | None]
"""What samples follow from in one pass: the seed (None: that of each dataset), the epoch, and a Mixture's weights by epoch."""


NativeDataset = PackedDataset | InPlaceDataset
"""What the native engine reads: records of a packed dataset, or images in place."""


@dataclass(frozen=True, eq=False)
class MixedRows:
    """Rows of a Mixture.

    Attributes:
        order: which sample of which source is where.
        parts: of each source, the number of its first native dataset among the view's, and its rows.
        epoch: of the pass.
    """

    order: MixtureOrder
    parts: tuple[tuple[int, PackedView], ...]
    epoch: int = 0

    def rows(self, positions: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint64]]:
        """Native dataset, by its number, and index there, of each position."""
        numbers, places = self.order.rows(self.epoch, positions)
        source, index = np.empty(len(positions), np.uint32), np.empty(len(positions), np.uint64)
        for number in np.unique(numbers).tolist():
            mine = numbers == number
            first, view = self.parts[number]
            of, at = view.rows(places[mine])
            source[mine], index[mine] = of + np.uint32(first), at
        return source, index


@dataclass(frozen=True, eq=False)
class PackedView:
    """Positions of a loader's dataset, resolved: which native dataset (source) and which index there.

    Attributes:
        datasets: the native datasets, by source number; all packed, or all in place.
        source, index: by position; None where position i is simply sample i of dataset 0, and of a Mixture.
        mixed: the rows of a Mixture, in one epoch; else None.
    """

    datasets: tuple[NativeDataset, ...]
    source: npt.NDArray[np.uint32] | None = None
    index: npt.NDArray[np.int64] | None = None
    mixed: MixedRows | None = None

    def __len__(self) -> int:
        if self.mixed is not None:
            return len(self.mixed.order)
        return len(self.datasets[0]) if self.index is None else len(self.index)

    def at(self, epoch: int) -> PackedView:
        """The view of one epoch's pass: itself, but for a Mixture."""
        return self if self.mixed is None else replace(self, mixed=replace(self.mixed, epoch=epoch))

    def rows(self, positions: Sequence[int]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint64]]:
        """Source and index of each position.

        Raises:
            IndexError: a position is out of range, as a Dataset raises it.
            TypeError: a position is no integer.
        """
        where = as_positions(positions)
        count = len(self)
        low, high = (int(where.min()), int(where.max())) if len(where) else (0, -1)
        if low < -count or high >= count:
            raise IndexError(f"index {low if low < -count else high} is out of range for {count} samples")
        if low < 0:
            where = np.where(where < 0, where + count, where)
        if self.mixed is not None:
            return self.mixed.rows(where)
        if self.index is None or self.source is None:
            return np.zeros(len(where), np.uint32), where.astype(np.uint64)
        return self.source[where], self.index[where].astype(np.uint64)


@dataclass(frozen=True)
class _Leaf:
    """One native dataset, whole."""

    dataset: NativeDataset

    @property
    def key(self) -> tuple[Any, ...]:
        return "whole", id(self.dataset), len(self.dataset)


@dataclass(frozen=True)
class _Picked:
    """Some positions of what is inside."""

    inner: _Part
    positions: npt.NDArray[np.int64]

    @property
    def key(self) -> tuple[Any, ...]:
        return "picked", id(self.positions), self.inner.key


@dataclass(frozen=True)
class _Joined:
    """Several, one after another, each with the length that ConcatDataset noted when it was made."""

    parts: tuple[_Part, ...]
    counts: tuple[int, ...]

    @property
    def key(self) -> tuple[Any, ...]:
        return "joined", self.counts, *(part.key for part in self.parts)


@dataclass(frozen=True)
class _Mixed:
    """Several by the order of a Mixture, which is nothing's part."""

    order: MixtureOrder
    parts: tuple[_Part, ...]

    @property
    def key(self) -> tuple[Any, ...]:
        return "mixed", self.order.identity, *(part.key for part in self.parts)


_Part = _Leaf | _Picked | _Joined
_Node = _Part | _Mixed
_Rows = tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]


class Resolver:
    """Resolves one loader's dataset, again and again. See NOTE [ view: read at every pass ]."""

    def __init__(self) -> None:
        self._picked: dict[int, tuple[Any, npt.NDArray[np.int64]]] = {}
        self._last: tuple[tuple[Any, ...], PackedView] | None = None
        self.files = InPlaceDatasets()
        self.in_place = True  # whether datasets in place are looked for
        self.replaced = ""  # why a dataset of a known class is Python's: what of it was replaced, as a clause

    def view(self, dataset: Any) -> PackedView | None:
        """The rows of a native dataset, or of Subset and ConcatDataset of them (nested), as they are now; None for anything else.

        Subclasses of PackedDataset that change how samples are made are not packed: their own code has to run. Unchanged, it is the
        same object.

        Raises:
            TypeError: a Subset has indices that are no integers.
            IndexError: one of them is out of range.
            ArgumentError: a part of a ConcatDataset is shorter than when that was made.
        """
        before, self._picked, self.replaced = self._picked, {}, ""
        if self.files.asked:
            self.files.begin()
        node = self._mixed(dataset, before) if isinstance(dataset, Mixture) else self._node(dataset, before)
        if node is None:
            self._last = None
            return None
        if self._last is None or self._last[0] != node.key:
            found = _view(node)
            self._last = None if found is None else (node.key, found)
        return None if self._last is None else self._last[1]

    def _mixed(self, mixture: Mixture, before: dict[int, tuple[Any, npt.NDArray[np.int64]]]) -> _Mixed | None:
        order, parts = mixture.order, [self._node(part, before) for part in mixture.sources]
        nodes = tuple(part for part in parts if part is not None)
        return _Mixed(order, nodes) if type(mixture) is Mixture and len(nodes) == len(parts) else None

    def _node(self, dataset: Any, before: dict[int, tuple[Any, npt.NDArray[np.int64]]]) -> _Part | None:
        if isinstance(dataset, Mixture):
            raise ArgumentError(
                "a Mixture within a Subset or a ConcatDataset has no epochs, which a loader tells its own dataset only: "
                "make a Mixture of Subsets, or of ConcatDatasets"
            )
        if isinstance(dataset, PackedDataset):
            self.replaced = self.replaced or _OWN.replaced()
            return _Leaf(dataset) if is_plain(dataset) else None
        if type(dataset) in (Subset, ConcatDataset) and (changed := part_replaced(dataset)):
            self.replaced = changed
            return None
        if type(dataset) is Subset:
            inner = self._node(dataset.dataset, before)
            return None if inner is None else _Picked(inner, self._positions(dataset, before))
        if type(dataset) is not ConcatDataset:
            found = self.files.find(dataset) if self.in_place and any(name in sys.modules for name in LIBRARIES) else None
            if found is None or found.positions is None:
                return None if found is None else _Leaf(found)
            return _Picked(_Leaf(found), found.positions)
        parts = [self._node(part, before) for part in dataset.datasets]
        ends = list(dataset.cumulative_sizes)
        counts = tuple(end - begin for begin, end in zip([0, *ends[:-1]], ends, strict=True))
        nodes = tuple(part for part in parts if part is not None)
        return _Joined(nodes, counts) if len(nodes) == len(parts) == len(counts) else None

    def _positions(self, subset: Any, before: dict[int, tuple[Any, npt.NDArray[np.int64]]]) -> npt.NDArray[np.int64]:
        kept = before.get(id(subset))
        if kept is None or not _same(kept[0], subset.indices):
            positions = as_positions(subset.indices)
            if isinstance(subset.indices, np.ndarray | torch.Tensor):
                positions = positions.copy()
            kept = copy.copy(subset.indices) if isinstance(subset.indices, list) else positions, positions
        self._picked[id(subset)] = kept
        return kept[1]


def is_plain(dataset: PackedDataset) -> bool:
    """Whether neither a subclass nor the object itself has other code for anything that samples are made by, and the class has its own."""
    kind, own = type(dataset), vars(dataset)
    return not _OWN.replaced() and not any(name in own or getattr(kind, name) is not getattr(PackedDataset, name) for name in _MAKERS)


def _same(kept: Any, indices: Any) -> bool:
    """Whether indices are still what was kept of them: a list's copy, else its positions."""
    if isinstance(indices, list):
        return isinstance(kept, list) and kept == indices
    if isinstance(kept, list):
        return False
    if isinstance(indices, np.ndarray | torch.Tensor | range):
        return bool(np.array_equal(kept, as_positions(indices)))
    return False


def _view(node: _Node) -> PackedView | None:
    datasets: list[NativeDataset] = []
    if isinstance(node, _Leaf):
        return PackedView((node.dataset,))
    if isinstance(node, _Mixed):
        return _mixed_view(node)
    source, index = _rows(node, datasets)
    if not datasets or len(set(map(_form, datasets))) != 1:
        return None
    return PackedView(tuple(datasets), source, index)


def _mixed_view(node: _Mixed) -> PackedView | None:
    datasets: list[NativeDataset] = []
    parts = []
    for part in node.parts:
        found = _view(part)
        if found is None:
            return None
        parts.append((len(datasets), found))
        datasets += found.datasets
    if len(set(map(_form, datasets))) != 1:
        return None
    return PackedView(tuple(datasets), mixed=MixedRows(node.order, tuple(parts)))


def _form(dataset: NativeDataset) -> tuple[Any, ...]:
    """What all datasets of a view have in common: the form of a sample."""
    if isinstance(dataset, InPlaceDataset):
        return type(dataset), dataset.fields, tuple(dataset.kinds.values())
    return PackedDataset, dataset.form


def _rows(node: _Part, datasets: list[NativeDataset]) -> _Rows:
    if isinstance(node, _Leaf):
        datasets.append(node.dataset)
        count = len(node.dataset)
        return np.full(count, len(datasets) - 1, np.uint32), np.arange(count, dtype=np.int64)
    if isinstance(node, _Picked):
        source, index = _rows(node.inner, datasets)
        try:
            return source[node.positions], index[node.positions]
        except IndexError:
            raise IndexError(f"a Subset has an index that is out of range for its dataset's {len(index)} samples") from None
    parts = [_rows(part, datasets) for part in node.parts]
    for number, (part, count) in enumerate(zip(parts, node.counts, strict=True)):
        if len(part[1]) < count:
            raise ArgumentError(
                f"part {number} of the ConcatDataset has {len(part[1])} samples, and had {count} when it was made: make it anew"
            )
    pairs = [(part[0][:count], part[1][:count]) for part, count in zip(parts, node.counts, strict=True)]
    return np.concatenate([p[0] for p in pairs]), np.concatenate([p[1] for p in pairs])


def rebuilt(dataset: Any, leaf: Callable[[PackedDataset], PackedDataset]) -> Any:
    """A copy of a tree that a Resolver has resolved, with `leaf` of each packed dataset in its place; Subsets share their indices."""
    if isinstance(dataset, PackedDataset):
        return leaf(dataset)
    if isinstance(dataset, Mixture):
        return dataset.with_sources([rebuilt(source, leaf) for source in dataset.sources])
    out = copy.copy(dataset)
    if isinstance(dataset, Subset):
        out.dataset = rebuilt(dataset.dataset, leaf)
    else:
        out.datasets = [rebuilt(part, leaf) for part in dataset.datasets]
    return out


def set_draws(dataset: Any, draws: Draws) -> None:
    """Sets seed and epoch of a tree that rebuilt() made: a worker process does that to its own copy, at every epoch."""
    set_mixture(dataset, draws)
    for packed in _leaves(dataset):
        packed.seed, packed.epoch = packed.seed if draws[0] is None else draws[0], draws[1]


def set_mixture(dataset: Any, draws: Draws) -> None:
    """Sets the epoch, and the weights of all epochs, of a copy of a Mixture; any other dataset stays as it is."""
    if isinstance(dataset, Mixture):
        dataset.set_state(draws[1], draws[2])


def _leaves(dataset: Any) -> Iterator[PackedDataset]:
    if isinstance(dataset, PackedDataset):
        yield dataset
    elif isinstance(dataset, Mixture):
        for source in dataset.sources:
            yield from _leaves(source)
    else:
        for part in [dataset.dataset] if isinstance(dataset, Subset) else dataset.datasets:
            yield from _leaves(part)
