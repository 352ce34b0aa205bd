"""Entropy indexing of a packed dataset: adds, shard by shard, the indexes that `pack` with index=True makes.

The result is the dataset that packing with the index would have made. `fastload.store.rewrite` describes what
is durable when, and what a kill leaves.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass

from fastload._native import core
from fastload.common.progress import Progress
from fastload.common.system import available_cpus
from fastload.errors import ArgumentError, SampleError
from fastload.packing.pipeline import OrderedPipeline
from fastload.store import DatasetReader, DatasetRewriter, Manifest, indexed_image, with_index
from fastload.store.kinds.codecs import BY_ENTRY
from fastload.store.lists import images_path

_GO_ON = "run `fastload index` again: nothing is lost, and shards that have their index keep it"


@dataclass(frozen=True, slots=True)
class IndexSummary:
    """Result of `index`.

    Attributes:
        samples: samples in the dataset.
        jpegs: samples whose image is a JPEG.
        indexed: JPEGs that now have an entropy index; progressive, damaged and very small ones have none.
        added: JPEGs that got it now.
        shards: shards that were rewritten.
        seconds: wall-clock time.
    """

    samples: int
    jpegs: int
    indexed: int
    added: int
    shards: int
    seconds: float


def index(
    path: str | os.PathLike[str], *, workers: int | None = None, progress: bool = False
) -> IndexSummary:
    """Adds the entropy index, by which crops decode faster, to the JPEGs of a packed dataset that have none;
    and the sidecar, by which it opens faster.

    The dataset then equals one packed with index=True. The disk needs room for one more shard. Open datasets
    are not disturbed. After a stop, even a kill, the dataset is whole, and another call does the rest.

    Args:
        path: the dataset's directory.
        workers, progress: as for `pack`.

    Raises:
        ArgumentError: workers is out of range.
        DatasetError: no finished dataset, or a damaged one.
        SampleError: a record is damaged; its shard stays as it was.
        PackError: the disk is full, or another process writes to the dataset.
    """
    threads = available_cpus() if workers is None else workers
    if isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= 1024:
        raise ArgumentError(f"workers={workers!r} is no whole number between 1 and 1024")
    started = time.monotonic()
    if Manifest.load(path).schema.images is not None:
        return index(images_path(path), workers=workers, progress=progress)
    with (
        DatasetRewriter(path, _GO_ON) as rewriter,
        Progress(rewriter.reader.count, "index", shown=progress) as bar,
    ):
        bar.start(0, 0)
        job = _Job(rewriter, threads, bar)
        for number in range(len(rewriter.manifest.shards)):
            job.shard(number)
        rewriter.renew_sidecar()
        # last, so that the options hold for the whole dataset
        manifest = rewriter.manifest
        rewriter.describe({**manifest.options, "index": True}, {**manifest.summary, "indexed": job.indexed})
    return IndexSummary(
        manifest.count, job.jpegs, job.indexed, job.added, job.rewritten, time.monotonic() - started
    )


@dataclass(slots=True)
class _Seen:
    """Result for one sample: its new record, or None if the old one stays."""

    record: bytes | None
    crc: int
    jpeg: bool
    indexed: bool
    read: int

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it holds."""
        return 0 if self.record is None else len(self.record)


class _Job:
    """The indexing of one dataset, and its counts."""

    def __init__(self, rewriter: DatasetRewriter, workers: int, bar: Progress) -> None:
        self._rewriter = rewriter
        self._workers = workers
        self._bar = bar
        self._local = threading.local()
        self._read = 0
        self.jpegs = self.indexed = self.added = self.rewritten = 0

    def shard(self, number: int) -> None:
        """Indexes one shard and commits it."""
        reader = self._rewriter.reader
        with self._rewriter.shard(number) as shard:
            at = first = shard.samples.start
            last = shard.samples.stop
            pipeline: OrderedPipeline[_Seen, _Seen]
            pipeline = OrderedPipeline(
                lambda index, _: self._look(reader, index), first, last, workers=self._workers
            )
            with pipeline:
                for batch in pipeline.results():
                    for seen in batch:
                        self._count(seen)
                        if seen.record is not None:
                            shard.replace(at, seen.record, seen.crc)
                        at += 1
                    self._bar.update(at, self._read)
            self.rewritten += shard.commit()

    def _count(self, seen: _Seen) -> None:
        self._read += seen.read
        self.jpegs += seen.jpeg
        self.indexed += seen.indexed
        self.added += seen.record is not None

    def _look(self, reader: DatasetReader, at: int) -> _Seen:
        """Indexes one sample; runs in threads. Raises SampleError, which names the sample, if its record
        is damaged."""
        fields = reader.record_fields(at)
        read = sum(len(data) for _, _, data in fields)
        image = indexed_image(fields)
        if image is None:
            return _Seen(None, 0, False, False, read)
        if any(entry[:2] == (image[0] | core.RECORD_INDEX, core.KIND_INDEX) for entry in fields):
            return _Seen(None, 0, True, True, read)
        kind, data = reader.read_image(at, *image[1:])
        if not BY_ENTRY[kind].can_be_indexed:
            return _Seen(None, 0, False, False, read)
        made = self._make(data)
        if not made:
            return _Seen(None, 0, True, False, read)
        try:
            record, crc = core.build_record(with_index(fields, made))
        except ArgumentError:  # the record is as large, or has as many fields, as a record may have
            return _Seen(None, 0, True, False, read)
        return _Seen(record, crc, True, True, read)

    def _make(self, jpeg: bytes) -> bytes:
        """The index that packing makes of a JPEG, after it strips the metadata; b"" if it makes none."""
        preparer: core.JpegPreparer | None = getattr(self._local, "preparer", None)
        if preparer is None:
            preparer = self._local.preparer = core.JpegPreparer()
        try:
            found = preparer.prepare(jpeg, entropy=False)
        except SampleError:
            return b""  # not a valid JPEG: `verify` reports it, this command does not
        return preparer.index(found.data) if found.whole and found.data is not None else b""
