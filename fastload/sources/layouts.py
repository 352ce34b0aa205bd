"""Layouts of folders whose images have masks, boxes or other annotations beside them: which one a folder has,
and its source.

| format | recognised by |
|---|---|
| coco | `annotations/*.json`, or `_annotations.coco.json` |
| voc, voc-segmentation | `JPEGImages` with `Annotations`, or with `SegmentationClass` alone |
| cityscapes | `leftImg8bit` with `gtFine` or `gtCoarse` |
| ade20k | `images` and `annotations`, with `training` or `validation` in both |
| yolo | `data.yaml` or `dataset.yaml`, or `images` and `labels` with .txt files |
| pairs | `images` (image, imgs, img) and `masks` (mask, annotations, labels, gt), with pictures, alone |

All others are class folders, but for those that are none by their names and files: these are refused with the
layouts that they may be. A name given as `format` comes before what is recognised.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from fastload.common.files import read_regular
from fastload.common.folders import IMAGE_EXTENSIONS
from fastload.errors import ArgumentError, FastloadError, PackError
from fastload.sources.annotated import MASK_EXTENSIONS, files_in, subfolders
from fastload.sources.coco import annotation_files, coco_source
from fastload.sources.folder import FolderSource
from fastload.sources.images import ImagesSource, folder_source
from fastload.sources.masked import (
    IMAGE_FOLDERS,
    MASK_FOLDERS,
    ade20k_source,
    cityscapes_source,
    pairs_source,
)
from fastload.sources.options import Format, LayoutOptions
from fastload.sources.pixels import opened_image
from fastload.sources.protocol import Choice, Given, Source
from fastload.sources.voc import voc_segmentation_source, voc_source
from fastload.sources.yolo import YAML_NAMES, yolo_source

_IMAGE_NAMES = frozenset((*IMAGE_FOLDERS, "jpegimages", "photos", "rgb"))
_BESIDE_NAMES = frozenset(MASK_FOLDERS) | frozenset(
    "label annotation ann anns boxes bboxes depth disparity instances json jsons xml xmls seg "
    "segmentation segmentations segmentationclass "
    "segmentationobject imagesets groundtruth ground_truth trimaps".split()
)
_SPLIT_NAMES = frozenset(("train", "training", "val", "valid", "validation", "test", "testing", "dev"))
"""Names, in small letters, by which folders that make up one dataset are told from class folders: all of
them are called so."""
_TELLING_NAMES = _IMAGE_NAMES | _BESIDE_NAMES | _SPLIT_NAMES | {"leftimg8bit"}
_HINTS = (
    (
        (".jpg", ".jpeg", ".npy", ".npz", ".mat"),
        "Masks are lossless pictures (PNG, TIFF, ...) of their images' names: convert JPEG masks and "
        "arrays to PNG, and name their folder "
        "with --masks DIR",
    ),
    (
        MASK_EXTENSIONS,
        "The folder of the masks is named with --masks DIR, and that of the images as the source",
    ),
    ((".txt",), "--format yolo reads images/ with labels/ of .txt files"),
    ((".xml",), "--format voc reads JPEGImages/ with Annotations/ of .xml files"),
    ((".json",), "--annotations FILE reads COCO's JSON of the images"),
)
"""Files beside images, and the layouts that they may be of."""
_TABLES = (".csv", ".tsv", ".parquet")
_DESCRIBING = (".json", ".jsonl", *_TABLES)
"""Files that may have the labels or boxes of images beside them."""
_NAMES_SHOWN = 5
_LOOKED_INTO = 10
"""Folders that are looked into for what tells a layout: VOC2012 in VOCdevkit, labels/train; a folder of
class folders has many more."""


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
        raise PackError(
            f"{path}: its layout is not recognised; name it with --format (format= in Python): "
            f"{', '.join(_OPENERS)}"
        )
    try:
        again = LayoutOptions(found, options.annotations, options.masks, options.split)
    except ArgumentError as error:
        raise ArgumentError(f"{path} has the layout {found}: {error}") from None
    return _OPENERS[found](path, again)


def recognised_source(folder: str) -> Source | None:
    """The source of a folder of a layout that is recognised; None: it is none of them."""
    found = recognised(folder)
    return None if found is None else _OPENERS[found](folder, LayoutOptions())


def is_telling(name: str) -> bool:
    """Returns True if a folder's name may tell a layout, so that class folders with one of this name may
    be taken for something else."""
    return name.lower() in _TELLING_NAMES


def class_folders(folder: str) -> FolderSource | ImagesSource:
    """The source of a folder of class folders, or of images alone, of no layout that is recognised.

    Raises:
        PackError: its folders are no classes, by their names and files: images with annotations beside them,
            or splits; the message names the layouts that it may have. Or as `FolderSource` raises it.
    """
    names = sorted(name for name in subfolders(folder) if not name.startswith("."))
    if not names and files_in(folder, *IMAGE_EXTENSIONS):
        if why := _described_images(folder, folder):
            raise PackError(
                f"{folder}: {why}; --format images (format='images' in Python) takes the images "
                "without labels all the same"
            )
        return folder_source(folder)
    why = (
        _described(folder, names)
        or _splits(folder, names)
        or _beside_images(folder, names)
        or _label_maps(folder, names)
    )
    if why:
        classes = "a class" if len(names) == 1 else "classes"
        raise PackError(
            f"{folder}: {why}; --format folder (format='folder' in Python) takes {_listed(names)} "
            f"for {classes} all the same"
        )
    return FolderSource(folder)


def _described(folder: str, names: list[str]) -> str:
    """The reason why the images of one folder, or of splits, are described by a file beside them; "" if
    they are not."""
    if not names or (
        len(names) > 1 and not all(name.lower() in _SPLIT_NAMES | _IMAGE_NAMES for name in names)
    ):
        return ""
    found = [name for name in files_in(folder, *_DESCRIBING) if not name.startswith(".")]
    if found:
        return _may_describe(folder, found, names, _listed(names))
    return _described_images(os.path.join(folder, names[0]), folder) if len(names) == 1 else ""


def _described_images(inner: str, folder: str) -> str:
    """The reason why files beside the images of a folder, which is `folder` or lies in it, may describe
    them; "" if none do."""
    images = {os.path.splitext(name)[0] for name in files_in(inner, *IMAGE_EXTENSIONS)}
    own = [name for name in files_in(inner, ".xml", ".txt") if os.path.splitext(name)[0] in images]
    below = os.path.relpath(inner, folder)
    found = [
        os.path.normpath(os.path.join(below, name))
        for name in (*files_in(inner, *_DESCRIBING), *own)
        if not name.startswith(".")
    ]
    return _may_describe(folder, found, [below], "the images") if found else ""


def _may_describe(folder: str, found: list[str], names: list[str], beside: str) -> str:
    ways = {os.path.splitext(name)[1].lower(): name for name in reversed(found)}
    ways |= {os.path.splitext(name)[1].lower(): name for name in found if os.path.splitext(name)[0] in names}
    told = (
        _way(kind, os.path.join(folder, name), os.path.normpath(os.path.join(folder, names[0])))
        for kind, name in ways.items()
    )
    return (
        f"{_listed(found)} lie{'s' * (len(found) == 1)} beside {beside}, which it may describe. "
        f"{'; '.join(dict.fromkeys(told))}"
    )


def _way(kind: str, file: str, images: str) -> str:
    """The command, or the words, with which images are packed that a file of a kind describes."""
    if kind == ".json":
        return f"`fastload pack {images} OUT --annotations {file}` reads COCO's JSON"
    if kind == ".jsonl":
        return "Make a .csv of path,label of its lines"
    if kind in _TABLES:
        return f"`fastload pack {file} OUT` reads a table of paths and labels"
    return next(text for kinds, text in _HINTS if kind in kinds)


def _splits(folder: str, names: list[str]) -> str:
    """The reason why folders are the splits of a dataset, or one folder above it; "" if they are not."""
    inner = {name: subfolders(os.path.join(folder, name)) for name in names[:_LOOKED_INTO]}
    if len(names) > 1 and all(name.lower() in _SPLIT_NAMES for name in names):
        below = next((f", whose classes are {_listed(sorted(each))}" for each in inner.values() if each), "")
        advice = f"give one of them as the source ({os.path.join(folder, names[0])})"
        if not below:
            advice = (
                "put the images of a split into one folder a class, or name their labels in a .csv of "
                "path,label"
            )
        return f"{_listed(names)} are called as the splits of a dataset are{below}: {advice}"
    if len(names) == 1 and names[0].lower() in _SPLIT_NAMES | set(IMAGE_FOLDERS) and len(inner[names[0]]) > 1:
        return (
            f"its only folder {names[0]} holds the folders {_listed(sorted(inner[names[0]]))}: give "
            f"{os.path.join(folder, names[0])}"
        )
    return ""


def _beside_images(folder: str, names: list[str]) -> str:
    """The reason why folders hold images and the files that belong to each image; "" if they do not."""
    roles = {name.lower() for name in names}
    if len(names) < 2 or not roles & _IMAGE_NAMES or not roles <= _IMAGE_NAMES | _BESIDE_NAMES | _SPLIT_NAMES:
        return ""
    others = [name for name in names if name.lower() not in _IMAGE_NAMES] or names[1:]
    endings = {ending for name in others for ending in _endings(os.path.join(folder, name))}
    found = [text for kinds, text in _HINTS if endings & set(kinds)]
    hints = "; ".join(found or [text for _, text in _HINTS])
    held = f" ({', '.join(sorted(endings)[:5])} files in {_listed(others)})" if endings else ""
    return (
        f"{_listed(names)} are called as images and what belongs to them are{held}, and no layout is "
        f"recognised. {hints}"
    )


def _label_maps(folder: str, names: list[str]) -> str:
    """The reason why one of two folders has masks for the images in the other: all names are there, and of
    two pictures its own has one number a pixel. "" if not."""
    if len(names) != 2:
        return ""
    files = {name: files_in(os.path.join(folder, name), *IMAGE_EXTENSIONS) for name in names}
    stems = {name: {os.path.splitext(file)[0] for file in each} for name, each in files.items()}
    for masks, images in (names, names[::-1]):
        if files[masks] and stems[masks] <= stems[images]:
            first, other = (os.path.join(folder, name, files[name][0]) for name in (masks, images))
            if first.lower().endswith(MASK_EXTENSIONS) and _is_label_map(first) and not _is_label_map(other):
                command = (
                    f"fastload pack {os.path.join(folder, images)} OUT --masks {os.path.join(folder, masks)}"
                )
                shown = os.path.basename(first)
                return (
                    f"each file in {masks} has the name of one in {images}, and {shown} is of labels: "
                    f"`{command}` packs both"
                )
    return ""


def _is_label_map(path: str) -> bool:
    try:
        with opened_image(read_regular(path)) as image:
            return image.mode in ("P", "L", "1") or image.mode.startswith("I")
    except (FastloadError, OSError):
        return False


def _endings(folder: str) -> set[str]:
    """Extensions of the files in a folder, or in those below it."""
    inner = (os.path.join(folder, name) for name in sorted(subfolders(folder))[:_LOOKED_INTO])
    return {os.path.splitext(file)[1].lower() for each in (folder, *inner) for file in files_in(each, "")} - {
        ""
    }


def _listed(names: list[str]) -> str:
    shown = names[:_NAMES_SHOWN]
    rest = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return (
        f"{', '.join(shown)}{rest}" if rest or len(shown) < 2 else f"{', '.join(shown[:-1])} and {shown[-1]}"
    )


def recognised(path: str) -> Format | None:
    """The layout of a folder, or of a file that describes one; None: none of those with annotations."""
    if not os.path.isdir(path):
        if path.lower().endswith(".json"):
            return "coco"
        return "yolo" if path.lower().endswith((".yaml", ".yml")) else None
    if annotation_files(path):
        return "coco"
    below = subfolders(path)
    if "leftImg8bit" in below and {"gtFine", "gtCoarse"} & below:
        return "cityscapes"
    if (voc := _voc_folders(path, below)) is not None:
        return "voc" if "Annotations" in voc else "voc-segmentation"
    inner = {
        name: subfolders(os.path.join(path, name)) for name in ("images", "annotations") if name in below
    }
    if len(inner) == 2 and set.intersection(*inner.values()) & {"training", "validation"}:
        return "ade20k"
    if set(files_in(path, *YAML_NAMES)) & set(YAML_NAMES) or (
        {"images", "labels"} <= below and _holds(os.path.join(path, "labels"), ".txt")
    ):
        return "yolo"
    masks = below & set(MASK_FOLDERS)
    if (
        len(below) == 2
        and below & set(IMAGE_FOLDERS)
        and masks
        and _holds(os.path.join(path, masks.pop()), *MASK_EXTENSIONS)
    ):
        return "pairs"
    return None


def _voc_folders(path: str, below: set[str]) -> set[str] | None:
    """The folders beside JPEGImages, in the folder, or in one below it or VOCdevkit; None: it is not
    Pascal VOC's layout."""
    tops = [path, *(os.path.join(path, name) for name in sorted(below)[:_LOOKED_INTO])]
    if "VOCdevkit" in below:
        tops += [
            os.path.join(path, "VOCdevkit", name)
            for name in sorted(subfolders(os.path.join(path, "VOCdevkit")))[:_LOOKED_INTO]
        ]
    found = (subfolders(top) for top in tops)
    return next(
        (inner for inner in found if "JPEGImages" in inner and inner & {"Annotations", "SegmentationClass"}),
        None,
    )


def _holds(folder: str, *endings: str) -> bool:
    """Returns True if such files are in a folder itself, or in one right below it."""
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
    "images": lambda path, _: folder_source(path),
}


def _open_named(given: Given) -> Source:
    named = given.options.layout
    if (
        named is None
        or not isinstance(given.source, str)
        or given.options.table is not None
        or given.options.lmdb is not None
    ):
        raise ArgumentError(
            "format, annotations, masks and split (--format, ...) are for one folder, or one file "
            "that describes it"
        )
    return layout_source(given.path, named)


def _open_file(given: Given) -> Source:
    found = recognised_source(given.path)
    assert found is not None
    return found


NAMED = Choice(lambda given: given.options.layout is not None, _open_named)
FOLDER = Choice(
    lambda given: given.is_folder, lambda given: recognised_source(given.path) or class_folders(given.path)
)
FILE = Choice(lambda given: recognised(given.path) is not None, _open_file)
