"""ArrowDataset: the table of one of Hugging Face's datasets, as native threads read its images. OnImages: an
image transform in a form that `set_transform` takes and FastLoader can read. A Dataset is recognised by
class, attributes and code; the library is not imported.

NOTE [ in place: which tables are recognised ]
A Dataset is read in place only if all of its work on the table is known: class and methods are the library's,
and its format is a transform that is exactly an OnImages of a column of images. All other columns come as
Python values, as `to_pylist()` returns them: so none may need decoding. The library turns images as their
metadata say, so that JPEGs with such metadata are left to it. The code that makes a sample, in the library
and in Pillow, must be these libraries' own: see NOTE [ originals: how replaced code is found ].
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastload.common.originals import OwnCode
from fastload.dataset.in_place.base import InPlaceDataset
from fastload.dataset.in_place.known import NotInPlaceError, opening_replaced
from fastload.dataset.in_place.listed import ListedImages
from fastload.dataset.in_place.mapped import MappedFiles, places_of
from fastload.errors import ArgumentError, TransformError
from fastload.remote.kept_table import CachePlace
from fastload.transforms.ops import Transform
from fastload.transforms.steps import flatten

if TYPE_CHECKING:
    import pyarrow as pa
    from PIL.Image import Image


class OnImages:
    """Converts each image of a batch to RGB and transforms it; other columns stay as they are.

    ``dataset.set_transform(OnImages(transform))`` works with any loader. In FastLoader native threads do
    `transform`, and read the images where they lie.

    Args:
        transform: as torchvision's datasets have it, or a list; None: the conversion alone. Steps of
            fastload run in FastLoader only.
        column: the column of images.
        to: name of the images in the samples; None: `column`.
    """

    def __init__(self, transform: object, column: str = "image", to: str | None = None) -> None:
        self.transform = transform
        self.column = column
        self.to = to

    def __repr__(self) -> str:
        named = "" if self.to is None else f", to={self.to!r}"
        return f"OnImages({self.transform!r}, {self.column!r}{named})"

    @property
    def name(self) -> str:
        """The name of the images in the samples."""
        return self.column if self.to is None else self.to

    def __call__(self, batch: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
        """The batch with its images transformed, columns in their order.

        Raises:
            ArgumentError: it has no such column, or one of the name that the images are to have.
            TransformError: a step is fastload's own.
        """
        if self.column not in batch:
            raise ArgumentError(
                f"OnImages: there is no column {self.column!r} among {', '.join(map(repr, batch))}"
            )
        if self.name != self.column and self.name in batch:
            raise ArgumentError(f"OnImages: to={self.to!r} is the name of another column")
        changed = {self.column: (self.name, list(map(self._one, batch[self.column])))}
        return dict(changed.get(name, (name, values)) for name, values in batch.items())

    def _one(self, image: Image) -> object:
        found: object = image.convert("RGB")
        for step in flatten(self.transform):
            if isinstance(step, Transform):
                raise TransformError(
                    f"OnImages: {step!r} is run by FastLoader's native threads alone, which do not "
                    "read this dataset here: "
                    "loader.explain() says why, such as files that are gone; other loaders take "
                    "torchvision's steps"
                )
            found = step(found)
        return found


_MODULE = "datasets."
_MAKERS = ("__getitem__", "__getitems__", "_getitem", "__len__", "format", "data", "features")
"""Attributes of Dataset through which a sample passes."""
_FORMATTING = "datasets.formatting.formatting"
_SAMPLES = OwnCode(
    ("datasets.arrow_dataset:Dataset", _MAKERS),
    ("datasets.arrow_dataset", ("format_table", "get_formatter", "query_table")),
    "datasets.formatting",
    _FORMATTING,
    *(
        f"{_FORMATTING}:{name}"
        for name in ("PythonArrowExtractor", "PythonFeaturesDecoder", "PythonFormatter", "CustomFormatter")
    ),
    ("datasets.features.features", ("decode_nested_example",)),
    ("datasets.features.features:Features", ("decode_example", "decode_column", "decode_batch")),
    ("datasets.features.image:Image", ("decode_example",)),
    (OnImages, ("__call__", "_one", "name")),
)
"""Code that makes a sample of a Dataset with OnImages."""
_PLAIN = (
    "Value",
    "ClassLabel",
    "Translation",
    "TranslationVariableLanguages",
    "Array2D",
    "Array3D",
    "Array4D",
    "Array5D",
)
_LISTS = ("Sequence", "List", "LargeList")
_HOW = "end it in tensors with dataset.set_transform(fastload.OnImages(transform))"


@dataclass(frozen=True, eq=False)
class KnownTable:
    """The parts of which a recognised Dataset makes its samples, as it is now.

    Attributes:
        table: its pyarrow.Table.
        indices: the pyarrow.Table of its rows, in its order; None: all rows.
        fields: (name in the samples, column) of each field, in order.
        image: the column of images.
        feature: the library's description of it, which decodes.
        transform: the transform of the images.
    """

    table: pa.Table
    indices: pa.Table | None
    fields: tuple[tuple[str, str], ...]
    image: str
    feature: Any
    transform: object


def recognised(dataset: Any) -> KnownTable | None:
    """The dataset, if it is known; None for any other. See NOTE [ in place: which tables are recognised ].

    Raises:
        NotInPlaceError: it holds images, and something of it is not known.
    """
    own = type(dataset)
    theirs = next((each for each in own.__mro__ if _is(each, "Dataset", "arrow_dataset")), None)
    if theirs is None:
        return None
    features = dataset.features
    if not any(_is(type(feature), "Image") for feature in features.values()):
        return None
    if any(
        getattr(own, name, None) is not getattr(theirs, name, None) or name in vars(dataset)
        for name in _MAKERS
    ):
        raise NotInPlaceError(f"{own.__qualname__} has code of its own for samples")
    if changed := _SAMPLES.replaced() or opening_replaced():
        raise NotInPlaceError(changed)
    table = getattr(dataset.data, "table", None)
    if table is None or not hasattr(dataset, "_indices"):
        raise NotInPlaceError("this version of the library keeps its table in another way")
    call, fields = _format(dataset.format, table.column_names)
    if call.column not in dict(fields).values():
        raise NotInPlaceError(f"OnImages is of the column {call.column!r}, which it does not get")
    feature = features.get(call.column)
    _check_image(call.column, feature, table.column(call.column).type)
    for _, name in fields:
        kind = features.get(name)
        if name != call.column and not _is_plain(kind):
            raise NotInPlaceError(
                f"its column {name!r} is {type(kind).__name__}, which has to be decoded: remove_columns() it"
            )
    indices = dataset._indices  # the indices of select() and shuffle(); they have no public name
    return KnownTable(
        table, None if indices is None else indices.table, fields, call.column, feature, call.transform
    )


def _is(kind: type, name: str, module: str = "") -> bool:
    """Returns True if a class is the library's class of that name, and not only called so."""
    named = kind.__name__ == name and kind.__module__.startswith(_MODULE + module)
    return named and getattr(sys.modules.get(kind.__module__), name, None) is kind


def _format(told: Mapping[str, Any], columns: list[str]) -> tuple[OnImages, tuple[tuple[str, str], ...]]:
    """The transform of a format, and the fields of a sample, in order."""
    call = told["format_kwargs"].get("transform") if told["type"] == "custom" else None
    if told["type"] is None:
        raise NotInPlaceError(f"its samples hold Pillow images, of which no batch is made: {_HOW}")
    if told["type"] != "custom":
        raise NotInPlaceError(
            f"its format is {told['type']!r}, which leaves images of their own sizes: {_HOW}"
        )
    if type(call) is not OnImages or not vars(call).keys() <= {"transform", "column", "to"}:
        raise NotInPlaceError(f"its transform is Python that cannot be looked into: {_HOW}")
    asked = [name for name in columns if name in told["columns"]]
    rest = [name for name in columns if name not in asked] if told["output_all_columns"] else []
    fields = tuple(
        (call.name if name == call.column and name in asked else name, name) for name in (*asked, *rest)
    )
    if len({name for name, _ in fields}) != len(fields):
        raise NotInPlaceError(f"OnImages calls its images {call.name!r}, as another column is called")
    if call.column in rest:
        raise NotInPlaceError(f"OnImages is of the column {call.column!r}, which it does not get")
    return call, fields


def _check_image(name: str, feature: Any, stored: Any) -> None:
    if not _is(type(feature), "Image") or not feature.decode:
        raise NotInPlaceError(f"its column {name!r} is not images that the library decodes")
    if getattr(feature, "mode", None) not in (None, "RGB"):
        raise NotInPlaceError(f"its images are converted to {feature.mode} first")
    kinds = {stored.field(i).name: str(stored.field(i).type) for i in range(stored.num_fields)}
    if kinds not in ({"bytes": "binary", "path": "string"}, {"bytes": "large_binary", "path": "string"}):
        raise NotInPlaceError(f"its column {name!r} is stored as {stored}")


def _is_plain(feature: Any) -> bool:
    """Returns True if the feature's values are Arrow's, without decoding."""
    if isinstance(feature, Mapping):
        return all(map(_is_plain, feature.values()))
    if isinstance(feature, list | tuple):
        return all(map(_is_plain, feature))
    if any(_is(type(feature), name) for name in _LISTS):
        return _is_plain(feature.feature)
    return any(_is(type(feature), name) for name in _PLAIN)


_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")
_COLUMNS = {**dict.fromkeys(_INTEGERS, np.int64), "float": np.float64, "double": np.float64, "bool": np.bool_}
"""Arrow types of which a column is kept as an array, and what torch makes of their Python values."""


class ArrowDataset(InPlaceDataset):
    """Samples of a table's rows, as dicts: the image, and the other columns as Python values.

    Its indices are rows of the table, and `positions` the rows that the dataset has: select() and shuffle()
    change only those.

    Args:
        dataset, known: the dataset, and its parts as recognised.
        cache: folder of the index caches.
        before: an earlier one, whose list of images is kept where it is of the same table.

    Raises:
        NotInPlaceError: the images are not in files, or few of them are JPEGs, PNGs or WebPs.
        TransformError: the transform cannot be planned.
    """

    noun = "images"
    _known: KnownTable

    def __init__(
        self,
        dataset: object,
        known: KnownTable,
        cache: CachePlace | None = None,
        before: object = None,
    ) -> None:
        mapped, listed = MappedFiles(), None
        if (
            isinstance(before, ArrowDataset)
            and before._known.table is known.table
            and before._known.image == known.image
        ):
            listed = before._listed
        listed = listed or _listed(known, mapped, cache)
        for column in (
            *(known.table.column(name) for _, name in known.fields),
            *(known.indices.columns if known.indices else ()),
        ):
            mapped.check(column)
        super().__init__(dataset, known.transform, listed)
        self._known = known
        self.positions = _positions(known.indices, len(listed))
        listed.check_formats(self.positions)
        self.image_field = next(name for name, column in known.fields if column == known.image)
        self.fields = tuple(name for name, _ in known.fields)
        self._arrays = {
            name: found
            for name, column in known.fields
            if (found := _array(known.table.column(column))) is not None
        }
        self._values = {
            name: _Values(known.table.column(column))
            for name, column in known.fields
            if name not in self._arrays
        }
        self._values.pop(self.image_field, None)
        self.stored_fields = tuple(self._values)
        self.kinds = {
            name: "image" if name == self.image_field else _kind(self._arrays.get(name))
            for name in self.fields
        }

    @staticmethod
    def sizes_of(known: KnownTable) -> npt.NDArray[np.int64]:
        """(number, 2) heights and widths of its images, as header_sizes."""
        listed = _listed(known, MappedFiles(), None)
        positions = _positions(known.indices, len(listed))
        return listed.sizes() if positions is None else listed.sizes()[positions]

    def is_of(self, dataset: object, known: KnownTable) -> bool:
        """Returns True if it is made of that dataset, with the table and format that the dataset has now."""
        kept = self._known
        same = dataset is self.dataset and known.table is kept.table and known.indices is kept.indices
        return same and (known.fields, known.image, known.feature) == (kept.fields, kept.image, kept.feature)

    @property
    def kind(self) -> str:
        """The class of the dataset that it was made of."""
        return f"datasets.{type(self.dataset).__name__}"

    def _stored(self, index: int, names: Sequence[str]) -> dict[str, Any]:
        return {name: self._values[name][index] for name in names}

    def assemble(self, values: dict[str, Any]) -> Any:
        """The values by field, as they are."""
        return values

    def _opened(self, index: int) -> Image:
        data = self._bytes(index)
        value = {"bytes": data, "path": self._listed.path(index) if data is None else None}
        image: Image = self._known.feature.decode_example(value)
        return image.convert("RGB")


class _Values:
    """A column's values, one row at a time, as its own `to_pylist()` gives them."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        self._chunks = column.chunks
        self._ends = list(accumulate(map(len, self._chunks)))

    def __getitem__(self, row: int) -> object:
        number = bisect_right(self._ends, row)
        chunk = self._chunks[number]
        return chunk.slice(row - self._ends[number] + len(chunk), 1).to_pylist()[0]


def _listed(known: KnownTable, mapped: MappedFiles, cache: CachePlace | None) -> ListedImages:
    paths, places = places_of(known.table.column(known.image), mapped)
    return ListedImages(paths, cache, places)


def _positions(indices: pa.Table | None, count: int) -> npt.NDArray[np.int64] | None:
    if indices is None:
        return None
    rows: npt.NDArray[np.int64] = indices.column(0).to_numpy().astype(np.int64)
    if len(rows) and not (0 <= rows.min() and rows.max() < count):
        raise NotInPlaceError(f"its indices go beyond the {count} rows of its table")
    return rows


def _array(column: pa.ChunkedArray) -> npt.NDArray[Any] | None:
    """A column of numbers; None for any other."""
    dtype = _COLUMNS.get(str(column.type))
    if dtype is None or column.null_count:
        return None
    return np.ascontiguousarray(column.to_numpy().astype(dtype))


def _kind(array: npt.NDArray[Any] | None) -> str:
    if array is None:
        return "value"
    return "float" if array.dtype.kind == "f" else "int"
