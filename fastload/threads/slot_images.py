"""SlotImages: the images of a batch whose sizes may differ, as tensors of single samples or of the whole batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fastload._native import core
from fastload.batch.containers import Padded
from fastload.dataset.opened import TORCH_DTYPES
from fastload.threads.image_sizes import LIST, Layout

Alone = tuple[core.Batch, core.Lease]
"""A batch of one row, and its memory."""


class SlotImages:
    """One part of a batch: an image of each row, or one of its views.

    Args:
        batch, lease: a ready batch, and its memory, which the tensors keep.
        part: which of its parts.
        layout: as its images were asked for; where all happen to have one size they lie as "equal".
        alone: by row, a batch of that row alone, and its memory: what was made in its place, of any size.
        keep: the rows that are left; None: all.
    """

    def __init__(
        self, batch: core.Batch, lease: core.Lease, part: int, layout: Layout, alone: Mapping[int, Alone], keep: Sequence[int] | None
    ) -> None:
        at, width, height, self._output = batch.parts[part]
        self._lease, self._layout, self._count = lease, layout, batch.rows
        self._at, self._frame = at, (height, width)
        self._places = batch.places[part]
        self._keep = range(batch.rows) if keep is None else keep
        self._all = keep is None and not alone
        self._alone = {row: SlotImages(*one, part, LIST, {}, None).samples()[0] for row, one in alone.items()}

    def samples(self) -> list[torch.Tensor]:
        """The image of each row, (channels, height, width), without a copy."""
        return [self._alone[row] if row in self._alone else self._sample(row) for row in self._keep]

    def _sample(self, row: int) -> torch.Tensor:
        if self._places is None:
            return self._whole()[row]
        if self._layout.kind == "padded":
            _, width, height = self._places[row].tolist()
            return self._whole()[row, :, :height, :width]
        at, width, height = self._places[row].tolist()
        return self._tensor(at, 1, height, width)[0]

    def batch(self) -> Any:
        """All rows: Padded; without a copy unless rows were left out, or made alone.

        Images that lie as "equal" are one tensor.
        """
        if self._places is None and not self._alone:
            return self._whole() if self._all else self._whole()[list(self._keep)]
        if self._all and self._places is not None:
            return padded_images(self._whole(), self._places[:, :0:-1])
        return self._relaid(self.samples())

    def _relaid(self, samples: list[torch.Tensor]) -> Padded:
        """The rows in a new frame, as large as these rows need."""
        step = self._layout.pad_to
        sizes = np.array([each.shape[1:] for each in samples], np.int64)
        height, width = (-(-int(side) // step) * step for side in sizes.max(axis=0))
        values = torch.zeros((len(samples), samples[0].shape[0], height, width), dtype=samples[0].dtype)
        if self._output.layout == "HWC":
            values = values.contiguous(memory_format=torch.channels_last)
        for row, each in enumerate(samples):
            values[row, :, : each.shape[1], : each.shape[2]] = each
        return padded_images(values, sizes)

    def _whole(self) -> torch.Tensor:
        return self._tensor(self._at, self._count, *self._frame)

    def _tensor(self, at: int, rows: int, height: int, width: int) -> torch.Tensor:
        """(rows, channels, height, width): channels_last for layout "HWC", contiguous for "CHW"."""
        channels = self._output.channels
        flat = torch.frombuffer(self._lease, dtype=TORCH_DTYPES[self._output.dtype], count=rows * channels * height * width, offset=at)
        if self._output.layout == "CHW":
            return flat.view(rows, channels, height, width)
        return flat.view(rows, height, width, channels).permute(0, 3, 1, 2)


def padded_images(values: torch.Tensor, sizes: npt.NDArray[np.int64]) -> Padded:
    """Images or masks in frames, (rows, ..., height, width), with their heights and widths, (rows, 2)."""
    count, height, width = len(values), *values.shape[-2:]
    lines = np.zeros((count + 1, width), np.bool_)  # a line within each image, and one below all
    lines[:count] = np.arange(width) < sizes[:, 1:]
    which = np.where(np.arange(height) < sizes[:, :1], np.arange(count)[:, None], count)
    mask = lines.take(which.reshape(-1), axis=0).reshape(count, height, width)  # copies whole lines, where `&` takes pixels
    return Padded(values, torch.from_numpy(mask), torch.from_numpy(np.ascontiguousarray(sizes)))
