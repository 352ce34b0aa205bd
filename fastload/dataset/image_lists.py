"""ImageLists: the images of the samples of a packed dataset that have any number of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from fastload.batch.containers import PatchedImages, joined_patches
from fastload.dataset.native_row import NativeImages
from fastload.dataset.opened import TORCH_DTYPES
from fastload.errors import ArgumentError, DatasetError
from fastload.store import DatasetReader
from fastload.store.lists import spans
from fastload.transforms.spec import Plan, outputs_of

if TYPE_CHECKING:
    from fastload.dataset.packed import PackedDataset


class ImageLists:
    """The images of a dataset of samples that have any number of them. See NOTE [ lists: images of any number
    ].

    Attributes:
        name: the field.
        stored: the dataset of all images, in the order of their samples.

    Raises:
        ArgumentError: `draws` is neither "sample" (one draw for all images of a sample) nor "image".
    """

    def __init__(self, name: str, stored: PackedDataset, draws: str) -> None:
        if draws not in ("sample", "image"):
            raise ArgumentError(f'draws={draws!r} is neither "sample" nor "image"')
        self.name, self.stored, self._draws = name, stored, draws

    @property
    def images(self) -> NativeImages:
        """An image of a native row, by the name of the field."""
        return NativeImages([replace(self.stored.images.images[0], name=self.name)], alone=False)

    def rows(
        self, reader: DatasetReader, samples: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
        """The images of some samples, by their numbers; offsets: sample i has those from offsets[i] to
        offsets[i + 1]; and the index of the draws of each.

        Raises:
            DatasetError: they are not there.
        """
        firsts, counts = spans(reader, samples)
        wrong = np.flatnonzero((firsts < 0) | (counts < 0) | (firsts > len(self.stored) - counts))
        if len(wrong):
            row = int(wrong[0])
            raise DatasetError(
                f"sample {int(samples[row])} of {reader.path} has {counts[row]} images from {firsts[row]} "
                f"on, and {self.stored.path} has {len(self.stored)}: pull it, or pack it, again"
            )
        offsets = np.concatenate(([0], np.cumsum(counts)))
        images = (np.repeat(firsts - offsets[:-1], counts) + np.arange(offsets[-1])).astype(np.uint64)
        return (
            images,
            offsets,
            images if self._draws == "image" else np.repeat(samples, counts).astype(np.uint64),
        )

    @staticmethod
    def joined(plan: Plan, images: Sequence[Any]) -> Any:
        """The images of a sample: PatchedImages, or one tensor (N, channels, height, width) where the
        transform gives them one size and has no Python steps; else a list."""
        if plan.patches is not None:
            return joined_patches(images) if images else _no_patches(plan)
        if plan.fixed_sizes is None or plan.python:
            return list(images)
        return torch.stack(list(images)) if images else _none(plan, *plan.fixed_sizes[0])


def _none(plan: Plan, *shape: int) -> torch.Tensor:
    (output,) = outputs_of(plan, None, "CHW")
    return torch.empty((0, output.channels, *shape), dtype=TORCH_DTYPES[output.dtype])


def _no_patches(plan: Plan) -> PatchedImages:
    assert plan.patches is not None
    patch, _, temporal = plan.patches
    (output,) = outputs_of(plan, None, "CHW")
    return PatchedImages(
        torch.empty((0, output.channels * temporal * patch**2), dtype=TORCH_DTYPES[output.dtype]),
        torch.empty((0, 3), dtype=torch.int64),
    )
