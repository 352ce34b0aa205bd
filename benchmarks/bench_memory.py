"""Memory: proportional set size of the process tree against torch's with two workers, and growth over 50
epochs.

    python benchmarks/bench_memory.py [--rounds 3] [--save memory]

Method: PSS (a page that n processes map counts 1/n in each) summed over the process and all its children,
from /proc/PID/smaps_rollup. Each loader runs alone in a process of its own. Steady: the median of three
readings in an epoch after the measured ones. Growth: a reading after each of 50 epochs; the median of the
last ten less that of the sixth to fifteenth. What the process allocates (anon, shmem) may not grow; mapped
pages of the shard come and go (file), which moves the whole by some MB from reading to reading.
Caveats: mapped pages of a shard (or LMDB) are page cache, which the kernel takes back when it needs memory,
but PSS counts them while they are mapped. Everything in the process counts, the import of torch too.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence

import common
from rich.table import Table

from fastload.bench import harness
from fastload.bench.measure import median
from fastload.bench.report import number
from fastload.bench.spec import TITLES, TurnSpec

EPOCHS = 50
MB = 1e-6
PARTS = ("anon", "file", "shmem")


def growth_mb(readings: list[dict[str, int] | None], parts: Sequence[str]) -> float | None:
    """How much more the last ten readings hold in these parts than the sixth to fifteenth; negative where
    it shrank."""
    sums = [None if reading is None else sum(reading[part] for part in parts) * MB for reading in readings]
    early, late = median(sums[5:15]), median(sums[-10:])
    return None if early is None or late is None else late - early


def main() -> int:
    """Measures steady memory, then growth."""
    arguments = common.parser(__doc__, rounds=3, seconds=3.0).parse_args()
    source = common.copies(common.corpus(arguments.corpus, "in500"), 8)
    small = common.copies(common.corpus(arguments.corpus, "in500"), 2)
    packed = common.pack_fresh(source, f"{source.name}.fl", workers=arguments.workers)
    packed_small = common.pack_fresh(small, f"{small.name}.fl", workers=arguments.workers)
    with harness.Sources(source) as sources:
        count = len(sources.listing)
        base = TurnSpec(
            "fastload", str(packed), images=count, workers=arguments.workers, seconds=arguments.seconds
        )
        rivals = harness.rival_specs(sources, base, ["pillow", "handwritten"])
        specs = [base, *rivals, dataclasses.replace(base, kind="packed")]
        turns = [(spec.kind, TITLES[spec.kind], harness.loader_turn(spec)) for spec in specs]
        rows = harness.interleave(turns, arguments.rounds, common.note)
    with common.note(f"{EPOCHS} epochs of fastload"):
        spec = TurnSpec(
            "fastload",
            str(packed_small),
            mode="growth",
            images=count // 4,
            workers=arguments.workers,
            epochs=EPOCHS,
        )
        result = harness.take_turn(spec)
    readings = result["pss_by_epoch"] if result["ok"] else []
    shown = Table(title="PSS of the process tree, MB")
    for heading in ("", "all", *PARTS):
        shown.add_column(heading, justify="right" if heading else "left")
    for row in rows:
        last = row.turns[-1]["pss_parts"] if row.turns else None
        parts = [number(last[part] if last else None, 0, MB) for part in PARTS]
        shown.add_row(row.title, row.reason or number(row.median("pss_bytes"), 0, MB), *parts)
    for epoch in range(10, len(readings) + 1, 10):
        reading = readings[epoch - 1] or {}
        values = [number(reading.get(part), 1, MB) for part in ("pss", *PARTS)]
        shown.add_row(f"fastload, {2 * 250} images, after epoch {epoch}", *values)
    common.console.print(shown)
    targets = [
        common.Target(
            "fastload / torch + Pillow", harness.ratio(rows[0], rows[1], "pss_bytes"), 1.0, at_most=True
        ),
        common.Target("growth, anon + shmem, MB", growth_mb(readings, ["anon", "shmem"]), 1.0, at_most=True),
        common.Target("growth, all, MB", growth_mb(readings, ["pss"]), 8.0, at_most=True),
    ]
    document = [row.to_json() for row in rows]
    return common.finish("memory", arguments, targets, rows=document, pss_by_epoch=readings)


if __name__ == "__main__":
    sys.exit(main())
