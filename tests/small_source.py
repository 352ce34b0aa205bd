"""Small: a source of one value of each field, the same for all samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import fastload
from fastload.packing import Item
from fastload.store import Field

COUNT = 6


class Small:
    """A source of small images and one value of each field, the same for all samples."""

    title, classes, concurrent = "small", None, True

    def __init__(self, value: Any, *fields: Field, channels: int = 3, dtype: str = "uint8") -> None:
        self.fields = fields
        self.image_field = Field("image", "image", dtype, (channels,)) if (channels, dtype) != (3, "uint8") else Field("image", "image")
        self._value, self._pixels = value, np.full((16, 16, channels), 5, dtype)

    def __len__(self) -> int:
        return COUNT

    def name(self, position: int) -> str:
        return f"{position}.png"

    def read(self, position: int) -> Item:
        return Item(self.name(position), self._pixels, {field.name: self._value for field in self.fields})


def packed(out: Path, value: Any, *fields: Field, **options: Any) -> Path:
    fastload.pack(Small(value, *fields, **options), out, workers=1)
    return out
