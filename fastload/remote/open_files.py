"""OpenFiles: files of a cache that a process has open for writing."""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path

from fastload.remote.locks import SelfClosing
from fastload.remote.shared_files import open_in_dataset

_MOST = 64


class OpenFiles(SelfClosing):
    """Files that are open for writing, the last ones used. For one thread at a time."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._files: OrderedDict[tuple[int, int], int] = OrderedDict()  # by identity: a path's hash is computed anew each time
        self._closed = False

    def of(self, path: Path, identity: tuple[int, int]) -> int:
        """The descriptor of a file, valid until the next call. Raises OSError: ESTALE where it is not the one of that (device, inode)."""
        if self._closed or self._pid != os.getpid():
            raise OSError(errno.EBADF, f"{path} was closed")
        found = self._files.pop(identity, -1)
        if found < 0:
            while len(self._files) >= _MOST:
                os.close(self._files.popitem(last=False)[1])
            found = open_in_dataset(path, os.O_RDWR)
            if identity_of(os.fstat(found)) != identity:
                os.close(found)
                raise OSError(errno.ESTALE, f"{path} was replaced")
        self._files[identity] = found
        return found

    def close(self) -> None:
        """Closes all, for good; idempotent. In a forked child too, whose copies they are."""
        self._closed = True
        while self._files:
            with suppress(KeyError):
                os.close(self._files.popitem()[1])


def identity_of(found: os.stat_result) -> tuple[int, int]:
    """(device, inode) of a file."""
    return found.st_dev, found.st_ino
