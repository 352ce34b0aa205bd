"""Files in place with a cache in a loop that is busy: the DCT form is made meanwhile, for later epochs.

    python benchmarks/bench_busy_loop.py [--rounds 5] [--times 16] [--photographs big] [--save busy_loop]

Method: a folder with --times copies of each photograph of the corpus. RandomResizedCrop(224), flip, ToTensor
of torchvision for all; batches of 64; every turn takes all the samples; all is in the page cache. In turn,
each round: an epoch of torch's DataLoader; an epoch, not the first, of a FastLoader without a cache; the
third epoch of one with a new cache whose loop waits for its batches from the first on; two epochs, which are
not counted, of one with a new cache whose loop is held to half the rate by sleeping after each batch, and its
third epoch, which is not held, after which it rests for three seconds, until all that was read is converted,
and the cache's bytes are counted; a second epoch of the same images packed with --encode dct. A first epoch
is slower than later ones, and its loop is held to half of its own rate. In a second turn both are held to
half the rate of later ones: the first epoch then hardly rests, and the third finds what there was time for.
"""

from __future__ import annotations

import gc
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import common
from bench_in_place import epoch

from fastload import FastLoader, PackedDataset
from fastload.bench import harness

TORCHS: dict[str, Any] = {"batch_size": 64, "shuffle": True}
OPTIONS: dict[str, Any] = {**TORCHS, "seed": 1, "engine": "native"}

RESTS_S = 3.0
"""How long a loop does something else after its last epoch, and before the cache's bytes are counted."""


def held(loader: Iterable[Any], batch_s: float) -> None:
    """An epoch of a loop that works as long on each batch as making it takes."""
    for _ in loader:
        time.sleep(batch_s)


def turns(tree: Path, packed: Path, caches: Path, workers: int) -> list[tuple[str, str, harness.Round]]:
    """The turns of a round, in order."""
    from torch.utils.data import DataLoader
    from torchvision import datasets, transforms

    steps = transforms.Compose(
        [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    )
    options = OPTIONS | {"num_workers": workers}
    batch_s = [0.0, 0.0]  # of the first and of a later epoch

    def timed(loader: FastLoader[Any], number: int) -> common.Json:
        found = epoch(loader)
        batch_s[number] = OPTIONS["batch_size"] / found["images_per_s"]
        return found

    def plainly(_: int) -> common.Json:
        with FastLoader(datasets.ImageFolder(str(tree), steps), **options) as loader:
            timed(loader, 0)
            return timed(loader, 1)

    def cached(name: str) -> FastLoader[Any]:
        shutil.rmtree(caches / name, ignore_errors=True)
        return FastLoader(datasets.ImageFolder(str(tree), steps), cache=caches / name, **options)

    def saturated(_: int) -> common.Json:
        with cached("saturated") as loader:
            epoch(loader)
            epoch(loader)
            return epoch(loader)

    def after_held(*epochs: int) -> common.Json:
        with cached("held") as loader:
            for each in epochs:
                held(loader, 2 * batch_s[each])
            found = epoch(loader)
            time.sleep(RESTS_S)
        del loader
        gc.collect()
        return found | {"disk": on_disk(), "pruned": on_disk(prune=True)}

    def on_disk(*, prune: bool = False) -> int:
        if prune:
            command = [sys.executable, "-m", "fastload", "cache", "--cache", str(caches / "held"), "--prune"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return sum(path.stat().st_blocks * 512 for path in (caches / "held").rglob("*"))

    def from_packed(_: int) -> common.Json:
        with FastLoader(PackedDataset(packed, transform=steps), **options) as loader:
            epoch(loader)
            time.sleep(RESTS_S)  # so that as many batches are ready as after an epoch that was held
            return epoch(loader)

    reference = DataLoader(datasets.ImageFolder(str(tree), steps), num_workers=workers, **TORCHS)
    return [
        ("torch", "torch DataLoader", lambda _: epoch(reference)),
        ("plain", "FastLoader, no cache", plainly),
        ("saturated", "with cache=, epoch 3 of a loop that waits", saturated),
        ("held", "with cache=, epoch 3, after two held to half the rate", lambda _: after_held(0, 1)),
        ("held later", "the same, both held to half the rate of later epochs", lambda _: after_held(1, 1)),
        ("packed", "FastLoader, packed with dct", from_packed),
    ]


def main() -> int:
    """Measures in a temporary folder."""
    parser = common.parser(__doc__, rounds=5)
    parser.add_argument("--times", type=int, default=16, help="How often the corpus is listed.")
    common.add_photographs(parser)
    arguments = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    import torchvision_ops  # noqa: F401  (beside torch's CPU build)

    tree = common.copies(common.photographs(arguments), arguments.times)
    packed = common.pack_fresh(tree, f"{tree.name}-dct.fl", workers=arguments.workers, encode="dct")
    with tempfile.TemporaryDirectory() as scratch:
        all_turns = turns(tree, packed, Path(scratch), arguments.workers)
        rows = harness.interleave(all_turns, arguments.rounds, common.note)
    common.show_rates("A loop that is busy", rows)
    by_name = dict(zip((name for name, *_ in all_turns), rows, strict=True))
    targets = [
        common.Target(title, harness.ratio(by_name[top], by_name[bottom], "images_per_s"), bound)
        for title, top, bottom, bound in (
            ("epoch 3 after two held to half the rate / packed with dct", "held", "packed", 0.95),
            (
                "both held as later ones / packed dct",
                "held later",
                "packed",
                0.95,
            ),
            ("epoch 3 of a loop that waits / without a cache", "saturated", "plain", 0.97),
            ("epoch 3 after two held to half the rate / torch DataLoader", "held", "torch", 7.0),
        )
    ]
    size = sum(path.stat().st_size for path in tree.rglob("*.*"))
    most = 1.06 if arguments.photographs == "q75" else 1.02
    for key, name in (("disk", "the cache on the disk / of the files"), ("pruned", "the same, pruned")):
        share = max(each[key] for each in by_name["held"].turns) / size
        targets.append(common.Target(f"bytes of {name}", share, most, at_most=True, digits=3))
    return common.finish("busy_loop", arguments, targets, rows=[row.to_json() for row in rows])


if __name__ == "__main__":
    sys.exit(main())
