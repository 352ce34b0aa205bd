"""What torchvision's functionals (transforms v2) make of a sample's parts at the parameters that the
engine has drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torchvision_ops  # noqa: F401  (before anything imports torchvision)
from torchvision import tv_tensors
from torchvision.transforms.v2 import RandomIoUCrop
from torchvision.transforms.v2 import functional as F

Array = npt.NDArray[Any]


def through(value: Any, steps: list[dict[str, Any]], fill: int = 0) -> Array:
    """A tv_tensor after the steps of a core.Geometry; what was padded is `fill`."""
    for step in steps:
        value = _after(value, step, fill)
    out: Array = value.numpy()
    return out


def _after(value: Any, step: dict[str, Any], fill: int) -> Any:
    kind, (width, height) = step["kind"], step["size"]
    if kind == "hflip":
        return F.horizontal_flip(value)
    if kind == "vflip":
        return F.vertical_flip(value)
    if kind == "crop":
        return F.crop(value, step["y"], step["x"], height, width)
    if kind == "iou_crop":
        return _iou_crop(value, step)
    if kind == "pad":
        old_height, old_width = F.get_size(value)
        return F.pad(
            value,
            [step["x"], step["y"], width - old_width - step["x"], height - old_height - step["y"]],
            fill=fill,
        )
    if kind == "sanitize":
        return value
    assert kind == "resize", kind
    return F.resize(value, [height, width])


def _iou_crop(value: Any, step: dict[str, Any]) -> Any:
    """A crop that makes boxes zero whose centres are not inside."""
    (width, height), inside = step["size"], None
    if isinstance(value, tv_tensors.BoundingBoxes):
        corners = F.convert_bounding_box_format(value, new_format="XYXY").as_subclass(torch.Tensor)
        x, y = (corners[:, 0] + corners[:, 2]) / 2, (corners[:, 1] + corners[:, 3]) / 2
        inside = (step["x"] < x) & (x < step["x"] + width) & (step["y"] < y) & (y < step["y"] + height)
    params = {
        "left": step["x"],
        "top": step["y"],
        "width": width,
        "height": height,
        "is_within_crop_area": inside,
    }
    return RandomIoUCrop().transform(value, params)


def as_boxes(boxes: Array, form: str, width: int, height: int, dtype: Any = None) -> Any:
    """Boxes as torchvision's."""
    return tv_tensors.BoundingBoxes(
        torch.from_numpy(boxes), format=form.upper(), canvas_size=(height, width), dtype=dtype
    )


def as_points(points: Array, width: int, height: int) -> Any:
    """Points (..., 2) as torchvision's."""
    return tv_tensors.KeyPoints(torch.from_numpy(np.ascontiguousarray(points)), canvas_size=(height, width))
