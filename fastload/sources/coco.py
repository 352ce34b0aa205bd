"""Datasets in COCO's form: instances, keypoints and captions in one JSON file, the images in a folder.

Panoptic datasets in COCO's form: a PNG for each image, whose colours are the ids of segments, and a JSON file
with their categories.

The files of a dataset in COCO's form: which annotation files, and in which folders their images and panoptic
masks are.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.common.files import expanded, read_regular
from fastload.common.limits import checked_max_pixels
from fastload.errors import ArgumentError, PackError, SampleError
from fastload.sources.annotated import (
    BOXES,
    INSTANCE_MASK,
    MASK,
    VOID,
    AnnotatedFiles,
    Values,
    mirrored_pairs,
    numbers,
    rows,
)
from fastload.sources.coco_index import Category, CocoImage, CocoIndex, MergedIndex, wrong_name
from fastload.sources.options import LayoutOptions
from fastload.sources.pixels import MissingLibrary, read_other
from fastload.sources.protocol import DrawnOn, Item, Place, Value, file_stamp
from fastload.store import Field
from fastload.store.labels import LABELS

CATEGORY_ID = "category_id"


class CocoFiles(AnnotatedFiles):
    """The images of an annotation file, or of several; also those that have no annotations.

    Attributes:
        index: the annotation file, or files.
        categories: the categories by their ids, in ascending order.
        labels: the label of each category id: 0, 1, ... in the order of the ids, which need not be
            contiguous.

    Args:
        folder: folder of the images of one file; of several files the index has the paths.
        categories: categories of the dataset, if they are more than those of the index.
    """

    def __init__(
        self,
        title: str,
        index: CocoIndex | MergedIndex,
        folder: str = "",
        categories: Mapping[int, Category] | None = None,
    ) -> None:
        if isinstance(index, MergedIndex):
            paths, self.notices = index.paths, index.notices()
        else:
            paths = [
                os.path.join(folder, image.file) if image.id >= 0 or image.file else ""
                for image in index.images
            ]
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
            raise PackError(
                f"{what}: its category_id {own!r} is none of the {len(self.labels)} categories of the file"
            )
        return self.labels[own]


class CocoSource(CocoFiles):
    """Instances, keypoints and captions. A field is there if an annotation of the file has it.

    The fields: `image_id`; `boxes` (xywh, float32), and for each box its `labels` (0, 1, ... in the order of
    the category ids), `category_id`, `area` (float32, of the box where the file has none), `iscrowd`,
    `instances` (of segmentation), `keypoints` (K, 3); `captions`, a list of texts as JSON.

    Raises:
        PackError: the categories have different numbers of keypoints.
    """

    layout = "COCO"

    def __init__(
        self,
        title: str,
        index: CocoIndex | MergedIndex,
        folder: str = "",
        categories: Mapping[int, Category] | None = None,
    ) -> None:
        super().__init__(title, index, folder, categories)
        self._keys = index.keys
        self._points = self._keypoints()
        boxes = BOXES if self._keys["bbox"] else ""
        objects = bool(boxes or self._keys["segmentation"])
        fields = [Field("image_id", "int")]
        if boxes:
            fields.append(Field(BOXES, "boxes", format="xywh"))
        if objects and self.categories:
            fields += [rows(LABELS, "int64", boxes), rows(CATEGORY_ID, "int64", boxes)]
        if objects:
            fields += [rows("area", "float32", boxes), rows("iscrowd", "int64", boxes)]
        if self._keys["segmentation"]:
            fields.append(Field("instances", "instances", of=boxes))
        if self._points:
            fields.append(
                Field("keypoints", "keypoints", shape=(self._points, 3), of=boxes, **self._named_points())
            )
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
        return {
            "names": named.pop() if len(named) == 1 else (),
            "pairs": paired.pop() if len(paired) == 1 else (),
        }

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
            values["instances"] = [
                segmentation(what, each.get("segmentation"), entry) for what, each in objects
            ]
        if self._points:
            values["keypoints"] = self._all_keypoints(objects)
        if "captions" in self._names:
            values["captions"] = [_caption(what, each) for what, each in found if "caption" in each]
        return values, tuple(what for what, _ in objects)

    def _all_keypoints(self, objects: list[tuple[str, dict[str, Any]]]) -> npt.NDArray[np.float32]:
        found = np.zeros((len(objects), self._points, 3), np.float32)
        for row, (what, each) in enumerate(objects):
            if each.get("keypoints"):
                found[row] = numbers(
                    each["keypoints"], 3 * self._points, f"{what}: its list keypoints"
                ).reshape(-1, 3)
        return found


def _box(what: str, entry: dict[str, Any]) -> npt.NDArray[np.float64]:
    box = numbers(entry.get("bbox"), 4, f"{what}: its bbox")
    if box[2] < 0 or box[3] < 0:
        raise PackError(
            f"{what}: its bbox [x, y, width, height] is {entry['bbox']}: x2 < x1 or y2 < y1; correct "
            "or remove it"
        )
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


def segmentation(what: str, value: Value, image: CocoImage) -> Value:
    """The segmentation of an object as COCO has it: polygons, or an RLE as large as the image.

    Raises:
        PackError: it is neither, or a polygon or an RLE that is wrong.
    """
    size = [image.height, image.width]
    # An object with a box alone, where others have a segmentation.
    if not value and not isinstance(value, dict):
        if not all(size):
            raise PackError(
                f"{what}: it has no segmentation, and the file does not say the size of its image"
            )
        return {"size": size, "counts": [image.height * image.width]}
    if isinstance(value, list):
        for part in value:
            if not isinstance(part, list) or len(part) < 6 or len(part) % 2:
                raise PackError(
                    f"{what}: a polygon of its segmentation is no list of x, y, x, y, ... of three "
                    "points or more"
                )
            numbers(part, None, f"{what}: a polygon of its segmentation")
        return value
    if not isinstance(value, dict) or not isinstance(value.get("counts"), list | str):
        raise PackError(f"{what}: its segmentation is neither polygons nor an RLE with its counts")
    if all(size) and value.get("size") != size:
        raise PackError(
            f"{what}: its RLE has the size {value.get('size')}, where the image has [height, width] {size}"
        )
    counts = value["counts"]
    if (
        isinstance(counts, list)
        and all(size)
        and sum(numbers(counts, None, f"{what}: its RLE")) != size[0] * size[1]
    ):
        raise PackError(
            f"{what}: the counts of its RLE do not sum to the {size[0]} x {size[1]} pixels of its image"
        )
    return value


_SEGMENTS_MOST = 65535
"""Limit on the segments of an image: their numbers are 16-bit, and 0 is no segment."""


class CocoPanopticSource(CocoFiles):
    """Panoptic segmentation.

    The fields: `image_id`; `mask`, the label of each pixel (255, or 65535 with more than 255 categories: of
    no segment); `instance_mask`, the number of its segment (16-bit, 0: none); and for each segment its box in
    `boxes` (xywh), `segment` (its number), `labels`, `category_id`, `area` and `iscrowd`. The labels are 0,
    1, ... in the order of the category ids.

    Args:
        masks: the folder of the PNGs.

    Raises:
        PackError: the file has no categories.
    """

    layout = "COCO, panoptic"

    def __init__(
        self,
        title: str,
        index: CocoIndex,
        folder: str,
        masks: str,
        categories: Mapping[int, Category] | None = None,
    ) -> None:
        super().__init__(title, index, folder, categories)
        if not index.categories:
            raise PackError(f"{index.path}: it has no categories")
        self._masks = masks
        self._dtype = np.dtype(np.uint8 if len(self.labels) <= VOID else np.uint16)
        self.fields = (
            Field("image_id", "int"),
            Field(MASK, "mask", self._dtype.name),
            Field(INSTANCE_MASK, "mask", "uint16"),
            Field(BOXES, "boxes", format="xywh"),
            *(rows(name, "int64", BOXES) for name in ("segment", LABELS, CATEGORY_ID)),
            rows("area", "float32", BOXES),
            rows("iscrowd", "int64", BOXES),
        )

    def values(self, position: int, image: bytes) -> Values:
        return self.segments(self.index.images[position], self.index.annotations(position))

    def segments(self, entry: CocoImage, found: list[tuple[str, dict[str, Any]]]) -> Values:
        """The fields of an image of these annotations, of which there is one, or none."""
        if len(found) > 1:
            raise PackError(
                f"{found[1][0]}: the image has another one ({len(found)} in all); a panoptic file "
                "has one for each image"
            )
        what, annotation = found[0] if found else ("", {"segments_info": []})
        segments = _segments(what, annotation)
        ids = (
            self._ids(what, annotation, entry) if found else np.zeros(_size(self.index.path, entry), np.int64)
        )
        numbered, labels = self._numbered(what, ids, segments)
        values: dict[str, Value] = {
            "image_id": entry.id,
            MASK: labels,
            INSTANCE_MASK: numbered,
            BOXES: np.array(
                [numbers(each.get("bbox"), 4, f"{what}: the bbox of a segment") for each in segments]
            ).reshape(-1, 4),
            "segment": np.arange(1, len(segments) + 1),
            LABELS: np.array([self.label(what, each) for each in segments], np.int64),
            CATEGORY_ID: np.array([each[CATEGORY_ID] for each in segments], np.int64),
            "area": numbers(
                [each.get("area", 0) for each in segments], None, f"{what}: the areas of its segments"
            ),
            "iscrowd": np.array([int(each.get("iscrowd", 0) == 1) for each in segments], np.int64),
        }
        return values, tuple(f"{what}: segment {each['id']}" for each in segments)

    def _ids(self, what: str, annotation: dict[str, Any], entry: CocoImage) -> npt.NDArray[np.int64]:
        """The segment id of each pixel: R + 256 G + 65536 B of its PNG."""
        file = annotation.get("file_name")
        if wrong := wrong_name(file):
            raise PackError(f"{what}: {wrong}")
        path = os.path.join(self._masks, str(file))
        try:
            pixels, _, form = read_other(read_regular(path), checked_max_pixels(None), turn=False)
        except MissingLibrary:
            raise
        except SampleError as error:
            raise PackError(f"{what}: {path}: {error}") from error
        except OSError as error:
            raise PackError(f"{what}: its mask {path} cannot be read: {error.strerror or error}") from error
        if form != "png":
            raise PackError(f"{what}: {path} is a {form}; ids of segments need a lossless PNG")
        if entry.height and entry.width and pixels.shape[:2] != (entry.height, entry.width):
            raise PackError(
                f"{what}: {path} has {pixels.shape[1]} x {pixels.shape[0]} pixels, its image "
                f"{entry.width} x {entry.height}"
            )
        ids: npt.NDArray[np.int64] = pixels.astype(np.int64) @ np.array([1, 1 << 8, 1 << 16])
        return ids

    def _numbered(
        self, what: str, ids: npt.NDArray[np.int64], segments: list[dict[str, Any]]
    ) -> tuple[npt.NDArray[np.uint16], Any]:
        """The number of each pixel's segment, and its label."""
        own = [each.get("id") for each in segments]
        known = np.array(
            [each if isinstance(each, int) and 0 < each < 1 << 24 else -1 for each in own], np.int64
        )
        if (known < 0).any() or len(set(own)) < len(own):
            raise PackError(
                f"{what}: an id of its segments is there twice, or is no number from 1 to {(1 << 24) - 1}"
            )
        present, inverse = np.unique(ids, return_inverse=True)
        strange = np.setdiff1d(present, np.append(known, 0))
        if len(strange):
            raise PackError(
                f"{what}: {_listed(strange)} of its PNG {'are' if len(strange) > 1 else 'is'} not "
                "among its segments_info"
            )
        number_of = {0: 0} | {int(each): number for number, each in enumerate(known, 1)}
        numbers_of = np.array([number_of[int(each)] for each in present], np.uint16)
        labels = [np.iinfo(self._dtype).max, *(self.label(what, each) for each in segments)]
        numbered: npt.NDArray[np.uint16] = numbers_of[inverse].reshape(ids.shape)
        return numbered, np.array(labels, self._dtype)[numbered]


class CocoSegmentsSource(CocoSource):
    """Images of several files, some of them panoptic: the fields of `CocoSource`, and those of
    `CocoPanopticSource`.

    Where the other files have objects, fields of segments that go by the same names begin with `segment_`:
    `segment_boxes`, ...

    Args:
        panoptic: the panoptic files, by their numbers in the index.
    """

    layout = "COCO, instances and panoptic"

    def __init__(self, title: str, index: MergedIndex, panoptic: Mapping[int, CocoPanopticSource]) -> None:
        super().__init__(title, index)
        self._merged, self._panoptic = index, panoptic
        self._own = next(iter(panoptic.values()))
        names = {field.name for field in self.fields}
        self._renamed = {field.name: field.name for field in self._own.fields if field.name != "image_id"}
        if names & self._renamed.keys():
            self._renamed |= {
                name: f"segment_{name}" for name in (BOXES, LABELS, CATEGORY_ID, "area", "iscrowd")
            }
        new = [
            replace(f, name=self._renamed[f.name], of=self._renamed.get(f.of, ""))
            for f in self._own.fields
            if f.name in self._renamed
        ]
        self.fields = (*self.fields, *new)

    @property
    def label_limits(self) -> dict[str, int]:
        return super().label_limits | {self._renamed[LABELS]: len(self.categories)}

    def values(self, position: int, image: bytes) -> Values:
        values, objects = super().values(position, image)
        at = self._merged.segments_at(position)
        if at is None:
            own, segments = self._own.segments(self.index.images[position], [])
        else:
            own, segments = self._panoptic[at[0]].values(at[1], image)
        values |= {self._renamed[name]: value for name, value in own.items() if name in self._renamed}
        return values, () if objects and segments else objects or segments


def _listed(ids: npt.NDArray[np.int64]) -> str:
    """Ids in words: the first few of them."""
    shown = ", ".join(str(each) for each in ids[:3])
    return f"the id{'s' if len(ids) > 1 else ''} {shown}{' and more' if len(ids) > 3 else ''}"


def _segments(what: str, annotation: dict[str, Any]) -> list[dict[str, Any]]:
    found = annotation.get("segments_info")
    if (
        not isinstance(found, list)
        or not all(isinstance(each, dict) for each in found)
        or len(found) > _SEGMENTS_MOST
    ):
        raise PackError(f"{what}: its segments_info is no list of at most {_SEGMENTS_MOST:,} segments")
    return found


def _size(path: str, entry: CocoImage) -> tuple[int, int]:
    if not entry.height or not entry.width or entry.height * entry.width > checked_max_pixels(None):
        raise PackError(
            f"{path}: image {entry.id} ({entry.file}) has no annotation, and a size of {entry.width} "
            f"x {entry.height}"
        )
    return entry.height, entry.width


ROBOFLOW = "_annotations.coco.json"
"""Name of the annotation file beside its images, as Roboflow exports a split."""
_TRIED = 100
"""Images that are looked for in each folder where they may be."""


def annotation_files(folder: str) -> list[str]:
    """The annotation files of a folder: annotations/*.json, or Roboflow's."""
    inner = os.path.join(folder, "annotations")
    if os.path.isdir(inner):
        return [
            os.path.join(inner, name) for name in sorted(os.listdir(inner)) if name.lower().endswith(".json")
        ]
    own = os.path.join(folder, ROBOFLOW)
    return [own] if os.path.isfile(own) else []


def coco_source(path: str, options: LayoutOptions) -> CocoFiles:
    """The source of a dataset in COCO's form.

    Args:
        path: the folder of the images, or one above it, or the annotation file.
        options: `annotations`, or the `split` whose annotation file in the folder is meant; `masks`, of a
            panoptic file.

    Raises:
        PackError: there is no annotation file, or there are several, and none is named; the message names
            them. Or several that are named contradict each other in their categories.
    """
    files = options.annotation_files or (_annotation_file(path, options),)
    indices, folders = [CocoIndex(file) for file in files], []
    for file, index in zip(files, indices, strict=True):
        root = path if os.path.isdir(path) else os.path.dirname(file)
        folders.append(
            _folder_of(
                root, file, [image.file for image in index.images[:_TRIED] if not wrong_name(image.file)]
            )
        )
    panoptic = [number for number, index in enumerate(indices) if index.is_panoptic]
    if options.masks is not None and not panoptic:
        raise ArgumentError(f"masks is for the PNGs of a panoptic dataset, and {files[0]} is none")
    if len(files) == 1:
        return (
            _panoptic_source(path, indices[0], folders[0], options)
            if panoptic
            else CocoSource(path, indices[0], folders[0])
        )
    merged = MergedIndex(indices, folders)
    if not panoptic:
        return CocoSource(path, merged)
    segments = {
        number: _panoptic_source(path, indices[number], folders[number], options, merged.categories)
        for number in panoptic
    }
    return CocoSegmentsSource(path, merged, segments)


def _panoptic_source(
    path: str,
    index: CocoIndex,
    folder: str,
    options: LayoutOptions,
    categories: Mapping[int, Category] | None = None,
) -> CocoPanopticSource:
    masks = expanded(options.masks) if options.masks is not None else os.path.splitext(index.path)[0]
    if not os.path.isdir(masks):
        raise PackError(
            f"{masks}: no such folder, where the PNGs of {index.path} are looked for; --masks "
            "(masks=) names another one"
        )
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
            f"{path}: no annotation file in it ({os.path.join('annotations', '*.json')} or "
            f"{ROBOFLOW}); name it with --annotations FILE "
            "(annotations= in Python)"
        )
    several = "several annotation files" if chosen else f"no annotation file for the split {options.split!r}"
    raise PackError(
        f"{path}: {several}: {', '.join(os.path.basename(each) for each in chosen or found)}; name "
        "one, or several, with --annotations FILE"
    )


def _part(file: str) -> str:
    """train2017, of instances_train2017.json."""
    return os.path.splitext(os.path.basename(file))[0].rpartition("_")[2]


def _folder_of(root: str, file: str, names: list[str]) -> str:
    """The folder of the images: the first one of the usual ones in which one of these names is."""
    part = _part(file)
    tops = [root, os.path.dirname(file), os.path.dirname(os.path.dirname(file))]
    candidates = [
        os.path.join(top, below)
        for top in tops
        for below in ("", part, os.path.join("images", part), "images", "data")
    ]
    for folder in candidates:
        if any(os.path.isfile(os.path.join(folder, name)) for name in names if "\0" not in name):
            return os.path.normpath(folder)
    raise PackError(
        f"{root}: none of the images of {file} is here "
        f"({', '.join(names[:3])}{', ...' if len(names) > 3 else ''}; also looked for in "
        f"{part} and in images/{part}): give the folder of its images as the source"
    )
