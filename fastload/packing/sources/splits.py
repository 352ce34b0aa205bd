"""Splits of a dataset: the parts of which a pack takes one, and the folders they lie in."""

from __future__ import annotations

import os
from collections.abc import Iterable

from fastload.errors import PackError
from fastload.packing.folders import is_folder


def chosen_split(title: str, splits: Iterable[str], wanted: str | None, where: str) -> str:
    """The split that the user named, or the only one.

    Raises:
        PackError: there is no such split, or there are several to choose from; the message names them.
    """
    known = sorted(splits)
    if wanted is None and len(known) == 1:
        return known[0]
    if wanted in known:
        return str(wanted)
    names = f"{', '.join(known[:20]) or 'none'} ({where})"
    if wanted is not None:
        raise PackError(f"{title}: there is no split {wanted!r}; there are: {names}")
    raise PackError(f"{title}: name one of its splits with --split (split= in Python): {names}")


def subfolders(folder: str) -> set[str]:
    """Names of the folders in a folder; empty if it is none."""
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries if is_folder(entry)}
    except OSError:
        return set()


def files_in(folder: str, *endings: str) -> list[str]:
    """Sorted names of the files in a folder that end so, in any case; empty if it is no folder."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.name.lower().endswith(endings) and not is_folder(entry))
    except OSError:
        return []
