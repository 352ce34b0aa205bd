"""Memory of an order of samples in one process: bytes a sample, by order and by number of samples.

    python benchmarks/bench_order_memory.py [--samples 1e7 1e8]

Method: each line is a process of its own, over a dataset that is a length alone. It draws a list's first
index, or the whole part of an order without a list, and prints the growth of its largest resident set
(getrusage's ru_maxrss) since before the order was made. Ranks are 2 of 8. A resume is by rank 2 of 6, after
each of 8 ranks has had half of its part. Caveats: some MB are caches and buffers that do not grow with the
samples, so that bytes a sample fall with their number. Orders that are lists are measured up to 10^7 samples.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DistributedSampler, RandomSampler

from fastload.sampling.known import shuffle_class
from fastload.sampling.sampler import ShardSampler
from fastload.sampling.sharding import Split

LISTED_MOST = 10**7


def sharded(shuffle: Any) -> Callable[[int], Iterator[Any]]:
    return lambda count: iter(
        ShardSampler(range(count), (2, 8), shuffle=shuffle, seed=1, drop_last=False, even=True)
    )


def resumed(shuffle: str) -> Callable[[int], Iterator[Any]]:
    def order(count: int) -> Iterator[Any]:
        sampler = ShardSampler(range(count), (2, 6), shuffle=shuffle, seed=1, drop_last=False, even=True)
        splits = Split(8, count // 16), Split(6)
        sampler.begun(0, count, splits)  # as a state asks for
        return sampler.part(0, splits, 2)

    return order


def alone(shuffle: str) -> Callable[[int], Iterator[Any]]:
    kind = shuffle_class(shuffle)
    assert kind is not None
    return lambda count: iter(kind(range(count), None))


ORDERS: dict[str, tuple[bool, Callable[[int], Iterator[Any]]]] = {
    "window, one process": (False, alone("window")),
    "window, shard=": (False, sharded("window")),
    "window, resumed by other ranks": (False, resumed("window")),
    "huge, one process": (False, alone("huge")),
    "huge, shard=": (False, sharded("huge")),
    "True, shard=": (True, sharded(True)),
    "True (RandomSampler)": (True, lambda count: iter(RandomSampler(range(count)))),
    "DistributedSampler": (True, lambda count: iter(DistributedSampler(range(count), 8, 2))),  # type: ignore[arg-type]
}
"""For each order: True if it is a list, and its indices for a number of samples."""


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def measured(name: str, count: int) -> None:
    """Prints the bytes that an order takes."""
    listed, order = ORDERS[name]
    before = peak()
    indices = order(count)
    next(indices)
    if not listed:
        deque(indices, maxlen=0)
    sys.stdout.write(f"{peak() - before}\n")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=float, nargs="+", default=[1e7, 1e8])
    parser.add_argument("--one", choices=ORDERS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    counts = [int(each) for each in arguments.samples]
    if arguments.one:
        measured(arguments.one, counts[0])
        return 0
    sys.stdout.write(f"{'order':32}" + "".join(f"{count:>26,}" for count in counts) + "\n")
    for name, (listed, _) in ORDERS.items():
        cells = []
        for count in counts:
            if listed and count > LISTED_MOST:
                cells.append("")
                continue
            command = [sys.executable, __file__, "--one", name, "--samples", str(count)]
            size = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            cells.append(f"{size / 1e6:.0f} MB, {size / count:.2f} a sample")
        sys.stdout.write(f"{name:32}" + "".join(f"{cell:>26}" for cell in cells) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
