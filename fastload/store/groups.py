"""Groups: the records of one shard that are fetched and cached together.

A record of GROUP_BYTES or more is a group of its own, so that no other bytes are fetched with it. Smaller
records go with their neighbours: a request for each would cost more than the bytes beside it, and records
that share a page of the disk cannot be counted one by one.
"""

from __future__ import annotations

from typing import NamedTuple, overload

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.errors import DatasetError
from fastload.store.checked import Bad

GROUP_BYTES = 32 << 10
"""Bytes of small records after which the next group begins; part of the names of state files, whose bytes
stand for groups."""
_WINDOW = 8 * GROUP_BYTES
"""Bytes of the file within which all records of a group begin, even if they are few and far apart."""


class Groups:
    """The groups of one shard, numbered in the order of the file.

    Attributes:
        starts, stops: the range of each group in the file, in bytes.
        single: True if each group is exactly one record, and group i is row i.
    """

    def __init__(self, rows: npt.NDArray[np.uint32], file_bytes: int) -> None:
        """Takes a row for each of a shard's stored samples, whose first three numbers are the low and the
        high half of its place and its size, and the fourth the CRC32C of its record; and the file's size.

        Raises:
            Bad: there are no rows, or a place lies outside the file.
        """
        starts = rows[:, 0].astype(np.uint64) | rows[:, 1].astype(np.uint64) << np.uint64(32)
        sizes = rows[:, 2].astype(np.uint64)
        if (
            not len(starts)
            or np.any(starts > np.uint64(file_bytes))
            or np.any(sizes > np.uint64(file_bytes) - starts)
        ):
            raise Bad("its sidecar names places outside of its shards")
        self._group: npt.NDArray[np.uint32] | None = None  # group of each row; None: row i is group i
        self._order: npt.NDArray[np.uint32] | None = None  # rows in the order of their places
        self._firsts: npt.NDArray[np.uint32] | None = (
            None  # index into _order of each group's first row, and the end
        )
        ends = starts + sizes
        self._starts, self._sizes = starts, sizes.astype(np.uint32)  # one entry for each row
        self._crcs = rows[:, 3].copy() if rows.shape[1] > 3 else np.zeros(0, np.uint32)
        alone = sizes.min() >= GROUP_BYTES and np.all(starts[1:] >= ends[:-1])
        self.single = bool(alone or np.all(starts[1:] > ends[:-1] + np.uint64(GROUP_BYTES)))
        if self.single:
            self.starts, self.stops = starts, ends
            return
        order = np.argsort(starts, kind="stable")
        begins, finishes = starts[order], ends[order]
        sorted_sizes = sizes[order]
        before = np.cumsum(sorted_sizes) - sorted_sizes
        new = np.ones(len(order), bool)
        # a gap is no part of a group: places are hostile, and two records may be said to lie a terabyte apart
        new[1:] = (before[1:] // GROUP_BYTES != before[:-1] // GROUP_BYTES) | (
            begins[1:] > finishes[:-1] + np.uint64(GROUP_BYTES)
        )
        new[1:] |= begins[1:] // np.uint64(_WINDOW) != begins[:-1] // np.uint64(_WINDOW)
        firsts = np.flatnonzero(new)
        self.starts = begins[firsts]
        self.stops = np.maximum.reduceat(finishes, firsts)
        self._order = order.astype(np.uint32)
        self._firsts = np.append(firsts, len(order)).astype(np.uint32)
        self._group = np.empty(len(order), np.uint32)
        self._group[order] = np.cumsum(new, dtype=np.uint32) - np.uint32(1)

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the arrays take."""
        arrays = (
            self._starts,
            self._sizes,
            self._crcs,
            self._group,
            self._order,
            self._firsts,
            self.starts,
            self.stops,
        )
        return sum(array.nbytes for array in arrays if array is not None)

    def of(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The groups that hold stored rows."""
        return rows if self._group is None else self._group[rows].astype(np.int64)

    def place(self, row: int) -> tuple[int, int]:
        """(start, size) of a stored row's record in the file."""
        return int(self._starts[row]), int(self._sizes[row])

    def checksums(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
        """CRC32C of the records of stored rows."""
        return self._crcs[rows]

    def records(
        self, first: int, last: int
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        """(starts in the file, sizes, stored rows) of the records in groups first .. last."""
        if self._order is None or self._firsts is None:
            return self._starts[first : last + 1], self._sizes[first : last + 1], np.arange(first, last + 1)
        rows = self._order[self._firsts[first] : self._firsts[last + 1]].astype(np.int64)
        return self._starts[rows], self._sizes[rows], rows


NEARBY = 128
"""Groups before and behind one that may be fetched with it: records of GROUP_BYTES in a range of 4 MiB."""


class Numbered:
    """Numbers by the number of a group, of groups from `first` on: one, or those of a slice; 0: of any
    other."""

    def __init__(self, values: npt.NDArray[np.uint64], first: int) -> None:
        self._values, self._first = values, first

    @overload
    def __getitem__(self, at: int) -> np.uint64: ...
    @overload
    def __getitem__(self, at: slice) -> npt.NDArray[np.uint64]: ...
    def __getitem__(self, at: int | slice) -> np.uint64 | npt.NDArray[np.uint64]:
        if isinstance(at, slice):
            found: npt.NDArray[np.uint64] = self._values[at.start - self._first : at.stop - self._first]
            return found
        number = at - self._first
        single: np.uint64 = self._values[number] if 0 <= number < len(self._values) else np.uint64(0)
        return single


class Near(NamedTuple):
    """Starts and stops of groups that lie near one, by their numbers."""

    starts: Numbered
    stops: Numbered


class _Ends:
    """Starts or stops of single groups by their numbers, each read in the table of their places; `near` has
    several."""

    def __init__(self, groups: SingleGroups, sized: bool) -> None:
        self._groups = groups
        self._sized = sized

    def __getitem__(self, at: int) -> np.uint64:
        start, size = self._groups.place(at)
        single: np.uint64 = np.uint64(start + size if self._sized else start)
        return single


class SingleGroups:
    """The groups of a shard whose records are a group each, as `Groups` has them; a row is read when it is
    asked for.

    Args:
        table: table of the shard's places.
        file_bytes: size of the shard's file.
    """

    single = True

    def __init__(self, table: core.Table, file_bytes: int) -> None:
        self._table = table
        self._file_bytes = file_bytes
        self.starts, self.stops = _Ends(self, sized=False), _Ends(self, sized=True)

    def __len__(self) -> int:
        return len(self._table)

    def range(self, first: int, count: int) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
        """(starts, sizes) of rows first .. first+count-1. Raises DatasetError: the sidecar is damaged, or
        one lies outside of the file."""
        rows = self._table.read(first, count).view("<u4")
        starts = rows[:, 0].astype(np.uint64) | rows[:, 1].astype(np.uint64) << np.uint64(32)
        sizes = rows[:, 2].astype(np.uint64)
        if np.any(starts > np.uint64(self._file_bytes)) or np.any(
            sizes > np.uint64(self._file_bytes) - starts
        ):
            raise DatasetError("its sidecar names places outside of its shards")
        return starts, sizes

    def near(self, group: int) -> Near:
        """The groups that lie near one, read at once. Raises DatasetError as `range` does."""
        first = max(0, group - NEARBY)
        starts, sizes = self.range(first, min(len(self), group + NEARBY + 1) - first)
        return Near(Numbered(starts, first), Numbered(starts + sizes, first))

    def of(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The groups that hold stored rows."""
        return rows

    def place(self, row: int) -> tuple[int, int]:
        """(start, size) of a stored row's record in the file. Raises DatasetError as `range` does."""
        starts, sizes = self.range(int(row), 1)
        return int(starts[0]), int(sizes[0])

    def checksums(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
        """CRC32C of the records of stored rows. Raises DatasetError."""
        found: npt.NDArray[np.uint32] = self._table.take(np.asarray(rows, np.int64)).view("<u4")[:, 3].copy()
        return found

    def records(
        self, first: int, last: int
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        """(starts in the file, sizes, stored rows) of the records in groups first .. last. Raises
        DatasetError."""
        starts, sizes = self.range(first, last + 1 - first)
        return starts, sizes.astype(np.uint32), np.arange(first, last + 1)
