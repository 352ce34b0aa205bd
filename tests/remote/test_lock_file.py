"""LockFile: the locks with which threads and processes share a cache folder."""

from __future__ import annotations

import os
from pathlib import Path

from fastload.remote.cache_folder import LockFile


def opened(path: Path, flags: int) -> int:
    return os.open(path, flags, 0o600)


def test_a_forked_child_has_locks_of_its_own(tmp_path: Path) -> None:
    """A lock that a thread held at the fork is free in the child once the parent lets go of it."""
    lock = LockFile(tmp_path / "lock", opened)
    reader, writer = os.pipe()
    with lock.held():
        child = os.fork()
        if child == 0:
            os.close(writer)
            os.read(reader, 1)  # until the parent has let go
            try:
                with lock.held():
                    os._exit(0)
            finally:
                os._exit(1)
    os.close(writer)
    _, status = os.waitpid(child, 0)
    os.close(reader)
    lock.close()
    assert os.waitstatus_to_exitcode(status) == 0
