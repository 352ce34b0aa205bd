"""Samples: a Dataset of the samples in files of other programs, such as tars, Arrow, Parquet or TFRecord
files, as they lie."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
from torch.utils.data import Dataset
from typing_extensions import Buffer

from fastload.common.images import open_image
from fastload.common.originals import OwnCode
from fastload.common.text import ShownAsText
from fastload.dataset.in_place.known import check_items
from fastload.errors import ArgumentError
from fastload.store import Field

if TYPE_CHECKING:
    from PIL.Image import Image

_IMAGE = "image"


class ReadableSource(Protocol):
    """The parts of a `fastload.sources.Source` that its samples are made by."""

    @property
    def title(self) -> str: ...

    @property
    def fields(self) -> tuple[Field, ...]: ...

    @property
    def classes(self) -> tuple[str, ...] | None: ...

    @property
    def concurrent(self) -> bool: ...

    def __len__(self) -> int: ...

    def name(self, position: int) -> str: ...

    def read(self, position: int) -> Any: ...


class Samples(ShownAsText, Dataset[Any]):
    """Samples of a source, read where they lie; `fastload.read` makes it, and describes them.

    Images are RGB Pillow images, transformed; other fields have the source's values. Indexing raises
    TypeError if the transform is no callable.

    Args:
        reopen: opens the source again, in another process; None: the source itself is pickled.

    Attributes:
        source: the source.
        transform: the transform.
        fields: names of the fields.
        classes: names of the labels 0, 1, ...; None: they have none.
    """

    def __init__(
        self,
        source: ReadableSource,
        transform: object = None,
        fields: Sequence[str] | None = None,
        reopen: Callable[[], ReadableSource] | None = None,
    ) -> None:
        self.source = source
        self._reopen = reopen
        self.transform = transform
        known = {_IMAGE: None, **{field.name: field for field in source.fields}}
        self.fields = tuple(known if fields is None else fields)
        for name in self.fields:
            if name not in known:
                raise ArgumentError(f"{source.title} has no field {name!r}; it has {', '.join(known)}")
            field = known[name]
            if field is not None and (field.handler.follows_image or field.handler.is_image):
                raise ArgumentError(
                    f"{source.title}: {name!r} ({field}) goes with the image through its transform, "
                    "and read() transforms images alone: "
                    "name the others with fields=[...], or attach it (fastload attach) and open PackedDataset"
                )
        if _IMAGE not in self.fields:
            raise ArgumentError(
                f"fields={list(self.fields)}: {_IMAGE!r} is missing; without images there is nothing "
                "to decode"
            )
        self.classes = source.classes

    @property
    def is_pair(self) -> bool:
        """True if a sample is (image, value)."""
        kinds = {field.name: field for field in self.source.fields}
        return len(self.fields) == 2 and self.fields[0] == _IMAGE and kinds[self.fields[1]].handler.can_label

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> Any:
        index = range(len(self))[index]
        if self.transform is not None and not callable(self.transform):
            raise TypeError(
                f"transform={self.transform!r} is run by FastLoader alone: iterate "
                "FastLoader(dataset), or give a callable, such as "
                "torchvision's Compose"
            )
        item = self.source.read(index)
        image = opened(item.image)
        values = {**owned(item.values), _IMAGE: image if self.transform is None else self.transform(image)}
        if self.is_pair:
            return tuple(values[name] for name in self.fields)
        return {name: values[name] for name in self.fields}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ if self._reopen is None else {**self.__dict__, "source": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._reopen is not None:
            self.source = self._reopen()

    def __repr__(self) -> str:
        return f"Samples({self.source.title}, {len(self)} samples, {', '.join(self.fields)})"


def owned(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values of fields as a program may have them: arrays that are part of a file's bytes, which are
    read-only, are copied."""
    return {
        name: value.copy() if isinstance(value, np.ndarray) and not value.flags.writeable else value
        for name, value in values.items()
    }


def opened(image: Buffer | npt.NDArray[np.uint8]) -> Image:
    """The RGB Pillow image of a file's bytes, or of pixels."""
    from PIL.Image import fromarray

    found = fromarray(image) if isinstance(image, np.ndarray) else open_image(io.BytesIO(image))
    return found.convert("RGB")


@dataclass(frozen=True)
class KnownSamples:
    """The parts of a recognised `Samples` that are read, as it is now."""

    source: ReadableSource
    fields: tuple[str, ...]
    is_pair: bool
    transform: object

    def values(self, index: int) -> Mapping[str, Any]:
        """The fields of a sample besides the image; without reading the image, where the source can."""
        for name in ("fields_of", "read_fields"):
            read: Callable[[int], Mapping[str, Any] | None] | None = getattr(self.source, name, None)
            if read is not None and (found := read(index)) is not None:
                return owned(found)
        return owned(self.source.read(index).values)


_ITEM = OwnCode((Samples, ("__getitem__", "__len__", "is_pair")), (__name__, ("opened",)))


def recognised(dataset: object) -> KnownSamples | None:
    """The dataset, if it is one of `Samples`; None for any other. Raises NotInPlaceError if code on the
    way to a sample is replaced."""
    if not isinstance(dataset, Samples):
        return None
    check_items(dataset, Samples, _ITEM)
    return KnownSamples(dataset.source, dataset.fields, dataset.is_pair, dataset.transform)
