"""What hosts_model.py simulates against fastload itself: requests and bytes of two ranks that share a host's
cache.

    python benchmarks/bench_hosts.py [--save hosts]

Method: SeaweedFS on this machine, and before it a TCP proxy that counts requests and bytes and adds 50 ms a
round trip. Raw images of 41 KB in shards of 64 MiB. Two processes, of rank 0 and 1, each train two epochs
with a sleep for a step. A turn begins with an empty cache; what opening the dataset asks for is not counted.
Beside it stands the simulation of one host with two ranks, by orders of the same kinds, the same latency and
the same cache. Both count whole epochs, start and end with them.

Caveats: counts, and no times. Which requests are large depends on times (fastload.remote.fetcher.Pace), so
that the counts of two turns differ where ranges do; by how much depends on what else the machine does. The
simulation knows no bytes of HTTP headers, and they are counted here: 0.5 KB a request.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import common
import numpy as np
from hosts_model import Scenario, Simulation
from remote_runner import BUCKET, Servers
from rich.table import Table

from fastload.store import DatasetWriter, Field, Manifest, Schema
from fastload.transfer import push

Json = dict[str, Any]
HEIGHT, WIDTH = 104, 131
ROUND_TRIP_S = 0.05
PAGE = 4096
RANKS = 2
HERE = Path(__file__).parent


def dataset(count: int) -> Path:
    """Raw images of noise, packed."""
    out = common.WORK / f"hosts-{count}.fl"
    if not (out / "manifest.json").exists():
        shutil.rmtree(out, ignore_errors=True)
        schema = Schema((Field("image", "image"), Field("label", "int")))
        with DatasetWriter(out, schema, shard_size=64 << 20, options={}) as writer:
            for index in range(count):
                image = np.random.default_rng(index).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
                writer.append({"image": image, "label": index}, image_kind="raw", height=HEIGHT, width=WIDTH)
            writer.finish(None, {"samples": count})
    return out


def sample_bytes(path: Path) -> int:
    """Bytes from one stored sample to the next."""
    manifest = Manifest.load(path)
    return round(manifest.bytes / manifest.count / PAGE) * PAGE


def measured(servers: Servers, url: str, s: Scenario, cache: Path) -> Iterator[Json]:
    """Requests and bytes of each epoch of two ranks."""
    shutil.rmtree(cache, ignore_errors=True)
    spec: Json = {
        "url": url, "cache": str(cache),
        "cache_size": int(s.cache * s.dataset_bytes * (2 if s.cache == 1 else 1)), "ranks": RANKS,
        "options": servers.proxied, "batch": s.batch, "depth": s.depth, "seed": s.seed, "order": s.order,
        "epochs": s.epochs,
        "block": s.block, "buffer": s.buffer * s.block, "step_s": s.step_s,
    }  # fmt: skip
    command = [sys.executable, str(HERE / "hosts_rank.py")]
    children = [
        subprocess.Popen(
            [*command, json.dumps({**spec, "rank": rank})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(RANKS)
    ]
    try:
        _heard(children)
        before = servers.counted()
        for _ in range(s.epochs):
            _answer(children)
            _heard(children)
            after = servers.counted()
            yield {name: after[name] - before[name] for name in ("requests", "down")}
            before = after
        _answer(children)
    finally:
        for child in children:
            child.kill()
            child.communicate()


def _heard(children: list[subprocess.Popen[str]]) -> None:
    for child in children:
        assert child.stdout is not None
        if not child.stdout.readline():
            raise RuntimeError(f"a rank ended with status {child.wait()}")


def _answer(children: list[subprocess.Popen[str]]) -> None:
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()


def main() -> int:
    """Measures and simulates each order and size of the cache."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--steps", type=int, default=180, help="of an epoch (default %(default)s)")
    made.add_argument(
        "--rate",
        type=float,
        default=200.0,
        help="images a second that a rank's step takes (default %(default)s)",
    )
    made.add_argument("--save", metavar="NAME", help="keep the result as benchmarks/results/NAME.json")
    made.add_argument("--check", action="store_true", help="exit with status 1 when a target is missed")
    arguments = made.parse_args()
    arguments.rounds, arguments.workers = 1, 2
    batch = 16
    count = RANKS * batch * arguments.steps
    path = dataset(count)
    each = sample_bytes(path)
    common.WORK.mkdir(parents=True, exist_ok=True)
    rows: list[Json] = []
    with Servers(common.WORK / "hosts-weed") as servers:
        url = f"s3://{BUCKET}/{path.name}"
        push(path, url, storage_options=servers.direct, progress=False)
        servers.link(ROUND_TRIP_S)
        for order in ("huge", "window"):
            for share in (0.0, 0.5, 1.0):
                s = Scenario(
                    order=order, cache=share, hosts=1, ranks=RANKS, batch=batch, steps=arguments.steps,
                    rate=arguments.rate, epochs=2,
                    dataset_bytes=count * each, sample_bytes=each, latency=ROUND_TRIP_S,
                    latency_p99=ROUND_TRIP_S, stream=400e6, link=400e6,
                    store_requests=0, buffer=16, held=16 * (2 << 20),
                )  # fmt: skip
                with common.note(f"{order} c = {share:g}"):
                    real = list(measured(servers, url, s, common.WORK / "hosts-cache"))
                for epoch, (mine, found) in enumerate(zip(real, Simulation(s).run(), strict=True), 1):
                    rows.append({
                        "order": order, "cache": share, "epoch": epoch, "requests": mine["requests"],
                        "bytes": mine["down"],
                        "simulated_requests": found.requests, "simulated_bytes": found.bytes,
                        "samples": count,
                    })  # fmt: skip
    shown = Table(title=f"{count:,} samples of {each:,} bytes, one host of two ranks")
    for heading in ("order", "c", "epoch", "requests", "simulated", "x", "MB", "simulated", "x"):
        shown.add_column(heading, justify="left" if heading == "order" else "right")
    worst = [1.0, 1.0]
    for row in rows:
        ratios = [
            row[f"simulated_{name}"] / row[name] if row[name] else 1.0 for name in ("requests", "bytes")
        ]
        asked = f"{row['requests']:,}", f"{row['simulated_requests']:,}", f"{ratios[0]:.2f}"
        came = f"{row['bytes'] / 1e6:,.1f}", f"{row['simulated_bytes'] / 1e6:,.1f}", f"{ratios[1]:.2f}"
        shown.add_row(row["order"], f"{row['cache']:g}", str(row["epoch"]), *asked, *came)
        worst = [
            max(one, ratio, 1 / ratio if ratio else math.inf)
            for one, ratio in zip(worst, ratios, strict=True)
        ]
    common.console.print(shown)
    targets = [
        common.Target(
            "requests, simulated and measured: the larger over the smaller, at most",
            worst[0],
            1.3,
            at_most=True,
        ),
        common.Target("bytes, the same", worst[1], 1.10, at_most=True),
    ]
    return common.finish("hosts", arguments, targets, rows=rows)


if __name__ == "__main__":
    sys.exit(main())
