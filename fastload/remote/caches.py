"""Caches of datasets in buckets, as `fastload cache` shows, fills and removes them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from fastload.common.urls import normalized, shown
from fastload.errors import ArgumentError
from fastload.remote.cache_folder import DATASET, CacheFolder, described, read_used, remove_unused
from fastload.remote.locks import LockFile
from fastload.remote.remote_files import RemoteFiles
from fastload.remote.shared_files import open_in_dataset
from fastload.store.reader import DatasetReader

FILL_BYTES = 64 << 20
"""Bytes that are asked for at once."""


@dataclass(frozen=True)
class CachedDataset:
    """What a cache folder has of one dataset.

    Attributes:
        url: the dataset's, without secrets.
        bytes: what its cache may take on the disk, and takes once it is full.
        opened: when it was last opened.
        used: whether a process has it open now.
        folder: its own.
    """

    url: str
    bytes: int
    opened: datetime
    used: bool
    folder: Path


def cached_datasets(cache: str | os.PathLike[str] | None = None) -> list[CachedDataset]:
    """The datasets in a cache folder, the one that was opened last first."""
    root = CacheFolder(cache)
    try:
        with root.lock.held():  # nobody begins to use one meanwhile
            found = list(_found(root))
        return sorted(found, key=lambda each: each.opened, reverse=True)
    finally:
        root.close()


def _found(root: CacheFolder) -> Iterator[CachedDataset]:
    for folder in root.datasets():
        users = LockFile(folder / "users", open_in_dataset)
        try:
            used = not users.exclusive()
            opened = datetime.fromtimestamp((folder / DATASET).lstat().st_mtime, timezone.utc)
        except OSError:
            continue
        finally:
            users.close()
        yield CachedDataset(described(folder), read_used(folder), opened, used, folder)


def remove_caches(url: str | None = None, cache: str | os.PathLike[str] | None = None) -> tuple[int, int]:
    """Removes what a cache folder has of the dataset at a URL, or of all datasets, where no process has it open.

    Returns:
        How many caches were removed, and how many are in use.

    Raises:
        ArgumentError: nothing is cached of that URL.
    """
    root = CacheFolder(cache)
    try:
        with root.lock.held():
            wanted = [each for each in root.datasets() if url is None or described(each) == shown(normalized(url))]
            if url is not None and not wanted:
                raise ArgumentError(f"{root.path} has nothing of {shown(url)}; `fastload cache` lists what it has")
            removed = sum(remove_unused(folder) for folder in wanted)
        return removed, len(wanted) - removed
    finally:
        root.close()


def fill_cache(
    url: str,
    cache: str | os.PathLike[str] | None = None,
    cache_size: int | str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[int, int]:
    """Fetches the dataset at a URL into a cache folder, as far as there is room, so that training fetches nothing.

    Args:
        url: the dataset's.
        cache, cache_size, storage_options: as PackedDataset takes them.
        progress: called with the samples that were looked at, and all.

    Returns:
        Samples in the cache, and all.

    Raises:
        DatasetError, RemoteError: there is none, or it cannot be fetched.
    """
    files = RemoteFiles(url, cache, cache_size, storage_options)
    with DatasetReader(files) as reader:
        step = max(1, FILL_BYTES // files.mean_bytes)
        for first in range(0, reader.count, step):
            if files.session.cache.full:
                break
            with files.held(range(first, min(first + step, reader.count))):
                pass
            if progress is not None:
                progress(min(first + step, reader.count), reader.count)
        for name in reader.schema.columns:  # those that sidecars do not hold
            files.fetch_columns(range(len(reader.manifest.shards)), name)
        return files.cached(), reader.count
