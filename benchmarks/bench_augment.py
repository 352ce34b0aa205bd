"""Batch augmentation per op: fastload.augment against Kornia's own batch modules and torchvision's v2
transforms sample by sample.

    python benchmarks/bench_augment.py [--device cuda] [--batch 16] [--size 224] [--rounds 5] [--only NAME]
    [--save augment]

Columns: ours on uint8 and on float32, Kornia on float32 (it takes no uint8), torchvision (tv) on uint8, one
sample after the other (what a worker of a DataLoader does; on the CPU also with --device cuda).
Method: in one process, one turn of each after the other in every round; a turn repeats the call until 0.1 s
are over. On the CPU the figure is CPU time of all threads, on a device the time from the first call to the
end of the last, each an image; a ratio is the median over rounds of the ratio of two turns of one round.
Drawing parameters counts, for everyone. Caveats: policies of Kornia choose their ops once for the whole
batch, which is less work than per sample. What Kornia and torchvision draw differs from turn to turn, so
their policies scatter.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import common
import kornia.augmentation as K
import torch
from kornia.augmentation import auto
from rich.table import Table
from torch import Tensor

from fastload import augment as A
from fastload.bench import measure
from fastload.bench.report import number

TURN_S = 0.1
LIGHT = [A.RandomHorizontalFlip(), A.ColorJitter(0.4, 0.4, 0.4, 0.1), A.RandomErasing(0.25)]
Call = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """One row: our ops, Kornia's module, torchvision's transform; None where there is none."""

    name: str
    ops: list[Any]
    kornia: Callable[[], Any] | None
    torchvision: Callable[[Any], Any] | None


@dataclass
class Column:
    """Seconds an image, one figure a round."""

    times: list[float | None] = field(default_factory=list)


def cases() -> list[Case]:
    """Every op at probability 1, so that all rows are work, then recipes as they are used."""
    return [
        Case(
            "horizontal flip",
            [A.RandomHorizontalFlip(1)],
            lambda: K.RandomHorizontalFlip(p=1.0),
            lambda v: v.RandomHorizontalFlip(1),
        ),
        Case(
            "crop, padding 4",
            [A.RandomCrop(224, 4)],
            lambda: K.RandomCrop((224, 224), 4),
            lambda v: v.RandomCrop(224, 4),
        ),
        Case(
            "affine, bilinear",
            [A.RandomAffine(15, (0.1, 0.1), (0.9, 1.1), 5, "bilinear")],
            lambda: K.RandomAffine(15.0, (0.1, 0.1), (0.9, 1.1), 5.0, p=1.0),
            lambda v: v.RandomAffine(15, (0.1, 0.1), (0.9, 1.1), 5, v.InterpolationMode.BILINEAR),
        ),
        Case(
            "colour jitter",
            [A.ColorJitter(0.4, 0.4, 0.4, 0.1)],
            lambda: K.ColorJitter(0.4, 0.4, 0.4, 0.1, p=1.0),
            lambda v: v.ColorJitter(0.4, 0.4, 0.4, 0.1),
        ),
        Case(
            "colour jitter, no hue",
            [A.ColorJitter(0.4, 0.4, 0.4)],
            lambda: K.ColorJitter(0.4, 0.4, 0.4, p=1.0),
            lambda v: v.ColorJitter(0.4, 0.4, 0.4),
        ),
        Case(
            "grayscale",
            [A.RandomGrayscale(1)],
            lambda: K.RandomGrayscale(p=1.0),
            lambda v: v.RandomGrayscale(1),
        ),
        Case(
            "gaussian blur 23",
            [A.GaussianBlur(23)],
            lambda: K.RandomGaussianBlur((23, 23), (0.1, 2.0), p=1.0),
            lambda v: v.GaussianBlur(23),
        ),
        Case(
            "solarize",
            [A.RandomSolarize(128, 1)],
            lambda: K.RandomSolarize(0.0, 0.0, p=1.0),
            lambda v: v.RandomSolarize(128, 1),
        ),
        Case(
            "posterize",
            [A.RandomPosterize(4, 1)],
            lambda: K.RandomPosterize((4, 4), p=1.0),
            lambda v: v.RandomPosterize(4, 1),
        ),
        Case(
            "equalize", [A.RandomEqualize(1)], lambda: K.RandomEqualize(p=1.0), lambda v: v.RandomEqualize(1)
        ),
        Case(
            "sharpness",
            [A.RandomAdjustSharpness(1.7, 1)],
            lambda: K.RandomSharpness((1.7, 1.7), p=1.0),
            lambda v: v.RandomAdjustSharpness(1.7, 1),
        ),
        Case(
            "autocontrast",
            [A.RandomAutocontrast(1)],
            lambda: K.RandomAutoContrast(p=1.0),
            lambda v: v.RandomAutocontrast(1),
        ),
        Case("invert", [A.RandomInvert(1)], lambda: K.RandomInvert(p=1.0), lambda v: v.RandomInvert(1)),
        Case("erasing", [A.RandomErasing(1)], lambda: K.RandomErasing(p=1.0), lambda v: v.RandomErasing(1)),
        Case(
            "flip + rotation",
            [A.RandomHorizontalFlip(), A.RandomRotation(15)],
            lambda: K.AugmentationSequential(
                K.RandomHorizontalFlip(), K.RandomRotation(15.0, p=1.0), data_keys=["input"]
            ),
            lambda v: v.Compose([v.RandomHorizontalFlip(), v.RandomRotation(15)]),
        ),
        Case(
            "light: flip, jitter, erasing",
            LIGHT,
            lambda: K.AugmentationSequential(
                K.RandomHorizontalFlip(),
                K.ColorJitter(0.4, 0.4, 0.4, 0.1, p=1.0),
                K.RandomErasing(p=0.25),
                data_keys=["input"],
            ),
            lambda v: v.Compose(
                [v.RandomHorizontalFlip(), v.ColorJitter(0.4, 0.4, 0.4, 0.1), v.RandomErasing(0.25)]
            ),
        ),
        Case(
            "RandAugment(2, 9)",
            [A.RandAugment(2, 9)],
            lambda: auto.RandAugment(2, 9),
            lambda v: v.RandAugment(2, 9),
        ),
        Case(
            "TrivialAugmentWide",
            [A.TrivialAugmentWide()],
            auto.TrivialAugment,
            lambda v: v.TrivialAugmentWide(),
        ),
        Case(
            "AutoAugment", [A.AutoAugment()], lambda: auto.AutoAugment("imagenet"), lambda v: v.AutoAugment()
        ),
    ]


def calls(case: Case, images: Tensor, transforms: Any) -> dict[str, Call]:
    """What is timed, by column."""
    floats, host = images.float() / 255, images.cpu()
    indices = range(len(images))

    def ours(x: Tensor) -> Call:
        augment = A.AugmentBatch(case.ops)
        return lambda: augment(x, seed=1, epoch=0, indices=indices)

    made: dict[str, Call] = {"fastload": ours(images), "fastload float": ours(floats)}
    if case.kornia is not None:
        module = case.kornia()
        made["kornia float"] = lambda: module(floats)
    if transforms is not None and case.torchvision is not None:
        transform = case.torchvision(transforms)
        made["torchvision"] = lambda: [transform(image) for image in host]
    return made


def turn(call: Call, device: torch.device, images: int) -> float:
    """Seconds an image of repeated calls."""
    clock = time.process_time if device.type == "cpu" else time.perf_counter

    def wait() -> None:
        if device.type != "cpu":
            torch.get_device_module(device).synchronize()

    wait()
    start, done = clock(), 0
    end = time.perf_counter() + TURN_S
    while time.perf_counter() < end:
        call()
        done += 1
    wait()
    return (clock() - start) / done / images


def torchvision_transforms() -> Any:
    """torchvision.transforms.v2, or None where it cannot be imported."""
    import sys

    sys.path.insert(0, str(common.HERE.parent / "tests"))
    try:
        import torchvision_ops  # noqa: F401  (before anything imports torchvision)
        from torchvision.transforms import v2
    except ImportError:
        return None
    return v2


def works(title: str, call: Call) -> bool:
    """Calls it once, which also warms it up, and says why not."""
    try:
        call()
    except Exception as error:
        common.console.print(f"{title}: {error}", style="yellow", markup=False)
        return False
    return True


def measured(case: Case, images: Tensor, rounds: int, transforms: Any) -> dict[str, Column]:
    """All columns of one row, interleaved."""
    made = calls(case, images, transforms)
    columns = {
        name: Column([] if works(f"{case.name}, {name}", call) else [None]) for name, call in made.items()
    }
    for _ in range(rounds):
        for name, column in columns.items():
            if None not in column.times:
                column.times.append(turn(made[name], images.device, len(images)))
    return columns


def over(columns: dict[str, Column], name: str) -> float | None:
    """How many times fastload's time the other's is: its own dtype for Kornia, bytes for torchvision."""
    base = "fastload float" if name == "kornia float" else "fastload"
    if name not in columns:
        return None
    return measure.median(
        a / b for a, b in zip(columns[name].times, columns[base].times, strict=False) if a and b
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", help="where the batches lie (default %(default)s)")
    parser.add_argument("--batch", type=int, default=16, help="images (default %(default)s; 256 for a GPU)")
    parser.add_argument("--size", type=int, default=224, help="height and width (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="of torch on the CPU (default %(default)s)")
    parser.add_argument("--only", default="", help="rows whose name holds this")
    parser.add_argument("--save", metavar="NAME", help="keep the result as benchmarks/results/NAME.json")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    device = torch.device(arguments.device)
    transforms = torchvision_transforms()
    generator = torch.Generator().manual_seed(0)
    coarse = torch.randint(0, 256, (arguments.batch, 3, 14, 14), generator=generator).float()
    images = (
        torch.nn.functional.interpolate(coarse, size=(arguments.size,) * 2, mode="bilinear")
        .to(torch.uint8)
        .to(device)
    )

    names = "fastload", "fastload float", "kornia float", "torchvision"
    clock = "CPU" if device.type == "cpu" else arguments.device
    shown = Table(
        title=f"{clock} us an image, batches of {arguments.batch} x 3 x {arguments.size} x {arguments.size}"
    )
    for heading in ("", "ours u8", "ours f32", "kornia", "tv", "kornia/ours", "tv/ours"):
        shown.add_column(heading, justify="right" if heading else "left", no_wrap=not heading)
    kept = []
    for case in cases():
        if arguments.only not in case.name:
            continue
        with common.note(case.name):
            columns = measured(case, images, arguments.rounds, transforms)
        medians = {name: measure.median(columns[name].times) if name in columns else None for name in names}
        ratios = {name: over(columns, name) for name in ("kornia float", "torchvision")}
        shown.add_row(
            case.name,
            *(number(medians[n], 0, 1e6) for n in names),
            *(number(value, 2) for value in ratios.values()),
        )
        kept.append(
            {
                "op": case.name,
                "seconds": {name: column.times for name, column in columns.items()},
                "ratios": ratios,
            }
        )
    common.console.print(shown)
    if arguments.save:
        settings = {
            name: getattr(arguments, name) for name in ("device", "batch", "size", "rounds", "threads")
        }
        document = {"benchmark": "augment", "machine": measure.machine_facts(), **settings, "rows": kept}
        common.RESULTS.mkdir(exist_ok=True)
        (common.RESULTS / f"{arguments.save}.json").write_text(
            json.dumps(document, indent=1) + "\n", encoding="utf-8"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
