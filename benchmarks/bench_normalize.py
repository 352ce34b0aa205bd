"""Normalised float32 batches on the CPU: written by the native pass, against uint8 batches normalised by
torch.

    python benchmarks/bench_normalize.py [--rounds 5] [--seconds 3] [--save normalize]

Method: the same dataset, crops and flips in batches of 64, two threads, page cache warm, whole shuffled
epochs with the first dropped. Native: the list ends in ToFloat and Normalize, which is what the planner makes
of torchvision's ToTensor and Normalize. Torch: the same list without them, and on each batch
`images.to(float32).div_(255).sub_(mean).div_(std)`, torchvision's calculation with one new tensor: in either
memory format, and with one thread, so that it does not compete with the loader's two; the ratio is to the
fastest of the three. All end in the same values. Each turn is a process of its own; rounds go A B C A B C; a
ratio is the median over rounds of the ratio of two turns of one round. Three datasets: 32 x 32 pixels stored
raw (RandomCrop with padding: CIFAR's recipe), images of 256 pixels stored raw (RandomCrop(224)), and
photographs as JPEG (RandomResizedCrop(224)). Caveats: a large share of torch's time is the page faults of a
fresh 38 MB tensor for each batch, dear on virtual machines. The last line reuses one buffer, as no loop can
whose batches must outlive the next; it is shown, and is no target. Where decoding takes most of the time, no
way to normalise makes the whole much faster: the ratio by case says how much of the loop it is.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import common
import numpy as np

from fastload.bench import harness

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BATCH = 64
CASES = {"cifar": "32 x 32, stored raw", "raw": "224 x 224, stored raw", "photos": "photographs, JPEG"}
WAYS = {
    "native": "fastload's Normalize",
    "last": "torch, channels_last",
    "first": "torch, contiguous",
    "single": "torch, contiguous, one thread",
    "reused": "torch, one thread, one buffer for all batches",
}
RIVALS = ("last", "first", "single")


class Thumbnails:
    """20,000 images of 32 x 32 of noise, which raw pixels do not mind."""

    def __init__(self) -> None:
        self.pixels = np.random.default_rng(0).integers(0, 256, (20_000, 32, 32, 3), np.uint8)

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.pixels[index], index % 10


def packed(case: str, arguments: Any) -> Path:
    """The case's dataset, packed anew."""
    if case == "cifar":
        return common.pack_fresh(Thumbnails(), "normalize-cifar.fl", encode="raw")  # type: ignore[arg-type]
    source = common.copies(common.corpus(arguments.corpus, "in500"), 4 if case == "photos" else 2)
    options = {} if case == "photos" else {"encode": "raw", "min_side": 256}
    return common.pack_fresh(source, f"normalize-{case}.fl", workers=arguments.workers, **options)


def turn(case: str, way: str, path: Path, arguments: Any) -> Any:
    """A turn for ``interleave``, in a process of its own."""
    told = [case, way, str(path), str(arguments.workers), str(arguments.seconds)]

    def run(_: int) -> common.Json:
        done = subprocess.run(
            [sys.executable, __file__, "--turn", *told], capture_output=True, text=True, check=False
        )
        if done.returncode:
            return {"ok": False, "reason": done.stderr.strip().splitlines()[-1]}
        return {"ok": True, **json.loads(done.stdout)}

    return run


def measure(case: str, way: str, path: str, workers: str, seconds: str) -> None:
    """The body of a turn: prints images/s and CPU seconds for 1,000 images."""
    import torch

    from fastload import FastLoader
    from fastload import transforms as T

    crops: dict[str, list[T.Transform]] = {
        "cifar": [T.RandomCrop(32, padding=4)],
        "raw": [T.RandomCrop(224)],
        "photos": [T.RandomResizedCrop(224)],
    }
    floats = [T.ToFloat(), T.Normalize(MEAN, STD)] if way == "native" else []
    transform = [*crops[case], T.RandomHorizontalFlip(), *floats]
    layout = torch.channels_last if way in ("native", "last") else torch.contiguous_format
    if way in ("single", "reused"):
        torch.set_num_threads(1)
    buffer = torch.empty(0)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    images = 0
    common_arguments: Any = {
        "num_workers": int(workers),
        "transform": transform,
        "memory_format": layout,
        "seed": 0,
    }
    with FastLoader(path, BATCH, shuffle=True, drop_last=True, **common_arguments) as loader:
        for epoch in range(1 << 20):
            if epoch == 1:
                began, cpu = time.perf_counter(), time.process_time()
            elif epoch > 1 and time.perf_counter() - began > float(seconds):
                break
            for batch, _ in loader:
                if way == "reused":
                    buffer = buffer if buffer.shape == batch.shape else torch.empty(batch.shape)
                    batch = buffer.copy_(batch).div_(255).sub_(mean).div_(std)
                elif way != "native":
                    batch = batch.to(torch.float32).div_(255).sub_(mean).div_(std)
                assert batch.dtype == torch.float32
                images += len(batch) if epoch else 0
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    sys.stdout.write(json.dumps({"images_per_s": images / took, "cpu_s_per_1000": cpu / images * 1000}))


def main() -> int:
    """Measures each case."""
    parser = common.parser(__doc__, rounds=5, seconds=3.0)
    parser.add_argument("--case", action="append", choices=CASES, help="only this case (again for more)")
    arguments = parser.parse_args()
    targets, details = [], {}
    for case in arguments.case or CASES:
        title = CASES[case]
        path = packed(case, arguments)
        ways = [(way, name, turn(case, way, path, arguments)) for way, name in WAYS.items()]
        native, *others = rows = harness.interleave(ways, arguments.rounds, common.note)
        common.show_rates(title, rows)
        common.console.print(common.by_cpu_time(native, others))
        found = {row.name: harness.ratio(native, row) for row in others}
        common.console.print(
            "by rate: " + ", ".join(f"{value or 0:.2f} x {WAYS[name]}" for name, value in found.items())
        )
        worst = min(
            (value for name, value in found.items() if name in RIVALS and value is not None), default=None
        )
        targets.append(common.Target(f"{title}: native / uint8 + torch", worst, 1.5))
        details[case] = [row.to_json() for row in rows]
    return common.finish("normalize", arguments, targets, **details)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--turn"]:
        measure(*sys.argv[2:])
        sys.exit(0)
    sys.exit(main())
