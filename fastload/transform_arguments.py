"""Arguments of transforms, checked: each function returns the value in one form, or raises TransformError in the name of the transform."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

from fastload.errors import TransformError

Size = int | Sequence[int]
KEYPOINTS_MOST = 1 << 16
"""Limit on the keypoints of one object, whose numbers a flip may exchange."""


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


def wrong_pairs(pairs: Sequence[Any], count: int) -> str:
    """What is wrong with pairs of keypoints' numbers, of `count` points, as a clause; "": nothing."""
    seen: set[int] = set()
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not all(type(each) is int for each in pair):
            return f"a pair is two numbers of points, not {pair!r:.80}"
        if not all(0 <= each < count for each in pair):
            return f"points are numbered from 0 to {count - 1}, and the pair {tuple(pair)} has another number"
        if pair[0] == pair[1] or not seen.isdisjoint(pair):
            return f"a point has one partner, another one, and the pair {tuple(pair)} has one that is used"
        seen.update(pair)
    return ""


def keypoint_pairs(value: Any, who: str) -> str | tuple[tuple[int, int], ...] | None:
    """Accepts None, "auto", or pairs of keypoints' numbers, none of them in two pairs."""
    if value is None or (isinstance(value, str) and value == "auto"):
        return value
    try:
        pairs = [tuple(index(each) for each in pair) for pair in value]
    except TypeError:
        raise TransformError(f'{who}: keypoint_pairs={value!r}; give "auto", or pairs of numbers of points, as [(1, 2), (3, 4)]') from None
    if wrong := wrong_pairs(pairs, KEYPOINTS_MOST):
        raise TransformError(f"{who}: keypoint_pairs: {wrong}")
    return tuple(sorted((min(pair), max(pair)) for pair in pairs))
