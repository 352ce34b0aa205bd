"""ds.where() over ImageNet's number of samples: the first call, and those after it.

    python benchmarks/bench_where.py [--rounds 15] [--save where]

Method: 1,281,167 samples with an int, a float and an image of one pixel, packed once. Opening reads and
checks the columns and is timed by itself. Then in one process each condition, over two fields and the stored
width, is asked --rounds times; the first call of the first condition imports DuckDB and Arrow and makes the
connection. What is timed ends with the Subset. Every result is compared with NumPy's on the same columns,
whose time is shown beside it: that is the floor, as it reads each column once and parses nothing. Caveats:
the columns are memory of the process, so no disk is measured. A condition on a text field reads every record
first; that is not measured here.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import common
import numpy as np
from rich.table import Table

from fastload import PackedDataset
from fastload.bench.report import number
from fastload.store import DatasetWriter, Field, Schema

SAMPLES = 1_281_167
LATER_MS = 100.0
"""Bound on the median of later calls."""

Columns = dict[str, np.ndarray]
CONDITIONS: dict[str, Callable[[Columns], np.ndarray]] = {
    "label in (3, 7) and width >= 1": lambda c: np.isin(c["label"], (3, 7)) & (c["width"] >= 1),
    "score > 0.5": lambda c: c["score"] > 0.5,
    "label % 10 = 3 or (score between 0.2 and 0.4 and width < 300)": lambda c: (
        (c["label"] % 10 == 3) | ((c["score"] >= 0.2) & (c["score"] <= 0.4) & (c["width"] < 300))
    ),
}


def packed() -> Path:
    """The dataset, made where it is not there yet."""
    out = common.WORK / "where.fl"
    if not (out / "manifest.json").exists():
        rng = np.random.default_rng(0)
        schema = Schema((Field("image", "image"), Field("label", "int"), Field("score", "float")))
        writer = DatasetWriter(out, schema, shard_size=1 << 30, options={}, overwrite=True)
        labels, scores = rng.integers(0, 1000, SAMPLES).tolist(), rng.random(SAMPLES).tolist()
        for label, score in zip(labels, scores, strict=True):
            writer.append(
                {"image": b"\0\0\0", "label": label, "score": score}, image_kind="raw", height=1, width=1
            )
        writer.finish(None, {})
    return out


def asked(ds: PackedDataset, condition: str, rounds: int) -> list[float]:
    """Milliseconds of each call."""
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        ds.where(condition)
        took.append((time.perf_counter() - began) * 1e3)
    return took


def main() -> int:
    """Measures each condition."""
    arguments: argparse.Namespace = common.parser(__doc__, rounds=15).parse_args()
    path = packed()
    began = time.perf_counter()
    ds = PackedDataset(path)
    opening = (time.perf_counter() - began) * 1e3
    columns = {"label": ds.column("label"), "score": ds.column("score"), "width": ds.column("__width__")}
    shown = Table(title=f"{SAMPLES:,} samples; opening took {number(opening)} ms")
    for heading in ("condition", "rows", "first, ms", "later, ms", "slowest later", "NumPy, ms"):
        shown.add_column(heading, justify="left" if heading == "condition" else "right")
    rows, targets = [], []
    for condition, floor in CONDITIONS.items():
        first, *later = asked(ds, condition, max(arguments.rounds, 2))
        began = time.perf_counter()
        expected = np.flatnonzero(floor(columns))
        numpy_ms = (time.perf_counter() - began) * 1e3
        if not np.array_equal(ds.where(condition).indices, expected):
            common.console.print(f"{condition}: other rows than NumPy finds", style="red")
            return 1
        median = statistics.median(later)
        shown.add_row(
            condition,
            f"{len(expected):,}",
            *(number(each, 1) for each in (first, median, max(later), numpy_ms)),
        )
        rounds = [{"first_ms": first, "later_ms": each, "numpy_ms": numpy_ms} for each in later]
        rows.append({"title": condition, "name": condition, "rounds": rounds})
        targets.append(
            common.Target(f"{condition}: later calls, ms", median, LATER_MS, at_most=True, digits=1)
        )
    common.console.print(shown)
    return common.finish("where", arguments, targets, samples=SAMPLES, opening_ms=opening, rows=rows)


if __name__ == "__main__":
    sys.exit(main())
