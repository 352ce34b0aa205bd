"""Table of `fastload info --cost`: requests, bytes and money of an epoch from a bucket."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastload.cli.output import say_wrapped
from fastload.common.limits import parse_size
from fastload.remote.caches import BLOCK_BYTES, PRICES, EpochTraffic, Price, Traffic, epoch_traffic
from fastload.store import Manifest

_SHARES = (0.0, 0.25, 0.5, 1.0)
"""Caches that are shown if none is named, as shares of the dataset."""


def prices(requests: float | None, gib: float | None) -> tuple[Price, ...]:
    """The known prices, or the user's own."""
    if requests is None and gib is None:
        return PRICES
    return (Price("yours", "your prices", requests or 0.0, gib or 0.0, source="the command line", year=""),)


def cost_rows(manifest: Manifest, cache_size: str | None) -> list[EpochTraffic]:
    """The traffic for each size of the cache."""
    size = manifest.image_bytes
    sizes = (
        [int(size * share) for share in _SHARES]
        if cache_size is None
        else [parse_size(cache_size, "cache_size")]
    )
    return [epoch_traffic(manifest.count, size, each) for each in sizes]


def cost_document(manifest: Manifest, cache_size: str | None, known: tuple[Price, ...]) -> dict[str, Any]:
    """The cost as JSON values."""
    rows = []
    for traffic in cost_rows(manifest, cache_size):
        money = {
            price.name: {
                when: {
                    "same_region": each.dollars(price, leaves=False),
                    "leaving": each.dollars(price, leaves=True),
                }
                for when, each in _epochs(traffic).items()
            }
            for price in known
        }
        rows.append({**asdict(traffic), "dollars": money})
    return {"block_bytes": BLOCK_BYTES, "epochs": rows, "prices": [asdict(price) for price in known]}


def _epochs(traffic: EpochTraffic) -> dict[str, Traffic]:
    """Traffic by name, as the JSON has it."""
    names = ("first", "later", "first_window", "later_window")
    return {name: getattr(traffic, name) for name in names}


def show_cost(manifest: Manifest, cache_size: str | None, known: tuple[Price, ...]) -> None:
    """Prints the cost as tables."""
    from rich.console import Console
    from rich.table import Table

    from fastload.common.progress import human_bytes

    rows = cost_rows(manifest, cache_size)
    table = Table(title="an epoch from a bucket: requests and bytes", show_header=True)
    for name in ("cached", "first", "bytes", "later", "bytes", 'by "window", first', "later"):
        table.add_column(name, justify="right")
    for traffic in rows:
        fetched = [
            each
            for part in (traffic.first, traffic.later)
            for each in (f"{part.requests:,}", human_bytes(part.bytes))
        ]
        fetched += [f"{part.requests:,}" for part in (traffic.first_window, traffic.later_window)]
        table.add_row(f"{traffic.cached:.0%}", *fetched)
    console = Console()
    console.print(table)
    for leaves in (False, True):
        where = "outside the cloud" if leaves else "in the bucket's region"
        money = Table(title=f"US dollars for it, first / later epoch, read {where}")
        for name in ("cached", *(price.name for price in known)):
            money.add_column(name, justify="right")
        for traffic in rows:
            parts = (
                [part.dollars(each, leaves=leaves) for part in (traffic.first, traffic.later)]
                for each in known
            )
            sums = (" / ".join(f"{sum:,.4f}" if sum < 1 else f"{sum:,.2f}" for sum in both) for both in parts)
            money.add_row(f"{traffic.cached:.0%}", *sums)
        console.print(money)
    ranges = (
        f"is fetched in ranges of {human_bytes(BLOCK_BYTES)}; other orders fetch the rest sample by sample"
    )
    say_wrapped(f'what is cached, and with shuffle="window" the rest too, {ranges}')
    for price in known:
        when = f", {price.year}" if price.year else ""
        say_wrapped(
            f"{price.store}: ${price.requests:g} per 1,000 GET, ${price.gib:g} per GiB that leaves "
            f"the cloud ({price.source}{when})"
        )
