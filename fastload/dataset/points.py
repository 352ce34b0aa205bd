"""Outline and KeyPointsWithVisibility: points of a sample as Python steps of a transform get them.

They need torchvision, and whoever needs them imports them then. torchvision's KeyPoints are pixels of two
numbers, x and y. A part of a polygon has corners of areas instead, and keypoints of COCO's form have a third
number, which has to go where its point goes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torchvision import tv_tensors
from torchvision.transforms.v2 import functional as F
from typing_extensions import Self


class _Points(tv_tensors.KeyPoints):  # type: ignore[misc]
    """KeyPoints that keep their class where torch copies or converts them; torchvision's own base makes
    KeyPoints of them."""

    @classmethod
    def _wrap(cls, tensor: torch.Tensor, *, canvas_size: tuple[int, int], check_dims: bool = True) -> Self:
        points = tensor.as_subclass(cls)
        points.canvas_size = canvas_size
        return points

    @classmethod
    def _wrap_output(
        cls, output: object, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> object:
        made = super()._wrap_output(output, args, kwargs)
        if isinstance(made, tuple | list):
            return type(made)(cls._own(part) for part in made)
        return cls._own(made)

    @classmethod
    def _own(cls, made: object) -> object:
        return (
            cls._wrap(made, canvas_size=made.canvas_size) if isinstance(made, tv_tensors.KeyPoints) else made
        )


class Outline(_Points):
    """Corners of an area, (points, 2): KeyPoints in all but flips, which move them as corners of boxes.

    A flip takes the corners of a box to width - x, and those of a polygon have to stay on its box and its
    mask; it takes a pixel to width - 1 - x.
    """


def _flipped(axis: int, outline: Outline) -> object:
    points = outline.as_subclass(torch.Tensor).clone()
    points[..., axis] = outline.canvas_size[1 - axis] - points[..., axis]
    return tv_tensors.wrap(points, like=outline)


F.register_kernel(F.horizontal_flip, Outline)(partial(_flipped, 0))
F.register_kernel(F.vertical_flip, Outline)(partial(_flipped, 1))


class KeyPointsWithVisibility(_Points):
    """Keypoints (..., 3): x, y and COCO's visibility. What moves KeyPoints moves their x and y; points of
    visibility 0, which are not labelled, stay as they are, as in native steps."""

    @classmethod
    def _own(cls, made: object) -> object:
        """The result of torch's operation: with the visibility it keeps its class; x and y alone are
        KeyPoints."""
        return super()._own(made) if isinstance(made, torch.Tensor) and made.shape[-1:] == (3,) else made


MOVES = (
    "horizontal_flip", "vertical_flip", "resize", "affine", "rotate", "pad", "crop", "center_crop",
    "resized_crop", "perspective", "elastic",
)  # fmt: skip
"""torchvision's functionals that move KeyPoints."""


def _moved(
    functional: Callable[..., Any], points: KeyPointsWithVisibility, *args: object, **kwargs: object
) -> object:
    values = points.as_subclass(torch.Tensor)
    after = functional(tv_tensors.KeyPoints(values[..., :2], canvas_size=points.canvas_size), *args, **kwargs)
    seen = values[..., 2:]
    moved = torch.cat((after.as_subclass(torch.Tensor), seen.to(after.dtype)), dim=-1)
    return tv_tensors.wrap(
        torch.where(seen == 0, values.to(after.dtype), moved), like=points, canvas_size=after.canvas_size
    )


for _name in MOVES:
    F.register_kernel(getattr(F, _name), KeyPointsWithVisibility)(partial(_moved, getattr(F, _name)))
