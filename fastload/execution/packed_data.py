"""A loader's packed data as one epoch reads it: snapshots of the user's datasets, and whether the native engine reads them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import cloudpickle

from fastload.dataset import PackedDataset
from fastload.packed_view import Draws, PackedView, Resolver, rebuilt


@dataclass(frozen=True, eq=False)
class PackedData:
    """Rows of packed datasets, fixed: nothing that the user changes later changes them.

    Attributes:
        view: the rows, with transforms planned without a device.
        native: the rows that the native engine reads, if it can run the whole transform, or all but what is left to the device.
        snapshots: by id of the user's dataset, the snapshot that was made of it.
    """

    view: PackedView
    native: PackedView | None
    snapshots: dict[int, PackedDataset]

    def for_python(self, dataset: Any, draws: Draws) -> Any:
        """A copy of the user's dataset tree for engines that run Python per sample: its plans fixed, its draws those of one epoch."""
        return rebuilt(dataset, lambda each: self.snapshots[id(each)].drawing(*draws))


class PackedDataReader:
    """Reads a loader's dataset at every iter(); unchanged, it gives the same PackedData. See NOTE [ view: read at every pass ].

    Attributes:
        data: what was read last.
    """

    def __init__(self) -> None:
        self._resolver = Resolver()
        self._made_from: dict[int, tuple[Any, ...]] = {}
        self._found: PackedView | None = None
        self._device = False
        self.data: PackedData | None = None

    def read(self, dataset: Any, device: bool) -> PackedData | None:
        """The dataset as it is now; None if it is not packed.

        Args:
            dataset: the loader's.
            device: whether ops of the transforms may be left to a device.

        Raises:
            Whatever Resolver.view and the planning of a changed transform raise.
        """
        found = self._resolver.view(dataset)
        if found is None:
            self.data, self._made_from = None, {}
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
        if self.data is None or found is not self._found or device != self._device or not unchanged:
            view = replace(found, datasets=tuple(snapshots[id(each)] for each in found.datasets))
            self.data = PackedData(view, _native(view, device), snapshots)
        self._found, self._device = found, device
        return self.data


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
        before, self._sent = self._sent, (view.index, view.source, view.datasets, steps)
        if before is None:
            return False
        same = same_objects(before[:2], self._sent[:2]) and same_objects(before[2], self._sent[2]) and before[3] == steps
        return not same


def same_objects(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    """Whether they hold the same objects, or equal numbers."""
    return len(a) == len(b) and all(x is y or (type(x) is type(y) and isinstance(x, int) and x == y) for x, y in zip(a, b, strict=True))


def _native(view: PackedView, device: bool) -> PackedView | None:
    """The rows with what the native engine does; None if another engine has to run."""
    if any(each.image_field not in each.fields for each in view.datasets):
        return None
    if device and any(each.plan.movable for each in view.datasets):
        view = replace(view, datasets=tuple(each.snapshot(device=True) for each in view.datasets))
    if not all(each.plan.native for each in view.datasets):
        return None
    return view if len({each.plan.values for each in view.datasets}) == 1 else None
