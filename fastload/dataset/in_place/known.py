"""Datasets of image files and labels, recognised by class, attributes and code; the library that they come
from is not imported.

NOTE [ in place: what is recognised ]
A dataset is read in place only where its own `__getitem__` is known to do nothing but this: open the file of
a list, convert it to RGB, transform it, and return it with the label of a list. So the class that defines
`__getitem__` must be one of torchvision's that are listed here, `loader` must be torchvision's own, and
nothing may act on labels. Whatever else a subclass overrides acts when the dataset is made. The code of what
opens and returns a sample, in torchvision and in Pillow, must be these libraries' own: see NOTE [ originals:
how replaced code is found ]. The lists are read at every pass; a program may have shortened them.
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from fastload.common.originals import OwnCode, original
from fastload.dataset.in_place.formats import FORMATS

if TYPE_CHECKING:
    from PIL.Image import Image

_MODULE = "torchvision.datasets."
_LOADERS = ("default_loader", "pil_loader")
_OPENING = OwnCode(
    ("PIL.Image", ("open", "_decompression_bomb_check")),
    ("PIL.Image:Image", ("convert", "load")),
    ("PIL.ImageFile:ImageFile", ("load",)),
)
"""Code that opens a file's RGB image in Pillow."""
_LOADING = OwnCode(
    (f"{_MODULE}folder", (*_LOADERS, "accimage_loader")), ("torchvision", ("get_image_backend",))
)


class NotInPlaceError(Exception):
    """A dataset of files is not read in place; the text is the reason, as explain() prints it."""


@dataclass(frozen=True)
class KnownDataset:
    """The parts of a recognised dataset that are read, as it is now.

    Attributes:
        lists: the dataset's own lists, with paths and labels together or apart.
        pairs: (path, label) of every sample, made of them.
        transform: the transform of the images.
        open: returns the RGB Pillow image of a path, and raises the dataset's own exceptions.
    """

    lists: tuple[Any, ...]
    pairs: Callable[[], Iterable[tuple[Any, Any]]]
    transform: object
    open: Callable[[Any], Image]


def recognised(dataset: object) -> KnownDataset | None:
    """The dataset, if it is known; None for any other. See NOTE [ in place: what is recognised ].

    Raises:
        NotInPlaceError: its class is known, and something of it is not.
    """
    kind = type(dataset)
    owner = next((each for each in kind.__mro__ if "__getitem__" in vars(each)), object)
    read = _READERS.get(owner.__name__) if _is_theirs(owner) else None
    if read is None:
        if any(_is_theirs(each) and each.__name__ in _READERS for each in kind.__mro__):
            raise NotInPlaceError(f"{owner.__qualname__} has a __getitem__ of its own")
        return None
    check_items(dataset, owner, _item_code(owner))
    if getattr(dataset, "target_transform", None) is not None:
        raise NotInPlaceError("its target_transform is Python")
    lists, pairs = read(dataset)
    return KnownDataset(lists, pairs, _transform(dataset, owner.__name__), _opener(dataset, owner.__name__))


def check_items(dataset: object, owner: type[Any], code: OwnCode) -> None:
    """Raises NotInPlaceError unless the samples of a dataset are made by the `__getitem__` of `owner`,
    whose code is as it was imported."""
    kind: type[Any] = type(dataset)
    if kind.__getitem__ is not owner.__getitem__:
        raise NotInPlaceError(f"{kind.__qualname__} has a __getitem__ of its own")
    if hasattr(dataset, "__getitems__"):
        raise NotInPlaceError(f"{kind.__qualname__} has a __getitems__ of its own")
    if changed := code.replaced() or opening_replaced():
        raise NotInPlaceError(changed)


def _is_theirs(kind: type) -> bool:
    """Returns True if torchvision defines a class, and not only one with the same names."""
    return (
        kind.__module__.startswith(_MODULE)
        and getattr(sys.modules.get(kind.__module__), kind.__name__, None) is kind
    )


@cache
def _item_code(owner: type) -> OwnCode:
    """Code by which one of torchvision's classes makes a sample."""
    return OwnCode((owner, ("__getitem__",)), (f"{_MODULE}vision:StandardTransform", ("__call__",)))


def opening_replaced() -> str:
    """Clause that names the replaced part of Pillow's own way to open a file that native threads decode;
    "" if none was."""
    if found := next(
        filter(None, (code.replaced() for code in (_OPENING, *(each.own for each in FORMATS)))), ""
    ):
        return found
    openers = getattr(sys.modules.get("PIL.Image"), "OPEN", {})
    for each in FORMATS:
        kind, (module, _, name) = each.name.upper(), each.plugin.partition(":")
        if kind in openers and original(openers[kind][0]) is not getattr(sys.modules.get(module), name, None):
            return f"Pillow opens {kind} files by another plugin than its own"
    return ""


def _transform(dataset: Any, owner: str) -> object:
    """The transform that its `__getitem__` calls."""
    if owner not in _BY_TRANSFORMS:
        return dataset.transform
    both = dataset.transforms
    if both is None:
        return None
    if type(both).__name__ != "StandardTransform" or type(both).__module__ != f"{_MODULE}vision":
        raise NotInPlaceError("its transforms= takes image and label together")
    if both.target_transform is not None:
        raise NotInPlaceError("its target_transform is Python")
    return both.transform


def _opener(dataset: object, owner: str) -> Callable[[Any], Image]:
    loader = getattr(dataset, "loader", None)
    if loader is None:
        if owner not in _LISTS:
            raise NotInPlaceError("it has no loader")
        return OwnOpening(dataset, _LISTS[owner])
    folder = sys.modules[f"{_MODULE}folder"]
    if changed := _LOADING.replaced():
        raise NotInPlaceError(changed)
    if not any(loader is getattr(folder, name) for name in _LOADERS):
        raise NotInPlaceError(
            f"its loader {getattr(loader, '__qualname__', type(loader).__qualname__)} is not torchvision's"
        )
    backend = getattr(sys.modules.get("torchvision"), "get_image_backend", lambda: "PIL")()
    if loader is folder.default_loader and backend != "PIL":
        raise NotInPlaceError(f"torchvision's image backend is {backend}")
    opener: Callable[[Any], Image] = loader
    return opener


@dataclass(frozen=True)
class OwnOpening:
    """Opens images as a dataset without a loader does: by its own `__getitem__`, of a copy whose lists
    hold one path, untransformed."""

    dataset: Any
    names: tuple[str, str]

    def __call__(self, path: object) -> Image:
        one = copy.copy(self.dataset)
        for name, value in zip(self.names, ([path], [0]), strict=True):
            setattr(one, name, value)
        one.transform = one.target_transform = one.transforms = None
        image: Image = one[0][0]
        return image


_Read = tuple[tuple[Any, ...], Callable[[], Iterable[tuple[Any, Any]]]]


def _together(name: str) -> Callable[[Any], _Read]:
    """(path, label) in one list."""
    get = attrgetter(name)

    def read(dataset: object) -> _Read:
        found = get(dataset)
        return (found,), lambda: found

    return read


_LISTS = {
    "Flowers102": ("_image_files", "_labels"),
    "Food101": ("_image_files", "_labels"),
    "OxfordIIITPet": ("_images", "_labels"),
}
"""Names of the lists in the classes that have paths and labels apart."""


def _apart(owner: str) -> Callable[[Any], _Read]:
    """Paths and labels in a list each."""
    get = attrgetter(*_LISTS[owner])

    def read(dataset: object) -> _Read:
        found = get(dataset)
        if len(found[0]) != len(found[1]):
            raise NotInPlaceError(f"it has {len(found[0])} files and {len(found[1])} labels")
        return found, lambda: zip(*found, strict=True)

    return read


def _pets(dataset: Any) -> _Read:
    if list(dataset._target_types) != ["category"]:
        raise NotInPlaceError("its target_types are more than the category")
    return _apart("OxfordIIITPet")(dataset)


def _naturalist(dataset: Any) -> _Read:
    if list(dataset.target_type) != ["full"]:
        raise NotInPlaceError("its target_type is not the full category")
    if getattr(dataset, "loader", None) is None:
        raise NotInPlaceError(
            "it leaves images in their own mode: give it loader=torchvision.datasets.folder.default_loader"
        )
    index, root, names = dataset.index, dataset.root, dataset.all_categories
    return (index, names), lambda: ((os.path.join(root, names[label], name), label) for label, name in index)


def _own_modes(dataset: object) -> _Read:
    raise NotInPlaceError("it leaves images in their own mode: grey ones have one channel")


_READERS: dict[str, Callable[[Any], _Read]] = {
    "DatasetFolder": _together("samples"),
    "StanfordCars": _together("_samples"),
    "Places365": _together("imgs"),
    "Flowers102": _apart("Flowers102"),
    "Food101": _apart("Food101"),
    "OxfordIIITPet": _pets,
    "INaturalist": _naturalist,
    "Caltech101": _own_modes,
    "Caltech256": _own_modes,
}
"""Readers by the class that defines `__getitem__`; ImageFolder, ImageNet, EuroSAT and others derive from
DatasetFolder."""
_BY_TRANSFORMS = ("OxfordIIITPet", "Places365")
"""Names of the classes whose `__getitem__` calls `transforms`, and not `transform`."""
