"""Any map-style Dataset, of which samples have one image each, or a list of images of any length.

A list is the value of `images`, of a name of an image, or else the first list that holds images; in a tuple
the first part. None is an empty list. A value named `image` beside a list is the field `image_`. Of Hugging
Face's datasets the types of the columns say which has lists, and the images' files are taken as they are
stored.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from fastload.common.files import read_regular
from fastload.errors import PackError
from fastload.sources.arrow_columns import ArrowColumns, file_columns
from fastload.sources.dataset import DatasetSource, is_image, names_image, stored_form
from fastload.sources.names import IMAGE_KEYS
from fastload.sources.object_column import json_value
from fastload.sources.options import ColumnOptions
from fastload.sources.protocol import IMAGE_FIELD, Choice, Item, Source, Value

_SEARCHED = 256
"""Samples that are searched for one with images."""
_NONE = np.zeros((1, 1, 3), np.uint8)
"""Image that stands for a list."""


class ListsSource(DatasetSource):
    """A Dataset whose samples have a list of images each, under a key, which is 0 in tuples; their other
    values are as `DatasetSource` has them, which finds an image in the place of the list.

    `stored`: columns of lists of images, where it is one of Hugging Face's library: they are read undecoded.
    """

    def __init__(
        self, dataset: Any, key: Any, options: ColumnOptions, stored: Sequence[str] | None = None
    ) -> None:
        self._key, self._images = key, list[Any]()
        self.image_list = key if isinstance(key, str) else "images"
        self.image_name = options.image if stored else None
        self._stored: Any = None
        if stored:
            form = dataset.format
            others = [column for column in form["columns"] if column not in stored]
            self._stored = dataset.with_format("arrow", columns=stored)
            dataset = dataset.with_format(form["type"], columns=others, **form["format_kwargs"])
        super().__init__(dataset, options.box_format)
        self.form = None

    def _get(self, position: int) -> Any:
        item = super()._get(position)
        if self._stored is not None:
            with self._named(position, "the Dataset raised"):
                lists = self._stored[position].to_pylist()[0]
                item = {**item, **{key: json_value(lists[key]) for key in lists}, self._key: lists[self._key]}
        images = item
        if isinstance(item, Mapping):
            images = item.get(self._key, item)
            own = {IMAGE_FIELD: f"{IMAGE_FIELD}_", self._key: IMAGE_FIELD}
            found = {own.get(key, key): value for key, value in item.items()}
            if len(found) < len(item):
                raise PackError(
                    f"{self.name(position)}: its 'image' is the field 'image_', as another is: rename one"
                )
            item = {**found, IMAGE_FIELD: _NONE}
        elif isinstance(item, tuple | list) and item:
            images, item = item[0], (_NONE, *item[1:])
        listed = _listed(images)
        if listed is None:
            raise PackError(f"{self.name(position)}: its {self.image_list!r} is no list of images")
        self._images = listed
        return item

    def described(self, position: int) -> tuple[dict[str, Value], int]:
        """The values of a sample, and the number of its images."""
        return super().read(position).values, len(self._images)

    def read(self, position: int) -> Item:
        name, values = self.name(position), super().read(position).values
        made = [_stored(image, name) for image in self._images]
        lost = tuple(dict.fromkeys(kind for _, kinds in made for kind in kinds))
        return Item(name, b"", values, lost, images=[image for image, _ in made])


def _stored(image: Any, name: str) -> tuple[Any, tuple[str, ...]]:
    """An image as Item has it, and kinds of losses in reading it; Hugging Face's has bytes or a path."""
    if isinstance(image, Mapping) and {"bytes", "path"} <= image.keys():
        if image["bytes"] is None and not image["path"]:
            raise PackError(f"{name}: an image has neither bytes nor a path")
        return (read_regular(image["path"]) if image["bytes"] is None else bytes(image["bytes"])), ()
    return stored_form(image, name)


def list_key(dataset: Any) -> Any:
    """The key of the lists of images in the samples of a Dataset; None: they have an image each, or nothing
    tells."""
    for position in range(min(_SEARCHED, len(dataset))):
        with suppress(Exception):  # it is raised again where the Dataset is read
            item = dataset[position]
            parts: Mapping[Any, Any] = item if isinstance(item, Mapping) else {}
            if isinstance(item, tuple | list) and item:
                parts = {0: item[0]}
            if any(is_image(value) for value in parts.values()) or _names_picture(parts):
                return None
            lists = {key: found for key, value in parts.items() if (found := _listed(value)) is not None}
            for key in ("images", *IMAGE_KEYS, *lists):
                if (found := lists.get(key)) and all(map(is_image, found)):
                    return key
            if all(lists.values()):
                return None
    return None


def _listed(value: object) -> list[Any] | None:
    """The elements of a list that are not None; [] for None. None: the value is no list."""
    if value is None or isinstance(value, list | tuple):
        return [each for each in value or () if each is not None]
    return None


def _names_picture(item: object) -> bool:
    """Returns True if an item has one picture, or the path of one, by a name of an image."""
    parts: Mapping[Any, Any] = item if isinstance(item, Mapping) else {}
    return any(names_image(parts[name]) for name in IMAGE_KEYS if name in parts)


def picture_columns(dataset: Any) -> Any:
    """The pyarrow.Schema of the images, and of lists of them, that a dataset of Hugging Face's library shows;
    None: another Dataset."""
    theirs: Any = getattr(sys.modules.get("datasets"), "Dataset", ())  # whoever has made one has imported it
    if not isinstance(dataset, theirs) or dataset.format["type"] == "custom":
        return None
    names = file_columns(dataset.features.arrow_schema)
    shown = [name for name in names if name in dataset.format["columns"]]
    return dataset.select_columns(shown).features.arrow_schema


def open_dataset(dataset: Any, options: ColumnOptions) -> Source:
    """The source of a Dataset. Raises PackError."""
    pictures, alone = picture_columns(dataset), False
    lists = [field.name for field in pictures or () if hasattr(field.type, "value_type")]
    if lists and options.image not in lists:
        with suppress(Exception):  # it is raised again where the Dataset is read
            alone = _names_picture(dataset[0])
    if lists and not alone:
        if column := ArrowColumns(type(dataset).__name__, pictures, options).image_list:
            return ListsSource(dataset, column, options, lists)
    try:
        single = DatasetSource(dataset, options.box_format)
    except PackError:
        if (key := list_key(dataset)) is None:
            raise
    else:
        if single.has_image or (key := list_key(dataset)) is None:
            return single
    return ListsSource(dataset, key, options)


OBJECT = Choice(
    lambda given: (
        hasattr(given.source, "__getitem__")
        and hasattr(given.source, "__len__")
        and not isinstance(given.source, str)
    ),
    lambda given: open_dataset(given.source, given.options.columns),
)
