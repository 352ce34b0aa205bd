"""InPlaceDatasets: the datasets of other libraries that one loader reads in place, kept from pass to pass."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastload.dataset.in_place import hugging_face, known, samples
from fastload.dataset.in_place.base import InPlaceDataset
from fastload.dataset.in_place.hugging_face import ArrowDataset
from fastload.dataset.in_place.placed import PlacedDataset
from fastload.dataset.in_place.torchvision import FileDataset
from fastload.errors import ArgumentError, TransformError
from fastload.remote.kept_table import CachePlace


class Recogniser(NamedTuple):
    """One kind of datasets that are read in place.

    Attributes:
        library: the module whose datasets they are; where it is not imported, there are none.
        recognise: returns the parts of such a dataset, as it is now; None for any other.
        make: the class of the dataset in place, made of the dataset, its parts and the cache
            folder.
    """

    library: str
    recognise: Callable[[Any], Any]
    make: type[Any]


def _own(module: str) -> Callable[[Any], Any]:
    """The function `recognised` of one of fastload's modules, which the program has imported if it has
    such a dataset."""
    name = f"fastload.dataset.in_place.{module}"
    return lambda dataset: sys.modules[name].recognised(dataset)


RECOGNISERS = (
    Recogniser("datasets", hugging_face.recognised, ArrowDataset),
    Recogniser("fastload.dataset.in_place.images", _own("images"), FileDataset),
    Recogniser("fastload.packing.read", samples.recognised, PlacedDataset),
    Recogniser("torchvision.datasets", known.recognised, FileDataset),
)
"""Kinds of datasets in place; the first that recognises one makes it."""


def sizes_of(dataset: object) -> npt.NDArray[np.int64] | None:
    """(number, 2) heights and widths of a dataset's images, by a pass over their headers, whatever its
    transform; None where it is none that is read in place.

    Raises:
        NotInPlaceError: it is not read in place for a reason of its own.
        DatasetError: a file cannot be read.
    """
    for each in RECOGNISERS:
        if each.library in sys.modules and (found := each.recognise(dataset)) is not None:
            sizes: npt.NDArray[np.int64] = each.make.sizes_of(found)
            return sizes
    return None


class InPlaceDatasets:
    """The datasets in place of one loader, by the datasets that they were made of.

    Attributes:
        cache: the cache folder; None: what is learnt stays in memory.
        asked: True if this pass has asked for a dataset.
        why_not: reason why a dataset that was asked for in this pass is not read in place; "" if none is of a
            known kind.
    """

    def __init__(self) -> None:
        self.cache: CachePlace | None = None
        self._before: dict[int, InPlaceDataset] = {}
        self._kept: dict[int, InPlaceDataset] = {}
        self.why_not = ""
        self.asked = False

    def begin(self) -> None:
        """A pass begins: what it does not ask for is forgotten."""
        self._before, self._kept, self.why_not, self.asked = self._kept, {}, "", False

    def find(self, dataset: object) -> InPlaceDataset | None:
        """The dataset as it is now, the same object while nothing of it but its transform changes; None
        where it is not read in place."""
        self.asked = True
        try:
            kept = self._found(dataset)
        except (known.NotInPlaceError, TransformError, ArgumentError) as error:
            self.why_not = str(error)
            return None
        if kept is not None:
            self._kept[id(dataset)] = kept
        return kept

    def _found(self, dataset: object) -> InPlaceDataset | None:
        before = self._kept.get(id(dataset)) or self._before.get(id(dataset))
        for each in RECOGNISERS:
            if each.library in sys.modules and (found := each.recognise(dataset)) is not None:
                if before is None or type(before) is not each.make or not before.is_of(dataset, found):
                    made: InPlaceDataset = each.make(dataset, found, self.cache, before)
                    return made
                if before.transform is not found.transform:
                    before.transform = found.transform
                return before
        return None
