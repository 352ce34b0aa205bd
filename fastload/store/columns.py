"""Columns of a dataset, by sample: in memory, narrowed, or in the tables of its sidecars.

NOTE [ columns: where they are ]
  one value     a column that has one value in all samples is that value alone, seen as an array.
  as they are   a column that takes no more than an eighth of the room that is left.
  narrowed      integers are kept in the smallest type that holds them all, and come back as what they are.
  in tables     the rest is read where it lies, a checked block at a time: NOTE [ table: read in place ].
A process has HELD_BYTES for columns that it keeps, all of them together, so that what it holds does not grow
with a dataset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

HELD_BYTES = 8 << 20
"""Bytes of columns, all together, that are read and checked when a dataset is opened. Larger ones are read
on use."""

_SCANNED = 1 << 16
_SMALL = 8


class Values(Protocol):
    """The values of a column by sample: an array, or what is read like one."""

    def __len__(self) -> int: ...

    def __getitem__(self, at: Any) -> Any: ...


class NarrowedValues:
    """The values of a column of integers in memory, in a smaller type than their own."""

    def __init__(self, held: npt.NDArray[Any], dtype: np.dtype[Any]) -> None:
        self._held = held
        self._dtype = dtype

    def __len__(self) -> int:
        return len(self._held)

    def __getitem__(self, at: Any) -> Any:
        """The value of one sample, or an array of those of several. Raises IndexError."""
        return self._held[at].astype(self._dtype)


class TableValues:
    """The values of a column that stays in the sidecars, by sample: `values[index]` or `values[indices]`
    reads them.

    Args:
        take: returns the values of samples. Raises IndexError, DatasetError.
        count: number of all samples.
    """

    def __init__(self, take: Callable[[npt.NDArray[np.int64]], npt.NDArray[Any]], count: int) -> None:
        self._take = take
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, at: Any) -> Any:
        """The value of one sample, or an array of those of several. Raises IndexError, DatasetError."""
        found = self._take(np.atleast_1d(np.asarray(at, np.int64)))
        return found[0] if np.ndim(at) == 0 else found


def is_constant(values: Values) -> bool:
    """Returns True if a column has one value in all samples, of which there is at least one. Ends at the
    first other one."""
    if isinstance(values, np.ndarray) and len(values) and not values.strides[0]:
        return True
    chunks = (
        values[np.arange(first, min(first + _SCANNED, len(values)))]
        for first in range(0, len(values), _SCANNED)
    )
    return len(values) > 0 and all(bool((chunk == values[0]).all()) for chunk in chunks)


def held(chunks: Iterable[npt.NDArray[Any]], count: int, room: int) -> tuple[Values, int] | None:
    """A column to be kept in memory, and the bytes that it takes there; None, at the first chunk that shows
    it: they are more than `room`.

    Args:
        chunks: the column's values of samples, one piece after another; at least one sample.
        count: number of all samples.
        room: bytes that it may take.
    """
    out: npt.NDArray[Any] | None = None  # None: all so far are `first`
    first: npt.NDArray[Any] | None = None
    extent: tuple[int, int] | None = None
    at = 0
    for chunk in filter(len, chunks):
        first = chunk[:1].copy() if first is None else first
        if out is not None or chunk.tobytes() != first.tobytes() * len(chunk):
            extent = _joined_range(extent, chunk if out is not None else np.concatenate((first, chunk)))
            small = chunk.itemsize * first.size * count <= room // _SMALL
            dtype = chunk.dtype if small else _narrow(chunk.dtype, extent)
            if dtype.itemsize * first.size * count > room:
                return None
            if out is None:
                out = np.empty((count, *chunk.shape[1:]), dtype)
                out[:at] = first
            out = out.astype(dtype, copy=False)
            out[at : at + len(chunk)] = chunk
        at += len(chunk)
    assert first is not None
    assert at == count
    if out is None:
        return np.broadcast_to(first[0], (count, *first.shape[1:])), first.nbytes
    out.setflags(write=False)
    return (out if out.dtype == first.dtype else NarrowedValues(out, first.dtype)), out.nbytes


def _joined_range(known: tuple[int, int] | None, values: npt.NDArray[Any]) -> tuple[int, int] | None:
    """The least and the largest of integers, and of those `known` before; None: they are no integers."""
    if values.dtype.kind not in "iu":
        return None
    low, high = int(values.min()), int(values.max())
    return (low, high) if known is None else (min(low, known[0]), max(high, known[1]))


def _narrow(own: np.dtype[Any], between: tuple[int, int] | None) -> np.dtype[Any]:
    """The smallest type that holds integers of a range as they are, and is no larger than their own."""
    if between is None:
        return own
    smaller = (np.dtype(f"{kind}{size}") for size in (1, 2, 4) if size < own.itemsize for kind in "ui")
    return next(
        (each for each in smaller if np.iinfo(each).min <= between[0] and between[1] <= np.iinfo(each).max),
        own,
    )
