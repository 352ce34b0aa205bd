"""Layouts of folders whose images have masks, boxes or other annotations beside them: which one a folder has, and its source.

| format | recognised by |
|---|---|
| coco | `annotations/*.json`, or `_annotations.coco.json` |
| voc, voc-segmentation | `JPEGImages` with `Annotations`, or with `SegmentationClass` alone |
| cityscapes | `leftImg8bit` with `gtFine` or `gtCoarse` |
| ade20k | `images` and `annotations`, with `training` or `validation` in both |
| yolo | `data.yaml` or `dataset.yaml`, or `images` and `labels` with .txt files |
| pairs | two folders alone: `images` (image, imgs, img), and `masks` (mask, annotations, labels, gt) with pictures |

All others are class folders. A name given as `format` comes before what is recognised.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from fastload.errors import ArgumentError, PackError
from fastload.packing.folders import is_folder
from fastload.packing.options import Format, LayoutOptions
from fastload.packing.sources.coco_files import annotation_files, coco_source
from fastload.packing.sources.folder import FolderSource
from fastload.packing.sources.protocol import Source


def layout_source(path: str, options: LayoutOptions) -> Source:
    """The source of a folder or file whose layout the user names, or says something else about.

    Raises:
        PackError: the files of the layout are not there; the message says what was looked for.
        ArgumentError: an option that the layout does not take.
    """
    if not os.path.exists(path):
        raise PackError(f"{path}: no such folder or file")
    if options.format is not None:
        return _OPENERS[options.format](path, options)
    if options.annotations is not None:
        return coco_source(path, options)
    found = recognised(path)
    if found is None and options.masks is not None:
        found = "pairs"
    if found is None:
        raise PackError(f"{path}: its layout is not recognised; name it with --format (format= in Python): {', '.join(_OPENERS)}")
    try:
        again = LayoutOptions(found, options.annotations, options.masks, options.split)
    except ArgumentError as error:
        raise ArgumentError(f"{path} has the layout {found}: {error}") from None
    return _OPENERS[found](path, again)


def recognised_source(folder: str) -> Source | None:
    """The source of a folder of a layout that is recognised; None: it is none of them."""
    found = recognised(folder)
    return None if found is None else _OPENERS[found](folder, LayoutOptions())


def recognised(path: str) -> Format | None:
    """The layout of a folder, or of a file that describes one; None: none of those with annotations."""
    if not os.path.isdir(path):
        return "coco" if path.lower().endswith(".json") else "yolo" if path.lower().endswith((".yaml", ".yml")) else None
    if annotation_files(path):
        return "coco"
    return None


def subfolders(folder: str) -> set[str]:
    """Names of the folders in a folder; empty if it is none."""
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries if is_folder(entry)}
    except OSError:
        return set()


_OPENERS: dict[Format, Callable[[str, LayoutOptions], Source]] = {
    "folder": lambda path, _: FolderSource(path),
    "coco": coco_source,
}
