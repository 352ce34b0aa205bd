"""Memory: proportional set size of the process tree against torch's with two workers, and growth over 50 epochs.

    python benchmarks/bench_memory.py [--rounds 3] [--save memory]

Method: PSS (a page that n processes map counts 1/n in each) summed over the process and all its children, from
/proc/PID/smaps_rollup. Each loader runs alone in a process of its own. Steady: the median of three readings in an
epoch after the measured ones. Growth: a reading after each of 50 epochs; the median of the last ten over the median
of the sixth to fifteenth.
Caveats: mapped pages of a shard (or LMDB) are page cache, which the kernel takes back when it needs memory, but PSS
counts them while they are mapped. Everything in the process counts, the import of torch too.
"""

from __future__ import annotations

import dataclasses
import sys

import common
from rich.table import Table

from fastload.bench import harness
from fastload.bench.measure import median
from fastload.bench.report import number
from fastload.bench.spec import TITLES, TurnSpec

EPOCHS = 50
MB = 1e-6


def growth_bytes(readings: list[int | None]) -> float | None:
    """How much more the last ten readings hold than the sixth to fifteenth; negative where it shrank."""
    early, late = median(readings[5:15]), median(readings[-10:])
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
        base = TurnSpec("fastload", str(packed), images=count, workers=arguments.workers, seconds=arguments.seconds)
        rivals = harness.rival_specs(sources, base, ["pillow", "handwritten"])
        specs = [base, *rivals, dataclasses.replace(base, kind="packed")]
        turns = [(spec.kind, TITLES[spec.kind], harness.loader_turn(spec)) for spec in specs]
        rows = harness.interleave(turns, arguments.rounds, common.note)
    with common.note(f"{EPOCHS} epochs of fastload"):
        spec = TurnSpec(
            "fastload", str(packed_small), mode="growth", images=count // 4, workers=arguments.workers, epochs=EPOCHS
        )
        result = harness.take_turn(spec)
    readings = result["pss_bytes_by_epoch"] if result["ok"] else []
    shown = Table(title="PSS of the process tree, MB")
    for heading in ("", "steady"):
        shown.add_column(heading, justify="right" if heading else "left")
    for row in rows:
        shown.add_row(row.title, row.reason or number(row.median("pss_bytes"), 0, MB))
    for epoch in (1, 10, 20, 30, 40, 50):
        if len(readings) >= epoch:
            shown.add_row(f"fastload, after epoch {epoch}", number(readings[epoch - 1], 1, MB))
    common.console.print(shown)
    grown = growth_bytes(readings)
    targets = [
        common.Target("fastload / torch + Pillow", harness.ratio(rows[0], rows[1], "pss_bytes"), 1.0, at_most=True),
        common.Target(
            "growth over 50 epochs, MB", None if grown is None else grown * MB, 2.0, at_most=True
        ),
    ]  # fmt: skip
    document = [row.to_json() for row in rows]
    return common.finish("memory", arguments, targets, rows=document, pss_bytes_by_epoch=readings)


if __name__ == "__main__":
    sys.exit(main())
