"""Several tensors of one sample: views of one image against separate crops and against Pillow, in CPU time a sample.

    python benchmarks/bench_fields.py [--rounds 5] [--seconds 3] [--save fields]

Method: photographs of 500 pixels as JPEG (the corpus' in500), packed as they are, page cache warm. Every sample becomes the
views of DINO's recipe, 2 of 224 pixels (scale 0.4 to 1) and 8 of 96 (scale 0.05 to 0.4), each cropped, resized and flipped at
random, uint8, in batches of 64. Views: `T.Views`, which reads and decodes the image once for all. Separate: fastload's loader
with one crop a sample, its CPU time for the large crop counted twice and for the small one eight times, as of a loop that has a
loader for each. Pillow: one process decodes each file once, and makes boxes of the same distribution with `resize(box=)`, flips
and arrays; DataLoader and collation are left out. CPU time is that of the whole process, of all threads; reading is in it,
start-up is not. Each turn is a process of its own; rounds go A B C A B C; a ratio is the median over rounds of the ratio of two
turns of one round.
Caveats: CPU time a sample is of this machine, and grows where others use its caches and its memory; the ratios do much less.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import common

from fastload.bench import harness
from fastload.bench.listing import list_folder

BATCH = 64
LARGE, SMALL = (224, (0.4, 1.0), 2), (96, (0.05, 0.4), 8)
WAYS = {"views": "T.Views, one decode", "separate": "a native crop for each view", "pillow": "Pillow, one decode"}


def crop(size: int, scale: tuple[float, float]) -> list[Any]:
    """One view's transform."""
    from fastload import transforms as T

    return [T.RandomResizedCrop(size, scale=scale), T.RandomHorizontalFlip()]


def of_loader(path: str, transform: Any, workers: int, seconds: float) -> tuple[float, float]:
    """(CPU seconds, seconds) a sample, over whole shuffled epochs; the first is dropped."""
    from fastload import FastLoader

    samples, began, cpu = 0, 0.0, 0.0
    with FastLoader(path, BATCH, shuffle=True, num_workers=workers, transform=transform, seed=0) as loader:
        for epoch in range(1 << 20):
            if epoch == 1:
                began, cpu = time.perf_counter(), time.process_time()
            elif epoch > 1 and time.perf_counter() - began > seconds:
                break
            for _, labels in loader:
                samples += len(labels) if epoch else 0
    return (time.process_time() - cpu) / samples, (time.perf_counter() - began) / samples


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
                made = image.resize((size[1], size[0]), Image.Resampling.BILINEAR, (x, y, x + width, y + height))
                np.asarray(made.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if drawn["hflip"] else made)
            samples += 1
    return (time.process_time() - cpu) / samples, (time.perf_counter() - began) / samples


def measure(way: str, path: str, source: str, workers: str, seconds: str) -> None:
    """The body of a turn: prints samples/s and CPU seconds for 1,000 samples."""
    from fastload import transforms as T

    limit = float(seconds)
    if way == "pillow":
        cpu, wall = of_pillow(path, source, limit)
    elif way == "views":
        cpu, wall = of_loader(path, T.Views([t for size, scale, n in (LARGE, SMALL) for t in [crop(size, scale)] * n]), int(workers), limit)
    else:
        found = [(count, of_loader(path, crop(size, scale), int(workers), limit / 2)) for size, scale, count in (LARGE, SMALL)]
        cpu, wall = (sum(count * each[k] for count, each in found) for k in (0, 1))
    sys.stdout.write(json.dumps({"images_per_s": 1 / wall, "cpu_s_per_1000": cpu * 1000}))


def turn(way: str, *told: Any) -> Any:
    """A turn for ``interleave``, in a process of its own."""

    def run(_: int) -> common.Json:
        command = [sys.executable, __file__, "--turn", way, *map(str, told)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return {"ok": False, "reason": done.stderr.strip().splitlines()[-1]}
        return {"ok": True, **json.loads(done.stdout)}

    return run


def main() -> int:
    """Measures the views."""
    arguments = common.parser(__doc__, rounds=5, seconds=3.0).parse_args()
    source = common.corpus(arguments.corpus, "in500")
    path = common.pack_fresh(source, "fields-views.fl", workers=arguments.workers)
    told = (path, source, arguments.workers, arguments.seconds)
    rows = harness.interleave([(way, name, turn(way, *told)) for way, name in WAYS.items()], arguments.rounds, common.note)
    views, separate, pillow = rows
    common.show_rates("views: 2 x 224 + 8 x 96, in500", rows)
    cpu = views.median("cpu_s_per_1000")
    targets = [
        common.Target("views: CPU us a sample", None if cpu is None else cpu * 1000, 1200, at_most=True, digits=0),
        common.Target("views: CPU of separate crops / of views", harness.ratio(separate, views, "cpu_s_per_1000"), 2.29),
        common.Target("views: CPU of Pillow / of views", harness.ratio(pillow, views, "cpu_s_per_1000"), 4.83),
    ]
    return common.finish("fields", arguments, targets, views=[row.to_json() for row in rows])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--turn"]:
        measure(*sys.argv[2:])
        sys.exit(0)
    sys.exit(main())
