"""Time until epochs 1, 2, 5 and 10 of photographs that nobody has packed have ended; what a loader makes of
them first counts.

    python benchmarks/bench_epochs.py [--rounds 3] [--times 8] [--no-ffcv] [--plot epochs.svg] [--save epochs]

Method: a folder with --times copies of each photograph of the corpus, in the page cache. In turn, each round,
all epochs of: torch's DataLoader; the same with the decoded pixels as .npy files beside it, as ultralytics'
cache="disk" writes them in the first epoch; the same with MONAI's PersistentDataset, where it is installed;
FastLoader on the ImageFolder, with a new cache=, with that and cache_side=256, and packed before, lossless
and as dct; ffcv in its own environment (make peers), whose epochs are its writing and 10 times its rate.
RandomResizedCrop(224), flip, ToTensor of torchvision for all but ffcv, which has its own; batches of 64. A
loop takes batches without a pause, so that the cache has no time that nobody wants.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import bench_peers
import common
import environments
import numpy as np
from PIL import Image
from rich.console import Console
from rich.table import Table

import fastload
from fastload import FastLoader, PackedDataset
from fastload.bench.harness import BenchError

EPOCHS = 10
SHOWN = (1, 2, 5, 10)
FFCV_S = 10.0
"""Seconds for which ffcv's rate is measured."""
OPTIONS: dict[str, Any] = {"batch_size": 64, "shuffle": True}
Times = list[float]
"""Seconds from the beginning to the end of each epoch."""


class Arrays:
    """Opens an image as ImageFolder does, from an .npy file of its pixels, which the first call writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, path: str) -> Image.Image:
        kept = self.folder / f"{Path(path).parent.name}-{Path(path).stem}.npy"
        if kept.exists():
            return Image.fromarray(np.load(kept))
        pixels = opened(path)
        np.save(kept, np.asarray(pixels))
        return pixels


def opened(path: str) -> Image.Image:
    """A file's pixels."""
    from torchvision.datasets.folder import pil_loader

    return pil_loader(path)


def tensor_of(path: str) -> Any:
    """A file's pixels as a tensor (height, width, 3)."""
    import torch

    return torch.from_numpy(np.array(opened(path)))


def ends(loader: Iterable[Any], began: float) -> Times:
    """Runs all epochs."""
    found = []
    for _ in range(EPOCHS):
        for _ in loader:
            pass
        found.append(time.perf_counter() - began)
    return found


def steps() -> Any:
    from torchvision import transforms

    return transforms.Compose(
        [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    )


def by_torch(dataset: Any, workers: int) -> Times:
    from torch.utils.data import DataLoader

    began = time.perf_counter()
    return ends(DataLoader(dataset, num_workers=workers, **OPTIONS), began)


def by_monai(tree: Path, scratch: Path, workers: int) -> Times:
    from monai.data import PersistentDataset
    from monai.transforms import Compose, Lambda
    from torchvision.datasets import ImageFolder

    files = [path for path, _ in ImageFolder(str(tree)).samples]
    # What is a transform of MONAI's, and not random, is kept, as a tensor; the others run in each epoch.
    rest = steps()
    transform = Compose([Lambda(tensor_of), lambda pixels: rest(Image.fromarray(pixels.numpy()))])
    return by_torch(PersistentDataset(files, transform, scratch / "monai"), workers)


def in_place(tree: Path, scratch: Path, workers: int, **cache: Any) -> Times:
    from torchvision.datasets import ImageFolder

    began = time.perf_counter()
    if cache:
        cache["cache"] = scratch / "kept"
    options = {"num_workers": workers, "engine": "native", **cache, **OPTIONS}
    with FastLoader(ImageFolder(str(tree), steps()), **options) as loader:
        return ends(loader, began)


def packed(tree: Path, scratch: Path, workers: int, **how: Any) -> Times:
    began = time.perf_counter()
    fastload.pack(tree, scratch / "train.fl", workers=workers, **how)
    data = PackedDataset(scratch / "train.fl", transform=steps())
    with FastLoader(data, num_workers=workers, **OPTIONS) as loader:
        return ends(loader, began)


def by_ffcv(tree: Path, scratch: Path, workers: int) -> Times:
    """Its writing, and its epochs by its rate. Raises BenchError."""
    peer = next(each for each in bench_peers.PEERS if each.name == "ffcv")
    python = environments.python_of(peer.program, bench_peers.HOMES)
    listing = scratch / "listing.json"
    listing.write_text(json.dumps(bench_peers.files_of(tree)))
    task = {
        "tree": str(tree),
        "listing": str(listing),
        "data": str(scratch / "train.beton"),
        "coco": "",
        "size": bench_peers.SIZE,
        "work": "crop",
        "batch": OPTIONS["batch_size"],
        "workers": workers,
        "seconds": FFCV_S,
        "seed": 0,
        "memory": False,
    }
    began = time.perf_counter()
    made = bench_peers.child(python, peer, task="make", **task)
    wrote = time.perf_counter() - began
    rate = bench_peers.child(python, peer, task="rate", **task)
    for each in (made, rate):
        if not each["ok"]:
            raise BenchError(f"ffcv: {each['reason']}")
    count = len(bench_peers.files_of(tree))
    return [wrote + number * count / rate["images_per_s"] for number in range(1, EPOCHS + 1)]


def loaders(arguments: argparse.Namespace, tree: Path) -> dict[str, Callable[[Path], Times]]:
    """All loaders by their names; each takes an empty folder."""
    import importlib.util

    from torchvision.datasets import ImageFolder

    workers = arguments.workers
    found: dict[str, Callable[[Path], Times]] = {
        "torch DataLoader": lambda scratch: by_torch(ImageFolder(str(tree), steps()), workers),
        "the same, .npy files": lambda scratch: by_torch(
            ImageFolder(str(tree), steps(), loader=Arrays(scratch)), workers
        ),
        "FastLoader": lambda scratch: in_place(tree, scratch, workers),
        "FastLoader, cache=": lambda scratch: in_place(tree, scratch, workers, cache_size=None),
        "FastLoader, cache_side=256": lambda scratch: in_place(tree, scratch, workers, cache_side=256),
        "fastload pack": lambda scratch: packed(tree, scratch, workers),
        "fastload pack --encode dct": lambda scratch: packed(tree, scratch, workers, encode="dct"),
    }
    if importlib.util.find_spec("monai") is not None:
        found["MONAI PersistentDataset"] = lambda scratch: by_monai(tree, scratch, workers)
    if not arguments.no_ffcv:
        found["ffcv"] = lambda scratch: by_ffcv(tree, scratch, workers)
    return found


def plot(path: Path, times: dict[str, Times]) -> None:
    """Draws the seconds of each loader over epochs."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for name, ended in times.items():
        axes.plot(range(EPOCHS + 1), [0.0, *ended], label=name)
    axes.set(xlabel="epoch", ylabel="seconds to its end", xlim=(0, EPOCHS), ylim=(0, None))
    axes.legend()
    figure.savefig(path)


def main() -> int:
    """Measures in a temporary folder."""
    parser = common.parser(__doc__, rounds=3)
    parser.add_argument("--times", type=int, default=8, help="How often the corpus is listed.")
    parser.add_argument("--no-ffcv", action="store_true", help="Leaves ffcv out, which is built first.")
    parser.add_argument("--plot", type=Path, help="Draws the medians (matplotlib).")
    arguments = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    import torchvision_ops  # noqa: F401  (beside torch's CPU build)

    tree = common.copies(common.corpus(arguments.corpus, "in500"), arguments.times)
    rounds: dict[str, list[Times]] = {}
    for number in range(arguments.rounds):
        for name, run in loaders(arguments, tree).items():
            with tempfile.TemporaryDirectory() as scratch, common.note(f"round {number + 1}: {name}"):
                rounds.setdefault(name, []).append(run(Path(scratch)))
    times = {
        name: [statistics.median(each) for each in zip(*found, strict=True)] for name, found in rounds.items()
    }
    table = Table(title=f"Seconds to the end of an epoch of {len(bench_peers.files_of(tree)):,} photographs")
    for heading in ("", *(f"epoch {number}" for number in SHOWN)):
        table.add_column(heading, justify="right" if heading else "left")
    for name, ended in times.items():
        table.add_row(name, *(f"{ended[number - 1]:.1f}" for number in SHOWN))
    Console().print(table)
    if arguments.plot:
        plot(arguments.plot, times)
    others = [ended[-1] for name, ended in times.items() if not name.lower().startswith("fastload")]
    share = times["FastLoader, cache="][-1] / min(others)
    target = common.Target("10 epochs, cache= / best of the others", share, 1.0, at_most=True)
    return common.finish("epochs", arguments, [target], rounds=rounds)


if __name__ == "__main__":
    sys.exit(main())
