"""Images with masks in files of their own: folders of pairs, ADE20K, Cityscapes, and the segmentations of
Pascal VOC."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from fastload.common.files import expanded, read_regular
from fastload.common.folders import IMAGE_EXTENSIONS, walk
from fastload.errors import PackError
from fastload.sources.annotated import (
    INSTANCE_MASK,
    MASK,
    MASK_EXTENSIONS,
    VOID,
    AnnotatedFiles,
    LabelMap,
    Values,
    chosen_split,
    label_map_of,
    some_are_deep,
    subfolders,
)
from fastload.sources.options import LayoutOptions
from fastload.store import Field

IMAGE_FOLDERS = ("images", "image", "imgs", "img")
MASK_FOLDERS = ("masks", "mask", "annotations", "labels", "gt")
"""Usual names of the two folders of pairs."""
MASK_ENDINGS = ("", "_mask", "-mask")
"""Endings that a mask's name may have after its image's name."""

CITYSCAPES_CLASSES = tuple(
    "unlabeled,ego vehicle,rectification border,out of "
    "roi,static,dynamic,ground,road,sidewalk,parking,rail track,building,wall,fence,"
    "guard rail,bridge,tunnel,pole,polegroup,traffic light,traffic "
    "sign,vegetation,terrain,sky,person,rider,car,truck,bus,caravan,trailer,"
    "train,motorcycle,bicycle".split(",")
)
"""Names of Cityscapes' labelIds 0 to 33."""


class MaskedFiles(AnnotatedFiles):
    """Images with one or several masks each.

    Args:
        title: the folder.
        images: the path of each image; of a mask without an image, the mask's.
        masks: by the name of the field, the path of each image's mask; "": there is none, which is the
            sample's error.
        classes: names of the labels in `mask`.
        absent: places where masks, or the image of a mask, were looked for; for messages.
        layout: name of the layout.
    """

    def __init__(
        self,
        title: str,
        images: Sequence[str],
        masks: Mapping[str, Sequence[str]],
        classes: tuple[str, ...] | None = None,
        absent: str = "",
        layout: str = "images and masks in two folders",
    ) -> None:
        super().__init__(title, images)
        self.layout = layout
        if not images:
            raise PackError(f"{title}: no image in it")
        self._masks = masks
        self._absent = absent
        self.classes = classes
        self._dtypes = {name: "uint16" if some_are_deep(paths) else "uint8" for name, paths in masks.items()}
        self.fields = tuple(Field(name, "mask", dtype) for name, dtype in self._dtypes.items())

    def beside(self, position: int) -> list[str]:
        return [paths[position] for paths in self._masks.values() if paths[position]]

    def values(self, position: int, image: bytes) -> Values:
        name = self._images[position]
        for paths in self._masks.values():
            if paths[position] in ("", name):
                what = "the mask has no image" if paths[position] else "the image has no mask"
                raise PackError(
                    f"{name}: {what} of the same name in {self._absent}; add it, or pack with on_error='skip'"
                )
        return {field: self._labels(field, paths[position], name) for field, paths in self._masks.items()}, ()

    def _labels(self, field: str, path: str, name: str) -> LabelMap:
        """The labels of a mask, of its field's dtype; those of `mask` are below the number of classes, or
        255."""
        labels = label_map_of(path, name, self._dtypes[field])
        known = len(self.classes) if self.classes is not None and field == MASK else 1 << 16
        highest = int(labels.max(initial=0, where=labels != VOID))
        if highest >= known:
            raise PackError(
                f"{name}: its mask {path} has the label {highest}, beyond its {known} classes (from "
                "0, and 255 for none)"
            )
        return labels


def pairs_source(path: str, options: LayoutOptions) -> MaskedFiles:
    """The images of a folder and the masks of another one, by their names without extension.

    Raises:
        PackError: there are no two such folders, or no image has a mask.
    """
    if options.masks is not None:
        masks = expanded(options.masks)
        inner = [name for name in IMAGE_FOLDERS if name in subfolders(path)]
        images = os.path.join(path, inner[0]) if inner and masks.startswith(os.path.join(path, "")) else path
        return paired(path, images, masks)
    below = subfolders(path)
    image_names, mask_names = (
        [name for name in names if name in below] for names in (IMAGE_FOLDERS, MASK_FOLDERS)
    )
    if len(image_names) != 1 or len(mask_names) != 1:
        raise PackError(
            f"{path}: no two folders images and masks in it; give the folder of the images as the "
            "source, and that of the "
            "masks with --masks DIR (masks= in Python)"
        )
    return paired(path, os.path.join(path, image_names[0]), os.path.join(path, mask_names[0]))


def paired(title: str, images: str, masks: str, **more: Any) -> MaskedFiles:
    """The images below one folder with the masks below another; `more` are further arguments of
    MaskedFiles."""
    found, labels = by_stem(images, IMAGE_EXTENSIONS), by_stem(masks, MASK_EXTENSIONS)
    partners = {
        stem: next((labels[stem + end] for end in MASK_ENDINGS if stem + end in labels), "") for stem in found
    }
    if not any(partners.values()):
        shown = ", ".join(map(os.path.basename, [*list(found.values())[:2], *list(labels.values())[:2]]))
        raise PackError(
            f"{title}: of {len(found)} images in {images} none has a mask of its name among "
            f"{len(labels)} in {masks} ({shown})"
        )
    alone = sorted(set(labels.values()) - set(partners.values()))
    absent = f"{images} or {masks}"
    return MaskedFiles(
        title, [*found.values(), *alone], {MASK: [*partners.values(), *alone]}, absent=absent, **more
    )


def by_stem(top: str, extensions: tuple[str, ...]) -> dict[str, str]:
    """The files of these extensions below a folder, in order, by their paths in it without extension.

    Raises:
        PackError: two files differ in the extension alone, or a folder cannot be listed.
    """
    found: dict[str, str] = {}
    for folder, files in walk(top):
        for name in files:
            stem, extension = os.path.splitext(name)
            if extension.lower() not in extensions:
                continue
            key, path = os.path.relpath(os.path.join(folder, stem), top), os.path.join(folder, name)
            if key in found:
                raise PackError(
                    f"{path} and {found[key]} differ in their extension alone: remove one of them"
                )
            found[key] = path
    return found


def ade20k_source(path: str, options: LayoutOptions) -> MaskedFiles:
    """ADE20K's scene parsing benchmark: images/training and annotations/training. Label 0 is of no class,
    1 to 150 are classes."""
    split = chosen_split(
        path, subfolders(os.path.join(path, "images")), options.split, "folders below images"
    )
    images, masks = (os.path.join(path, name, split) for name in ("images", "annotations"))
    return paired(
        path, images, masks, classes=_ade20k_classes(os.path.join(path, "objectInfo150.txt")), layout="ADE20K"
    )


def _ade20k_classes(path: str) -> tuple[str, ...] | None:
    """Names of the labels, of the table that the dataset has; None: it is not there, or another one."""
    try:
        lines = read_regular(path, 1 << 20).decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    rows = [line.split("\t") for line in lines[1:] if line.strip()]
    if not rows or any(len(row) < 5 or row[0].strip() != str(number) for number, row in enumerate(rows, 1)):
        return None
    return ("other", *(row[-1].strip() for row in rows))


def cityscapes_source(path: str, options: LayoutOptions) -> MaskedFiles:
    """Cityscapes: leftImg8bit/SPLIT/CITY with labelIds of gtFine, or of gtCoarse; and their instanceIds,
    where all images have them."""
    top = os.path.join(path, "leftImg8bit")
    split = chosen_split(path, subfolders(top), options.split, "folders below leftImg8bit")
    kind = next(
        (each for each in ("gtFine", "gtCoarse") if os.path.isdir(os.path.join(path, each, split))), ""
    )
    if not kind:
        raise PackError(f"{path}: neither gtFine{os.sep}{split} nor gtCoarse{os.sep}{split} is in it")
    found = {
        stem: file
        for stem, file in by_stem(os.path.join(top, split), IMAGE_EXTENSIONS).items()
        if stem.endswith("_leftImg8bit")
    }
    bases = [os.path.join(path, kind, split, stem.removesuffix("leftImg8bit") + kind) for stem in found]
    masks = {MASK: [f"{base}_labelIds.png" for base in bases]}
    instances = [f"{base}_instanceIds.png" for base in bases]
    if all(map(os.path.isfile, instances)):
        masks[INSTANCE_MASK] = instances
    return MaskedFiles(path, list(found.values()), masks, CITYSCAPES_CLASSES, layout="Cityscapes")
