"""NativeRows: the fields beside the image that lie in a batch's slot; SlotImages: the images, whose sizes may
differ; ListedImages: those of samples with any number. All as tensors of single samples or of the whole
batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import default_collate

from fastload._native import core
from fastload.batch.containers import Flat, Padded, PatchedImages, joined_patches
from fastload.dataset.image_lists import ImageLists
from fastload.dataset.native_row import NativeField, NativeFields, Size
from fastload.dataset.opened import TORCH_DTYPES
from fastload.dataset.view import ListedRows
from fastload.engines.threads.image_sizes import LIST, ImageLayout
from fastload.transforms.spec import Plan

Alone = tuple[core.Batch, torch.Tensor]
"""A batch of one row, and its memory."""


class SlotImages:
    """One part of a batch: an image of each row, or one of its views.

    Args:
        batch, memory: a ready batch, and its memory, which the tensors keep.
        part: number of the batch's part.
        layout: the layout that was asked for; where all images happen to have one size they lie as "equal".
        alone: by row, (batch of that row alone, its memory), of any size: it was made in place of the row.
        keep: the rows that are left; None: all.
    """

    def __init__(
        self,
        batch: core.Batch,
        memory: torch.Tensor,
        part: int,
        layout: ImageLayout,
        alone: Mapping[int, Alone],
        keep: Sequence[int] | None,
    ) -> None:
        at, width, height, self._output = batch.parts[part]
        self._memory, self._layout, self._count = memory, layout, batch.rows
        self._at, self._frame = at, (height, width)
        self._places = batch.places[part]
        self._keep = range(batch.rows) if keep is None else keep
        self._all = keep is None and not alone
        self._alone = {row: SlotImages(*one, part, LIST, {}, None).samples()[0] for row, one in alone.items()}

    def samples(self) -> list[Any]:
        """The image of each row, (channels, height, width), or its PatchedImages, without a copy."""
        return [self._alone[row] if row in self._alone else self._sample(row) for row in self._keep]

    def _sample(self, row: int) -> torch.Tensor | PatchedImages:
        if self._output.patches is not None:
            return self._patched(slice(row, row + 1))
        if self._places is None:
            return self._whole()[row]
        if self._layout.kind == "padded":
            _, width, height = self._places[row].tolist()
            return self._whole()[row, :, :height, :width]
        at, width, height = self._places[row].tolist()
        return self._tensor(at, 1, height, width)[0]

    def batch(self) -> torch.Tensor | Padded | PatchedImages:
        """All rows: Padded or PatchedImages; without a copy unless rows were left out, or made alone.

        Images that lie as "equal" are one tensor.
        """
        if self._output.patches is not None:
            return self._patched(slice(None)) if self._all else joined_patches(self.samples())
        if self._places is None and not self._alone:
            return self._whole() if self._all else self._whole()[list(self._keep)]
        if self._all and self._places is not None:
            return padded_images(self._whole(), self._places[:, :0:-1])
        return self._relaid(self.samples())

    def joined(self, start: int, stop: int, plan: Plan) -> Any:
        """Some rows that are the images of a sample, as `ImageLists.joined` has them; without a copy."""
        if plan.patches is not None:
            return self._patched(slice(start, stop))
        if plan.fixed_sizes is not None:
            return self._whole()[start:stop]
        return ImageLists.joined(plan, [self._sample(row) for row in range(start, stop)])

    def _patched(self, rows: slice) -> PatchedImages:
        """The patches of some rows, maybe of none, which lie one right after another."""
        output = self._output
        assert output.patches is not None
        assert self._places is not None
        places = self._places[rows]
        count = int(places[:, 1:].prod(axis=1).sum()) * output.channels * output.patches[2]
        dtype, at = TORCH_DTYPES[output.dtype], int(places[0, 0]) if len(places) else 0
        values = self._memory[at : at + count * dtype.itemsize].view(dtype)
        return PatchedImages.of(values, output.patches, output.channels, places[:, 1:])

    def _relaid(self, samples: list[torch.Tensor]) -> Padded:
        """The rows in a new frame, as large as these rows need."""
        step = self._layout.pad_to
        sizes = np.array([each.shape[1:] for each in samples], np.int64)
        height, width = (-(-int(side) // step) * step for side in sizes.max(axis=0))
        values = torch.zeros(
            (len(samples), samples[0].shape[0], height, width), dtype=samples[0].dtype, device="cpu"
        )
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
        dtype = TORCH_DTYPES[self._output.dtype]
        flat = self._memory[at : at + rows * channels * height * width * dtype.itemsize].view(dtype)
        if self._output.layout == "CHW":
            return flat.view(rows, channels, height, width)
        return flat.view(rows, height, width, channels).permute(0, 3, 1, 2)


class ListedImages:
    """The images of a batch whose samples have any number of them.

    Args:
        rows: all images of the batch, one after another.
        listed: the samples.
        plan: plan of the transform.
        instead: by sample, images made in the place of its own.
        keep: the samples that are left; None: all.
    """

    def __init__(
        self,
        rows: SlotImages,
        listed: ListedRows,
        plan: Plan,
        instead: Mapping[int, list[Any]],
        keep: Sequence[int] | None,
    ) -> None:
        self._rows, self._listed, self._plan, self._instead = rows, listed, plan, instead
        self._keep = range(len(listed.indices)) if keep is None else keep
        self._all = keep is None and not instead

    @property
    def counts(self) -> list[int]:
        """The number of images of each sample."""
        own = self._listed.counts.tolist()
        return [len(self._instead[each]) if each in self._instead else own[each] for each in self._keep]

    def samples(self) -> list[Any]:
        """The images of each sample, as `ImageLists.joined` has them; without a copy of the batch's own."""
        return [self._sample(each) for each in self._keep]

    def _sample(self, number: int) -> Any:
        if number in self._instead:
            return ImageLists.joined(self._plan, self._instead[number])
        start, stop = self._listed.offsets[number : number + 2].tolist()
        return self._rows.joined(start, stop, self._plan)

    def batch(self) -> PatchedImages | Flat:
        """All samples' images, one after another: PatchedImages, or Flat where they have one size; without a
        copy unless samples were left out or replaced."""
        offsets = torch.from_numpy(np.concatenate(([0], np.cumsum(self.counts, dtype=np.int64))))
        whole = self._rows.joined(0, int(self._listed.offsets[-1]), self._plan) if self._all else None
        if self._plan.patches is not None:
            return joined_patches(self.samples()) if whole is None else whole
        return Flat(torch.cat(self.samples()) if whole is None else whole, offsets)


def padded_images(values: torch.Tensor, sizes: npt.NDArray[np.int64]) -> Padded:
    """Images or masks in frames, (rows, ..., height, width), with their heights and widths, (rows, 2)."""
    count, height, width = len(values), *values.shape[-2:]
    lines = np.zeros((count + 1, width), np.bool_)  # a line within each image, and one below all
    lines[:count] = np.arange(width) < sizes[:, 1:]
    which = np.where(np.arange(height) < sizes[:, :1], np.arange(count)[:, None], count)
    # Copies whole lines, where `&` takes pixels.
    mask = lines.take(which.reshape(-1), axis=0).reshape(count, height, width)
    return Padded(values, torch.from_numpy(mask), torch.from_numpy(np.ascontiguousarray(sizes)))


@dataclass(frozen=True)
class NativeRows:
    """One field of a batch.

    Attributes:
        native: the field.
        memory: the batch's memory, which the tensors keep; or other bytes, where the field outgrew its room
            there.
        starts: the first byte of each row's values, and the end.
        kept: number of values in each row; None for masks, which have one.
        sizes: (height, width) of each row's image.
        frame: size of the frame in whose top left corner each row's image lies; None: there is no larger
            frame.
    """

    native: NativeField
    memory: torch.Tensor
    starts: npt.NDArray[np.int64]
    kept: npt.NDArray[np.uint32] | None
    sizes: list[Size]
    frame: Size | None

    def sample(self, row: int) -> torch.Tensor | list[list[torch.Tensor]]:
        """The tensor of one row, without a copy; of polygons the list of its objects."""
        if self.native.is_ragged:
            return self.native.outlines(self.memory, int(self.starts[row]), int(self.starts[row + 1]))
        count = None if self.kept is None else int(self.kept[row])
        values = self.native.values(self.memory, int(self.starts[row]), count, self.frame or self.sizes[row])
        if self.frame is None or not self.native.in_image:
            return values
        height, width = self.sizes[row]
        return values[..., :height, :width]

    def whole(self) -> torch.Tensor | None:
        """All rows as one view; None where they are not alike, or have gaps between them."""
        count = 1 if self.kept is None else int(self.kept[0])
        if (
            self.native.is_ragged
            or self.frame is not None
            or self.sizes.count(self.sizes[0]) != len(self.sizes)
            or (self.kept is not None and (self.kept != count).any())
        ):
            return None
        step = (
            count
            * int(np.prod(self.native.row_shape(self.sizes[0]), dtype=np.int64))
            * self.native.dtype.itemsize
        )
        if (np.diff(self.starts) != step).any():
            return None
        rows = self.native.values(self.memory, int(self.starts[0]), count * len(self.sizes), self.sizes[0])
        shape = rows.shape[1:]
        if self.kept is None:
            return rows.view(len(self.sizes), *shape)
        return rows.view(len(self.sizes), count, *shape)

    def joined(self, count: int) -> torch.Tensor:
        """The first `count` rows of all samples, (count, ...), as they lie one after another in frames of
        one size; without a copy."""
        return self.native.values(self.memory, int(self.starts[0]), count, self.frame or self.sizes[0])


@dataclass(frozen=True)
class NativeValues:
    """The rows of one field that a batch keeps.

    Attributes:
        rows: all of them.
        instead: by row, the rows of a batch of that row alone, which was made in its place.
        keep: the rows that are kept; None: all.
    """

    rows: NativeRows
    instead: Mapping[int, NativeRows]
    keep: list[int] | None

    def samples(self) -> list[Any]:
        """The tensor of each row, or its polygons."""
        keep = range(len(self.rows.sizes)) if self.keep is None else self.keep
        return [self.instead[row].sample(0) if row in self.instead else self.rows.sample(row) for row in keep]

    def batch(self) -> Any:
        """The rows as default_collate stacks them; without a copy where they lie next to each other.

        Raises:
            RuntimeError: they have different numbers of values, as torch raises it.
        """
        whole = None if self.instead else self.rows.whole()
        if whole is not None:
            return whole if self.keep is None else whole[self.keep]
        return default_collate(self.samples())

    def padded(self) -> torch.Tensor | Padded:
        """The rows as Collate pads them, in images of one size or one frame: Padded, or a tensor of masks
        of one size. They lie evenly."""
        return self._masks() if self.rows.kept is None else self._padded(self.rows.kept)

    def flat(self) -> torch.Tensor | Padded | Flat:
        """The rows as Collate joins them, in images of one size or one frame: Flat, or masks as padded()
        has them. They are compact."""
        if self.rows.kept is None:
            return self._masks()
        lengths, values = self.rows.kept, self.rows.joined(int(self.rows.kept.sum()))
        if self.keep is not None:
            lengths = self.rows.kept[self.keep]
            # A row that is left out for a field that Python reads has its values here.
            if len(values) != lengths.sum():
                values = values[
                    torch.from_numpy(
                        np.repeat(np.isin(np.arange(len(self.rows.kept)), self.keep), self.rows.kept)
                    )
                ]
        return Flat(values, torch.from_numpy(np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))))

    def _masks(self) -> torch.Tensor | Padded:
        masks = self.rows.joined(len(self.rows.sizes))
        if self.rows.frame is not None:
            return padded_images(masks, np.array(self.rows.sizes, np.int64))
        return masks if self.keep is None else masks[self.keep]

    def _padded(self, kept: npt.NDArray[np.uint32]) -> Padded:
        rows = self.rows
        size = rows.native.row_shape(rows.frame or rows.sizes[0])
        room = int(rows.starts[1] - rows.starts[0]) // (
            int(np.prod(size, dtype=np.int64)) * rows.native.dtype.itemsize
        )
        lengths = torch.from_numpy((kept if self.keep is None else kept[self.keep]).astype(np.int64))
        most = int(lengths.max())
        values = rows.joined(room * len(kept)).view(len(kept), room, *size)[:, :most]
        return Padded(
            values if self.keep is None else values[self.keep],
            torch.arange(most, device="cpu") < lengths[:, None],
            lengths,
        )


def native_values(
    batch: core.Batch,
    memory: torch.Tensor,
    fields: NativeFields,
    layout: ImageLayout,
    instead: Mapping[int, Alone],
    keep: list[int] | None,
) -> dict[str, NativeValues]:
    """The fields of a batch, by name.

    Args:
        batch, memory: a batch that was leased, and its memory, which the tensors keep.
        fields: fields of the batch's rows.
        layout: the layout that was asked for; where all images happen to have one size they lie as "equal".
        instead: by row, (batch of that row alone, its memory): it was made in place of the row.
        keep: the rows that are left; None: all.
    """
    found = _rows_of(batch, memory, fields, layout)
    others = {row: _rows_of(*one, fields, LIST) for row, one in instead.items()}
    return {
        name: NativeValues(rows, {row: other[name] for row, other in others.items()}, keep)
        for name, rows in found.items()
    }


def _rows_of(
    batch: core.Batch, memory: torch.Tensor, fields: NativeFields, layout: ImageLayout
) -> dict[str, NativeRows]:
    (_, width, height, _), places = batch.parts[0], batch.places[0]
    sizes: list[Size] = (
        [(height, width)] * batch.rows
        if places is None
        else [(high, wide) for _, wide, high in places.tolist()]
    )
    frame = (height, width) if places is not None and layout.kind == "padded" else None
    found = {}
    for native, item in zip(fields.fields, batch.items, strict=True):
        if item is not None:
            grown, starts, kept = item
            lies = memory if grown is None else torch.from_numpy(grown)
            found[native.field.name] = NativeRows(native, lies, starts, kept, sizes, frame)
    return found
