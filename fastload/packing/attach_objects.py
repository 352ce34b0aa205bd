"""attach of objects in a store: a dataset that holds where images lie in them, and all other fields.

NOTE [ attach: what is read of objects ]
Of an object no more is read than says where its images lie, and the fields beside them: the headers of a
tar, the footer and page headers of Parquet. Nobody has looked at the images then: the first reading of each
proves that it is sound (NOTE [ store: foreign files ]). `check` reads all of them once, as a pack does, and
notes sizes and checksums. An object's ETag is noted, and each later read asks for it.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.common.ahead import ahead
from fastload.common.progress import Progress
from fastload.common.urls import shown
from fastload.errors import (
    ArgumentError,
    DatasetError,
    FastloadError,
    PackError,
    PackStoppedError,
    SampleError,
    advised,
)
from fastload.packing.encode import Encoded
from fastload.packing.fields import FieldEncoder
from fastload.packing.job import VARYING, finished_summary
from fastload.packing.options import PackOptions, RunOptions
from fastload.packing.summary import PackSummary, Tally
from fastload.remote.foreign import ForeignObjects, ForeignURL
from fastload.remote.hub_urls import is_hub, pinned
from fastload.sources import Item, LooseObjects, Place, Placed, Source, checked, foreign_objects
from fastload.sources.foreign import ForeignFiles
from fastload.sources.notices import READ_WHOLE, Notices, to_json
from fastload.sources.options import SourceOptions
from fastload.sources.protocol import INDEX, attribute_of
from fastload.store import DatasetChange, Field, Schema, ShardEntry
from fastload.store.class_counts import labels_most
from fastload.store.entries import ForeignObject
from fastload.store.foreign_writer import OBJECTS, ForeignSamples, ForeignWriter, check_beside
from fastload.store.form import Form
from fastload.store.form import from_json as form_from_json
from fastload.store.form import to_json as form_to_json
from fastload.store.kinds.base import SampleParts
from fastload.store.labels import class_fields, label_field
from fastload.store.loose import LooseObject, offsets_of
from fastload.store.pages import PageSlots
from fastload.store.sidecar import AddedValues, packed_values, read_segment

LABEL_FIELD = ""
"""Stands for the field that can be the class of an image."""
_AT_ONCE = 16
"""Objects that are read at the same time: requests are waited for."""
_WAITING = 4
"""Objects that are read, and wait for one before them: their samples are in memory."""
_LOOSE = 1 << 14
"""Loose objects of one shard."""
_COMMIT_S = 30.0
"""Seconds after which what is there is written, so that a resume goes on behind it."""


def attach_objects(
    source: object,
    out: str | os.PathLike[str],
    options: PackOptions,
    run: RunOptions,
    reading: SourceOptions,
    *,
    check: bool,
    fields: str | Sequence[str] | None = None,
) -> PackSummary:
    """Makes the dataset directory `out` of images in objects of a store, which stay there; see `attach`.

    Args:
        source: URLs, or patterns of some.
        out: the directory to make.
        options, run, reading: as `attach` was given them.
        check: every image is read once.
        fields: names of the fields to take beside the image; LABEL_FIELD: the one that can be its class, or
            its number where there is none; None: all.

    Raises:
        ArgumentError, PackError: as `attach`.
        RemoteError: the store does not answer.
    """
    started = time.monotonic()
    if options.shuffle:
        raise ArgumentError("shuffle is for a pack: objects in a store are attached in their order")
    found = source if isinstance(source, LooseObjects) else foreign_objects(source, reading)
    parts = _LooseParts(found) if isinstance(found, LooseObjects) else _FileParts(found, reading)
    job = _ObjectsJob(parts, options, check, fields)
    identity = {**job.identity(), OBJECTS: parts.digest}
    with (
        ForeignWriter(
            out, options=identity, varying=VARYING, resume=run.resume, overwrite=run.overwrite
        ) as writer,
        advised("what was attached stays: go on with resume=True (--resume)"),
    ):
        if writer.finished is not None:
            return finished_summary(writer.finished, started)
        return job.run(writer, run, started)


class _Part(NamedTuple):
    """One shard of the dataset: a file in a store, or some loose objects.

    Attributes:
        title: name of it in messages.
        object: the shard's object or objects.
        size: bytes of the file; None: it is loose objects.
        open: the source of its samples, and which of them it has. Raises PackError, RemoteError, OSError.
        read_whole: returns True if the file was read whole, since that took less time.
    """

    title: str
    object: ForeignObject
    size: int | None
    open: Callable[[], tuple[Source, range]]
    read_whole: Callable[[], bool] = bool


class _FileParts:
    """The files that are attached, each a part.

    Attributes:
        digest: digest of which they are, with their ETags.
        done: number of files up to a part.
        readers: threads that read the samples of one part.
    """

    unit, readers = "objects", 1

    def __init__(self, files: ForeignFiles, reading: SourceOptions) -> None:
        kind, urls = files
        for url in urls:
            _check_storable(url.url)
        self._kind, self._urls = kind, urls
        self._reading = reading
        known = json.dumps([[url.url, url.info.etag] for url in urls])
        self.digest = hashlib.blake2b(known.encode(), digest_size=16).hexdigest()
        self.title, self.total = str(urls[0]), len(urls)

    def __len__(self) -> int:
        return len(self._urls)

    def done(self, number: int) -> int:
        return number

    def part(self, number: int) -> _Part:
        url = self._urls[number]

        def opened() -> tuple[Source, range]:
            source = checked(self._kind.open([url], self._reading.columns), self._reading)
            if not isinstance(source, Placed) or not hasattr(source, "read_fields"):
                raise PackError(f"{url}: nothing says where its images lie: pack it with `fastload pack`")
            return source, range(len(source))

        return _Part(
            url,
            ForeignObject(url.url, url.info.etag),
            url.size,
            opened,
            lambda: url.url in url.objects.read_whole,
        )


class _LooseParts:
    """Objects of which each is an image, a part for every _LOOSE of them; as `_FileParts`."""

    unit, readers = "samples", _AT_ONCE

    def __init__(self, source: LooseObjects) -> None:
        if source.base[:4].lower() == "http":
            for position in range(len(source)):
                _check_storable(source.key(position))
        self._source = source
        self.digest, self.title, self.total = source.digest, source.title, len(source)

    def __len__(self) -> int:
        return -(-self.total // _LOOSE)

    def done(self, number: int) -> int:
        return min(number * _LOOSE, self.total)

    def part(self, number: int) -> _Part:
        positions = range(self.done(number), self.done(number + 1))
        return _Part(self.title, ForeignObject(self._source.base), None, lambda: (self._source, positions))


@dataclass(frozen=True)
class _Listed:
    """Result of reading one part: its samples, or the reason why it is left out."""

    title: str
    source: _Described | None
    samples: ForeignSamples | None
    tally: Tally
    reason: str = ""


class _Described(NamedTuple):
    """The part of a source that says what its samples are."""

    title: str
    fields: Sequence[Field]
    classes: Sequence[str] | None
    image_field: Field
    layout: str
    form: Form | None

    @classmethod
    def of(cls, source: Source) -> _Described:
        names = ("image_field", "layout", "form")
        return cls(
            source.title, source.fields, source.classes, *(attribute_of(source, each) for each in names)
        )


class _Sample(NamedTuple):
    """A sample that can be attached: place of its image, fields beside it, and what a check found."""

    place: Place
    row: dict[str, Any]
    checked: tuple[Item, Encoded] | None


class _ObjectsJob:
    """The work of an attach on each part."""

    def __init__(
        self,
        parts: _FileParts | _LooseParts,
        options: PackOptions,
        check: bool,
        fields: str | Sequence[str] | None,
    ) -> None:
        self._parts, self._options, self._check, self._fields = parts, options, check, fields

    def identity(self) -> dict[str, Any]:
        """The options that the manifest stores."""
        taken = self._fields if isinstance(self._fields, str | None) else list(self._fields)
        return {**self._options.as_dict(), "attached": True, "checked": self._check, "fields": taken}

    def _schema(self, source: _Described) -> Schema:
        """The image, and the fields that are taken beside it. Raises ArgumentError: there is none of that
        name; PackStoppedError: one cannot lie there."""
        found = self._taken_of(source)
        check_beside(found, source.title)
        return found

    def _taken_of(self, source: _Described) -> Schema:
        image = source.image_field
        if not image.is_rgb:
            raise PackError(f"{source.title}: its images are of {image}: pack it with `fastload pack`")
        if self._fields is None:
            return Schema((image, *source.fields))
        if self._fields == LABEL_FIELD:
            found = label_field(source.fields)
            return Schema((image, INDEX if found is None else found))
        if isinstance(self._fields, str):
            raise ArgumentError(f"fields={self._fields!r} is no list of names")
        known = {field.name: field for field in (image, *source.fields)}
        for name in self._fields:
            if name not in known:
                raise ArgumentError(f"{source.title} has no {name!r}; its fields are {', '.join(known)}")
        return Schema(tuple(known[name] for name in dict.fromkeys((image.name, *self._fields))))

    def run(
        self,
        writer: ForeignWriter,
        run: RunOptions,
        started: float,
    ) -> PackSummary:
        parts, tally, before, known = self._parts, Tally(writer.state), writer.count, writer.state
        left = range(tally.position, len(parts))
        first: _Described | None = None
        committed = time.monotonic()
        with (
            Progress(parts.total, parts.title, shown=run.progress, unit=parts.unit) as bar,
            closing(self._all_listed(left, run)) as found,
        ):
            bar.start(parts.done(left.start), tally.bytes_in)
            for number, listed in enumerate(found, left.start + 1):
                if listed.samples is None:
                    self._leave_out(listed, tally)
                else:
                    first = self._taken(writer, first, listed, tally)
                tally.position = number
                bar.update(parts.done(number), tally.bytes_in)
                if writer.is_full or time.monotonic() - committed > _COMMIT_S:
                    writer.commit({**tally.state(), **_described(first, known)})
                    committed = time.monotonic()
                if self._options.limit is not None and writer.count >= self._options.limit:
                    break
        if not writer.count:
            why = "; ".join(f"{name}: {reason}" for name, reason in tally.skipped[:1])
            raise PackError(
                f"{parts.title}: of {parts.total} objects no sample could be attached; the first: {why}"
            )
        described = _described(first, known)
        writer.commit({**tally.state(), **described})
        summary = tally.summary(
            samples=writer.count, shards=0, seconds=0.0, packed_now=0, layout=str(described["layout"])
        )
        form = described["form"]
        manifest = writer.finish(
            described["classes"], summary.stored(), None if form is None else form_from_json(form)
        )
        return replace(
            summary.of(manifest),
            shards=len(manifest.shards),
            seconds=time.monotonic() - started,
            packed_now=writer.count - before,
        )

    def _all_listed(self, left: range, run: RunOptions) -> Generator[_Listed]:
        """The results of all parts, in order: by threads, or on a cluster."""
        self._workers = _AT_ONCE if run.workers is None else run.workers
        if run.ray is not None:
            from fastload.packing.cluster.driver import RayPool, connected

            with connected(run.ray):
                cluster = RayPool()
                yield from ahead(cluster, self._listed, left, cluster.calls + _WAITING)
            return
        threads = min(max(1, self._workers // self._parts.readers), max(1, len(left)))
        with ThreadPoolExecutor(threads, "fastload-attach") as pool:
            yield from ahead(pool, self._listed, left, threads + _WAITING)

    def _leave_out(self, listed: _Listed, tally: Tally) -> None:
        title = listed.title
        if not listed.reason:
            tally.merge(listed.tally)
            return
        if self._options.on_error == "raise":
            own = listed.reason.startswith(title)  # and a member of it, perhaps
            raise PackStoppedError(listed.reason if own else f"{title}: {listed.reason}")
        tally.skip(title, listed.reason)

    def _taken(
        self, writer: ForeignWriter, first: _Described | None, listed: _Listed, tally: Tally
    ) -> _Described:
        """Adds the samples of an object, and returns the first source of the run. Raises PackError: its
        fields are others."""
        source, samples = listed.source, listed.samples
        assert source is not None
        assert samples is not None
        schema = self._schema(source)
        if first is None:
            writer.begin(schema)
            names = None if source.classes is None else list(source.classes)
            if writer.state.get("classes", names) != names:
                raise PackError(
                    f"{listed.title}: its classes are not those of the objects that were attached "
                    "before: attach objects of one kind"
                )
        elif (source.fields, source.classes) != (first.fields, first.classes):
            raise PackError(
                f"{listed.title}: its samples have the fields {_names(source)}, and those of "
                f"{first.title} {_names(first)}: attach objects of one kind"
            )
        if self._options.limit is not None:
            samples = _cut(samples, self._options.limit - writer.count)
        if INDEX.name in samples.values and INDEX not in source.fields:
            numbers = range(writer.count, writer.count + len(samples))
            samples = replace(samples, values={**samples.values, INDEX.name: numbers})
        if len(samples):
            writer.add(samples)
        most = labels_most(source.classes)
        for field in class_fields(schema, source.classes):
            tally.classes.add(field.name, np.ravel(samples.values[field.name]).tolist(), most)
        content = samples.content
        tally.bytes_in += _bytes_of(samples.places) if content is None else content
        tally.counts["attached"] += len(samples)
        tally.merge(listed.tally)
        return source if first is None else first

    def _listed(self, number: int) -> _Listed:
        part, tally = self._parts.part(number), Tally()
        try:
            source, positions = part.open()
            described = _Described.of(source)
            samples = self._samples(part, source, self._schema(described), positions, tally)
            if part.read_whole():
                tally.notices.add(READ_WHOLE, shown(part.object.url))
            own = samples is not None or isinstance(source, LooseObjects)
            reason = "" if own else "none of its samples can be read"
            return _Listed(str(part.title), described, samples, tally, reason)
        except (ArgumentError, PackStoppedError):
            raise
        except (FastloadError, OSError) as error:
            if getattr(error, "sure", True):
                return _Listed(str(part.title), None, None, tally, str(error).removeprefix(f"{part.title}: "))
            raise

    def _read(
        self, sample: Callable[[int], _Sample | str], positions: range, several: bool
    ) -> Iterator[_Sample | str]:
        """The samples of a part; `several`: some are read at a time."""
        if not several:
            yield from map(sample, positions)
            return
        with ThreadPoolExecutor(self._workers, "fastload-read") as readers:
            yield from ahead(readers, sample, positions, 2 * _AT_ONCE)

    def _samples(
        self, part: _Part, source: Source, schema: Schema, positions: range, tally: Tally
    ) -> ForeignSamples | None:
        """The samples of a part, of some fields; None: none can be read."""
        beside = [field for field in schema if field != schema.image]
        values: dict[str, list[Any]] = {field.name: [] for field in beside}
        places: list[tuple[int, int, int]] = []
        sizes: list[tuple[int, int]] = []
        indexes: list[bytes] = []
        objects: list[bytes] = []
        encoder = FieldEncoder(source, self._options) if self._check else None
        slots: PageSlots | None = None
        if hasattr(source, "begin_pages"):
            slots = source.begin_pages(not self._check)

        def sample(position: int) -> _Sample | str:
            try:
                return _read_sample(source, part, position, beside, encoder)
            except (FastloadError, OSError) as error:
                if not getattr(error, "sure", True):
                    raise
                name = source.name(position)
                return str(getattr(error, "reason", None) or error).removeprefix(f"{name}: ")

        several = encoder is not None and self._parts.readers > 1
        for position, each in zip(positions, self._read(sample, positions, several), strict=True):
            name = source.name(position)
            if isinstance(each, str):
                if self._options.on_error == "raise":
                    raise PackStoppedError(f"{name}: {each}")
                tally.skip(name, each)
                continue
            for field in beside:
                values[field.name].append(each.row[field.name])
            crc = 0
            if each.checked is not None:
                crc, size = _noted(*each.checked, tally)
                sizes.append(size)
                indexes.append(each.checked[1].index or b"")
            places.append((each.place.offset, each.place.size, crc))
            if part.size is None:
                assert isinstance(each.place.path, ForeignURL)
                info = each.place.path.info
                rest = each.place.path.url[len(part.object.url) :]
                objects.append(LooseObject(rest, info.size, info.etag).packed(len(objects)))
        if not positions.start:  # they are the source's, of which there may be several parts
            tally.notices.merge(Notices.of(to_json(attribute_of(source, "notices"))))
        if not places:
            return None
        table, taken = _table(places, loose=part.size is None)
        known = np.array(sizes, np.int32) if encoder is not None else None
        made = indexes if any(indexes) else None
        if slots is not None:
            content = slots.content if slots.pointed else None
            pointed, compressed = slots.pointed, slots.compressed
            own = replace(part.object, size=part.size, pointed=pointed, compressed=compressed)
            return ForeignSamples(own, slots.bytes, table, values, known, None, slots.packed(), content, made)
        if part.size is not None:
            return ForeignSamples(part.object, part.size, table, values, known, indexes=made)
        own = replace(part.object, size=_bytes_of(table))
        return ForeignSamples(own, taken, table, values, known, objects, indexes=made)


def _described(first: _Described | None, known: Mapping[str, Any]) -> dict[str, Any]:
    """Classes, layout and form of all samples, as JSON: by the first source that was read, or where a resume
    read none, as it was `known`."""
    if first is None:
        return {"classes": known.get("classes"), "layout": known.get("layout", ""), "form": known.get("form")}
    return {
        "classes": None if first.classes is None else list(first.classes),
        "layout": first.layout,
        "form": None if first.form is None else form_to_json(first.form),
    }


def _row(fields: Sequence[Field], values: dict[str, Any]) -> dict[str, Any]:
    """The values of a sample's fields beside the image: of a column its row, of others their bytes. Raises
    PackError."""
    found: dict[str, Any] = {}
    for field in fields:
        parts = SampleParts((0, 0), None)
        field.handler.encode(field, 0, values[field.name], parts)
        found[field.name] = parts.row[0] if field.is_column else parts.entries[0][2]
    return found


def _read_sample(
    source: Source, part: _Part, position: int, beside: Sequence[Field], encoder: FieldEncoder | None
) -> _Sample:
    """A sample of a part; with an encoder its image is read and checked. Raises as `read` does, and
    PackError."""
    place = source.place(position)  # type: ignore[attr-defined]
    if place is None or (part.size is not None and place.path != part.title):
        raise PackError("its image does not lie in one piece in the object: `fastload pack` reads it")
    if not place.size:
        raise PackError("the file is empty")
    read = source.read_fields(position)  # type: ignore[attr-defined]
    row = _row(beside, {INDEX.name: position, **read})
    if encoder is None:
        return _Sample(place, row, None)
    item = source.read(position)
    if not isinstance(item.image, bytes):
        raise SampleError("", reason="its image is no file")
    return _Sample(place, row, (item, encoder.first(item)))


def _noted(item: Item, encoded: Encoded, tally: Tally) -> tuple[int, tuple[int, int]]:
    """The CRC32C and the (height, width) of a checked image."""
    tally.formats[encoded.format] = tally.formats.get(encoded.format, 0) + 1
    if encoded.warning:
        tally.warn(item.name, encoded.warning)
    assert isinstance(item.image, bytes)
    return core.crc32c(item.image), (encoded.height, encoded.width)


def _table(places: list[tuple[int, int, int]], loose: bool) -> tuple[npt.NDArray[np.uint32], int]:
    """The table of places of (offset, size, CRC32C) each, and the bytes of all; `loose`: of objects, one
    behind the other."""
    found = np.array(places, np.uint64)
    offsets, size = offsets_of(found[:, 1]) if loose else (found[:, 0], 0)
    table = np.empty((len(found), 4), np.uint32)
    table[:, 0], table[:, 1] = offsets & np.uint64(0xFFFFFFFF), offsets >> np.uint64(32)
    table[:, 2], table[:, 3] = found[:, 1], found[:, 2]
    return table, size


def _bytes_of(places: npt.NDArray[np.uint32]) -> int:
    return int(places[:, 2].sum(dtype=np.int64))


def _cut(samples: ForeignSamples, count: int) -> ForeignSamples:
    """The first samples."""
    own = samples.object
    return replace(
        samples,
        object=own if samples.objects is None else replace(own, size=_bytes_of(samples.places[:count])),
        places=samples.places[:count],
        values={name: values[:count] for name, values in samples.values.items()},
        sizes=None if samples.sizes is None else samples.sizes[:count],
        objects=None if samples.objects is None else samples.objects[:count],
        indexes=None if samples.indexes is None else samples.indexes[:count],
        content=samples.content and samples.content * min(count, len(samples)) // len(samples),
    )


def _names(source: _Described) -> str:
    return ", ".join(f"{field.name} ({field})" for field in source.fields) or "none beside the image"


def _check_storable(url: str) -> None:
    """Raises ArgumentError for a URL with a secret in it, which the dataset would store."""
    parts = urlsplit(url)
    if "@" in parts.netloc or parts.query:
        raise ArgumentError(
            f"{shown(url)} is given with a password or a query, which the dataset would store: give them by "
            "storage_options (client_options={'default_headers': ...}, sas_token, ...)"
        )


def rebase_objects(
    path: str | os.PathLike[str], base: str, options: Mapping[str, object] | None, timeout: float | str
) -> int:
    """Tells a dataset that its objects lie below another URL by now, as a new version; see `rebase`.

    Raises:
        ArgumentError: there is a password or a query in the URL.
        DatasetError: no finished dataset, or one without objects in a store.
        PackError: an object there has another size; the disk is full, or another process writes.
        RemoteError: an object is not there, or the store does not answer.
    """
    base = pinned(base, options, {}) if is_hub(base) else base
    _check_storable(base)
    foreign = ForeignObjects(options, timeout)
    with closing(foreign), DatasetChange(path, "run `fastload rebase` again: nothing is lost") as change:
        manifest = change.manifest
        urls = [shard.foreign.url for shard in manifest.shards if shard.foreign is not None]
        if not urls:
            raise DatasetError(f"{change.path} has no images in a store: {shown(base)} cannot be their place")
        levels = zip(*(url.split("/")[:-1] for url in urls), strict=False)
        root = "/".join(each[0] for each in takewhile(lambda each: len(set(each)) == 1, levels))

        def new_url(url: str) -> str:
            return f"{base.rstrip('/')}{url[len(root) :]}"

        def names() -> Iterator[bytes]:
            for shard in manifest.shards:
                if shard.foreign is not None and (segment := shard.foreign.objects) is not None:
                    values = AddedValues(read_segment(change.path, segment), shard.stored, segment.file)
                    before = [LooseObject.parsed(row, values[row]) for row in range(shard.stored)]
                    yield packed_values(_moved_objects(foreign, new_url(shard.foreign.url), before))

        def moved(shard: ShardEntry) -> ShardEntry:
            if shard.foreign is None:
                return shard
            url = new_url(shard.foreign.url)
            if shard.foreign.objects is not None:
                return replace(shard, foreign=replace(shard.foreign, url=url, objects=next(segments)))
            found = foreign.info(url)
            if found.size != shard.size:
                raise _other_size(url, found.size, shard.size)
            return replace(shard, foreign=replace(shard.foreign, url=url, etag=found.etag))

        loose = any(shard.foreign is not None and shard.foreign.objects for shard in manifest.shards)
        segments = iter(change.write_segments("values", names()) if loose else ())
        with ThreadPoolExecutor(1 if loose else _AT_ONCE, "fastload-rebase") as pool:
            shards = tuple(pool.map(moved, manifest.shards))
        return change.commit(replace(manifest, shards=shards)).count


def _moved_objects(foreign: ForeignObjects, base: str, before: Sequence[LooseObject]) -> list[bytes]:
    """The values of loose objects as they are at another URL. Raises PackError, RemoteError."""
    urls = (ForeignURL(base + each.name, foreign) for each in before)
    found: list[bytes] = []
    for each, url in zip(before, foreign.looked_up(urls), strict=True):
        if url.size != each.size:
            raise _other_size(url, url.size, each.size)
        found.append(each._replace(etag=url.info.etag).packed(len(found)))
    return found


def _other_size(url: str, size: int, before: int) -> PackError:
    return PackError(f"{shown(url)} has {size:,} bytes, and it had {before:,}: attach the data again")
