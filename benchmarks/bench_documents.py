"""Documents for vision-language models: bins of tokens, their balance over ranks, and the memory of a plan;
and patches of photographs, against transformers' processor under torch's DataLoader.

    python benchmarks/bench_documents.py [--rounds 3] [--only plans patches lists] [--save documents]

Predictions: best fit over pools of some thousand documents leaves less than 1 % of the bins empty, and bins
sorted by patches are balanced within 1.03 of the mean of a step. Patches take a fifth of the CPU time of
transformers', which decodes all of an image by Pillow and converts floats image by image.

Plans: orders alone, and nothing read. A round is an epoch with a seed of its own, of 200,000 documents in
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

Patches: a turn is a process. Batches of 8, of at most 448 x 448 pixels an image, normalised float32, by two
threads or workers; CPU time of all processes and images a second over whole epochs after the first. Ratios
are of neighbours in a round, CPU time over fastload's.

Lists: the same patches of samples of 1 to 4 images each, over those of the images by themselves, which are
the same records: what samples of any number of images cost.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import common
import numpy as np
import numpy.typing as npt
import torch
from rich.table import Table
from torch.utils.data import DataLoader

from fastload import FastLoader, PackedDataset, TokenBatches, pack
from fastload import transforms as T
from fastload.bench.listing import list_folder
from fastload.bench.measure import tree_cpu_seconds

DOCUMENTS, PLANNED = 200_000, 10_000_000
TOKENS, BINS = 8192, 8
OPEN = 64
PADDED = 16
Counts = npt.NDArray[np.uint32]
MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


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


LIMITS = {"min_pixels": 56 * 56, "max_pixels": 448 * 448}
WAYS = ("transformers", "scale 1", "DCT scale", "dct")
BOUNDS = {"scale 1": 4.0, "DCT scale": 5.0, "dct": 7.0}
SECONDS = 4.0


class _Processed:
    """Photographs as a user of transformers reads them."""

    def __init__(self, files: Sequence[Path]) -> None:
        sys.path.append(str(common.HERE.parent / "tests"))
        import torchvision_ops  # noqa: F401  (torchvision, which transformers imports, asks for its operators)
        from torchvision.datasets.folder import default_loader
        from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor

        self.files, self.open, self.processor = files, default_loader, Qwen2VLImageProcessor(**LIMITS)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        made = self.processor(images=self.open(str(self.files[index])), return_tensors="pt")
        return made["pixel_values"], made["image_grid_thw"]


def _joined(samples: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> list[torch.Tensor]:
    return [torch.cat(each) for each in zip(*samples, strict=True)]


def loader_of(way: str, photographs: Path) -> Iterable[Any]:
    """The loader of a turn."""
    if way == "transformers":
        files = [path for path, _ in list_folder(photographs)]
        return DataLoader(
            _Processed(files), 8, num_workers=2, collate_fn=_joined, persistent_workers=True, shuffle=True
        )
    folder = common.WORK / f"documents-{photographs.name}{'-dct' * (way == 'dct')}.fl"
    if not folder.exists():
        pack(photographs, folder, encode="dct" if way == "dct" else "lossless", progress=False)
    steps = [T.Patches(**LIMITS, dct_scale=way != "scale 1"), T.Normalize(MEAN, STD)]
    return FastLoader(PackedDataset(folder, steps, fields=("image",)), 8, num_workers=2, shuffle=True)


def listed(way: str, photographs: Path) -> Iterable[Any]:
    """Batches of samples of 1 to 4 images, or of about as many of their images."""
    out = common.WORK / f"documents-{photographs.name}-lists.fl"
    files, lines, at = [path for path, _ in list_folder(photographs)], list[str](), 0
    while at < len(files):
        count = len(lines) % 4 + 1
        lines.append(json.dumps({"images": [str(path) for path in files[at : at + count]]}))
        at += count
    if not out.exists():
        source = out.with_suffix(".jsonl")
        source.write_text("\n".join(lines))
        pack(source, out, progress=False)
    steps = [T.Patches(**LIMITS, dct_scale=False), T.Normalize(MEAN, STD)]
    if way == "lists":
        return FastLoader(PackedDataset(out, steps), 3, num_workers=2, shuffle=True)
    alone = PackedDataset(out / "images", steps, fields={"images": "image"})
    return FastLoader(alone, 8, num_workers=2, shuffle=True)


def lists(arguments: argparse.Namespace) -> tuple[list[common.Json], list[common.Target]]:
    """Turns of samples of several images, and of the images by themselves."""
    folder = common.copies(common.corpus(arguments.corpus, "in500"), 2)
    ratios = []
    for _ in range(arguments.rounds):
        told = {}
        for way in ("alone", "lists"):
            command = [sys.executable, __file__, "--turn", way, "--photographs", str(folder)]
            told[way] = float(subprocess.check_output(command, text=True).split()[-2])
        ratios.append(told["lists"] / told["alone"])
    ratio = statistics.median(ratios)
    common.console.print(f"samples of 1 to 4 images: CPU an image x {ratio:.3f} of the images by themselves")
    return [{"way": "lists", "cpu": ratio}], [
        common.Target("lists: CPU an image / the images alone", ratio, 1.1, at_most=True, digits=3)
    ]


def turn(way: str, photographs: Path) -> None:
    """Prints CPU seconds and seconds an image."""
    loader = (listed if way in ("lists", "alone") else loader_of)(way, photographs)
    for _ in loader:
        pass
    began, cpu, count = time.perf_counter(), tree_cpu_seconds(), 0
    while time.perf_counter() - began < SECONDS:
        count += sum(
            len(batch["image" if "image" in batch else "images"].image_grid_thw)
            if isinstance(batch, dict)
            else len(batch[1])
            for batch in loader
        )
    sys.stdout.write(f"{(tree_cpu_seconds() - cpu) / count} {(time.perf_counter() - began) / count}\n")


def patches(arguments: argparse.Namespace) -> tuple[list[common.Json], list[common.Target]]:
    """Turns of all ways, interleaved."""
    rows, targets = [], []
    for name in ("in500", "big"):
        folder = common.copies(common.corpus(arguments.corpus, name), 2 if name == "in500" else 8)
        found: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
        for _ in range(arguments.rounds):
            for way in WAYS:
                command = [sys.executable, __file__, "--turn", way, "--photographs", str(folder)]
                told = subprocess.check_output(command, text=True).split()
                found[way].append((float(told[-2]), float(told[-1])))
        theirs = found["transformers"]
        for way in WAYS:
            cpu, rate = (
                statistics.median(their[at] / own[at] for their, own in zip(theirs, found[way], strict=True))
                for at in (0, 1)
            )
            own = statistics.median(each[0] for each in found[way])
            rows.append({"photographs": name, "way": way, "cpu_ms": own * 1e3, "cpu": cpu, "rate": rate})
            common.console.print(
                f"{name}, {way}: {own * 1e3:.2f} ms of CPU an image, x {cpu:.2f}; rate x {rate:.2f}"
            )
            if way in BOUNDS:
                targets.append(common.Target(f"{name}, {way}: transformers' CPU / ours", cpu, BOUNDS[way]))
    return rows, targets


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
    """Runs the parts that --only names."""
    parser = common.parser(__doc__, rounds=3)
    parser.add_argument("--only", nargs="*", default=["plans", "patches", "lists"])
    parser.add_argument("--plan", metavar="DIR", help=argparse.SUPPRESS)
    parser.add_argument("--turn", metavar="WAY", help=argparse.SUPPRESS)
    parser.add_argument("--photographs", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.plan:
        planned(arguments.plan)
        return 0
    if arguments.turn:
        turn(arguments.turn, arguments.photographs)
        return 0
    result: common.Json = {}
    targets: list[common.Target] = []
    if "plans" in arguments.only:
        result["plans"], found = plans(arguments)
        targets += found
    for name, run in (("patches", patches), ("lists", lists)):
        if name in arguments.only:
            result[name], found = run(arguments)
            targets += found
    return common.finish("documents", arguments, targets, **result)


def plans(arguments: argparse.Namespace) -> tuple[list[common.Json], list[common.Target]]:
    """Fills bins, and measures the memory of a plan."""
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
    return [*rows, {"way": "a plan", "own_bytes": held}], targets


if __name__ == "__main__":
    sys.exit(main())
