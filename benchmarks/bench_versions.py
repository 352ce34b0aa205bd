"""Changes of a dataset of ImageNet's number of samples, beside the same changes of one of 1,000.

    python benchmarks/bench_versions.py [--rounds 9] [--save versions]

Method: a large dataset (1,281,167 samples with an int, a float and an image of one pixel, in shards of 16
MiB) and a small one (1,000 samples of the same fields), packed once; each change is made on a folder of hard
links to one of them. In interleaved rounds 1,000 samples are appended to either, with --workers threads; a
text column of as many rows as the large one has is read from a .csv, which is timed by itself, and added to
it: what is left is encoding, writing, checksums and syncing; and a tenth of its samples is dropped by their
indices, which needs opening the dataset. Caveats: samples are as small as they come, so that what depends on
their number is seen; the disk's syncs are part of every figure.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
import numpy as np
from rich.table import Table

import fastload
from fastload.bench.report import number
from fastload.store import DatasetWriter, Field, Schema
from fastload.versions.columns import read_columns

LARGE, SMALL, MORE = 1_281_167, 1_000, 1_000
SCHEMA = Schema((Field("image", "image"), Field("label", "int"), Field("score", "float")))
COLUMN_S = 1.0
"""Bound on adding a text column, without reading its file."""


class More:
    """The samples that are appended."""

    def __len__(self) -> int:
        return MORE

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"image": np.full((1, 1, 3), index % 256, np.uint8), "label": index, "score": index / 7}


def packed(count: int) -> Path:
    """A dataset of so many samples, made where it is not there yet."""
    out = common.WORK / f"versions-{count}.fl"
    if not (out / "manifest.json").exists():
        writer = DatasetWriter(out, SCHEMA, shard_size=16 << 20, options={"encode": "raw"}, overwrite=True)
        for index in range(count):
            writer.append(
                {"image": b"\0\0\0", "label": index, "score": index / 3}, image_kind="raw", height=1, width=1
            )
        writer.finish(None, {"samples": count})
    return out


def timed(path: Path, change: Callable[[Path], object]) -> float:
    """Milliseconds of a change, which is made on a folder of hard links, so that the dataset stays as it
    is."""
    copy = path.with_suffix(".copy")
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    for file in path.iterdir():
        (copy / file.name).hardlink_to(file)
    began = time.perf_counter()
    change(copy)
    took = (time.perf_counter() - began) * 1e3
    shutil.rmtree(copy)
    return took


def main() -> int:
    """Measures each change."""
    arguments: argparse.Namespace = common.parser(__doc__, rounds=9).parse_args()
    large, small = packed(LARGE), packed(SMALL)
    table = common.WORK / "captions.csv"
    if not table.exists():
        table.write_text(
            "caption\n"
            + "".join(f"a picture of thing number {index} in some words\n" for index in range(LARGE))
        )
    gone = np.arange(0, LARGE, 10)
    names = (
        "append to 1,000",
        "append to 1,281,167",
        "read the .csv",
        "add the column, with reading",
        "drop a tenth",
    )
    took: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(arguments.rounds):
        for name, path in ((names[0], small), (names[1], large)):
            took[name].append(
                timed(path, lambda out: fastload.append(out, More(), workers=arguments.workers))
            )
        began = time.perf_counter()
        read_columns(table, None, None)
        took[names[2]].append((time.perf_counter() - began) * 1e3)
        took[names[3]].append(timed(large, lambda out: fastload.add_columns(out, table)))
        took[names[4]].append(timed(large, lambda out: fastload.drop(out, indices=gone)))
    shown = Table(title=f"{LARGE:,} and {SMALL:,} samples, {arguments.rounds} rounds")
    for heading in ("change", "median, ms", "fastest", "slowest"):
        shown.add_column(heading, justify="left" if heading == "change" else "right")
    for name, each in took.items():
        shown.add_row(name, *(number(value, 1) for value in (statistics.median(each), min(each), max(each))))
    common.console.print(shown)
    median = {name: statistics.median(each) for name, each in took.items()}
    targets = [
        common.Target(
            "append to 1,281,167 : to 1,000", median[names[1]] / median[names[0]], 1.25, at_most=True
        ),
        common.Target(
            "add a text column without reading, s",
            (median[names[3]] - median[names[2]]) / 1e3,
            COLUMN_S,
            at_most=True,
        ),
    ]
    rows = [
        {"title": name, "name": name, "rounds": [{"ms": value} for value in each]}
        for name, each in took.items()
    ]
    return common.finish("versions", arguments, targets, samples=LARGE, rows=rows)


if __name__ == "__main__":
    sys.exit(main())
