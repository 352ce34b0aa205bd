"""Lock on a dataset's folder, so that it has one writer at a time. It ends with the process, however that ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from fastload.errors import PackError


def lock_folder(folder: Path) -> int:
    """Opens and locks a folder; the lock holds until the returned descriptor is closed.

    Raises:
        OSError: the folder cannot be opened.
        PackError: another process, or another writer in this one, holds the lock.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise PackError(f"another process is writing to {folder}; wait until it is done") from None
    except OSError:
        pass  # some network file systems do not support locks
    return descriptor


def claim_folder(folder: Path) -> int:
    """Creates a folder to write a dataset to, if it does not exist, and locks it as `lock_folder` does.

    Raises:
        PackError: there is a file, the folder cannot be made, or another writer holds the lock.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return lock_folder(folder)
    except FileExistsError:
        raise PackError(f"{folder} is a file; choose another OUT") from None
    except OSError as error:
        raise PackError(f"cannot make the folder {folder}: {error.strerror}") from None
