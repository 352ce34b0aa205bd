"""pack: reads a source, encodes its images on threads, and writes the samples in order by one writer.

NOTE [ pack: resume ]
Samples are written in the order of positions. The writer receives each sample with the tally after it. It stores the tally of its last
commit, and a log entry for each sample up to there. A resumed pack continues after those samples if the source still has them unchanged
(see NOTE [ pack: what a resume checks ]), so it writes what an uninterrupted pack would have written.
The options must be the same, but for those that concern samples not written yet: `VARYING`.
"""

from __future__ import annotations

import errno
import hashlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastload.errors import FastloadError, PackError, PackStoppedError, ResourceError, SampleError
from fastload.files import expanded
from fastload.limits import checked_max_pixels
from fastload.packing.encode import Encoder
from fastload.packing.notices import DEEP
from fastload.packing.options import Check, Encode, Exif, OnError, PackOptions, RunOptions, Subsampling, lmdb_options, table_options
from fastload.packing.pillow_images import DeepImageError
from fastload.packing.pipeline import OrderedPipeline
from fastload.packing.pixels import MissingLibrary
from fastload.packing.progress import Progress
from fastload.packing.sources import Item, Source, open_source
from fastload.packing.summary import COUNTS, PackSummary, Tally
from fastload.packing.survey import survey
from fastload.packing.trace import ENTRY, Tracer, name_digests, shuffled
from fastload.store import DatasetWriter, Field, Manifest, Prepared, Schema

IMAGE_FIELD = "image"
VARYING = ("on_error", "limit", "max_pixels", "source_samples", "source_digest")
"""Options of a pack that a resume may change."""


def pack(
    source: object,
    out: str | os.PathLike[str],
    *,
    encode: Encode = "lossless",
    quality: int = 90,
    subsampling: Subsampling = "4:2:0",
    max_side: int | None = None,
    min_side: int | None = None,
    shard_size: str | int = "1GiB",
    workers: int | None = None,
    shuffle: bool = False,
    seed: int = 0,
    exif: Exif = "ignore",
    check: Check = "entropy",
    index: bool = True,
    optimize_huffman: bool = False,
    on_error: OnError = "raise",
    limit: int | None = None,
    max_pixels: int | None = None,
    path_column: str | int | None = None,
    label_column: str | int | None = None,
    header: bool | None = None,
    key_pattern: str | None = None,
    label_pattern: str | None = None,
    overwrite: bool = False,
    resume: bool = False,
    progress: bool = False,
) -> PackSummary:
    """Packs a source into the dataset directory `out`; the dataset exists once this returns, and not before.

    Args:
        source: a folder of class folders, a .csv/.tsv of path,label, .tar files (WebDataset), .parquet or TFRecord files, a folder of MDS
            shards or LitData chunks, an LMDB file, a map-style Dataset, or any `Source`.
        out: the directory to make.
        encode: "lossless" (the same pixels: JPEGs keep their coefficients and lose their metadata, progressive and
            arithmetic ones become baseline, other formats become raw pixels, CMYK becomes RGB at quality 100), "keep" (every
            JPEG byte for byte), "jpeg" (all encoded anew) or "raw" (all decoded).
        quality: quality of JPEGs that are encoded, 1 to 100.
        subsampling: chroma subsampling of these JPEGs: "4:4:4", "4:2:2", "4:2:0", "gray".
        max_side: images whose longer side is longer are shrunk to it.
        min_side: images whose shorter side is longer are shrunk to it; with both, the smaller result.
        shard_size: bytes at which a new shard is begun, a number or "500MB", "1GiB".
        workers: threads that read and encode; the CPUs this process may use by default.
        shuffle: pack in a random order that `seed` decides.
        seed: seed of the shuffle.
        exif: "ignore" the orientation, as ImageFolder does, or "apply" it.
        check: "entropy" walks the coded data of every JPEG, so that each that libjpeg-turbo would only decode with warnings is named; it
            costs about 0.4 ms of CPU time for 100 KB. "structure" walks the markers, and looks into the coded data of those files only
            whose markers are not as they should be (cut off, without an end, with bytes between segments, restarts out of order).
        index: store with each JPEG where in its coded data MCUs start (at most 1.5 % of its size), so that a crop is decoded without
            reading what comes before it; the JPEG itself is not changed. It is made in the walk of check="entropy".
        optimize_huffman: give JPEGs Huffman tables of their own: the same pixels in some per cent less, for about 4 ms of CPU time
            for 100 KB. Not with "keep" or "raw".
        on_error: "raise" at the first sample that cannot be packed, or "skip" such samples and name them.
        limit: pack the first so many samples (after the shuffle) only.
        max_pixels: larger images are refused before they are decoded; FASTLOAD_MAX_PIXELS or 2**28 by default.
        path_column: of a .csv or .tsv, the column of paths: its name in the header line, or its number from 0. Usual names (path,
            filename, image_path, ...) are recognised.
        label_column: likewise the column of labels (label, class, target, ...).
        header: whether the first line of a .csv or .tsv names the columns; None recognises it, or asks.
        key_pattern: of an LMDB file, the keys of images with their number, as in "image-%09d"; without it every key is an image's.
        label_pattern: likewise the keys of labels.
        overwrite: replace a dataset, finished or half-written, at `out`.
        resume: go on with a half-written one, made with the same options; on_error, limit, max_pixels and workers may be others. What is
            written already must be in the source as it was; a sample that is not written yet may be mended, removed or added.
        progress: show a bar on the terminal.

    Returns:
        PackSummary: the counts of what was done.

    Raises:
        ArgumentError: an argument out of range, or two that contradict each other.
        PackError: the source or a sample cannot be packed (PackStoppedError), `out` is in the way, the disk is full. What has been
            written stays, for resume=True.
    """
    options = PackOptions(
        encode=encode,
        quality=quality,
        subsampling=subsampling,
        max_side=max_side,
        min_side=min_side,
        exif=exif,
        check=check,
        index=index,
        optimize_huffman=optimize_huffman,
        on_error=on_error,
        shuffle=shuffle,
        seed=seed,
        limit=limit,
        max_pixels=checked_max_pixels(max_pixels),
    )
    run = RunOptions(shard_size, workers, overwrite, resume, progress)
    if overwrite:
        _refuse_source_inside(source, out)
    opened = open_source(source, table_options(path_column, label_column, header), lmdb_options(key_pattern, label_pattern))
    return pack_source(opened, out, options, run)


def pack_source(source: Source, out: str | os.PathLike[str], options: PackOptions, run: RunOptions) -> PackSummary:
    """Packs an open source; see `pack`."""
    started = time.monotonic()
    job = _Job(source, options)
    if options.on_error == "raise" and not (run.resume and os.path.exists(out)):
        job.refuse_deep()
    schema = Schema((Field(IMAGE_FIELD, "image"), *source.fields))
    writer = DatasetWriter(
        out, schema, shard_size=run.shard_bytes, options=job.identity(), varying=VARYING, resume=run.resume, overwrite=run.overwrite
    )
    try:
        with Progress(len(job.order), source.title, shown=run.progress) as bar:
            return job.run(writer, run.threads, bar, started)
    except OSError as error:
        raise _write_failure(out, error) from error
    finally:
        writer.abort()  # does nothing after finish(); otherwise committed shards stay for a resume


@dataclass(slots=True)
class Outcome:
    """Result of encoding one sample: a record ready to be written, or the reason why there is none."""

    name: str
    prepared: Prepared | None
    entry: bytes
    how: tuple[str, ...] = ()
    format: str = ""
    bytes_in: int = 0
    bytes_out: int = 0
    warning: str = ""
    notices: tuple[str, ...] = ()
    reason: str = ""
    error: BaseException | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it holds."""
        return self.bytes_out


class _Job:
    """One pack: the order of the source's samples, and the work on each."""

    def __init__(self, source: Source, options: PackOptions) -> None:
        self.source = source
        self.options = options
        if not len(source):
            raise PackError(f"{source.title}: the source has no samples")
        self._names = name_digests(source)
        self._tracer = Tracer(source, self._names)
        order = shuffled(self._names, options.seed) if options.shuffle else np.arange(len(source))
        self.order = order[: options.limit]
        self._encoder = Encoder(options)

    def identity(self) -> dict[str, Any]:
        """The options that the manifest stores. A resumed pack must have the same, but for `VARYING`."""
        digest = hashlib.blake2b(self._names.tobytes(), digest_size=16).hexdigest()
        return {**self.options.as_dict(), "source_samples": len(self.source), "source_digest": digest}

    def run(self, writer: DatasetWriter, workers: int, bar: Progress, started: float) -> PackSummary:
        if writer.finished is not None:
            self._refuse_others(writer)
            return _finished(writer.finished, started)
        tally = self._resumed(writer, workers)
        before = writer.next_index
        bar.start(tally.position, tally.bytes_in)
        prepare = None if self.source.concurrent else self._read
        pipeline = OrderedPipeline(
            lambda place, item: self._outcome(writer, place, item),
            tally.position,
            len(self.order),
            workers=workers,
            prepare=prepare,
        )
        with pipeline:
            for outcome in _each(pipeline.results()):
                self._write(writer, outcome, tally)
                bar.update(tally.position, tally.bytes_in)
        samples = writer.next_index
        if samples == 0:
            raise PackError(f"{self.source.title}: none of its {len(self.order)} samples could be packed{_first(tally)}")
        summary = tally.summary(samples=samples, shards=0, seconds=0.0, packed_now=0, source=getattr(self.source, "notices", ()))
        manifest = writer.finish(self.source.classes, summary.stored(), max_pixels=tally.max_pixels)
        return replace(summary, shards=len(manifest.shards), seconds=time.monotonic() - started, packed_now=samples - before)

    def _resumed(self, writer: DatasetWriter, workers: int) -> Tally:
        """The tally of the samples written already, with the position at which this call continues; an empty one at the start."""
        tally = Tally(writer.state)
        tally.max_pixels = max(tally.max_pixels, self.options.max_pixels)
        if tally.noted * ENTRY.itemsize != len(writer.noted):
            raise PackError(f"{writer.out} was begun by another version of fastload, so it cannot be resumed: --overwrite starts again")
        try:
            tally.position = self._tracer.resume_at(writer.noted, self.order, workers)
        except PackError as error:
            raise PackError(f"{writer.out} cannot be resumed: {error}") from error
        return tally

    def _refuse_others(self, writer: DatasetWriter) -> None:
        """Raises PackError if the dataset is finished, but was packed from other samples than the source has."""
        assert writer.finished is not None
        stored, now = writer.finished.options, self.identity()
        for name in ("source_digest", "limit"):
            if stored.get(name) != now[name]:
                raise PackError(
                    f"{writer.out} is complete, with {name}={stored.get(name)!r} where it is {now[name]!r} now: --overwrite packs it again"
                )

    def refuse_deep(self, begin: int | None = None) -> None:
        """Refuses a source with images of more than 8 bits a channel, and says how many: before anything is written by the images that
        are no JPEG by name, and where one is met in the midst, of all from there on.

        Raises:
            PackError: there are such images.
        """
        found = survey(self.source, self.order[begin or 0 :], by_name=begin is None)
        if found.deep:
            of = f"{found.looked:,} images looked at{' (those that are not named as JPEGs)' if begin is None else ''}"
            raise PackStoppedError(f"{found.first}: {found.reason}. {found.deep:,} of the {of} are such")

    def _write(self, writer: DatasetWriter, outcome: Outcome, tally: Tally) -> None:
        if outcome.prepared is None and self.options.on_error == "raise":
            if isinstance(outcome.error, DeepImageError):
                self.refuse_deep(tally.position)
            raise PackStoppedError(f"{outcome.name}: {outcome.reason}") from outcome.error
        tally.position += 1
        writer.note(outcome.entry)
        tally.noted += 1
        if outcome.prepared is None:
            tally.skip(outcome.name, outcome.reason)
            if isinstance(outcome.error, DeepImageError):
                tally.notices.add(DEEP, outcome.name)
            return
        tally.bytes_in += outcome.bytes_in
        tally.bytes_out += outcome.bytes_out
        tally.formats[outcome.format] = tally.formats.get(outcome.format, 0) + 1
        for count in outcome.how:
            tally.counts[count] += 1
        if outcome.warning:
            tally.warn(outcome.name, outcome.warning)
        for kind in outcome.notices:
            tally.notices.add(kind, outcome.name)
        writer.append_prepared(outcome.prepared, state=tally.state)

    def _read(self, place: int) -> _Read:
        """Reads one sample in the thread that writes, for sources that only one thread may use."""
        position = int(self.order[place])
        try:
            return _Read(self.source.read(position))
        except (FastloadError, OSError) as error:
            return _Read(None, error)

    def _outcome(self, writer: DatasetWriter, place: int, read: _Read | None) -> Outcome:
        """Reads and encodes one sample and builds its record. A failure of the sample itself is returned as an outcome."""
        position = int(self.order[place])
        try:
            if read is not None and read.error is not None:
                raise read.error
            stamp = self._tracer.stamp(position)
            item = read.item if read is not None and read.item is not None else self.source.read(position)
            encoded = self._encoder(item)
            prepared = writer.prepare(
                {IMAGE_FIELD: encoded.data, **item.values},
                image_kind=encoded.kind,
                height=encoded.height,
                width=encoded.width,
                index=encoded.index or b"",
            )
        except (MissingLibrary, ResourceError):
            raise
        except MemoryError as error:
            raise ResourceError(f"{self.source.name(position)}: no memory to pack it: use fewer workers, or a lower max_pixels") from error
        except (FastloadError, OSError) as error:
            return Outcome(self.source.name(position), None, self._tracer.left_out(position), reason=_reason(error), error=error)
        size_in = item.image.nbytes if isinstance(item.image, np.ndarray) else len(item.image)
        size_out = encoded.data.nbytes if isinstance(encoded.data, np.ndarray) else len(encoded.data)
        how = (*encoded.how, "indexed") if encoded.index else encoded.how
        entry = self._tracer.written(position, stamp, item)
        return Outcome(item.name, prepared, entry, how, encoded.format, size_in, size_out, encoded.warning, encoded.notices)


@dataclass(slots=True)
class _Read:
    """An item that was read ahead, or the error of reading it."""

    item: Item | None
    error: BaseException | None = None

    @property
    def nbytes(self) -> int:
        image = self.item.image if self.item is not None else b""
        return image.nbytes if isinstance(image, np.ndarray) else len(image)


def _finished(manifest: Manifest, started: float) -> PackSummary:
    """The summary of a dataset that was complete before the resume."""
    tally = Tally({"counts": manifest.summary, **manifest.summary})
    tally.counts = {name: tally.counts[name] for name in COUNTS}
    return tally.summary(samples=manifest.count, shards=len(manifest.shards), seconds=time.monotonic() - started, packed_now=0)


def _each(batches: Iterator[list[Outcome]]) -> Iterator[Outcome]:
    for batch in batches:
        yield from batch


def _reason(error: BaseException) -> str:
    if isinstance(error, SampleError):
        return error.reason or str(error)
    if isinstance(error, OSError) and not isinstance(error, FastloadError):
        return f"cannot be read: {error.strerror or error}"
    return str(error)


def _first(tally: Tally) -> str:
    if not tally.skipped:
        return ""
    name, reason = tally.skipped[0]
    return f"; the first, {name}: {reason}"


def _write_failure(out: str | os.PathLike[str], error: OSError) -> FastloadError:
    if isinstance(error, FastloadError):
        return error
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return PackError(f"{os.fspath(out)}: the disk is full; free some space, then go on with resume=True (--resume)")
    return PackError(f"{os.fspath(out)}: cannot be written: {error.strerror or error}")


def _refuse_source_inside(source: object, out: str | os.PathLike[str]) -> None:
    """Raises PackError if the source lies inside `out`: overwriting would remove what is to be packed."""
    if not isinstance(source, str | os.PathLike):
        return
    inner, outer = os.path.realpath(expanded(source)), os.path.realpath(expanded(out))
    if inner == outer or inner.startswith(outer.rstrip(os.sep) + os.sep):
        raise PackError(f"{os.fspath(out)}: the source lies in it; overwriting would remove what is to be packed")
