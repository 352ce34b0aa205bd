"""Pascal VOC's layout: JPEGImages with Annotations (boxes in XML) or SegmentationClass (labels in palette
PNGs), and lists in ImageSets.

Small XML files from anywhere, parsed without document types: they cannot define entities, nor name other
files.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from xml.parsers import expat

import numpy as np

from fastload.common.files import read_regular
from fastload.common.folders import IMAGE_EXTENSIONS
from fastload.errors import PackError
from fastload.sources.annotated import (
    BOXES,
    INSTANCE_MASK,
    MASK,
    AnnotatedFiles,
    chosen_split,
    files_in,
    rows,
    subfolders,
)
from fastload.sources.masked import MaskedFiles, by_stem
from fastload.sources.options import LayoutOptions
from fastload.sources.protocol import DrawnOn, Item, Value
from fastload.sources.row_files import leads_out
from fastload.store import Field
from fastload.store.labels import LABELS

XML_BYTES = 16 << 20
"""Limit on a file: an annotation of thousands of objects has one megabyte."""
_DEPTH = 100


@dataclass(slots=True)
class Element:
    """An element: its tag, its own text, and the elements in it."""

    tag: str
    text: str = ""
    inner: list[Element] = field(default_factory=list)

    def all(self, tag: str) -> list[Element]:
        """The elements of a tag right in this one."""
        return [each for each in self.inner if each.tag == tag]

    def value(self, *tags: str) -> str:
        """The text at a path of tags; "" if it is not there."""
        at: Element | None = self
        for tag in tags:
            at = next(iter(at.all(tag)), None) if at is not None else None
        return at.text.strip() if at is not None else ""


def read_xml(path: str) -> Element:
    """The outermost element of a file.

    Raises:
        PackError: the file is no XML, has a document type, or is nested deeper than `_DEPTH`.
        OSError: it cannot be read, or is larger than `XML_BYTES`.
    """
    data = read_regular(path, XML_BYTES)
    outer = Element("")
    open_now = [outer]

    def start(tag: str, _: dict[str, str]) -> None:
        if len(open_now) > _DEPTH:
            raise PackError(f"{path}: elements lie more than {_DEPTH} deep in each other")
        element = Element(tag)
        open_now[-1].inner.append(element)
        open_now.append(element)

    def text(characters: str) -> None:
        open_now[-1].text += characters

    def refuse(*_: object) -> None:
        raise PackError(
            f"{path}: it has a document type (<!DOCTYPE>), which annotations do not need; remove it"
        )

    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _: open_now.pop()
    parser.CharacterDataHandler = text
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, ValueError) as error:
        raise PackError(f"{os.fspath(path)}: no XML: {error}") from error
    return outer.inner[0]


VOC_CLASSES = tuple(
    "aeroplane bicycle bird boat bottle bus car cat chair cow diningtable dog horse motorbike person "
    "pottedplant sheep sofa train "
    "tvmonitor".split()
)
_LIST_BYTES = 64 << 20
_FLAGS = ("difficult", "truncated")


class VocSource(AnnotatedFiles):
    """Objects of Pascal VOC's annotations.

    The fields: `boxes` (xyxy, float32: pixels from 0, with the right and lower edge, where the file counts
    from 1 and includes the last pixel), and for each its `labels`, `difficult` and `truncated`. The classes
    are the challenge's twenty where no other is named in Annotations, else all names there, sorted; so they
    are the same for every split.
    """

    layout = "Pascal VOC"

    def __init__(self, title: str, images: list[str], annotations: list[str], folder: str) -> None:
        super().__init__(title, images)
        self._annotations = annotations
        self._folder = folder
        self.classes = _classes(folder, annotations)
        self._labels = {name: label for label, name in enumerate(self.classes)}
        self.fields = (
            Field(BOXES, "boxes", format="xyxy"),
            rows(LABELS, "int64", BOXES),
            *(rows(name, "uint8", BOXES) for name in _FLAGS),
        )

    def beside(self, position: int) -> list[str]:
        return [self._annotations[position]]

    def read(self, position: int) -> Item:
        path, image = self._annotations[position], self.read_file(self._images[position])
        try:
            outer = read_xml(path)
        except OSError as error:
            raise PackError(
                f"{self.name(position)}: its annotation {path} cannot be read: {error.strerror or error}"
            ) from error
        found = outer.all("object")
        whats = [f"{path}: object {number} (from 0)" for number in range(len(found))]
        values: dict[str, Value] = {
            BOXES: np.array(
                [_box(what, each) for what, each in zip(whats, found, strict=True)], np.float32
            ).reshape(-1, 4),
            LABELS: np.array(
                [self._label(what, each) for what, each in zip(whats, found, strict=True)], np.int64
            ),
        }
        for name in _FLAGS:
            values[name] = np.array([each.value(name) == "1" for each in found], np.uint8)
        return Item(
            self.name(position),
            image,
            values,
            objects=tuple(whats),
            drawn_on=DrawnOn(_size(outer), file=path),
        )

    def _label(self, what: str, found: Element) -> int:
        name = found.value("name")
        if name not in self._labels:
            raise PackError(f"{what} has the name {name!r}, which is no class of the dataset")
        return self._labels[name]


def _size(found: Element) -> tuple[int, int] | None:
    """(height, width) that an annotation says its image has; None: it does not say it, as tools do that
    write 0."""
    sides = [found.value("size", side) for side in ("height", "width")]
    if not all(side.isascii() and side.isdecimal() and 0 < int(side[:10]) for side in sides):
        return None
    return int(sides[0][:10]), int(sides[1][:10])


def _box(what: str, found: Element) -> tuple[float, ...]:
    texts = [found.value("bndbox", side) for side in ("xmin", "ymin", "xmax", "ymax")]
    try:
        left, top, right, bottom = map(float, texts)
    except ValueError:
        raise PackError(
            f"{what}: its bndbox is {', '.join(map(repr, texts))}, where xmin, ymin, xmax, ymax are numbers"
        ) from None
    if not all(math.isfinite(side) and abs(side) < 1e9 for side in (left, top, right, bottom)):
        raise PackError(f"{what}: its bndbox {texts} has a side that is NaN, infinite or too large")
    if right < left or bottom < top:
        raise PackError(
            f"{what}: its bndbox [xmin, ymin, xmax, ymax] is {texts}: x2 < x1 or y2 < y1; correct or "
            "remove it"
        )
    return max(left - 1, 0.0), max(top - 1, 0.0), right, bottom


def _classes(folder: str, annotations: list[str]) -> tuple[str, ...]:
    """Names of the classes; a file that cannot be read is the error of its own sample."""
    names: set[str] = set()
    everywhere = [os.path.join(folder, name) for name in files_in(folder, ".xml")]
    for path in everywhere or annotations:
        try:
            names.update(found.value("name") for found in read_xml(path).all("object"))
        except (PackError, OSError):  # noqa: PERF203
            continue
    return VOC_CLASSES if names <= set(VOC_CLASSES) else tuple(sorted(names - {""}))


def _stems(root: str, task: str, split: str | None, folder: str, ending: str) -> list[str]:
    """Names without endings of the images of a split, or of all files of a folder. Raises PackError if
    there are none."""
    listed = _listed(root, task, split)
    stems = (
        listed
        if listed is not None
        else [name[: -len(ending)] for name in files_in(os.path.join(root, folder), ending)]
    )
    if not stems:
        raise PackError(f"{root}: no {ending} files in its folder {folder}")
    return stems


def voc_source(path: str, options: LayoutOptions) -> VocSource:
    """The images of a split of ImageSets/Main, or all that have an annotation, with their objects."""
    root = voc_root(path)
    folder = os.path.join(root, "Annotations")
    stems = _stems(root, "Main", options.split, "Annotations", ".xml")
    return VocSource(
        path, _images(root, stems), [os.path.join(folder, f"{stem}.xml") for stem in stems], folder
    )


def voc_segmentation_source(path: str, options: LayoutOptions) -> MaskedFiles:
    """The images of a split of ImageSets/Segmentation, or all that have a mask, with the masks of classes,
    and of objects if all have one.

    255 is of no class. The names of the classes come from labelmap.txt, as CVAT writes it; those of the
    challenge (a folder VOC20..) are known.
    """
    root = voc_root(path)
    top = os.path.join(root, "SegmentationClass")
    stems = _stems(root, "Segmentation", options.split, "SegmentationClass", ".png")
    masks = {MASK: [os.path.join(top, f"{stem}.png") for stem in stems]}
    objects = [os.path.join(root, "SegmentationObject", f"{stem}.png") for stem in stems]
    if all(map(os.path.isfile, objects)):
        masks[INSTANCE_MASK] = objects
    return MaskedFiles(
        path, _images(root, stems), masks, _mask_classes(root), layout="Pascal VOC, segmentation"
    )


def voc_root(path: str) -> str:
    """The folder of JPEGImages: the one given, or the only one below it (or below VOCdevkit) that has such
    a folder."""
    for top in (path, os.path.join(path, "VOCdevkit")):
        if "JPEGImages" in (below := subfolders(top)):
            return top
        found = sorted(name for name in below if "JPEGImages" in subfolders(os.path.join(top, name)))
        if len(found) == 1:
            return os.path.join(top, found[0])
        if found:
            raise PackError(
                f"{top}: {', '.join(found)} are datasets of their own: give one of them as the source"
            )
    raise PackError(f"{path}: no folder JPEGImages in it, as Pascal VOC's layout has")


def _listed(root: str, task: str, split: str | None) -> list[str] | None:
    """The names that the list of a split has; None: there are no lists, and no split is named."""
    folder = os.path.join(root, "ImageSets", task)
    # aeroplane_train.txt is of one class.
    known = [name[:-4] for name in files_in(folder, ".txt") if "_" not in name]
    if not known and split is None:
        return None
    path = os.path.join(folder, f"{chosen_split(root, known, split, f'lists in ImageSets/{task}')}.txt")
    try:
        stems = [
            line.split()[0]
            for line in read_regular(path, _LIST_BYTES).decode("utf-8").splitlines()
            if line.strip()
        ]
    except OSError as error:
        raise PackError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise PackError(f"{path}: no UTF-8 text: {error.reason}") from error
    if out := next((stem for stem in stems if leads_out(stem)), None):
        raise PackError(f"{path}: it names {out!r}, which is not below the dataset's folders: correct it")
    if not stems:
        raise PackError(f"{path}: empty; it lists the names of the split's images")
    return stems


def _images(root: str, stems: list[str]) -> list[str]:
    """The images of these names; one that is not there is the sample's error."""
    folder = os.path.join(root, "JPEGImages")
    there = by_stem(folder, IMAGE_EXTENSIONS)
    return [there.get(os.path.normpath(stem), os.path.join(folder, f"{stem}.jpg")) for stem in stems]


def _mask_classes(root: str) -> tuple[str, ...] | None:
    try:
        lines = read_regular(os.path.join(root, "labelmap.txt"), 1 << 20).decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return (
            ("background", *VOC_CLASSES)
            if os.path.basename(os.path.abspath(root)).startswith("VOC20")
            else None
        )
    return (
        tuple(line.split(":")[0].strip() for line in lines if line.strip() and not line.startswith("#"))
        or None
    )
