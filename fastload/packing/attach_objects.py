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
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any
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
from fastload.packing.fields import FieldEncoder
from fastload.packing.job import VARYING, finished_summary
from fastload.packing.options import PackOptions, RunOptions
from fastload.packing.summary import PackSummary, Tally
from fastload.remote.foreign import ForeignObjects, ForeignURL
from fastload.remote.hub_urls import is_hub, pinned
from fastload.sources import Placed, Source, foreign_objects
from fastload.sources.notices import READ_WHOLE, Notices, to_json
from fastload.sources.options import SourceOptions
from fastload.sources.protocol import INDEX, Files, attribute_of
from fastload.store import DatasetChange, Field, Schema, ShardEntry
from fastload.store.class_counts import labels_most
from fastload.store.entries import ForeignObject
from fastload.store.foreign_writer import OBJECTS, ForeignSamples, ForeignWriter
from fastload.store.form import from_json as form_from_json
from fastload.store.form import to_json as form_to_json
from fastload.store.kinds.base import SampleParts
from fastload.store.labels import class_fields, label_field

LABEL_FIELD = ""
"""Stands for the field that can be the class of an image."""
_AT_ONCE = 16
"""Objects that are read at the same time: requests are waited for."""
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
    kind, urls = foreign_objects(source, reading)
    for url in urls:
        _check_storable(url.url)
    known = json.dumps([[url.url, url.objects.info(url.url).etag] for url in urls])
    digest = hashlib.blake2b(known.encode(), digest_size=16).hexdigest()
    job = _ObjectsJob(kind, options, reading, check, fields)
    identity = {**job.identity(), OBJECTS: digest}
    with (
        ForeignWriter(
            out, options=identity, varying=VARYING, resume=run.resume, overwrite=run.overwrite
        ) as writer,
        advised("what was attached stays: go on with resume=True (--resume)"),
    ):
        if writer.finished is not None:
            return finished_summary(writer.finished, started)
        return job.run(writer, urls, run, started)


@dataclass(frozen=True)
class _Listed:
    """Result of reading one object: its samples, or the reason why it is left out."""

    url: ForeignURL
    source: Source | None
    samples: ForeignSamples | None
    tally: Tally
    reason: str = ""


class _ObjectsJob:
    """The work of an attach on each object."""

    def __init__(
        self,
        kind: Files,
        options: PackOptions,
        reading: SourceOptions,
        check: bool,
        fields: str | Sequence[str] | None,
    ) -> None:
        self._kind, self._options, self._check, self._fields = kind, options, check, fields
        self._boxes = None if reading.objects is None else reading.objects.box_format

    def identity(self) -> dict[str, Any]:
        """The options that the manifest stores."""
        taken = self._fields if isinstance(self._fields, str | None) else list(self._fields)
        return {**self._options.as_dict(), "attached": True, "checked": self._check, "fields": taken}

    def _schema(self, source: Source) -> Schema:
        """The image, and the fields that are taken beside it. Raises ArgumentError: there is none of that
        name."""
        image = attribute_of(source, "image_field")
        if not image.is_rgb:
            raise PackError(f"{source.title}: its images are of {image}: pack it with `fastload pack`")
        if self._fields is None:
            return Schema((image, *source.fields))
        if self._fields == LABEL_FIELD:
            found = label_field(source.fields)
            return Schema((image, INDEX if found is None else found))
        known = {field.name: field for field in source.fields}
        for name in self._fields:
            if name not in known:
                raise ArgumentError(
                    f"{source.title} has no {name!r}; its fields are {', '.join(known) or 'none'}"
                )
        return Schema((image, *(known[name] for name in self._fields)))

    def run(
        self,
        writer: ForeignWriter,
        urls: Sequence[ForeignURL],
        run: RunOptions,
        started: float,
    ) -> PackSummary:
        tally, before, known = Tally(writer.state), writer.count, writer.state
        left = urls[tally.position :]
        first: Source | None = None
        threads = min(_AT_ONCE if run.workers is None else run.workers, max(1, len(left)))
        committed = time.monotonic()
        with (
            Progress(len(urls), f"{urls[0]}", shown=run.progress, unit="objects") as bar,
            ThreadPoolExecutor(threads, "fastload-attach") as pool,
        ):
            bar.start(len(urls) - len(left), tally.bytes_in)
            for number, listed in enumerate(
                ahead(pool, self._listed, left, 2 * threads), len(urls) - len(left) + 1
            ):
                if listed.samples is None:
                    self._leave_out(listed, tally)
                else:
                    assert listed.source is not None
                    first = self._taken(writer, first, listed, tally)
                tally.position = number
                bar.update(number, tally.bytes_in)
                if writer.is_full or time.monotonic() - committed > _COMMIT_S:
                    writer.commit({**tally.state(), **_described(first, known)})
                    committed = time.monotonic()
                if self._options.limit is not None and writer.count >= self._options.limit:
                    break
        if not writer.count:
            why = "; ".join(f"{name}: {reason}" for name, reason in tally.skipped[:1])
            raise PackError(
                f"{urls[0]}: of {len(urls)} objects no sample could be attached; the first: {why}"
            )
        for url in sorted(urls[0].objects.read_whole):
            tally.notices.add(READ_WHOLE, shown(url))
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

    def _leave_out(self, listed: _Listed, tally: Tally) -> None:
        if self._options.on_error == "raise":
            own = listed.reason.startswith(str(listed.url))  # and a member of it, perhaps
            raise PackStoppedError(listed.reason if own else f"{listed.url}: {listed.reason}")
        tally.skip(str(listed.url), listed.reason)

    def _taken(self, writer: ForeignWriter, first: Source | None, listed: _Listed, tally: Tally) -> Source:
        """Adds the samples of an object, and returns the first source of the run. Raises PackError: its
        fields are others."""
        source, samples = listed.source, listed.samples
        assert source is not None
        assert samples is not None
        schema = self._schema(source)
        if first is None:
            writer.begin(schema)
        elif (source.fields, source.classes) != (first.fields, first.classes):
            raise PackError(
                f"{listed.url}: its samples have the fields {_names(source)}, and those of {first.title} "
                f"{_names(first)}: attach objects of one kind"
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
        tally.bytes_in += int(samples.places[:, 2].sum(dtype=np.int64))
        tally.counts["attached"] += len(samples)
        tally.merge(listed.tally)
        return source if first is None else first

    def _listed(self, url: ForeignURL) -> _Listed:
        tally = Tally()
        try:
            source = self._kind.open([url], self._boxes)
            if not isinstance(source, Placed) or not hasattr(source, "read_fields"):
                raise PackError(f"{url}: nothing says where its images lie: pack it with `fastload pack`")
            samples = self._samples(url, source, tally)
            return _Listed(url, source, samples, tally, "" if samples else "none of its samples can be read")
        except (ArgumentError, PackStoppedError):
            raise
        except (FastloadError, OSError) as error:
            if getattr(error, "sure", True):
                return _Listed(url, None, None, tally, str(error).removeprefix(f"{url}: "))
            raise

    def _samples(self, url: ForeignURL, source: Any, tally: Tally) -> ForeignSamples | None:
        """The samples of an object; None: none can be read."""
        schema = self._schema(source)
        beside = [field for field in schema if field != schema.image]
        values: dict[str, list[Any]] = {field.name: [] for field in beside}
        places: list[tuple[int, int, int]] = []
        sizes: list[tuple[int, int]] = []
        encoder = FieldEncoder(source, self._options) if self._check else None
        for position in range(len(source)):
            name = source.name(position)
            try:
                place = source.place(position)
                if place is None or place.path != url:
                    raise PackError(
                        "its image does not lie in one piece in the object: `fastload pack` reads it"
                    )
                if not place.size:
                    raise PackError("the file is empty")
                row = _row(beside, {INDEX.name: position, **source.read_fields(position)})
                crc, size = (0, None) if encoder is None else _checked(source, position, encoder, tally)
            except (FastloadError, OSError) as error:
                if not getattr(error, "sure", True):
                    raise
                reason = str(getattr(error, "reason", None) or error).removeprefix(f"{name}: ")
                if self._options.on_error == "raise":
                    raise PackStoppedError(f"{name}: {reason}") from error
                tally.skip(name, reason)
                continue
            for each in beside:
                values[each.name].append(row[each.name])
            places.append((place.offset, place.size, crc))
            sizes += [] if size is None else [size]
        tally.notices.merge(Notices.of(to_json(attribute_of(source, "notices"))))
        if not places:
            return None
        info = url.objects.info(url.url)
        return ForeignSamples(
            ForeignObject(url.url, info.etag),
            info.size,
            _table(places),
            values,
            np.array(sizes, np.int32) if encoder is not None else None,
        )


def _described(first: Source | None, known: Mapping[str, Any]) -> dict[str, Any]:
    """Classes, layout and form of all samples, as JSON: by the first source that was read, or where a resume
    read none, as it was `known`."""
    if first is None:
        return {"classes": known.get("classes"), "layout": known.get("layout", ""), "form": known.get("form")}
    form = attribute_of(first, "form")
    return {
        "classes": None if first.classes is None else list(first.classes),
        "layout": attribute_of(first, "layout"),
        "form": None if form is None else form_to_json(form),
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


def _checked(
    source: Source, position: int, encoder: FieldEncoder, tally: Tally
) -> tuple[int, tuple[int, int]]:
    """The CRC32C and the (height, width) of an image, which is read. Raises as `read` does, and
    SampleError."""
    item = source.read(position)
    if not isinstance(item.image, bytes):
        raise SampleError("", reason="its image is no file")
    encoded = encoder.first(item)
    tally.formats[encoded.format] = tally.formats.get(encoded.format, 0) + 1
    if encoded.warning:
        tally.warn(item.name, encoded.warning)
    return core.crc32c(item.image), (encoded.height, encoded.width)


def _table(places: list[tuple[int, int, int]]) -> npt.NDArray[np.uint32]:
    """The table of places of (offset, size, CRC32C) each."""
    found = np.array(places, np.uint64)
    table = np.empty((len(found), 4), np.uint32)
    table[:, 0], table[:, 1] = found[:, 0] & np.uint64(0xFFFFFFFF), found[:, 0] >> np.uint64(32)
    table[:, 2], table[:, 3] = found[:, 1], found[:, 2]
    return table


def _cut(samples: ForeignSamples, count: int) -> ForeignSamples:
    """The first samples."""
    return replace(
        samples,
        places=samples.places[:count],
        values={name: values[:count] for name, values in samples.values.items()},
        sizes=None if samples.sizes is None else samples.sizes[:count],
    )


def _names(source: Source) -> str:
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

        def moved(shard: ShardEntry) -> ShardEntry:
            if shard.foreign is None:
                return shard
            url = f"{base.rstrip('/')}{shard.foreign.url[len(root) :]}"
            found = foreign.info(url)
            if found.size != shard.bytes:
                raise PackError(
                    f"{shown(url)} has {found.size:,} bytes, and {shard.title} had {shard.bytes:,}: attach "
                    "the data again"
                )
            return replace(shard, foreign=ForeignObject(url, found.etag))

        with ThreadPoolExecutor(_AT_ONCE, "fastload-rebase") as pool:
            shards = tuple(pool.map(moved, manifest.shards))
        return change.commit(replace(manifest, shards=shards)).count
