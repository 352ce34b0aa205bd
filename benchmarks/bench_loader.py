"""Throughput: FastLoader against the decoder's floor, torch DataLoader + Pillow, and a careful user's own
loader.

    python benchmarks/bench_loader.py [--rounds 5] [--seconds 4] [--save loader]

Method: decode + RandomResizedCrop(224) + flip to uint8 batches of 64, two threads (or two persistent
workers), page cache warm, whole shuffled epochs with the first dropped. Each turn is a process of its own;
rounds go A B C D A B C D; a ratio is the median over rounds of the ratio of two turns of one round.
Caveats: the floor resizes nothing and reads RAM. It draws boxes of the same distribution, not the same boxes;
over 2,000 images a pass and several passes that leaves about 1% of noise. The corpus is 250 (or 12)
photographs, copied.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import common

from fastload.bench import harness
from fastload.bench.spec import TITLES, TurnSpec

SIZE = 224


def measure_part(
    source: Path, arguments: object, modes: list[str], *, with_rivals: bool
) -> list[harness.Measured]:
    """Interleaves the floor, fastload and (optionally) the rivals over one tree."""
    seconds, workers, rounds = (getattr(arguments, name) for name in ("seconds", "workers", "rounds"))
    packed = common.pack_fresh(source, f"{source.name}.fl", workers=workers)
    with harness.Sources(source) as sources:
        base = TurnSpec(
            "fastload", str(packed), images=len(sources.listing), workers=workers, seconds=seconds, size=SIZE
        )
        specs = [
            base,
            *(harness.rival_specs(sources, base, ["handwritten", "pillow"]) if with_rivals else []),
        ]
        floor = common.floor_turn(source, modes, workers, SIZE, seconds)
        turns = [("floor", "floor: libjpeg-turbo, region", floor)]
        turns += [(spec.kind, TITLES[spec.kind], harness.loader_turn(spec)) for spec in specs]
        return harness.interleave(turns, rounds, common.note)


def mode_ratio(floor: harness.Measured, top: str, bottom: str) -> float:
    """The median over rounds of one mode's rate over another's."""
    rates = [
        (turn["modes"][top]["images_per_s"], turn["modes"][bottom]["images_per_s"]) for turn in floor.turns
    ]
    return statistics.median(float(a / b) for a, b in rates)


def main() -> int:
    """Measures both parts of the corpus."""
    made = common.parser(__doc__, rounds=5, seconds=4.0)
    made.add_argument(
        "--copies", type=int, default=8, help="how often in500's 250 images are listed (default 8)"
    )
    made.add_argument(
        "--part", choices=["in500", "big"], action="append", help="only this part of the corpus"
    )
    arguments = made.parse_args()
    parts = arguments.part or ["in500", "big"]
    targets, details = [], {}
    if "in500" in parts:
        source = common.copies(common.corpus(arguments.corpus, "in500"), arguments.copies)
        floor, ours, hand, pillow = rows = measure_part(source, arguments, ["region"], with_rivals=True)
        common.show_rates(f"in500, {arguments.copies} times", rows)
        common.console.print(common.by_cpu_time(ours, [floor, hand, pillow]))
        cpu = ours.median("cpu_s_per_1000")
        targets += [
            common.Target("fastload / floor's region mode", harness.ratio(ours, floor), 0.90),
            common.Target("fastload / torch DataLoader + Pillow", harness.ratio(ours, pillow), 2.7),
            common.Target("fastload / hand-written", harness.ratio(ours, hand), 1.6),
            common.Target(
                "CPU us an image", None if cpu is None else cpu * 1000, 1060, at_most=True, digits=0
            ),
        ]
        details["in500"] = [row.to_json() for row in rows]
    if "big" in parts:
        source = common.copies(common.corpus(arguments.corpus, "big"), 32)
        floor, ours = rows = measure_part(source, arguments, ["region", "full"], with_rivals=False)
        common.show_rates("big, 32 times", rows)
        common.console.print(common.by_cpu_time(ours, [floor]))
        gain = mode_ratio(floor, "region", "full")
        common.console.print(f"the floor's region mode is {gain:.2f} times its full decode there")
        targets.append(common.Target("big: fastload / floor's region mode", harness.ratio(ours, floor), 0.92))
        details["big"] = [row.to_json() for row in rows]
    return common.finish("loader", arguments, targets, **details)


if __name__ == "__main__":
    sys.exit(main())
