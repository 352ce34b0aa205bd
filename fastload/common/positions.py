"""Positions of samples: integers as users and samplers give them, checked."""

from __future__ import annotations

import hashlib
import operator
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload._native import core


def as_positions(values: Any) -> npt.NDArray[np.int64]:
    """Positions of samples as int64; it may share an integer array's memory.

    Args:
        values: integers in a list, a range, an array, a tensor on the CPU, or another sized collection.

    Raises:
        TypeError: a value is no integer (it has no `__index__`), or is a bool: a mask is no list of
            positions.
    """
    if isinstance(values, range):
        return np.arange(values.start, values.stop, values.step, dtype=np.int64)
    if hasattr(values, "__array__"):
        array = np.asarray(values)
        if array.dtype.kind not in "iu" or array.ndim != 1:
            raise TypeError(
                f"samples are found by integers in one dimension, not by a {type(values).__name__} "
                f"of {array.dtype} with shape "
                f"{array.shape}: of a mask, give np.flatnonzero(mask)"
            )
        return array.astype(np.int64, copy=False)
    values = values if isinstance(values, list | tuple) else list(values)
    if set(map(type, values)) <= {int, np.int64}:
        return np.array(values, np.int64)
    return np.fromiter((position_of(value) for value in values), np.int64, len(values))


def listed_positions(indices: Any) -> npt.NDArray[np.int64] | None:
    """The integers that `indices[0]`, `indices[1]` and so on are; None: only the object itself can tell, or
    not all are integers.

    Known are lists, tuples, ranges, arrays and tensors. Anything else may look its items up in another way
    than it iterates over them: pandas' Series does so by label.
    """
    torch = sys.modules.get("torch")  # not imported here: packing comes without it
    if torch is not None and type(indices) is torch.Tensor:
        indices = indices.detach().cpu().numpy()
    if type(indices) not in (list, tuple, range, np.ndarray):
        return None
    try:
        found = as_positions(indices)
    except (TypeError, OverflowError):
        return None
    return None if getattr(indices, "dtype", None) == np.uint64 and (found < 0).any() else found


def subset_positions(indices: Any) -> npt.NDArray[np.int64]:
    """The integers that `indices[0]`, `indices[1]` and so on are, of an object of any kind. Raises what
    that raises, and TypeError."""
    found = listed_positions(indices)
    return as_positions([indices[place] for place in range(len(indices))]) if found is None else found


def positions_within(values: object, count: int) -> npt.NDArray[np.int64]:
    """Positions from 0 among `count` samples; negative ones count from the end. Raises IndexError, and
    TypeError as as_positions()."""
    try:
        where = as_positions(values)
    except OverflowError:
        raise IndexError(f"an index of {values!r} is out of range for {count} samples") from None
    low, high = core.extremes(where)
    if low < -count or high >= count:
        raise IndexError(f"index {low if low < -count else high} is out of range for {count} samples")
    return np.where(where < 0, where + count, where) if low < 0 else where


def position_of(value: Any) -> int:
    """One position as an int.

    Raises:
        TypeError: it is no integer (it has no `__index__`), or is a bool.
    """
    if isinstance(value, bool) or str(getattr(value, "dtype", "")) in ("bool", "torch.bool"):
        raise TypeError(
            f"samples are found by integers, not by {value!r}: of a mask, give the positions where it is true"
        )
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"samples are found by integers, not by {value!r} ({type(value).__name__})") from None


def position_in(index: object, count: int) -> int:
    """The position, from 0, that `index` names among `count` samples; negative ones count from the end.
    Raises IndexError."""
    position = position_of(index)
    if not -count <= position < count:
        raise IndexError(f"index {position} is out of range for {count} samples")
    return position % count


_CHUNK = 1 << 16
"""Numbers that are hashed at a time: a digest of a long list needs no second list."""


def summary_of(indices: Any) -> str | None:
    """The first of a list of integers, its length, and a digest of all; None: they are no integers, which
    another process may write otherwise."""
    try:
        count = len(indices)
        digest = digest_of(count, lambda start, stop: as_positions(indices[start:stop]))
    except (TypeError, ValueError, OverflowError):
        return None
    first = ", ".join(str(int(each)) for each in indices[:3])
    return f"[{first}{', ...' if count > 3 else ''}], {count:,} of them with the digest {digest}"


def digest_of(count: int, part: Callable[[int, int], np.ndarray[Any, Any]]) -> str:
    """A short digest of `count` values, which `part(start, stop)` returns as an array, some at a time."""
    found = hashlib.blake2b(digest_size=6)
    for start in range(0, count, _CHUNK):
        found.update(np.ascontiguousarray(part(start, min(start + _CHUNK, count))).data.cast("B"))
    return found.hexdigest()


def evenly(count: int, used: int) -> list[int]:
    """``used`` of ``count`` indices, ascending and evenly spaced: every class of a sorted dataset keeps
    its share."""
    return [k * count // used for k in range(used)]


def evenly_spaced(count: int, most: int) -> list[int]:
    """At most so many numbers below count, evenly spaced, ascending."""
    return sorted({int(number) for number in np.linspace(0, count - 1, min(count, most))})
