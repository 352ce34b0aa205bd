"""Segments: the parts of files beside the shards, read into memory and checked before use.

NOTE [ segments: what is checked when ]
  rows           which samples of a shard count: read and checked when the dataset is opened, since nothing can be read without them.
  fixed values   rows of an int, float or array field that was added: read and checked with their column, as a shard's own chunk is.
  other values   text, JSON and bytes that were added: a shard's segment is read whole and checked on first use, and kept.
What is used is the copy that was checked; no file is mapped.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.common.files import open_regular
from fastload.errors import DatasetError
from fastload.store.entries import OFFSET_BYTES, Segment, file_path

SegmentReader = Callable[[Segment], npt.NDArray[np.uint8]]
"""What gives the checked bytes of a segment, as `read_segment` does; raises DatasetError."""

_AGAIN = "copy the dataset again; `fastload verify` checks the rest"


def read_segment(dataset: Path, segment: Segment, into: memoryview | None = None) -> npt.NDArray[np.uint8]:
    """The bytes of a segment, checked.

    Args:
        dataset: the dataset's folder.
        segment: the part of a file.
        into: a writable buffer of exactly its size; by default one is made, once the file is known to be long enough.

    Raises:
        DatasetError: the file is missing, too short, or not what was written.
    """
    path = file_path(dataset, segment.folder, segment.file)
    try:
        descriptor, size = open_regular(path)
        try:
            if size < segment.offset + segment.bytes:
                raise DatasetError(f"{path} has {size} bytes, the manifest names {segment.offset + segment.bytes}: {_AGAIN}")
            data = np.empty(segment.bytes, np.uint8) if into is None else np.frombuffer(into, np.uint8)
            view, at = data.data, 0
            while at < segment.bytes:
                read = os.preadv(descriptor, [view[at:]], segment.offset + at)
                if not read:
                    raise DatasetError(f"{path} was cut while it was read: {_AGAIN}")
                at += read
        finally:
            os.close(descriptor)
    except DatasetError:
        raise
    except OSError as error:
        raise DatasetError(f"cannot read {path}: {error.strerror}; {_AGAIN}") from None
    if core.crc32c(data) != segment.crc32c:
        raise DatasetError(f"{path} is damaged (its checksum does not match): {_AGAIN}")
    return data


def rows_of(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """The numbers of the stored samples that count, as their segment has them: `core.Store.set_rows` checks their order."""
    rows = data.view("<u4").astype(np.uint32, copy=False)
    rows.setflags(write=False)
    return rows


def packed_values(values: Sequence[bytes]) -> bytes:
    """A segment of values of any length, as `AddedValues` reads it."""
    ends = np.zeros(len(values) + 1, "<u8")
    np.cumsum(np.fromiter(map(len, values), np.uint64, len(values)), out=ends[1:])
    return b"".join((ends.tobytes(), *values))


class AddedValues:
    """Text, JSON and bytes that were added to one shard, by stored sample. See NOTE [ segments: what is checked when ]."""

    def __init__(self, data: npt.NDArray[np.uint8], stored: int, what: str) -> None:
        """Takes a checked segment of `stored` values; `what` names it.

        Raises:
            DatasetError: its offsets do not hold.
        """
        head = (stored + 1) * OFFSET_BYTES
        offsets = data[:head].view("<u8")
        self._content = data[head:].data
        if offsets[0] != 0 or offsets[-1] != len(self._content) or np.any(offsets[1:] < offsets[:-1]):
            raise DatasetError(f"{what} does not hold (its offsets are not ascending): {_AGAIN}")
        self._offsets = offsets

    def __getitem__(self, row: int) -> bytes:
        return bytes(self._content[int(self._offsets[row]) : int(self._offsets[row + 1])])


class AddedFields:
    """The values that were added to a dataset's shards, read on first use and kept.

    Any thread may ask, and a forked child keeps what was read before: two threads that ask at once both read, and one result is kept.
    """

    def __init__(self, read: SegmentReader) -> None:
        self._read_segment = read
        self._read: dict[tuple[Segment, int], AddedValues] = {}

    def values(self, segment: Segment, stored: int) -> AddedValues:
        """The values in a segment, read on first use. Raises as the reader that was given does."""
        found = self._read.get((segment, stored))
        if found is None:
            values = AddedValues(self._read_segment(segment), stored, segment.file)
            found = self._read.setdefault((segment, stored), values)
        return found


def damaged_column(name: str, file: str) -> DatasetError:
    """The exception for a column of a shard whose bytes are not those that were packed."""
    return DatasetError(
        f"column {name} in {file} is damaged (its bytes are not those that were packed): "
        "copy the shard again or pack again; `fastload verify` checks the rest"
    )
