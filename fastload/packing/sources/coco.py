"""Datasets in COCO's form: instances, keypoints and captions in one JSON file, the images in a folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.errors import PackError
from fastload.packing.sources.annotated import BOXES, LABELS, AnnotatedFiles, Values, mirrored_pairs, numbers, rows
from fastload.packing.sources.coco_index import Category, CocoImage, CocoIndex
from fastload.packing.sources.coco_merged import MergedIndex
from fastload.packing.sources.protocol import DrawnOn, Item, Place, Value, file_stamp
from fastload.store import Field

CATEGORY_ID = "category_id"


class CocoFiles(AnnotatedFiles):
    """The images of an annotation file, or of several; also those that have no annotations.

    Attributes:
        index: the annotation file, or files.
        categories: by their ids, in ascending order.
        labels: the label of each category id: 0, 1, ... in the order of the ids, which need not be contiguous.

    Args:
        folder: of the images of one file; of several files the index has the paths.
        categories: of the dataset, where they are more than those of the index.
    """

    def __init__(
        self, title: str, index: CocoIndex | MergedIndex, folder: str = "", categories: Mapping[int, Category] | None = None
    ) -> None:
        if isinstance(index, MergedIndex):
            paths, self.notices = index.paths, index.notices()
        else:
            paths = [os.path.join(folder, image.file) if image.id >= 0 or image.file else "" for image in index.images]
        super().__init__(title, paths)
        self.index = index
        self.categories = index.categories if categories is None else categories
        self.labels = {own: label for label, own in enumerate(self.categories)}
        self.classes = tuple(category.name for category in self.categories.values()) or None

    def name(self, position: int) -> str:
        image = self.index.images[position]
        return self._images[position] or f"{self.index.file_of(position)}: {image.wrong}"

    def key(self, position: int) -> str:
        return self.index.images[position].file or self.index.images[position].wrong

    def stamp(self, position: int) -> tuple[int, int]:
        size, time = file_stamp(self._images[position])
        return size, max(time, self.index.time())

    def place(self, position: int) -> Place:
        self.index.annotations(position)
        return super().place(position)

    def read(self, position: int) -> Item:
        if self.index.images[position].wrong:
            self.index.annotations(position)  # raises the error that says what
        return super().read(position)

    def drawn_on(self, position: int) -> DrawnOn:
        entry = self.index.images[position]
        size = (entry.height, entry.width) if entry.height and entry.width else None
        return DrawnOn(size, file=self.index.file_of(position))

    def label(self, what: str, entry: dict[str, Any]) -> int:
        """The label of an annotation. Raises PackError if its category is none of the file's."""
        own = entry.get(CATEGORY_ID)
        if not isinstance(own, int) or own not in self.labels:
            raise PackError(f"{what}: its category_id {own!r} is none of the {len(self.labels)} categories of the file")
        return self.labels[own]


class CocoSource(CocoFiles):
    """Instances, keypoints and captions. A field is there if an annotation of the file has it.

    The fields: `image_id`; `boxes` (xywh, float32), and for each box its `labels` (0, 1, ... in the order of the category ids),
    `category_id`, `area` (float32, of the box where the file has none), `iscrowd`, `instances` (of segmentation), `keypoints` (K, 3);
    `captions`, a list of texts as JSON.

    Raises:
        PackError: the categories have different numbers of keypoints.
    """

    def __init__(
        self, title: str, index: CocoIndex | MergedIndex, folder: str = "", categories: Mapping[int, Category] | None = None
    ) -> None:
        super().__init__(title, index, folder, categories)
        self._keys = index.keys
        self._points = self._keypoints()
        of = BOXES if self._keys["bbox"] else ""
        objects = bool(of or self._keys["segmentation"])
        fields = [Field("image_id", "int")]
        if of:
            fields.append(Field(BOXES, "boxes", format="xywh"))
        if objects and self.categories:
            fields += [rows(LABELS, "int64", of), rows(CATEGORY_ID, "int64", of)]
        if objects:
            fields += [rows("area", "float32", of), rows("iscrowd", "int64", of)]
        if self._keys["segmentation"]:
            fields.append(Field("instances", "instances", of=of))
        if self._points:
            fields.append(Field("keypoints", "keypoints", shape=(self._points, 3), of=of, **self._named_points()))
        if self._keys["caption"]:
            fields.append(Field("captions", "json"))
        self.fields = tuple(fields)
        self._names = {field.name for field in fields}

    def _keypoints(self) -> int:
        """Keypoints of an object; 0: there are none."""
        counts = {category.keypoints for category in self.categories.values() if category.keypoints}
        if not self._keys["keypoints"]:
            return 0
        if len(counts) != 1:
            named = " or ".join(map(str, sorted(counts))) or "none"
            raise PackError(
                f"{self.index.path}: its annotations have keypoints, but its categories name {named}; "
                "give the categories lists `keypoints` of one length"
            )
        return counts.pop()

    def _named_points(self) -> dict[str, Any]:
        """Names and pairs of the keypoints, where all categories that have some agree."""
        named = {category.points for category in self.categories.values() if category.keypoints}
        paired = {mirrored_pairs(names) for names in named}
        return {"names": named.pop() if len(named) == 1 else (), "pairs": paired.pop() if len(paired) == 1 else ()}

    def values(self, position: int, image: bytes) -> Values:
        entry = self.index.images[position]
        found = self.index.annotations(position)
        objects = [(what, each) for what, each in found if "caption" not in each or "bbox" in each]
        values: dict[str, Value] = {"image_id": entry.id}
        boxes = np.zeros((len(objects), 4))
        if BOXES in self._names:
            for row, (what, each) in enumerate(objects):
                boxes[row] = _box(what, each)
            values[BOXES] = boxes.astype(np.float32)
        if LABELS in self._names:
            values[LABELS] = np.array([self.label(what, each) for what, each in objects], np.int64)
            values[CATEGORY_ID] = np.array([each[CATEGORY_ID] for _, each in objects], np.int64)
        if "area" in self._names:
            areas = [_area(what, each, box) for (what, each), box in zip(objects, boxes, strict=True)]
            values["area"] = np.array(areas, np.float32)
            values["iscrowd"] = np.array([_crowd(what, each) for what, each in objects], np.int64)
        if "instances" in self._names:
            values["instances"] = [segmentation(what, each.get("segmentation"), entry) for what, each in objects]
        if self._points:
            values["keypoints"] = self._all_keypoints(objects)
        if "captions" in self._names:
            values["captions"] = [_caption(what, each) for what, each in found if "caption" in each]
        return values, tuple(what for what, _ in objects)

    def _all_keypoints(self, objects: list[tuple[str, dict[str, Any]]]) -> npt.NDArray[np.float32]:
        found = np.zeros((len(objects), self._points, 3), np.float32)
        for row, (what, each) in enumerate(objects):
            if each.get("keypoints"):
                found[row] = numbers(each["keypoints"], 3 * self._points, f"{what}: its list keypoints").reshape(-1, 3)
        return found


def _box(what: str, entry: dict[str, Any]) -> npt.NDArray[np.float64]:
    box = numbers(entry.get("bbox"), 4, f"{what}: its bbox")
    if box[2] < 0 or box[3] < 0:
        raise PackError(f"{what}: its bbox [x, y, width, height] is {entry['bbox']}: x2 < x1 or y2 < y1; correct or remove it")
    return box


def _area(what: str, entry: dict[str, Any], box: npt.NDArray[np.float64]) -> float:
    if entry.get("area") is None:
        return float(box[2] * box[3])
    return float(numbers([entry["area"]], 1, f"{what}: its area")[0])


def _crowd(what: str, entry: dict[str, Any]) -> int:
    found = entry.get("iscrowd", 0)
    if found not in (0, 1):
        raise PackError(f"{what}: its iscrowd is {found!r}, neither 0 nor 1")
    return int(found)


def _caption(what: str, entry: dict[str, Any]) -> str:
    found = entry["caption"]
    if not isinstance(found, str):
        raise PackError(f"{what}: its caption {found!r} is no text")
    return found


def segmentation(what: str, value: Any, image: CocoImage) -> Value:
    """The segmentation of an object as COCO has it: polygons, or an RLE as large as the image.

    Raises:
        PackError: it is neither, or a polygon or an RLE that is wrong.
    """
    size = [image.height, image.width]
    if not value and not isinstance(value, dict):  # an object with a box alone, where others have a segmentation
        if not all(size):
            raise PackError(f"{what}: it has no segmentation, and the file does not say the size of its image")
        return {"size": size, "counts": [image.height * image.width]}
    if isinstance(value, list):
        for part in value:
            if not isinstance(part, list) or len(part) < 6 or len(part) % 2:
                raise PackError(f"{what}: a polygon of its segmentation is no list of x, y, x, y, ... of three points or more")
            numbers(part, None, f"{what}: a polygon of its segmentation")
        return value
    if not isinstance(value, dict) or not isinstance(value.get("counts"), list | str):
        raise PackError(f"{what}: its segmentation is neither polygons nor an RLE with its counts")
    if all(size) and value.get("size") != size:
        raise PackError(f"{what}: its RLE has the size {value.get('size')}, where the image has [height, width] {size}")
    counts = value["counts"]
    if isinstance(counts, list) and all(size) and sum(numbers(counts, None, f"{what}: its RLE")) != size[0] * size[1]:
        raise PackError(f"{what}: the counts of its RLE do not sum to the {size[0]} x {size[1]} pixels of its image")
    return value
