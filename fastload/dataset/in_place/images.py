"""Images: a Dataset of image files without labels, which FastLoader reads in place with native threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torch.utils.data import Dataset

from fastload.common.files import expanded
from fastload.common.folders import IMAGE_EXTENSIONS, walk
from fastload.common.images import open_image
from fastload.common.originals import OwnCode
from fastload.common.text import ShownAsText
from fastload.dataset.in_place.known import KnownDataset, check_items
from fastload.errors import ArgumentError

if TYPE_CHECKING:
    from PIL.Image import Image


class Images(ShownAsText, Dataset[Any]):
    """Image files without labels: a sample is ``(image, index)``, the RGB Pillow image, transformed, and its
    place in `paths`.

    Args:
        source: a folder, whose images at any depth come in ImageFolder's order, or a sequence of paths.
        transform: see `fastload.read`.

    Attributes:
        paths: the files, in the order of the samples.

    Raises:
        ArgumentError: no image is found.
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        transform: Callable[[Any], Any] | None = None,
    ):
        self.transform = transform
        self._title = ""
        if isinstance(source, str | os.PathLike):
            self._title = expanded(source)
            found = ((folder, name) for folder, names in walk(self._title) for name in names)
            self.paths = [
                os.path.join(folder, name)
                for folder, name in found
                if name.lower().endswith(IMAGE_EXTENSIONS)
            ]
        else:
            self.paths = [os.fspath(path) for path in source]
        if not self.paths:
            where = (
                f"{self._title}: no image in it, by the names of its files"
                if self._title
                else "Images([]): no paths"
            )
            raise ArgumentError(
                f"{where}; give a folder with {', '.join(IMAGE_EXTENSIONS)}, or a list of paths"
            )

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        index = range(len(self.paths))[index]
        if self.transform is not None and not callable(self.transform):
            raise TypeError(
                f"transform={self.transform!r} is run by FastLoader alone: iterate "
                "FastLoader(dataset), or give a callable, such as "
                "torchvision's Compose"
            )
        image = opened(self.paths[index])
        return (image if self.transform is None else self.transform(image)), index

    def __repr__(self) -> str:
        return f"Images({self._title or 'a list'}, {len(self)} images)"


def opened(path: str) -> Image:
    """The RGB Pillow image of a file."""
    with open(path, "rb") as file:
        return open_image(file).convert("RGB")


_ITEM = OwnCode((Images, ("__getitem__",)), (__name__, ("opened",)))


def recognised(dataset: object) -> KnownDataset | None:
    """The dataset, if it is one of `Images`; None for any other. Raises NotInPlaceError if something of
    its way to a sample is replaced."""
    if not isinstance(dataset, Images):
        return None
    check_items(dataset, Images, _ITEM)
    paths = dataset.paths
    return KnownDataset(
        (paths,), lambda: zip(paths, range(len(paths)), strict=True), dataset.transform, opened
    )
