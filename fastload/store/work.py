"""Names of the files that fastload writes into a dataset's folder, and the folders in which appends are packed there."""

from __future__ import annotations

import os
from pathlib import Path

from fastload.errors import PackError
from fastload.store.entries import SHARD_NAME, SIDE_NAME
from fastload.store.manifest import JOURNAL_NAME, MANIFEST_NAME, VERSION_NAME
from fastload.store.sample_log import LOG_NAME

WORK_NAME = "append.tmp"
"""The folder, inside a dataset's, into which the source of an append is packed."""
DONE_NAME = "append.old"
"""Its name when its samples were added: it is only to be removed."""

_OURS = frozenset({LOG_NAME}.union(name + end for name in (MANIFEST_NAME, JOURNAL_NAME) for end in ("", ".tmp")))


def is_packed_file(name: str) -> bool:
    """Whether a file has the name of one that fastload writes into a dataset's folder."""
    if VERSION_NAME.fullmatch(name.removesuffix(".tmp")):
        return True
    return name in _OURS or any(pattern.fullmatch(name) for pattern in (SHARD_NAME, SIDE_NAME))


def remove_appends(dataset: Path) -> None:
    """Removes what appends that were stopped have left in a dataset's folder. Raises PackError as `remove_work` does."""
    for name in (WORK_NAME, DONE_NAME):
        remove_work(dataset / name)


def remove_work(folder: Path) -> None:
    """Removes a folder in which an append was packed, where there is one.

    Raises:
        PackError: it holds other files, or cannot be removed.
    """
    try:
        if folder.is_symlink():
            folder.unlink()
        if not folder.is_dir():
            return
        for name in sorted(os.listdir(folder), key=lambda name: (name != MANIFEST_NAME, name)):
            if is_packed_file(name):
                (folder / name).unlink()
        folder.rmdir()
    except OSError as error:
        raise PackError(f"cannot remove {folder}, which an append left: {error.strerror}; move it elsewhere") from None
