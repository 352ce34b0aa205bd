"""Pictures of stored samples: PNG files of images, reduced by the decoder itself, and transparent ones of
masks and instances."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fastload.dataset.contact_sheet import within
from fastload.dataset.drawing import COLOURS, OBJECTS_MOST, shown_image
from fastload.dataset.packed import PackedDataset
from fastload.errors import ArgumentError, SampleError
from fastload.store import parse_value, stored_size
from fastload.store.kinds.run_lengths import counts_of
from fastload.view.png import label_png, png
from fastload.view.subject import Kept, Subject

SIDES = (64, 96, 128, 160, 192, 256, 320, 384, 512, 1024, 2048)
"""Sides within which images are shown, pixels: few, so that few plans of transforms are kept."""


class Pictures:
    """PNG files of a dataset's samples. Any thread may call."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._reduced: Kept[PackedDataset] = Kept(len(SIDES) * 8)

    def image(self, index: int, side: int, name: str = "") -> bytes:
        """The PNG of an image of a sample, within `side` pixels; one that is smaller has its stored pixels.

        Args:
            index: index of the sample.
            side: one of SIDES.
            name: name of the image's field; "": the first image.

        Raises:
            ArgumentError: there is no such side, or no such image.
            SampleError: it cannot be decoded.
        """
        return png(shown_image(self.pixels(index, side, name)).pixels)

    def pixels(self, index: int, side: int, name: str = "") -> torch.Tensor:
        """The image that `image` shows, (channels, height, width)."""
        _check_side(side)
        dataset = self._subject.dataset
        reader, first = dataset.opened.reader, dataset.image_field
        field = reader.schema[name or first]
        if not field.handler.is_image:
            raise ArgumentError(f"field {field.name!r} is of kind {field.kind}, and no image")
        smaller = max(stored_size(reader, index, field)) <= side
        fields = (first,) if field.name == first else (first, field.name)
        small = self._reduced.get(
            (smaller or side, fields), lambda: dataset.delivering(fields, None if smaller else within(side))
        )
        found: torch.Tensor = small.before_python(index, 0, 0)[field.name]
        return found

    def layer(self, index: int, name: str, side: int = SIDES[-1]) -> bytes:
        """The transparent PNG of a mask or of instances, as large as the image, or reduced to be within
        `side` pixels, one of SIDES.

        Raises:
            ArgumentError: the field is neither, or there is no such side.
            SampleError: it cannot be read.
        """
        _check_side(side)
        reader = self._subject.dataset.opened.reader
        field = reader.schema[name]
        if not field.handler.is_as_large:
            raise ArgumentError(
                f"field {name!r} is of kind {field.kind}, and has no pixels to lay over the image"
            )
        height, width = stored_size(reader, index)
        if height * width > self._subject.dataset.max_pixels:
            reason = (
                f"its columns say {width} x {height} pixels; the limit is {self._subject.dataset.max_pixels}"
            )
            raise self._subject.dataset.sample_error(index, reason)
        try:
            kind, data = reader.stored_fields(index).get(reader.schema.number(name), (0, None))
            value = parse_value(reader, index, field, kind, data, plain=True)
        except SampleError as error:
            raise self._subject.dataset.sample_error(index, error.reason or str(error)) from None
        return label_png(
            _reduced(
                np.asarray(value) if field.handler.holds_labels else _painted(value, height, width), side
            )
        )


def _check_side(side: int) -> None:
    if side not in SIDES:
        raise ArgumentError(f"pictures have a side of {', '.join(map(str, SIDES))} pixels, not {side}")


def _reduced(labels: npt.NDArray[Any], side: int) -> npt.NDArray[Any]:
    """Every n-th label of each side, so that both are within `side`."""
    step = -(-max(labels.shape) // side)
    return labels[::step, ::step]


def _painted(masks: list[dict[str, Any]], height: int, width: int) -> npt.NDArray[np.uint16]:
    """Numbers from 1 of the instances, (height, width), of COCO's run lengths; where several lie on a
    pixel, the smallest one's."""
    runs = [counts_of(each, (height, width)) for each in masks[:OBJECTS_MOST]]
    flat = np.zeros(height * width, np.uint16)
    areas = [int(each[1::2].sum(dtype=np.int64)) for each in runs]
    for row in sorted(range(len(runs)), key=lambda row: -areas[row]):
        ends = np.cumsum(runs[row], dtype=np.int64).tolist()
        for start, end in zip(ends[0::2], ends[1::2], strict=False):
            flat[start:end] = row % COLOURS + 1
    across: npt.NDArray[np.uint16] = flat.reshape(width, height).T
    return across
