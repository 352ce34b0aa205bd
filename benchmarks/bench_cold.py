"""Cold page cache: an epoch in random order straight after drop_caches, against the same epoch warm. Needs
root.

    sudo python benchmarks/bench_cold.py [--rounds 5] [--save cold]

Method: about 5,000 photographs (540 MB), packed. A turn is one process: it imports, then waits; the parent
syncs and drops the page cache (cold) or reads the shards once (warm); then the child delivers one batch of
another, small dataset, opens the dataset and runs one shuffled epoch of batches of 64. The rate counts from
iter() to the last batch, start-up included. Rounds alternate cold and warm.
The one batch before is there because dropping the page cache also evicts whatever of torch's, numpy's and
this package's code is not mapped yet: each first call then waits for a fault that reads megabytes of a
library around it. That is a program's start, not the reading of data; the row "and its code" is the same
epoch without that batch before. Caveats: below the kernel's cache there may be others (the disk's, a
hypervisor's) that nothing here empties. The MB read from storage, as the kernel counts them, are printed: a
cold epoch must have read the dataset, a warm one nothing.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import common
from rich.table import Table

from fastload.bench import harness, measure
from fastload.bench.report import number
from fastload.bench.spec import TITLES, TurnSpec

DROP = Path("/proc/sys/vm/drop_caches")


def make_cold() -> None:
    """Writes back what is dirty, then drops the page cache, dentries and inodes."""
    os.sync()
    DROP.write_text("3\n", encoding="ascii")


def read_all(folder: Path) -> float:
    """Reads every file of a dataset in order; returns MB/s."""
    start, total = time.perf_counter(), 0
    for path in sorted(folder.iterdir()) if folder.is_dir() else [folder]:
        with path.open("rb", buffering=0) as file:
            while count := len(file.read(8 << 20)):
                total += count
    return total / 1e6 / (time.perf_counter() - start)


def turn(spec: TurnSpec, prepare: Callable[[], object]) -> Callable[[int], common.Json]:
    """One epoch after ``prepare``."""
    return lambda number: harness.take_turn(
        dataclasses.replace(spec, seed=number), before_epoch=lambda: (prepare(), None)[1]
    )


def main() -> int:
    """Alternates cold and warm epochs."""
    made = common.parser(__doc__, rounds=5)
    made.add_argument(
        "--copies", type=int, default=20, help="how often in500's 250 images are packed (default 20)"
    )
    made.add_argument("--rivals", action="store_true", help="also the hand-written loader, cold")
    arguments = made.parse_args()
    if not os.access(DROP, os.W_OK):
        common.console.print("dropping the page cache needs root on Linux: run this with sudo", style="red")
        return 2
    source = common.copies(common.corpus(arguments.corpus, "in500"), arguments.copies)
    packed = common.pack_fresh(source, f"{source.name}.fl", workers=arguments.workers)
    small = common.pack_fresh(
        common.copies(common.corpus(arguments.corpus, "in500"), 1), "rehearsal.fl", workers=arguments.workers
    )
    make_cold()
    disk = read_all(packed)
    with harness.Sources(source) as sources:
        images = len(sources.listing)
        bare = TurnSpec("fastload", str(packed), mode="once", images=images, workers=arguments.workers)
        spec = dataclasses.replace(bare, rehearsal=str(small))
        turns = [
            ("cold", "fastload, cold", turn(spec, make_cold)),
            ("warm", "fastload, warm", turn(spec, lambda: read_all(packed))),
            ("cold code", "fastload, cold, and its code", turn(bare, make_cold)),
        ]
        if arguments.rivals:
            (hand,) = harness.rival_specs(sources, bare, ["handwritten"])
            turns.append(("handwritten", f"{TITLES['handwritten']}, cold", turn(hand, make_cold)))
        rows = harness.interleave(turns, arguments.rounds, common.note)
    shown = Table(title=f"{images:,} images, sequential cold read of the shards {disk:,.0f} MB/s")
    for heading in ("", "images/s", "±", "first batch, ms", "CPU us an image", "MB read"):
        shown.add_column(heading, justify="right" if heading else "left")
    for row in rows:
        spread = measure.spread(row.values("images_per_s"))
        shown.add_row(
            row.title,
            row.reason or number(row.median("images_per_s")),
            "" if spread is None else f"{spread:.1%}",
            number(row.median("first_batch_s"), 0, 1000),
            number(row.median("cpu_s_per_1000"), 0, 1000),
            number(row.median("read_bytes"), 0, 1e-6),
        )
    common.console.print(shown)
    targets = [
        common.Target("cold / warm", harness.ratio(rows[0], rows[1]), 0.95, digits=3),
        common.Target("cold, and its code / warm", harness.ratio(rows[2], rows[1]), 0.95, digits=3),
    ]
    return common.finish("cold", arguments, targets, disk_mb_per_s=disk, rows=[row.to_json() for row in rows])


if __name__ == "__main__":
    sys.exit(main())
