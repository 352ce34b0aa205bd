"""Checks of a dataset, from opening it to the step's need.

NOTE [ doctor: which read comes first ]
The page cache is asked before anything is read, since each read changes the answer. The disk is measured by
reads that leave the page cache alone. Only then are records read, and decoded in rounds that find them in the
page cache: so their rate is the decoders' own. A dataset in a bucket is read as the loader reads it, by its
own fetcher, into a cache folder that is removed at the end: the user's cache would answer in the bucket's
stead, and would be changed. Consecutive samples come from one half of the dataset and random ones from the
other, so that neither finds what the other has fetched.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from fastload.common.files import expanded, scratch_folder
from fastload.common.progress import human_bytes
from fastload.common.system import available_memory
from fastload.common.urls import is_url, local_path, shown
from fastload.doctor.bucket import bucket_finding, measure_bucket
from fastload.doctor.disk import disk_finding, measure_disk, page_cache_finding
from fastload.doctor.files import open_files
from fastload.doctor.finding import Finding, judged
from fastload.doctor.job import Job
from fastload.doctor.rate import Rate, decoding_finding, measure_rate, needed_rate, step_finding
from fastload.errors import DatasetError, FastloadError, SampleError
from fastload.packing.in_memory import in_memory
from fastload.store import file_path
from fastload.store.lists import images_path
from fastload.store.manifest import dataset_folder
from fastload.store.reader import DatasetFiles, DatasetReader


def records_finding(reader: DatasetReader, indices: Sequence[int], dataset: str) -> tuple[Finding, list[int]]:
    """Reads samples, and of attached images the files too. Returns the finding, and the samples that hold.

    Args:
        reader: the open dataset.
        indices: the samples.
        dataset: the dataset's name, for commands.
    """
    try:
        bad = {index: reason for index in indices if (reason := _fault(reader, index))}
    except DatasetError as error:
        return Finding("records", "bad", str(error), f"`fastload verify {dataset}` lists all"), []
    good = [index for index in indices if index not in bad]
    faults = {}
    if bad:
        index, reason = next(iter(bad.items()))
        faults[f"sample {index} does not: {reason}"] = (
            f"`fastload verify {dataset}` lists all; copy the dataset again, or pack it again"
        )
    value = {"read": len(indices), "bad": sorted(bad)}
    return judged("records", faults, f"{len(good):,} of {len(indices):,} read at random hold", value), good


def _fault(reader: DatasetReader, index: int) -> str:
    """The reason why a sample cannot be read; "" if it can. Raises DatasetError."""
    image = reader.schema.image
    try:
        fields = reader.stored_fields(index)
        if image is not None and (stored := fields.get(reader.schema.number(image.name))) is not None:
            reader.read_image(index, *stored)
    except SampleError as error:
        return error.reason or str(error)
    return ""


SAMPLES = 512
"""Most samples that are read and decoded."""
SAMPLE_BYTES = 64 << 20
"""Most bytes of them."""


def dataset_findings(job: Job, dataset: str) -> Iterator[Finding]:
    """Findings about a dataset, given by its folder or URL, and about a job with it; in the order of the
    measurements, as NOTE [ doctor: which read comes first ] has it."""
    with ExitStack() as opened:
        try:
            found = opened.enter_context(in_memory(dataset))
            reader = _open(job, found.path, opened)
        except (FastloadError, OSError) as error:
            yield Finding("dataset", "bad", str(error))
            yield open_files(job)
            return
        name = shown(dataset) if is_url(dataset) else dataset
        yield _dataset(reader, name, found.said)
        if reader.schema.images is not None:  # which are what a loader reads
            yield from dataset_findings(job, images_path(dataset))
            return
        yield open_files(job, len(reader.manifest.shards))
        if not reader.count:
            return
        try:
            yield from (
                _in_a_bucket(reader, job, name) if reader.files.remote else _on_a_disk(reader, job, name)
            )
        except (FastloadError, OSError) as error:
            yield Finding("reading", "bad", f"it ended before all was measured: {error}")


def _open(job: Job, dataset: str, opened: ExitStack) -> DatasetReader:
    """Opens a dataset, until `opened` ends. Raises FastloadError, OSError."""
    local = local_path(dataset) if is_url(dataset) else expanded(dataset)
    if local is not None:
        there = DatasetFiles(dataset_folder(local).absolute())
        if not there.looked_at(None).is_foreign:
            return opened.enter_context(DatasetReader(there))
    from fastload.remote.files import folder_files, remote_files  # asyncio, threads: nobody else needs them

    folder = opened.enter_context(scratch_folder("doctor"))
    options: dict[str, Any] = {
        "cache": folder,
        "storage_options": job.storage_options,
        "timeout": job.timeout,
    }
    files = (
        remote_files(dataset, cache_size=None, **options) if local is None else folder_files(local, **options)
    )
    opened.callback(files.close)
    return opened.enter_context(DatasetReader(files))


def _dataset(reader: DatasetReader, name: str, said: str) -> Finding:
    count, size, shards = reader.count, reader.manifest.bytes, len(reader.manifest.shards)
    text = (
        f"{name}: {count:,} sample{'s' * (count != 1)}, {human_bytes(size)} in {shards:,} "
        f"shard{'s' * (shards != 1)}"
    )
    text = said or text
    value = {
        "path": name,
        "samples": count,
        "bytes": size,
        "shards": shards,
        "version": reader.manifest.version,
    }
    return judged(
        "dataset", {} if count else {"it is empty": "pack it again, or check the path"}, text, value
    )


def _on_a_disk(reader: DatasetReader, job: Job, name: str) -> Iterator[Finding]:
    shards, mean = reader.manifest.shards, reader.manifest.mean_bytes
    folder, free = Path(reader.path), available_memory()
    fits = free is not None and reader.manifest.bytes <= free
    speed = None
    if mean is None:
        why = "the images are files elsewhere, of which only the records' places are here"
        yield Finding("page cache", "unknown", why, "compare the first epoch with later ones")
    else:
        files = [(file_path(folder, shard.folder, shard.file), shard.bytes) for shard in shards]
        yield page_cache_finding(files)
        speed = measure_disk(files, int(mean))
    finding, readable = records_finding(reader, _some(reader, range(reader.count)), name)
    yield finding
    rate, finding = _decoded(reader, job, readable, name)
    yield finding
    if speed is not None:
        yield disk_finding(speed, *needed_rate(rate, job), fits=fits)
    yield from _step(rate, job)


def _in_a_bucket(reader: DatasetReader, job: Job, name: str) -> Iterator[Finding]:
    half = max(1, reader.count // 2)
    speed, fetched = measure_bucket(
        reader, range(min(half, SAMPLES)), _some(reader, range(half, reader.count) or range(1))
    )
    finding, readable = records_finding(reader, fetched, name)
    yield finding
    rate, finding = _decoded(reader, job, readable, name)
    yield finding
    yield bucket_finding(speed, reader.manifest.mean_bytes or 1.0, *needed_rate(rate, job))
    yield from _step(rate, job)


def _some(reader: DatasetReader, among: range) -> list[int]:
    """Samples at random, at most so many that reading them is short."""
    return random.sample(
        among, max(1, min(SAMPLES, int(SAMPLE_BYTES / (reader.manifest.mean_bytes or 1.0)), len(among)))
    )


def _decoded(reader: DatasetReader, job: Job, indices: list[int], name: str) -> tuple[Rate | None, Finding]:
    image = reader.schema.image
    if image is None:
        return None, Finding(
            "decoding",
            "unknown",
            "not measured: the dataset has no images",
            "loader.health.report() measures the job itself",
        )
    if not indices:
        return None, Finding(
            "decoding", "unknown", "not measured: no record could be read", 'see the line "records"'
        )
    try:
        rate = measure_rate(reader, image, indices, job)
    except FastloadError as error:
        return None, Finding("decoding", "bad", str(error), f"`fastload verify --decode {name}` lists all")
    return rate, decoding_finding(rate, job, name)


def _step(rate: Rate | None, job: Job) -> Iterator[Finding]:
    if job.needed_rate is not None:
        yield step_finding(rate, job, job.needed_rate)
