"""InPlaceDatasets: the datasets of other libraries that one loader reads in place, kept from pass to pass."""

from __future__ import annotations

import os
import sys
from typing import Any

from fastload.dataset.in_place import hugging_face, known
from fastload.dataset.in_place.base import InPlaceDataset
from fastload.dataset.in_place.hugging_face import ArrowDataset
from fastload.dataset.in_place.torchvision import FileDataset
from fastload.errors import ArgumentError, TransformError

_IMAGES = "fastload.dataset.in_place.images"
LIBRARIES = ("datasets", "torchvision.datasets", _IMAGES)
"""The modules whose datasets are known: where none of them is imported, there is nothing to find."""

_Known = known.KnownDataset | hugging_face.KnownTable


class InPlaceDatasets:
    """The datasets in place of one loader, by the datasets that they were made of.

    Attributes:
        cache: the folder of index caches; None: what is learnt stays in memory.
        asked: True if this pass has asked for a dataset.
        why_not: reason why a dataset that was asked for in this pass is not read in place; "" if none is of a known kind.
    """

    def __init__(self) -> None:
        self.cache: str | os.PathLike[str] | None = None
        self._before: dict[int, InPlaceDataset] = {}
        self._kept: dict[int, InPlaceDataset] = {}
        self.why_not = ""
        self.asked = False

    def begin(self) -> None:
        """A pass begins: what it does not ask for is forgotten."""
        self._before, self._kept, self.why_not, self.asked = self._kept, {}, "", False

    def find(self, dataset: Any) -> InPlaceDataset | None:
        """The dataset as it is now, the same object while nothing of it but its transform changes; None where it is not read in place."""
        self.asked = True
        try:
            found = _recognised(dataset)
            if found is None:
                return None
            kept = self._made(dataset, found, self._kept.get(id(dataset)) or self._before.get(id(dataset)))
        except (known.NotInPlaceError, TransformError, ArgumentError) as error:
            self.why_not = str(error)
            return None
        self._kept[id(dataset)] = kept
        return kept

    def _made(self, dataset: Any, found: _Known, kept: InPlaceDataset | None) -> InPlaceDataset:
        if isinstance(found, known.KnownDataset):
            if not isinstance(kept, FileDataset) or not kept.is_of(dataset, found):
                return FileDataset(dataset, found, self.cache)
        elif not isinstance(kept, ArrowDataset) or not kept.is_of(dataset, found):
            return ArrowDataset(dataset, found, self.cache, kept if isinstance(kept, ArrowDataset) else None)
        if kept.transform is not found.transform:
            kept.transform = found.transform
        return kept


def _recognised(dataset: Any) -> _Known | None:
    found: _Known | None = hugging_face.recognised(dataset) if "datasets" in sys.modules else None
    if found is None and _IMAGES in sys.modules:
        from fastload.dataset.in_place import images

        found = images.recognised(dataset)
    if found is None and "torchvision.datasets" in sys.modules:
        found = known.recognised(dataset)
    return found
