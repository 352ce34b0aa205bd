"""Arguments of transforms, checked: each function returns the value in one form, or raises TransformError in the name of the transform."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastload.errors import TransformError

Size = int | Sequence[int]


def size_pair(size: Size, who: str) -> tuple[int, int]:
    """Accepts a positive int or (height, width)."""
    values = (size, size) if isinstance(size, int) else tuple(size)
    if len(values) == 1:
        values = (values[0], values[0])
    if len(values) != 2 or any(not isinstance(v, int) or isinstance(v, bool) or v < 1 for v in values):
        raise TransformError(f"{who}: size is {size!r}; give a positive int or (height, width)")
    return int(values[0]), int(values[1])


def interpolation_name(value: Any, who: str) -> str:
    """Accepts "bilinear", "bicubic", or torchvision's InterpolationMode members of those names."""
    name = str(getattr(value, "value", value)).lower()
    if name not in ("bilinear", "bicubic"):
        raise TransformError(f'{who}: interpolation {value!r} is not native; use "bilinear" or "bicubic"')
    return name


def ascending(value: Sequence[float], who: str, name: str, *, most: float | None = None) -> tuple[float, float]:
    """Accepts two positive numbers, the second at least the first and at most `most`."""
    low, high = (float(v) for v in value)
    if not 0 < low <= high or (most is not None and high > most):
        raise TransformError(f"{who}: {name}={tuple(value)!r} must be positive and ascending")
    return low, high


def colour(fill: int | Sequence[int], who: str) -> tuple[int, int, int]:
    """Accepts one value of 0 to 255 or three."""
    values = (fill,) * 3 if isinstance(fill, int) else tuple(fill)
    if len(values) != 3 or any(not 0 <= f <= 255 for f in values):
        raise TransformError(f"{who}: fill={fill!r}; give one value or three, 0 to 255")
    return values[0], values[1], values[2]


def mask_label(fill: int, who: str) -> int:
    """Accepts one label of 16 bits."""
    if not isinstance(fill, int) or not 0 <= fill < 1 << 16:
        raise TransformError(f"{who}: mask_fill={fill!r}; give one label, 0 to 65535")
    return fill


def probability(p: float, who: str) -> float:
    """Accepts a number from 0 to 1."""
    if not 0.0 <= p <= 1.0:
        raise TransformError(f"{who}: p={p!r} is no probability")
    return float(p)
