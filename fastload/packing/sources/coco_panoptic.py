"""Panoptic datasets in COCO's form: a PNG for each image, whose colours are the ids of segments, and a JSON file with their categories."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.common.files import read_regular
from fastload.common.limits import checked_max_pixels
from fastload.errors import PackError, SampleError
from fastload.packing.pixels import MissingLibrary, read_other
from fastload.packing.sources.annotated import BOXES, INSTANCE_MASK, LABELS, MASK, VOID, Values, numbers, rows
from fastload.packing.sources.coco import CATEGORY_ID, CocoFiles, CocoSource
from fastload.packing.sources.coco_index import Category, CocoImage, CocoIndex, wrong_name
from fastload.packing.sources.coco_merged import MergedIndex
from fastload.packing.sources.protocol import Value
from fastload.store import Field

_SEGMENTS_MOST = 65535
"""Limit on the segments of an image: their numbers are 16-bit, and 0 is no segment."""


class CocoPanopticSource(CocoFiles):
    """Panoptic segmentation.

    The fields: `image_id`; `mask`, the label of each pixel (255, or 65535 with more than 255 categories: of no segment); `instance_mask`,
    the number of its segment (16-bit, 0: none); and for each segment its box in `boxes` (xywh), `segment` (its number), `labels`,
    `category_id`, `area` and `iscrowd`. The labels are 0, 1, ... in the order of the category ids.

    Args:
        masks: the folder of the PNGs.

    Raises:
        PackError: the file has no categories.
    """

    def __init__(self, title: str, index: CocoIndex, folder: str, masks: str, categories: Mapping[int, Category] | None = None) -> None:
        super().__init__(title, index, folder, categories)
        if not index.categories:
            raise PackError(f"{index.path}: it has no categories")
        self._masks = masks
        self._dtype: Any = np.uint8 if len(self.labels) <= VOID else np.uint16
        self.fields = (
            Field("image_id", "int"),
            Field(MASK, "mask", np.dtype(self._dtype).name),
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
            raise PackError(f"{found[1][0]}: the image has another one ({len(found)} in all); a panoptic file has one for each image")
        what, annotation = found[0] if found else ("", {"segments_info": []})
        segments = _segments(what, annotation)
        ids = self._ids(what, annotation, entry) if found else np.zeros(_size(self.index.path, entry), np.int64)
        numbered, labels = self._numbered(what, ids, segments)
        values: dict[str, Value] = {
            "image_id": entry.id,
            MASK: labels,
            INSTANCE_MASK: numbered,
            BOXES: np.array([numbers(each.get("bbox"), 4, f"{what}: the bbox of a segment") for each in segments]).reshape(-1, 4),
            "segment": np.arange(1, len(segments) + 1),
            LABELS: np.array([self.label(what, each) for each in segments], np.int64),
            CATEGORY_ID: np.array([each[CATEGORY_ID] for each in segments], np.int64),
            "area": numbers([each.get("area", 0) for each in segments], None, f"{what}: the areas of its segments"),
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
            raise PackError(f"{what}: {path} has {pixels.shape[1]} x {pixels.shape[0]} pixels, its image {entry.width} x {entry.height}")
        ids: npt.NDArray[np.int64] = pixels.astype(np.int64) @ np.array([1, 1 << 8, 1 << 16])
        return ids

    def _numbered(self, what: str, ids: npt.NDArray[np.int64], segments: list[dict[str, Any]]) -> tuple[npt.NDArray[np.uint16], Any]:
        """The number of each pixel's segment, and its label."""
        own = [each.get("id") for each in segments]
        known = np.array([each if isinstance(each, int) and 0 < each < 1 << 24 else -1 for each in own], np.int64)
        if (known < 0).any() or len(set(own)) < len(own):
            raise PackError(f"{what}: an id of its segments is there twice, or is no number from 1 to {(1 << 24) - 1}")
        present, inverse = np.unique(ids, return_inverse=True)
        strange = np.setdiff1d(present, np.append(known, 0))
        if len(strange):
            raise PackError(f"{what}: {_listed(strange)} of its PNG {'are' if len(strange) > 1 else 'is'} not among its segments_info")
        number_of = {0: 0} | {int(each): number for number, each in enumerate(known, 1)}
        numbers_of = np.array([number_of[int(each)] for each in present], np.uint16)
        labels = [np.iinfo(self._dtype).max, *(self.label(what, each) for each in segments)]
        numbered: npt.NDArray[np.uint16] = numbers_of[inverse].reshape(ids.shape)
        return numbered, np.array(labels, self._dtype)[numbered]


class CocoSegmentsSource(CocoSource):
    """Images of several files, some of them panoptic: the fields of `CocoSource`, and those of `CocoPanopticSource`.

    Where the other files have objects, fields of segments that go by the same names begin with `segment_`: `segment_boxes`, ...

    Args:
        panoptic: the panoptic files, by their numbers in the index.
    """

    def __init__(self, title: str, index: MergedIndex, panoptic: Mapping[int, CocoPanopticSource]) -> None:
        super().__init__(title, index)
        self._merged, self._panoptic = index, panoptic
        self._own = next(iter(panoptic.values()))
        names = {field.name for field in self.fields}
        self._renamed = {field.name: field.name for field in self._own.fields if field.name != "image_id"}
        if names & self._renamed.keys():
            self._renamed |= {name: f"segment_{name}" for name in (BOXES, LABELS, CATEGORY_ID, "area", "iscrowd")}
        new = [replace(f, name=self._renamed[f.name], of=self._renamed.get(f.of, "")) for f in self._own.fields if f.name in self._renamed]
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
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found) or len(found) > _SEGMENTS_MOST:
        raise PackError(f"{what}: its segments_info is no list of at most {_SEGMENTS_MOST:,} segments")
    return found


def _size(path: str, entry: CocoImage) -> tuple[int, int]:
    if not entry.height or not entry.width or entry.height * entry.width > checked_max_pixels(None):
        raise PackError(f"{path}: image {entry.id} ({entry.file}) has no annotation, and a size of {entry.width} x {entry.height}")
    return entry.height, entry.width
