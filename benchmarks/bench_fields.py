"""Several tensors of one sample: views, image with boxes and masks, pairs with a mask; and one image, as
ever.

    python benchmarks/bench_fields.py [--only views objects pair single] [--rounds 5] [--seconds 3] [--release
    CHECKOUT] [--save fields]

Method: photographs of 500 pixels as JPEG (the corpus' in500), packed as they are, page cache warm. Each turn
is a process of its own; rounds go A B C A B C; a ratio is the median over rounds of the ratio of two turns of
one round. CPU time is that of the whole process, of all threads, and of worker processes that have ended;
reading is in it, start-up is not.

views: every sample becomes the views of DINO's recipe, 2 of 224 pixels (scale 0.4 to 1) and 8 of 96 (scale
0.05 to 0.4), each cropped, resized and flipped at random, uint8, in batches of 64. Views: `T.Views`, which
reads and decodes the image once for all. Separate: fastload's loader with one crop a sample, its CPU time for
the large crop counted twice and for the small one eight times, as of a loop that has a loader for each.
Pillow: one process decodes each file once, and makes boxes of the same distribution with `resize(box=)`,
flips and arrays; DataLoader and collation are left out.

objects: the photographs in COCO's layout, with 7 objects each in the mean, outlined by 24 corners. Image,
boxes, labels and instance masks through ScaleJitter((640, 640)) and a flip, in lists, batches of 16. Packed:
FastLoader(collate="list"). torchvision: CocoDetection wrapped for transforms v2, the same Compose, under
DataLoader, whose rate alone is compared.

pair: two photographs of a sample and a 16-bit mask as large as the first, RandomResizedCrop(224) and a flip,
batches of 64; against the same dataset with the two images alone.

single: one crop of 224 and a flip, batches of 64; against another checkout of fastload that is built, given
by --release.

Caveats: CPU time a sample is of this machine, and grows where others use its caches and its memory; the
ratios do much less.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import common
from fields_data import Pairs, write_coco

from fastload.bench import harness
from fastload.bench.listing import list_folder

BATCH, LISTED = 64, 16
LARGE, SMALL = (224, (0.4, 1.0), 2), (96, (0.05, 0.4), 8)
WAYS = {
    "views": "T.Views, one decode",
    "separate": "a native crop for each view",
    "pillow": "Pillow, one decode",
}
ROWS = ("views", "objects", "pair", "single")


def crop(size: int, scale: tuple[float, float]) -> list[Any]:
    """One view's transform."""
    from fastload import transforms as T

    return [T.RandomResizedCrop(size, scale=scale), T.RandomHorizontalFlip()]


def of_loader(path: str, transform: Any, workers: int, seconds: float) -> tuple[float, float]:
    """(CPU seconds, seconds) a sample, over whole shuffled epochs; the first is dropped."""
    from fastload import FastLoader

    with FastLoader(path, BATCH, shuffle=True, num_workers=workers, transform=transform, seed=0) as loader:
        return of_epochs(loader, seconds, lambda batch: len(batch[1]))


def of_epochs(loader: Any, seconds: float, count: Any) -> tuple[float, float]:
    """(CPU seconds, seconds) a sample, over whole epochs; the first is dropped. count(batch): its samples."""
    samples, began, cpu = 0, 0.0, 0.0
    for epoch in range(1 << 20):
        if epoch == 1:
            began, cpu = time.perf_counter(), cpu_time()
        elif epoch > 1 and time.perf_counter() - began > seconds:
            break
        for batch in loader:
            samples += count(batch) if epoch else 0
    return (cpu_time() - cpu) / samples, (time.perf_counter() - began) / samples


def cpu_time() -> float:
    """Seconds of this process, and of the children that it has waited for."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def of_objects(path: str, workers: int, seconds: float) -> tuple[float, float]:
    """The same of images with boxes and masks, packed."""
    from fastload import FastLoader, PackedDataset
    from fastload import transforms as T

    transform = [T.ScaleJitter((640, 640)), T.RandomHorizontalFlip(), T.ToFloat()]
    data = PackedDataset(
        path, transform, fields=("image", {"boxes": "boxes", "labels": "labels", "masks": "instances"})
    )
    with FastLoader(data, LISTED, shuffle=True, num_workers=workers, collate="list", seed=0) as loader:
        return of_epochs(loader, seconds, lambda batch: len(batch[0]))


def of_torchvision(source: str, workers: int, seconds: float) -> tuple[float, float]:
    """The same of torchvision's dataset and transforms under DataLoader."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
    import torch
    import torchvision_ops  # noqa: F401  (before anything imports torchvision)
    from torch.utils.data import DataLoader
    from torchvision.datasets import CocoDetection, wrap_dataset_for_transforms_v2
    from torchvision.transforms import v2

    steps = [
        v2.ToImage(),
        v2.ScaleJitter((640, 640)),
        v2.RandomHorizontalFlip(),
        v2.ToDtype(torch.float32, scale=True),
    ]
    found = CocoDetection(
        f"{source}/train2017", f"{source}/annotations/instances_train2017.json", transforms=v2.Compose(steps)
    )
    data = wrap_dataset_for_transforms_v2(found, target_keys=("boxes", "labels", "masks"))
    loader = DataLoader(
        data, LISTED, shuffle=True, num_workers=workers, collate_fn=lists, persistent_workers=workers > 0
    )
    return of_epochs(loader, seconds, lambda batch: len(batch[0]))


def lists(batch: Any) -> Any:
    """torchvision's collate_fn of detection."""
    return tuple(zip(*batch, strict=True))


def of_pair(path: str, fields: tuple[str, ...], workers: int, seconds: float) -> tuple[float, float]:
    """The same of two images of a sample, with its mask or without."""
    from fastload import FastLoader, PackedDataset

    data = PackedDataset(path, crop(224, (0.08, 1.0)), fields=fields)
    with FastLoader(data, BATCH, shuffle=True, num_workers=workers, seed=0) as loader:
        return of_epochs(loader, seconds, lambda batch: len(batch["image"]))


def of_pillow(path: str, source: str, seconds: float) -> tuple[float, float]:
    """The same of Pillow, in one thread."""
    import numpy as np
    from PIL import Image
    from PIL.JpegImagePlugin import JpegImageFile

    from fastload import PackedDataset
    from fastload import transforms as T

    views = [crop(size, scale) for size, scale, count in (LARGE, SMALL) for _ in range(count)]
    plan = PackedDataset(path, transform=T.Views(views)).plan
    files = [file.read_bytes() for file, _ in list_folder(Path(source))]
    samples, began, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - began < seconds:
        for index, data in enumerate(files):
            image = JpegImageFile(io.BytesIO(data)).convert("RGB")
            for program, size in zip(plan.programs, plan.fixed_sizes or (), strict=True):
                drawn = program.resolve(*image.size, 0, samples // len(files), index)
                x, y, width, height = drawn["box"]
                made = image.resize(
                    (size[1], size[0]), Image.Resampling.BILINEAR, (x, y, x + width, y + height)
                )
                np.asarray(made.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if drawn["hflip"] else made)
            samples += 1
    return (time.process_time() - cpu) / samples, (time.perf_counter() - began) / samples


def measure(way: str, path: str, source: str, workers: str, seconds: str) -> None:
    """The body of a turn: prints samples/s and CPU seconds for 1,000 samples."""
    from fastload import transforms as T

    limit, threads = float(seconds), int(workers)
    if way == "pillow":
        cpu, wall = of_pillow(path, source, limit)
    elif way == "views":
        cpu, wall = of_loader(
            path,
            T.Views([t for size, scale, n in (LARGE, SMALL) for t in [crop(size, scale)] * n]),
            threads,
            limit,
        )
    elif way == "separate":
        found = [
            (count, of_loader(path, crop(size, scale), threads, limit / 2))
            for size, scale, count in (LARGE, SMALL)
        ]
        cpu, wall = (sum(count * each[k] for count, each in found) for k in (0, 1))
    elif way == "packed":
        cpu, wall = of_objects(path, threads, limit)
    elif way == "torchvision":
        cpu, wall = of_torchvision(source, threads, limit)
    elif way in ("images", "masked"):
        cpu, wall = of_pair(path, ("image", "second", "mask")[: 3 if way == "masked" else 2], threads, limit)
    else:
        cpu, wall = of_loader(path, crop(224, (0.08, 1.0)), threads, limit)
    sys.stdout.write(json.dumps({"images_per_s": 1 / wall, "cpu_s_per_1000": cpu * 1000}) + "\n")


def turn(way: str, *told: Any, checkout: Path | None = None) -> Any:
    """A turn for ``interleave``, in a process of its own, of this checkout of fastload or of another."""
    environment = os.environ if checkout is None else {**os.environ, "PYTHONPATH": str(checkout)}

    def run(_: int) -> common.Json:
        command = [sys.executable, __file__, "--turn", way, *map(str, told)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if done.returncode:
            return {"ok": False, "reason": done.stderr.strip().splitlines()[-1]}
        return {"ok": True, **json.loads(done.stdout.splitlines()[-1])}  # pycocotools prints before

    return run


Outcome = tuple[list[harness.Measured], list[common.Target]]


def views_row(arguments: Any, source: Path) -> Outcome:
    path = common.pack_fresh(source, "fields-views.fl", workers=arguments.workers)
    told = (path, source, arguments.workers, arguments.seconds)
    rows = harness.interleave(
        [(way, name, turn(way, *told)) for way, name in WAYS.items()], arguments.rounds, common.note
    )
    views, separate, pillow = rows
    common.show_rates("views: 2 x 224 + 8 x 96, in500", rows)
    cpu = views.median("cpu_s_per_1000")
    return rows, [
        common.Target(
            "views: CPU us a sample", None if cpu is None else cpu * 1000, 1200, at_most=True, digits=0
        ),
        common.Target(
            "views: CPU of separate crops / of views", harness.ratio(separate, views, "cpu_s_per_1000"), 2.29
        ),
        common.Target(
            "views: CPU of Pillow / of views", harness.ratio(pillow, views, "cpu_s_per_1000"), 4.83
        ),
    ]


def objects_row(arguments: Any, source: Path) -> Outcome:
    folder = write_coco(source, common.WORK / "fields-coco")
    path = common.pack_fresh(
        folder / "train2017",
        "fields-objects.fl",
        annotations=folder / "annotations" / "instances_train2017.json",
    )
    told = (path, folder, arguments.workers, arguments.seconds)
    ways = {"packed": "packed, collate='list'", "torchvision": "torchvision v2, DataLoader"}
    rows = harness.interleave(
        [(way, name, turn(way, *told)) for way, name in ways.items()], arguments.rounds, common.note
    )
    common.show_rates("objects: image, boxes and masks, ScaleJitter(640) and flip", rows)
    return rows, [
        common.Target("objects: rate / torchvision's", harness.ratio(rows[0], rows[1], "images_per_s"), 4)
    ]


def pair_row(arguments: Any, source: Path) -> Outcome:
    from fastload import pack

    path = common.WORK / "fields-pair.fl"
    shutil.rmtree(path, ignore_errors=True)
    pack(Pairs(source), path, workers=arguments.workers)
    told = (path, source, arguments.workers, arguments.seconds)
    ways = {"images": "two images", "masked": "two images and a mask"}
    rows = harness.interleave(
        [(way, name, turn(way, *told)) for way, name in ways.items()], arguments.rounds, common.note
    )
    common.show_rates("pair: two images and a 16-bit mask, 224", rows)
    cost = harness.ratio(rows[1], rows[0], "cpu_s_per_1000")
    return rows, [common.Target("pair: CPU with the mask / without", cost, 1.2, at_most=True)]


def single_row(arguments: Any, source: Path) -> Outcome:
    path = common.pack_fresh(source, "fields-views.fl", workers=arguments.workers)
    told = (path, source, arguments.workers, arguments.seconds)
    turns = [("single", "this checkout", turn("single", *told))]
    if arguments.release is not None:
        turns.append(
            (
                "release",
                f"{arguments.release.name}, the other checkout",
                turn("single", *told, checkout=arguments.release.absolute()),
            )
        )
    rows = harness.interleave(turns, arguments.rounds, common.note)
    common.show_rates("single: one crop of 224, in500", rows)
    rate = harness.ratio(rows[0], rows[1], "images_per_s") if len(rows) > 1 else None
    cpu = harness.ratio(rows[1], rows[0], "cpu_s_per_1000") if len(rows) > 1 else None
    return rows, [
        common.Target("single: rate / the other checkout's", rate, 0.98),
        common.Target("single: CPU of the other checkout / of this one", cpu, 0.98),
    ]


def main() -> int:
    """Measures the rows that are asked for."""
    parser = common.parser(__doc__, rounds=5, seconds=3.0)
    parser.add_argument("--only", nargs="+", choices=ROWS, default=ROWS, help="rows (default: all)")
    parser.add_argument(
        "--release", type=Path, help="another checkout of fastload, built in place, for the row single"
    )
    arguments = parser.parse_args()
    source = common.corpus(arguments.corpus, "in500")
    measured = {"views": views_row, "objects": objects_row, "pair": pair_row, "single": single_row}
    found = {name: measured[name](arguments, source) for name in ROWS if name in arguments.only}
    targets = [target for _, each in found.values() for target in each]
    return common.finish(
        "fields",
        arguments,
        targets,
        **{name: [row.to_json() for row in rows] for name, (rows, _) in found.items()},
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--turn"]:
        measure(*sys.argv[2:])
        sys.exit(0)
    sys.exit(main())
