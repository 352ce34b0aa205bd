"""Pillow's pixels for loaders that bring none of their own: the antialiased RandomResizedCrop and flip,
written out.

fastload.bench.rivals.PillowFolder does the same for a folder; here it is bytes, and no torch is imported.
"""

from __future__ import annotations

import io
import random
from collections.abc import Iterable
from typing import Any

import numpy as np
from PIL import Image

from fastload.bench.boxes import random_box


def opened(data: bytes) -> Image.Image:
    """A JPEG, decoded whole, as RGB."""
    with Image.open(io.BytesIO(data)) as found:
        return found.convert("RGB")


def squared(picture: Image.Image, size: int) -> Any:
    """HWC pixels of a picture as a square; antialiased bilinear."""
    return np.asarray(picture.resize((size, size), Image.Resampling.BILINEAR))


def planes(pixels: Any, *, mirrored: bool) -> Any:
    """CHW pixels of HWC ones, in memory of their own."""
    return np.ascontiguousarray((pixels[:, ::-1] if mirrored else pixels).transpose(2, 0, 1))


def resized(data: bytes, size: int) -> Any:
    """HWC pixels of a JPEG as a square."""
    return squared(opened(data), size)


def cropped(picture: Image.Image, size: int, scale: tuple[float, float]) -> Any:
    """CHW uint8 pixels of a random crop of a picture, half of them mirrored."""
    x, y, w, h = random_box(*picture.size, scale)
    return planes(squared(picture.crop((x, y, x + w, y + h)), size), mirrored=random.random() < 0.5)


def augmented(data: bytes, size: int) -> Any:
    """CHW uint8 pixels of a random crop of a JPEG, half of them mirrored."""
    return cropped(opened(data), size, (0.08, 1.0))


def augmented_views(data: bytes, views: Iterable[tuple[int, tuple[float, float], int]]) -> list[Any]:
    """Random crops of a JPEG that is decoded once; views: (side, share of the area, how many)."""
    picture = opened(data)
    return [cropped(picture, size, scale) for size, scale, count in views for _ in range(count)]
