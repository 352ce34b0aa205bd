"""Groups: runs of a shard's records that are fetched, checked and marked as cached together.

A record of GROUP_BYTES or more is a group of its own, so that nothing is fetched that was not asked for. Smaller ones go with their
neighbours: a request for each would cost more than the bytes beside it, and those that share a page of the disk cannot be counted alone.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fastload.store.checked import Bad

GROUP_BYTES = 32 << 10
"""Bytes of records that make one group; part of the names of state files, whose entries it defines."""
_WINDOW = 8 * GROUP_BYTES
"""Bytes of the file within which the records of a group begin, however little they are and however far apart."""


class Groups:
    """The groups of one shard, numbered in the order of the file.

    Attributes:
        starts, stops: of each group in the file, bytes.
    """

    def __init__(self, places: npt.NDArray[np.uint32], file_bytes: int) -> None:
        """Takes the places of a shard's stored samples: three numbers for each, as `core.Store.places` gives them, and the file's size.

        Raises:
            Bad: there are none, or one lies outside of the file.
        """
        low, high, lengths = places.reshape(-1, 3).T
        starts = low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)
        sizes = lengths.astype(np.uint64)
        if not len(starts) or np.any(starts > np.uint64(file_bytes)) or np.any(sizes > np.uint64(file_bytes) - starts):
            raise Bad("its sidecar names places outside of its shards")
        self._group: npt.NDArray[np.uint32] | None = None  # by row; None: row i is group i
        self._order: npt.NDArray[np.uint32] | None = None  # rows by place
        self._firsts: npt.NDArray[np.uint32] | None = None  # of each group, into _order; one more at the end
        ends = starts + sizes
        self._starts, self._sizes = starts, sizes.astype(np.uint32)  # of each row
        if sizes.min() >= GROUP_BYTES and np.all(starts[1:] >= ends[:-1]):
            self.starts, self.stops = starts, ends
            return
        order = np.argsort(starts, kind="stable")
        begins, finishes = starts[order], ends[order]
        sorted_sizes = sizes[order]
        before = np.cumsum(sorted_sizes) - sorted_sizes
        new = np.ones(len(order), bool)
        # a gap is no part of a group: places are hostile, and two records may be said to lie a terabyte apart
        new[1:] = (before[1:] // GROUP_BYTES != before[:-1] // GROUP_BYTES) | (begins[1:] > finishes[:-1] + np.uint64(GROUP_BYTES))
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
    def single(self) -> bool:
        """Whether each group is one record, the one of its number, and nothing else."""
        return self._order is None

    def of(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The groups of stored rows."""
        return rows if self._group is None else self._group[rows].astype(np.int64)

    def place(self, row: int) -> tuple[int, int]:
        """(start, size) of a stored row's record in the file."""
        return int(self._starts[row]), int(self._sizes[row])

    def records(self, first: int, last: int) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        """Starts in the file, and sizes, of the records of groups first .. last, and their stored rows."""
        if self._order is None or self._firsts is None:
            return self._starts[first : last + 1], self._sizes[first : last + 1], np.arange(first, last + 1)
        rows = self._order[self._firsts[first] : self._firsts[last + 1]].astype(np.int64)
        return self._starts[rows], self._sizes[rows], rows
