"""contact_sheet(): thumbnails of a packed dataset's samples on one Pillow image, for a look at what is in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fastload.common.optional import optional
from fastload.transforms.ops import Resize

if TYPE_CHECKING:
    from fastload.dataset.packed import PackedDataset

ACROSS = 8
"""Thumbnails of a row."""
_GAP, _LINE = 4, 14
_PAPER, _INK = (255, 255, 255), (40, 40, 40)


def contact_sheet(dataset: PackedDataset, indices: Sequence[int], side: int) -> Any:
    """A Pillow image: the samples' images as they are stored, within squares of `side` pixels, with index and label below each.

    Raises:
        ArgumentError: Pillow is not installed.
        SampleError: one of them cannot be decoded.
    """
    image_of = optional("PIL.Image", "dataset.show()", "pack")
    draw_of = optional("PIL.ImageDraw", "dataset.show()", "pack")
    columns = min(ACROSS, max(1, len(indices)))
    rows = -(-len(indices) // columns)
    cell, tall = side + _GAP, side + _LINE + _GAP
    sheet = image_of.new("RGB", (columns * cell + _GAP, rows * tall + _GAP), _PAPER)
    draw = draw_of.Draw(sheet)
    for place, index in enumerate(indices):
        pixels = dataset.decode(index, 0, 0).permute(1, 2, 0).contiguous().numpy()
        x, y = _GAP + place % columns * cell, _GAP + place // columns * tall
        thumbnail = image_of.fromarray(pixels)
        sheet.paste(thumbnail, (x + (side - thumbnail.width) // 2, y + (side - thumbnail.height) // 2))
        draw.text((x, y + side), _caption(dataset, index, side), fill=_INK)
    return sheet


def within(side: int) -> Resize:
    """The transform that makes thumbnails."""
    return Resize(None, max_size=side)


def label_field(dataset: PackedDataset) -> str | None:
    """Name of the field that is the label: the one int field; None: there is none, or more than one."""
    labels = [name for name in dataset.fields if dataset.opened.handlers[name].can_label]
    return labels[0] if len(labels) == 1 else None


def label_text(dataset: PackedDataset, label: int) -> str:
    """The class of a label, or its number."""
    classes = dataset.classes
    return classes[label] if 0 <= label < len(classes) else str(label)


def _caption(dataset: PackedDataset, index: int, side: int) -> str:
    """The index, and the class or number where samples have one."""
    label, text = label_field(dataset), str(index)
    if label is not None:
        text += f" {label_text(dataset, dataset.column_values([index])[label][0])}"
    return text.encode("latin-1", "replace").decode("latin-1")[: side // 6]  # Pillow's own font knows no other letters
