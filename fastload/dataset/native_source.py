"""NativeSource: what native threads read, as plan, engines and explain() know it: packed, attached or in
place.

NOTE [ native sources: nobody asks which it is ]
Whoever is above the datasets asks a source for what it needs; a source that has nothing of it says so by the
value of this class: no schema, no files in a bucket, nothing learnt. A new kind of data is one more subclass,
and its recogniser in `fastload.dataset.resolver`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from fastload._native import core
from fastload.dataset.native_row import NativeFields, NativeImages
from fastload.errors import SampleError
from fastload.store import Field
from fastload.store.kinds.base import Collated
from fastload.transforms.compiler import compile_plan
from fastload.transforms.spec import Plan
from fastload.transforms.steps import TransformedDataset

if TYPE_CHECKING:
    from fastload.dataset.image_lists import ImageLists
    from fastload.remote.files import RemoteFiles
    from fastload.store.form import Form


class NativeSource(TransformedDataset):
    """A dataset of images that native threads read, and the rows of its samples.

    Attributes:
        in_place: True if it is a dataset of the program's as it is: native threads make all of a sample, or
            none of it.
        noun: name for its images, in the plural.
        takes_lists_indices: True if it has a list's idea of an index: True is 1.
        runs_programs_code: True if values are read by code of the program's, whose exceptions are then the
            sample's.
        opens_images: True if Python opens images that native threads do not decode.
        seed: seed of the random transforms; None: none was given.
        positions: the samples that it stands for, by their index here, in order; None: all of them.
        takes_whole_samples: True if Python steps get whole samples.
        lists: the images of samples that have any number; None: native rows are samples. Otherwise `source`,
            `images`, and all that is asked by an index for a row, are by the number of an image.
    """

    in_place = False
    noun = "samples"
    takes_lists_indices = False
    runs_programs_code = False
    opens_images: bool = False
    seed: int | None
    positions: npt.NDArray[np.int64] | None = None
    lists: ImageLists | None = None
    _has_boxes = False  # True if the engine has the boxes of each sample
    _is_whole = False  # True if Python steps get whole samples
    _unaugmented = ""  # why native threads do not change its finished images; "" if they do
    _unwarped = ""  # why they do not move their pixels; "" if they do

    def _compiled(self, transform: object) -> Plan:
        return compile_plan(
            transform,
            device=self._leaves,
            boxes=self._has_boxes,
            whole=self._is_whole,
            unaugmented=self._unaugmented,
            unwarped=self._unwarped,
        )

    @abstractmethod
    def __len__(self) -> int: ...

    # ---- what a sample is

    @property
    @abstractmethod
    def fields(self) -> tuple[str, ...]:
        """Names of the delivered fields."""

    @property
    @abstractmethod
    def kinds(self) -> Mapping[str, str]:
        """Kind of each field, by name."""

    @property
    @abstractmethod
    def image_field(self) -> str:
        """Name of the field that holds the image."""

    @property
    @abstractmethod
    def stored_fields(self) -> Sequence[str]:
        """The delivered fields that are read sample by sample."""

    @property
    def schema(self) -> Iterable[Field]:
        """The fields that lie beside the image in records, and the image."""
        return ()

    @property
    def paths(self) -> Mapping[str, tuple[Any, ...]]:
        """By name of a field, its path in the structure of a sample; empty: samples have no structure of
        the user's."""
        return {}

    @property
    def root(self) -> Form | None:
        """The structure of a sample as the user gave it; None: none was given."""
        return None

    @property
    @abstractmethod
    def alike(self) -> tuple[Any, ...]:
        """Form of a sample, which all sources of a view have in common."""

    @property
    @abstractmethod
    def alike_in_rows(self) -> tuple[Any, ...]:
        """Properties that the native rows of a batch have in common beside the pixels."""

    @property
    @abstractmethod
    def collated(self) -> Mapping[str, Collated | None]:
        """Form of joining of each delivered field, by name, as Collate has it."""

    @property
    def takes_whole_samples(self) -> bool:
        return False

    @abstractmethod
    def assemble(self, values: dict[str, Any]) -> Any:
        """A sample, or a batch, of the dataset's form from values by field."""

    def typed(self, images: list[Any]) -> list[Any]:
        """Images of samples, or lists of their views, with the types of the dataset's own."""
        return images

    # ---- how native threads make it

    @property
    @abstractmethod
    def source(self) -> core.Source:
        """The dataset as the engine reads it."""

    if TYPE_CHECKING:  # an attribute of some

        @property
        def max_pixels(self) -> int:
            """Images of more pixels are refused before anything is allocated."""

    @property
    @abstractmethod
    def images(self) -> NativeImages:
        """The images of a sample's native row."""

    def row_fields(self, plan: Plan) -> NativeFields | None:
        """The fields that a sample's native row has beside the images; None: it has none."""
        return None

    @property
    @abstractmethod
    def is_batched_natively(self) -> bool:
        """True if native threads can make batches of the delivered fields, whatever the transform."""

    def refusal(self) -> str | None:
        """The reason why native threads do not make its samples, beside its plan's; None: there is none."""
        return None

    def check_fields(self, plan: Plan) -> None:
        """Raises TransformError where a plan would leave a delivered field behind that lies in the image."""

    @property
    @abstractmethod
    def sizes(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Heights and widths of the stored images, pixels; empty where they are not known."""

    @abstractmethod
    def image_sizes(self, index: int, seed: int = 0, epoch: int = 0) -> tuple[tuple[int, int], ...]:
        """(height, width) of each tensor that is made of a sample's images."""

    @abstractmethod
    def longer_sides(self, most: int) -> list[int]:
        """Longer sides, in pixels, of at most so many stored images, evenly spaced; empty where that is
        not known."""

    # ---- its values

    def listed(
        self, samples: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
        """The images of samples that have any number, as `ImageLists.rows` has them."""
        raise NotImplementedError

    @abstractmethod
    def by_sample(self, name: str) -> Any:
        """The values of a field that is a column, to be indexed by an array of samples."""

    @abstractmethod
    def column_values(self, indices: Sequence[int]) -> dict[str, list[Any]]:
        """The fields that are columns, by name: one Python value for each index."""

    @abstractmethod
    def stored_values(self, index: int, names: Sequence[str] | None = None) -> dict[str, Any]:
        """The values of a sample's stored fields, by name."""

    # ---- when a sample fails

    @abstractmethod
    def sample_error(self, index: int, reason: str) -> SampleError:
        """A SampleError that names the sample and where it lies."""

    def load(self, index: int) -> npt.NDArray[np.uint8]:
        """A sample's whole image as the program's code opens it, or Pillow, (height, width, 3), RGB. Asked
        only if `opens_images`."""
        raise NotImplementedError

    def own_error(self, index: int) -> Exception | None:
        """The exception that the program's transform raises for a sample; None: there is none, or it is
        not known."""
        return None

    def healed(self, index: int) -> Buffer | None:
        """A sample's record, fetched again where a cache held a damaged one; None: it was not."""
        return None

    # ---- where it lies

    @property
    def remote(self) -> RemoteFiles | None:
        """Its files, if they lie in a bucket."""
        return None

    @property
    def summary(self) -> Mapping[str, Any]:
        """Counts of the pack that made it."""
        return {}

    def kept(self) -> str:
        """Text on what is learnt of its files, and where it is kept; "" where nothing is."""
        return ""
