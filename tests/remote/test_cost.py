"""Cost of an epoch: requests and bytes are those of a cache that keeps what it has, by a simulation; money
is theirs at the price."""

from __future__ import annotations

import pytest

from fastload.errors import ArgumentError
from fastload.remote.caches import BLOCK_BYTES, GIB, PRICES, Price, Traffic, epoch_traffic
from fastload.remote.fetcher import RANGE_BYTES
from fastload.store.groups import GROUP_BYTES

SAMPLE = BLOCK_BYTES // 16


def simulated(samples: int, cached: int) -> tuple[Traffic, Traffic]:
    """Traffic of two epochs over samples of 1/16 block, of which the first `cached` blocks stay in the
    cache."""
    have: set[int] = set()
    epochs = []
    for _ in range(2):
        requests = size = 0
        read: set[int] = set()
        for sample in range(samples):
            block = sample // 16
            if block in have or block in read:
                continue
            whole = block < cached
            requests += 1
            size += min(BLOCK_BYTES, (samples - 16 * block) * SAMPLE) if whole else SAMPLE
            if whole:
                (have if block < cached else read).add(block)
        epochs.append(Traffic(requests, size))
    return epochs[0], epochs[1]


@pytest.mark.parametrize("cached", [0, 1, 25, 99, 100, 150])
def test_against_a_simulation(cached: int) -> None:
    """For caches from nothing to more than the dataset."""
    samples = 1600
    found = epoch_traffic(samples, samples * SAMPLE, cached * BLOCK_BYTES)
    assert (found.first, found.later) == simulated(samples, cached)
    kept = min(cached, 100)
    assert (found.first_window.requests, found.later_window.requests) == (100, 100 - kept)
    assert (found.first_window.bytes, found.later_window.bytes) == (
        100 * BLOCK_BYTES,
        (100 - kept) * BLOCK_BYTES,
    )
    assert found.cached == min(1.0, cached / 100)


def test_money() -> None:
    """Requests per thousand, and bytes only where they leave the cloud."""
    price = Price("x", "x", requests=0.5, gib=2.0, source="", year="")
    assert Traffic(3000, 4 * GIB).dollars(price, leaves=False) == 1.5
    assert Traffic(3000, 4 * GIB).dollars(price, leaves=True) == 9.5
    for each in PRICES:
        assert each.source.startswith("https://")
        assert each.year.isdigit()
        assert 0 < each.requests < 0.01
        assert 0 < each.gib < 1


def test_small_samples() -> None:
    """One of 2 KiB comes with its neighbours. The blocks are the fetcher's."""
    samples = 64 * 1024
    size = samples * 2048
    assert epoch_traffic(samples, size, 0).later == Traffic(samples, samples * GROUP_BYTES)
    assert epoch_traffic(samples, size, size // 2).first.bytes == size // 2 + samples // 2 * GROUP_BYTES
    assert BLOCK_BYTES == RANGE_BYTES


def test_odd_sizes() -> None:
    """An empty dataset costs nothing; a negative cache is refused."""
    assert epoch_traffic(0, 0, 0).first == Traffic(0, 0)
    assert epoch_traffic(1, 1, 1).first == Traffic(1, 1)
    with pytest.raises(ArgumentError, match="cache_size is -1"):
        epoch_traffic(1, 1, -1)
