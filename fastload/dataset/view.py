"""NativeView: a loader's dataset resolved, anew for every pass, to rows of packed data or of images in place; the snapshots that one epoch
reads, and the decision whether native threads read them.

NOTE [ view: read at every pass ]
A user may change a Subset's indices or dataset, and a transform, at any time; what is in force is what the next iter() finds. So a Resolver
walks the dataset at every pass. Work on long lists of indices is done again only where they differ from the copy that it keeps, and a view
whose parts are all unchanged is the same object. Nothing is written into the user's datasets: a pass reads snapshots of them. A view holds
8 bytes for each index of a Subset, and the copy of a list another 8; a range, a ConcatDataset and a whole dataset hold nothing of a sample:
rows are found as a batch asks for them.

NOTE [ subsets: what their indices say ]
A Subset's sample i is its dataset's sample `indices[i]`. Lists, tuples, ranges, arrays and tensors of integers are read at once. Any other
object is asked for `indices[i]` as each batch is begun: pandas' Series and dicts look items up by label, and a sequence of the user's may
compute them. An exception of theirs is raised at that batch's turn, as is the IndexError of an index that the dataset does not have.
"""

from __future__ import annotations

import copy
import operator
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import ConcatDataset, Subset

from fastload.common.originals import OwnCode
from fastload.common.positions import listed_positions, positions_within
from fastload.dataset.in_place.base import InPlaceDataset
from fastload.dataset.in_place.datasets import LIBRARIES, InPlaceDatasets
from fastload.dataset.in_place.listed import evenly_spaced
from fastload.dataset.mixture import Changes, Mixture, MixtureOrder
from fastload.dataset.packed import PackedDataset
from fastload.dataset.repeats import Repeats, are_distinct, has_repeats, repeats_of
from fastload.errors import ArgumentError
from fastload.store import DatasetReader
from fastload.store.kinds import KINDS
from fastload.transforms.changes import TransformedDataset

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
"""Attributes of PackedDataset that make `ds[i]`. If another's code replaces one, native threads do not read the dataset."""
_OWN = OwnCode((PackedDataset, _MAKERS), (TransformedDataset, ("plan", "transform")))

Occurrences = npt.NDArray[np.uint32]
Draws = tuple[int | None, int, Changes | None]
"""Basis of the samples of one pass: the seed (None: that of each dataset), the epoch, and a Mixture's weights by epoch."""


NativeDataset = PackedDataset | InPlaceDataset
"""A dataset that native threads read: records of a packed dataset, or images in place."""


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
        """Occurrences of the samples at some positions: the passes over their sources are counted, and repeats within a source."""
        numbers, places, turns = self.order.samples(self.epoch, positions)
        found = turns if again is None else again * self.order.passes(self.epoch)[numbers] + turns
        for number in np.unique(numbers).tolist():
            mine, view = numbers == number, self.parts[number][1]
            if view.repeats is not None:
                found[mine] = view.repeats.occurrences(places[mine], found[mine])
        return found if found.any() else None


@dataclass(frozen=True, eq=False)
class NativeView:
    """Positions of a loader's dataset, resolved to a native dataset (source) and an index in it.

    Attributes:
        datasets: the native datasets, by source number; all packed, or all in place.
        tree: the tree of datasets in which a position is looked up; None if position i is simply sample i of dataset 0, and for a Mixture.
        mixed: the rows of a Mixture, in one epoch; else None.
    """

    datasets: tuple[NativeDataset, ...]
    tree: _Part | None = None
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
            raise IndexError(f"sample {missing[0]} is by the indices of a Subset one that its dataset does not have") from None
        return source, index.astype(np.uint64)

    @cached_property
    def repeats(self) -> Repeats | None:
        """The samples at several positions; None: there are none, or nobody can tell before they are asked for."""
        tree = self.tree
        if tree is None or tree.is_asked or tree.is_distinct:
            return None
        return repeats_of(len(self), self.datasets, self.existing, lambda where: tree.rows(where, 0))

    def occurrences(self, positions: Sequence[int], again: Occurrences | None) -> Occurrences | None:
        """Occurrences of the samples at some positions, which exist; None: all are 0. See NOTE [ occurrences: an index that comes again ].

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


@dataclass(frozen=True)
class _Leaf:
    """One native dataset, whole."""

    dataset: NativeDataset
    count: int

    leaves = 1
    is_asked = False
    is_distinct = True
    line = 0, 0, 1

    @property
    def key(self) -> tuple[Any, ...]:
        return "whole", id(self.dataset), self.count

    def rows(self, wanted: _Wanted, first: int) -> _Rows:
        if isinstance(self.dataset, InPlaceDataset) and not isinstance(wanted, np.ndarray):
            wanted = [operator.index(each) for each in wanted]  # a dataset with a list takes True for 1, as the list does
        where = positions_within(wanted, self.count)
        return np.full(len(where), first, np.uint32), where

    def has(self, wanted: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        return _within(wanted, self.count)


@dataclass(frozen=True)
class _Picked:
    """Some positions of what is inside."""

    inner: _Part
    positions: npt.NDArray[np.int64] | range

    @property
    def key(self) -> tuple[Any, ...]:
        return "picked", id(self.positions), self.inner.key

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
        return self.inner.is_distinct and (isinstance(picked, range) or not has_repeats(picked, self.inner.count))

    @cached_property
    def line(self) -> tuple[int, int, int] | None:
        inner, picked = self.inner.line, self.positions
        if inner is None or not isinstance(picked, range) or (len(picked) and not 0 <= min(picked[0], picked[-1])):
            return None
        if len(picked) and max(picked[0], picked[-1]) >= self.inner.count:
            return None
        leaf, start, step = inner
        return leaf, start + step * picked.start, step * picked.step

    def rows(self, wanted: _Wanted, first: int) -> _Rows:
        return self.inner.rows(self._picked(positions_within(wanted, self.count)), first)

    def has(self, wanted: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        found = _within(wanted, self.count)
        found[found] = self.inner.has(self._picked(_from_start(wanted[found], self.count)))
        return found

    def _picked(self, where: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        picked = self.positions
        return picked.start + where * picked.step if isinstance(picked, range) else picked[where]


@dataclass(frozen=True)
class _Asked:
    """Some samples of what is inside, by indices that are asked for. See NOTE [ subsets: what their indices say ]."""

    inner: _Part
    indices: Any

    is_asked = True
    is_distinct = False
    line = None

    @property
    def key(self) -> tuple[Any, ...]:
        return "asked", id(self.indices), self.inner.key

    @property
    def leaves(self) -> int:
        return self.inner.leaves

    @property
    def count(self) -> int:
        return len(self.indices)

    def rows(self, wanted: _Wanted, first: int) -> _Rows:
        return self.inner.rows([self.indices[each] for each in (wanted.tolist() if isinstance(wanted, np.ndarray) else wanted)], first)

    def has(self, wanted: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        raise NotImplementedError  # nobody asks ahead of the batch that asks for its rows


@dataclass(frozen=True)
class _Joined:
    """Several, one after another, each with the length that ConcatDataset noted when it was made."""

    parts: tuple[_Part, ...]
    counts: tuple[int, ...]

    line = None

    @property
    def key(self) -> tuple[Any, ...]:
        return "joined", self.counts, *(part.key for part in self.parts)

    @property
    def leaves(self) -> int:
        return sum(part.leaves for part in self.parts)

    @property
    def is_asked(self) -> bool:
        return any(part.is_asked for part in self.parts)

    @cached_property
    def is_distinct(self) -> bool:
        return all(part.is_distinct for part in self.parts) and are_distinct(_datasets(self))

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

    def rows(self, wanted: _Wanted, first: int) -> _Rows:
        where = positions_within(wanted, self.count)
        which = self._which(where)
        places = where - self._begins[which]
        if self._lines is not None:
            leaf, start, step = (each[which] for each in self._lines)
            return (leaf + first).astype(np.uint32), start + step * places
        source, index = np.empty(len(where), np.uint32), np.empty(len(where), np.int64)
        for number in np.unique(which).tolist():
            mine = which == number
            source[mine], index[mine] = self.parts[number].rows(places[mine], first + int(self._firsts[number]))
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


@dataclass(frozen=True)
class _Mixed:
    """Several by the order of a Mixture, which is nothing's part."""

    order: MixtureOrder
    parts: tuple[_Part, ...]

    @property
    def key(self) -> tuple[Any, ...]:
        return "mixed", self.order.identity, *(part.key for part in self.parts)


_Part = _Leaf | _Picked | _Asked | _Joined
"""A tree of datasets: `is_distinct` is True if no two positions have the same sample."""
_Node = _Part | _Mixed
_Wanted = Sequence[Any] | npt.NDArray[np.int64]
_Rows = tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]


def _within(wanted: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.bool_]:
    """True for the positions that `count` samples have; negative ones count from the end."""
    out: npt.NDArray[np.bool_] = (wanted >= -count) & (wanted < count)
    return out


def _from_start(wanted: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    """Positions with the negative ones, which count from the end, as positions from the start."""
    return np.where(wanted < 0, wanted + count, wanted)


def _datasets(node: _Part) -> list[NativeDataset]:
    """The native datasets of a tree, by source number."""
    if isinstance(node, _Leaf):
        return [node.dataset]
    return [each for part in (node.parts if isinstance(node, _Joined) else [node.inner]) for each in _datasets(part)]


_Kept = dict[int, tuple[Any, npt.NDArray[np.int64] | range]]


class Resolver:
    """Resolves one loader's dataset, again and again. See NOTE [ view: read at every pass ]."""

    def __init__(self) -> None:
        self._picked: _Kept = {}
        self._last: tuple[tuple[Any, ...], NativeView] | None = None
        self.files = InPlaceDatasets()
        self.in_place = True  # True if datasets in place are looked for
        self.replaced = ""  # why a dataset of a known class is Python's: what of it was replaced, as a clause

    def view(self, dataset: Any) -> NativeView | None:
        """The rows of a native dataset, or of Subset and ConcatDataset of them (nested), as they are now; None for anything else.

        Subclasses of PackedDataset that change how samples are made are not packed: their own code has to run. Unchanged, it is the
        same object.

        Raises:
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

    def _mixed(self, mixture: Mixture, before: _Kept) -> _Mixed | None:
        order, parts = mixture.order, [self._node(part, before) for part in mixture.sources]
        nodes = tuple(part for part in parts if part is not None)
        return _Mixed(order, nodes) if type(mixture) is Mixture and len(nodes) == len(parts) else None

    def _node(self, dataset: Any, before: _Kept) -> _Part | None:
        if isinstance(dataset, Mixture):
            raise ArgumentError(
                "a Mixture within a Subset or a ConcatDataset has no epochs, which a loader tells its own dataset only: "
                "make a Mixture of Subsets, or of ConcatDatasets"
            )
        if isinstance(dataset, PackedDataset):
            changed = _OWN.replaced()
            self.replaced = self.replaced or changed
            return _Leaf(dataset, len(dataset)) if not changed and is_plain(dataset) else None
        if (is_plain_subset(dataset) or type(dataset) in (Subset, ConcatDataset)) and (changed := _part_replaced(dataset)):
            self.replaced = changed
            return None
        if is_plain_subset(dataset):
            inner = self._node(dataset.dataset, before)
            positions = None if inner is None else self._positions(dataset, before)
            return None if inner is None else _Asked(inner, dataset.indices) if positions is None else _Picked(inner, positions)
        if type(dataset) is not ConcatDataset:
            found = self.files.find(dataset) if self.in_place and any(name in sys.modules for name in LIBRARIES) else None
            if found is None or found.positions is None:
                return None if found is None else _Leaf(found, len(found))
            return _Picked(_Leaf(found, len(found)), found.positions)
        parts = [self._node(part, before) for part in dataset.datasets]
        ends = list(dataset.cumulative_sizes)
        counts = tuple(end - begin for begin, end in zip([0, *ends[:-1]], ends, strict=True))
        nodes = tuple(part for part in parts if part is not None)
        return _Joined(nodes, counts) if len(nodes) == len(parts) == len(counts) else None

    def _positions(self, subset: Any, before: _Kept) -> npt.NDArray[np.int64] | range | None:
        """The positions that a Subset's indices say; None: they have to be asked for."""
        kept = before.get(id(subset))
        if kept is None or not _same(kept[0], subset.indices):
            positions = subset.indices if type(subset.indices) is range else listed_positions(subset.indices)
            if positions is None:
                return None
            if isinstance(positions, np.ndarray) and isinstance(subset.indices, np.ndarray | torch.Tensor):
                positions = positions.copy()
            by_value = isinstance(subset.indices, list | tuple)
            kept = copy.copy(subset.indices) if by_value else positions, positions
        self._picked[id(subset)] = kept
        return kept[1]


_OF_SUBSET = ("__getitem__", "__getitems__", "__len__", "__getattr__", "__getattribute__", "dataset", "indices")


_PARTS = OwnCode((Subset, ("__getitem__", "__getitems__")), (ConcatDataset, ("__getitem__",)))


def _part_replaced(dataset: Any) -> str:
    """Clause that names the part of a Subset or a ConcatDataset that is not torch's own; "" if all are."""
    return "its own __getitems__ was replaced" if "__getitems__" in vars(dataset) else _PARTS.replaced()


def is_plain_subset(dataset: Any) -> bool:
    """Returns True if a dataset is a Subset, or of a subclass that finds samples by the unmodified code of Subset."""
    kind = type(dataset)
    if not isinstance(dataset, Subset) or "__getitems__" in vars(dataset):
        return False
    return kind is Subset or all(getattr(kind, name, None) is getattr(Subset, name, None) for name in _OF_SUBSET)


def is_plain(dataset: PackedDataset) -> bool:
    """Returns True if neither a subclass nor the object itself overrides what PackedDataset makes samples by."""
    kind, own = type(dataset), vars(dataset)
    return not any(name in own or getattr(kind, name) is not getattr(PackedDataset, name) for name in _MAKERS)


def _same(kept: Any, indices: Any) -> bool:
    """Returns True if indices are unchanged since a copy was kept: a list's copy, a tuple or a range, else their positions."""
    if isinstance(indices, list | tuple | range) or isinstance(kept, list | tuple | range):
        return type(kept) is type(indices) and bool(kept == indices)
    found = listed_positions(indices)
    if found is None or len(found) != len(kept):
        return False
    return all(np.array_equal(kept[at : at + _COMPARED], found[at : at + _COMPARED]) for at in range(0, len(kept), _COMPARED))


_COMPARED = 1 << 16
"""Indices that are compared at a time."""


def _view(node: _Node) -> NativeView | None:
    if isinstance(node, _Leaf):
        return NativeView((node.dataset,))
    if isinstance(node, _Mixed):
        return _mixed_view(node)
    if not node.is_asked:
        _check_lengths(node)
    datasets = _datasets(node)
    if not datasets or len(set(map(_form, datasets))) != 1:
        return None
    return NativeView(tuple(datasets), node)


def _mixed_view(node: _Mixed) -> NativeView | None:
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
    return NativeView(tuple(datasets), mixed=MixedRows(node.order, tuple(parts)))


def _form(dataset: NativeDataset) -> tuple[Any, ...]:
    """Form of a sample, which all datasets of a view must have in common."""
    if isinstance(dataset, InPlaceDataset):
        return type(dataset), dataset.fields, tuple(dataset.kinds.values())
    return PackedDataset, dataset.form


def _check_lengths(node: _Part) -> None:
    """Raises ArgumentError for a ConcatDataset of which a part has become shorter."""
    if isinstance(node, _Joined):
        for number, (part, count) in enumerate(zip(node.parts, node.counts, strict=True)):
            _check_lengths(part)
            if part.count < count:
                raise ArgumentError(
                    f"part {number} of the ConcatDataset has {part.count} samples, and had {count} when it was made: make it anew"
                )
    elif not isinstance(node, _Leaf):
        _check_lengths(node.inner)


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


_SHARDS = 4
"""Limit on the shards whose columns are read for them."""
SIDES = 64
"""Limit on the images of a dataset whose sizes are looked at, for the health report."""


@dataclass(frozen=True, eq=False)
class NativeData:
    """Rows of packed datasets, or of images in place, fixed: nothing that the user changes later changes them.

    Attributes:
        view: the rows, with transforms planned without a device.
        native: the rows that native threads read, if they can run the whole transform, or all but what is left to the device.
        snapshots: by id of the user's dataset, the snapshot of it.
    """

    view: NativeView
    native: NativeView | None
    snapshots: dict[int, NativeDataset]

    @property
    def in_place(self) -> bool:
        """True if it is images in place; `native` is then never None."""
        return isinstance(self.view.datasets[0], InPlaceDataset)

    @cached_property
    def longer_sides(self) -> tuple[int, ...]:
        """Longer sides in pixels of some of the stored images, evenly spaced, ascending; () where they are unknown, or where `pack` changes
        no sizes, since other fields lie in the pixels. Read on first use.

        Raises:
            DatasetError: a dataset was closed, or does not hold.
        """
        found: list[int] = []
        for each in self.view.datasets:
            found += each.longer_sides(SIDES) if isinstance(each, InPlaceDataset) else _longer_sides(each.opened.reader)
        return tuple(sorted(found))

    @property
    def kinds(self) -> Any:
        """The form of joining of each part of a sample, in its structure, as Collate has it."""
        dataset = self.view.datasets[0]
        if isinstance(dataset, InPlaceDataset):
            known = {name: KINDS[kind].collated if kind in KINDS else None for name, kind in dataset.kinds.items()}
            return dataset.assemble(known)
        schema = dataset.opened.reader.schema
        return dataset.assemble({name: schema[name].handler.collated for name in dataset.fields})

    def for_python(self, dataset: Any, draws: Draws) -> Any:
        """A copy of the user's dataset tree for worker processes and the calling process: its plans fixed, its draws those of one epoch."""
        out = rebuilt(dataset, lambda each: cast(PackedDataset, self.snapshots[id(each)]).drawing(draws[0], draws[1]))
        set_mixture(out, draws)
        return out


class NativeDataReader:
    """Reads a loader's dataset at every iter(); unchanged, it gives the same NativeData. See NOTE [ view: read at every pass ].

    Attributes:
        data: the result of the last read.
        why_not: reason why a dataset of a known kind is not read in place; "" if there is none.
        by_transform: True if that reason is its transform.
        replaced: clause that names the replaced code of a packed dataset, a Subset or a ConcatDataset, which is then Python's; "" if none
            is.
    """

    def __init__(self) -> None:
        self._resolver = Resolver()
        self._made_from: dict[int, tuple[Any, ...]] = {}
        self._found: NativeView | None = None
        self._asked: tuple[Any, ...] = ()
        self.data: NativeData | None = None
        self.why_not = self.replaced = ""
        self.by_transform = False

    def read(
        self, dataset: Any, device: bool, native: bool, cache: str | os.PathLike[str] | None, missing: frozenset[str] = frozenset()
    ) -> NativeData | None:
        """The dataset as it is now; None if it is neither packed nor one that native threads read in place.

        Args:
            dataset: the loader's dataset.
            device: True if ops of the transforms may be left to a device.
            native: True if native threads may run.
            cache: the folder of index caches for images in place.
            missing: names of ops that need what is not installed: with one of them, none is left to a device.

        Raises:
            Whatever Resolver.view and the planning of a changed transform raise.
        """
        self._resolver.files.cache, self._resolver.in_place = cache, native
        found = self._resolver.view(dataset)
        self.why_not, self.by_transform, self.replaced = self._resolver.files.why_not, False, self._resolver.replaced
        if found is None:
            self._forget()
            return None
        made_from = {id(each): (each, each.plan, each.max_pixels, each.seed) for each in found.datasets}
        known = {} if self.data is None else self.data.snapshots
        snapshots = {
            id(each): known[id(each)]
            if id(each) in known and same_objects(self._made_from[id(each)], made_from[id(each)])
            else each.snapshot()
            for each in found.datasets
        }
        self._made_from = made_from
        unchanged = all(snapshots[key] is known.get(key) for key in snapshots)
        asked = device, native, missing
        if self.data is None or found is not self._found or asked != self._asked or not unchanged:
            view = replace(found, datasets=tuple(snapshots[id(each)] for each in found.datasets))
            self.data = NativeData(view, _native(view, device, missing) if native else None, snapshots)
        self._found, self._asked = found, asked
        if self.data.in_place and self.data.native is None:
            self.why_not, self.by_transform = _why_not_in_place(self.data.view), True
            self._forget()
            return None
        return self.data

    def _forget(self) -> None:
        self.data, self._made_from = None, {}


def same_objects(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    """Returns True if both tuples hold the same objects, or equal numbers."""
    return len(a) == len(b) and all(x is y or (type(x) is type(y) and isinstance(x, int) and x == y) for x, y in zip(a, b, strict=True))


def _why_not_in_place(view: NativeView) -> str:
    reasons = [each.refusal() for each in view.datasets if isinstance(each, InPlaceDataset)]
    return next(filter(None, reasons), "the transforms of its parts differ")


def _longer_sides(reader: DatasetReader) -> list[int]:
    """Longer sides of some of the images of a packed dataset. None of one in a bucket, whose columns would be fetched for them."""
    schema = reader.schema
    if (
        not len(reader)
        or schema.image is None
        or reader.files.remote
        or any(field.handler.follows_image or field.is_planes for field in schema)
    ):
        return []
    numbers = evenly_spaced(len(reader.manifest.shards), _SHARDS)
    heights, widths = (np.concatenate([reader.chunk(number, name) for number in numbers]) for name in ("__height__", "__width__"))
    sides: list[int] = np.maximum(heights, widths)[evenly_spaced(len(heights), SIDES)].tolist()
    return sides


def _row_form(dataset: NativeDataset) -> tuple[Any, ...]:
    """Properties that the native rows of a batch must have in common beside the pixels: a column is stacked in one dtype, too."""
    if isinstance(dataset, InPlaceDataset):
        return dataset.image_types
    schema, of_boxes = dataset.opened.reader.schema, bool(dataset.plan.of_boxes)
    boxes = [str(field) for field in schema if field.handler.owns_objects] if of_boxes else []
    return of_boxes, *boxes, *(str(schema[name]) for name in dataset.fields if name != dataset.image_field)


def _native(view: NativeView, device: bool, missing: frozenset[str]) -> NativeView | None:
    """The rows as native threads make them; None if another engine has to run. `missing`: see NativeDataReader.read.

    Raises:
        TransformError: several views of an image leave a delivered field behind that lies in it, or rotated boxes are to become upright
            ones, as dataset[i] raises it.
    """
    for each in view.datasets:
        if (each.plan.views or each.plan.box_format) and isinstance(each, PackedDataset):
            each.check_fields(each.plan)
    if not all(each.is_batched_natively for each in view.datasets):
        return None
    if device and any(each.plan.movable for each in view.datasets) and all(each.images.only_rgb for each in view.datasets):
        moved = tuple(each.snapshot(device=True) for each in view.datasets)
        if not any(each.plan.device_ops & missing for each in moved):
            view = replace(view, datasets=moved)
    if not all(each.plan.native for each in view.datasets):
        return None
    if len(view.datasets) > 1 and len({_row_form(each) for each in view.datasets}) > 1:
        return None
    if any(isinstance(each, InPlaceDataset) and each.refusal() for each in view.datasets):
        return None
    return view if len({(each.plan.values, each.images.forms) for each in view.datasets}) == 1 else None
