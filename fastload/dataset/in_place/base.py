"""InPlaceDataset: base of all datasets that are read in place, as native threads and the loader need them.

NOTE [ in place: who opens a file ]
Native threads read and decode every image that is a whole and sound file of `formats.FORMATS`. Any other is
opened as the dataset itself opens it, by a thread of Python's, for that row alone: a TIFF, a PNG or WebP of a
rare kind (NOTE [ png: what is decoded here ]), a JPEG that is cut or damaged, a progressive one that stops
before full precision (see NOTE [ jpeg: files that decoders smooth ]). An exception of that opening is raised
as it is. So the pixels before the resample are Pillow's for every image, and errors are those that the
program had before.
"""

from __future__ import annotations

import os
import sys
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from fastload._native import core
from fastload.batch.private_draws import PrivateDraws
from fastload.common.limits import default_max_pixels
from fastload.dataset.in_place.known import NotInPlaceError
from fastload.dataset.in_place.listed import ListedImages
from fastload.dataset.native_row import NativeImage, NativeImages
from fastload.dataset.native_source import NativeSource
from fastload.errors import DatasetError, SampleError
from fastload.store.kinds import KINDS
from fastload.store.kinds.base import Collated
from fastload.transforms.ops import Transform
from fastload.transforms.spec import Plan
from fastload.transforms.steps import converts, entries_of, flatten

if TYPE_CHECKING:
    from PIL.Image import Image


class InPlaceDataset(NativeSource):
    """Samples of images in place. Made and kept by InPlaceDatasets.

    Attributes:
        dataset: the program's own, of which it was made.

    Raises:
        TransformError: the transform cannot be planned.
    """

    in_place = True
    noun = "files"
    takes_lists_indices = True
    runs_programs_code = True
    opens_images = True
    fields: tuple[str, ...] = ()
    kinds: Mapping[str, str] = {}
    image_field: str = ""
    stored_fields: Sequence[str] = ()
    seed: int | None = None

    def __init__(self, dataset: object, transform: object, listed: ListedImages) -> None:
        super().__init__(transform)
        self.dataset = dataset
        self._listed = listed
        self._arrays: dict[str, npt.NDArray[Any]] = {}  # the columns, by name

    @property
    def is_batched_natively(self) -> bool:
        """True if native threads can make batches of the delivered fields, whatever the transform."""
        return self.image_field in self.fields

    @abstractmethod
    def is_of(self, dataset: object, known: Any) -> bool:
        """Returns True if it is made of that dataset, whose parts are as recognised now."""

    @property
    def kind(self) -> str:
        """The class of the dataset that it was made of."""
        return type(self.dataset).__name__

    def __len__(self) -> int:
        return len(self._listed)

    @property
    def max_pixels(self) -> int:
        """The limit of native decoding, as Pillow's own is now: Pillow opens larger images, and warns or
        raises."""
        from PIL import Image

        limit = Image.MAX_IMAGE_PIXELS
        return default_max_pixels() if limit is None else max(0, min(default_max_pixels(), int(limit)))

    @property
    def source(self) -> core.Source:
        """The dataset as the engine reads it."""
        return core.Source(self._listed.files, list(self.plan.programs), 0, self.max_pixels)

    @cached_property
    def images(self) -> NativeImages:
        """The one image of a sample's native row."""
        # Refers to no dataset, which keeps it: that frees itself.
        return NativeImages([NativeImage(self.image_field, 0, None, _no_sizes)])

    def typed(self, images: list[Any]) -> list[Any]:
        """Images of samples, or lists of their views, with the types of the dataset's own:
        tv_tensors.Image after v2.ToImage."""
        tv = self.image_types
        if not any(tv):
            return images
        kind = sys.modules["torchvision.tv_tensors"].Image
        if not self.plan.views:
            return [image.as_subclass(kind) for image in images]
        return [
            [view.as_subclass(kind) if of_tv else view for view, of_tv in zip(views, tv, strict=True)]
            for views in images
        ]

    @property
    def alike(self) -> tuple[Any, ...]:
        return type(self), self.fields, tuple(self.kinds.values())

    @property
    def alike_in_rows(self) -> tuple[Any, ...]:
        return self.image_types

    @property
    def collated(self) -> Mapping[str, Collated | None]:
        return {name: KINDS[kind].collated if kind in KINDS else None for name, kind in self.kinds.items()}

    @property
    def image_types(self) -> tuple[bool, ...]:
        """For each view of an image, or for the image, True if it is a tv_tensors.Image."""
        return tuple(view.tv_image for view in self.plan.views or (self.plan,))

    def kept(self) -> str:
        """Text on what is learnt of the files, and where it is kept."""
        return self._listed.report()

    @property
    def sizes(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Heights and widths of the stored images: not known before they are read; nobody asks, since all
        end at one size."""
        return _no_sizes()

    def longer_sides(self, most: int) -> list[int]:
        """Longer sides of at most so many images, evenly spaced, in pixels: of those whose header can be
        read."""
        return self._listed.longer_sides(most)

    def column(self, name: str) -> npt.NDArray[Any]:
        """All values of a field that is a column."""
        return self._arrays[name]

    def by_sample(self, name: str) -> npt.NDArray[Any]:
        """The values of a field that is a column, to be indexed by an array of samples."""
        return self.column(name)

    def column_values(self, indices: Sequence[int]) -> dict[str, list[Any]]:
        """The fields that are columns, by name: of some samples, as the dataset gives them, which are
        Python's numbers."""
        rows = np.asarray(indices, np.int64)
        return {name: array[rows].tolist() for name, array in self._arrays.items()}

    def stored_values(self, index: int, names: Sequence[str] | None = None) -> dict[str, Any]:
        """The values of the fields that are no columns, by name: of one sample, as the dataset gives them.

        Raises:
            Whatever the dataset raises, with a note that names the file.
        """
        try:
            return self._stored(index, self.stored_fields if names is None else names)
        except Exception as error:
            self._name_sample(error, index)
            raise

    def _stored(self, index: int, names: Sequence[str]) -> dict[str, Any]:
        """The values of some fields that are no columns, of one sample."""
        return {}

    @abstractmethod
    def assemble(self, values: dict[str, Any]) -> Any:
        """A sample, or a batch, of the dataset's form from values by field."""

    def image_sizes(self, index: int, seed: int = 0, epoch: int = 0) -> tuple[tuple[int, int], ...]:
        """(height, width) of each tensor that is made of an image."""
        assert self.plan.fixed_sizes is not None  # refusal() saw to that
        return self.plan.fixed_sizes

    def load(self, index: int) -> npt.NDArray[np.uint8]:
        """Sample index's whole image as the dataset itself opens it: (height, width, 3), RGB.

        Raises:
            Whatever that raises, with a note that names the file.
        """
        try:
            return np.ascontiguousarray(np.asarray(self._opened(index)))
        except Exception as error:
            self._name_sample(error, index)
            raise

    def own_error(self, index: int) -> Exception | None:
        """The exception that the transform itself raises for sample index; None if there is none, or that
        depends on its random draws.

        May run beside the loop's thread: the draws of the steps, which are torchvision's, are private.
        """
        steps, image = flatten(self._transform), self._opened(index)
        if not any(isinstance(step, Transform) for step in steps):
            try:
                with PrivateDraws(torch.Generator()):
                    for step in steps:
                        image = step(image)
            except Exception as error:
                self._name_sample(error, index)
                return error
        return None

    def _name_sample(self, error: Exception, index: int) -> None:
        """Notes in an exception of the dataset's which sample and file it is about."""
        if hasattr(error, "add_note"):  # Python 3.11
            gone = " is gone: put it back, or make the dataset of the files that are there" * isinstance(
                error, FileNotFoundError
            )
            error.add_note(f"sample {index}: {self._listed.path(index)}{gone}")

    @abstractmethod
    def _opened(self, index: int) -> Image:
        """Sample index's RGB Pillow image."""

    def _bytes(self, index: int) -> bytes | None:
        """The bytes of an image that is a part of a file; None: it is a file of its own. Raises
        SampleError if that file has changed."""
        places = self._listed.places
        if places is None or not places.sizes[index]:
            return None
        try:
            return self._listed.files.read(index)
        except DatasetError as error:
            raise self.sample_error(index, str(error)) from None

    def sample_error(self, index: int, reason: str) -> SampleError:
        """A SampleError that names the sample and its file."""
        return SampleError(
            f"sample {index} ({self._listed.path(index)}): {reason}", index=index, reason=reason
        )

    def refusal(self) -> str | None:
        """The reason why native threads do not make its samples; None if they do."""
        plan = self.plan
        if not plan.native:
            return _first_of_python(plan)
        if not _gives_tensors(self._transform):
            return "it gives Pillow images, of which no batch is made: end its transform with ToTensor"
        if plan.fixed_sizes is not None:
            return None
        return "its transform leaves images of different sizes: end it at one size"


def checked_path(path: Any) -> str:
    """A path of an image as text.

    Raises:
        NotInPlaceError: it is none.
    """
    text = path if type(path) is str else os.fspath(path)
    if type(text) is not str or "\0" in text:
        raise NotInPlaceError("its paths are not all text")
    return text


def _first_of_python(plan: Plan) -> str:
    why = next((stage.why for stage in plan.stages if stage.where == "python"), "a part of its transform")
    return f"{why}: torch's way, as a whole"


def _gives_tensors(transform: object) -> bool:
    """Returns True if the transform's own samples hold tensors, of which batches can be made; fastload's
    transforms always do so."""
    steps = flatten(transform)
    entries = entries_of(steps[-1]) if steps else None
    if entries is not None:
        return all(_gives_tensors([*steps[:-1], entry]) for entry in entries)
    return any(converts(step) for step in steps) or (
        bool(steps) and all(isinstance(step, Transform) for step in steps)
    )


def _no_sizes() -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    return np.empty(0, np.int32), np.empty(0, np.int32)
