"""unpack: writes the samples of a packed dataset back to files, in a layout that `pack` reads."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from fastload.common.ahead import ahead
from fastload.common.files import size_limit
from fastload.common.progress import Progress
from fastload.common.stopping_pool import StoppingPool
from fastload.common.system import available_cpus
from fastload.errors import ArgumentError, DatasetError, PackError
from fastload.remote.files import folder_files
from fastload.store import DatasetReader
from fastload.store.manifest import output_path
from fastload.unpacking.folder import Layout, UnpackFolder
from fastload.unpacking.layouts import ClassFolders, CocoLayout, Pairs, UnpackLayout, exact
from fastload.unpacking.sample_files import SampleFiles

_BLOCK = 64
_LAYOUTS: Mapping[Layout, Callable[[SampleFiles, UnpackFolder], UnpackLayout]] = {
    "folders": ClassFolders,
    "pairs": Pairs,
    "coco": CocoLayout,
}


@dataclass(frozen=True, slots=True)
class UnpackSummary:
    """Result of `unpack`.

    Attributes:
        files: files of images and masks.
        bytes: their size.
        folders: class folders, of classes without samples too.
        layout: "folders", "pairs" or "coco".
        renumbered: torchvision's ImageFolder, which sorts folders by name, gives other labels.
    """

    files: int
    bytes: int
    folders: int
    layout: Layout
    renumbered: bool = False


def unpack(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    layout: Layout | None = None,
    workers: int | None = None,
    progress: bool = False,
) -> UnpackSummary:
    """Writes every image of a packed dataset as a file: JPEGs with their stored bytes, raw pixels and masks
    as PNG, images of 16 bits and several channels as .npy.

    Another call goes on with an unpack that was stopped or killed; until all is there, `out` has a folder
    ``.fastload-unpack``.

    - "folders": ``out/class/00000012.jpg``, by index, or ``out/00000012.jpg`` without labels; further images
      and masks in ``out/FIELD``. Unless the class folders say all, ``out/fields.jsonl`` has all fields and
      ``out/fastload.json`` their kinds: `pack` makes a dataset of equal fields.
    - "pairs": ``out/images/00000012.jpg`` and ``out/masks/00000012.png``.
    - "coco": ``out/images`` and ``out/annotations/instances.json``, with further keys for fields that COCO
      does not know, which `pack` leaves out.

    Args:
        path: the dataset's directory.
        out: a directory that does not exist, is empty, or holds a stopped unpack of the same data and layout.
        layout: by default "coco" if all fields are COCO's, "pairs" for images with one `mask` and no class
            names, else "folders".
        workers, progress: as for `pack`.

    Raises:
        ArgumentError: `layout` has no place for a field.
        DatasetError: the dataset cannot be read.
        SampleError: a sample cannot be read.
        PackError: `out` holds other files, the disk is full, Pillow is missing, or values do not fit the
            layout.
    """
    if layout is not None and layout not in get_args(Layout):
        raise ArgumentError(f"layout={layout!r} is none of {', '.join(get_args(Layout))}")
    folder = UnpackFolder(output_path(out))
    with DatasetReader(folder_files(path)) as reader, SampleFiles(reader, "unpack") as samples:
        name = _chosen(samples, layout)
        try:
            with folder.opened(reader.manifest, name):
                return _unpack(
                    samples, folder, name, available_cpus() if workers is None else workers, progress
                )
        except (FileExistsError, NotADirectoryError) as error:
            raise PackError(
                f"{folder.path}: {error.filename} is in the way; choose another folder"
            ) from error
        except OSError as error:
            if isinstance(error, DatasetError):
                raise
            raise PackError(
                f"{error.filename or folder.path}: cannot be written: {error.strerror}{size_limit(error)}"
            ) from error


def _chosen(samples: SampleFiles, layout: Layout | None) -> Layout:
    """The layout that the user names, or else the best known one that loses nothing. Raises ArgumentError
    for one without a place."""
    if layout is None:
        fields = [(field.name, field.kind) for field in samples.others]
        if exact(samples.reader):
            return "coco"
        is_pair = (
            samples.image.is_rgb and fields == [("mask", "mask")] and samples.reader.manifest.classes is None
        )
        return "pairs" if is_pair else "folders"
    if samples.images is not None and layout != "folders":
        raise ArgumentError(
            f"{samples.reader.path} has any number of images a sample, which the layout folders holds"
        )
    missing = {"coco": CocoLayout.missing, "pairs": Pairs.missing}.get(layout)
    if missing is not None and (left := missing(samples.image, samples.others)):
        raise ArgumentError(
            f"{samples.reader.path} has {left[0]}, for which the layout {layout} has no place: "
            "choose the layout folders, which holds "
            f"every field, or take a field away with `fastload columns {samples.reader.path} drop NAME`"
        )
    return layout


def _unpack(
    samples: SampleFiles, folder: UnpackFolder, name: Layout, workers: int, progress: bool
) -> UnpackSummary:
    layout, count = _LAYOUTS[name](samples, folder), samples.reader.count
    files = written = 0

    def block(start: int) -> list[tuple[int, int, Any]]:
        found = []
        for index in range(start, min(start + _BLOCK, count)):
            pool.check()
            sample = samples.read(index)
            found.append((len(sample.pictures), *layout.write(sample)))
        return found

    with StoppingPool(workers, "fastload-unpack") as pool, Progress(count, "unpack", shown=progress) as bar:
        bar.start(0, 0)
        try:
            layout.open()
            starts = range(0, count, _BLOCK)
            for start, found in zip(starts, ahead(pool, block, starts, 2 * workers), strict=True):
                for pictures, size, entry in found:
                    files, written = files + pictures, written + size
                    layout.add(entry)
                bar.update(min(start + _BLOCK, count), written)
            layout.close()
        except BaseException:
            layout.abort()
            raise
    return UnpackSummary(files, written, layout.folders, name, layout.renumbered)
