"""The first epochs of files in place with a cache, on a local disk and on a slow one.

    python benchmarks/bench_first_epoch.py [--rounds 5] [--times 6] [--delay-ms 20] [--format png]
        [--photographs big] [--save first_epoch]

Method: a folder with --times copies of each photograph of the corpus, as it lies on the local disk, and shown
by a FUSE file system on which each open takes --delay-ms (tests/slow_disk.c); any number of opens wait at
once. RandomResizedCrop(224), flip, ToTensor of torchvision for all; batches of 64. Every turn takes all the
samples. In turn, each round: of the slow disk an epoch of torch's DataLoader and of a FastLoader without a
cache, and the first and the second epoch of one with a new cache folder on the local disk; of the local disk
the first and the second epoch of a FastLoader without a cache, and with a new one, and an epoch of the same
images packed. The page cache has what is on the local disk. FUSE's kernel side caches neither files nor, for
long, their status. With --format png Pillow made PNGs of the photographs, and torch's DataLoader reads them
from the local disk as well; there is no slow one, nor for --photographs other than in500.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
from bench_in_place import converted, epoch

from fastload import FastLoader, PackedDataset
from fastload.bench import harness

OPTIONS: dict[str, Any] = {"batch_size": 64, "shuffle": True}


def turns(tree: Path, disk: str, caches: Path, workers: int, packed: Path | None = None) -> list[Any]:
    """The turns of one disk; the second epoch is that of the loader whose first came before."""
    from torch.utils.data import DataLoader
    from torchvision import datasets, transforms

    steps = transforms.Compose(
        [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    )
    dataset = datasets.ImageFolder(str(tree), steps)
    kept: dict[bool, Any] = {}

    def first(cached: bool) -> Callable[[int], common.Json]:
        def turn(number: int) -> common.Json:
            cache = caches / f"{disk}-{number}" if cached else None
            shutil.rmtree(cache or "", ignore_errors=True)
            kept[cached] = FastLoader(dataset, num_workers=workers, engine="native", cache=cache, **OPTIONS)
            return epoch(kept[cached])

        return turn

    def second(cached: bool) -> Callable[[int], common.Json]:
        return lambda _: epoch(kept[cached])

    def from_packed(_: int) -> common.Json:
        with FastLoader(PackedDataset(packed, transform=steps), num_workers=workers, **OPTIONS) as loader:
            return epoch(loader)

    reference = DataLoader(dataset, num_workers=workers, **OPTIONS)
    made = [
        (f"{disk}-plain", f"FastLoader, {disk} disk, epoch 1", first(False)),
        (f"{disk}-plain-2", f"FastLoader, {disk} disk, epoch 2", second(False)),
        (f"{disk}-cache", f"FastLoader with cache=, {disk} disk, epoch 1", first(True)),
        (f"{disk}-cache-2", f"FastLoader with cache=, {disk} disk, epoch 2", second(True)),
    ]
    made += [("packed", "FastLoader, packed", from_packed)] * (packed is not None)
    torchs = (f"{disk}-torch", f"torch DataLoader, {disk} disk", lambda _: epoch(reference))
    return [torchs, made[0], *made[2:]] if disk == "slow" else [torchs, *made]


def main() -> int:
    """Measures in a temporary folder."""
    parser = common.parser(__doc__, rounds=5)
    parser.add_argument("--times", type=int, default=6, help="How often the corpus is listed.")
    parser.add_argument("--format", choices=("png",), default="", help="The photographs as PNGs.")
    parser.add_argument("--delay-ms", type=int, default=20, help="What each open of the slow disk takes.")
    common.add_photographs(parser)
    arguments = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    import torchvision_ops  # noqa: F401  (beside torch's CPU build)
    from slow_disk import slow_disk

    source = common.photographs(arguments)
    tree = common.copies(converted(source, "png") if arguments.format else source, arguments.times)
    packed = common.pack_fresh(tree, f"{tree.name}.fl", workers=arguments.workers)
    with (
        tempfile.TemporaryDirectory() as scratch,
        slow_disk(tree, Path(scratch) / "fuse", arguments.delay_ms) as mount,
    ):
        caches, workers = Path(scratch) / "caches", arguments.workers
        all_turns = turns(tree, "local", caches, workers, packed)
        if not arguments.format and arguments.photographs == "in500":
            all_turns = [*turns(mount, "slow", caches, workers), *all_turns[1:]]
        rows = harness.interleave(all_turns, arguments.rounds, common.note)
    common.show_rates("The first epochs", rows)
    by_name = dict(zip((name for name, *_ in all_turns), rows, strict=True))

    def rate(top: str, bottom: str) -> float:
        return harness.ratio(by_name[top], by_name[bottom], "images_per_s")

    targets = [
        common.Target(title, rate(top, bottom), bound)
        for title, top, bottom, bound in (
            ("epoch 2 with cache= / torch DataLoader", "local-cache-2", "local-torch", 5.0),
            ("slow disk, epoch 1 / torch DataLoader", "slow-cache", "slow-torch", 10.0),
            ("slow disk, epoch 2 / local disk, epoch 2", "slow-cache-2", "local-cache-2", 0.95),
            ("local disk, epoch 1, with cache= / without", "local-cache", "local-plain", 0.92),
            ("local disk, epoch 2, with cache= / packed", "local-cache-2", "packed", 0.95),
            ("local disk, epoch 2, with cache= / without", "local-cache-2", "local-plain-2", 0.97),
        )
        if {top, bottom} <= by_name.keys()
    ]
    other = arguments.photographs if arguments.photographs != "in500" else ""
    name = "_".join(filter(None, ("first_epoch", other, arguments.format)))
    return common.finish(name, arguments, targets, rows=[row.to_json() for row in rows])


if __name__ == "__main__":
    sys.exit(main())
