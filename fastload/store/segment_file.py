"""SegmentFile: a segment that is read in parts, where it lies."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from fastload.store.entries import Segment


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
