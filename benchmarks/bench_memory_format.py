"""Memory formats: batches in contiguous memory (DataLoader's form, the default) against channels_last ones.

    python benchmarks/bench_memory_format.py [--rounds 5] [--save memory_format]

Method: one loader for each format and dtype, over the same packed photographs with RandomResizedCrop(224),
takes whole epochs in turn for at least --seconds; the decoder's work is the same, only the pass that writes
the rows differs. The ratio of CPU time is the target, since other processes disturb it less than the rate.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import common
import torch

from fastload import FastLoader, PackedDataset
from fastload import transforms as T
from fastload.bench import harness

FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
IMAGENET = T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CASES: dict[str, list[T.Transform]] = {
    "uint8": [T.RandomResizedCrop(224)],
    "float32": [T.RandomResizedCrop(224), IMAGENET],
}


def turn(loader: FastLoader[Any], seconds: float) -> harness.Round:
    """A turn for ``interleave``: whole epochs until the time is up."""

    def run(round_number: int) -> common.Json:
        images, began, cpu = 0, time.perf_counter(), time.process_time()
        while time.perf_counter() - began < seconds:
            images += sum(len(batch[0]) for batch in loader)
        spent = time.process_time() - cpu
        return {
            "ok": True,
            "images_per_s": images / (time.perf_counter() - began),
            "cpu_s_per_1000": spent / images * 1000,
        }

    return run


def main() -> int:
    """Measures both formats for bytes and for floats."""
    arguments = common.parser(__doc__, rounds=5, seconds=3.0).parse_args()
    packed = common.pack_fresh(
        common.corpus(arguments.corpus, "in500"), "in500-formats.fl", workers=arguments.workers
    )
    turns = []
    for case, transform in CASES.items():
        for name, memory_format in FORMATS.items():
            data = PackedDataset(packed, transform=transform)
            loader: FastLoader[Any] = FastLoader(
                data, 64, seed=1, num_workers=arguments.workers, memory_format=memory_format
            )
            list(loader)
            turns.append((f"{case}-{name}", f"{case}, {name}", turn(loader, arguments.seconds)))
    rows = harness.interleave(turns, arguments.rounds, common.note)
    common.show_rates("RandomResizedCrop(224)", rows)
    targets = [
        common.Target(
            f"{case}: CPU of contiguous / channels_last",
            harness.ratio(rows[2 * n], rows[2 * n + 1], "cpu_s_per_1000"),
            1.03,
            True,
        )
        for n, case in enumerate(CASES)
    ]
    return common.finish("memory_format", arguments, targets, rows=[row.to_json() for row in rows])


if __name__ == "__main__":
    sys.exit(main())
