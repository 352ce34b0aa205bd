"""Sections 4 and 7: a training step fed by loaders against one on a batch that stays on the device, and
delivery alone."""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import bench_device
import common
import torch
import torchvision_ops  # noqa: F401  (before anything imports torchvision)

from device_sections.environment import PACK
from device_sections.report import MEASURED, Details, Report, Skipped

JPEG, DCT, PILLOW, RESIDENT = "FastLoader, JPEG", "FastLoader, dct", "DataLoader, Pillow", "resident"
Turns = dict[str, list[bench_device.Turn]]


def settings(rehearse: bool, steps: int) -> argparse.Namespace:
    """The arguments of bench_device."""
    found = argparse.Namespace(
        tiny=False,
        batch=256,
        size=224,
        images=2048,
        workers=14,
        rounds=3,
        steps=steps,
        corpus=PACK / "corpus",
    )
    found.device = torch.device("cpu" if rehearse else "cuda")
    if rehearse:
        bench_device.tiny(found)
        found.corpus, found.images = Path("nowhere"), 16
    return found


def step(report: Report, rehearse: bool) -> None:
    """A ResNet-50 step in bfloat16, channels_last: on one batch, and on those of each loader."""
    arguments = settings(rehearse, steps=20)
    shape = (arguments.batch, 3, arguments.size, arguments.size)

    def turns(feeds: dict[str, bench_device.Feed]) -> Turns:
        images = (
            torch.randint(0, 256, shape, dtype=torch.uint8)
            .contiguous(memory_format=torch.channels_last)
            .to(arguments.device)
        )
        return bench_device.step(arguments, feeds, images, seconds=30)

    fed(report, arguments, turns, pillow=True)


def loader(report: Report, rehearse: bool) -> None:
    """Nothing but delivery to the device."""
    arguments = settings(rehearse, steps=40)
    fed(
        report,
        arguments,
        lambda feeds: bench_device.deliver(arguments, feeds, seconds=25),
        pillow=not rehearse,
    )


def fed(
    report: Report,
    arguments: argparse.Namespace,
    turns: Callable[[dict[str, bench_device.Feed]], Turns],
    pillow: bool,
) -> None:
    """Packs the photographs, runs the turns of all ways, and reports each. pillow: torch's DataLoader is
    one of them."""
    with ExitStack() as stack:
        common.WORK = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="photos-")))
        paths: dict[str, Path] = {}
        report.run("photographs packed", partial(packed, arguments, paths), 50, MEASURED)
        feeds: dict[str, bench_device.Feed] = {}
        for name in (JPEG, DCT):
            feeds[name] = partial(
                bench_device.forever, stack.enter_context(bench_device.fast_loader(paths[name], arguments))
            )
        theirs = bench_device.torch_feed(paths["tree"], arguments) if pillow else None
        if theirs is not None:
            feeds[PILLOW] = theirs
        found: Turns = {}
        report.run("turns", lambda: measured(found, turns(feeds), arguments), 65, MEASURED)
        for name in found:
            report.run(name, partial(figures, found, name, arguments), ended=MEASURED)
        if pillow and theirs is None:
            report.run(PILLOW, no_torchvision)


def packed(arguments: argparse.Namespace, paths: dict[str, Path]) -> Details:
    """Copies the photographs until there are enough, and packs them as JPEG and in the form dct. Returns
    seconds."""
    began = time.perf_counter()
    paths["tree"] = bench_device.corpus(arguments)
    found = {"copy": time.perf_counter() - began}
    for name, encode in ((JPEG, "lossless"), (DCT, "dct")):
        began = time.perf_counter()
        paths[name] = common.pack_fresh(
            paths["tree"], f"{encode}.fl", workers=arguments.workers, encode=encode
        )
        found[encode] = time.perf_counter() - began
    return {name: round(spent, 2) for name, spent in found.items()}


def no_torchvision() -> Details:
    raise Skipped("torchvision is not installed for this torch")


def measured(found: Turns, turns: Turns, arguments: argparse.Namespace) -> Details:
    """Keeps the turns, and returns their line in the table."""
    found.update(turns)
    told = (f"{name} {figures(found, name, arguments)['step_ms']:.1f} ms" for name in found)
    return {"rounds": min(map(len, found.values())), "batch": arguments.batch, "table": ", ".join(told)}


def figures(found: Turns, name: str, arguments: argparse.Namespace) -> Details:
    """Medians over the rounds, and every turn."""
    turns = found[name]
    seconds = statistics.median(turn.seconds for turn in turns)
    busy = [turn.busy for turn in turns if turn.busy is not None]
    details: dict[str, Any] = {
        "step_ms": round(seconds * 1e3, 3),
        "images_per_s": round(arguments.batch / seconds, 1),
        "waited_ms": round(statistics.median(turn.waited for turn in turns) * 1e3, 3),
        "busy": round(statistics.median(busy), 3) if busy else None,
        "turns": [asdict(turn) for turn in turns],
    }
    if RESIDENT in found:
        resident = bench_device.seconds_of(found[RESIDENT])
        details["of_resident"] = round(bench_device.ratio(bench_device.seconds_of(turns), resident), 4)
    return details
