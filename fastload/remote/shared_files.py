"""Files of a cache folder to which other users may have access: opened without following links, and only if
they are this user's.

NOTE [ cache: whom it trusts ]
A cache may lie in a folder where others write: below /tmp, or one that a group shares. Its files are compared
with checksums only, which do not protect against planted files. Therefore:
1. the cache folder belongs to this user or to root, and so does a link to it, whenever it is opened;
2. no other link is followed: the cache folder is opened first, a dataset's folder through its descriptor, and
   files through that one's. What is made, renamed or removed is named so too, so that a folder which takes
   another's name meanwhile is left alone;
3. an entry belongs to this user or to root. If only its owner and its group may enter a folder, they decide
   who shares it, and its entries may be any of theirs;
4. a file that everybody may write is refused, and none is made;
5. a new file has a name that did not exist: O_EXCL, and a random name if it is renamed later.
A refused file counts as missing when it is read. Where it is in the way of a write, the cache counts as one
that cannot be written.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fastload.common.files import check_own, open_entry, open_folder

TEMPORARY = re.compile(r"tmp-[0-9a-f]{16}")
"""Temporary names of files that are renamed once they are written."""


_owners: dict[Path, int] = {}
"""Owner of each cache folder that `trust` took, which on some file systems is neither this user nor root."""


def trust(path: Path) -> None:
    """Takes a cache folder if it belongs to this user or to root, and so does a link to it. Raises
    OSError: EPERM if it does not."""
    check_own(path)
    _owners[path] = os.stat(path).st_uid


@contextmanager
def root_folder(path: Path) -> Iterator[int]:
    """Context manager: the descriptor of a cache folder. Raises OSError, also if the path leads to another
    user's folder by now."""
    descriptor = open_folder(path)
    try:
        owner = os.fstat(descriptor).st_uid
        if owner not in (os.geteuid(), 0) and owner != _owners.get(path):
            raise OSError(errno.EPERM, f"it belongs to another user (uid {owner})", os.fspath(path))
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def dataset_folder(path: Path) -> Iterator[int]:
    """Context manager: the descriptor of a dataset's folder in a cache folder. Raises OSError."""
    with root_folder(path.parent) as root:
        descriptor = open_folder(path.name, os.fstat(root), root)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def make_dataset_folder(path: Path) -> None:
    """Makes a dataset's folder, if there is none. Raises OSError."""
    with root_folder(path.parent) as root, suppress(FileExistsError):
        os.mkdir(path.name, 0o775, dir_fd=root)


def remove_dataset_folder(path: Path) -> None:
    """Removes a dataset's folder. Raises OSError, also if it is not empty."""
    with root_folder(path.parent) as root:
        os.rmdir(path.name, dir_fd=root)


def remove_in_dataset(path: Path) -> bool:
    """Removes a file of a dataset's folder. Returns True if there was one. Raises OSError."""
    with dataset_folder(path.parent) as folder:
        try:
            os.unlink(path.name, dir_fd=folder)
        except FileNotFoundError:
            return False
        return True


def open_in_root(path: Path, flags: int) -> int:
    """Opens a file that lies in the cache folder itself. Raises OSError."""
    with root_folder(path.parent) as folder:
        return open_entry(folder, path.name, flags)


def open_in_dataset(path: Path, flags: int) -> int:
    """Opens a file of a dataset's folder. Raises OSError."""
    with dataset_folder(path.parent) as folder:
        return open_entry(folder, path.name, flags)


def replace_file(folder: int, name: str, data: bytes) -> None:
    """Writes a file of an open folder, and renames it over the old one. Call it under the cache folder's
    lock. Raises OSError."""
    for left in os.listdir(folder):  # left by a process that was killed
        if TEMPORARY.fullmatch(left):
            with suppress(OSError):
                os.unlink(left, dir_fd=folder)
    temporary = f"tmp-{secrets.token_hex(8)}"
    with open(open_entry(folder, temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
        file.write(data)
    os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
