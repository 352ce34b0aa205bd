"""A loader's packed data, or images in place, as one epoch reads them: snapshots, and whether the native engine reads them."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import cloudpickle
import numpy as np

from fastload.dataset import PackedDataset
from fastload.in_place.base import InPlaceDataset
from fastload.in_place.listed import evenly_spaced
from fastload.packed_view import Draws, NativeDataset, PackedView, Resolver, rebuilt, set_mixture
from fastload.store import DatasetReader
from fastload.store.field import KINDS_IN_IMAGE

_SHARDS = 4
"""Limit on the shards whose columns are read for them."""
SIDES = 64
"""Limit on the images of a dataset whose sizes are looked at, for the health report."""


@dataclass(frozen=True, eq=False)
class PackedData:
    """Rows of packed datasets, or of images in place, fixed: nothing that the user changes later changes them.

    Attributes:
        view: the rows, with transforms planned without a device.
        native: the rows that the native engine reads, if it can run the whole transform, or all but what is left to the device.
        snapshots: by id of the user's dataset, the snapshot that was made of it.
    """

    view: PackedView
    native: PackedView | None
    snapshots: dict[int, NativeDataset]

    @property
    def in_place(self) -> bool:
        """Whether it is images in place; `native` is then never None."""
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
        """The kind of each part of a sample, in its structure, as Collate has it: "rows" is an array of any number of rows."""
        dataset = self.view.datasets[0]
        if isinstance(dataset, InPlaceDataset):
            known = {name: kind if kind in ("image", "int", "float", "array") else None for name, kind in dataset.kinds.items()}
            return dataset.assemble(known)
        schema = dataset.opened.reader.schema
        return dataset.assemble(
            {name: "rows" if schema[name].kind == "array" and schema[name].is_varying else schema[name].kind for name in dataset.fields}
        )

    def for_python(self, dataset: Any, draws: Draws) -> Any:
        """A copy of the user's dataset tree for engines that run Python per sample: its plans fixed, its draws those of one epoch."""
        out = rebuilt(dataset, lambda each: cast(PackedDataset, self.snapshots[id(each)]).drawing(draws[0], draws[1]))
        set_mixture(out, draws)
        return out


class PackedDataReader:
    """Reads a loader's dataset at every iter(); unchanged, it gives the same PackedData. See NOTE [ view: read at every pass ].

    Attributes:
        data: what was read last.
        why_not: why a dataset of a known kind is not read in place; "" where there is none.
        by_transform: whether that is for its transform.
        replaced: why a packed dataset, a Subset or a ConcatDataset is Python's: what of its code was replaced, as a clause.
    """

    def __init__(self) -> None:
        self._resolver = Resolver()
        self._made_from: dict[int, tuple[Any, ...]] = {}
        self._found: PackedView | None = None
        self._asked = (False, True)
        self.data: PackedData | None = None
        self.why_not = self.replaced = ""
        self.by_transform = False

    def read(self, dataset: Any, device: bool, native: bool, cache: str | os.PathLike[str] | None) -> PackedData | None:
        """The dataset as it is now; None if it is neither packed nor one that the native engine reads in place.

        Args:
            dataset: the loader's.
            device: whether ops of the transforms may be left to a device.
            native: whether the native engine may run.
            cache: the folder of index caches for images in place.

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
        asked = device, native
        if self.data is None or found is not self._found or asked != self._asked or not unchanged:
            view = replace(found, datasets=tuple(snapshots[id(each)] for each in found.datasets))
            self.data = PackedData(view, _native(view, device) if native else None, snapshots)
        self._found, self._asked = found, asked
        if self.data.in_place and self.data.native is None:
            self.why_not, self.by_transform = _why_not_in_place(self.data.view), True
            self._forget()
            return None
        return self.data

    def _forget(self) -> None:
        self.data, self._made_from = None, {}


class SentToWorkers:
    """Notes what persistent workers were started with, and tells whether they still have the dataset as it is."""

    def __init__(self) -> None:
        self._sent: tuple[Any, ...] | None = None

    def note(self, data: PackedData) -> bool:
        """Notes the rows and transforms; returns whether they differ from those noted before."""
        view = data.view
        try:
            steps = cloudpickle.dumps([dataset.plan.python for dataset in view.datasets])
        except Exception:  # what cannot be pickled cannot be compared: its own changes stay unseen, as in torch's workers
            steps = b""
        before, self._sent = self._sent, ((view.index, view.source, view.asked), view.datasets, steps)
        if before is None:
            return False
        same = same_objects(before[0], self._sent[0]) and same_objects(before[1], self._sent[1]) and before[2] == steps
        return not same


def same_objects(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    """Whether they hold the same objects, or equal numbers."""
    return len(a) == len(b) and all(x is y or (type(x) is type(y) and isinstance(x, int) and x == y) for x, y in zip(a, b, strict=True))


def _why_not_in_place(view: PackedView) -> str:
    reasons = [each.refusal() for each in view.datasets if isinstance(each, InPlaceDataset)]
    return next(filter(None, reasons), "the transforms of its parts differ")


def _longer_sides(reader: DatasetReader) -> list[int]:
    """Longer sides of some of the images of a packed dataset. None of one in a bucket, whose columns would be fetched for them."""
    schema = reader.schema
    if (
        not len(reader)
        or schema.image is None
        or reader.files.remote
        or any(field.kind in KINDS_IN_IMAGE or field.is_planes for field in schema)
    ):
        return []
    numbers = evenly_spaced(len(reader.manifest.shards), _SHARDS)
    heights, widths = (np.concatenate([reader.chunk(number, name) for number in numbers]) for name in ("__height__", "__width__"))
    sides: list[int] = np.maximum(heights, widths)[evenly_spaced(len(heights), SIDES)].tolist()
    return sides


def _row_form(dataset: NativeDataset) -> tuple[Any, ...]:
    """What the native rows of a batch have in common beside the pixels: a column is stacked in one dtype, too."""
    if isinstance(dataset, InPlaceDataset):
        return dataset.image_types
    schema, of_boxes = dataset.opened.reader.schema, bool(dataset.plan.of_boxes)
    boxes = [str(field) for field in schema if field.kind == "boxes"] if of_boxes else []
    return of_boxes, *boxes, *(str(schema[name]) for name in dataset.fields if name != dataset.image_field)


def _native(view: PackedView, device: bool) -> PackedView | None:
    """The rows with what the native engine does; None if another engine has to run.

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
        view = replace(view, datasets=tuple(each.snapshot(device=True) for each in view.datasets))
    if not all(each.plan.native for each in view.datasets):
        return None
    if len(view.datasets) > 1 and len({_row_form(each) for each in view.datasets}) > 1:
        return None
    if any(isinstance(each, InPlaceDataset) and each.refusal() for each in view.datasets):
        return None
    return view if len({(each.plan.values, each.images.forms) for each in view.datasets}) == 1 else None
