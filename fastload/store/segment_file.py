"""SegmentFile: a segment that is read in parts, where it lies; and values in it that are checked by
themselves.

NOTE [ segments: values that are checked by themselves ]
A segment's checksum says nothing of a part that is read alone. So a value begins with a CRC32C of the rest,
which covers the number of the sample: another sample's value, or a damaged one, is never taken for it.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from fastload._native import core
from fastload.errors import DatasetError
from fastload.store.entries import OFFSET_BYTES, Segment

_CRC = struct.Struct("<I")


@dataclass
class SegmentFile:
    """A segment in a file that is opened for each part, so that no process holds all of it.

    Attributes:
        segment: the segment.
        opened: opens the file for reading, and returns its descriptor. Raises OSError: it is not there.
        offset: first byte of the segment in the file.
        held: the segment, where no file has it.
    """

    segment: Segment
    opened: Callable[[], int]
    offset: int = 0
    held: bytes | None = field(default=None, repr=False)

    def read(self, start: int, size: int) -> bytes:
        """A part of the segment, or less where it ends before. Nothing is checked. Raises OSError: the file
        is not there."""
        size = min(size, self.segment.bytes - start)
        if self.held is not None:
            return self.held[start : start + size]
        descriptor = self.opened()
        try:
            return os.pread(descriptor, size, self.offset + start)
        finally:
            os.close(descriptor)


def checked_value(row: int, content: bytes) -> bytes:
    """The value of a stored sample. See NOTE [ segments: values that are checked by themselves ]."""
    return _CRC.pack(_crc(row, content)) + content


def checked_content(row: int, value: bytes) -> bytes | None:
    """The content of a stored sample's value; None: it is damaged."""
    content = value[_CRC.size :]
    return content if len(value) >= _CRC.size and _CRC.unpack_from(value)[0] == _crc(row, content) else None


def _crc(row: int, content: bytes) -> int:
    return core.crc32c(f"{row} ".encode() + content)


def values_at(file: SegmentFile, stored: int, first: int, last: int, most: int) -> list[bytes | None]:
    """The contents of the values of stored samples first .. last, of so many; None: one that is damaged, or
    has more than `most` bytes. Raises OSError: the segment is not there."""
    head = file.read(first * OFFSET_BYTES, (last - first + 2) * OFFSET_BYTES)
    ends = struct.unpack(f"<{len(head) // OFFSET_BYTES}Q", head[: len(head) // OFFSET_BYTES * OFFSET_BYTES])
    begin, room = (stored + 1) * OFFSET_BYTES, _CRC.size + most
    pairs = list(pairwise(ends))
    if len(pairs) <= last - first or not all(start <= stop <= start + room for start, stop in pairs):
        return [None] * (last - first + 1)
    data = file.read(begin + ends[0], ends[-1] - ends[0]) if begin + ends[-1] <= file.segment.bytes else b""
    return [
        checked_content(row, data[start - ends[0] : stop - ends[0]])
        for row, (start, stop) in enumerate(pairs, first)
    ]


def value_at(file: SegmentFile, stored: int, row: int, most: int) -> bytes:
    """The content of one value, as `values_at`. Raises DatasetError: it is damaged; OSError."""
    (found,) = values_at(file, stored, row, row, most)
    if found is None:
        raise DatasetError(f"value {row} of {file.segment.file} is damaged: copy the dataset again")
    return found
