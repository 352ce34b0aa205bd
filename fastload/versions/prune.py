"""prune: gives up old versions of a dataset, and removes the files that only they have."""

from __future__ import annotations

import os
from dataclasses import dataclass

from fastload.errors import ArgumentError
from fastload.store import DatasetChange
from fastload.store.progress import remove_appends


@dataclass(frozen=True, slots=True)
class PruneSummary:
    """Result of `prune`.

    Attributes:
        versions: numbers of the versions that were given up.
        bytes: size of the files that were removed.
    """

    versions: tuple[int, ...]
    bytes: int


def prune(path: str | os.PathLike[str], *, keep: int = 1) -> PruneSummary:
    """Gives up all versions of a dataset but the newest, and removes the files that no remaining version names.

    Only files in the dataset's own folder, with names that fastload gives, are removed; an append that was stopped is given up too.
    Processes that have an old version open keep what they have open; they cannot open it again, and neither can processes that are
    forked or spawned from them. A dataset made by `concat` that refers to files that are removed here loses them.

    Args:
        path: the dataset's directory.
        keep: how many versions remain, the latest among them.

    Raises:
        ArgumentError: keep is less than 1.
        DatasetError: there is no finished dataset, or the manifest of a version that remains is damaged.
        PackError: a file cannot be removed, or another process is writing to the dataset.
    """
    if isinstance(keep, bool) or not isinstance(keep, int) or keep < 1:
        raise ArgumentError(f"keep={keep!r} is no whole number of versions from 1 on; the latest always remains")
    with DatasetChange(path, "run `fastload prune` again", tidy=False) as change:
        remove_appends(change.path)
        versions, freed = change.prune(keep)
    return PruneSummary(tuple(versions), freed)
