"""Opening a packed dataset with its sidecar and without: 1.28 million small samples in 1 and in 64 shards,
and 10 samples.

    python benchmarks/bench_open.py [--rounds 9] [--save open]

Prediction, from a walk that reads every page of small records and a sidecar of 32 bytes a sample: warm 0.2 s
and 0.03 s, dropped 1.5 s and 0.1 s, 10 samples the same.

Method: samples of 300 bytes and an int, packed once. In turn, each round: the dataset is opened by a walk
over its shards' trees and by its sidecar, warm, and again after the kernel was told to drop the pages of all
its files (posix_fadvise). Timed are opening, and opening and then reading 256 records at random: what comes
before a first batch. 10 samples are opened 200 times a turn. Caveats: dropping pages is a hint, and the disk
may have a cache of its own. Nothing is decoded.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import common
from rich.table import Table

from fastload.bench.report import number
from fastload.store import DatasetReader, DatasetWriter, Field, Manifest, Schema

SAMPLES = 1_281_167
PAYLOAD = 300
RECORDS = 256
SMALL_OPENS = 200


def packed(samples: int, shards: int) -> Path:
    """A dataset of so many samples in about so many shards, made where it is not there yet."""
    out = common.WORK / f"open-{samples}-{shards}.fl"
    if (out / "manifest.json").exists() and not Manifest.load(out).sidecars:
        (out / "manifest.json").unlink()
    if not (out / "manifest.json").exists():
        schema = Schema((Field("payload", "bytes"), Field("label", "int")))
        size = samples * (PAYLOAD + 64) // shards if shards > 1 else 1 << 40
        writer = DatasetWriter(out, schema, shard_size=size, options={}, overwrite=True)
        payload = random.Random(0).randbytes(PAYLOAD + 1024)
        for index in range(samples):
            writer.append({"payload": payload[index % 1024 :][:PAYLOAD], "label": index})
        writer.finish(None, {})
        os.sync()
    return out


def opened(path: Path, sidecars: bool) -> DatasetReader:
    """The dataset, opened by its sidecars or by a walk."""
    if sidecars:
        return DatasetReader(path)
    return DatasetReader(path, manifest=replace(Manifest.load(path), sidecars=()))


def drop_pages(path: Path) -> None:
    """Tells the kernel to drop what it has of a dataset's files."""
    for name in os.listdir(path):
        descriptor = os.open(path / name, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def measure(path: Path, sidecars: bool, prepare: Callable[[Path], None]) -> tuple[float, float]:
    """Milliseconds of opening, and of opening and reading records at random."""
    prepare(path)
    began = time.perf_counter()
    with opened(path, sidecars) as reader:
        opening = time.perf_counter() - began
        rng = random.Random(1)
        for _ in range(RECORDS):
            reader.record(rng.randrange(len(reader)))
        return opening * 1e3, (time.perf_counter() - began) * 1e3


def measure_small(path: Path, sidecars: bool) -> float:
    """Milliseconds of opening a small dataset, warm."""
    began = time.perf_counter()
    for _ in range(SMALL_OPENS):
        opened(path, sidecars).close()
    return (time.perf_counter() - began) * 1e3 / SMALL_OPENS


def main() -> int:
    """Measures each dataset."""
    arguments: argparse.Namespace = common.parser(__doc__, rounds=9).parse_args()
    shown = Table(title=f"{SAMPLES:,} samples of {PAYLOAD} bytes: median (range), ms")
    for heading in ("shards", "pages", "what", "walk", "sidecar", "walk / sidecar"):
        shown.add_column(heading, justify="left" if heading in ("pages", "what") else "right")
    rows, targets = [], []

    def add(
        shards: int, pages: str, what: str, walk: list[float], sidecar: list[float], bound: float
    ) -> None:
        texts = [
            f"{number(statistics.median(each), 2)} ({number(min(each), 2)} - {number(max(each), 2)})"
            for each in (walk, sidecar)
        ]
        times = statistics.median(one / other for one, other in zip(walk, sidecar, strict=True))
        shown.add_row(str(shards), pages, what, *texts, number(times, 2))
        rows.append({"shards": shards, "pages": pages, "what": what, "walk_ms": walk, "sidecar_ms": sidecar})
        targets.append(common.Target(f"{what}, {shards} shards, {pages}: walk / sidecar", times, bound))

    for shards in (1, 64):
        path = packed(SAMPLES, shards)
        for pages, prepare in (("warm", lambda _: None), ("dropped", drop_pages)):
            found = [
                [measure(path, sidecars, prepare) for sidecars in (False, True)]
                for _ in range(arguments.rounds)
            ]
            for at, what in enumerate(("opening", f"and {RECORDS} records")):
                add(
                    shards, pages, what, [each[0][at] for each in found], [each[1][at] for each in found], 1.0
                )
    small = packed(10, 1)
    pairs = [(measure_small(small, False), measure_small(small, True)) for _ in range(arguments.rounds)]
    add(1, "warm", "opening 10 samples", [each[0] for each in pairs], [each[1] for each in pairs], 0.97)
    common.console.print(shown)
    return common.finish("open", arguments, targets, samples=SAMPLES, rows=rows)


if __name__ == "__main__":
    sys.exit(main())
