"""A source of samples with a mask, boxes, keypoints, instances and rows: ordinary ones, and those that
break loaders."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import numpy.typing as npt
from pictures import photo

from fastload.packing import Item
from fastload.store import Field

Array = npt.NDArray[Any]
FIELDS = (
    Field("number", "int"),
    Field("mask", "mask"),
    Field("boxes", "boxes", format="xyxy"),
    Field("labels", "array", "int64", (None,), of="boxes"),
    Field("points", "keypoints", shape=(3, 3), of="boxes"),
    Field("masks", "instances", of="boxes"),
    Field("tokens", "array", "int64", (None,)),
)
ODD = 6
"""The first samples: no object; one pixel; a thousand objects; boxes on edges; boxes outside; masks of one
pixel."""


OUTLINED = (*FIELDS, Field("lines", "polygons", of="boxes"))


class Scenes:
    """`count` samples whose contents follow from their numbers. Field `number` is the position."""

    title, classes, concurrent, fields = "scenes", None, True, FIELDS

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def name(self, position: int) -> str:
        return f"scene-{position}"

    def read(self, position: int) -> Item:
        rng = np.random.default_rng(position)
        height, width = (1, 1) if position == 1 else (int(rng.integers(20, 110)), int(rng.integers(20, 110)))
        boxes = self._boxes(position, rng, width, height)
        points = np.concatenate(
            [rng.uniform(0, (width, height), (len(boxes), 3, 2)), rng.integers(0, 3, (len(boxes), 3, 1))],
            2,
            dtype=np.float32,
        )
        points[points[..., 2] == 0] = 0
        values = {
            "number": position,
            "mask": np.kron(
                rng.integers(0, 200, (height // 8 + 1, width // 8 + 1), np.uint8), np.ones((8, 8), np.uint8)
            )[:height, :width],
            "boxes": boxes,
            "labels": np.arange(len(boxes)) + 100 * position,
            "points": points,
            "masks": self._masks(position, boxes, width, height),
            "tokens": np.arange(position % 5),
        }
        out = io.BytesIO()
        photo(position, height, width).save(out, "JPEG", quality=95)
        return Item(self.name(position), out.getvalue(), values)

    def _boxes(self, position: int, rng: np.random.Generator, width: int, height: int) -> Array:
        edges = [
            [0, 0, width, height],
            [0, 0, 0, 0],
            [width, height, width, height],
            [0, 0, 1, height],
            [0, height - 1, width, height],
        ]
        outside = [
            [-30, -30, -20, -20],
            [width, 0, width + 40, 9],
            [-5, -5, width + 5, height + 5],
            [-1e6, 3, 1e6, 4],
        ]
        if position in (3, 4):
            return np.array(edges if position == 3 else outside, np.float32)
        count = {0: 0, 2: 1000}.get(position, 1 + position % 9)
        low = rng.uniform(0, 0.8, (count, 2))
        corners = np.concatenate([low, np.minimum(low + rng.uniform(0.01, 0.6, (count, 2)), 1)], 1) * (
            width,
            height,
            width,
            height,
        )
        return corners.astype(np.float32)

    def _masks(self, position: int, boxes: Array, width: int, height: int) -> Any:
        """The pixels in each box; of sample 5 one pixel each, of one with a thousand objects run lengths
        without one pixel."""
        if position == 2:
            return [{"size": [height, width], "counts": [height * width]}] * len(boxes)
        masks = np.zeros((len(boxes), height, width), np.uint8)
        for row, (left, top, right, bottom) in enumerate(
            np.clip(boxes, 0, (width, height, width, height)).astype(int)
        ):
            one = position == 5
            masks[row, top : top + 1 if one else bottom, left : left + 1 if one else right] = 1
        return masks


class Outlined(Scenes):
    """Scenes with outlines: of each box none, one or two parts, of which the first has its corners; some
    parts have one point, or none."""

    fields = OUTLINED

    def read(self, position: int) -> Item:
        item, rng = super().read(position), np.random.default_rng(1000 + position)
        lines = []
        for row, (left, top, right, bottom) in enumerate(item.values["boxes"].tolist()):
            corners = [left, top, right, top, right, bottom, left, bottom]
            lines.append([corners, rng.uniform(-9, 120, (row + position) % 5 * 2).tolist()][: row % 3])
        return Item(item.name, item.image, {**item.values, "lines": lines})
