"""Scratch folders: temporary folders that do not outlive their process for long, however it ends."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def scratch_folder(kind: str, below: str | os.PathLike[str] | None = None) -> Iterator[Path]:
    """A new folder below a folder, by default the system's one for temporary files; it is removed at the end of the block.

    The process holds a lock on it. Where the process was killed, the lock is gone and the folder stays: the next call for the same `kind`
    removes it, if it belongs to the same user.

    Raises:
        OSError: the folder cannot be made.
    """
    start = f"fastload-{kind}-"
    parent = Path(tempfile.gettempdir() if below is None else below)
    _remove_abandoned(parent, start)
    folder, lock = _made(parent, start)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _made(parent: Path, start: str) -> tuple[Path, int]:
    """A new folder, and the descriptor that holds its lock. Before it is locked, another process may take it for abandoned."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=start, dir=parent))
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        with suppress(OSError):  # a file system without locks, where nothing is ever taken for abandoned
            fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            return folder, lock
        os.close(lock)


def _remove_abandoned(parent: Path, start: str) -> None:
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(start):
                _remove_if_abandoned(Path(entry.path))


def _remove_if_abandoned(folder: Path) -> None:
    """Removes a folder of this user's that no process has locked."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        status = os.fstat(descriptor)
        if status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    except OSError:  # it is locked, or its file system knows no locks
        pass
    finally:
        os.close(descriptor)
