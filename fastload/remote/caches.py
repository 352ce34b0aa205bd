"""Caches of datasets in buckets, as `fastload cache` lists, fills and removes them; and the traffic and cost
of an epoch from a bucket.

The model of an epoch's cost is the cache's own: cached bytes stay. So the share of the dataset that the cache
holds is read once, in whole blocks of `BLOCK_BYTES`. The rest is fetched in every epoch: one request for each
sample, of at least `GROUP_BYTES`, since small samples are fetched with their neighbours. Under
shuffle="window" the rest is fetched in blocks too, if the link is faster than the loop and the process may
hold the buffer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from fastload.common.files import expanded
from fastload.common.urls import is_url, normalized, shown
from fastload.errors import ArgumentError
from fastload.remote.cache_folder import DATASET, CacheFolder, LockFile, described, read_used, remove_unused
from fastload.remote.files import TIMEOUT_S, RemoteFiles, folder_files, remote_files
from fastload.remote.shared_files import open_in_dataset
from fastload.store.groups import GROUP_BYTES
from fastload.store.reader import DatasetReader

BLOCK_BYTES = 2 << 20
GIB = 1 << 30


@dataclass(frozen=True)
class Price:
    """List price of reading from a store, without discounts, free tiers and taxes.

    Attributes:
        name: short name of the store.
        store: full name of the store, with class and region.
        requests: US dollars per 1,000 GET requests.
        gib: US dollars per GiB that leaves the cloud; reads within the region are free.
        source: URL that publishes the figures.
        year: the year of the figures.
    """

    name: str
    store: str
    requests: float
    gib: float
    source: str
    year: str


PRICES = (
    Price("S3", "S3 Standard, us-east-1", 0.0004, 0.09, "https://aws.amazon.com/s3/pricing/", "2025"),
    Price(
        "GCS",
        "Google Cloud Storage Standard, us-east1",
        0.0004,
        0.12,
        "https://cloud.google.com/storage/pricing-examples",
        "2025",
    ),
    Price(
        "Azure",
        "Azure Blob Hot LRS, East US",
        0.0005,
        0.087,
        "https://azure.microsoft.com/pricing/details/storage/blobs/",
        "2025",
    ),
)
"""Prices change, and differ from region to region: these tell the order of magnitude. The prices of S3 and
Azure were noted without a look at the page. Each is that of the first tier above the free one."""


@dataclass(frozen=True)
class Traffic:
    """Traffic of one epoch.

    Attributes:
        requests: number of GET requests.
        bytes: bytes of the answers.
    """

    requests: int
    bytes: int

    def dollars(self, price: Price, *, leaves: bool) -> float:
        """Cost in US dollars at a price. `leaves`: the bytes leave the cloud; otherwise they stay in the
        bucket's region."""
        return self.requests / 1000 * price.requests + (self.bytes / GIB * price.gib if leaves else 0.0)


@dataclass(frozen=True)
class EpochTraffic:
    """Traffic of the first epoch, which fills the cache, and of each later one.

    Attributes:
        cached: share of the dataset that the cache holds, 0 to 1.
        first: traffic of the first epoch.
        later: traffic of each later epoch.
        first_window, later_window: traffic of the same epochs under shuffle="window".
    """

    cached: float
    first: Traffic
    later: Traffic
    first_window: Traffic
    later_window: Traffic


def epoch_traffic(samples: int, size: int, cache_size: int) -> EpochTraffic:
    """The traffic of epochs over a dataset, in random order and by a window.

    Args:
        samples: number of samples in the dataset.
        size: bytes of the dataset's shards.
        cache_size: bytes of the cache.

    Raises:
        ArgumentError: the cache's size is negative.
    """
    if cache_size < 0:
        raise ArgumentError(f"cache_size is {cache_size}, less than 0 bytes")
    kept = min(cache_size, size)
    rest = size - kept
    share = kept / size if size else 1.0
    missed = round(samples * (1 - share))
    later = Traffic(missed, max(rest, missed * min(GROUP_BYTES, size)))
    filling = -(-kept // BLOCK_BYTES)
    blocks = Traffic(-(-rest // BLOCK_BYTES), rest)
    first, first_window = (Traffic(filling + each.requests, kept + each.bytes) for each in (later, blocks))
    return EpochTraffic(share, first, later, first_window, blocks)


FILL_BYTES = 64 << 20
"""Bytes that `fill_cache` asks for at once."""


@dataclass(frozen=True)
class CachedDataset:
    """One dataset in a cache folder.

    Attributes:
        url: the dataset's URL, without secrets.
        bytes: bytes granted to its cache on the disk; a full cache takes all of them.
        opened: time at which it was last opened.
        used: True if a process has it open now.
        folder: the folder of its cache.
    """

    url: str
    bytes: int
    opened: datetime
    used: bool
    folder: Path


def cached_datasets(cache: str | os.PathLike[str] | None = None) -> list[CachedDataset]:
    """The datasets in a cache folder, most recently opened first."""
    root = CacheFolder(cache)
    try:
        with root.lock.held():  # no process begins to use a dataset meanwhile
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
    """Removes the cache of the dataset at a URL, or all caches of a folder; caches in use stay.

    Returns:
        Number of caches that were removed, and number of caches in use.

    Raises:
        ArgumentError: the folder has no cache of that URL.
    """
    root = CacheFolder(cache)
    try:
        with root.lock.held():
            wanted = [
                each for each in root.datasets() if url is None or described(each) == shown(normalized(url))
            ]
            if url is not None and not wanted:
                raise ArgumentError(
                    f"{root.path} has nothing of {shown(url)}; `fastload cache` lists what it has"
                )
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
    timeout: float = TIMEOUT_S,
) -> tuple[int, int]:
    """Fetches the dataset at a URL into a cache folder, as far as there is room, so that training fetches
    nothing.

    Args:
        url: URL of the dataset, or the folder of one whose images lie in a store.
        cache, cache_size, storage_options: as PackedDataset takes them.
        progress: called with the number of samples looked at, from 0 on, and the number of all samples.
        timeout: seconds within which a request is tried again.

    Returns:
        Number of samples in the cache, and number of all samples.

    Raises:
        DatasetError, RemoteError: there is no dataset, or it cannot be fetched.
    """
    options = cache, cache_size, storage_options, timeout
    files = remote_files(url, *options) if is_url(url) else folder_files(expanded(url), None, None, *options)
    if not isinstance(files, RemoteFiles):
        raise ArgumentError(f"{url} holds its images itself: there is nothing to fetch")
    with DatasetReader(files) as reader:
        step = max(1, FILL_BYTES // files.mean_bytes)
        if progress is not None:
            progress(0, reader.count)
        for first in range(0, reader.count, step):
            if files.session.cache.full:
                break
            with files.held(range(first, min(first + step, reader.count))):
                pass
            if progress is not None:
                progress(min(first + step, reader.count), reader.count)
        for name in reader.schema.columns:  # the columns that sidecars do not hold
            files.fetch_columns(range(len(reader.manifest.shards)), name)
        return files.cached(), reader.count
