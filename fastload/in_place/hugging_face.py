"""Hugging Face's datasets.Dataset, recognised by class, attributes and code; the library is not imported.

NOTE [ in place: which tables are recognised ]
A Dataset is read in place only where what it makes of its table is known: class and methods are the library's, and its format is a
transform that is exactly an OnImages of a column of images. All other columns come as Python values, as `to_pylist()` gives them: so none
may need decoding. The library turns images as their metadata say, so that JPEGs with such metadata are left to it. The code of what makes a
sample, in the library and in Pillow, must be these libraries' own: see NOTE [ originals: how replaced code is found ].
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastload.common.originals import OwnCode
from fastload.in_place.known import NotInPlaceError, opening_replaced
from fastload.in_place.on_images import OnImages

_MODULE = "datasets."
_MAKERS = ("__getitem__", "__getitems__", "_getitem", "__len__", "format", "data", "features")
"""Of Dataset: what a sample comes through."""
_FORMATTING = "datasets.formatting.formatting"
_SAMPLES = OwnCode(
    ("datasets.arrow_dataset:Dataset", _MAKERS),
    ("datasets.arrow_dataset", ("format_table", "get_formatter", "query_table")),
    "datasets.formatting",
    _FORMATTING,
    *(f"{_FORMATTING}:{name}" for name in ("PythonArrowExtractor", "PythonFeaturesDecoder", "PythonFormatter", "CustomFormatter")),
    ("datasets.features.features", ("decode_nested_example",)),
    ("datasets.features.features:Features", ("decode_example", "decode_column", "decode_batch")),
    ("datasets.features.image:Image", ("decode_example",)),
    (OnImages, ("__call__", "_one", "name")),
)
"""What a sample of a Dataset with OnImages is made by."""
_PLAIN = ("Value", "ClassLabel", "Translation", "TranslationVariableLanguages", "Array2D", "Array3D", "Array4D", "Array5D")
_LISTS = ("Sequence", "List", "LargeList")
_HOW = "end it in tensors with dataset.set_transform(fastload.OnImages(transform))"


@dataclass(frozen=True, eq=False)
class KnownTable:
    """What a recognised Dataset makes its samples of, as it is now.

    Attributes:
        table: its pyarrow.Table.
        indices: the pyarrow.Table of the rows that it has, in its order; None: all rows.
        fields: (name in the samples, column) of each field, in order.
        image: the column of images.
        feature: the library's description of it, which decodes.
        transform: of the images.
    """

    table: Any
    indices: Any
    fields: tuple[tuple[str, str], ...]
    image: str
    feature: Any
    transform: Any


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
    if any(getattr(own, name, None) is not getattr(theirs, name, None) or name in vars(dataset) for name in _MAKERS):
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
            raise NotInPlaceError(f"its column {name!r} is {type(kind).__name__}, which has to be decoded: remove_columns() it")
    indices = dataset._indices  # what select() and shuffle() keep; there is no public name
    return KnownTable(table, None if indices is None else indices.table, fields, call.column, feature, call.transform)


def _is(kind: type, name: str, module: str = "") -> bool:
    """Whether it is the library's class of that name, and not only called so."""
    named = kind.__name__ == name and kind.__module__.startswith(_MODULE + module)
    return named and getattr(sys.modules.get(kind.__module__), name, None) is kind


def _format(told: Mapping[str, Any], columns: list[str]) -> tuple[OnImages, tuple[tuple[str, str], ...]]:
    """The transform of a format, and the fields of a sample, in order."""
    call = told["format_kwargs"].get("transform") if told["type"] == "custom" else None
    if told["type"] is None:
        raise NotInPlaceError(f"its samples hold Pillow images, of which no batch is made: {_HOW}")
    if told["type"] != "custom":
        raise NotInPlaceError(f"its format is {told['type']!r}, which leaves images of their own sizes: {_HOW}")
    if type(call) is not OnImages or not vars(call).keys() <= {"transform", "column", "to"}:
        raise NotInPlaceError(f"its transform is Python that cannot be looked into: {_HOW}")
    asked = [name for name in columns if name in told["columns"]]
    rest = [name for name in columns if name not in asked] if told["output_all_columns"] else []
    fields = tuple((call.name if name == call.column and name in asked else name, name) for name in (*asked, *rest))
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
    """Whether its values are what Arrow has, without decoding."""
    if isinstance(feature, Mapping):
        return all(map(_is_plain, feature.values()))
    if isinstance(feature, list | tuple):
        return all(map(_is_plain, feature))
    if any(_is(type(feature), name) for name in _LISTS):
        return _is_plain(feature.feature)
    return any(_is(type(feature), name) for name in _PLAIN)
