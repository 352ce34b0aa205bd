"""Instances: binary masks as COCO's run lengths, from each form in which sources have them.

Run lengths count pixels column by column, of zeros and ones in turn, zeros first. COCO's text form of them is that of pycocotools
(`maskApi.c`): numbers in groups of five bits, from the third on as the difference to the last but one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.errors import PackError
from fastload.store.checked import shown

Counts = npt.NDArray[np.uint32]
Size = tuple[int, int]
"""(height, width), pixels."""

_GROUP = 5
_FIRST_CHARACTER = 48
_LONGEST = 7
"""Groups in one number: 32 bits and a sign."""


def counts_of(value: object, canvas: Size) -> Counts:
    """The run lengths of one object.

    Args:
        value: COCO's RLE ({"size": [height, width], "counts": list, text or bytes}), a mask (height, width) of 0 and 1, or a list of
            polygons, each a flat list of x and y (which needs pycocotools).
        canvas: the size that the mask must have.

    Raises:
        PackError: the value is none of these, has another size, or its counts do not sum; the message is the reason alone.
    """
    if isinstance(value, Mapping):
        return _of_rle(value, canvas)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return _of_polygons(value, canvas)
    mask = np.asarray(value)
    if mask.shape != canvas or mask.dtype.kind not in "bui":
        raise PackError(f"its mask is {mask.dtype} {mask.shape}, its image has {canvas[0]} x {canvas[1]} (height x width)")
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
        given = f"{list(size)!r:.60}" if isinstance(size, list | tuple | np.ndarray) and len(size) == 2 else shown(size)
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
        raise PackError(f"its run lengths go from {found.min()} to {found.max()}, its image has {total} pixels")
    if int(found.sum()) != total:
        raise PackError(f"its run lengths sum to {int(found.sum())}, its {canvas[0]} x {canvas[1]} pixels are {total}")
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
    """Run lengths in pycocotools' text form, which `counts_of` reads; any whole numbers of 32 bits, also those that do not sum."""
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
        raise PackError("polygons become masks by pycocotools: pip install 'fastload[coco]'") from None
    lines = []
    for part in parts:
        line = np.asarray(part, np.float64).reshape(-1)
        if line.size < 6 or line.size % 2 or not np.isfinite(line).all():
            raise PackError(f"a part of its polygon has {line.size} numbers; it has x and y of at least three points, all finite")
        lines.append(line.tolist())
    if not lines:
        return np.array([canvas[0] * canvas[1]], np.uint32)
    found = mask.merge(mask.frPyObjects(lines, *canvas))
    return _of_rle({"size": found["size"], "counts": found["counts"]}, canvas)
