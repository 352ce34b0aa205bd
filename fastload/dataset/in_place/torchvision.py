"""FileDataset: the files and labels of one of torchvision's datasets, as native threads read them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastload.common.images import open_image
from fastload.dataset.in_place.base import InPlaceDataset, checked_path
from fastload.dataset.in_place.formats import NATIVE, suffixes
from fastload.dataset.in_place.known import KnownDataset, NotInPlaceError, OwnOpening
from fastload.dataset.in_place.listed import ListedImages
from fastload.remote.kept_table import CachePlace

if TYPE_CHECKING:
    from PIL.Image import Image


class FileDataset(InPlaceDataset):
    """Samples (image, label) of image files.

    Raises:
        NotInPlaceError: the lists are not paths and integers, or few of the files are JPEGs, PNGs or WebPs.
        TransformError: the transform cannot be planned.
    """

    fields = ("image", "label")
    kinds = {"image": "image", "label": "int"}  # noqa: RUF012
    image_field = "image"

    def __init__(
        self,
        dataset: object,
        known: KnownDataset,
        cache: CachePlace | None = None,
        before: object = None,
    ) -> None:
        paths, labels, self._plain = _divided(known)
        super().__init__(dataset, known.transform, ListedImages(paths, cache))
        self._arrays = {"label": labels}
        self._lists = tuple(list(each) for each in known.lists)
        self._open = known.open

    @staticmethod
    def sizes_of(known: KnownDataset) -> npt.NDArray[np.int64]:
        """(number, 2) heights and widths of its images, as header_sizes."""
        return ListedImages([checked_path(path) for path, _ in known.pairs()], None).sizes()

    def is_of(self, dataset: object, known: KnownDataset) -> bool:
        """Returns True if it is made of that dataset, with the lists that the dataset has now."""
        same = dataset is self.dataset and known.open == self._open and len(known.lists) == len(self._lists)
        return same and all(now == kept for now, kept in zip(known.lists, self._lists, strict=True))

    def column_values(self, indices: Sequence[int]) -> dict[str, list[Any]]:
        """The labels of some samples, as the dataset gives them: Python's integers, or NumPy's where its
        list has those."""
        labels = self._arrays["label"][np.asarray(indices, np.int64)]
        return {"label": labels.tolist() if self._plain else list(labels)}

    def assemble(self, values: dict[str, Any]) -> Any:
        """The pair of a sample's, or a batch's, image and label."""
        return values["image"], values["label"]

    def _opened(self, index: int) -> Image:
        by_loader = not isinstance(self._open, OwnOpening)
        data = self._listed.slow_bytes(index) if by_loader else None
        if data is not None:
            with suppress(Exception):  # those of the dataset's own loader name the file
                return open_image(io.BytesIO(data)).convert("RGB")
        return self._open(self._listed.path(index))


def _divided(known: KnownDataset) -> tuple[list[str], npt.NDArray[Any], bool]:
    """Paths, labels, and whether those are Python's integers."""
    paths, labels = [], []
    for path, label in known.pairs():
        paths.append(checked_path(path))
        labels.append(label)
    kinds = set(map(type, labels)) or {int}
    kind = kinds.pop()
    if kinds or not (kind is int or issubclass(kind, np.integer)):
        raise NotInPlaceError("its labels are not integers of one type")
    native = suffixes()
    count = sum(path.lower().endswith(native) for path in paths)
    if count < NATIVE * len(paths):
        raise NotInPlaceError(
            f"{count} of its {len(paths)} files are JPEGs, PNGs or WebPs by their names: pack it "
            "(fastload pack)"
        )
    try:
        return paths, np.array(labels, np.int64 if kind is int else kind), kind is int
    except OverflowError:
        raise NotInPlaceError("a label is beyond 64 bits") from None
