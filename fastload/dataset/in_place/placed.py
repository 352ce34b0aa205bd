"""PlacedDataset: the samples of a source as native threads read them, by the places of its images in
files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.dataset.in_place.base import InPlaceDataset
from fastload.dataset.in_place.known import NotInPlaceError
from fastload.dataset.in_place.listed import ListedImages, Places
from fastload.dataset.in_place.samples import KnownSamples, ReadableSource, opened
from fastload.errors import FastloadError
from fastload.remote.kept_table import CachePlace

if TYPE_CHECKING:
    from PIL.Image import Image

_COLUMNS = {int: np.int64, float: np.float64, bool: np.bool_}
"""Types of Python's values that are kept as columns, and what torch makes of them."""
_EMPTY = 1
"""Bytes that are read of an image without any, which a place of none would take for a whole file: it is
then no image."""


class PlacedDataset(InPlaceDataset):
    """Samples of `fastload.read`: images at their places, numbers as columns, all else read sample by sample.

    Raises:
        NotInPlaceError: an image lies in no file in one piece, few of them are JPEGs, PNGs or WebPs, or a
            number cannot be read.
        TransformError: the transform cannot be planned.
    """

    noun = "images"
    image_field = "image"

    def __init__(
        self,
        dataset: object,
        known: KnownSamples,
        cache: CachePlace | None = None,
        before: object = None,
    ) -> None:
        super().__init__(dataset, known.transform, _listed(known.source, cache))
        self._listed.check_formats()
        self._known = known
        self.fields = known.fields
        numbers = {
            field.name: field.kind
            for field in known.source.fields
            if field.handler.is_column and not field.handler.is_array
        }
        self._arrays = _columns(known, [name for name in self.fields if name in numbers])
        self.stored_fields = tuple(
            name for name in self.fields if name != self.image_field and name not in self._arrays
        )
        self.kinds = {name: numbers[name] if name in self._arrays else "value" for name in self.fields} | {
            self.image_field: "image"
        }

    @staticmethod
    def sizes_of(known: KnownSamples) -> npt.NDArray[np.int64]:
        """(number, 2) heights and widths of its images, as header_sizes."""
        return _listed(known.source, None).sizes()

    def is_of(self, dataset: object, known: KnownSamples) -> bool:
        """Returns True if it is made of that dataset, with the source and fields that the dataset has now."""
        return dataset is self.dataset and known.source is self._known.source and known.fields == self.fields

    def _stored(self, index: int, names: Sequence[str]) -> dict[str, Any]:
        values = self._known.values(index)
        return {name: values[name] for name in names}

    def assemble(self, values: dict[str, Any]) -> Any:
        """The pair of an image and a number, or the values by field."""
        return tuple(values[name] for name in self.fields) if self._known.is_pair else values

    def _opened(self, index: int) -> Image:
        data = self._bytes(index)
        return opened(self._known.source.read(index).image if data is None else data)


def _listed(source: ReadableSource, cache: CachePlace | None) -> ListedImages:
    """The places of a source's images."""
    place = getattr(source, "place", None)
    if place is None:
        raise NotInPlaceError(
            f"{source.title}: its images do not lie in one piece in files: pack it (fastload pack)"
        )
    count = len(source)
    offsets, sizes, numbers = (
        np.zeros(count, np.uint64),
        np.zeros(count, np.uint32),
        np.zeros(count, np.uint32),
    )
    known: dict[str, int] = {}
    stamps: list[int] = []
    lengths: list[int] = []
    try:
        for position in range(count):
            found = place(position)
            if found is None:
                raise NotInPlaceError(
                    f"{source.name(position)}: its image does not lie in one piece in a file: pack "
                    "it (fastload pack)"
                )
            path = os.path.abspath(found.path)
            if (number := known.get(path)) is None:
                number = known[path] = len(known)
                stamps.append(0)  # whatever it becomes, as in an ImageFolder
                lengths.append(os.stat(path).st_size)
            numbers[position] = number
            if found.offset or found.size != lengths[number]:
                offsets[position], sizes[position] = found.offset, max(found.size, _EMPTY)
                stamps[number] = stamps[number] or core.file_stamp(os.fsencode(path))
    except (OSError, FastloadError) as error:
        raise NotInPlaceError(f"{source.title}: {error}") from error
    return ListedImages(list(known), cache, Places(np.array(stamps, np.uint64), offsets, sizes, numbers))


def _columns(known: KnownSamples, names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    """The fields of numbers of one type, by name, of all samples."""
    source = known.source
    arrays: dict[str, npt.NDArray[Any]] = {}
    kinds: dict[str, type] = {}
    try:
        for position in range(len(source) if names else 0):
            values = known.values(position)
            if not position:
                kinds = {name: type(values[name]) for name in names if type(values[name]) in _COLUMNS}
                arrays = {name: np.empty(len(source), _COLUMNS[kind]) for name, kind in kinds.items()}
            for name, kind in tuple(kinds.items()):
                if type(values[name]) is kind:
                    arrays[name][position] = values[name]
                else:
                    del kinds[name], arrays[name]
    except (OSError, FastloadError, OverflowError) as error:
        raise NotInPlaceError(f"{source.title}: {error}") from error
    return arrays
