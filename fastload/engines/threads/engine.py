"""ThreadEngine: the native threads that read packed datasets. A loader has one engine, for as long as it
lives.

This module uses no torch, and runs no Python per sample: a batch is passed to C as a few arrays.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.common.ahead import ahead
from fastload.common.positions import as_positions
from fastload.common.rng import row_seeds
from fastload.common.system import available_cpus, available_memory
from fastload.engines.threads.bucket import Asks, BatchFetch, BatchPart, BucketPass, asks_of
from fastload.engines.threads.image_sizes import EQUAL, LIST, ImageLayout, batch_sizes
from fastload.errors import DatasetError, RemoteError, ResourceError, SampleError
from fastload.store.columns import is_constant
from fastload.store.kinds import KINDS
from fastload.store.sidecar import PLACES

if TYPE_CHECKING:
    from fastload.dataset.native_row import NativeFields
    from fastload.dataset.view import NativeView
    from fastload.sampling.known import Coverage

QUEUE = 4096
"""Capacity of the native queue, in jobs; the loader's own limit on batches in flight is far below."""
OutputSizes = tuple[tuple[int, int], ...]
"""(height, width) of each tensor that is made of a sample's image."""
READ_AHEAD = 96
"""Samples that are read ahead before their turn. For random reads of 100 KB, 64 kept a disk of 1.2 GB/s
busy."""
SLOW_READ_AHEAD = 256
"""The same of files on a slow disk, of which as many are read at once as it rewards."""
READ_AHEAD_BYTES = 32 << 20
"""Bytes that are fetched from buckets before their turn: 160 ms of 2,000 photographs a second."""
ASKED_FROM = 64 << 20
"""Bytes of slots from which free memory is checked first: that reads all control groups, which takes a
millisecond."""


class SlotMemory(Protocol):
    """Memory for the batches of a ring that has none of its own; see NOTE [ ring: memory that is lent ]."""

    def __call__(self, size: int) -> tuple[int, object] | None:
        """Returns (address, object that keeps that many bytes); None: the ring uses its own."""

    def taken(self, size: int) -> int:
        """Bytes that a batch of that size takes of the system."""


class ThreadEngine:
    """The threads, ring and sources of one loader.

    1. It belongs to the process that created it (`pid`). After a fork the child makes its own.
    2. announce() starts the read-ahead of a batch, and the batch's submit() queues it. A batch belongs to its
       holder.

    Attributes:
        has_stored: True if any delivered field is read per row, from records.
        image_parts: by name of each image, the number of its part of a batch, or the list of its views'
            parts.
        row_fields: fields that rows have natively beside the images; None: there are none.
    """

    def __init__(
        self,
        view: NativeView,
        threads: int,
        outputs: list[core.Output],
        depth: int,
        batch_size: int,
        memory: SlotMemory | None = None,
    ) -> None:
        self.view = view
        self.outputs = outputs
        self.pid = os.getpid()
        slot_bytes = self._slot_bytes(batch_size)
        self._taken = int if memory is None else memory.taken
        _require_memory(self._taken(slot_bytes), depth + 1)
        self.ring = core.Ring(depth + 1, 0 if memory is not None else slot_bytes, memory)
        self.core = core.Engine([d.source for d in view.datasets], threads, QUEUE, self.ring)
        first = view.datasets[0]
        self.image_parts: dict[str, int | list[int]] = first.images.by_name(first.plan, range(len(outputs)))
        self.has_stored = bool(view.datasets[0].stored_fields)
        self.row_fields = first.row_fields(first.plan) if self.core.sources[0].has_items else None
        # Bytes of the largest batch so far for which memory was found.
        self._largest = max(ASKED_FROM - 1, slot_bytes)
        self._remote = {
            source: files
            for source, dataset in enumerate(view.datasets)
            if (files := dataset.remote) is not None
        }

    def _slot_bytes(self, rows: int) -> int:
        """Bytes of a batch if all images have the same size, else 0."""
        sizes = None if self.view.has_lists else self._fixed_sizes()
        return 0 if sizes is None else core.batch_bytes(rows, _wide(sizes), self.outputs)

    def _fixed_sizes(self) -> OutputSizes | None:
        """The sizes of every sample if the transform fixes them, else None."""
        sizes = {d.images.fixed_sizes(d.plan) for d in self.view.datasets}
        return sizes.pop() if len(sizes) == 1 else None

    def announce(
        self,
        positions: Sequence[int],
        seed: int,
        epoch: int,
        bucket_pass: BucketPass | None = None,
        view: NativeView | None = None,
        layout: ImageLayout = EQUAL,
        again: npt.NDArray[np.uint32] | None = None,
    ) -> core.Batch:
        """Makes a batch of the samples at these positions of a pass's view, in the pass `bucket_pass`, and
        starts to read them ahead.

        `layout` says how images of different sizes lie, `again` how often each position came before in the
        pass.

        Raises:
            IndexError: a position is out of range.
            BatchShapeError: the transform gives the samples different sizes, and the layout is "equal".
            ResourceError: a batch needs more memory than there is.
        """
        view = self.view if view is None else view
        sources, indices, listed = view.image_rows(positions)
        occurrences = view.occurrences(positions, again)
        seeds = row_seeds(seed, epoch, occurrences)
        drawn_as = None if listed is None else listed.drawn_as
        wanted = len(indices)
        if listed is not None:
            seeds = None if seeds is None else np.repeat(seeds, listed.counts)
            if not wanted:  # samples without images: one that nobody makes or gets, since a batch has rows
                sources, indices, seeds = np.zeros(1, np.uint32), np.zeros(1, np.uint64), None
                drawn_as = None
        if self._remote and self.row_fields is not None:
            self._fetch_counts(sources, indices.astype(np.int64), self.row_fields)
        sizes = self._one_size
        if sizes is not None and layout.kind != "padded" and self.outputs[0].patches is None:
            batch = core.Batch(
                self.core,
                sources,
                indices,
                _wide(sizes),
                self.outputs,
                seed,
                epoch,
                even=layout.even,
                seeds=seeds,
                drawn_as=drawn_as,
            )
            if self._is_more(batch):
                self._require_room(batch, "with the rows of their fields")
        else:
            batch = self._different(sources, indices, seed, epoch, layout, seeds, drawn_as)
        batch.occurrences, batch.listed = occurrences, listed
        if not wanted:
            batch.fail(0, "it is no sample's", remote=False)
        if self._remote:
            rows = sources[:wanted], indices[:wanted].astype(np.int64)
            self._fetch(batch, *rows, positions, bucket_pass)
        return batch

    def _different(
        self,
        sources: npt.NDArray[np.uint32],
        indices: npt.NDArray[np.uint64],
        seed: int,
        epoch: int,
        layout: ImageLayout,
        seeds: npt.NDArray[np.uint64] | None = None,
        drawn_as: npt.NDArray[np.uint64] | None = None,
    ) -> core.Batch:
        """Makes a batch whose images may have different sizes."""
        found = batch_sizes(
            self.view.datasets, sources, indices, len(self.outputs), seed, epoch, layout, seeds, drawn_as
        )
        batch = core.Batch(
            self.core,
            sources,
            indices,
            found.for_batch,
            self.outputs,
            seed,
            epoch,
            *found.layout,
            seeds=seeds,
            drawn_as=drawn_as,
        )
        for row, reason in found.failed:
            batch.fail(row, reason, remote=False)
        if self._is_more(batch):
            self._require_room(
                batch, "padded to their largest" if layout.kind == "padded" else "of different sizes"
            )
        return batch

    def _is_more(self, batch: core.Batch) -> bool:
        """Returns True if a batch is larger than all before it, or than all slots that are left: the ring
        gives huge slots back."""
        return batch.bytes > self._largest or (
            batch.bytes >= ASKED_FROM and batch.bytes > self.ring.counts()["bytes"]
        )

    def _require_room(self, batch: core.Batch, described: str) -> None:
        """Raises ResourceError where a batch for which memory must be mapped needs more than is free: the
        system may not refuse it."""
        free, needed = available_memory(), self._taken(batch.bytes)
        if free is not None and needed > free:
            need = f"a batch of {batch.rows} images {described} needs {needed} bytes"
            raise ResourceError(f"{need} and {free} are available: lower batch_size")
        self._largest = max(self._largest, batch.bytes)

    def _fetch_counts(
        self, sources: npt.NDArray[np.uint32], indices: npt.NDArray[np.int64], fields: NativeFields
    ) -> None:
        """Fetches the tables that the size of a batch depends on, and waits for those that this host
        lacks. Raises RemoteError."""
        for source, files in self._remote.items():
            shards = np.unique(files.rows(indices[sources == source])[0])
            for name in (
                (PLACES, *fields.counts) if files.lacking_tables(shards, (PLACES, *fields.counts)) else ()
            ):
                files.fetch_tables(shards.tolist(), name)

    def made_alone(
        self, source: int, index: int, seed: int, epoch: int, drawn_as: int | None = None
    ) -> core.Batch | None:
        """Makes one sample in the calling thread, as a ready batch of its own, which says whether it failed;
        None: there is no batch of it. `drawn_as`: index of its draws; None: its own.

        Raises:
            RemoteError: its record cannot be fetched.
        """
        sources, indices = np.array([source], np.uint32), np.array([index], np.uint64)
        files = self._remote.get(source)
        try:
            drawn = None if drawn_as is None else np.array([drawn_as], np.uint64)
            batch = self._different(sources, indices, seed, epoch, LIST, drawn_as=drawn)
            record = None if files is None else files.record(index)
            if record is not None:
                batch.give(0, record)
            batch.make()
            if batch.failures():
                self.heal(batch, 0, source, index)
            return batch
        except RemoteError:
            raise
        except SampleError:
            return None

    def _fetch(
        self,
        batch: core.Batch,
        sources: npt.NDArray[np.uint32],
        indices: npt.NDArray[np.int64],
        positions: Sequence[int],
        bucket_pass: BucketPass | None,
    ) -> None:
        """Begins to fetch what a batch needs of datasets in buckets."""
        opens = None if bucket_pass is None else bucket_pass.opens(as_positions(positions))
        parts = [self._part(source, sources, indices, bucket_pass, opens) for source in self._remote]
        asks: list[Asks] = []
        if not any(part.tables for part in parts) and not (bucket_pass is not None and bucket_pass.line):
            with suppress(DatasetError):  # a table is damaged: the batch has it fetched again
                asks = [asks_of(part, bucket_pass) for part in parts]
        if asks and not any(ask.missing for ask in asks):
            for part, ask in zip(parts, asks, strict=True):
                part.files.note(ask.share)
        else:
            batch.fetch = BatchFetch(batch, parts, bucket_pass, asks)

    def _part(
        self,
        source: int,
        sources: npt.NDArray[np.uint32],
        indices: npt.NDArray[np.int64],
        bucket_pass: BucketPass | None,
        opens: npt.NDArray[np.int64] | None,
    ) -> BatchPart:
        """A batch's share of one dataset in a bucket."""
        files, rows = self._remote[source], np.flatnonzero(sources == source)
        mine = indices[rows]
        opened = mine[:0] if bucket_pass is None or opens is None else bucket_pass.opened(source, opens)
        shards = np.unique(files.rows(np.concatenate((mine, opened)) if len(opened) else mine)[0])
        return BatchPart(
            source, files, rows, mine, opened, shards, files.lacking_tables(shards, self._tables)
        )

    @cached_property
    def _tables(self) -> tuple[str, ...]:
        """The tables that a batch needs: places, and columns that it delivers."""
        columns = [name for name, _, columns in self.fields if columns]
        return (PLACES,) if self.view.has_lists else (PLACES, *columns)

    @cached_property
    def read_ahead(self) -> int:
        """Samples that are read ahead before their turn; from buckets, as many as make READ_AHEAD_BYTES."""
        slow = any(
            isinstance(each.data, core.Files) and each.data.keeps(core.KEEP_BYTES)
            for each in self.core.sources
        )
        least = SLOW_READ_AHEAD if slow else READ_AHEAD
        return max([least, *(READ_AHEAD_BYTES // each.mean_bytes for each in self._remote.values())])

    def bytes_of(self, samples: int) -> int:
        """Bytes of so many samples in buckets; 0: no dataset lies in one."""
        return samples * min((files.mean_bytes for files in self._remote.values()), default=0)

    def lacking_bytes(self, positions: Sequence[int], view: NativeView) -> int:
        """Bytes that samples at these positions of a pass's view need and caches lack; 0 where that is an
        error of the batch."""
        if not self._remote:
            return 0
        try:
            sources, indices, _ = view.image_rows(positions)
            return sum(
                files.lacking_bytes(indices[sources == source].astype(np.int64))
                for source, files in self._remote.items()
            )
        except Exception:  # the batch's turn raises it
            return 0

    def bucket_pass(self, coverage: Coverage | None, view: NativeView) -> BucketPass | None:
        """Begins a pass of which something is known, over datasets in buckets."""
        return None if coverage is None or not self._remote else BucketPass(view, self._remote, coverage)

    @property
    def in_buckets(self) -> bool:
        """True if any data lies in a bucket."""
        return bool(self._remote)

    def redo(self, batch: core.Batch, row: int, source: int, index: int, seed: int) -> bool:
        """Makes another sample, with another seed, into a row of a ready batch; True when it could be
        made. Raises RemoteError."""
        files = self._remote.get(source)
        try:
            if batch.redo(row, source, index, None if files is None else files.record(index), seed):
                return True
            return self.heal(batch, row, source, index)
        except RemoteError:
            raise
        except SampleError:
            return False

    def heal(self, batch: core.Batch, row: int, source: int, index: int) -> bool:
        """Makes a row again whose record in a cache may be damaged; True when it could be made. Raises
        RemoteError."""
        dataset = self.view.datasets[source]
        if source not in self._remote:
            return False
        try:
            record = dataset.healed(index)
            return bool(record) and batch.redo(row, source, index, record)
        except SampleError:
            return False

    @cached_property
    def _one_size(self) -> OutputSizes | None:
        """The sizes of every sample after the transform, if it fixes them or all stored images have one
        size; else None."""
        fixed = self._fixed_sizes()
        if fixed is not None:
            return fixed
        if any(d.plan.drawn_size for d in self.view.datasets):
            return None
        if not all(is_constant(side) for d in self.view.datasets for side in d.images.stored_sizes):
            return None
        try:
            sizes = {d.image_sizes(0) for d in self.view.datasets}
        except (SampleError, ValueError):
            return None
        return sizes.pop() if len(sizes) == 1 else None

    @cached_property
    def fields(self) -> list[tuple[str, str, list[Any]]]:
        """(name, kind, values by sample of each dataset) of the delivered fields; no values for a field
        that is stored in records."""
        datasets = self.view.datasets
        kinds = datasets[0].kinds
        native = {*datasets[0].stored_fields, *(() if self.row_fields is None else self.row_fields.names)}
        columns = {
            name: kinds[name] in KINDS and KINDS[kinds[name]].is_column and name not in native
            for name in datasets[0].fields
        }
        return [
            (name, kinds[name], [each.by_sample(name) for each in datasets] if columns[name] else [])
            for name in columns
        ]

    @cached_property
    def spare_cpus(self) -> int:
        """CPUs of this process that its threads leave to others, at least 1."""
        return max(1, available_cpus() - self.core.threads)

    def column_values(
        self, sources: npt.NDArray[np.uint32], indices: npt.NDArray[np.uint64]
    ) -> dict[str, list[object]]:
        """The values of fields that are columns, as one Python value for each row."""
        datasets = self.view.datasets
        if len(datasets) == 1:
            return datasets[0].column_values(indices.astype(np.int64).tolist())
        rows = [
            datasets[s].column_values([int(i)])
            for s, i in zip(sources.tolist(), indices.tolist(), strict=True)
        ]
        return {name: [row[name][0] for row in rows] for name in rows[0]}

    def stored_values(self, source: int, index: int) -> dict[str, object]:
        """The fields of one row that are stored in its record. Raises SampleError if one cannot be read."""
        return self.view.datasets[source].stored_values(index)

    def sample_error(self, source: int, index: int, reason: str) -> SampleError:
        """The exception that names a failed row's sample."""
        return self.view.datasets[source].sample_error(index, reason)

    def opened(
        self, rows: Sequence[tuple[int, int]]
    ) -> Generator[npt.NDArray[np.uint8] | Exception, None, None]:
        """Images of rows, by source and index, as the program's own code opens them, or its exceptions, in
        order.

        Several are opened side by side, by threads of Python's: most of the work of that code, which is
        Pillow's, holds no lock.
        """

        def open_one(row: tuple[int, int]) -> npt.NDArray[np.uint8] | Exception:
            try:
                return self.view.datasets[row[0]].load(row[1])
            except Exception as error:
                return error

        yield from (
            map(open_one, rows)
            if min(len(rows), self.core.threads) < 2
            else ahead(self._openers, open_one, rows, 2 * self.core.threads)
        )

    @cached_property
    def _openers(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.core.threads, thread_name_prefix="fastload-open")

    def close(self) -> None:
        """Stops the threads. Leased batches stay valid."""
        if (openers := self.__dict__.pop("_openers", None)) is not None:
            openers.shutdown(cancel_futures=True)
        self.core.close()


def _wide(sizes: OutputSizes) -> list[tuple[int, int]]:
    """(width, height) of each, as core has sizes."""
    return [(width, height) for height, width in sizes]


def _require_memory(slot_bytes: int, slots: int) -> None:
    if slot_bytes * slots < ASKED_FROM:
        return
    free = available_memory()
    if free is not None and slot_bytes * slots > free:
        raise ResourceError(
            f"{slots} batches of {slot_bytes} bytes need {slot_bytes * slots} bytes and {free} are "
            "available: "
            "lower batch_size or prefetch_factor"
        )
