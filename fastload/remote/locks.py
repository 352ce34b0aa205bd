"""Locks of a cache folder: held by open files, so that a process that is killed lets go of them, and nobody cleans up after it."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

HELD_S = 30.0
"""Seconds that a lock which others hold for a moment is waited for; after that its holder counts as stopped."""
_FLOCK = struct.Struct("hhqqi4x")
"""struct flock of 64-bit Linux: type, whence, start, length, pid."""
_BUSY = (errno.EAGAIN, errno.EACCES)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.0002, 0.02
_open: weakref.WeakSet[LockFile] = weakref.WeakSet()


class SelfClosing:
    """Something that its last reference closes, if nothing did before; at the end of the program it is left alone.

    The garbage collector may do so while another thread closes it: a descriptor is taken out by one step that only one thread can take.
    """

    def close(self) -> None:
        """Lets go of what it has; idempotent, also for two threads at once."""
        raise NotImplementedError

    def __del__(self, ends: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ends():
            self.close()


class LockFile(SelfClosing):
    """An open file that locks are taken on.

    1. Locks belong to the open file: two LockFiles exclude each other, in one process too. A forked child that kept the parent's
       descriptor would keep its locks after the parent's death, so it is closed there.
    2. Any thread may use it. `held` excludes the threads of this process from each other, too.
    3. On a file that may not be written, every lock is refused. After close(), every call raises OSError (EBADF).
    4. The file is closed with the last reference, if not before.
    """

    def __init__(self, path: Path, open_file: Callable[[Path, int], int]) -> None:
        """Notes the path; `open_file` opens it when the first lock is taken: `fastload.remote.shared_files` has them."""
        self.path = path
        self._open_file = open_file
        self._file: list[int] = []  # the descriptor, once it is open
        self._closed = False
        self._threads = threading.Lock()  # held in `held`
        _open.add(self)

    def _descriptor(self) -> int:
        if self._closed:
            raise OSError(errno.EBADF, f"{self.path} was closed")
        try:
            return self._file[0]
        except IndexError:
            self._file.append(self._open_file(self.path, os.O_RDWR | os.O_CREAT))
            return self._file[0]

    def shared(self) -> bool:
        """Takes the whole file's shared lock without a wait; False: somebody has the exclusive one."""
        return self._flock(fcntl.LOCK_SH)

    def exclusive(self) -> bool:
        """Takes the whole file's exclusive lock without a wait; a shared one that is held becomes it, or stays."""
        return self._flock(fcntl.LOCK_EX)

    def _flock(self, kind: int) -> bool:
        file = self._descriptor()  # EACCES means here that it may not be opened, and below that it is locked
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _BUSY:
                return False
            raise
        return True

    @contextmanager
    def held(self) -> Iterator[None]:
        """Waits for the exclusive lock, and holds it in the block. Those who hold it do so for a moment only.

        Raises:
            OSError: EAGAIN: somebody has held it for HELD_S; EBADF: the file was closed; or it cannot be opened.
        """
        end = time.monotonic() + HELD_S
        if not self._threads.acquire(timeout=HELD_S):
            raise OSError(errno.EAGAIN, f"{self.path} is locked by another thread")
        try:
            pause = _FIRST_PAUSE_S
            while not self._flock(fcntl.LOCK_EX):
                if time.monotonic() > end:
                    raise OSError(errno.EAGAIN, f"{self.path} is locked by another process")
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)
            try:
                yield
            finally:
                with suppress(OSError):  # the block may have closed it
                    fcntl.flock(self._descriptor(), fcntl.LOCK_UN)
        finally:
            self._threads.release()

    def claim(self, start: int, length: int) -> bool:
        """Takes the lock of a range of bytes, which need not exist; False: another LockFile has some of it."""
        file = self._descriptor()
        try:
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, length, 0))
        except OSError as error:
            if error.errno in _BUSY:
                return False
            raise
        return True

    def disclaim(self, start: int, length: int) -> None:
        """Lets go of the lock of a range."""
        fcntl.fcntl(self._descriptor(), fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, start, length, 0))

    def resize(self, size: int) -> None:
        """Makes the file have so many bytes. Raises OSError."""
        os.ftruncate(self._descriptor(), size)

    def close(self) -> None:
        """Lets go of all locks, for good; idempotent."""
        self._closed = True
        close_all(self._file)


def close_all(files: list[int]) -> None:
    """Closes descriptors and takes them out of a list."""
    while files:
        with suppress(IndexError):
            os.close(files.pop())


def _after_fork() -> None:
    for lock in list(_open):
        close_all(lock._file)
        lock._threads = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
