"""What HealthMonitor costs: a loader iterated with and without it, and the microseconds a batch.

    python benchmarks/bench_health.py [--rounds 31] [--save health]

Method, throughput: in one process, one loader with persistent workers is iterated in turns, an epoch plain
and an epoch through HealthMonitor, which of the two comes first alternating from round to round; the consumer
does nothing. A round's ratio is the rate with over the rate without; the median over the rounds is shown with
its 95% interval (order statistics), and a round is as long as epochs take to make --seconds. The loaders:
FastLoader on packed photographs (RandomResizedCrop(224), batches of 64), and FastLoader and torch's
DataLoader on a dataset of integers (batches of 64), the shortest batches there are. Method, a batch: a list
of equal batches is walked with and without the monitor, in turns, and the difference in the thread's CPU time
divided by its length; the median over the rounds is shown. Caveats: FastLoader always feeds a monitor of its
own, loader.health; around it, what is measured is a second one, which does the same again. On a shared
machine rounds lie 10% apart and more, far more than the monitor costs. So the microseconds over the loader's
own time a batch, in its fastest round, say more than the ratio; the ratio says that nothing else is lost.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common
import torch
from rich.table import Table
from torch.utils.data import DataLoader, Dataset

from fastload import FastLoader, HealthMonitor
from fastload import transforms as T
from fastload.bench import measure
from fastload.bench.report import number

BATCH = 64
LENGTH = 20_000
SHARE = 0.01


class Integers(Dataset[int]):
    """As many integers as make 500 batches."""

    def __len__(self) -> int:
        return 500 * BATCH

    def __getitem__(self, index: int) -> int:
        return index


@dataclass(frozen=True)
class Row:
    """One loader's rounds."""

    title: str
    ratios: list[float]
    plain_us: float

    @property
    def interval(self) -> tuple[float, float]:
        """95% interval of the median: the order statistics that the binomial distribution of signs gives."""
        ordered, n = sorted(self.ratios), len(self.ratios)
        below = max(0, math.floor((n - 1.96 * math.sqrt(n)) / 2))
        return ordered[below], ordered[n - 1 - below]


def walk(iterable: Iterable[Any], clock: Callable[[], float] = time.perf_counter) -> tuple[float, int]:
    """Seconds and batches of one epoch."""
    began, count = clock(), 0
    for _ in iterable:
        count += 1
    return clock() - began, count


def rate(iterable: Iterable[Any], seconds: float) -> float:
    """Batches a second over as many epochs as make `seconds`."""
    spent, batches = 0.0, 0
    while spent < seconds:
        took, count = walk(iterable)
        spent, batches = spent + took, batches + count
    return batches / spent


def compare(title: str, loader: Iterable[Any], rounds: int, seconds: float) -> Row:
    """Rounds of plain and watched turns of one loader."""
    sides = {"plain": loader, "watched": HealthMonitor(loader)}
    for side in sides.values():
        walk(side)
    ratios, plain = [], []
    for n in range(rounds):
        order = ["plain", "watched"] if n % 2 else ["watched", "plain"]
        found = {name: rate(sides[name], seconds) for name in order}
        ratios.append(found["watched"] / found["plain"])
        plain.append(1e6 / found["plain"])
    return Row(title, ratios, min(plain))


def a_batch_us(batch: Any, rounds: int) -> float:
    """Microseconds that the monitor adds to a batch."""
    plain = [batch] * LENGTH
    watched = HealthMonitor(plain)
    found = []
    for n in range(rounds):
        took = {
            side: walk(watched if side else plain, time.thread_time)[0]
            for side in ((0, 1) if n % 2 else (1, 0))
        }
        found.append((took[1] - took[0]) / LENGTH * 1e6)
    return statistics.median(found)


def rows(packed: Path, arguments: argparse.Namespace) -> list[Row]:
    """The three loaders, one after the other."""
    asked = (arguments.rounds, arguments.seconds)
    workers: dict[str, Any] = {
        "batch_size": BATCH,
        "num_workers": arguments.workers,
        "persistent_workers": True,
    }
    found = []
    with (
        common.note("packed photographs"),
        FastLoader(packed, transform=[T.RandomResizedCrop(224)], shuffle=True, seed=0, **workers) as loader,
    ):
        found.append(compare("FastLoader, packed photographs", loader, *asked))
    with common.note("integers, FastLoader"), FastLoader(Integers(), **workers) as loader:
        found.append(compare("FastLoader, integers", loader, *asked))
    with common.note("integers, torch"):
        found.append(compare("torch DataLoader, integers", DataLoader(Integers(), **workers), *asked))
    return found


def main() -> int:
    """Measures the microseconds, then the rates."""
    arguments = common.parser(__doc__, rounds=31, seconds=0.5).parse_args()
    source = common.corpus(arguments.corpus, "in500")
    packed = common.pack_fresh(source, f"{source.name}.fl", workers=arguments.workers)
    image_batch = [torch.zeros(BATCH, 3, 8, 8), torch.zeros(BATCH)]
    shapes = {
        "(images, labels)": image_batch,
        "tensor": image_batch[1],
        "dict of tensors": {"x": image_batch[1], "y": image_batch[1]},
    }
    costs = {name: a_batch_us(batch, arguments.rounds) for name, batch in shapes.items()}
    measured = rows(packed, arguments)

    shown = Table(title="HealthMonitor's own time a batch, us")
    for name in costs:
        shown.add_column(name, justify="right")
    shown.add_row(*(number(cost, 2) for cost in costs.values()))
    common.console.print(shown)
    shown = Table(title="batches/s with the monitor over without")
    for heading in ("", "median", "95% interval", "±", "us a batch without, fastest round", "monitor's part"):
        shown.add_column(heading, justify="right" if heading else "left")
    for row in measured:
        low, high = row.interval
        spread = measure.spread(row.ratios)
        part = costs["(images, labels)"] / row.plain_us
        shown.add_row(
            row.title, number(statistics.median(row.ratios), 4), f"{low:.4f} to {high:.4f}",
            "" if spread is None else f"{spread:.1%}", number(row.plain_us, 1), f"{part:.2%}",
        )  # fmt: skip
    common.console.print(shown)

    cost = max(costs["(images, labels)"], costs["tensor"])
    targets = [
        common.Target(f"{row.title}: rate with / without", statistics.median(row.ratios), 1 - SHARE, digits=4)
        for row in measured
    ]
    targets += [
        common.Target(
            f"{row.title}: monitor's part of a batch's time, %",
            100 * cost / row.plain_us,
            100 * SHARE,
            at_most=True,
        )
        for row in measured
    ]
    kept = [
        {"title": r.title, "ratios": r.ratios, "interval": r.interval, "plain_us_a_batch": r.plain_us}
        for r in measured
    ]
    return common.finish("health", arguments, targets, rows=kept, monitor_us_a_batch=costs)


if __name__ == "__main__":
    sys.exit(main())
