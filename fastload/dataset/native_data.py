"""NativeData: the snapshot of a loader's dataset that one epoch reads, and the decision whether native
threads read it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

from fastload.dataset.copies import DrawBasis, rebuilt, set_mixture
from fastload.dataset.native_source import NativeSource
from fastload.dataset.packed import PackedDataset
from fastload.dataset.view import NativeView

SIDES = 64
"""Limit on the images of a dataset whose sizes are looked at, for the health report."""


@dataclass(frozen=True, eq=False)
class NativeData:
    """Rows of packed datasets, or of images in place, fixed: nothing that the user changes later changes
    them.

    Attributes:
        view: the rows, with transforms planned without a device.
        native: the rows that native threads read, if they can run the whole transform, or all but what is
            left to the device.
        snapshots: by id of the user's dataset, the snapshot of it.
    """

    view: NativeView
    native: NativeView | None
    snapshots: dict[int, NativeSource]

    @property
    def in_place(self) -> bool:
        """True if it is images in place; `native` is then never None."""
        return self.view.datasets[0].in_place

    @cached_property
    def longer_sides(self) -> tuple[int, ...]:
        """Longer sides in pixels of some of the stored images, evenly spaced, ascending; () where they are
        unknown, or where `pack` changes no sizes, since other fields lie in the pixels. Read on first use.

        Raises:
            DatasetError: a dataset was closed, or does not hold.
        """
        found: list[int] = []
        for each in self.view.datasets:
            found += each.longer_sides(SIDES)
        return tuple(sorted(found))

    @property
    def kinds(self) -> Any:
        """The form of joining of each part of a sample, in its structure, as Collate has it."""
        dataset = self.view.datasets[0]
        return dataset.assemble(dict(dataset.collated))

    def for_python(self, dataset: object, draws: DrawBasis) -> Any:
        """A copy of the user's dataset tree for worker processes and the calling process: its plans fixed,
        its draws those of one epoch."""
        out = rebuilt(
            dataset, lambda each: cast(PackedDataset, self.snapshots[id(each)]).drawing(draws[0], draws[1])
        )
        set_mixture(out, draws)
        return out


def why_not(view: NativeView) -> str:
    return next(
        filter(None, (each.refusal() for each in view.datasets)), "the transforms of its parts differ"
    )


def native_view(view: NativeView, device: bool, missing: frozenset[str]) -> NativeView | None:
    """The rows as native threads make them; None if another engine has to run. `missing`: see
    NativeDataReader.read.

    Raises:
        TransformError: several views of an image leave a delivered field behind that lies in it, or rotated
            boxes are to become upright ones, as dataset[i] raises it.
    """
    for each in view.datasets:
        if each.plan.views or each.plan.box_format:
            each.check_fields(each.plan)
    if not all(each.is_batched_natively for each in view.datasets):
        return None
    if (
        device
        and any(each.plan.movable for each in view.datasets)
        and all(each.images.only_rgb for each in view.datasets)
    ):
        moved = tuple(each.snapshot(device=True) for each in view.datasets)
        alike = len({each.plan.values for each in moved}) == 1
        if alike and not any(each.plan.device_ops & missing for each in moved):
            view = replace(view, datasets=moved)
    if not all(each.plan.native for each in view.datasets):
        return None
    if len(view.datasets) > 1 and len({each.alike_in_rows for each in view.datasets}) > 1:
        return None
    if any(each.refusal() for each in view.datasets):
        return None
    return view if len({(each.plan.values, each.images.forms) for each in view.datasets}) == 1 else None
