"""Distinct classes per batch of class-sorted data, by shuffle: all samples, windows of several buffers, and
two other ways to use a buffer.

    python benchmarks/bench_shuffle.py [--rounds 3] [--save shuffle]

Prediction: batches of shuffle="window" have the distinct classes of independent draws as soon as more blocks
are open than a batch has samples; permuting one window after another, and drawing from a shuffle buffer, need
about four and two times the buffer for the same. Found: for 0.95 of them at ImageNet's shape they need eight
and four times the buffer.

Method: orders of indices, and nothing read. A round is an epoch with a key of its own. Shapes: ImageNet's
(1,000 classes of 1,281 samples of 110 KB), in batches of 64 and 256, and 20 classes of 200 samples of 108 KB
in batches of 64. Samples are sorted by class. A block is 2 MiB.
- distinct: mean number of distinct classes in a full batch. independent: what independent draws with
  replacement give.
- held: samples, in MiB, that a reader holds at most if it fetches each block whole when its first sample is
  asked for.
- permuted windows: blocks in random order, cut into windows of the buffer's size, each permuted. shuffle
  buffer: blocks in random order are read into a buffer, from which samples are drawn at random.
- order: milliseconds until the whole epoch's order is known, and until its first index is.
Caveats: sorted data are the worst case; data that were shuffled before packing are mixed by any of these.
Distinct classes in a batch say nothing of how batches that follow one another differ.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import common
import numpy as np
import numpy.typing as npt
from rich.table import Table

from fastload.bench.report import number
from fastload.sampling.window import WindowOrder

Order = npt.NDArray[np.int64]
MIB = 1 << 20
BLOCK = 2 * MIB
BOUND = 0.95


@dataclass(frozen=True)
class Shape:
    """A class-sorted dataset and how it is batched."""

    name: str
    classes: int
    samples: int
    bytes: int
    batch: int
    buffers: tuple[int, ...]

    @property
    def independent(self) -> float:
        """Distinct classes per batch of independent draws."""
        return self.classes * (1 - (1 - 1 / self.classes) ** self.batch)

    def distinct(self, order: Order) -> float:
        """Mean number of distinct classes in a full batch."""
        labels = order * self.classes // self.samples
        batches = np.sort(labels[: len(labels) // self.batch * self.batch].reshape(-1, self.batch), axis=1)
        return float((np.diff(batches, axis=1) != 0).sum(axis=1).mean() + 1)


SHAPES = (
    Shape("ImageNet", 1000, 1_281_000, 110_000, 64, (128, 256, 512, 1024, 4096)),
    Shape("ImageNet", 1000, 1_281_000, 110_000, 256, (128, 256, 512, 1024, 4096)),
    Shape("4,000 samples", 20, 4000, 108_000, 64, (32, 64, 128, 256)),
)


def held(order: Order, block: int) -> int:
    """Samples held at most by a reader that fetches blocks whole at their first sample."""
    numbers = order // block
    fetched = np.zeros(len(order), np.int64)
    found, first = np.unique(numbers, return_index=True)
    fetched[first] = np.minimum(block, len(order) - found * block)
    return int((np.cumsum(fetched) - np.arange(len(order))).max())


def line(samples: int, block: int, rng: np.random.Generator) -> Order:
    """All blocks in random order, one after another."""
    order = (rng.permutation(-(-samples // block))[:, None] * block + np.arange(block)).ravel()
    return order[order < samples]


def window(samples: int, block: int, buffer: int, seed: int) -> Order:
    """The order of shuffle="window"."""
    return WindowOrder(samples, block, buffer, seed).indices()


def permuted_windows(samples: int, block: int, buffer: int, seed: int) -> Order:
    """Windows of the buffer's size, one after another, each permuted."""
    rng = np.random.default_rng(seed)
    order, size = line(samples, block, rng), max(block, buffer // block * block)
    return np.concatenate([rng.permutation(order[at : at + size]) for at in range(0, samples, size)])


def shuffle_buffer(samples: int, block: int, buffer: int, seed: int) -> Order:
    """Samples drawn at random from a buffer, into which the next block is read when it fits."""
    blocks, draw = line(samples, block, np.random.default_rng(seed)).tolist(), random.Random(seed).random
    have: list[int] = []
    out, at = np.empty(samples, np.int64), 0
    for place in range(samples):
        while at < samples and len(have) + block <= max(buffer, block):
            have += blocks[at : at + block]
            at += block
        chosen = int(draw() * len(have))
        have[chosen], have[-1] = have[-1], have[chosen]
        out[place] = have.pop()
    return out


def sequential(samples: int, block: int, buffer: int, seed: int) -> Order:
    """No shuffle."""
    return np.arange(samples)


def all_samples(samples: int, block: int, buffer: int, seed: int) -> Order:
    """A permutation of all samples, as shuffle=True."""
    return np.random.default_rng(seed).permutation(samples)


def timed(samples: int, block: int, buffer: int) -> tuple[float, float]:
    """Milliseconds until the first index of an epoch, and until all are known."""
    began = time.perf_counter()
    chunks = WindowOrder(samples, block, buffer, 1).chunks()
    next(chunk for chunk in chunks if len(chunk))
    first = time.perf_counter() - began
    for _ in chunks:
        pass
    return first * 1e3, (time.perf_counter() - began) * 1e3


ORDERS: dict[str, Callable[[int, int, int, int], Order]] = {
    "window": window,
    "permuted windows": permuted_windows,
    "shuffle buffer": shuffle_buffer,
    "sequential": sequential,
    "all samples": all_samples,
}


def measured(shape: Shape, name: str, mib: int | None, rounds: int) -> common.Json:
    """One line of a table."""
    block, buffer = max(1, BLOCK // shape.bytes), 1 if mib is None else mib * MIB // shape.bytes
    orders = [ORDERS[name](shape.samples, block, buffer, seed) for seed in range(rounds)]
    distinct = statistics.mean(shape.distinct(order) for order in orders)
    row: common.Json = {
        "shape": shape.name,
        "batch": shape.batch,
        "order": name,
        "buffer_mib": mib,
        "distinct": distinct,
    }
    row["of_independent"] = distinct / shape.independent
    if mib is not None:
        row["held_mib"] = max(held(order, block) for order in orders) * shape.bytes / MIB
    if name == "window":
        row["open_blocks"] = WindowOrder(shape.samples, block, buffer, 0).open_blocks
        row["first_ms"], row["whole_ms"] = timed(shape.samples, block, buffer)
    return row


def shown(shape: Shape, rows: list[common.Json]) -> Table:
    """The table of a shape."""
    table = Table(
        title=(
            f"{shape.name}: {shape.classes:,} classes, batches of {shape.batch}; independent draws "
            f"{shape.independent:.1f}"
        )
    )
    for heading in (
        "order",
        "buffer, MiB",
        "open blocks",
        "held, MiB",
        "distinct",
        "/ independent",
        "order, ms",
    ):
        table.add_column(heading, justify="left" if heading == "order" else "right")
    for row in rows:
        counts = [
            number(row[name], 0) if row.get(name) is not None else ""
            for name in ("buffer_mib", "open_blocks", "held_mib")
        ]
        took = f"{row['first_ms']:.0f} / {row['whole_ms']:.0f}" if "first_ms" in row else ""
        table.add_row(
            row["order"], *counts, number(row["distinct"], 1), number(row["of_independent"], 3), took
        )
    return table


def main() -> int:
    """Fills a table for each shape."""
    arguments: argparse.Namespace = common.parser(__doc__, rounds=3).parse_args()
    rows, targets = [], []
    for shape in SHAPES:
        lines: list[tuple[str, int | None]] = [("sequential", None), ("all samples", None)]
        lines += [
            (name, mib) for mib in shape.buffers for name in ("window", "permuted windows", "shuffle buffer")
        ]
        found = [measured(shape, name, mib, arguments.rounds) for name, mib in lines]
        common.console.print(shown(shape, found))
        name = f"{shape.name}, batches of {shape.batch}, 1 GiB: distinct / independent"
        ratios = [
            row["of_independent"] for row in found if (row["order"], row["buffer_mib"]) == ("window", 1024)
        ]
        targets += [common.Target(name, ratio, BOUND) for ratio in ratios]
        rows += found
    return common.finish("shuffle", arguments, targets, rows=rows)


if __name__ == "__main__":
    sys.exit(main())
