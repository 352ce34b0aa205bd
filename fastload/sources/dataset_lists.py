"""Any map-style Dataset, of which samples have one image each, or a list of images of any length.

A list is the value of `images`, of a name of an image, or else the first list that holds images; in a tuple
the first part. Of Hugging Face's datasets the images' files are taken as they are stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from fastload.common.files import read_regular
from fastload.errors import PackError
from fastload.sources.dataset import DatasetSource, is_image, stored_form
from fastload.sources.names import IMAGE_KEYS
from fastload.sources.options import BoxFormat
from fastload.sources.protocol import Choice, Item, Source, Value

_SEARCHED = 256
"""Samples that are searched for one with images."""
_NONE = np.zeros((1, 1, 3), np.uint8)
"""Image that stands for a list."""


class _OneImage:
    """A Dataset as `DatasetSource` takes it: with one image in the place of each list.

    Attributes:
        images: the list of the sample that was asked for last.
    """

    def __init__(self, dataset: Any, key: Any) -> None:
        self._dataset, self._key = dataset, key
        self.images: Sequence[Any] = ()
        self._stored: Any = None
        if type(getattr(dataset, "features", None)).__module__.startswith("datasets."):
            self._stored = dataset.select_columns([key]).with_format("arrow")
            self._dataset = dataset.remove_columns([key])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._dataset, name)

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, position: int) -> Any:
        item = self._dataset[position]
        if self._stored is not None:
            self.images = self._stored[position].column(0)[0].as_py() or ()
            return {**item, "image": _NONE}
        if isinstance(item, Mapping):
            self.images = item[self._key] or ()
            return {**{key: value for key, value in item.items() if key != self._key}, "image": _NONE}
        self.images = item[0] or ()
        return (_NONE, *item[1:])


class ListsSource:
    """A Dataset whose samples have a list of images each, under a key; its other values are as
    `DatasetSource` has them."""

    concurrent = False

    def __init__(self, dataset: Any, key: Any, box_format: BoxFormat | None) -> None:
        self._view = _OneImage(dataset, key)
        self._one = DatasetSource(self._view, box_format)
        self.title = type(dataset).__name__
        self.layout = f"a Dataset ({self.title})"
        self.image_list = key if isinstance(key, str) else "images"
        self.fields, self.classes = self._one.fields, self._one.classes
        self.notices, self.box_format = self._one.notices, self._one.box_format

    def __len__(self) -> int:
        return len(self._view)

    def name(self, position: int) -> str:
        return f"{self.title}[{position}]"

    def described(self, position: int) -> tuple[dict[str, Value], int]:
        """The values of a sample, and the number of its images."""
        values = self._one.read(position).values
        return values, sum(image is not None for image in self._view.images)

    def read(self, position: int) -> Item:
        values = self._one.read(position).values
        made = [_stored(image, self.name(position)) for image in self._view.images if image is not None]
        lost = tuple(dict.fromkeys(kind for _, kinds in made for kind in kinds))
        return Item(self.name(position), b"", values, lost, images=[image for image, _ in made])


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
            if any(is_image(value) for value in parts.values()):
                return None
            named = [key for key in ("images", *IMAGE_KEYS) if key in parts]
            for key in (*named, *parts):
                if _is_list(parts[key]):
                    return key
            if not any(
                isinstance(value, list | tuple) and all(each is None for each in value)
                for value in parts.values()
            ):
                return None
    return None


def _is_list(value: object) -> bool:
    """Returns True for a list that has images, and nothing else but None."""
    if not isinstance(value, list | tuple):
        return False
    found = [each for each in value if each is not None]
    return bool(found) and all(is_image(each) for each in found)


def open_dataset(dataset: Any, box_format: BoxFormat | None) -> Source:
    """The source of a Dataset. Raises PackError."""
    try:
        return DatasetSource(dataset, box_format)
    except PackError:
        key = list_key(dataset)
        if key is None:
            raise
        return ListsSource(dataset, key, box_format)


OBJECT = Choice(
    lambda given: (
        hasattr(given.source, "__getitem__")
        and hasattr(given.source, "__len__")
        and not isinstance(given.source, str)
    ),
    lambda given: open_dataset(given.source, given.options.columns.box_format),
)
