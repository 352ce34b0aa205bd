"""attach: makes a dataset of images that stay where they are: it holds their places, their entropy indexes,
and all other fields.

NOTE [ attach: what is stored ]
An image is checked and indexed as `pack` with encode="keep" does, and in the place of the bytes that this
keeps the record holds where they lie (`fastload.store.shard`). An image that it stores as pixels is stored so
here, too. Everything else is a packed dataset.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from typing_extensions import Unpack

from fastload._native import core
from fastload.common.files import expanded
from fastload.common.urls import is_remote, is_url
from fastload.errors import ArgumentError, PackError
from fastload.packing.attach_objects import attach_objects, rebase_objects
from fastload.packing.encode import Encoded
from fastload.packing.job import PackJob, run_job
from fastload.packing.keywords import settled, takes_options
from fastload.packing.lists import ImagesJob, pack_lists
from fastload.packing.options import AttachKeywords, PackOptions, RunOptions
from fastload.packing.packer import refuse_source_inside, refuse_swapped
from fastload.packing.summary import PackSummary
from fastload.sources import Item, LooseObjects, Placed, Source, open_source
from fastload.sources.foreign import has_urls
from fastload.sources.options import source_options
from fastload.sources.protocol import Place, attribute_of
from fastload.store import DatasetRewriter
from fastload.store.entries import checked_base, resolved_base
from fastload.store.kinds.codecs import CODECS
from fastload.store.lists import images_path
from fastload.store.shard import StoredPlace


@takes_options
def attach(
    source: object,
    out: str | os.PathLike[str],
    *,
    base: str | os.PathLike[str] | None = None,
    fields: Sequence[str] | None = None,
    **options: Unpack[AttachKeywords],
) -> PackSummary:
    """Makes the dataset directory `out` of a source whose images stay where they are.

    A changed image is that sample's error when it is read. Images that `pack` with encode="keep" stores as
    pixels are stored.

    Args:
        source: a source of `pack` whose images lie in one piece in files (`fastload.sources.Placed`).
        out: the directory to make.
        base: folder from which `out` finds the files, absolute or relative to `out`; by default the source's,
            absolute.
        fields: fields to take of objects in a store; None: all.

    Returns:
        Counts of what was done.

    Raises:
        ArgumentError: as in `pack`.
        PackError: as in `pack`, or the source does not say where its images lie.
    """
    given = settled("attach", options)
    chosen = PackOptions.of({**given, "check": given["check"] or "entropy", "encode": "keep"})
    run = RunOptions.of(given)
    if is_url(out):
        raise ArgumentError(
            "an attached dataset is made in a folder; where its images lie in a store, `fastload push` sends "
            "it to a URL"
        )
    opened: object = source
    if not has_urls(source):
        refuse_swapped("attach", source, out)
        if run.overwrite:
            refuse_source_inside(source, out)
        opened = open_source(source, source_options(given), lists=True)
    if not isinstance(opened, Source) or isinstance(opened, LooseObjects):
        if base is not None:
            raise ArgumentError(
                f"base={os.fspath(base)!r} is a folder of files, and {source!r} lies in a store"
            )
        return attach_objects(
            opened,
            out,
            chosen,
            run,
            source_options(given),
            check=given["check"] is not None,
            fields=fields,
        )
    if run.ray is not None:
        raise ArgumentError("ray= is for URLs: files on a disk are attached by threads")
    if fields is not None:
        raise ArgumentError("fields= is for URLs: of files on a disk all fields are attached")
    lists = attribute_of(opened, "image_list")
    job = AttachListsJob(opened, chosen) if lists else AttachJob(opened, opened, chosen)
    if base is not None:
        job.base = _checked_base(os.fspath(base), job.root, Path(expanded(out)))
    if isinstance(job, AttachJob):
        return run_job(job, out, run)
    job.base = _above(job.base or job.root)
    return pack_lists(opened, job, out, run)


def rebase(
    path: str | os.PathLike[str],
    base: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, object] | None = None,
    timeout: float | str = 60.0,
) -> int:
    """Tells an attached dataset that its files were moved; older versions go on to name the old folder.

    Args:
        path: the dataset's directory.
        base: folder of its files now, absolute or relative to `path`, and not there yet perhaps; or the URL.
        storage_options, timeout: as for `pack`.

    Returns:
        Number of its samples.

    Raises:
        ArgumentError: `base` is no path, or that of a file.
        DatasetError: no finished dataset, one that is not attached, or one of files in several folders.
        PackError: the disk is full, another process writes to the dataset, or an object is another.
        RemoteError: as in `pack`.
    """
    if is_remote(base):
        return rebase_objects(path, os.fspath(base), storage_options, timeout)
    moved = expanded(base)
    with DatasetRewriter(path, "run `fastload rebase` again: nothing is lost") as rewriter:
        if rewriter.manifest.schema.images is None:
            rewriter.rebase(moved)
        else:
            rebase(images_path(path), _above(moved))
        return rewriter.manifest.count


class AttachJob(PackJob):
    """A pack that stores places.

    Attributes:
        root: the folder of the source's files; they are stored by their paths in it, and others by absolute
            ones.
    """

    def __init__(self, source: Source, places: Source, options: PackOptions) -> None:
        """`places`: the source itself, or that which it gives the samples of. Raises PackError if that has
        no places."""
        if not isinstance(places, Placed):
            raise PackError(
                f"{source.title}: its images do not lie in one piece in files: pack it with `fastload pack`"
            )
        super().__init__(source, options)
        self._placed: Placed = places
        found = _found(lambda position: [self._place(position)], len(places), OSError)
        self.base = self.root = _root(places.title, found)

    def encode(self, position: int, item: Item) -> Encoded:
        encoded = super().encode(position, item)
        if not CODECS[encoded.kind].is_file:
            return encoded
        return _attached(encoded, item, self._place(position), self.root)

    def _place(self, position: int) -> Place:
        place = self._placed.place(position)
        if place is None:
            raise PackError(
                f"{self._placed.name(position)}: its image does not lie in one piece in a file: pack the "
                "source with `fastload pack`"
            )
        return place


class AttachListsJob(ImagesJob):
    """A pack of the images of a source with an `image_list` that stores places. Attributes are those of
    `AttachJob`."""

    def __init__(self, source: Source, options: PackOptions) -> None:
        super().__init__(source, options)
        if not hasattr(source, "places"):
            raise PackError(
                f"{source.title}: its lists of images do not lie in files: pack it with `fastload pack`"
            )
        self._places: Callable[[int], Sequence[Place]] = source.places
        found = _found(self._places, len(source), OSError, PackError)
        self.base = self.root = _root(attribute_of(source, "folder") or source.title, found)

    def encoded(self, place: int, item: Item) -> list[tuple[Item, Encoded]]:
        places = self._places(self.order[place])
        return [
            (one, _attached(form, one, at, self.root) if CODECS[form.kind].is_file else form)
            for (one, form), at in zip(super().encoded(place, item), places, strict=False)
        ]


def _attached(encoded: Encoded, item: Item, place: Place, root: str) -> Encoded:
    """The stored form of an image that stays in its file. Raises PackError if that has other bytes now."""
    status = os.stat(place.path)
    assert isinstance(encoded.data, bytes)
    if (
        place.size != len(encoded.data)
        or encoded.data != item.image
        or place.offset + place.size > status.st_size
    ):
        raise PackError(f"{item.name}: its file is being changed: attach it when it is written")
    path = os.path.abspath(place.path)
    stored = StoredPlace(
        path[len(root) + 1 :] if path.startswith(root + os.sep) else path,
        place.offset,
        place.size,
        core.crc32c(encoded.data),
        status.st_size,
        status.st_mtime_ns,
    )
    how = tuple("attached" if each == "kept" else each for each in encoded.how)
    return replace(encoded, kind="place", data=stored.to_bytes(), how=how)


def _above(base: str) -> str:
    """A base of a dataset as that of the folder of its images names it."""
    return os.path.join(os.pardir, base)


def _found(places: Callable[[int], Sequence[Place]], count: int, *passed: type[Exception]) -> Iterator[Place]:
    """Places of the images of `count` samples; those with errors that are `passed` over are left out."""
    for position in range(count):
        with suppress(*passed):
            yield from places(position)


def _root(title: str, places: Iterable[Place]) -> str:
    """The folder that holds all files of a source, as far as they lie in one: that of the source itself, or
    else of the first image."""
    path = os.path.abspath(expanded(title))
    if os.path.exists(path):
        return path if os.path.isdir(path) else os.path.dirname(path)
    first = next((os.path.abspath(place.path) for place in places), path)
    return os.path.dirname(first)


def _checked_base(base: str, root: str, out: Path) -> str:
    """The base as it is stored. Raises ArgumentError if it is no path, or is there and is another folder
    than the source's."""
    found = resolved_base(out, checked_base(expanded(base)))
    if os.path.exists(found) and not (os.path.isdir(found) and os.path.samefile(found, root)):
        raise ArgumentError(f"base={base!r} is {found}, which is not the folder of the source, {root}")
    return expanded(base)
