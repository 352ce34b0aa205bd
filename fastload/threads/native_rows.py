"""NativeRows: the fields beside the image that lie in a batch's slot, as tensors of single samples or of the whole batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import default_collate

from fastload._native import core
from fastload.batch.containers import Flat, Padded
from fastload.dataset.native_row import NativeField, NativeFields, Size
from fastload.threads.image_sizes import LIST, Layout
from fastload.threads.slot_images import Alone, padded_images


@dataclass(frozen=True)
class NativeRows:
    """One field of a batch.

    Attributes:
        native: the field.
        memory: the batch's lease, which the tensors keep; or an array, where the field outgrew its room there.
        starts: the first byte of each row's values, and the end.
        kept: how many values of each row there are; None of masks, which have one.
        sizes: (height, width) of each row's image.
        frame: of what each row's image lies in the top left corner; None: nothing larger.
    """

    native: NativeField
    memory: Any
    starts: npt.NDArray[np.int64]
    kept: npt.NDArray[np.uint32] | None
    sizes: list[Size]
    frame: Size | None

    def sample(self, row: int) -> Any:
        """The tensor of one row, without a copy; of polygons the list of its objects."""
        if self.native.field.kind == "polygons":
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
            self.native.field.kind == "polygons"
            or self.frame is not None
            or self.sizes.count(self.sizes[0]) != len(self.sizes)
            or (self.kept is not None and (self.kept != count).any())
        ):
            return None
        step = count * int(np.prod(self.native.row_shape(self.sizes[0]), dtype=np.int64)) * self.native.dtype.itemsize
        if (np.diff(self.starts) != step).any():
            return None
        rows = self.native.values(self.memory, int(self.starts[0]), count * len(self.sizes), self.sizes[0])
        shape = rows.shape[1:]
        return rows.view(len(self.sizes), *shape) if self.kept is None else rows.view(len(self.sizes), count, *shape)

    def joined(self, count: int) -> torch.Tensor:
        """The first `count` rows of all samples, (count, ...), as they lie one after another in frames of one size; without a copy."""
        return self.native.values(self.memory, int(self.starts[0]), count, self.frame or self.sizes[0])


@dataclass(frozen=True)
class NativeValues:
    """The rows of one field that a batch keeps.

    Attributes:
        rows: all of them.
        instead: by row, the rows of a batch of that row alone, which was made in its place.
        keep: which are kept; None: all.
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

    def padded(self) -> Any:
        """The rows as Collate pads them, in images of one size or one frame: Padded, or a tensor of masks of one size. They lie evenly."""
        return self._masks() if self.rows.kept is None else self._padded(self.rows.kept)

    def flat(self) -> Any:
        """The rows as Collate joins them, in images of one size or one frame: Flat, or masks as padded() has them. They are compact."""
        if self.rows.kept is None:
            return self._masks()
        lengths, values = self.rows.kept, self.rows.joined(int(self.rows.kept.sum()))
        if self.keep is not None:
            lengths = self.rows.kept[self.keep]
            if len(values) != lengths.sum():  # a row that is left out for a field that Python reads has its values here
                values = values[torch.from_numpy(np.repeat(np.isin(np.arange(len(self.rows.kept)), self.keep), self.rows.kept))]
        return Flat(values, torch.from_numpy(np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))))

    def _masks(self) -> Any:
        masks = self.rows.joined(len(self.rows.sizes))
        if self.rows.frame is not None:
            return padded_images(masks, np.array(self.rows.sizes, np.int64))
        return masks if self.keep is None else masks[self.keep]

    def _padded(self, kept: npt.NDArray[np.uint32]) -> Padded:
        rows = self.rows
        size = rows.native.row_shape(rows.frame or rows.sizes[0])
        room = int(rows.starts[1] - rows.starts[0]) // (int(np.prod(size, dtype=np.int64)) * rows.native.dtype.itemsize)
        lengths = torch.from_numpy((kept if self.keep is None else kept[self.keep]).astype(np.int64))
        most = int(lengths.max())
        values = rows.joined(room * len(kept)).view(len(kept), room, *size)[:, :most]
        return Padded(values if self.keep is None else values[self.keep], torch.arange(most) < lengths[:, None], lengths)


def native_values(
    batch: core.Batch, lease: core.Lease, fields: NativeFields, layout: Layout, instead: Mapping[int, Alone], keep: list[int] | None
) -> dict[str, NativeValues]:
    """The fields of a batch, by name.

    Args:
        batch, lease: a batch that was leased, and its memory, which the tensors keep.
        fields: of its rows.
        layout: as its images were asked for; where all happen to have one size they lie as "equal".
        instead: by row, a batch of that row alone, and its memory: what was made in its place.
        keep: the rows that are left; None: all.
    """
    found = _rows_of(batch, lease, fields, layout)
    others = {row: _rows_of(*one, fields, LIST) for row, one in instead.items()}
    return {name: NativeValues(rows, {row: other[name] for row, other in others.items()}, keep) for name, rows in found.items()}


def _rows_of(batch: core.Batch, lease: core.Lease, fields: NativeFields, layout: Layout) -> dict[str, NativeRows]:
    (_, width, height, _), places = batch.parts[0], batch.places[0]
    sizes: list[Size] = [(height, width)] * batch.rows if places is None else [(high, wide) for _, wide, high in places.tolist()]
    frame = (height, width) if places is not None and layout.kind == "padded" else None
    found = {}
    for native, item in zip(fields.fields, batch.items, strict=True):
        if item is not None:
            memory, starts, kept = item
            found[native.field.name] = NativeRows(native, lease if memory is None else memory, starts, kept, sizes, frame)
    return found
