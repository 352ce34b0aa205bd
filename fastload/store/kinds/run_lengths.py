"""Run lengths of binary masks, as COCO has them, from each form in which sources have them.

Run lengths count pixels column by column, of zeros and ones in turn, zeros first. COCO's text form of them is
that of pycocotools (`maskApi.c`): numbers in groups of five bits, from the third on as the difference to the
last but one.

NOTE [ instances: what reaches pycocotools ]
Its C code checks neither arguments nor allocations: a coordinate of 1e8 ended the process, for want of
memory. It gets polygons only, and `_of_polygons` bounds all that it computes with:
- three points or more, all finite and at most `_SIDES_AWAY` widths and heights outside the image, so that
  five times each fits an int;
- at most `_DRAWN_MOST` upsampled points for an object, which bounds all its arrays: points, run lengths,
  characters;
- at most `_CANVAS_MOST` pixels in the image, so that each place fits an int, and each run length its
  characters.
So it runs in the packing process. A polygon may stick out of its image: the part outside is cut off. The code
here unites the parts, and reads the run lengths of all sources.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.common.distribution import pip_install
from fastload.errors import PackError
from fastload.store.checked import shown
from fastload.store.kinds.base import Size

Counts = npt.NDArray[np.uint32]
_GROUP = 5
_FIRST_CHARACTER = 48
_LONGEST = 7
"""Groups in one number: 32 bits and a sign."""
_UPSAMPLED = 5
"""Points of an outline that pycocotools makes for each pixel of its length, in x or y."""
_SIDES_AWAY = 10
"""Limit on how far outside its image a point of a polygon may be, in widths and heights of the image."""
_FARTHEST = 1e8
"""Limit on it in pixels: five times a coordinate is an int of 32 bits."""
_CANVAS_MOST = 1 << 28
"""Limit on the pixels of a mask that pycocotools makes: it reserves six characters, 30 bits with the sign,
for a run length."""
_DRAWN_MOST = 1 << 24
"""Limit on the points of the outlines of one object: about 24 bytes each are allocated at once."""


def counts_of(value: object, canvas: Size) -> Counts:
    """The run lengths of one object.

    Args:
        value: COCO's RLE ({"size": [height, width], "counts": list, text or bytes}), a mask (height, width)
            of 0 and 1, or a list of polygons, each a flat list of x and y (which needs pycocotools).
        canvas: the size that the mask must have.

    Raises:
        PackError: the value is none of these, has another size, or its counts do not sum; the message is the
            reason alone.
    """
    if isinstance(value, Mapping):
        return _of_rle(value, canvas)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return _of_polygons(value, canvas)
    mask = np.asarray(value)
    if mask.shape != canvas or mask.dtype.kind not in "bui":
        raise PackError(
            f"its mask is {mask.dtype} {mask.shape}, its image has {canvas[0]} x {canvas[1]} (height x width)"
        )
    if mask.size and not (mask.min() >= 0 and mask.max() <= 1):
        raise PackError("its mask has values other than 0 and 1")
    return _of_mask(mask.astype(np.uint8))


def _of_mask(mask: npt.NDArray[np.uint8]) -> Counts:
    flat = mask.T.reshape(-1)
    changes = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    edges = np.concatenate([[0] if flat[:1].any() else [], [0], changes, [flat.size]])
    return np.diff(edges).astype(np.uint32)


def _of_rle(value: Mapping[Any, Any], canvas: Size) -> Counts:
    size, counts = value.get("size"), value.get("counts")
    if not isinstance(size, Sequence | np.ndarray) or len(size) != 2 or tuple(size) != canvas:
        given = (
            f"{list(size)!r:.60}"
            if isinstance(size, list | tuple | np.ndarray) and len(size) == 2
            else shown(size)
        )
        raise PackError(f"its run lengths are of size {given}, its image has {list(canvas)} (height, width)")
    try:
        text = counts.encode("ascii") if isinstance(counts, str) else counts
        found = np.asarray(_of_text(text) if isinstance(text, bytes) else text)
    except (ValueError, TypeError, OverflowError) as error:
        raise PackError(f"its run lengths cannot be read: {error}") from None
    if found.ndim != 1 or (found.size and found.dtype.kind not in "ui"):
        raise PackError(f"its run lengths are {shown(counts)}, not a list of whole numbers")
    total = canvas[0] * canvas[1]
    if found.size and (found.min() < 0 or found.max() > total):
        raise PackError(
            f"its run lengths go from {found.min()} to {found.max()}, its image has {total} pixels"
        )
    if int(found.sum()) != total:
        raise PackError(
            f"its run lengths sum to {int(found.sum())}, its {canvas[0]} x {canvas[1]} pixels are {total}"
        )
    return found.astype(np.uint32)


def _of_text(text: bytes) -> list[int]:
    """The numbers of pycocotools' text form. Raises ValueError if it ends within one, or one is too long."""
    counts: list[int] = []
    number = groups = 0
    for character in text:
        code = character - _FIRST_CHARACTER
        if not 0 <= code < 64 or groups == _LONGEST:
            raise ValueError(f"{character:#04x} is no part of a number")
        number |= (code & 0x1F) << _GROUP * groups
        groups += 1
        if code & 0x20:
            continue
        if code & 0x10:
            number -= 1 << _GROUP * groups
        counts.append(number + (counts[-2] if len(counts) > 2 else 0))
        number = groups = 0
    if groups:
        raise ValueError("they end within a number")
    return counts


def counts_text(counts: Counts) -> str:
    """Run lengths in pycocotools' text form, which `counts_of` reads; any whole numbers of 32 bits, also
    those that do not sum."""
    left = counts.astype(np.int64)
    left[3:] -= counts[1:-2]
    groups, kept = [], []
    whole = np.zeros(len(left), bool)
    for _ in range(_LONGEST):
        group = left & 0x1F
        left >>= _GROUP
        more = left != np.where(group & 0x10, -1, 0)
        groups.append(group + 0x20 * more + _FIRST_CHARACTER)
        kept.append(~whole)
        whole |= ~more
    characters: npt.NDArray[np.int64] = np.stack(groups, 1)[np.stack(kept, 1)]
    return characters.astype(np.uint8).tobytes().decode("ascii")


def _of_polygons(parts: Sequence[Any], canvas: Size) -> Counts:
    try:
        from pycocotools import mask
    except ImportError:
        raise PackError(f"polygons become masks by pycocotools: {pip_install('coco')}") from None
    lines, drawn = [], 0
    if parts and canvas[0] * canvas[1] > _CANVAS_MOST:
        raise PackError(
            f"masks of polygons are made for images of at most {_CANVAS_MOST:,} pixels: give it as "
            "run lengths or polygons"
        )
    for part in parts:
        try:
            line = np.asarray(part, np.float64).reshape(-1)
        except (ValueError, TypeError, OverflowError) as error:
            raise PackError(f"a part of its polygon is no list of numbers: {error}") from None
        if line.size < 6 or line.size % 2 or not np.isfinite(line).all():
            raise PackError(
                f"a part of its polygon has {line.size} numbers; it has x and y of at least three "
                "points, all finite"
            )
        drawn += _drawn_points(line.reshape(-1, 2), canvas)
        if drawn > _DRAWN_MOST:
            raise PackError(
                f"the outline of its polygon is longer than {_DRAWN_MOST // _UPSAMPLED:,} pixels: "
                "correct or remove it"
            )
        lines.append(line.tolist())
    if not lines:
        return np.array([canvas[0] * canvas[1]], np.uint32)
    return _union([_of_rle(each, canvas) for each in mask.frPyObjects(lines, *canvas)], canvas)


def _union(parts: Sequence[Counts], canvas: Size) -> Counts:
    """The run lengths of the pixels that are in any of some masks."""
    if len(parts) == 1:
        return parts[0]
    ends = [np.cumsum(counts, dtype=np.int64) for counts in parts]
    starts = np.concatenate([each[:-1:2] for each in ends])
    stops = np.concatenate([each[1::2] for each in ends])
    places = np.concatenate([starts, stops])
    steps = np.repeat([1, -1], [starts.size, stops.size])
    order = np.argsort(places, kind="stable")  # the union goes on where one mask ends and another begins
    depth = np.cumsum(steps[order])
    outer = places[order][(depth == 0) | (depth == steps[order])]
    total = canvas[0] * canvas[1]
    edges = np.concatenate([[0], outer, [total] if not outer.size or outer[-1] < total else []])
    return np.diff(edges).astype(np.uint32)


def _drawn_points(points: npt.NDArray[np.float64], canvas: Size) -> int:
    """The number of points that pycocotools makes of an outline. Raises PackError for a point far from the
    image."""
    sides = np.array(canvas[::-1], np.float64)
    away = np.minimum(_SIDES_AWAY * sides, _FARTHEST)
    far = ((points < -away) | (points > sides + away)).any(1)
    if far.any():
        x, y = points[int(far.argmax())].tolist()
        raise PackError(
            f"a point of its polygon is at x {x:g}, y {y:g}, more than {_SIDES_AWAY} times the size "
            "of its image "
            f"({canvas[1]} x {canvas[0]}, width x height) outside it: correct or remove it"
        )
    grid = np.trunc(points * _UPSAMPLED + 0.5)
    steps = np.abs(np.diff(grid, axis=0, append=grid[:1])).max(1)
    return int(steps.sum()) + len(points)
