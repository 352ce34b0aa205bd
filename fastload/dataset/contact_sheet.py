"""contact_sheet(): thumbnails of a packed dataset's samples on one Pillow image, for a look at what is in
it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from fastload.common.optional import optional
from fastload.dataset.drawing import (
    COLOURS,
    OBJECTS_MOST,
    Pixels,
    box_corners,
    colour_of,
    numbers_of,
    painted_masks,
    shown_image,
)
from fastload.store import Field
from fastload.store.labels import class_name, label_field, labels_of
from fastload.transforms.ops import Resize

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

    from fastload.dataset.packed import PackedDataset

ACROSS = 8
"""Thumbnails of a row."""
_GAP, _LINE = 4, 14
_PAPER, _INK, _SHADE = (255, 255, 255), (40, 40, 40), (0, 0, 0)
_TINT = 0.55
"""Part of a mask's colour in a pixel on which it lies."""
_FAR = 1e5
"""Coordinates of the corners that are drawn are at most as large, pixels."""
_LETTER = 6
"""Width of a letter of Pillow's own font, pixels."""


def contact_sheet(dataset: PackedDataset, indices: Sequence[int], side: int) -> Image:
    """A Pillow image: the samples' images as they are stored, within squares of `side` pixels, with index and
    label below each. The boxes, masks and instances among the delivered fields are drawn over them.

    Raises:
        ArgumentError: Pillow is not installed.
        SampleError: one of them cannot be decoded.
    """
    image_of = optional("PIL.Image", "dataset.show()", "pack")
    drawing = optional("PIL.ImageDraw", "dataset.show()", "pack").Draw
    columns = min(ACROSS, max(1, len(indices)))
    rows = -(-len(indices) // columns)
    cell, tall = side + _GAP, side + _LINE + _GAP
    sheet: Image = image_of.new("RGB", (columns * cell + _GAP, rows * tall + _GAP), _PAPER)
    draw = drawing(sheet)
    marked = _marked(dataset)
    small = dataset.delivering({name: name for name in (dataset.image_field, *marked)}, within(side))
    for place, index in enumerate(indices):
        values = small.before_python(index, 0, 0)
        pixels = _rgb(shown_image(values[dataset.image_field]).pixels)
        for field in marked.values():
            if field.handler.is_as_large:
                pixels = _tinted(pixels, _numbers(field, values[field.name]))
        thumbnail = image_of.fromarray(pixels)
        for field in marked.values():
            if field.handler.owns_objects:
                _draw_boxes(
                    drawing(thumbnail), _corners(field, values[field.name]), _names(dataset, field, values)
                )
        x, y = _GAP + place % columns * cell, _GAP + place // columns * tall
        sheet.paste(thumbnail, (x + (side - thumbnail.width) // 2, y + (side - thumbnail.height) // 2))
        draw.text((x, y + side), _caption(dataset, index, side), fill=_INK)
    return sheet


def within(side: int) -> Resize:
    """The transform that makes thumbnails."""
    return Resize(None, max_size=side)


def _marked(dataset: PackedDataset) -> dict[str, Field]:
    """The delivered fields that are drawn over an image, and the labels of boxes, by name."""
    schema = dataset.opened.reader.schema
    found = {field.name: field for field in schema if field.handler.owns_objects or field.handler.is_as_large}
    labels = [labels_of(schema, field.name) for field in found.values() if field.handler.owns_objects]
    found |= {field.name: field for field in labels if field is not None}
    return {name: field for name, field in found.items() if name in dataset.fields}


def _rgb(pixels: Pixels) -> Pixels:
    return pixels if pixels.ndim == 3 else np.repeat(pixels[:, :, None], 3, axis=2)


def _numbers(field: Field, value: torch.Tensor) -> Pixels:
    """Numbers of the colours of a mask's labels, or of instances; 0 where there is none."""
    plain = value.as_subclass(torch.Tensor)
    return numbers_of(plain.numpy() if field.handler.holds_labels else painted_masks(plain))


def _tinted(pixels: Pixels, numbers: Pixels) -> Pixels:
    colours = np.array([_SHADE, *map(colour_of, range(1, COLOURS + 1)), (128, 128, 128)], np.float32)
    mixed = np.rint((1 - _TINT) * pixels + _TINT * colours[numbers]).astype(np.uint8)
    return np.where(numbers[:, :, None] > 0, mixed, pixels)


def _corners(field: Field, boxes: torch.Tensor) -> npt.NDArray[np.float64]:
    """Corners (number, 4, 2) of boxes, on the image or somewhat beside it."""
    array = boxes.as_subclass(torch.Tensor)[:OBJECTS_MOST].double().numpy()
    return np.clip(np.nan_to_num(box_corners(array, field.format)), -_FAR, _FAR)


def _draw_boxes(draw: ImageDraw, boxes: npt.NDArray[np.float64], names: Sequence[str]) -> None:
    """Draws the outlines of boxes in their objects' colours, and their names within."""
    for row, points in enumerate(boxes):
        draw.polygon([tuple(point) for point in points], outline=colour_of(row % COLOURS + 1))
    for name, points in zip(names, boxes, strict=False):
        left, top = np.maximum(points.min(0), 0)
        draw.text((left + 2, top), _plain(name), fill=_PAPER, stroke_width=1, stroke_fill=_SHADE)


def _names(dataset: PackedDataset, boxes: Field, values: Mapping[str, Any]) -> list[str]:
    """The class of each box; [] if there are none."""
    labels = labels_of(dataset.opened.reader.schema, boxes.name)
    if labels is None or labels.name not in values:
        return []
    classes = dataset.opened.reader.manifest.classes
    return [class_name(classes, int(label)) for label in values[labels.name][:OBJECTS_MOST]]


def _plain(text: str) -> str:
    """A text in letters that Pillow's own font has."""
    return text.encode("latin-1", "replace").decode("latin-1")


def _caption(dataset: PackedDataset, index: int, side: int) -> str:
    """The index, and the class or number where samples have one."""
    reader, text = dataset.opened.reader, str(index)
    label = label_field(reader.schema, dataset.fields)
    if label is not None:
        text += f" {class_name(reader.manifest.classes, dataset.column_values([index])[label.name][0])}"
    return _plain(text)[: side // _LETTER]
