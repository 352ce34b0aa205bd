"""pack of samples with any number of images: all images first, in a dataset of their own, then the samples.

NOTE [ lists: what is durable when ]
The samples' dataset is begun first, so that its folder says what it is. Then the images are packed into the
folder `images` in it, as any images are: a resume goes on there. Each says which sample it is of. When that
dataset is complete the samples are written, with the numbers of their images; what they have besides is read
from the source again. The samples' manifest comes last.
"""

from __future__ import annotations

import os
import time
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.common.urls import is_remote
from fastload.errors import ArgumentError, FastloadError, PackError, PackStoppedError, SampleError
from fastload.packing.encode import Encoded
from fastload.packing.job import VARYING, PackJob, destination, finished_summary, run_job, write_failure
from fastload.packing.options import PackOptions, RunOptions
from fastload.packing.summary import PackSummary, Tally
from fastload.remote.files import folder_files, remote_files
from fastload.sources.protocol import UNKNOWN, Item, Source, Traced, Value, attribute_of
from fastload.store import DatasetReader, DatasetWriter, Field, Schema
from fastload.store.lists import DOCUMENT, images_path
from fastload.store.reader import DatasetFiles


class _Images:
    """A source of samples with any number of images as `pack` sees it while it packs these."""

    classes = None
    fields = (Field(DOCUMENT, "int"),)

    def __init__(self, source: Source) -> None:
        self.source, self.title, self.concurrent = source, source.title, source.concurrent
        self._traced = source if isinstance(source, Traced) else None

    def __len__(self) -> int:
        return len(self.source)

    def name(self, position: int) -> str:
        return self.source.name(position)

    def read(self, position: int) -> Item:
        return replace(self.source.read(position), values={})

    def key(self, position: int) -> str:
        if self._traced is None:
            return self.source.name(position).removeprefix(self.title)
        return self._traced.key(position)

    def stamp(self, position: int) -> tuple[int, int]:
        return UNKNOWN if self._traced is None else self._traced.stamp(position)

    def fields_of(self, position: int) -> None:
        """Returns None: they are written later."""


class ImagesJob(PackJob):
    """A pack of the images of a source."""

    def __init__(self, source: Source, options: PackOptions) -> None:
        super().__init__(_Images(source), options)

    def encoded(self, place: int, item: Item) -> list[tuple[Item, Encoded]]:
        made = []
        for number, image in enumerate(item.pictures):
            one = replace(item, image=image, images=None, values={DOCUMENT: place})
            try:
                made.append((one, self.encode(self.order[place], one)))
            except SampleError as error:
                reason = f"image {number}: {error.reason or error}"
                raise SampleError(reason, reason=reason) from error
        return made

    def labels_of(self, position: int, item: Item) -> dict[str, list[int]]:
        return {}

    def refuse_deep(self, begin: int | None = None) -> None:
        """Does nothing: each image is refused by itself."""

    def nothing_packed(self, tally: Tally) -> PackError:
        if not tally.skipped:
            return PackError(f"{self.source.title}: none of its {len(self.order):,} samples has an image")
        return super().nothing_packed(tally)


def pack_lists(source: Source, job: ImagesJob, out: str | os.PathLike[str], run: RunOptions) -> PackSummary:
    """Packs a source with an `image_list`, whose images `job` packs. Arguments, return value and errors are
    those of `pack`."""
    if run.ray is not None or run.from_cache is not None or run.shard_samples is not None:
        raise ArgumentError(
            "ray=, from_cache= and shard_samples= are for samples of one image: "
            f"{source.title} has any number ({attribute_of(source, 'image_list')})"
        )
    started = time.monotonic()
    schema = Schema((Field(attribute_of(source, "image_list"), "images"), *source.fields))
    folder, open_writer = destination(out, run)
    writer = open_writer(
        schema,
        shard_size=run.shard_bytes,
        options=job.identity(),
        varying=VARYING,
        resume=run.resume,
        overwrite=run.overwrite,
    )
    try:
        if writer.finished is not None:
            job.refuse_others(writer.title, writer.finished)
            found = finished_summary(writer.finished, started)
            with closing(_image_files(out, run)) as files:
                return replace(found, shards=found.shards + len(DatasetReader(files).manifest.shards))
        within = None if run.staging is None else os.path.join(run.staging, "images")
        images = run_job(job, images_path(out), replace(run, staging=within))
        return replace(
            _Samples(source, job, writer).write(out, run, images), seconds=time.monotonic() - started
        )
    except OSError as error:
        raise write_failure(folder, error) from error
    finally:
        writer.abort()


class _Samples:
    """The samples of a source whose images are packed, on their way into their own dataset."""

    def __init__(self, source: Source, job: ImagesJob, writer: DatasetWriter) -> None:
        self._source, self._job, self._writer = source, job, writer
        self._list = attribute_of(source, "image_list")

    def write(self, out: str | os.PathLike[str], run: RunOptions, images: PackSummary) -> PackSummary:
        """Writes all samples, and the manifest. Raises PackStoppedError for one that cannot be written, where
        on_error is "raise"."""
        writer, before = self._writer, self._writer.next_index
        firsts = self._firsts(out, run)
        begin, left_out = writer.state.get("place", 0), list(writer.state.get("skipped", []))
        for place in range(begin, len(self._job.order)):
            state = {"place": place + 1, "skipped": left_out}
            name, values = self._source.name(self._job.order[place]), None
            try:
                values = self._values(place, int(firsts[place]), int(firsts[place + 1]))
                if values is not None:
                    writer.append(values, state=state)
            except (FastloadError, OSError) as error:
                if (
                    values is None
                    and firsts[place] == firsts[place + 1]
                    and self._job.options.on_error == "skip"
                ):
                    continue  # it was left out with its images
                reason = str(getattr(error, "reason", "") or error).removeprefix(f"{name}: ")
                if self._job.options.on_error == "raise":
                    raise PackStoppedError(f"{name}: {reason}") from error
                left_out.append([name, reason])
        count = writer.next_index
        skipped = (*images.skipped, *((name, reason) for name, reason in left_out))
        summary = replace(
            images,
            samples=count,
            skipped=skipped,
            skipped_count=images.skipped_count + len(left_out),
            layout=attribute_of(self._source, "layout"),
            notices=(*attribute_of(self._source, "notices"), *images.notices),
        )
        form = attribute_of(self._source, "form")
        manifest = writer.finish(self._source.classes, summary.stored(), form=form)
        return replace(
            summary.of(manifest), shards=images.shards + len(manifest.shards), packed_now=count - before
        )

    def _values(self, place: int, first: int, end: int) -> dict[str, Any] | None:
        """The values of a sample whose images are those from `first` to `end`; None: it was left out with
        them. Raises PackError where it has another number of images now."""
        position = self._job.order[place]
        values, count = described(self._source, position)
        if count == end - first:
            return {self._list: (first, count), **values}
        if first == end and self._job.options.on_error == "skip":
            return None
        raise PackError(
            f"it has {count} images, of which {end - first} were packed: do not change it meanwhile"
        )

    def _firsts(self, out: str | os.PathLike[str], run: RunOptions) -> npt.NDArray[np.int64]:
        """For each sample the number of its first image, and their end."""
        with closing(_image_files(out, run)) as files:
            owners = DatasetReader(files).column(DOCUMENT)
            return np.searchsorted(owners, np.arange(len(self._job.order) + 1))


def _image_files(out: str | os.PathLike[str], run: RunOptions) -> DatasetFiles:
    """The files of the dataset of the images. To be closed."""
    path = images_path(out)
    if is_remote(path):
        return remote_files(path, None, None, run.storage_options, run.timeout)
    return folder_files(path)


def described(source: Source, position: int) -> tuple[dict[str, Value], int]:
    """A sample's values, and the number of its images."""
    if hasattr(source, "described"):
        found: tuple[dict[str, Value], int] = source.described(position)
        return found
    item = source.read(position)
    return item.values, len(item.pictures)
