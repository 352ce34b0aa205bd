"""ArrowDataset: the table of one of Hugging Face's datasets, as the native engine reads its images."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.errors import DatasetError
from fastload.in_place.base import JPEGS, InPlaceDataset, is_jpeg_by_name
from fastload.in_place.hugging_face import KnownTable
from fastload.in_place.known import NotInPlaceError
from fastload.in_place.listed import ListedImages
from fastload.in_place.mapped import MappedFiles, places_of

_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")
_COLUMNS = {**dict.fromkeys(_INTEGERS, np.int64), "float": np.float64, "double": np.float64, "bool": np.bool_}
"""Arrow types of which a column is kept as an array, and what torch makes of their Python values."""
_SAMPLED = 200
"""Images that are looked at to tell how many of all are JPEGs."""


class ArrowDataset(InPlaceDataset):
    """Samples of a table's rows, as dicts: the image, and the other columns as Python values.

    Its indices are rows of the table, and `positions` the rows that the dataset has: select() and shuffle() change only those.

    Args:
        dataset, known: as recognised.
        cache: the folder of index caches.
        before: an earlier one, whose list of images is kept where it is of the same table.

    Raises:
        NotInPlaceError: the images are not in files, or few of them are JPEGs.
        TransformError: the transform cannot be planned.
    """

    noun = "images"
    _known: KnownTable

    def __init__(
        self, dataset: Any, known: KnownTable, cache: str | os.PathLike[str] | None = None, before: ArrowDataset | None = None
    ) -> None:
        mapped, listed = MappedFiles(), None
        if before is not None and before._known.table is known.table and before._known.image == known.image:
            listed = before._listed
        listed = listed or _listed(known, mapped, cache)
        for column in (*(known.table.column(name) for _, name in known.fields), *(known.indices.columns if known.indices else ())):
            mapped.check(column)
        super().__init__(dataset, known.transform, listed)
        self._known = known
        self.positions = _positions(known.indices, len(listed))
        _check_jpegs(listed, self.positions)
        self.image_field = next(name for name, column in known.fields if column == known.image)
        self.fields = tuple(name for name, _ in known.fields)
        self._arrays = {name: found for name, column in known.fields if (found := _array(known.table.column(column))) is not None}
        self._values = {name: _Values(known.table.column(column)) for name, column in known.fields if name not in self._arrays}
        self._values.pop(self.image_field, None)
        self.stored_fields = tuple(self._values)
        self.kinds = {name: "image" if name == self.image_field else _kind(self._arrays.get(name)) for name in self.fields}

    def is_of(self, dataset: Any, known: KnownTable) -> bool:
        """Whether it is that dataset, with the table and format that it has now."""
        kept = self._known
        same = dataset is self.dataset and known.table is kept.table and known.indices is kept.indices
        return same and (known.fields, known.image, known.feature) == (kept.fields, kept.image, kept.feature)

    @property
    def kind(self) -> str:
        """The class of the dataset that it was made of."""
        return f"datasets.{type(self.dataset).__name__}"

    def column(self, name: str) -> npt.NDArray[Any]:
        """The values of a column of numbers."""
        return self._arrays[name]

    def column_values(self, indices: Sequence[int]) -> dict[str, list[Any]]:
        """The columns of numbers, by name: of some rows, as Python's."""
        rows = np.asarray(indices, np.int64)
        return {name: array[rows].tolist() for name, array in self._arrays.items()}

    def stored_values(self, index: int, names: Sequence[str] | None = None) -> dict[str, Any]:
        """The other columns, by name: of one row, as Python values."""
        try:
            return {name: self._values[name][index] for name in (self._values if names is None else names)}
        except Exception as error:
            self._name_sample(error, index)
            raise

    def assemble(self, values: dict[str, Any]) -> Any:
        """The values by field, as they are."""
        return values

    def _opened(self, index: int) -> Any:
        places = self._listed.places
        assert places is not None
        value: dict[str, Any] = {"bytes": None, "path": self._listed.path(index)}
        if places.sizes[index]:
            try:
                value = {"bytes": self._listed.files.read(index), "path": None}
            except DatasetError as error:
                raise self.sample_error(index, str(error)) from None
        return self._known.feature.decode_example(value).convert("RGB")


class _Values:
    """A column's values, one row at a time, as its own `to_pylist()` gives them."""

    def __init__(self, column: Any) -> None:
        self._chunks = column.chunks
        self._ends = list(accumulate(map(len, self._chunks)))

    def __getitem__(self, row: int) -> Any:
        number = bisect_right(self._ends, row)
        chunk = self._chunks[number]
        return chunk.slice(row - self._ends[number] + len(chunk), 1).to_pylist()[0]


def _listed(known: KnownTable, mapped: MappedFiles, cache: str | os.PathLike[str] | None) -> ListedImages:
    paths, places = places_of(known.table.column(known.image), mapped)
    return ListedImages(paths, cache, places)


def _positions(indices: Any, count: int) -> npt.NDArray[np.int64] | None:
    if indices is None:
        return None
    rows: npt.NDArray[np.int64] = indices.column(0).to_numpy().astype(np.int64)
    if len(rows) and not (0 <= rows.min() and rows.max() < count):
        raise NotInPlaceError(f"its indices go beyond the {count} rows of its table")
    return rows


def _array(column: Any) -> npt.NDArray[Any] | None:
    """A column of numbers; None for any other."""
    dtype = _COLUMNS.get(str(column.type))
    if dtype is None or column.null_count:
        return None
    return np.ascontiguousarray(column.to_numpy().astype(dtype))


def _kind(array: npt.NDArray[Any] | None) -> str:
    return "value" if array is None else "float" if array.dtype.kind == "f" else "int"


def _check_jpegs(listed: ListedImages, positions: npt.NDArray[np.int64] | None) -> None:
    """Looks at some images, spread over all.

    Raises:
        NotInPlaceError: few of them are JPEGs.
    """
    count = len(listed) if positions is None else len(positions)
    some = np.unique(np.linspace(0, count - 1, min(count, _SAMPLED)).astype(np.int64))
    rows = some if positions is None else positions[some]
    jpegs = sum(_is_jpeg(listed, int(row)) for row in rows)
    if jpegs < JPEGS * len(rows):
        raise NotInPlaceError(f"{jpegs} of {len(rows)} of its images are JPEGs: pack it (fastload pack)")


def _is_jpeg(listed: ListedImages, row: int) -> bool:
    assert listed.places is not None
    path = listed.path(row)
    if not listed.places.sizes[row]:
        return is_jpeg_by_name(path)
    try:
        with open(path, "rb", buffering=0) as file:
            file.seek(int(listed.places.offsets[row]))
            return file.read(2) == b"\xff\xd8"
    except OSError as error:
        raise NotInPlaceError(f"{path} cannot be read: {error.strerror}") from error
