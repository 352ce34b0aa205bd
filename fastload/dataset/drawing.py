"""Images of any dtype as 8-bit pixels, colours of labels and objects, and corners of boxes, for contact
sheets and pages."""

from __future__ import annotations

import colorsys
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fastload.transforms.spec import Plan

Pixels = npt.NDArray[np.uint8]

COLOURS = 254
"""Colours of labels, numbered from 1."""
OBJECTS_MOST = 2000
"""Objects of a sample that are drawn."""
_IGNORED = 255
_TURN = 0.618033988749895
"""Hues are this part of the circle apart, so that neighbouring numbers differ."""


def numbers_of(labels: npt.NDArray[np.integer]) -> Pixels:
    """Numbers of labels' colours: 0 stays, others go round the colours; 255 of 8-bit labels, which most
    programs ignore, stays too."""
    wide = labels.astype(np.int64)
    numbers = np.where(wide > 0, (wide - 1) % COLOURS + 1, 0).astype(np.uint8)
    if labels.dtype == np.uint8:
        numbers[labels == _IGNORED] = _IGNORED
    return numbers


def colour_of(number: int) -> tuple[int, int, int]:
    """The colour (red, green, blue) of the label or object of a number from 1."""
    red, green, blue = colorsys.hls_to_rgb((number - 1) * _TURN % 1.0, 0.55, 0.85)
    return round(255 * red), round(255 * green), round(255 * blue)


def painted_masks(masks: torch.Tensor) -> npt.NDArray[np.uint16]:
    """Numbers from 1 of binary masks (number, height, width), (height, width); where several lie on a
    pixel, the smallest one's."""
    array = masks[:OBJECTS_MOST].cpu().numpy() != 0
    out = np.zeros(array.shape[1:], np.uint16)
    for row in sorted(range(len(array)), key=lambda row: -int(array[row].sum())):
        out[array[row]] = row % COLOURS + 1
    return out


def box_corners(boxes: npt.NDArray[np.float64], form: str) -> npt.NDArray[np.float64]:
    """The four corners (number, 4, 2), in order around each box, of boxes of one of the formats of
    torchvision's BoundingBoxFormat.

    A rotated box is turned counterclockwise by r degrees: cxcywhr around its centre, xywhr around the corner
    x, y.
    """
    if form == "xyxyxyxy":
        return boxes.reshape(-1, 4, 2)
    if form == "xyxy":
        left, top, right, bottom = boxes.T
        return np.stack([left, top, right, top, right, bottom, left, bottom], 1).reshape(-1, 4, 2)
    x, y, width, height = boxes.T[:4]
    turn = np.deg2rad(boxes[:, 4]) if boxes.shape[1] == 5 else np.zeros(len(boxes))
    along = np.stack([np.cos(turn), -np.sin(turn)], 1) * width[:, None]
    down = np.stack([np.sin(turn), np.cos(turn)], 1) * height[:, None]
    first = np.stack([x, y], 1) - ((along + down) / 2 if form.startswith("cxcy") else 0)
    return np.stack([first, first + along, first + along + down, first + down], 1)


@dataclass(frozen=True)
class ShownImage:
    """An image as 8-bit pixels.

    Attributes:
        pixels: uint8, (height, width) or (height, width, 3).
        note: the changes that were made to show it, in words; "": the pixels are the image's.
    """

    pixels: Pixels
    note: str = ""


def shown_image(image: torch.Tensor, plan: Plan | None = None) -> ShownImage:
    """An image (channels, height, width) of any dtype as 8-bit pixels.

    Floats are those of 0..1, after `plan`'s Normalize is undone. 16-bit values and floats outside of 0..1 are
    stretched from the least to the greatest. Of four channels the first three are shown, of two the first.
    """
    values, notes = image.detach().cpu(), []
    if plan is not None and plan.mean is not None and plan.std is not None and values.is_floating_point():
        shape = (-1, 1, 1)
        values = values.float() * torch.tensor(plan.std).view(shape) + torch.tensor(plan.mean).view(shape)
        notes.append("Normalize is undone")
    if values.shape[0] not in (1, 3):
        notes.append(f"{3 if values.shape[0] > 3 else 1} of its {values.shape[0]} channels")
        values = values[: 3 if values.shape[0] > 3 else 1]
    array = values.float().numpy() if values.is_floating_point() else values.numpy()
    if array.dtype != np.uint8:
        array, note = _bytes_of(array)
        notes += [note] if note else []
    grey = array.shape[0] == 1
    return ShownImage(np.ascontiguousarray(array[0] if grey else array.transpose(1, 2, 0)), "; ".join(notes))


def _bytes_of(array: np.ndarray[Any, Any]) -> tuple[Pixels, str]:
    """8-bit values of others, and how they were made."""
    finite = array[np.isfinite(array)] if array.dtype.kind == "f" else array
    least, most = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    slack = 1e-3  # of floats: rounding in Normalize and back
    if array.dtype.kind == "f" and least >= -slack and most <= 1 + slack:
        low, high, note = 0.0, 1.0, ""
    else:
        low, high, note = least, most, f"stretched from {least:g} .. {most:g}"
    scaled = (np.nan_to_num(array.astype(np.float64), nan=low, posinf=high, neginf=low) - low) / (
        (high - low) or 1.0
    )
    return np.rint(np.clip(scaled, 0, 1) * 255).astype(np.uint8), note
