"""Cost of an epoch from a bucket: requests, bytes and money, by the dataset's size, the cache's size and the order of samples.

The model is that of the cache: what is cached stays, so that c, the share of the dataset that the cache holds, is read once, in whole
blocks of `BLOCK_BYTES`; the rest is fetched in every epoch. It takes a request a sample, of `GROUP_BYTES` at least, since small samples
are fetched with their neighbours. Under shuffle="window" the rest comes in blocks too, where the link is faster than the loop and the
process may hold the buffer.
"""

from __future__ import annotations

from dataclasses import dataclass

from fastload.errors import ArgumentError
from fastload.remote.groups import GROUP_BYTES

BLOCK_BYTES = 2 << 20
GIB = 1 << 30


@dataclass(frozen=True)
class Price:
    """List price of reading from a store, without discounts, free tiers and taxes.

    Attributes:
        name: of the store, short.
        store: of the store, with class and region.
        requests: US dollars per 1,000 GET requests.
        gib: US dollars per GiB that leaves the cloud; within the region it is free.
        source: where the figures are published.
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
    Price("GCS", "Google Cloud Storage Standard, us-east1", 0.0004, 0.12, "https://cloud.google.com/storage/pricing-examples", "2025"),
    Price("Azure", "Azure Blob Hot LRS, East US", 0.0005, 0.087, "https://azure.microsoft.com/pricing/details/storage/blobs/", "2025"),
)
"""Prices change, and differ from region to region: these tell the order of magnitude. Those of S3 and Azure were noted without a look at
the page. First tier above the free one in each case."""


@dataclass(frozen=True)
class Traffic:
    """What an epoch fetches.

    Attributes:
        requests: GET requests.
        bytes: bytes of their answers.
    """

    requests: int
    bytes: int

    def dollars(self, price: Price, *, leaves: bool) -> float:
        """Money at a price; `leaves` says whether the bytes leave the cloud, or stay in the bucket's region."""
        return self.requests / 1000 * price.requests + (self.bytes / GIB * price.gib if leaves else 0.0)


@dataclass(frozen=True)
class EpochTraffic:
    """Traffic of the first epoch, with which the cache is filled, and of each later one.

    Attributes:
        cached: share of the dataset that the cache holds, 0 to 1.
        first: traffic of the first epoch.
        later: traffic of each later epoch.
        first_window, later_window: the same under shuffle="window".
    """

    cached: float
    first: Traffic
    later: Traffic
    first_window: Traffic
    later_window: Traffic


def epoch_traffic(samples: int, size: int, cache_size: int) -> EpochTraffic:
    """The traffic of epochs over a dataset in random order, and by a window.

    Args:
        samples: its samples.
        size: bytes of its shards.
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
