"""NativeDataReader: reads a loader's dataset anew for every pass. Resolver recognises the native sources in
it.

NOTE [ view: read at every pass ]
A user may change a Subset's indices or dataset, and a transform, at any time; what is in force is what the
next iter() finds. So a Resolver walks the dataset at every pass. Work on long lists of indices is done again
only where they differ from the copy that it keeps, and a view whose parts are all unchanged is the same
object. Nothing is written into the user's datasets: a pass reads snapshots of them. A view holds 8 bytes for
each index of a Subset, and the copy of a list another 8; a range, a ConcatDataset and a whole dataset hold
nothing of a sample: rows are found as a batch asks for them.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import ConcatDataset, Subset

from fastload.common.originals import OwnCode
from fastload.common.positions import listed_positions
from fastload.dataset.copies import DrawBasis
from fastload.dataset.in_place.datasets import RECOGNISERS, InPlaceDatasets
from fastload.dataset.mixture import Mixture, MixtureOrder
from fastload.dataset.native_data import NativeData, native_view, why_not
from fastload.dataset.native_source import NativeSource
from fastload.dataset.packed import OWN_CODE, PackedDataset, is_plain
from fastload.dataset.parts import Asked, Joined, Leaf, Part, Picked, check_lengths, sources_of
from fastload.dataset.view import MixedRows, NativeView
from fastload.errors import ArgumentError
from fastload.remote.kept_table import CachePlace


@dataclass(frozen=True)
class _Mixed:
    """Several by the order of a Mixture, which is nothing's part."""

    order: MixtureOrder
    parts: tuple[Part, ...]


_Node = Part | _Mixed
_Kept = dict[int, tuple[Any, npt.NDArray[np.int64] | range]]


class Resolver:
    """Resolves one loader's dataset, again and again. See NOTE [ view: read at every pass ]."""

    def __init__(self) -> None:
        self._picked: _Kept = {}
        self._last: tuple[tuple[Any, ...], NativeView] | None = None
        self.files = InPlaceDatasets()
        self.in_place = True  # True if datasets in place are looked for
        self.replaced = ""  # why a dataset of a known class is Python's: what of it was replaced, as a clause

    def view(self, dataset: object) -> NativeView | None:
        """The rows of a native dataset, or of Subset and ConcatDataset of them (nested), as they are now;
        None for anything else.

        Subclasses of PackedDataset that change how samples are made are not packed: their own code has to
        run. Unchanged, it is the same object.

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
        key = _key(node)
        if self._last is None or self._last[0] != key:
            found = _view(node)
            self._last = None if found is None else (key, found)
        return None if self._last is None else self._last[1]

    def _mixed(self, mixture: Mixture, before: _Kept) -> _Mixed | None:
        order, parts = mixture.order, [self._node(part, before) for part in mixture.sources]
        nodes = tuple(part for part in parts if part is not None)
        return _Mixed(order, nodes) if type(mixture) is Mixture and len(nodes) == len(parts) else None

    def _node(self, dataset: object, before: _Kept) -> Part | None:
        """The rows of a dataset, by the first of `_KINDS` that it is of; None where native threads do not
        read it."""
        return next(make for recognise, make in _KINDS if recognise(dataset))(self, dataset, before)

    def _mixture(self, dataset: object, before: _Kept) -> Part | None:
        raise ArgumentError(
            "a Mixture within a Subset or a ConcatDataset has no epochs, which a loader tells its "
            "own dataset only: "
            "make a Mixture of Subsets, or of ConcatDatasets"
        )

    def _packed(self, dataset: PackedDataset, before: _Kept) -> Part | None:
        changed = OWN_CODE.replaced()
        self.replaced = self.replaced or changed
        return Leaf(dataset, len(dataset)) if not changed and is_plain(dataset) else None

    def _changed(self, dataset: object, before: _Kept) -> Part | None:
        self.replaced = _part_replaced(dataset)
        return None

    def _subset(self, dataset: Subset[Any], before: _Kept) -> Part | None:
        inner = self._node(dataset.dataset, before)
        if inner is None:
            return None
        positions = self._positions(dataset, before)
        return Asked(inner, dataset.indices) if positions is None else Picked(inner, positions)

    def _joined(self, dataset: ConcatDataset[Any], before: _Kept) -> Part | None:
        parts = [self._node(part, before) for part in dataset.datasets]
        ends = list(dataset.cumulative_sizes)
        counts = tuple(end - begin for begin, end in zip([0, *ends[:-1]], ends, strict=True))
        nodes = tuple(part for part in parts if part is not None)
        return Joined(nodes, counts) if len(nodes) == len(parts) == len(counts) else None

    def _in_place(self, dataset: object, before: _Kept) -> Part | None:
        if not self.in_place or not any(each.library in sys.modules for each in RECOGNISERS):
            return None
        found = self.files.find(dataset)
        if found is None:
            return None
        leaf = Leaf(found, len(found))
        return leaf if found.positions is None else Picked(leaf, found.positions)

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


class NativeDataReader:
    """Reads a loader's dataset at every iter(); unchanged, it gives the same NativeData. See NOTE [ view:
    read at every pass ].

    Attributes:
        data: the result of the last read.
        why_not: reason why a dataset of a known kind is not read in place; "" if there is none.
        by_transform: True if that reason is its transform.
        replaced: clause that names the replaced code of a packed dataset, a Subset or a ConcatDataset, which
            is then Python's; "" if none is.
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
        self,
        dataset: object,
        device: bool,
        native: bool,
        cache: CachePlace | None,
        missing: frozenset[str] = frozenset(),
    ) -> NativeData | None:
        """The dataset as it is now; None if it is neither packed nor one that native threads read in place.

        Args:
            dataset: the loader's dataset.
            device: True if ops of the transforms may be left to a device.
            native: True if native threads may run.
            cache: the cache folder of images in place.
            missing: names of ops that need what is not installed: with one of them, none is left to a device.

        Raises:
            Whatever Resolver.view and the planning of a changed transform raise.
        """
        self._resolver.files.cache, self._resolver.in_place = cache, native
        found = self._resolver.view(dataset)
        self.why_not, self.by_transform, self.replaced = (
            self._resolver.files.why_not,
            False,
            self._resolver.replaced,
        )
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
            self.data = NativeData(view, native_view(view, device, missing) if native else None, snapshots)
        self._found, self._asked = found, asked
        if self.data.native is None and self.data.in_place:
            self.why_not, self.by_transform = why_not(self.data.view), True
            self._forget()
            return None
        return self.data

    def _forget(self) -> None:
        self.data, self._made_from = None, {}


def same_objects(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    """Returns True if both tuples hold the same objects, or equal numbers."""
    return len(a) == len(b) and all(
        x is y or (type(x) is type(y) and isinstance(x, int) and x == y) for x, y in zip(a, b, strict=True)
    )


def draws_of(dataset: object, seed: int | None, epoch: int) -> DrawBasis:
    """Basis of the samples of a pass over the user's dataset."""
    return seed, epoch, dataset.changes if isinstance(dataset, Mixture) else None


def in_epoch(dataset: object, seed: int | None, epoch: int) -> tuple[Any, DrawBasis | None]:
    """A dataset of Python in an epoch, and the basis of its draws, if it has one: itself and None, but for
    a Mixture."""
    if isinstance(dataset, Mixture):
        return dataset.at_epoch(epoch), draws_of(dataset, seed, epoch)
    return dataset, None


def begin_epoch(dataset: object, epoch: int) -> None:
    """Tells the user's dataset the epoch of its loader: a Mixture, whose order follows from it."""
    if isinstance(dataset, Mixture):
        dataset.set_epoch(epoch)


_OF_SUBSET = (
    "__getitem__",
    "__getitems__",
    "__len__",
    "__getattr__",
    "__getattribute__",
    "dataset",
    "indices",
)


_PARTS = OwnCode((Subset, ("__getitem__", "__getitems__")), (ConcatDataset, ("__getitem__",)))


def _part_replaced(dataset: object) -> str:
    """Clause that names the part of a Subset or a ConcatDataset that is not torch's own; "" if all are."""
    return "its own __getitems__ was replaced" if "__getitems__" in vars(dataset) else _PARTS.replaced()


def is_plain_subset(dataset: object) -> bool:
    """Returns True if a dataset is a Subset, or of a subclass that finds samples by the unmodified code of
    Subset."""
    kind = type(dataset)
    if not isinstance(dataset, Subset) or "__getitems__" in vars(dataset):
        return False
    return kind is Subset or all(
        getattr(kind, name, None) is getattr(Subset, name, None) for name in _OF_SUBSET
    )


_KINDS: tuple[tuple[Callable[[Any], bool], Callable[[Resolver, Any, _Kept], Part | None]], ...] = (
    (lambda dataset: isinstance(dataset, Mixture), Resolver._mixture),
    (lambda dataset: isinstance(dataset, PackedDataset), Resolver._packed),
    (
        lambda dataset: (
            (is_plain_subset(dataset) or type(dataset) in (Subset, ConcatDataset))
            and bool(_part_replaced(dataset))
        ),
        Resolver._changed,
    ),
    (is_plain_subset, Resolver._subset),
    (lambda dataset: type(dataset) is ConcatDataset, Resolver._joined),
    (lambda dataset: True, Resolver._in_place),
)
"""Kinds of datasets in a loader's, in the order in which they are looked for: what they are known by, and
their rows."""


def _same(kept: Any, indices: Any) -> bool:
    """Returns True if indices are unchanged since a copy was kept: a list's copy, a tuple or a range, else
    their positions."""
    if isinstance(indices, list | tuple | range) or isinstance(kept, list | tuple | range):
        return type(kept) is type(indices) and bool(kept == indices)
    found = listed_positions(indices)
    if found is None or len(found) != len(kept):
        return False
    return all(
        np.array_equal(kept[at : at + _COMPARED], found[at : at + _COMPARED])
        for at in range(0, len(kept), _COMPARED)
    )


_COMPARED = 1 << 16
"""Indices that are compared at a time."""


def _key(node: _Node) -> tuple[Any, ...]:
    """Identity of a node's rows: equal keys of nodes that are alive mean equal rows."""
    if isinstance(node, Leaf):
        return "whole", id(node.dataset), node.count
    if isinstance(node, _Mixed):
        return "mixed", node.order.identity, *map(_key, node.parts)
    if isinstance(node, Joined):
        return "joined", node.counts, *map(_key, node.parts)
    of_subset = ("picked", id(node.positions)) if isinstance(node, Picked) else ("asked", id(node.indices))
    return *of_subset, _key(node.inner)


def _view(node: _Node) -> NativeView | None:
    if isinstance(node, Leaf):
        return NativeView((node.dataset,))
    if isinstance(node, _Mixed):
        return _mixed_view(node)
    if not node.is_asked:
        check_lengths(node)
    datasets = sources_of(node)
    if not datasets or len({each.alike for each in datasets}) != 1:
        return None
    return NativeView(tuple(datasets), node)


def _mixed_view(node: _Mixed) -> NativeView | None:
    datasets: list[NativeSource] = []
    parts = []
    for part in node.parts:
        found = _view(part)
        if found is None:
            return None
        parts.append((len(datasets), found))
        datasets += found.datasets
    if len({each.alike for each in datasets}) != 1:
        return None
    return NativeView(tuple(datasets), mixed=MixedRows(node.order, tuple(parts)))
