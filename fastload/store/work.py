"""Names of the files that fastload writes into a dataset's folder, and the folders in which appends are packed there."""

from __future__ import annotations

import os
import re
from pathlib import Path

from fastload.errors import PackError
from fastload.store.entries import SHARD_NAME, SIDE_NAME
from fastload.store.manifest import JOURNAL_NAME, LOST, MANIFEST_NAME, VERSION_NAME, can_go_on, is_pull, sync_folder
from fastload.store.sample_log import LOG_NAME

WORK_NAME = "append.tmp"
"""The folder, inside a dataset's, into which the source of an append is packed."""
DONE_NAME = "append.old"
"""Its name when its samples were added: it is only to be removed."""
PART_END = ".part"
"""End of the name of a data file that is being downloaded."""

_OF_TASKS = re.compile(r"(shard-[0-9]{5,9}\.(lmdb|done|section)|progress\.json)(\.[0-9a-f]{16}\.part)?")
"""Names of what the tasks and the driver of a pack on a cluster write, and of what is not complete of it."""

_OURS = frozenset({LOG_NAME}.union(name + end for name in (MANIFEST_NAME, JOURNAL_NAME) for end in ("", ".tmp")))


def is_packed_file(name: str) -> bool:
    """Whether a file has the name of one that fastload writes into a dataset's folder."""
    if VERSION_NAME.fullmatch(name.removesuffix(".tmp")):
        return True
    return (
        name in _OURS
        or _OF_TASKS.fullmatch(name) is not None
        or any(pattern.fullmatch(name.removesuffix(PART_END)) for pattern in (SHARD_NAME, SIDE_NAME))
    )


def check_free(folder: Path, title: str, *, resume: bool, overwrite: bool) -> None:
    """Checks that a dataset may be made in a folder; `title` names it in messages.

    Raises:
        PackError: the folder holds other files only, or a dataset or parts of one where neither is to be resumed or overwritten.
    """
    names = sorted(os.listdir(folder))
    ours = [name for name in names if is_packed_file(name)]
    if names and not ours:
        raise PackError(f"{folder} exists and holds other files ({names[0]}, ...), which are left alone; choose another OUT")
    if resume or overwrite or all(name.endswith((".tmp", PART_END)) for name in ours):  # a kill in the first write leaves no more
        return
    if MANIFEST_NAME in ours:
        raise PackError(f"{title} already holds a packed dataset; --overwrite replaces it, or choose another OUT")
    if not can_go_on(folder):
        raise PackError(f"{title} {LOST}; --overwrite packs it again")
    if is_pull(folder):
        raise PackError(f"{title} holds an unfinished download: `fastload pull` goes on with it, --overwrite replaces it")
    raise PackError(f"{title} holds an unfinished pack: --resume finishes it, --overwrite starts again")


def clear(folder: Path) -> None:
    """Removes a dataset's files: the manifest first, so that there never is a manifest without its shards.

    Raises:
        OSError: a file cannot be removed.
        PackError: as `remove_work`.
    """
    names = [name for name in os.listdir(folder) if is_packed_file(name)]
    for name in sorted(names, key=lambda name: (name != MANIFEST_NAME, name)):
        (folder / name).unlink()
    remove_appends(folder)
    sync_folder(folder)


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
