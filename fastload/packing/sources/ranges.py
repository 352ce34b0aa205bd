"""Ranges of bytes in the files of one source, read at any position by any thread."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence

from fastload.common.files import FILE_BYTES, open_regular
from fastload.errors import PackError

_OPEN_MOST = 128
"""Files that stay open: below the usual limit of a process, 1,024, also beside other sources."""


class _Descriptor:
    """An open file, closed when the last thread that reads it lets go of it."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


class FileRanges:
    """The files of a source, opened when they are first read. Any thread may call it."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = paths
        self._open: OrderedDict[int, _Descriptor] = OrderedDict()
        self._lock = threading.Lock()

    def size(self, number: int) -> int:
        """Size in bytes of a file.

        Raises:
            PackError: it cannot be opened, or is not a regular file.
        """
        try:
            file = self._descriptor(number)  # held: it is closed with its last reference
            return os.fstat(file.number).st_size
        except OSError as error:
            raise PackError(f"{self.paths[number]}: cannot be read: {error.strerror}") from error

    def read(self, number: int, offset: int, size: int) -> bytes:
        """Exactly `size` bytes of a file.

        Raises:
            PackError: the file ends before, or the size is over the limit.
            OSError: the file cannot be read.
        """
        if size > FILE_BYTES:
            raise PackError(f"{self.paths[number]}: {size:,} bytes at {offset:,} are more than the limit of {FILE_BYTES:,}")
        file = self._descriptor(number)
        data = os.pread(file.number, size, offset)
        while len(data) < size:
            more = os.pread(file.number, size - len(data), offset + len(data))
            if not more:
                raise PackError(f"{self.paths[number]}: it ends before byte {offset + size:,}, to which a sample reaches; copy it again")
            data += more
        return data

    def _descriptor(self, number: int) -> _Descriptor:
        with self._lock:
            found = self._open.get(number)
            if found is None:
                found = self._open[number] = _Descriptor(open_regular(self.paths[number])[0])
                if len(self._open) > _OPEN_MOST:
                    self._open.popitem(last=False)
            else:
                self._open.move_to_end(number)
        return found
