"""attach: makes a dataset of images that stay where they are: it holds their places, their entropy indexes, and all other fields.

NOTE [ attach: what is stored ]
A JPEG is checked and indexed as `pack` with encode="keep" does, and in the place of its bytes the record holds where they lie
(`fastload.store.shard`). An image of another format is stored as pixels, as a pack stores it. Everything else is a packed dataset.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastload._native import core
from fastload.common.files import expanded
from fastload.common.limits import checked_max_pixels
from fastload.common.urls import is_url
from fastload.errors import ArgumentError, PackError
from fastload.packing.encode import Encoded
from fastload.packing.job import PackJob, run_job
from fastload.packing.options import BoxFormat, Check, Format, OnError, PackOptions, Paths, RunOptions, SourceOptions
from fastload.packing.packer import refuse_source_inside
from fastload.packing.sources import Item, Placed, Source, open_source
from fastload.packing.summary import PackSummary
from fastload.store import DatasetRewriter
from fastload.store.entries import checked_base, resolved_base
from fastload.store.kinds.codecs import CODECS
from fastload.store.shard import StoredPlace


def attach(
    source: object,
    out: str | os.PathLike[str],
    *,
    base: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    shuffle: bool = False,
    seed: int = 0,
    check: Check = "entropy",
    index: bool = True,
    on_error: OnError = "raise",
    limit: int | None = None,
    max_pixels: int | None = None,
    path_column: str | int | None = None,
    label_column: str | int | None = None,
    header: bool | None = None,
    key_pattern: str | None = None,
    label_pattern: str | None = None,
    format: Format | None = None,
    annotations: Paths | None = None,
    masks: str | os.PathLike[str] | None = None,
    split: str | None = None,
    box_format: BoxFormat | None = None,
    overwrite: bool = False,
    resume: bool = False,
    progress: bool = False,
) -> PackSummary:
    """Makes the dataset directory `out` of a source whose JPEGs stay where they are; it takes about 1.5 % of their size.

    `PackedDataset(out)` is then a packed dataset in everything, for as long as the files are there as they were. A file that was changed
    is noticed by the CRC32C of the image when it is read, and is that sample's error. Images that are no JPEGs are stored in `out` as
    pixels.

    Args:
        source: a folder of class folders, a .csv/.tsv of path,label, .tar files (WebDataset), TFRecord files, a folder of MDS shards or
            LitData chunks, an LMDB file, or any other `fastload.packing.sources.Placed`.
        out: the directory to make.
        base: the folder from which `out` is to find the files: absolute, or relative to `out`. It is the folder of the source under
            another name, if that is to be used later; by default it is the source's own folder, as an absolute path.
        workers: threads that read and check; the CPUs this process may use by default.
        shuffle: list the samples in a random order that `seed` decides.
        seed: seed of the shuffle.
        check: "entropy" or "structure", as for `fastload.pack`.
        index: store the entropy index of each JPEG, with which crops decode faster.
        on_error: "raise" at the first sample that cannot be attached, or "skip" such samples and name them.
        limit: attach the first so many samples (after the shuffle) only.
        max_pixels: larger images are refused; FASTLOAD_MAX_PIXELS or 2**28 by default.
        path_column: column of a .csv or .tsv, as for `fastload.pack`.
        label_column: likewise.
        header: likewise.
        key_pattern: keys of an LMDB file, as for `fastload.pack`.
        label_pattern: likewise.
        format: layout of a folder, as for `fastload.pack`; masks are stored in the dataset.
        annotations: likewise.
        masks: likewise.
        split: likewise.
        box_format: format of the boxes in a column of objects in Arrow files, as for `fastload.pack`.
        overwrite: replace a dataset, finished or half-written, at `out`; the files of the source are never touched.
        resume: go on with a half-written one, made with the same options.
        progress: show a bar on the terminal.

    Returns:
        PackSummary: the counts of what was done.

    Raises:
        ArgumentError: an argument out of range, or two that contradict each other.
        PackError: the source does not say where its images lie, or a sample cannot be attached (PackStoppedError); `out` is in the
            way, or the disk is full. What has been written stays, for resume=True.
    """
    options = PackOptions(
        encode="keep",
        check=check,
        index=index,
        on_error=on_error,
        shuffle=shuffle,
        seed=seed,
        limit=limit,
        max_pixels=checked_max_pixels(max_pixels),
    )
    run = RunOptions(workers=workers, overwrite=overwrite, resume=resume, progress=progress)
    if is_url(out):
        raise ArgumentError("an attached dataset lies beside its images, in a folder: make a dataset at a URL with `fastload pack`")
    if overwrite:
        refuse_source_inside(source, out)
    reading = SourceOptions.of(
        path_column=path_column,
        label_column=label_column,
        header=header,
        key_pattern=key_pattern,
        label_pattern=label_pattern,
        format=format,
        annotations=annotations,
        masks=masks,
        split=split,
        box_format=box_format,
    )
    opened = open_source(source, reading)
    job = AttachJob(opened, opened, options)
    if base is not None:
        job.base = _checked_base(os.fspath(base), job.root, Path(expanded(out)))
    return run_job(job, out, run)


def rebase(path: str | os.PathLike[str], base: str | os.PathLike[str]) -> int:
    """Tells an attached dataset that its files were moved; older versions of it go on to name the folder that they named.

    Args:
        path: the dataset's directory.
        base: the folder of its files now: absolute, or relative to `path`; it need not be there yet.

    Returns:
        The number of its samples.

    Raises:
        ArgumentError: `base` is no path, or that of a file.
        DatasetError: there is no finished dataset, it holds its images itself, or its files lie in several folders.
        PackError: the disk is full or fails, or another process is writing to the dataset.
    """
    with DatasetRewriter(path, "run `fastload rebase` again: nothing is lost") as rewriter:
        rewriter.rebase(expanded(base))
        return rewriter.manifest.count


class AttachJob(PackJob):
    """A pack that stores places.

    Attributes:
        root: the folder of the source's files; they are stored by their paths in it, and others by absolute ones.
    """

    def __init__(self, source: Source, places: Source, options: PackOptions) -> None:
        """`places`: the source itself, or that which it gives the samples of. Raises PackError if that has no places."""
        if not isinstance(places, Placed):
            raise PackError(f"{source.title}: its images do not lie in one piece in files: pack it with `fastload pack`")
        super().__init__(source, options)
        self._placed: Placed = places
        self.base = self.root = _root(places)

    def identity(self) -> dict[str, Any]:
        return {**super().identity(), "attached": True}

    def encode(self, position: int, item: Item) -> Encoded:
        encoded = super().encode(position, item)
        if not CODECS[encoded.kind].is_file:
            return encoded
        place = self._placed.place(position)
        if place is None:
            raise PackError(f"{item.name}: its image does not lie in one piece in a file: pack the source with `fastload pack`")
        status = os.stat(place.path)
        assert isinstance(encoded.data, bytes)
        if place.size != len(encoded.data) or encoded.data != item.image or place.offset + place.size > status.st_size:
            raise PackError(f"{item.name}: its file is being changed: attach it when it is written")
        path = os.path.abspath(place.path)
        inside = path.startswith(self.root + os.sep)
        stored = StoredPlace(
            path[len(self.root) + 1 :] if inside else path,
            place.offset,
            place.size,
            core.crc32c(encoded.data),
            status.st_size,
            status.st_mtime_ns,
        )
        how = tuple("attached" if each == "kept" else each for each in encoded.how)
        return replace(encoded, kind="place", data=stored.to_bytes(), how=how)


def _root(source: Placed) -> str:
    """The folder that holds all files of a source, as far as they lie in one: that of the source itself."""
    path = os.path.abspath(expanded(source.title))
    if os.path.exists(path):
        return path if os.path.isdir(path) else os.path.dirname(path)
    first = source.place(0)
    if first is None:
        raise PackError(f"{source.name(0)}: its image does not lie in one piece in a file: pack the source with `fastload pack`")
    return os.path.dirname(os.path.abspath(first.path))


def _checked_base(base: str, root: str, out: Path) -> str:
    """The base as it is stored. Raises ArgumentError if it is no path, or is there and is another folder than the source's."""
    found = resolved_base(out, checked_base(expanded(base)))
    if os.path.exists(found) and not (os.path.isdir(found) and os.path.samefile(found, root)):
        raise ArgumentError(f"base={base!r} is {found}, which is not the folder of the source, {root}")
    return expanded(base)
