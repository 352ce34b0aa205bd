"""Outline: a part of a polygon, as Python steps of a transform get it. It needs torchvision, and whoever needs it imports it then.

torchvision has no polygons. KeyPoints are the next to them, but they are pixels: a flip takes x to width - 1 - x, and a polygon would come
off its box and its mask. The corners of areas go to width - x, as those of BoundingBoxes, and as native steps move them.
"""

from __future__ import annotations

from typing import Any

import torch
from torchvision import tv_tensors  # type: ignore[import-untyped]
from torchvision.transforms.v2 import functional as F  # type: ignore[import-untyped]


class Outline(tv_tensors.KeyPoints):  # type: ignore[misc]
    """Corners of an area, (points, 2): KeyPoints in all but flips, which move them as corners of boxes."""


@F.register_kernel(F.horizontal_flip, Outline)  # type: ignore[untyped-decorator]
def _horizontal_flip(outline: Any, **_: Any) -> Any:
    return _flipped(outline, 0)


@F.register_kernel(F.vertical_flip, Outline)  # type: ignore[untyped-decorator]
def _vertical_flip(outline: Any, **_: Any) -> Any:
    return _flipped(outline, 1)


def _flipped(outline: Any, axis: int) -> Any:
    points = outline.as_subclass(torch.Tensor).clone()
    points[..., axis] = outline.canvas_size[1 - axis] - points[..., axis]
    return tv_tensors.wrap(points, like=outline)
