"""Cost of orders: shard="auto", a keyed permutation (shuffle="huge") and a mixture against a plain shuffle,
in loops, and of opening one.

    python benchmarks/bench_orders.py [--rounds 9] [--seconds 3] [--save orders]

Prediction: an order costs a microsecond or two a sample in the loop's thread, where decoding takes hundreds:
loops by shard="auto", by shuffle="huge" and over a Mixture have at least 0.99 of the rate of shuffle=True.
What the loop's thread does more for an image, of all the CPU time that an image takes, is at most 0.01: this
ratio other programs on the machine hardly move.

Method: photographs of the corpus, packed, four of each, RandomResizedCrop(224) and a flip, batches of 64,
page cache warm. All loops are in one process; a turn is as many whole epochs of one loop as take some
seconds, after one epoch to warm up; turns rotate, and a ratio is the median over rounds of the ratio to
shuffle=True in the same round. A second shuffle=True says how far two equal loops differ. The mixture has two
sources, by weights of 0.7 and 0.3, with two of the four copies of each photograph in both, so that it decodes
the same photographs as often as a shuffle does; its epoch has as many samples as the dataset. The one rank of
shard="auto" has the whole order. CPU time is that of the process, and of the loop's thread alone; the order
runs in the latter. Opening: milliseconds until the first index of 10**6 and of 10**9 samples is there, the
least of the rounds, and nanoseconds for each of the next 10**6 indices, the median. RandomSampler is left out
at 10**9: it takes 8 GB, and as many integers of Python's. Caveats: what an order costs is of the loop's
thread, and disappears in a loop that waits for the decoders.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import common
from rich.table import Table
from torch.utils.data import RandomSampler, Subset

from fastload import FastLoader, KeyedSampler, Mixture, PackedDataset
from fastload import transforms as T
from fastload.bench.report import number

MILLION = 1_000_000
BATCH = 64
PLAIN = "shuffle=True"


def loaders(path: Path, workers: int) -> dict[str, FastLoader[Any]]:
    """The loops that are compared."""
    dataset = PackedDataset(path, transform=[T.RandomResizedCrop(224), T.RandomHorizontalFlip()])
    count = len(dataset)
    parts = [(Subset(dataset, range(0, count, 2)), 0.7), (Subset(dataset, range(1, count, 2)), 0.3)]
    mixture = Mixture(parts, samples_per_epoch=count)
    given: dict[str, Any] = {"batch_size": BATCH, "num_workers": workers}
    return {
        PLAIN: FastLoader(dataset, shuffle=True, seed=0, **given),
        "shuffle=True again": FastLoader(dataset, shuffle=True, seed=1, **given),
        'shard="auto"': FastLoader(dataset, shuffle=True, seed=0, shard="auto", **given),
        'shuffle="huge"': FastLoader(dataset, shuffle="huge", seed=0, **given),
        "KeyedSampler": FastLoader(dataset, sampler=KeyedSampler(dataset, seed=0), seed=0, **given),
        "Mixture": FastLoader(mixture, seed=0, **given),
        "Mixture, shuffle=True": FastLoader(mixture, shuffle=True, seed=0, **given),
    }


class Turn(NamedTuple):
    """What one turn of a loop gave: images a second, and CPU time an image in microseconds, of the process
    and of the loop's thread."""

    rate: float
    cpu_us: float
    loop_us: float


def turn(loader: FastLoader[Any], seconds: float) -> Turn:
    """Whole epochs that take at least so long."""
    images, began, cpu, loop = 0, time.perf_counter(), time.process_time(), time.thread_time()
    while True:
        images += sum(len(batch[0]) for batch in loader)
        took = time.perf_counter() - began
        if took >= seconds:
            return Turn(
                images / took,
                (time.process_time() - cpu) / images * 1e6,
                (time.thread_time() - loop) / images * 1e6,
            )


def turns_of(path: Path, arguments: Any) -> dict[str, list[Turn]]:
    """Turns by loop, one of each round."""
    loops = loaders(path, arguments.workers)
    names = list(loops)
    for loader in loops.values():
        turn(loader, 0)
    turns: dict[str, list[Turn]] = {name: [] for name in names}
    for number_ in range(arguments.rounds):
        for name in names[number_ % len(names) :] + names[: number_ % len(names)]:
            with common.note(f"round {number_ + 1}: {name}"):
                turns[name].append(turn(loops[name], arguments.seconds))
    for loader in loops.values():
        loader.close()
    return turns


def mixed(samples: int) -> Iterator[int]:
    """The indices of a mixture's epoch in its sources, a batch at a time."""
    mixture = Mixture([(range(samples // 2), 0.7), (range(samples // 2), 0.3)], samples_per_epoch=samples)
    for begin in range(0, samples, BATCH):
        yield from mixture.rows(range(begin, min(begin + BATCH, samples)))[1].tolist()


ORDERS: dict[str, Callable[[int], Iterator[int]]] = {
    "RandomSampler": lambda samples: iter(RandomSampler(range(samples))),
    "KeyedSampler": lambda samples: iter(KeyedSampler(samples, seed=0)),
    "Mixture, in batches": mixed,
}


def opening(order: Callable[[int], Iterator[int]], samples: int, times: int) -> tuple[float, float]:
    """Milliseconds until the first index, the least of some; nanoseconds for each of those after it, the
    median."""
    firsts, each = [], []
    for _ in range(times):
        began = time.perf_counter()
        indices = order(samples)
        next(indices)
        first = time.perf_counter()
        count = sum(1 for _ in islice(indices, MILLION))
        firsts.append((first - began) * 1e3)
        each.append((time.perf_counter() - first) / count * 1e9)
    return min(firsts), statistics.median(each)


def opened(rounds: int) -> dict[str, dict[str, float]]:
    """What opening costs, by order and number of samples; printed as well."""
    found: dict[str, dict[str, float]] = {}
    table = Table(title="opening an order")
    for heading in ("", "samples", "first index, ms", "each, ns"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, order in ORDERS.items():
        for samples in (MILLION, 1000 * MILLION)[: 1 if name == "RandomSampler" else 2]:
            first, each = opening(order, samples, rounds)
            found[f"{name}, {samples:,}"] = {"first_ms": first, "each_ns": each}
            table.add_row(name, f"{samples:,}", number(first, 2), number(each))
    common.console.print(table)
    return found


def show(
    turns: dict[str, list[Turn]], ratios: dict[str, list[float]], shares: dict[str, list[float]]
) -> None:
    """Prints the loops."""
    table = Table(title="loops")
    for heading in ("", "images/s", "ratio", "least", "most", "CPU us", "in the loop", "added"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, found in turns.items():
        rate, cpu, loop = (statistics.median(each) for each in zip(*found, strict=True))
        shown = (statistics.median(ratios[name]), min(ratios[name]), max(ratios[name]))
        share = number(statistics.median(shares[name]), 4)
        table.add_row(
            name, number(rate), *(number(each, 3) for each in shown), number(cpu), number(loop, 2), share
        )
    common.console.print(table)


def main() -> int:
    """Measures opening, then the loops."""
    arguments = common.parser(__doc__, rounds=9, seconds=3.0).parse_args()
    opening_costs = opened(min(5, arguments.rounds))
    path = common.pack_fresh(
        common.copies(common.corpus(arguments.corpus, "in500"), 4), "orders.fl", workers=arguments.workers
    )
    turns = turns_of(path, arguments)
    ratios = {
        name: [one.rate / plain.rate for one, plain in zip(found, turns[PLAIN], strict=True)]
        for name, found in turns.items()
    }
    shares = {
        name: [
            (one.loop_us - plain.loop_us) / plain.cpu_us
            for one, plain in zip(found, turns[PLAIN], strict=True)
        ]
        for name, found in turns.items()
    }
    show(turns, ratios, shares)
    first = opening_costs[f"KeyedSampler, {1000 * MILLION:,}"]["first_ms"]
    compared = ('shard="auto"', 'shuffle="huge"', "Mixture")
    targets = [
        common.Target("first index of 10**9 samples, ms", first, 10, at_most=True),
        *(
            common.Target(f"{name} / {PLAIN}", statistics.median(ratios[name]), 0.99, digits=3)
            for name in compared
        ),
        *(
            common.Target(
                f"added in the loop's thread, {name}",
                statistics.median(shares[name]),
                0.01,
                digits=4,
                at_most=True,
            )
            for name in compared
        ),
    ]
    return common.finish(
        "orders", arguments, targets, opening=opening_costs, turns=turns, ratios=ratios, added=shares
    )


if __name__ == "__main__":
    sys.exit(main())
