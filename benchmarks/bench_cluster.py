"""Packing on a Ray cluster: two raylets of one CPU against one raylet of one CPU.

    python benchmarks/bench_cluster.py [--rounds 5] [--save cluster]

Method: 5,000 baseline JPEGs (540 MB), page cache warm, 100 samples a shard, into a folder on the local disk:
lossless, where each image is read, checked and written as it is, and with min_side=256, where each is
decoded, shrunk and encoded, and little is written. A turn is a process that starts a cluster
(ray.cluster_utils.Cluster, whose raylets are processes of this machine), packs a few images so that the
workers run, removes them, and times one `fastload.pack(..., ray=True)`; see cluster_turn.py. The driver's
work counts: opening the source, sending tasks, the sidecar and the manifest. A task has one thread. Beside
them stands the pack of one process without Ray, which encodes in one thread and writes in two others. All
processes share this machine's cores, memory and disk: what is measured is what tasks of Ray cost, and how
well ranges run side by side, and not a network.
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

WAYS: dict[str, common.Json] = {
    "lossless": {"shard_samples": 100},
    "min_side=256": {"shard_samples": 100, "min_side": 256},
}
"""Keywords of the packs that are timed."""


def cluster(raylets: int, source: Path, out: Path, options: common.Json) -> Callable[[int], common.Json]:
    """A turn on a cluster of so many raylets."""
    script = common.HERE / "cluster_turn.py"

    def run(_round: int) -> common.Json:
        shutil.rmtree(out, ignore_errors=True)
        command = [sys.executable, str(script), str(raylets), str(source), str(out), json.dumps(options)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
        shutil.rmtree(out, ignore_errors=True)
        if done.returncode:
            return {"ok": False, "reason": (done.stderr.strip().splitlines() or ["failed"])[-1]}
        return {"ok": True, **json.loads(done.stdout.splitlines()[-1])}

    return run


def alone(source: Path, out: Path, options: common.Json) -> Callable[[int], common.Json]:
    """A turn in this process, without Ray."""

    def run(_round: int) -> common.Json:
        shutil.rmtree(out, ignore_errors=True)
        start = time.perf_counter()
        summary = fastload.pack(source, out, workers=1, **options)
        seconds = time.perf_counter() - start
        shutil.rmtree(out, ignore_errors=True)
        return {
            "ok": True,
            "seconds": seconds,
            "samples": summary.samples,
            "mb_per_s": summary.bytes_in / 1e6 / seconds,
        }

    return run


def main() -> int:
    """Interleaves one and two raylets."""
    made = common.parser(__doc__, rounds=5)
    made.add_argument(
        "--copies", type=int, default=20, help="how often the tree has in500's 250 images (default 20)"
    )
    arguments = made.parse_args()
    source = common.copies(common.corpus(arguments.corpus, "in500"), arguments.copies)
    size = sum(len(path.read_bytes()) for path, _ in list_folder(source))  # reading warms the cache
    out = common.WORK / "cluster-out"
    rows = harness.interleave(
        [
            turn
            for way, options in WAYS.items()
            for turn in (
                (f"{way} one", f"{way}: 1 raylet x 1 CPU", cluster(1, source, out, options)),
                (f"{way} two", f"{way}: 2 raylets x 1 CPU", cluster(2, source, out, options)),
                (f"{way} alone", f"{way}: no Ray, 1 worker thread", alone(source, out, options)),
            )
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
        shown.add_row(
            row.title, row.reason or number(row.median("mb_per_s")), about, number(row.median("seconds"), 2)
        )
    common.console.print(shown)
    by_name = {row.name: row for row in rows}
    targets = [
        common.Target(
            f"{way}: 2 raylets / 1 raylet",
            harness.ratio(by_name[f"{way} two"], by_name[f"{way} one"], "mb_per_s"),
            1.80,
        )
        for way in WAYS
    ]
    details = [{"name": row.name, "reason": row.reason, "rounds": row.turns} for row in rows]
    return common.finish("cluster", arguments, targets, megabytes=size / 1e6, rows=details)


if __name__ == "__main__":
    sys.exit(main())
