"""Locks of a cache folder: held by open files, so that a process that is killed lets go of them, and nobody cleans up after it."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FLOCK = struct.Struct("hhqqi4x")
"""struct flock of 64-bit Linux: type, whence, start, length, pid."""
_BUSY = (errno.EAGAIN, errno.EACCES)
_open: weakref.WeakSet[LockFile] = weakref.WeakSet()


class LockFile:
    """An open file that locks are taken on.

    1. Locks belong to the open file: two LockFiles exclude each other, in one process too. A forked child that kept the parent's
       descriptor would keep its locks after the parent's death, so it is closed there.
    2. On a file that may not be written, every lock is refused.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1
        self._pid = 0

    def _descriptor(self) -> int:
        if self._pid != os.getpid():
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            self._pid = os.getpid()
            _open.add(self)
        return self._file

    def shared(self) -> bool:
        """Takes the whole file's shared lock without a wait; False: somebody has the exclusive one."""
        return self._flock(fcntl.LOCK_SH)

    def exclusive(self) -> bool:
        """Takes the whole file's exclusive lock without a wait; a shared one that is held becomes it, or stays."""
        return self._flock(fcntl.LOCK_EX)

    def _flock(self, kind: int) -> bool:
        try:
            fcntl.flock(self._descriptor(), kind | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _BUSY:
                return False
            raise
        return True

    @contextmanager
    def held(self) -> Iterator[None]:
        """Waits for the exclusive lock, and holds it in the block. Those who hold it do so for a moment only."""
        fcntl.flock(self._descriptor(), fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._descriptor(), fcntl.LOCK_UN)

    def claim(self, start: int, length: int) -> bool:
        """Takes the lock of a range of bytes, which need not exist; False: another LockFile has some of it."""
        try:
            fcntl.fcntl(self._descriptor(), fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, length, 0))
        except OSError as error:
            if error.errno in _BUSY:
                return False
            raise
        return True

    def disclaim(self, start: int, length: int) -> None:
        """Lets go of the lock of a range."""
        fcntl.fcntl(self._descriptor(), fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, start, length, 0))

    def close(self) -> None:
        """Lets go of all locks; idempotent."""
        if self._pid == os.getpid():
            os.close(self._file)
        self._pid, self._file = 0, -1


def _after_fork() -> None:
    for lock in list(_open):
        if lock._file >= 0:
            os.close(lock._file)
        lock._pid, lock._file = 0, -1
    _open.clear()


os.register_at_fork(after_in_child=_after_fork)
