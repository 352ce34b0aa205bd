"""drop: samples taken out of a dataset without writing the others anew.

prune: gives up old versions of a dataset, and removes the files that only they have.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fastload.common.positions import as_positions
from fastload.dataset.query import Columns, ConditionEngine
from fastload.errors import ArgumentError, PackError
from fastload.store import DatasetChange, DatasetReader, Manifest, numbered
from fastload.store.class_counts import KEY
from fastload.store.progress import remove_appends


@dataclass(frozen=True, slots=True)
class PruneSummary:
    """Result of `prune`.

    Attributes:
        versions: versions that were given up.
        bytes: size of the removed files.
    """

    versions: tuple[int, ...]
    bytes: int


def prune(path: str | os.PathLike[str], *, keep: int = 1) -> PruneSummary:
    """Gives up all versions of a dataset but the newest, and a stopped append, and removes the files that
    only they name.

    Nothing outside of the dataset's folder is removed; a dataset made by `concat` loses what it refers to
    here. A process goes on with the files of an old version that it has open (all, up to a quarter of `ulimit
    -n`), but cannot open them again.

    Args:
        path: the dataset's directory.
        keep: number of versions that remain.

    Raises:
        ArgumentError: keep is less than 1.
        DatasetError: as in `append`.
        PackError: as in `append`, or a file cannot be removed.
    """
    if isinstance(keep, bool) or not isinstance(keep, int) or keep < 1:
        raise ArgumentError(
            f"keep={keep!r} is no whole number of versions from 1 on; the latest always remains"
        )
    with DatasetChange(path, "run `fastload prune` again", tidy=False) as change:
        remove_appends(change.path)
        versions, freed = change.prune(keep)
    return PruneSummary(tuple(versions), freed)


_GO_ON = "run `fastload drop` again: nothing is lost"


@dataclass(frozen=True, slots=True)
class DropSummary:
    """Result of `drop`.

    Attributes:
        version: the version, new unless nothing was dropped.
        samples: samples in it.
        dropped: samples taken out.
    """

    version: int
    samples: int
    dropped: int


def drop(path: str | os.PathLike[str], *, where: str | None = None, indices: object = None) -> DropSummary:
    """Takes samples out of a dataset, as a new version; none if no sample is meant. No record is written. The
    others are numbered anew, in their order.

    Args:
        path: the dataset's directory.
        where: a condition, as in `PackedDataset.where`, true for the samples to take out.
        indices: instead, their indices; doubles count once.

    Raises:
        ArgumentError: not exactly one of both is given, the condition cannot be evaluated, or an index is out
            of range.
        DatasetError: as in `append`.
        SampleError: a record that the condition needs is damaged.
        PackError: as in `append`; or no sample would be left.
    """
    if (where is None) == (indices is None):
        raise ArgumentError("give either where=, a condition, or indices=: which samples are to be taken out")
    with (
        DatasetChange(path, _GO_ON) as change,
        DatasetReader(change.path, manifest=change.manifest) as reader,
    ):
        gone = (
            _checked(indices, len(reader))
            if where is None
            else as_positions(ConditionEngine(Columns(reader)).rows(where))
        )
        manifest = change.manifest
        if len(gone) == len(reader):
            raise PackError(
                f"{change.path}: all {len(reader):,} samples would be taken out, and none would be "
                "left; remove the folder"
            )
        if len(gone):
            manifest = _commit(change, reader, gone)
    return DropSummary(manifest.version, manifest.count, len(gone))


def _checked(indices: object, count: int) -> npt.NDArray[np.int64]:
    try:
        found = np.unique(as_positions(indices))
    except TypeError as error:
        raise ArgumentError(f"indices: {error}") from None
    if len(found) and not 0 <= found[0] <= found[-1] < count:
        wrong = found[0] if found[0] < 0 else found[-1]
        raise ArgumentError(f"indices: {wrong} is no sample of {count:,}; they are counted from 0")
    return found


def _commit(change: DatasetChange, reader: DatasetReader, gone: npt.NDArray[np.int64]) -> Manifest:
    """The manifest of the version without these samples."""
    keep = np.ones(len(reader), bool)
    keep[gone] = False
    shards, rows = [], []
    for number, shard in enumerate(change.manifest.shards):
        kept = np.flatnonzero(keep[shard.first : shard.first + shard.count])
        if not len(kept):
            continue
        counting = reader.counting(number)
        rows.append(
            None if len(kept) == shard.count else (kept if counting is None else counting[kept]).astype("<u4")
        )
        shards.append(shard)
    segments = iter(
        change.write_segments("rows", (part for part in rows if part is not None))
        if any(r is not None for r in rows)
        else ()
    )
    entries = [
        shard
        if part is None
        else replace(shard, count=len(part), rows=next(segments), key=shard.key, stored=shard.stored)
        for shard, part in zip(shards, rows, strict=True)
    ]
    summary = dict(change.manifest.summary)
    if isinstance(summary.get("samples"), int):
        summary["samples"] = len(reader) - len(gone)
    # Those of objects are not known without reading records; labels are counted by their column.
    summary.pop(KEY, None)
    return change.commit(replace(change.manifest, shards=numbered(entries), summary=summary))
