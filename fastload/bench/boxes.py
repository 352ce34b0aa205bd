"""torchvision's RandomResizedCrop, the box of it, with Python's random. Imports no torch, which not every
loader's environment has."""

from __future__ import annotations

import math
import random

LOW, HIGH = math.log(3 / 4), math.log(4 / 3)


def random_box(
    width: int, height: int, scale: tuple[float, float] = (0.08, 1.0)
) -> tuple[int, int, int, int]:
    """RandomResizedCrop's box (x, y, width, height) in an image of width x height pixels; `scale`: least
    and most share of the area."""
    area = width * height
    for _ in range(10):
        target = area * random.uniform(*scale)
        ratio = math.exp(random.uniform(LOW, HIGH))
        w, h = round(math.sqrt(target * ratio)), round(math.sqrt(target / ratio))
        if 0 < w <= width and 0 < h <= height:
            return random.randint(0, width - w), random.randint(0, height - h), w, h
    w, h = width, height
    if width / height < 3 / 4:
        h = round(width / (3 / 4))
    elif width / height > 4 / 3:
        w = round(height * (4 / 3))
    return (width - w) // 2, (height - h) // 2, w, h
