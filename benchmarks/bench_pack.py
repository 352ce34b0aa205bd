"""Packing: MB/s of `fastload pack` against `cp -r` of the same tree, page cache warm.

    python benchmarks/bench_pack.py [--rounds 5] [--save pack]

Method: 5,000 baseline JPEGs (540 MB). A turn deletes its output, syncs, and times one command from start to
exit as a shell would: `cp -r SRC OUT`, `fastload pack SRC OUT` (lossless, the default) and
`fastload pack SRC OUT --encode keep`. The command's own start-up counts. Beside it stands the time with a
`sync` after it: `cp` leaves all of its writing to the kernel. MB are those of the source tree, for all three.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import common
from rich.table import Table

from fastload.bench import harness, measure
from fastload.bench.listing import list_folder
from fastload.bench.report import number


def turn(command: list[str], out: Path, size: int) -> Callable[[int], common.Json]:
    """Times the command; its output folder is new."""

    def run(_round: int) -> common.Json:
        shutil.rmtree(out, ignore_errors=True)
        os.sync()
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False
        )
        wall = time.perf_counter() - start
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        os.sync()
        synced = time.perf_counter() - start
        shutil.rmtree(out, ignore_errors=True)
        if done.returncode:
            return {"ok": False, "reason": (done.stderr.strip().splitlines() or ["failed"])[-1]}
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return {
            "ok": True,
            "mb_per_s": size / 1e6 / wall,
            "mb_per_s_synced": size / 1e6 / synced,
            "cpu_s": cpu,
        }

    return run


def main() -> int:
    """Interleaves cp and pack."""
    made = common.parser(__doc__, rounds=5)
    made.add_argument(
        "--copies", type=int, default=20, help="how often the tree has in500's 250 images (default 20)"
    )
    arguments = made.parse_args()
    source = common.copies(common.corpus(arguments.corpus, "in500"), arguments.copies)
    files = [path for path, _ in list_folder(source)]
    size = sum(len(path.read_bytes()) for path in files)  # reading warms the cache
    out = common.WORK / "pack-out"
    pack = [
        sys.executable,
        "-m",
        "fastload",
        "pack",
        str(source),
        str(out),
        "--workers",
        str(arguments.workers),
    ]
    rows = harness.interleave(
        [
            ("cp", "cp -r", turn(["cp", "-r", str(source), str(out)], out, size)),
            ("lossless", "fastload pack", turn(pack, out, size)),
            ("keep", "fastload pack --encode keep", turn([*pack, "--encode", "keep"], out, size)),
        ],
        arguments.rounds,
        common.note,
    )
    shown = Table(title=f"{len(files):,} files, {size / 1e6:,.0f} MB")
    for heading in ("", "MB/s", "±", "MB/s with sync"):
        shown.add_column(heading, justify="right" if heading else "left")
    for row in rows:
        spread = measure.spread(row.values("mb_per_s"))
        shown.add_row(
            row.title,
            row.reason or number(row.median("mb_per_s")),
            "" if spread is None else f"{spread:.1%}",
            number(row.median("mb_per_s_synced")),
        )
    common.console.print(shown)
    copy, lossless, keep = rows
    targets = [
        common.Target("pack / cp -r", harness.ratio(lossless, copy, "mb_per_s"), 0.60),
        common.Target("pack --encode keep / cp -r", harness.ratio(keep, copy, "mb_per_s"), 0.60),
    ]
    details = [{"name": row.name, "reason": row.reason, "rounds": row.turns} for row in rows]
    return common.finish("pack", arguments, targets, megabytes=size / 1e6, files=len(files), rows=details)


if __name__ == "__main__":
    sys.exit(main())
