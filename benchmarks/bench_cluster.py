"""Packing on a Ray cluster: two raylets of one CPU against one raylet of one CPU.

    python benchmarks/bench_cluster.py [--rounds 5] [--save cluster]

Method: 5,000 baseline JPEGs (540 MB), page cache warm, lossless, 100 samples a shard, into a folder on the local disk. A turn is a process
that starts a cluster (ray.cluster_utils.Cluster, whose raylets are processes of this machine), packs a few images so that the workers run,
removes them, and times one `fastload.pack(..., ray=True)`; see cluster_turn.py. The driver's work counts: opening the source, sending
tasks, the sidecar and the manifest. A task has one thread for reading and encoding, and writes in another. Beside them stands the pack of
one process without Ray and with one worker thread. All processes share this machine's cores, memory and disk: what is measured is what
tasks of Ray cost, and how well ranges run side by side, and not a network.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import common
from rich.table import Table

import fastload
from fastload.bench import harness, measure
from fastload.bench.listing import list_folder
from fastload.bench.report import number

SHARD_SAMPLES = 100


def cluster(raylets: int, source: Path, out: Path) -> Callable[[int], common.Json]:
    """A turn on a cluster of so many raylets."""
    script = common.HERE / "cluster_turn.py"

    def run(_round: int) -> common.Json:
        shutil.rmtree(out, ignore_errors=True)
        command = [sys.executable, str(script), str(raylets), str(source), str(out), str(SHARD_SAMPLES)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
        shutil.rmtree(out, ignore_errors=True)
        if done.returncode:
            return {"ok": False, "reason": (done.stderr.strip().splitlines() or ["failed"])[-1]}
        return {"ok": True, **json.loads(done.stdout.splitlines()[-1])}

    return run


def alone(source: Path, out: Path) -> Callable[[int], common.Json]:
    """A turn in this process, without Ray."""

    def run(_round: int) -> common.Json:
        shutil.rmtree(out, ignore_errors=True)
        start = time.perf_counter()
        summary = fastload.pack(source, out, shard_samples=SHARD_SAMPLES, workers=1)
        seconds = time.perf_counter() - start
        shutil.rmtree(out, ignore_errors=True)
        return {"ok": True, "seconds": seconds, "samples": summary.samples, "mb_per_s": summary.bytes_in / 1e6 / seconds}

    return run


def main() -> int:
    """Interleaves one and two raylets."""
    made = common.parser(__doc__, rounds=5)
    made.add_argument("--copies", type=int, default=20, help="how often the tree has in500's 250 images (default 20)")
    arguments = made.parse_args()
    source = common.copies(common.corpus(arguments.corpus, "in500"), arguments.copies)
    size = sum(len(path.read_bytes()) for path, _ in list_folder(source))  # reading warms the cache
    out = common.WORK / "cluster-out"
    rows = harness.interleave(
        [
            ("one", "1 raylet x 1 CPU", cluster(1, source, out)),
            ("two", "2 raylets x 1 CPU", cluster(2, source, out)),
            ("alone", "no Ray, 1 worker thread", alone(source, out)),
        ],
        arguments.rounds,
        common.note,
    )
    shown = Table(title=f"{arguments.copies * 250:,} files, {size / 1e6:,.0f} MB")
    for heading in ("", "MB/s", "±", "seconds"):
        shown.add_column(heading, justify="right" if heading else "left")
    for row in rows:
        spread = measure.spread(row.values("mb_per_s"))
        about = "" if spread is None else f"{spread:.1%}"
        shown.add_row(row.title, row.reason or number(row.median("mb_per_s")), about, number(row.median("seconds"), 2))
    common.console.print(shown)
    one, two, _ = rows
    targets = [common.Target("2 raylets / 1 raylet", harness.ratio(two, one, "mb_per_s"), 1.80)]
    details = [{"name": row.name, "reason": row.reason, "rounds": row.turns} for row in rows]
    return common.finish("cluster", arguments, targets, megabytes=size / 1e6, rows=details)


if __name__ == "__main__":
    sys.exit(main())
