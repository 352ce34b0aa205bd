"""CocoIndex: where in an annotation file of COCO's form each image's annotations lie.

NOTE [ coco: what is held in memory ]
The annotations of a large dataset are gigabytes as Python objects. So the file is read once, object after object, and of each annotation
only its place, its id and its image are kept: 48 bytes. The annotations of an image are read again, from their places, when the image is.
A file that is wrong in one place is wrong for the images concerned: they are samples that cannot be read, each with its own message, and so
are annotations of an image that is not in the file. `on_error="skip"` leaves them out and counts them.
"""

from __future__ import annotations

import os
from array import array
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.errors import PackError
from fastload.packing.sources.folder_index import leads_out
from fastload.packing.sources.json_lists import list_entries
from fastload.packing.sources.protocol import file_stamp
from fastload.packing.sources.ranges import FileRanges
from fastload.store.checked import parse_json, shown
from fastload.store.field import is_point_name

_ID_LIMIT = 2**63
_NAMES_SHOWN = 3
_CONTENTS = ("bbox", "segmentation", "keypoints", "caption", "segments_info")


@dataclass(slots=True)
class CocoImage:
    """An entry of the list `images`.

    Attributes:
        id: its id; -1 for annotations without an image.
        file: its file_name; "" for annotations without an image.
        height, width: as the file says; 0 where it does not.
        wrong: why it cannot be packed; "" if nothing is known against it.
    """

    id: int
    file: str
    height: int
    width: int
    wrong: str = ""


@dataclass(frozen=True, slots=True)
class Category:
    """An entry of the list `categories`.

    Attributes:
        name: its name.
        keypoints: the number of its keypoints; 0: it has none.
        points: their names; (): they have none, or some that are no texts.
    """

    name: str
    keypoints: int
    points: tuple[str, ...] = ()


class CocoIndex:
    """The index of one annotation file.

    Attributes:
        path: the file.
        images: its images, in its order, and after them an entry for each image id that only annotations have.
        categories: by their ids, in ascending order.
        keys: how many annotations have each of the keys bbox, segmentation, keypoints, caption and segments_info, and not empty.

    Raises:
        PackError: the file cannot be read, is no such file, has no images, or has a category twice.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.images: list[CocoImage] = []
        self.categories: dict[int, Category] = {}
        self.keys: Counter[str] = Counter()
        self._ranges = FileRanges([path])
        self._ids, self._of, self._offsets, self._sizes = array("q"), array("q"), array("q"), array("q")
        self._read()
        if not self.images:
            raise PackError(f"{path}: it has no list of images, as an annotation file of COCO's form has")
        self.categories = dict(sorted(self.categories.items()))
        self._order, self._starts = self._by_image()

    def _read(self) -> None:
        for key, offset, text, entry in list_entries(self.path):
            if key == "annotations":
                self._add_annotation(offset, len(text), entry)
            elif key == "images":
                self._add_image(self._parsed(text, f"image {len(self.images)}"))
            elif key == "categories":
                self._add_category(self._parsed(text, f"category {len(self.categories)}"))

    def _parsed(self, text: bytes, what: str) -> dict[str, Any]:
        try:
            value: dict[str, Any] = parse_json(text)
        except ValueError as error:
            raise PackError(f"{self.path}: {what} is no JSON: {error}") from None
        return value

    def _add_annotation(self, offset: int, size: int, entry: dict[str, Any]) -> None:
        number = len(self._ids)
        of = entry.get("image_id")
        if not isinstance(of, int) or not _is_id(of):
            raise PackError(f"{self.path}: annotation number {number} (from 0) has the image_id {shown(of)}, which is no whole number")
        own = entry.get("id")
        self._ids.append(own if isinstance(own, int) and _is_id(own) else -1 - number)
        self._of.append(of)
        self._offsets.append(offset)
        self._sizes.append(size)
        for key in _CONTENTS:
            if entry.get(key):
                self.keys[key] += 1

    def _add_image(self, entry: dict[str, Any]) -> None:
        own, file = entry.get("id"), entry.get("file_name")
        if not isinstance(own, int) or not _is_id(own):
            raise PackError(f"{self.path}: image number {len(self.images)} (from 0) has the id {shown(own)}, which is no whole number")
        wrong = wrong_name(file)
        sides = [entry.get(side) for side in ("height", "width")]
        height, width = (side if isinstance(side, int) and 0 < side < 2**31 else 0 for side in sides)
        self.images.append(CocoImage(own, file if isinstance(file, str) else "", height, width, wrong))

    def _add_category(self, entry: dict[str, Any]) -> None:
        own, name = entry.get("id"), entry.get("name")
        if not isinstance(own, int) or not _is_id(own) or not isinstance(name, str):
            raise PackError(f"{self.path}: a category has the id {shown(own)} and the name {shown(name)}")
        if own in self.categories:
            raise PackError(f"{self.path}: the category id {own} is there twice ({self.categories[own].name!r} and {name!r}); correct it")
        points = entry.get("keypoints")
        names = tuple(points) if isinstance(points, list) and all(is_point_name(each) for each in points) else ()
        self.categories[own] = Category(name, len(points) if isinstance(points, list) else 0, names)

    def _by_image(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Annotations in the order of their images, and the first of each image; marks the images that something is wrong with."""
        position: dict[int, int] = {}
        for number, image in enumerate(self.images):
            if (first := position.setdefault(image.id, number)) != number:
                other = self.images[first]
                for one in (other, image):
                    one.wrong = one.wrong or f"the image id {image.id} is there twice ({other.file!r} and {image.file!r})"
        of = np.empty(len(self._of), np.int64)
        absent = 0
        for number, own in enumerate(self._of):
            found = position.get(own)
            if found is None:
                found = position[own] = len(self.images)
                self.images.append(CocoImage(-1, "", 0, 0, str(own)))
                absent += 1
            of[number] = found
        order = np.argsort(of, kind="stable")
        starts = np.searchsorted(of[order], np.arange(len(self.images) + 1))
        for number in range(len(self.images) - absent, len(self.images)):
            ids = [int(self._ids[each]) for each in order[starts[number] : starts[number + 1]]]
            names = ", ".join(map(str, ids[:_NAMES_SHOWN])) + (f" and {len(ids) - _NAMES_SHOWN} more" if len(ids) > _NAMES_SHOWN else "")
            which = f"annotation{'s' if len(ids) > 1 else ''} {names}"
            self.images[number].wrong = f"{which} of image {self.images[number].wrong}, which is not among its images"
        self._mark_twice(of)
        return order, starts

    def _mark_twice(self, of: npt.NDArray[np.int64]) -> None:
        """Marks the images of annotations with an id that another annotation has."""
        ids = np.array(self._ids, np.int64)
        by_id = np.argsort(ids, kind="stable")
        same = np.flatnonzero(ids[by_id][1:] == ids[by_id][:-1])
        for first, second in zip(by_id[same], by_id[same + 1], strict=True):
            for each in (first, second):
                image = self.images[of[each]]
                image.wrong = image.wrong or f"the annotation id {ids[each]} is there twice"

    def annotations(self, position: int) -> list[tuple[str, dict[str, Any]]]:
        """(what to call it in messages, annotation) of each annotation of an image, in the order of the file.

        Raises:
            PackError: something is wrong with the image or with the file.
        """
        image = self.images[position]
        if image.wrong:
            raise PackError(f"{self.path}: {image.wrong}; correct the file, or pack with on_error='skip'")
        found = []
        for number in self._order[self._starts[position] : self._starts[position + 1]]:
            text = self._ranges.read(0, self._offsets[number], self._sizes[number])
            what = f"annotation {self._ids[number]}" if self._ids[number] >= 0 else f"annotation number {number} (from 0)"
            entry = self._parsed(text, what)
            if not isinstance(entry, dict) or entry.get("image_id") != image.id:
                raise PackError(f"{self.path}: it has changed since it was opened: begin again")
            found.append((f"{self.path}: {what} of image {image.id} ({os.path.basename(image.file)})", entry))
        return found

    @property
    def is_panoptic(self) -> bool:
        """Whether its annotations are segments, whose pixels are in PNGs."""
        return bool(self.keys["segments_info"]) and not self.keys["bbox"]

    def file_of(self, position: int) -> str:
        """The file that has an image, for messages."""
        return self.path

    def time(self) -> int:
        """When the file was changed, in nanoseconds. Raises OSError."""
        return file_stamp(self.path)[1]


def wrong_name(file: object) -> str:
    """Why a file_name names no file below the folder of the images, or of the masks; "" if nothing is wrong with it."""
    if isinstance(file, str) and not leads_out(file):
        return ""
    return f"its file_name is {shown(file)}, which is no path below the folder of its files: write it relative to that folder"


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -_ID_LIMIT <= value < _ID_LIMIT
