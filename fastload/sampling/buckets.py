"""BucketBatchSampler: batches of samples whose images have like shapes, so that padding them to one size
wastes little."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from torch.utils.data import ConcatDataset, Sampler, Subset

from fastload.common.positions import subset_positions
from fastload.common.rng import KeyedPermutation, checked_epoch, checked_seed, order_seed
from fastload.dataset.packed import PackedDataset
from fastload.errors import ArgumentError
from fastload.sampling.window import count_of

HeightsWidths = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
ASPECT_EDGES = tuple(2.0 ** (third / 3) for third in range(-3, 4))
"""Edges of aspect ratios (width / height), thirds of an octave from 1/2 to 2: those of torchvision's
detection references."""
_SIZE_BUCKETS = 8


class BucketBatchSampler(Sampler[list[int]]):
    """A batch sampler that groups samples by aspect ratio or size: GroupedBatchSampler of torchvision's
    detection references, with every sample once.

    1. Samples come in random order, each into its bucket; a full bucket is a batch. At the end of an epoch
       the rest of each bucket is a shorter batch, the largest first, or left out with drop_last.
    2. The order is a pure function of (seed, epoch) and the arguments.
    3. It is a `batch_sampler=` of FastLoader, whose `shard=` gives every rank its stride of the batches, and
       of DataLoader.
    4. Call `set_epoch` before each epoch; under `shard=` the loader does.

    Args:
        dataset: a PackedDataset, files in place (their headers are read), or Subset and ConcatDataset of
            them. With `by` as numbers any dataset.
        batch_size: samples of a batch.
        by: "aspect" (width / height), "size" (pixels), or a number for each sample.
        edges: ascending values between two buckets; one that is equal to an edge belongs above it. None: for
            "aspect" thirds of an octave from 1/2 to 2, else 8 buckets of about as many samples each.
        shuffle: False: the samples come in the dataset's order.
        seed: 0 .. 2**64-1, the same on every rank.
        drop_last: leaves the last, shorter batches out.

    Attributes:
        buckets: the bucket of every sample, in the smallest unsigned integers that hold them.
        epoch: the epoch that the next pass has.

    Raises:
        ArgumentError: an argument is out of range, or the dataset does not tell its images' sizes.
        DatasetError: a file cannot be read.
    """

    def __init__(
        self,
        dataset: Sized,
        batch_size: int,
        *,
        by: Literal["aspect", "size"] | npt.ArrayLike = "aspect",
        edges: Sequence[float] | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if (checked := checked_seed(seed)) is None:
            raise ArgumentError("seed=None: a BucketBatchSampler draws from no generator; give a number")
        self.dataset = dataset
        self.batch_size = count_of("batch_size", batch_size, 1)
        self.by, self.edges = by, edges
        self.shuffle, self.seed, self.drop_last = bool(shuffle), checked, bool(drop_last)
        self.epoch = 0
        self.buckets = self._bucketed()

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that the next pass has."""
        self.epoch = checked_epoch(epoch)

    def __len__(self) -> int:
        buckets = self._current()
        parts = (
            np.bincount(buckets[at : at + _STEP], minlength=self._count)
            for at in range(0, len(buckets), _STEP)
        )
        whole, left = np.divmod(sum(parts, np.zeros(self._count, np.int64)), self.batch_size)
        return int(whole.sum()) + (0 if self.drop_last else int(np.count_nonzero(left)))

    def __iter__(self) -> Iterator[list[int]]:
        buckets = self._current()
        filling: dict[int, list[int]] = {}
        for chunk in self._order(len(buckets)):
            for index, bucket in zip(chunk.tolist(), buckets[chunk].tolist(), strict=True):
                batch = filling.setdefault(bucket, [])
                batch.append(index)
                if len(batch) == self.batch_size:
                    del filling[bucket]
                    yield batch
        if not self.drop_last:
            yield from (
                filling[bucket]
                for bucket in sorted(filling, key=lambda bucket: (-len(filling[bucket]), bucket))
            )

    def _order(self, count: int) -> Iterator[npt.NDArray[np.int64]]:
        """The samples of this epoch, some thousand at a time."""
        if self.shuffle and count:
            return KeyedPermutation(count, order_seed(self.seed, self.epoch)).chunks()
        return (np.arange(start, min(start + _STEP, count)) for start in range(0, count, _STEP))

    def _current(self) -> npt.NDArray[np.unsignedinteger[Any]]:
        """The buckets, made again if the dataset has another length by now."""
        if len(self.buckets) != len(self.dataset):
            self.buckets = self._bucketed()
        return self.buckets

    def _bucketed(self) -> npt.NDArray[np.unsignedinteger[Any]]:
        values = self._values()
        if self.edges is not None:
            edges = np.asarray(self.edges, np.float64)
        elif isinstance(self.by, str) and self.by == "aspect":
            edges = np.asarray(ASPECT_EDGES)
        else:
            shares = np.arange(1, _SIZE_BUCKETS) / _SIZE_BUCKETS
            edges = np.quantile(values, shares, method="higher") if len(values) else np.zeros(0)
        if edges.ndim != 1 or not np.isfinite(edges).all() or (np.diff(edges) < 0).any():
            raise ArgumentError(f"edges={self.edges!r}: give ascending numbers")
        self._count = len(edges) + 1
        out = np.empty(len(values), np.min_scalar_type(len(edges)))
        for at in range(0, len(values), _STEP):
            out[at : at + _STEP] = np.searchsorted(edges, values[at : at + _STEP], side="right")
        return out

    def _values(self) -> npt.NDArray[np.float64]:
        """The number of each sample by which it is put into a bucket."""
        if isinstance(self.by, str):
            if self.by not in ("aspect", "size"):
                raise ArgumentError(f'by={self.by!r}: give "aspect", "size", or a number for each sample')
            heights, widths = _sizes_of(self.dataset)
            if self.by == "aspect":
                return widths / np.maximum(heights, 1)
            return heights.astype(np.float64) * widths
        try:
            values = np.asarray(self.by, np.float64)
        except (TypeError, ValueError):
            raise ArgumentError('by: give "aspect", "size", or a number for each sample') from None
        if values.shape != (len(self.dataset),) or np.isnan(values).any():
            raise ArgumentError(
                f"by: {values.shape} numbers for {len(self.dataset)} samples; give one for each, and no NaN"
            )
        return values


_STEP = 1 << 14


def _sizes_of(dataset: object) -> HeightsWidths:
    """Heights and widths of a dataset's stored images. Raises ArgumentError, DatasetError."""
    if isinstance(dataset, Subset):
        heights, widths = _sizes_of(dataset.dataset)
        indices = subset_positions(dataset.indices)
        return heights[indices], widths[indices]
    if isinstance(dataset, ConcatDataset):
        parts = [_sizes_of(part) for part in dataset.datasets]
        return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
    if not isinstance(dataset, PackedDataset):
        return _sizes_in_place(dataset)
    stored = dataset.sizes
    return stored[0].astype(np.int64), stored[1].astype(np.int64)


def _sizes_in_place(dataset: object) -> HeightsWidths:
    """Those of image files: 0 x 0 of a file that is gone or no image. Raises ArgumentError, DatasetError."""
    from fastload.dataset.in_place.datasets import sizes_of
    from fastload.dataset.in_place.known import NotInPlaceError

    why, sizes = "", None
    try:
        sizes = sizes_of(dataset)
    except NotInPlaceError as error:
        why = f" ({error})"
    if sizes is None:
        raise ArgumentError(
            f"{type(dataset).__name__} does not tell its images' sizes, as packed data do{why}: give by= a "
            "number for each sample, such as width / height"
        )
    return sizes[:, 0], sizes[:, 1]
