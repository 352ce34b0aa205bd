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
from fastload.packing.options import Format, LayoutOptions
from fastload.packing.sources.coco_files import annotation_files, coco_source
from fastload.packing.sources.folder import FolderSource
from fastload.packing.sources.label_maps import MASK_EXTENSIONS
from fastload.packing.sources.masked import IMAGE_FOLDERS, MASK_FOLDERS, ade20k_source, cityscapes_source, pairs_source
from fastload.packing.sources.protocol import Source
from fastload.packing.sources.splits import files_in, subfolders
from fastload.packing.sources.voc import voc_segmentation_source, voc_source
from fastload.packing.sources.yolo import YAML_NAMES, yolo_source

TELLING_FOLDERS = frozenset((*IMAGE_FOLDERS, "leftImg8bit", "JPEGImages"))
"""Folders of which a folder of class folders has none, if it is not to be taken for another layout."""
_LOOKED_INTO = 10
"""Folders that are looked into for what tells a layout: VOC2012 in VOCdevkit, labels/train; a folder of class folders has many more."""


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
    below = subfolders(path)
    if "leftImg8bit" in below and {"gtFine", "gtCoarse"} & below:
        return "cityscapes"
    if (voc := _voc_folders(path, below)) is not None:
        return "voc" if "Annotations" in voc else "voc-segmentation"
    inner = {name: subfolders(os.path.join(path, name)) for name in ("images", "annotations") if name in below}
    if len(inner) == 2 and set.intersection(*inner.values()) & {"training", "validation"}:
        return "ade20k"
    if set(files_in(path, *YAML_NAMES)) & set(YAML_NAMES) or (
        {"images", "labels"} <= below and _holds(os.path.join(path, "labels"), ".txt")
    ):
        return "yolo"
    masks = below & set(MASK_FOLDERS)
    if len(below) == 2 and below & set(IMAGE_FOLDERS) and masks and _holds(os.path.join(path, masks.pop()), *MASK_EXTENSIONS):
        return "pairs"
    return None


def _voc_folders(path: str, below: set[str]) -> set[str] | None:
    """The folders beside JPEGImages, in the folder, or in one below it or VOCdevkit; None: it is not Pascal VOC's layout."""
    tops = [path, *(os.path.join(path, name) for name in sorted(below)[:_LOOKED_INTO])]
    if "VOCdevkit" in below:
        tops += [os.path.join(path, "VOCdevkit", name) for name in sorted(subfolders(os.path.join(path, "VOCdevkit")))[:_LOOKED_INTO]]
    found = (subfolders(top) for top in tops)
    return next((inner for inner in found if "JPEGImages" in inner and inner & {"Annotations", "SegmentationClass"}), None)


def _holds(folder: str, *endings: str) -> bool:
    """Whether such files are right in a folder, or in one below it."""
    inner = (os.path.join(folder, name) for name in sorted(subfolders(folder))[:_LOOKED_INTO])
    return any(files_in(each, *endings) for each in (folder, *inner))


_OPENERS: dict[Format, Callable[[str, LayoutOptions], Source]] = {
    "folder": lambda path, _: FolderSource(path),
    "coco": coco_source,
    "voc": voc_source,
    "voc-segmentation": voc_segmentation_source,
    "yolo": yolo_source,
    "cityscapes": cityscapes_source,
    "ade20k": ade20k_source,
    "pairs": pairs_source,
}
