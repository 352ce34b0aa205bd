"""Documents for vision-language models: bins of tokens, their balance over ranks, and the memory of a plan.

    python benchmarks/bench_documents.py [--rounds 3] [--save documents]

Prediction: best fit over pools of some thousand documents leaves less than 1 % of the bins empty, and bins
sorted by patches are balanced within 1.03 of the mean of a step.

Method: orders alone, and nothing read. A round is an epoch with a seed of its own, of 200,000 documents in
bins of 8,192 tokens, 8 bins a step, a rank each. Documents are a model of instruction data such as LLaVA's:
texts of log-normal lengths (median 221 tokens, sigma 0.8), and images of 60 to 256 tokens of 4 patches each:
none (6 %), one (74 %), or 2, 3, 4 or 8.
- waste: part of all bins' tokens that no document has.
- heaviest / mean: of a step's ranks, by patches and by tokens; median and 95th percentile of the steps.
- correlation: of the mean patches of neighbouring steps.
- first fit: documents in random order, each in the first of the 64 last bins that takes it; steps of bins as
  they come. padded: batches of 16 in random order, each as long as its longest document.
- memory: a process takes lengths and patches of 10^7 documents from mapped files of uint32 and goes through
  10 % of an epoch; its own pages beside these files, which a host has once.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import common
import numpy as np
import numpy.typing as npt
from rich.table import Table

from fastload import TokenBatches

DOCUMENTS, PLANNED = 200_000, 10_000_000
TOKENS, BINS = 8192, 8
OPEN = 64
PADDED = 16
Counts = npt.NDArray[np.uint32]


def documents(count: int, seed: int) -> tuple[Counts, Counts]:
    """Tokens and patches of each document."""
    rng = np.random.default_rng(seed)
    text = np.exp(rng.normal(5.4, 0.8, count)).clip(20, 6000)
    images = rng.choice([0, 1, 2, 3, 4, 8], count, p=[0.06, 0.74, 0.08, 0.05, 0.05, 0.02])
    images *= rng.integers(60, 257, count)
    return np.minimum(text + images, TOKENS).astype(np.uint32), (4 * images).astype(np.uint32)


def first_fit(tokens: Counts, seed: int) -> list[list[int]]:
    """Bins of documents in random order."""
    bins: list[list[int]] = []
    rooms: list[int] = []
    for index in np.random.default_rng(seed).permutation(len(tokens)).tolist():
        size = int(tokens[index])
        found = next((at for at in range(max(0, len(bins) - OPEN), len(bins)) if rooms[at] >= size), None)
        if found is None:
            bins.append([index])
            rooms.append(TOKENS - size)
        else:
            bins[found].append(index)
            rooms[found] -= size
    return bins


def padded_waste(tokens: Counts, seed: int) -> float:
    """Waste of batches that are padded to their longest document."""
    order = np.random.default_rng(seed).permutation(len(tokens))[: len(tokens) // PADDED * PADDED]
    batches = tokens[order].reshape(-1, PADDED).astype(np.float64)
    return float(1 - batches.sum() / (PADDED * batches.max(axis=1)).sum())


def judged(bins: Sequence[Sequence[int]], tokens: Counts, patches: Counts) -> common.Json:
    """Waste and balance of bins."""
    whole = len(bins) // BINS * BINS
    filled, work = (
        np.array([values[each].sum() for each in bins[:whole]], np.float64).reshape(-1, BINS)
        for values in (tokens, patches)
    )
    heaviest = work.max(axis=1) / work.mean(axis=1)
    longest = filled.max(axis=1) / filled.mean(axis=1)
    steps = work.mean(axis=1)
    return {
        "waste": float(1 - filled.mean() / TOKENS),
        "patches_median": float(np.median(heaviest)),
        "patches_p95": float(np.percentile(heaviest, 95)),
        "tokens_p95": float(np.percentile(longest, 95)),
        "correlation": float(np.corrcoef(steps[:-1], steps[1:])[0, 1]),
    }


def round_of(seed: int) -> list[common.Json]:
    """One round: each way to fill bins."""
    tokens, patches = documents(DOCUMENTS, seed)
    sampler = TokenBatches(tokens, TOKENS, patches=patches, bins=BINS, seed=seed)
    began = time.perf_counter()
    bins = list(sampler)
    took = (time.perf_counter() - began) / DOCUMENTS * 1e6
    return [
        {"way": "TokenBatches", **judged(bins, tokens, patches), "us": took},
        {"way": "first fit", **judged(first_fit(tokens, seed), tokens, patches)},
        {"way": "padded", "waste": padded_waste(tokens, seed)},
    ]


def own_memory() -> int:
    """Bytes of this process's own pages."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("RssAnon"))


def planned(folder: str) -> None:
    """Prints the own bytes a document of a plan."""
    before = own_memory()
    tokens, patches = (np.load(Path(folder, f"{name}.npy"), mmap_mode="r") for name in ("tokens", "patches"))
    sampler = TokenBatches(tokens, TOKENS, patches=patches, bins=BINS)
    most = 0
    for count, _ in enumerate(islice(sampler, PLANNED // 160)):
        if not count % 100:
            most = max(most, own_memory() - before)
    sys.stdout.write(f"{most / PLANNED}\n")


def memory() -> float:
    """Own bytes a document of a plan of 10^7 documents, beside the 8 of its files."""
    with tempfile.TemporaryDirectory() as folder:
        for name, values in zip(("tokens", "patches"), documents(PLANNED, 0), strict=True):
            np.save(Path(folder, f"{name}.npy"), values)
        return float(subprocess.check_output([sys.executable, __file__, "--plan", folder], text=True))


def shown(rows: list[common.Json]) -> Table:
    """The table of all ways."""
    names = ("waste", "patches_median", "patches_p95", "tokens_p95", "correlation", "us")
    table = Table(title=f"{DOCUMENTS:,} documents, {BINS} bins of {TOKENS:,} tokens a step")
    for heading in ("way", *names):
        table.add_column(heading, justify="left" if heading == "way" else "right")
    for row in rows:
        table.add_row(row["way"], *(f"{row[name]:.4f}" if name in row else "" for name in names))
    return table


def main() -> int:
    """Fills bins, and measures a plan."""
    parser = common.parser(__doc__, rounds=3)
    parser.add_argument("--plan", metavar="DIR", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.plan:
        planned(arguments.plan)
        return 0
    rounds = [round_of(seed) for seed in range(arguments.rounds)]
    rows = [
        {
            name: value if name == "way" else statistics.median(each[at][name] for each in rounds)
            for name, value in first.items()
        }
        for at, first in enumerate(rounds[0])
    ]
    common.console.print(shown(rows))
    ours, held = rows[0], memory()
    common.console.print(
        f"{held:.2f} own bytes a document of a plan of {PLANNED:,}, beside 8 in mapped files"
    )
    targets = [
        common.Target("waste of bins", ours["waste"], 0.01, at_most=True, digits=4),
        common.Target("heaviest rank's patches / mean, median", ours["patches_median"], 1.03, True, 3),
        common.Target("heaviest rank's patches / mean, 95th percentile", ours["patches_p95"], 1.10, True, 3),
        common.Target("longest rank's tokens / mean, 95th percentile", ours["tokens_p95"], 1.02, True, 4),
        common.Target("bytes a document of a plan, in all", 8 + held, 8.5, True),
    ]
    return common.finish("documents", arguments, targets, rows=rows, own_bytes=held)


if __name__ == "__main__":
    sys.exit(main())
