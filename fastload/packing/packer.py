"""pack: makes a dataset of a source, whose images it encodes and copies."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from typing_extensions import Unpack

from fastload.common.files import expanded
from fastload.common.urls import is_remote, is_url
from fastload.errors import PackError
from fastload.packing.from_cache import reading_cache
from fastload.packing.job import PackJob, run_job
from fastload.packing.keywords import settled, takes_options
from fastload.packing.lists import ImagesJob, pack_lists
from fastload.packing.options import PackKeywords, PackOptions, RunOptions
from fastload.packing.summary import PackSummary
from fastload.sources import PATTERN_MARKS, LooseObjects, is_packed, open_source
from fastload.sources.foreign import has_urls
from fastload.sources.options import source_options
from fastload.sources.protocol import attribute_of
from fastload.sources.ray_data import with_rows
from fastload.store.manifest import looks_unfinished


@takes_options
def pack(source: object, out: str | os.PathLike[str], **options: Unpack[PackKeywords]) -> PackSummary:
    """Packs a source into the dataset directory `out`, or to a URL; the dataset exists once this returns, and
    not before.

    Args:
        source: a folder, a file, a pattern or several paths, of a format on the page Packing; a map-style
            Dataset; a ray.data.Dataset; or any `Source`.
        out: the directory to make, or a URL: ``s3://bucket/train.fl``, ``gs://``, ``az://``, ``file://``.

    Returns:
        Counts of what was done.

    Raises:
        ArgumentError: an argument is out of range, or two contradict each other.
        RemoteError: the store does not answer, or denies access.
        PackError: the source or a sample cannot be packed (PackStoppedError), `out` is in the way, the disk
            is full. Written samples stay, for resume=True.
    """
    given = settled("pack", options)
    chosen = PackOptions.of(given)
    run = RunOptions.of(given)
    refuse_swapped("pack", source, out)
    if run.overwrite:
        refuse_source_inside(source, out)
    reading = source_options(given)
    source = with_rows(source)
    opened = open_source(source, reading, lists=True)
    if not is_remote(out) and (has_urls(source) or isinstance(opened, LooseObjects)):  # they are the source's
        run = replace(run, storage_options=None, timeout=None)
    if attribute_of(opened, "image_list"):
        return pack_lists(opened, ImagesJob(opened, chosen), out, run)
    job = PackJob(opened, chosen)
    if run.ray is None:
        with reading_cache(job.source, run.from_cache) as taken:
            return replace(run_job(job, out, run), from_cache=taken())
    from fastload.packing.cluster.cluster_plan import SourceSpec
    from fastload.packing.cluster.driver import run_on_cluster

    return run_on_cluster(job, SourceSpec.of(source, reading), out, run)


def refuse_swapped(command: str, source: object, out: str | os.PathLike[str]) -> None:
    """Raises PackError if the two are the wrong way round: the source is a dataset, or is not there, and
    `out` is what could be packed."""
    if not isinstance(source, str | os.PathLike) or any(mark in os.fspath(source) for mark in PATTERN_MARKS):
        return
    if is_url(source):
        return
    path, there = expanded(source), expanded(out)
    packed, missing = is_packed(path), not os.path.exists(path)
    if (
        not (packed or missing)
        or not os.path.exists(there)
        or is_packed(there)
        or looks_unfinished(Path(there))
    ):
        return
    if os.path.isdir(there) and not os.listdir(there):
        return
    given, other = os.fspath(source), os.fspath(out)
    what = (
        f"{given} is a packed dataset, and {other} is none"
        if packed
        else f"{given}: no such folder or file, and {other} is there"
    )
    raise PackError(f"{what}: the source comes first: `fastload {command} {other} {given}`")


def refuse_source_inside(source: object, out: str | os.PathLike[str]) -> None:
    """Raises PackError if the source lies inside `out`: overwriting would remove what is to be packed."""
    if not isinstance(source, str | os.PathLike):
        return
    inner, outer = os.path.realpath(expanded(source)), os.path.realpath(expanded(out))
    if inner == outer or inner.startswith(outer.rstrip(os.sep) + os.sep):
        raise PackError(
            f"{os.fspath(out)}: the source lies in it; overwriting would remove what is to be packed"
        )
