"""Section 6: ops on the device: their pixels against the CPU's and torchvision's, their time against
torchvision's and Kornia's.

Parameters are fixed, so that every library does the same to every image. No rotation has a fill, with which
torchvision weights the picture twice at its border.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import bench_device
import torch

from device_sections.report import MEASURED, Details, Report, Wrong
from device_sections.training import settings
from fastload import augment as A
from fastload.device import to_float as to_float_module
from fastload.device.gpu import working
from fastload.device.to_float import FORMATS, eager, to_float

LEAST_EQUAL = 0.995
"""Least share of values that are within one level of another way's."""
KEY: dict[str, Any] = {"seed": 1, "epoch": 0}


@dataclass(frozen=True)
class Case:
    """One op with fixed parameters: ours, torchvision's transform by `transforms.v2`, and Kornia's module
    by `kornia.augmentation`."""

    name: str
    ours: Any
    torchvision: Callable[[Any], Any]
    kornia: Callable[[Any], Any] | None = None


def jitter(name: str, *value: float) -> Case:
    """One of the four changes of a colour jitter."""
    return Case(f"jitter, {name}", A.ColorJitter(**{name: value}), lambda v: v.ColorJitter(**{name: value}))


CASES = (
    Case(
        "hflip",
        A.RandomHorizontalFlip(1.0),
        lambda v: v.RandomHorizontalFlip(1.0),
        lambda k: k.RandomHorizontalFlip(p=1.0),
    ),
    Case(
        "grayscale",
        A.RandomGrayscale(1.0),
        lambda v: v.RandomGrayscale(1.0),
        lambda k: k.RandomGrayscale(p=1.0),
    ),
    *(
        jitter("brightness", 1.3, 1.3),
        jitter("contrast", 1.3, 1.3),
        jitter("saturation", 0.6, 0.6),
        jitter("hue", 0.1, 0.1),
    ),
    Case(
        "solarize",
        A.RandomSolarize(128, 1.0),
        lambda v: v.RandomSolarize(128, 1.0),
        lambda k: k.RandomSolarize(0.0, 0.0, p=1.0),
    ),
    Case(
        "posterize",
        A.RandomPosterize(4, 1.0),
        lambda v: v.RandomPosterize(4, 1.0),
        lambda k: k.RandomPosterize((4, 4), p=1.0),
    ),
    Case(
        "equalize", A.RandomEqualize(1.0), lambda v: v.RandomEqualize(1.0), lambda k: k.RandomEqualize(p=1.0)
    ),
    Case(
        "autocontrast",
        A.RandomAutocontrast(1.0),
        lambda v: v.RandomAutocontrast(1.0),
        lambda k: k.RandomAutoContrast(p=1.0),
    ),
    Case("invert", A.RandomInvert(1.0), lambda v: v.RandomInvert(1.0), lambda k: k.RandomInvert(p=1.0)),
    Case(
        "sharpness",
        A.RandomAdjustSharpness(1.7, 1.0),
        lambda v: v.RandomAdjustSharpness(1.7, 1.0),
        lambda k: k.RandomSharpness((1.7, 1.7), p=1.0),
    ),
    Case(
        "blur 23",
        A.GaussianBlur(23, (1.5, 1.5)),
        lambda v: v.GaussianBlur(23, (1.5, 1.5)),
        lambda k: k.RandomGaussianBlur((23, 23), (1.5, 1.5), p=1.0),
    ),
    Case(
        "rotation",
        A.RandomRotation((15, 15), "bilinear"),
        lambda v: v.RandomRotation((15, 15), v.InterpolationMode.BILINEAR, fill=None),
        lambda k: k.RandomRotation((15.0, 15.0), p=1.0),
    ),
    Case(
        "affine",
        A.RandomAffine((10, 10), None, (1.1, 1.1), (5, 5), "bilinear"),
        lambda v: v.RandomAffine((10, 10), None, (1.1, 1.1), (5, 5), v.InterpolationMode.BILINEAR, fill=None),
        lambda k: k.RandomAffine((10.0, 10.0), None, (1.1, 1.1), (5.0, 5.0), p=1.0),
    ),
)


def run(report: Report, rehearse: bool) -> None:
    """Reports the pass to floats, augmentation as a whole, and each op."""
    arguments = settings(rehearse, steps=1)
    coarse = torch.randint(
        0, 256, (arguments.batch, 3, 14, 14), generator=torch.Generator().manual_seed(0)
    ).float()
    images = torch.nn.functional.interpolate(coarse, size=(arguments.size,) * 2, mode="bilinear").to(
        torch.uint8
    )
    images = images.contiguous(memory_format=torch.channels_last).to(arguments.device)
    report.run("Triton's kernels work", lambda: kernels_work(images, rehearse), 40)
    report.run("to_float, bits", lambda: float_bits(images[: max(1, len(images) // 8)]), 20)
    report.run(
        "to_float, time",
        lambda: lines(bench_device.floats(arguments, images, compiles=False)[0]),
        30,
        MEASURED,
    )
    report.run(
        "augmentation, time", lambda: lines(bench_device.augmentation(arguments, images)[0]), 40, MEASURED
    )
    libraries = {"torchvision": found(torchvision), "kornia": found(kornia)}
    slower = []
    for case in CASES:
        done = report.run(case.name, partial(op, case, images.contiguous(), libraries, arguments), 30)
        slower += [case.name] if done.get("torchvision / ours", 1.0) < 1.0 else []
    report.note("Triton's kernels work", table=f"slower than torchvision: {', '.join(slower) or 'none'}")


def kernels_work(images: torch.Tensor, rehearse: bool) -> Details:
    """Both of Triton's modules work on the device."""
    from fastload.augment import jitter as jitter_module

    works = {
        load.__module__: working(load, images.device) is not None
        for load in (to_float_module._kernel, jitter_module._kernel)
    }
    if not rehearse and not all(works.values()):
        raise Wrong("a kernel does not work: the warning above says why", works=works)
    return {"works": works}


def float_bits(images: torch.Tensor) -> Details:
    """In every layout and dtype, the bits of torch's own ops on the CPU."""
    apart = []
    for dtype, source, out in itertools.product(
        (torch.float32, torch.bfloat16, torch.float16), FORMATS, FORMATS
    ):
        given = images.contiguous(memory_format=source)
        got = to_float(given, dtype, bench_device.MEAN, bench_device.STD, out)
        want = eager(given.cpu(), dtype, bench_device.MEAN, bench_device.STD, out)
        if not torch.equal(got.cpu(), want):
            apart.append([str(each) for each in (dtype, source, out)])
    if apart:
        raise Wrong(f"{len(apart)} of 12 ways give other bits than the CPU", apart=apart)
    return {"ways": 12}


def lines(rows: list[bench_device.Row]) -> Details:
    """The rows of a benchmark."""
    return {"rows": [list(row) for row in rows]}


def found(library: Callable[[], Any]) -> Any:
    """A library; None if it cannot be imported."""
    try:
        return library()
    except (ImportError, RuntimeError):
        return None


def torchvision() -> Any:
    from torchvision.transforms import v2

    return v2


def kornia() -> Any:
    import kornia.augmentation

    return kornia.augmentation


def op(case: Case, images: torch.Tensor, libraries: dict[str, Any], arguments: argparse.Namespace) -> Details:
    """Pixels and times of one op.

    Raises:
        Wrong: fewer values than LEAST_EQUAL are within one level of the CPU's, or of torchvision's.
    """
    augment, floats = A.AugmentBatch([case.ours]), images.float() / 255
    ours = partial(augment, **KEY, indices=range(len(images)))
    ways: dict[str, Callable[[], torch.Tensor]] = {"ours": partial(ours, images)}
    some = slice(0, max(1, len(images) // 16))
    got = augment(images[some], **KEY, indices=range(len(images[some]))).cpu()
    wants = {"cpu": augment(images[some].cpu(), **KEY, indices=range(len(images[some])))}
    if libraries["torchvision"] is not None:
        transform = case.torchvision(libraries["torchvision"])
        ways["torchvision"] = partial(transform, images)
        wants["torchvision"] = transform(images[some]).cpu()
    if libraries["kornia"] is not None and case.kornia is not None:
        module = case.kornia(libraries["kornia"])
        ways["kornia"] = partial(module, floats)
        wants["kornia"] = module(floats[some]).mul(255).cpu()
    equal = {
        name: round(float(((got.float() - want.float()).abs() <= 1.001).float().mean()), 5)
        for name, want in wants.items()
    }
    turns = bench_device.in_turn(
        {name: partial(bench_device.per_call, way, arguments, 10) for name, way in ways.items()},
        arguments.rounds,
    )
    details: Details = {
        "equal": equal,
        "ms": {name: round(statistics.median(each) * 1e3, 4) for name, each in turns.items()},
    }
    details |= {
        f"{name} / ours": round(bench_device.ratio(each, turns["ours"]), 3)
        for name, each in turns.items()
        if name != "ours"
    }
    far = [name for name, share in equal.items() if name != "kornia" and share < LEAST_EQUAL]
    if far:
        raise Wrong(
            f"fewer than {LEAST_EQUAL:.1%} of the values are within one level of those of "
            f"{' and '.join(far)}",
            **details,
        )
    return details
