"""The files of a dataset in COCO's form: which annotation files, and in which folders their images and panoptic masks are."""

from __future__ import annotations

import os
from collections.abc import Mapping

from fastload.common.files import expanded
from fastload.errors import ArgumentError, PackError
from fastload.packing.options import LayoutOptions
from fastload.packing.sources.coco import CocoFiles, CocoSource
from fastload.packing.sources.coco_index import Category, CocoIndex, wrong_name
from fastload.packing.sources.coco_merged import MergedIndex
from fastload.packing.sources.coco_panoptic import CocoPanopticSource, CocoSegmentsSource

ROBOFLOW = "_annotations.coco.json"
"""Name of the annotation file beside its images, as Roboflow exports a split."""
_TRIED = 100
"""Images that are looked for in each folder where they may be."""


def annotation_files(folder: str) -> list[str]:
    """The annotation files of a folder: annotations/*.json, or Roboflow's."""
    inner = os.path.join(folder, "annotations")
    if os.path.isdir(inner):
        return [os.path.join(inner, name) for name in sorted(os.listdir(inner)) if name.lower().endswith(".json")]
    own = os.path.join(folder, ROBOFLOW)
    return [own] if os.path.isfile(own) else []


def coco_source(path: str, options: LayoutOptions) -> CocoFiles:
    """The source of a dataset in COCO's form.

    Args:
        path: the folder of the images, or one above it, or the annotation file.
        options: `annotations`, or the `split` whose annotation file in the folder is meant; `masks`, of a panoptic file.

    Raises:
        PackError: there is no annotation file, or there are several, and none is named; the message names them. Or several that are
            named contradict each other in their categories.
    """
    files = options.annotation_files or (_annotation_file(path, options),)
    indices, folders = [CocoIndex(file) for file in files], []
    for file, index in zip(files, indices, strict=True):
        root = path if os.path.isdir(path) else os.path.dirname(file)
        folders.append(_folder_of(root, file, [image.file for image in index.images[:_TRIED] if not wrong_name(image.file)]))
    panoptic = [number for number, index in enumerate(indices) if index.is_panoptic]
    if options.masks is not None and not panoptic:
        raise ArgumentError(f"masks is for the PNGs of a panoptic dataset, and {files[0]} is none")
    if len(files) == 1:
        return _panoptic_source(path, indices[0], folders[0], options) if panoptic else CocoSource(path, indices[0], folders[0])
    merged = MergedIndex(indices, folders)
    if not panoptic:
        return CocoSource(path, merged)
    segments = {number: _panoptic_source(path, indices[number], folders[number], options, merged.categories) for number in panoptic}
    return CocoSegmentsSource(path, merged, segments)


def _panoptic_source(
    path: str, index: CocoIndex, folder: str, options: LayoutOptions, categories: Mapping[int, Category] | None = None
) -> CocoPanopticSource:
    masks = expanded(options.masks) if options.masks is not None else os.path.splitext(index.path)[0]
    if not os.path.isdir(masks):
        raise PackError(f"{masks}: no such folder, where the PNGs of {index.path} are looked for; --masks (masks=) names another one")
    return CocoPanopticSource(path, index, folder, masks, categories)


def _annotation_file(path: str, options: LayoutOptions) -> str:
    if not os.path.isdir(path):
        return path
    found = annotation_files(path)
    chosen = [each for each in found if options.split is None or _part(each) == options.split]
    if len(chosen) == 1:
        return chosen[0]
    if not found:
        raise PackError(
            f"{path}: no annotation file in it ({os.path.join('annotations', '*.json')} or {ROBOFLOW}); name it with --annotations FILE "
            "(annotations= in Python)"
        )
    several = "several annotation files" if chosen else f"no annotation file for the split {options.split!r}"
    raise PackError(
        f"{path}: {several}: {', '.join(os.path.basename(each) for each in chosen or found)}; name one, or several, with --annotations FILE"
    )


def _part(file: str) -> str:
    """train2017, of instances_train2017.json."""
    return os.path.splitext(os.path.basename(file))[0].rpartition("_")[2]


def _folder_of(root: str, file: str, names: list[str]) -> str:
    """The folder of the images: the first one of the usual ones in which one of these names is."""
    part = _part(file)
    tops = [root, os.path.dirname(file), os.path.dirname(os.path.dirname(file))]
    candidates = [os.path.join(top, below) for top in tops for below in ("", part, os.path.join("images", part), "images", "data")]
    for folder in candidates:
        if any(os.path.isfile(os.path.join(folder, name)) for name in names if "\0" not in name):
            return os.path.normpath(folder)
    raise PackError(
        f"{root}: none of the images of {file} is here ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''}; also looked for in "
        f"{part} and in images/{part}): give the folder of its images as the source"
    )
