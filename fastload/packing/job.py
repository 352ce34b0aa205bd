"""PackJob: the work of a pack on each sample of a source: reading and encoding on threads, and writing in
order by one writer.

NOTE [ pack: resume ]
Samples are written in the order of positions. The writer receives each sample with the tally after it. It
stores the tally of its last commit, and a log entry for each sample up to there. A resumed pack continues
after those samples if the source still has them unchanged (see NOTE [ pack: what a resume checks ]), so it
writes what an uninterrupted pack would have written. The options must be the same, but for those that concern
samples not written yet: `VARYING`.

`place_of` names the destination of a pack: a folder, or a URL with the local folder through which its shards
go. `Survey` counts a source's images, before or during a pack, that have more than 8 bits and cannot be
stored.
"""

from __future__ import annotations

import errno
import hashlib
import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fastload.common.files import expanded, size_limit
from fastload.common.folders import IMAGE_EXTENSIONS
from fastload.common.progress import Progress
from fastload.common.urls import is_url, local_path
from fastload.errors import (
    ArgumentError,
    FastloadError,
    PackError,
    PackStoppedError,
    ResourceError,
    SampleError,
    advised,
)
from fastload.packing.encode import Encoded
from fastload.packing.fields import FieldEncoder
from fastload.packing.options import MAY_VARY, PackOptions, RunOptions
from fastload.packing.origins import ENTRY, Order, OriginLog, name_digests, shuffled
from fastload.packing.pipeline import OrderedPipeline
from fastload.packing.summary import COUNTS, PackSummary, Tally
from fastload.sources import Item
from fastload.sources.notices import DEEP, ORIENTATION
from fastload.sources.pixels import DeepImageError, MissingLibrary, check_depth
from fastload.sources.protocol import IMAGE_FIELD, Source, attribute_of, schema_of
from fastload.store import DatasetWriter, Manifest, Prepared, RowError
from fastload.store.class_counts import KEY, class_counts, labels_most
from fastload.store.labels import class_fields
from fastload.store.manifest import new_path


def destination(out: str | os.PathLike[str], run: RunOptions) -> tuple[Path, Callable[..., DatasetWriter]]:
    """The folder that a pack writes to, and what opens its writer: called with DatasetWriter's arguments from
    the schema on.

    Raises:
        ArgumentError: an option of URLs is given for a folder, or the URL or an option is wrong.
    """
    place = place_of(out, run)
    return _at_url(place, run) if isinstance(place, str) else (place, partial(DatasetWriter, place))


def place_of(out: str | os.PathLike[str], run: RunOptions) -> str | Path:
    """Destination of a pack: a URL as a str, or a folder of this machine as a Path.

    Raises:
        ArgumentError: an option of URLs is given for a folder, or the URL is wrong.
    """
    if is_url(out) and (path := local_path(os.fspath(out))) is not None:
        out = path
    if is_url(out):
        return os.fspath(out)
    for name in ("staging", "storage_options", "timeout"):
        if getattr(run, name) is not None:
            raise ArgumentError(f"{name} is for a pack to a URL, and {os.fspath(out)} is a folder")
    return new_path(out)


def _at_url(url: str, run: RunOptions) -> tuple[Path, Callable[..., DatasetWriter]]:
    from fastload.remote.client import open_objects
    from fastload.remote.writer import RemoteWriter, default_staging

    staging = default_staging(url) if run.staging is None else Path(expanded(run.staging))

    def open_writer(*args: Any, **settings: Any) -> DatasetWriter:
        objects = open_objects(url, run.storage_options, 60.0 if run.timeout is None else run.timeout)
        try:
            return RemoteWriter(objects, staging, *args, **settings)
        except BaseException:
            objects.close()
            raise

    return staging, open_writer


SAMPLES = 4096
CANDIDATES = 1 << 18
BYTES = 256 << 20
"""Limits on what a survey reads, so that its cost is small beside the pack's for any source."""

_OTHERS = tuple(extension for extension in IMAGE_EXTENSIONS if extension not in (".jpg", ".jpeg"))


@dataclass(frozen=True, slots=True)
class Survey:
    """Result of a survey of some samples.

    Attributes:
        looked: number of images that were looked at.
        deep: number of them that have more than 8 bits a channel.
        first: the name of the first such image, "" for none.
        reason: why it is refused.
    """

    looked: int
    deep: int
    first: str
    reason: str


def survey(source: Source, order: Order, begin: int, *, by_name: bool) -> Survey:
    """Looks at the headers of at most `SAMPLES` images and `BYTES` bytes, evenly spread over the order from a
    place on.

    Args:
        source: the source; one that only one thread may use is not surveyed.
        order: the samples to choose from: of more than `CANDIDATES` as many, evenly spread.
        begin: the place in the order from which on they are chosen.
        by_name: choose only samples that are pictures of another format than JPEG, by their file names.
    """
    if not source.concurrent:
        return Survey(0, 0, "", "")
    step = max(1, -(-(len(order) - begin) // CANDIDATES))
    positions = (order[place] for place in range(begin, len(order), step))
    chosen = [p for p in positions if not by_name or os.path.splitext(source.name(p))[1].lower() in _OTHERS]
    looked = size = 0
    deep: dict[int, str] = {}
    # in random order, so that the samples are spread evenly wherever the limit on bytes ends the survey
    for place in map(int, np.random.default_rng(0).permutation(len(chosen))[:SAMPLES]):
        try:
            image = source.read(chosen[place]).image
            looked += 1
            size += len(image)
            if isinstance(image, bytes):
                check_depth(image)
        except DeepImageError as error:
            deep[place] = error.reason
        except (FastloadError, OSError):
            continue  # the pack itself reports or skips unreadable samples
        if size > BYTES:
            break
    first = min(deep, default=-1)
    return Survey(looked, len(deep), source.name(chosen[first]) if deep else "", deep.get(first, ""))


VARYING = (*MAY_VARY, "source_samples", "source_digest")
"""Entries of the manifest's options that a resume may change."""


_UPLOADED = "what was uploaded stays: go on with resume=True (--resume)"


def run_job(job: PackJob, out: str | os.PathLike[str], run: RunOptions) -> PackSummary:
    """Makes the dataset `out` of a job's samples.

    Raises:
        PackError: a sample cannot be packed (PackStoppedError), `out` is in the way, the disk is full. What
            has been written stays, for a resume.
    """
    started = time.monotonic()
    folder, open_writer = destination(out, run)
    if job.options.on_error == "raise" and not (run.resume and os.path.exists(folder)):
        job.refuse_deep()
    schema = schema_of(job.source)
    writer = open_writer(
        schema,
        shard_size=run.shard_bytes,
        options=job.identity()
        if run.shard_samples is None
        else {**job.identity(), "shard_samples": run.shard_samples},
        varying=VARYING,
        resume=run.resume,
        overwrite=run.overwrite,
        base=job.base,
    )
    try:
        with advised(_UPLOADED), Progress(len(job.order), job.source.title, shown=run.progress) as bar:
            return job.run(writer, run, bar, started)
    except OSError as error:
        raise write_failure(folder, error) from error
    except KeyboardInterrupt:
        writer.abort(now=True)
        raise
    finally:
        writer.abort()  # does nothing after finish(); otherwise committed shards stay for a resume


class SampleWriter(Protocol):
    """Destination of samples: `DatasetWriter`, or the writer of one shard."""

    def note(self, entry: bytes) -> None: ...
    def append_all(self, samples: Sequence[Prepared], *, state: Callable[[], dict[str, Any]]) -> None: ...


@dataclass(slots=True)
class Outcome:
    """Result of encoding one sample: its records, ready to be written, or the reason why there are none."""

    name: str
    prepared: Sequence[Prepared] | None
    entry: bytes
    how: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    bytes_in: int = 0
    bytes_out: int = 0
    warning: str = ""
    notices: tuple[str, ...] = ()
    reason: str = ""
    error: BaseException | None = None
    labels: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it holds."""
        return self.bytes_out


class PackJob:
    """One pack: the order of the source's samples, and the work on each.

    Attributes:
        source: source of the samples.
        options: options of the pack.
        order: the positions of the samples, in the order in which they are written.
        tracer: makes and checks the log of its samples.
        base: the folder of attached files, as the manifest names it; None: the dataset holds its images.
    """

    def __init__(self, source: Source, options: PackOptions, *, ordered: bool = False) -> None:
        """`ordered`: the source is a part of the samples, in the order in which they are to be written."""
        self.source = source
        self.options = options
        if not len(source):
            raise PackError(f"{source.title}: the source has no samples")
        self._names = name_digests(source)
        self.origins = OriginLog(source, self._names)
        count = len(source) if options.limit is None or ordered else min(options.limit, len(source))
        self.order = Order(
            count, shuffled(self._names, options.seed) if options.shuffle and not ordered else None
        )
        self.base: str | None = None
        self._fields = FieldEncoder(source, options)
        self._labels = class_fields(schema_of(source), source.classes)
        self._labels_most = labels_most(source.classes)

    def encoded(self, place: int, item: Item) -> list[tuple[Item, Encoded]]:
        """The records that a sample becomes: each as an item, with the stored form of its image. Raises as
        `encode` does."""
        return [(item, self.encode(self.order[place], item))]

    def encode(self, position: int, item: Item) -> Encoded:
        """The stored form of a sample's image; runs in threads. Raises as `Encoder` does."""
        return self._fields.first(item)

    def record(
        self, prepare: Callable[..., Prepared], position: int, item: Item, encoded: Encoded
    ) -> Prepared:
        """A sample ready to be written, made by the writer's `prepare`; runs in threads.

        Raises:
            PackError: a value does not fit its field.
            SampleError: a mask or a further image cannot be decoded.
        """
        return prepare(
            {
                IMAGE_FIELD: encoded.data,
                **(item.values if self._fields.plain else self._fields.others(item, encoded)),
            },
            image_kind=encoded.kind,
            height=encoded.height,
            width=encoded.width,
            index=encoded.index or b"",
        )

    def labels_of(self, position: int, item: Item) -> dict[str, list[int]]:
        """The labels of a sample, and of its objects, by field."""
        return {
            field.name: list(map(int, np.asarray(item.values[field.name]).ravel())) for field in self._labels
        }

    def identity(self) -> dict[str, Any]:
        """The options that the manifest stores. A resumed pack must have the same, but for `VARYING`."""
        attached = {} if self.base is None else {"attached": True}
        counted = {"source_samples": len(self.source), "source_digest": self.digest}
        return {**self.options.as_dict(), **counted, **attached}

    @cached_property
    def digest(self) -> str:
        """Digest of the names of all samples."""
        digest = hashlib.blake2b(digest_size=16)
        for block in self._names.blocks():
            digest.update(block.tobytes())
        return digest.hexdigest()

    def digest_of(self, positions: npt.NDArray[np.int64]) -> str:
        """Digest of the names of some samples, in this order."""
        return hashlib.blake2b(self._names.take(positions).tobytes(), digest_size=16).hexdigest()

    def run(self, writer: DatasetWriter, run: RunOptions, bar: Progress, started: float) -> PackSummary:
        if writer.finished is not None:
            self.refuse_others(writer.title, writer.finished)
            return finished_summary(writer.finished, started)
        tally = self._resumed(writer, run.threads)
        before = writer.next_index
        bar.start(tally.position, tally.bytes_in)
        with closing(self.outcomes(writer.prepare, tally.position, len(self.order), run.threads)) as outcomes:
            for outcome in outcomes:
                if run.shard_samples is not None and tally.noted % run.shard_samples == 0:
                    writer.next_shard(tally.noted // run.shard_samples, tally.noted, tally.state)
                self.write(writer, outcome, tally)
                bar.update(tally.position, tally.bytes_in)
        samples = writer.next_index
        if samples == 0:
            raise self.nothing_packed(tally)
        summary = self.summary(tally, samples)
        form = attribute_of(self.source, "form")
        manifest = writer.finish(
            self.source.classes, summary.stored(), form=form, max_pixels=tally.max_pixels
        )
        return replace(
            summary.of(manifest),
            shards=len(manifest.shards),
            seconds=time.monotonic() - started,
            packed_now=samples - before,
        )

    def summary(self, tally: Tally, samples: int) -> PackSummary:
        """The summary of all samples, before they are a dataset."""
        notices, layout = attribute_of(self.source, "notices"), attribute_of(self.source, "layout")
        return tally.summary(
            samples=samples, shards=0, seconds=0.0, packed_now=0, source=notices, layout=layout
        )

    def outcomes(
        self, prepare: Callable[..., Prepared], start: int, stop: int, workers: int
    ) -> Generator[Outcome]:
        """Outcomes of the samples at the places `start` .. `stop` - 1 of the order; `prepare` is the
        writer's. To be closed."""
        pipeline = OrderedPipeline(
            lambda place, item: self._outcome(prepare, place, item),
            start,
            stop,
            workers=workers,
            prepare=None if self.source.concurrent else self._read,
        )
        with pipeline:
            for batch in pipeline.results():
                yield from batch

    def nothing_packed(self, tally: Tally) -> PackError:
        """The error for a source of which every sample was left out."""
        return PackError(
            f"{self.source.title}: none of its {len(self.order)} samples could be packed{_first(tally)}"
        )

    def _resumed(self, writer: DatasetWriter, workers: int) -> Tally:
        """The tally of the samples written already, with the position at which this call continues; an
        empty one at the start."""
        tally = Tally(writer.state)
        tally.max_pixels = max(tally.max_pixels, self.options.max_pixels)
        if tally.noted * ENTRY.itemsize != len(writer.noted):
            raise PackError(
                f"{writer.title} was begun by another version of fastload, so it cannot be resumed: "
                "--overwrite starts again"
            )
        try:
            tally.position = self.origins.resume_at(writer.noted, self.order, workers)
        except PackError as error:
            raise PackError(f"{writer.title} cannot be resumed: {error}") from error
        return tally

    def refuse_others(self, title: str, manifest: Manifest) -> None:
        """Raises PackError if the dataset is finished, but was packed from other samples than the source
        has."""
        stored, now = manifest.options, self.identity()
        for name in ("source_digest", "limit"):
            if stored.get(name) != now[name]:
                raise PackError(
                    f"{title} is complete, with {name}={stored.get(name)!r} where it is "
                    f"{now[name]!r} now: --overwrite packs it again"
                )

    def refuse_deep(self, begin: int | None = None) -> None:
        """Refuses a source with images of more than 8 bits a channel, and says how many: before anything is
        written by the images that are no JPEG by name, and where one is met in the midst, of all from there
        on.

        Raises:
            PackError: there are such images.
        """
        if not self._fields.image.is_rgb:
            return
        found = survey(self.source, self.order, begin or 0, by_name=begin is None)
        if found.deep:
            images = (
                f"{found.looked:,} images looked "
                f"at{' (those that are not named as JPEGs)' if begin is None else ''}"
            )
            raise PackStoppedError(f"{found.first}: {found.reason}. {found.deep:,} of the {images} are such")

    def write(self, writer: SampleWriter, outcome: Outcome, tally: Tally) -> None:
        """Writes one sample, or leaves it out, and counts it. Raises PackStoppedError for a bad one where
        on_error is "raise"."""
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
        for name, labels in outcome.labels.items():
            tally.classes.add(name, labels, self._labels_most)
        tally.bytes_in += outcome.bytes_in
        tally.bytes_out += outcome.bytes_out
        for format in outcome.formats:
            tally.formats[format] = tally.formats.get(format, 0) + 1
        for count in outcome.how:
            tally.counts[count] += 1
        if outcome.warning:
            tally.warn(outcome.name, outcome.warning)
        for kind in outcome.notices:
            tally.notices.add(
                kind, outcome.name, self._fields.orientation_notice if kind == ORIENTATION else ""
            )
        writer.append_all(outcome.prepared, state=tally.state)

    def _read(self, place: int) -> _Read:
        """Reads one sample in the thread that writes, for sources that only one thread may use."""
        position = self.order[place]
        stamp = self.origins.stamp(position)
        try:
            return _Read(stamp, self.source.read(position))
        except (FastloadError, OSError) as error:
            return _Read(stamp, None, error)

    def _outcome(self, prepare: Callable[..., Prepared], place: int, read: _Read | None) -> Outcome:
        """Reads and encodes one sample and builds its record. A failure of the sample itself is returned
        as an outcome."""
        position = self.order[place]
        item: Item | None = None
        try:
            if read is not None and read.error is not None:
                raise read.error
            stamp = self.origins.stamp(position) if read is None else read.stamp
            item = read.item if read is not None and read.item is not None else self.source.read(position)
            encoded = self.encoded(place, item)
            prepared = [self.record(prepare, position, each, one) for each, one in encoded]
        except (MissingLibrary, ResourceError):
            raise
        except MemoryError as error:
            raise ResourceError(
                f"{self.source.name(position)}: no memory to pack it: use fewer workers, or a lower "
                "max_pixels"
            ) from error
        except (FastloadError, OSError) as error:
            name = self.source.name(position)
            # A message that stands alone names the sample, as this one will.
            reason = _reason(error, item).removeprefix(f"{name}: ")
            return Outcome(name, None, self.origins.left_out(position), reason=reason, error=error)
        forms = [one for _, one in encoded]
        entry = self.origins.written(position, stamp, item)
        return Outcome(
            item.name,
            prepared,
            entry,
            tuple(each for one in forms for each in (*one.how, *(("indexed",) if one.index else ()))),
            tuple(one.format for one in forms),
            item.nbytes,
            sum(one.data.nbytes if isinstance(one.data, np.ndarray) else len(one.data) for one in forms),
            next((one.warning for one in forms if one.warning), ""),
            tuple(dict.fromkeys(kind for one in forms for kind in one.notices)),
            labels=self.labels_of(position, item),
        )


@dataclass(slots=True)
class _Read:
    """An item that was read ahead, or the error of reading it, and its stamp from before."""

    stamp: tuple[int, int]
    item: Item | None
    error: BaseException | None = None

    @property
    def nbytes(self) -> int:
        return 0 if self.item is None else self.item.nbytes


def finished_summary(manifest: Manifest, started: float) -> PackSummary:
    """The summary of a dataset that was complete before the resume."""
    stored = {name: value for name, value in manifest.summary.items() if name != KEY}
    tally = Tally({"counts": stored, **stored})
    tally.counts = {name: tally.counts[name] for name in COUNTS}
    found = tally.summary(
        samples=manifest.count, shards=len(manifest.shards), seconds=time.monotonic() - started, packed_now=0
    )
    return replace(
        found.of(manifest), layout=str(stored.get("layout", "")), class_counts=class_counts(manifest)
    )


def _reason(error: BaseException, item: Item | None) -> str:
    if isinstance(error, RowError) and item is not None and error.row < len(item.objects):
        return f"{item.objects[error.row]}: {error.reason}"
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


def write_failure(out: str | os.PathLike[str], error: OSError) -> FastloadError:
    if isinstance(error, FastloadError):
        return error
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return PackError(
            f"{os.fspath(out)}: the disk is full; free some space, then go on with resume=True (--resume)"
        )
    return PackError(f"{os.fspath(out)}: cannot be written: {error.strerror or error}{size_limit(error)}")
