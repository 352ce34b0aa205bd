"""Pillow's pixels for loaders that bring none of their own: the antialiased RandomResizedCrop and flip, written out.

fastload.bench.rivals.PillowFolder does the same for a folder; here it is bytes, and no torch is imported.
"""

from __future__ import annotations

import io
import random
from typing import Any

import numpy as np
from PIL import Image

from fastload.bench.boxes import random_box


def resized(data: bytes, size: int, box: tuple[int, int, int, int] | None = None) -> Any:
    """HWC pixels of a box (x, y, width, height) of a JPEG, or of the whole image, as a square; antialiased bilinear."""
    with Image.open(io.BytesIO(data)) as opened:
        picture = opened.convert("RGB")
    if box is not None:
        x, y, w, h = box
        picture = picture.crop((x, y, x + w, y + h))
    return np.asarray(picture.resize((size, size), Image.Resampling.BILINEAR))


def augmented(data: bytes, size: int) -> Any:
    """CHW uint8 pixels of a random crop of a JPEG, half of them mirrored."""
    with Image.open(io.BytesIO(data)) as opened:
        box = random_box(*opened.size)
    pixels = resized(data, size, box)
    if random.random() < 0.5:
        pixels = pixels[:, ::-1]
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))
