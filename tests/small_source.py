"""Small: a source of one value of each field, the same for all samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import fastload
from fastload.packing import Item
from fastload.store import Field

COUNT = 6


class Numbered:
    """Base of a source of samples that are made of their numbers: COUNT of them, or `count`. A subclass
    has `fields` and read()."""

    title, classes, concurrent, count = "numbered", None, True, COUNT

    def __len__(self) -> int:
        return self.count

    def name(self, position: int) -> str:
        return f"{position}.png"


class Small(Numbered):
    """A source of small images and one value of each field, the same for all samples."""

    title = "small"

    def __init__(self, value: Any, *fields: Field, channels: int = 3, dtype: str = "uint8") -> None:
        self.fields = fields
        self.image_field = (
            Field("image", "image", dtype, (channels,))
            if (channels, dtype) != (3, "uint8")
            else Field("image", "image")
        )
        self._value, self._pixels = value, np.full((16, 16, channels), 5, dtype)

    def read(self, position: int) -> Item:
        return Item(self.name(position), self._pixels, {field.name: self._value for field in self.fields})


def packed(out: Path, value: Any, *fields: Field, **options: Any) -> Path:
    fastload.pack(Small(value, *fields, **options), out, workers=1)
    return out
