"""ThreadEngine: the native threads that read packed datasets. A loader has one engine, for as long as it lives.

This module uses no torch, and runs no Python per sample: a batch is passed to C as a few arrays.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.errors import BatchShapeError, RemoteError, ResourceError, SampleError
from fastload.in_place.base import InPlaceDataset
from fastload.positions import as_positions
from fastload.remote.remote_files import RemoteFiles
from fastload.system import available_memory
from fastload.threads.batch_fetch import BatchFetch, Part
from fastload.threads.bucket_pass import BucketPass

if TYPE_CHECKING:
    from fastload.packed_view import NativeDataset, PackedView
    from fastload.threads.coverage import Coverage

QUEUE = 4096
"""Capacity of the native queue, in jobs; the loader's own limit on batches in flight is far below."""
Sizes = tuple[tuple[int, int], ...]
"""(height, width) of each tensor that is made of a sample's image."""
READ_AHEAD = 96
"""Samples that are read ahead before their turn. For random reads of 100 KB, 64 kept a disk of 1.2 GB/s busy."""
READ_AHEAD_BYTES = 32 << 20
"""Bytes that are fetched from buckets before their turn: 160 ms of 2,000 photographs a second."""
ASKED_FROM = 64 << 20
"""Bytes of slots from which free memory is checked first: that reads all control groups, which takes a millisecond."""


class ThreadEngine:
    """The threads, ring and sources of one loader.

    1. It belongs to the process that created it (`pid`). After a fork the child makes its own.
    2. announce() starts the read-ahead of a batch, and the batch's submit() queues it. A batch belongs to its holder.

    Attributes:
        has_stored: whether any delivered field is stored in records beside the image.
        image_parts: by name of each image the number of its part of a batch, or the list of those of its views.
    """

    def __init__(self, view: PackedView, threads: int, outputs: list[core.Output], depth: int, batch_size: int) -> None:
        self.view = view
        self.outputs = outputs
        self.pid = os.getpid()
        slot_bytes = self._slot_bytes(batch_size)
        _require_memory(slot_bytes, depth + 1)
        self.ring = core.Ring(depth + 1, slot_bytes)
        self.core = core.Engine([d.source for d in view.datasets], threads, QUEUE, self.ring)
        first = view.datasets[0]
        self.image_parts: dict[str, int | list[int]] = first.images.by_name(first.plan, range(len(outputs)))
        self.has_stored = bool(view.datasets[0].stored_fields)
        self._remote = {source: files for source, dataset in enumerate(view.datasets) if (files := _remote_files(dataset)) is not None}

    def _slot_bytes(self, rows: int) -> int:
        """Bytes of a batch if all images have the same size, else 0."""
        sizes = self._fixed_sizes()
        return 0 if sizes is None else core.batch_bytes(rows, _wide(sizes), self.outputs)

    def _fixed_sizes(self) -> Sizes | None:
        """The sizes of every sample if the transform fixes them, else None."""
        sizes = {d.images.fixed_sizes(d.plan) for d in self.view.datasets}
        return sizes.pop() if len(sizes) == 1 else None

    def announce(
        self, positions: Sequence[int], seed: int, epoch: int, of: BucketPass | None = None, view: PackedView | None = None
    ) -> core.Batch:
        """Makes a batch of the samples at these positions of a pass's view, in the pass `of`, and starts to read them ahead.

        Raises:
            IndexError: a position is out of range.
            BatchShapeError: the transform gives the samples different sizes.
        """
        sources, indices = (self.view if view is None else view).rows(positions)
        batch = core.Batch(self.core, sources, indices, _wide(self._batch_sizes(sources, indices, seed, epoch)), self.outputs, seed, epoch)
        if self._remote:
            self._fetch(batch, sources, indices.astype(np.int64), positions, of)
        return batch

    def _fetch(
        self,
        batch: core.Batch,
        sources: npt.NDArray[np.uint32],
        indices: npt.NDArray[np.int64],
        positions: Sequence[int],
        of: BucketPass | None,
    ) -> None:
        """Begins to fetch what a batch needs of datasets in buckets."""
        parts = []
        opens = None if of is None else of.opens(as_positions(positions))
        for source, files in self._remote.items():
            rows = np.flatnonzero(sources == source)
            mine = indices[rows]
            share = None if of is None or opens is None else of.share(source, opens, mine)
            parts.append(Part(files, rows, mine, files.missing(mine), share))
        if any(part.missing for part in parts):
            batch.fetch = BatchFetch(batch, parts)
        else:
            for part in parts:
                part.files.note(part.share)

    @cached_property
    def read_ahead(self) -> int:
        """Samples that are read ahead before their turn; from buckets, as many as make READ_AHEAD_BYTES."""
        return max([READ_AHEAD, *(READ_AHEAD_BYTES // files.mean_bytes for files in self._remote.values())])

    def bucket_pass(self, coverage: Coverage | None, view: PackedView) -> BucketPass | None:
        """Begins a pass of which something is known, over datasets in buckets."""
        return None if coverage is None or not self._remote else BucketPass(view, self._remote, coverage)

    @property
    def in_buckets(self) -> bool:
        """Whether any data lies in a bucket."""
        return bool(self._remote)

    def redo(self, batch: core.Batch, row: int, source: int, index: int) -> bool:
        """Makes another sample into a row of a ready batch; True when it could be made. Raises RemoteError."""
        files = self._remote.get(source)
        try:
            if batch.redo(row, source, index, None if files is None else files.record(index)):
                return True
            return self.heal(batch, row, source, index)
        except RemoteError:
            raise
        except SampleError:
            return False

    def heal(self, batch: core.Batch, row: int, source: int, index: int) -> bool:
        """Makes a row again whose record in a cache may be damaged; True when it could be made. Raises RemoteError."""
        dataset = self.view.datasets[source]
        if source not in self._remote or isinstance(dataset, InPlaceDataset):
            return False
        try:
            record = dataset.opened.reader.healed(index)
            return record is not None and batch.redo(row, source, index, record)
        except SampleError:
            return False

    @cached_property
    def _one_size(self) -> Sizes | None:
        """The sizes of every sample after the transform, if it fixes them or all stored images have one size; else None."""
        fixed = self._fixed_sizes()
        if fixed is not None:
            return fixed
        if any(d.plan.drawn_size for d in self.view.datasets):
            return None
        if not all(len(side) and side.min() == side.max() for d in self.view.datasets for side in d.images.stored_sizes):
            return None
        try:
            sizes = {d.image_sizes(0) for d in self.view.datasets}
        except (SampleError, ValueError):
            return None
        return sizes.pop() if len(sizes) == 1 else None

    def _batch_sizes(self, sources: npt.NDArray[np.uint32], indices: npt.NDArray[np.uint64], seed: int, epoch: int) -> Sizes:
        found = self._one_size
        if found is not None:
            return found
        first, datasets = (0, 0), self.view.datasets
        for number in np.unique(sources) if len(datasets) > 1 else (0,):
            dataset = datasets[number]
            rows = (indices[sources == number] if len(datasets) > 1 else indices).astype(np.int64)
            if dataset.plan.fixed_sizes is not None:
                rows = rows[:1]
            elif not dataset.plan.drawn_size:
                rows = _one_of_each(rows, dataset.images.stored_sizes)
            for index in rows.tolist():
                try:
                    size = dataset.image_sizes(index, seed, epoch)
                except SampleError:
                    continue  # this row fails later, because its image has another size
                except ValueError as error:
                    raise dataset.sample_error(index, str(error)) from None
                if found is not None and size != found:
                    raise _different_sizes(first, found, (int(number), index), size, dataset.images.part_names(dataset.plan))
                if found is None:
                    found, first = size, (int(number), index)
        return found or ((1, 1),) * len(self.outputs)

    def column_values(self, sources: npt.NDArray[np.uint32], indices: npt.NDArray[np.uint64]) -> dict[str, list[object]]:
        """The values of fields that are columns, as one Python value for each row."""
        datasets = self.view.datasets
        if len(datasets) == 1:
            return datasets[0].column_values(indices.astype(np.int64).tolist())
        rows = [datasets[s].column_values([int(i)]) for s, i in zip(sources.tolist(), indices.tolist(), strict=True)]
        return {name: [row[name][0] for row in rows] for name in rows[0]}

    def stored_values(self, source: int, index: int) -> dict[str, object]:
        """The fields of one row that are stored in its record. Raises SampleError if one cannot be read."""
        return self.view.datasets[source].stored_values(index)

    def sample_error(self, source: int, index: int, reason: str) -> SampleError:
        """The exception that names a failed row's sample."""
        return self.view.datasets[source].sample_error(index, reason)

    def save_learnt(self) -> None:
        """Makes datasets in place save what they learnt of their images, if there is an index cache."""
        for dataset in self.view.datasets:
            if isinstance(dataset, InPlaceDataset):
                dataset.save_learnt()

    def close(self) -> None:
        """Stops the threads. Leased batches stay valid."""
        self.core.close()


def _remote_files(dataset: NativeDataset) -> RemoteFiles | None:
    """The files of a dataset in a bucket; None: it lies on a disk."""
    if isinstance(dataset, InPlaceDataset):
        return None
    files = dataset.opened.reader.files
    return files if isinstance(files, RemoteFiles) else None


def _one_of_each(rows: npt.NDArray[np.int64], sides: Sequence[npt.NDArray[np.int32]]) -> npt.NDArray[np.int64]:
    """One row of each stored size; `sides`: heights and widths of all images."""
    sizes = np.zeros(len(rows), np.int64)
    for height, width in zip(sides[::2], sides[1::2], strict=True):
        each = height[rows].astype(np.int64) << 32 | width[rows].astype(np.int64)
        if len(sides) > 2:  # numbered, so that another image's fit beside it
            each = sizes * (len(rows) + 1) + np.unique(each, return_inverse=True)[1]
            each = np.unique(each, return_inverse=True)[1].astype(np.int64)
        sizes = each
    firsts = np.unique(sizes, return_index=True)[1]
    firsts.sort()
    return rows[firsts]


def _wide(sizes: Sizes) -> list[tuple[int, int]]:
    """(width, height) of each, as core has sizes."""
    return [(width, height) for height, width in sizes]


def _different_sizes(a: tuple[int, int], sizes_a: Sizes, b: tuple[int, int], sizes_b: Sizes, parts: Sequence[str]) -> BatchShapeError:
    part, size_a, size_b = next((n, one, other) for n, (one, other) in enumerate(zip(sizes_a, sizes_b, strict=True)) if one != other)
    of = f"{parts[part]} of " if parts[part] else ""
    return BatchShapeError(
        f"samples of one batch have different sizes: {of}index {a[1]} is {size_a[0]} x {size_a[1]} and {of}index {b[1]} is "
        f"{size_b[0]} x {size_b[1]} (height x width). Add a transform that ends at one size, such as RandomResizedCrop(224) or "
        "Resize(256) + CenterCrop(224), or use batch_size=1."
    )


def _require_memory(slot_bytes: int, slots: int) -> None:
    if slot_bytes * slots < ASKED_FROM:
        return
    free = available_memory()
    if free is not None and slot_bytes * slots > free:
        raise ResourceError(
            f"{slots} batches of {slot_bytes} bytes need {slot_bytes * slots} bytes and {free} are available: "
            "lower batch_size or prefetch_factor"
        )
