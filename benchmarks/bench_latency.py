"""Latency: from iter(loader) to the first batch of 64, and the pause from one epoch to the next.

    python benchmarks/bench_latency.py [--rounds 5] [--save latency]

Method, first batch: in one process, eight loaders are built one after the other and timed from iter() to the
first batch (the first of all, which pays for imports, is dropped); then eight epochs of one loader that lives
on (torch: persistent workers). Building is not counted; it is printed. Method, pause: a *wait* is the time
from asking for a batch to holding it. The pause is the wait across an epoch's turn (the call that ends the
epoch, iter(), the first batch of the next) over the mean wait inside epochs: once with a consumer that sleeps
60 ms on each batch as a training step on a device does, so that the loader is ahead, and once with one that
does nothing. The median over a turn's epochs is shown, with the worst beside it.
"""

from __future__ import annotations

import dataclasses
import sys

import common
from rich.table import Table

from fastload.bench import harness
from fastload.bench.report import number
from fastload.bench.spec import TITLES, TurnSpec

REPEATS = 8
STEP_MS = 60.0  # two threads fill a batch of 64 in about 35 ms


def main() -> int:
    """Measures first batches, then pauses."""
    arguments = common.parser(__doc__, rounds=5, seconds=3.0).parse_args()
    source = common.copies(common.corpus(arguments.corpus, "in500"), 2)
    packed = common.pack_fresh(source, f"{source.name}.fl", workers=arguments.workers)
    with harness.Sources(source) as sources:
        base = TurnSpec(
            "fastload", str(packed), mode="latency", images=len(sources.listing), workers=arguments.workers,
            epochs=REPEATS, seconds=arguments.seconds,
        )  # fmt: skip
        rivals = harness.rival_specs(sources, base, ["pillow", "handwritten"])
        specs = [base, *rivals]
        turns = [(str(spec.kind), TITLES[spec.kind], harness.loader_turn(spec)) for spec in specs]
        firsts = harness.interleave(turns, arguments.rounds, common.note)
        turns = []
        for spec in [base, rivals[0]]:
            for name, step in (("ahead", STEP_MS), ("bound", 0.0)):
                asked = dataclasses.replace(spec, mode="rate", step_ms=step)
                title = f"{TITLES[spec.kind]}, {'step of 60 ms' if step else 'no step'}"
                turns.append((f"{spec.kind}-{name}", title, harness.loader_turn(asked)))
        pauses = harness.interleave(turns, arguments.rounds, common.note)

    shown = Table(title="iter(loader) to the first batch of 64, ms")
    for heading in ("", "fresh loader", "next epoch", "building it"):
        shown.add_column(heading, justify="right" if heading else "left")
    for row in firsts:
        for_row = [row.median(name) for name in ("first_batch_s", "next_first_batch_s", "build_s")]
        shown.add_row(row.title, *(row.reason or number(value, 1, 1000) for value in for_row))
    common.console.print(shown)
    shown = Table(title="pause from epoch to epoch, ms")
    for heading in ("", "median", "worst"):
        shown.add_column(heading, justify="right" if heading else "left")
    for row in pauses:
        for_row = [row.median(name) for name in ("epoch_gap_ms", "epoch_gap_max_ms")]
        shown.add_row(row.title, *(row.reason or number(value, 2) for value in for_row))
    common.console.print(shown)

    ours, pillow = firsts[0], firsts[1]
    fresh, again = "first_batch_s", "next_first_batch_s"
    targets = [
        common.Target(
            "first batch, fresh: fastload / torch", harness.ratio(ours, pillow, fresh), 0.25, at_most=True
        ),
        common.Target(
            "first batch, next epoch: fastload / torch",
            harness.ratio(ours, pillow, again),
            0.25,
            at_most=True,
        ),
        common.Target("pause with a step of 60 ms, ms", pauses[0].median("epoch_gap_ms"), 5, at_most=True),
        common.Target("pause without a step, ms", pauses[1].median("epoch_gap_ms"), 5, at_most=True),
    ]
    rows = [row.to_json() for row in [*firsts, *pauses]]
    return common.finish("latency", arguments, targets, rows=rows)


if __name__ == "__main__":
    sys.exit(main())
