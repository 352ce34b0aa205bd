"""Files of a cache folder that other users may be able to write to: opened without links, and only where they are this user's.

NOTE [ cache: whom it trusts ]
A cache may lie in a folder where others write: below /tmp, or one that a group shares. What is in it is compared with checksums only, which
are no protection against a plant. So
1. the cache folder belongs to this user or to root, and so does a link to it;
2. no other link is followed: a dataset's folder is opened first, and its files through its descriptor;
3. an entry belongs to this user or to root. Where a folder is closed to all but its owner and its group, they decide who shares it, and
   its entries may be any of theirs;
4. a file that everybody may write is refused, and none is made;
5. a new file has a name that did not exist: O_EXCL, and a random name where it is renamed later.
What is refused counts as missing where it is read, and makes the cache one that cannot be written where it is in the way.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fastload.common.files import open_entry, open_folder

TEMPORARY = re.compile(r"tmp-[0-9a-f]{16}")
"""Names of files before they get their own."""


@contextmanager
def root_folder(path: Path) -> Iterator[int]:
    """The descriptor of a cache folder. Raises OSError."""
    descriptor = open_folder(path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def dataset_folder(path: Path) -> Iterator[int]:
    """The descriptor of a dataset's folder in a cache folder. Raises OSError."""
    descriptor = open_folder(path, os.stat(path.parent))
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_in_root(path: Path, flags: int) -> int:
    """Opens a file of a cache folder itself. Raises OSError."""
    with root_folder(path.parent) as folder:
        return open_entry(folder, path.name, flags)


def open_in_dataset(path: Path, flags: int) -> int:
    """Opens a file of a dataset's folder. Raises OSError."""
    with dataset_folder(path.parent) as folder:
        return open_entry(folder, path.name, flags)


def replace_file(folder: int, name: str, data: bytes) -> None:
    """Writes a file of an open folder by a rename over the old one. Under the cache folder's lock. Raises OSError."""
    for left in os.listdir(folder):  # of a process that was killed
        if TEMPORARY.fullmatch(left):
            with suppress(OSError):
                os.unlink(left, dir_fd=folder)
    temporary = f"tmp-{secrets.token_hex(8)}"
    with open(open_entry(folder, temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
        file.write(data)
    os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
