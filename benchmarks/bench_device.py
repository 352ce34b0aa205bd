"""Delivery on a device: the pass to floats, augmentation, a training step that is fed, and images/s against
torch's DataLoader.

    python benchmarks/bench_device.py [--device cuda] [--rounds 5] [--workers 16] [--save device]
    python benchmarks/bench_device.py --device cpu --tiny      (seconds, on any machine: that it runs, not how
    fast)

Method: everything in one process, one turn of each way after the other in every round, ratios are medians
over rounds of two turns of one round. Work on the device is timed from an event before the first call to one
after the last, after calls that warm up; loops by the wall clock, from one synchronisation to the next, after
steps that warm up. Batches are 256 x 3 x 224 x 224.
- to floats: uint8 to normalised bfloat16 and float32 in each layout, against a device copy that moves as many
  bytes as the pass has to read and write. Beside the kernel stand torch's own ops, and those under
  torch.compile, so that the choice can be checked.
- augmentation: light is flip, colour jitter, erasing and the pass to bfloat16; RandAugment is two ops of
  magnitude 9, with that pass. Beside the jitter's kernel stands the same op by op.
- step: ResNet-50, bfloat16, channels_last, SGD; on one batch that stays on the device, and fed by FastLoader
  with the light recipe, whose device work then shares the GPU with the step. "waited" is the time in which
  the device had ended a step and not the next batch: where the CPU does not decode fast enough, that is what
  shows it, and the advice below the table says so.
- loader: nothing but delivery; torch's DataLoader does the light recipe per sample with torchvision in
  `--workers` processes, pins, copies without waiting, and makes the batch channels_last on the device, as
  FastLoader's is; FastLoader has as many threads.
Data: the corpus's in500 where it is there, else synthetic JPEGs of 500 x 375 pixels; copied, page cache warm.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import common
import gpu_use
import torch
from rich.table import Table
from torch import nn
from torch.nn import functional as F

from fastload import FastLoader
from fastload import augment as A
from fastload import transforms as T
from fastload.augment import batch as augment_batch
from fastload.bench.listing import list_folder
from fastload.device.gpu import working
from fastload.device.to_float import _kernel, eager, to_float
from fastload.sources.pixels import open_image

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
JITTER = (0.4, 0.4, 0.4, 0.1)
OP_BY_OP = "op by op"
FORMATS = {"channels_last": torch.channels_last, "contiguous": torch.contiguous_format}
Row = tuple[str, str, str]
Feed = Callable[[], Generator[Any, None, None]]
"""Begins batches on the device, without end."""


# ---- data and model


def corpus(arguments: argparse.Namespace) -> Path:
    """A CLASS/IMAGE tree of at least --images files."""
    try:
        source = common.corpus(arguments.corpus, "in500")
    except SystemExit:
        source = synthetic(min(arguments.images, 512))
    have = len(list_folder(source))
    return common.copies(source, -(-arguments.images // have))


def synthetic(count: int) -> Path:
    """JPEGs of 500 x 375 with the detail of photographs, ten classes; kept under build/bench."""
    import numpy as np
    from PIL import Image

    out = common.WORK / f"synthetic-{count}"
    if not out.with_suffix(".done").exists():
        random = np.random.default_rng(0)
        for number in range(count):
            coarse = Image.fromarray(random.integers(0, 256, (24, 32, 3), np.uint8)).resize(
                (500, 375), Image.Resampling.BICUBIC
            )
            fine = random.normal(0, 8, (375, 500, 3))
            folder = out / f"class{number % 10}"
            folder.mkdir(parents=True, exist_ok=True)
            pixels = np.clip(np.asarray(coarse) + fine, 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{number:05d}.jpg", quality=88)
        out.with_suffix(".done").touch()
    return out


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 with a shortcut (He et al., arXiv:1512.03385; the stride is in the 3x3)."""

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        self.convs = nn.Sequential(
            *(nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)),
            *(
                nn.Conv2d(width, width, 3, stride, 1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
            ),
            *(nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)),
        )
        same = inside == 4 * width and stride == 1
        across = nn.Sequential(nn.Conv2d(inside, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))
        self.shortcut = nn.Identity() if same else across

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.convs(x) + self.shortcut(x), inplace=True)


def resnet(width: int, blocks: Iterable[int], classes: int = 1000) -> nn.Module:
    """ResNet-50 for width 64 and blocks (3, 4, 6, 3)."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, width, 7, 2, 3, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
    ]
    layers.append(nn.MaxPool2d(3, 2, 1))
    inside = width
    for stage, count in enumerate(blocks):
        for block in range(count):
            layers.append(Bottleneck(inside, width << stage, 2 if stage and not block else 1))
            inside = 4 * (width << stage)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, classes))


def stepper(arguments: argparse.Namespace) -> Callable[[torch.Tensor, torch.Tensor], None]:
    """One training step in bfloat16."""
    model = resnet(8, (1, 1)) if arguments.tiny else resnet(64, (3, 4, 6, 3))
    model.to(arguments.device, memory_format=torch.channels_last).bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)

    def step(images: torch.Tensor, labels: torch.Tensor) -> None:
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(images).float(), labels).backward()
        optimizer.step()

    return step


# ---- time


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def per_call(call: Callable[[], object], arguments: argparse.Namespace, count: int = 30) -> float:
    """Seconds a call, queued one after the other."""
    count = 2 if arguments.tiny else count
    for _ in range(1 if arguments.tiny else 5):
        call()
    synchronize(arguments.device)
    began = time.perf_counter()
    if arguments.device.type != "cuda":
        for _ in range(count):
            call()
        return (time.perf_counter() - began) / count
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    for _ in range(count):
        call()
    last.record()
    last.synchronize()
    return first.elapsed_time(last) / 1e3 / count


@dataclass(frozen=True)
class Turn:
    """Some steps of a loop.

    Attributes:
        seconds: wall-clock seconds a step.
        waited: seconds a step in which the device had ended the step before and the batch was not there.
        busy: share of the time in which the device worked; None if nothing tells it.
    """

    seconds: float
    waited: float
    busy: float | None


def per_batch(feed: Feed, use: Callable[..., object], arguments: argparse.Namespace) -> Turn:
    """A turn of --steps steps, warmed up by a fourth of them. Its batches end with it: workers that read
    on would slow the next turn."""
    with closing(feed()) as batches:
        return _timed(batches, use, arguments)


def _timed(batches: Iterator[Any], use: Callable[..., object], arguments: argparse.Namespace) -> Turn:
    for batch in itertools.islice(batches, max(1, arguments.steps // 4)):
        use(*batch)
    synchronize(arguments.device)
    clock = gpu_use.Clock(arguments.device)
    waits = []
    with gpu_use.Sampler(arguments.device) as sampler:
        began = time.perf_counter()
        for _ in range(arguments.steps):
            ended = clock.now()
            batch = next(batches)
            waits.append((ended, clock.now()))
            use(*batch)
        synchronize(arguments.device)
        seconds = time.perf_counter() - began
    waited = sum(clock.between(*each) for each in waits)
    return Turn(seconds / arguments.steps, waited / arguments.steps, sampler.busy())


def in_turn(
    ways: dict[str, Callable[[], Any]], rounds: int, seconds: float = math.inf
) -> dict[str, list[Any]]:
    """The result of each way, a turn of each in every round. A round begins only if no more than `seconds`
    are over."""
    found: dict[str, list[Any]] = {name: [] for name in ways}
    began = time.perf_counter()
    for number in range(rounds):
        if number and time.perf_counter() - began > seconds:
            break
        for name, way in ways.items():
            with common.note(f"round {number + 1} of {rounds}: {name}"):
                found[name].append(way())
    return found


def ratio(top: Iterable[float], bottom: Iterable[float]) -> float:
    return statistics.median(a / b for a, b in zip(top, bottom, strict=True))


def seconds_of(turns: list[Turn]) -> list[float]:
    return [turn.seconds for turn in turns]


def turn_rows(times: dict[str, list[Turn]]) -> list[Row]:
    """The medians of each way's turns, over its rounds."""
    rows = []
    for name, turns in times.items():
        waited, busy = (
            statistics.median(turn.waited for turn in turns),
            [turn.busy for turn in turns if turn.busy is not None],
        )
        used = f", device busy {statistics.median(busy):.0%}" if busy else ""
        rows.append(
            (
                name,
                f"{statistics.median(seconds_of(turns)) * 1e3:.2f} ms",
                f"waited {waited * 1e3:.2f} ms{used}",
            )
        )
    return rows


def forever(loader: Any) -> Generator[Any, None, None]:
    while True:
        yield from loader


# ---- what is measured


def floats(
    arguments: argparse.Namespace, images: torch.Tensor, compiles: bool = True
) -> tuple[list[Row], list[common.Target]]:
    """The pass to floats, by dtype and layout, against a copy of as many bytes."""
    rows, targets = [], []
    compiled = torch.compile(eager, dynamic=False) if compiles and arguments.device.type == "cuda" else None
    for dtype, (name, form) in itertools.product((torch.bfloat16, torch.float32), FORMATS.items()):
        moved = images.numel() * (1 + dtype.itemsize)
        source = torch.empty(moved // 2, dtype=torch.uint8, device=arguments.device)
        target = torch.empty_like(source)
        ways: dict[str, Callable[[], object]] = {"copy": lambda s=source, t=target: t.copy_(s)}  # type: ignore[misc]
        for title, function in {"fused": to_float, "torch's ops": eager, "compiled": compiled}.items():
            if function is not None:
                ways[title] = lambda f=function, d=dtype, m=form: f(images, d, MEAN, STD, m)  # type: ignore[misc]
        times = in_turn(
            {title: lambda w=way: per_call(w, arguments) for title, way in ways.items()}, arguments.rounds
        )  # type: ignore[misc]
        case = f"uint8 channels_last to {str(dtype).removeprefix('torch.')} {name}"
        for title, each in times.items():
            spent = statistics.median(each)
            rows.append((f"{case}: {title}", f"{spent * 1e3:.3f} ms", f"{moved / spent / 1e9:,.0f} GB/s"))
        share = ratio(times["copy"], times["fused"])
        main = dtype == torch.bfloat16 and name == "channels_last"
        if main:
            targets.append(common.Target(f"{case}, share of the copy's bandwidth", share, 0.70))
    one_kernel = arguments.device.type == "cuda" and working(_kernel, images.device)
    rows.append(("the fused pass is", "one kernel" if one_kernel else "torch's ops", ""))
    return rows, targets


def augmentation(
    arguments: argparse.Namespace, images: torch.Tensor
) -> tuple[list[Row], list[common.Target]]:
    """Milliseconds a batch of each recipe, parameters drawn anew for every call."""
    number = itertools.count()
    indices = range(len(images))

    def run(augment: A.AugmentBatch) -> None:
        to_float(augment(images, seed=0, epoch=next(number), indices=indices), torch.bfloat16, MEAN, STD)

    def turn(name: str, augment: A.AugmentBatch) -> float:
        with (
            patch.object(augment_batch, "at_once", lambda device: False)
            if name.endswith(OP_BY_OP)
            else nullcontext()
        ):
            return per_call(lambda: run(augment), arguments)

    light = [A.RandomHorizontalFlip(), A.ColorJitter(*JITTER), A.RandomErasing(0.25)]
    recipes = {"light": A.AugmentBatch(light), "RandAugment(2, 9)": A.AugmentBatch([A.RandAugment(2, 9)])}
    if arguments.device.type == "cuda":
        recipes[f"light, {OP_BY_OP}"] = A.AugmentBatch(light)
    times = in_turn(
        {name: partial(turn, name, augment) for name, augment in recipes.items()}, arguments.rounds
    )
    spent = {name: statistics.median(each) * 1e3 for name, each in times.items()}
    rows = [(f"augment: {name}", f"{ms:.3f} ms", "") for name, ms in spent.items()]
    return rows, [
        common.Target("light recipe, ms a batch", spent["light"], 1.0, at_most=True),
        common.Target("RandAugment(2 ops), ms a batch", spent["RandAugment(2, 9)"], 4.0, at_most=True),
    ]


def fast_loader(path: Path, arguments: argparse.Namespace) -> FastLoader[Any]:
    augment = A.AugmentBatch([A.ColorJitter(*JITTER), A.RandomErasing(0.25)])
    return FastLoader(
        path,
        arguments.batch,
        shuffle=True,
        drop_last=True,
        memory_format=torch.channels_last,
        num_workers=arguments.workers,
        prefetch_factor=4,
        transform=[T.RandomResizedCrop(arguments.size), T.RandomHorizontalFlip()],
        batch_transform=[augment, T.Normalize(MEAN, STD)],
        dtype=torch.bfloat16,
        device=arguments.device,
        seed=0,
    )


def step(
    arguments: argparse.Namespace, feeds: dict[str, Feed], images: torch.Tensor, seconds: float = math.inf
) -> dict[str, list[Turn]]:
    """Turns of a training step on a batch that stays where it is ("resident"), and on the batches of each
    feed."""
    train = stepper(arguments)
    batch = (
        to_float(images, torch.bfloat16, MEAN, STD),
        torch.arange(len(images), device=arguments.device) % 10,
    )
    every: dict[str, Feed] = {"resident": lambda: (batch for _ in itertools.count()), **feeds}
    return in_turn(
        {name: partial(per_batch, feed, train, arguments) for name, feed in every.items()},
        arguments.rounds,
        seconds,
    )


def steps(
    arguments: argparse.Namespace, path: Path, images: torch.Tensor
) -> tuple[list[Row], list[common.Target], str]:
    """A training step fed by FastLoader over the same step on a batch that stays where it is."""
    with fast_loader(path, arguments) as loader:
        times = step(arguments, {"fed": partial(forever, loader)}, images)
        health, report = loader.health.as_dict(), loader.health.report()
    rows = turn_rows({f"ResNet-50 step, {name}": turns for name, turns in times.items()})
    rows.append(("waiting for data", f"{health.get('wait_share') or 0:.1%}", "of the loop, on the host"))
    share = ratio(seconds_of(times["fed"]), seconds_of(times["resident"]))
    return rows, [common.Target("step fed by FastLoader / resident", share, 1.03, at_most=True)], report


def deliver(
    arguments: argparse.Namespace, feeds: dict[str, Feed], seconds: float = math.inf
) -> dict[str, list[Turn]]:
    """Turns of nothing but delivery."""
    ways = {name: partial(per_batch, feed, lambda *_: None, arguments) for name, feed in feeds.items()}
    return in_turn(ways, arguments.rounds, seconds)


def loaders(arguments: argparse.Namespace, path: Path, tree: Path) -> tuple[list[Row], list[common.Target]]:
    """Images/s delivered to the device, ours and torch's."""
    with fast_loader(path, arguments) as ours:
        theirs = torch_feed(tree, arguments)
        times = deliver(
            arguments,
            {"FastLoader": partial(forever, ours)} | ({} if theirs is None else {"DataLoader": theirs}),
        )
    rates = {name: arguments.batch / statistics.median(seconds_of(turns)) for name, turns in times.items()}
    rows = [
        (f"{name}, {arguments.workers} workers", f"{rate:,.0f} images/s", "") for name, rate in rates.items()
    ]
    value = (
        None if theirs is None else ratio(seconds_of(times["DataLoader"]), seconds_of(times["FastLoader"]))
    )
    return rows, [common.Target("FastLoader / torch's DataLoader, images/s", value, 4.0)]


class Photos(torch.utils.data.Dataset[Any]):
    """What a careful user writes: Pillow, and the recipe per sample."""

    def __init__(self, tree: Path, transform: Callable[[Any], torch.Tensor]) -> None:
        self.files, self.transform = list_folder(tree), transform

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path, label = self.files[index]
        with open(path, "rb") as file, open_image(file) as image:
            return self.transform(image.convert("RGB")), int(label)


def torch_feed(tree: Path, arguments: argparse.Namespace) -> Feed | None:
    """Batches of DataLoader on the device, by workers that end with the turn; None without torchvision."""
    try:
        from torchvision.transforms import v2
    except (ImportError, RuntimeError):  # not there, or made for another torch
        return None
    recipe = [
        v2.RandomResizedCrop(arguments.size),
        v2.RandomHorizontalFlip(),
        v2.ColorJitter(*JITTER),
        v2.ToImage(),
    ]
    recipe += [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD), v2.RandomErasing(0.25)]
    loader = torch.utils.data.DataLoader(
        Photos(tree, v2.Compose(recipe)),
        arguments.batch,
        shuffle=True,
        drop_last=True,
        num_workers=arguments.workers,
        pin_memory=arguments.device.type == "cuda",
    )

    def moved() -> Generator[Any, None, None]:
        for images, labels in forever(loader):
            images = images.to(arguments.device, torch.bfloat16, non_blocking=True).contiguous(
                memory_format=torch.channels_last
            )
            yield images, labels.to(arguments.device, non_blocking=True)

    return moved


def tiny(arguments: argparse.Namespace) -> None:
    """Sizes that run anywhere in seconds."""
    arguments.tiny = True
    (
        arguments.batch,
        arguments.size,
        arguments.images,
        arguments.workers,
        arguments.rounds,
        arguments.steps,
    ) = 8, 32, 64, 2, 1, 3


def main() -> int:
    """Measures the four parts and prints one table, then the targets."""
    made = common.parser(__doc__, rounds=5)
    made.set_defaults(workers=16)
    made.add_argument("--device", type=torch.device, default=torch.device("cuda"))
    made.add_argument("--batch", type=int, default=256)
    made.add_argument("--size", type=int, default=224)
    made.add_argument(
        "--images", type=int, default=4096, help="files in the tree, at least (default %(default)s)"
    )
    made.add_argument("--steps", type=int, default=60, help="steps of a turn (default %(default)s)")
    made.add_argument(
        "--tiny", action="store_true", help="sizes that run anywhere in seconds; no targets are meant"
    )
    made.add_argument(
        "--only",
        choices=["floats", "augment", "step", "loader"],
        action="append",
        help="parts to measure (default: all)",
    )
    arguments = made.parse_args()
    if arguments.tiny:
        tiny(arguments)
    parts = arguments.only or ["floats", "augment", "step", "loader"]
    shape = (arguments.batch, 3, arguments.size, arguments.size)
    images = (
        torch.randint(0, 256, shape, dtype=torch.uint8)
        .contiguous(memory_format=torch.channels_last)
        .to(arguments.device)
    )
    rows: list[Row] = []
    targets: list[common.Target] = []
    report = ""
    if "floats" in parts:
        _add(rows, targets, floats(arguments, images))
    if "augment" in parts:
        _add(rows, targets, augmentation(arguments, images))
    if "step" in parts or "loader" in parts:
        tree = corpus(arguments)
        path = common.pack_fresh(tree, f"device-{arguments.images}.fl", workers=arguments.workers)
    if "step" in parts:
        *found, report = steps(arguments, path, images)
        _add(rows, targets, found)
    if "loader" in parts:
        _add(rows, targets, loaders(arguments, path, tree))
    name = (
        torch.cuda.get_device_name(arguments.device)
        if arguments.device.type == "cuda"
        else arguments.device.type
    )
    table = Table(title=f"{name}, {arguments.batch} x 3 x {arguments.size} x {arguments.size}")
    for column in ("", "measured", ""):
        table.add_column(column, justify="right" if column else "left")
    for row in rows:
        table.add_row(*row)
    common.console.print(table)
    if report:
        common.console.print(report, highlight=False, markup=False)
    return common.finish("device", arguments, targets, device=name, table=[list(row) for row in rows])


def _add(rows: list[Row], targets: list[common.Target], found: Any) -> None:
    rows += found[0]
    targets += found[1]


if __name__ == "__main__":
    raise SystemExit(main())
