"""Resize to 224 x 224 with Pillow's own arithmetic, against Pillow's resize and against the engine's, which
is within 1 of it.

    python benchmarks/bench_resize.py [--rounds 15] [--save resize]

Method: noise of three sizes that photographs of ImageNet have, as RGB and grey. The box changes from call to
call, so that tables are made anew, as for random crops. In each round each of the three resizes the image
some times, one after the other, in one thread; the figure is the median over the rounds of the CPU time of a
call. Pillow makes a new image, ours write to an array that is there. The last line takes photographs of the
corpus from their bytes to a resized crop, by Pillow and by RegionDecoder, whose bytes are the same.
"""

from __future__ import annotations

import io
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import common
import numpy as np
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile
from rich.table import Table

from fastload._native import core
from fastload.lazy.resampling import FILTERS, pillow_order

SIZE = (224, 224)
SIZES = ((300, 300), (500, 375), (375, 500))
NAMES = ("bilinear", "bicubic", "lanczos")
TARGETS = {"bilinear": 5.0, "bicubic": 5.0}
CALLS = 8
NUMBERS = {name: number for number, name in FILTERS.items()}
Call = Callable[[int], object]


def boxes(width: int, height: int) -> list[tuple[float, float, float, float]]:
    """Nearly all of the image, a little different in each call."""
    return [(0.25 * k, 0.125 * k, width - 0.125 * k, height - 0.25 * k) for k in range(CALLS)]


def resizes(width: int, height: int, channels: int, name: str, order: str) -> dict[str, Call]:
    """The calls that a case compares; each takes the number of its box."""
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, channels), dtype=np.uint8)
    image = Image.fromarray(pixels if channels == 3 else pixels[:, :, 0])
    edges, into = boxes(width, height), np.empty((*SIZE, channels), np.uint8)
    calls: dict[str, Call] = {
        "Pillow": lambda k: image.resize(SIZE, NUMBERS[name], edges[k]),
        "exact": lambda k: core.resize_exact(pixels, edges[k], SIZE, name, order=order, into=into),
    }
    if channels == 3 and name != "lanczos":
        parts = [(left, top, right - left, bottom - top) for left, top, right, bottom in edges]
        calls["engine"] = lambda k: core.resize(pixels, parts[k], SIZE, name)
    return calls


def crops(files: list[Path], name: str, order: str) -> dict[str, Call]:
    """Photographs, from bytes to a resized crop of a half of each side."""
    data = [path.read_bytes() for path in files]
    decoder, into = core.RegionDecoder(), np.empty((*SIZE, 3), np.uint8)

    def box_of(width: int, height: int) -> tuple[int, int, int, int]:
        return width // 5, height // 4, width // 5 + width // 2, height // 4 + height // 2

    def pillow(k: int) -> object:
        image = JpegImageFile(io.BytesIO(data[k])).convert("RGB")
        return image.crop(box_of(*image.size)).resize(SIZE, NUMBERS[name])

    def native(k: int) -> object:
        left, top, right, bottom = box_of(*decoder.open(data[k]))
        decoder.decode((left, top, right - left, bottom - top))
        return decoder.resample(None, SIZE, name, order=order, into=into)

    assert all(np.array_equal(np.asarray(pillow(k)), native(k)) for k in range(len(data)))
    return {"Pillow": pillow, "exact": native}


def measured(calls: dict[str, Call], rounds: int, count: int) -> dict[str, float]:
    """Median CPU time of a call of each, in microseconds."""
    found: dict[str, list[float]] = {title: [] for title in calls}
    for _ in range(rounds):
        for title, call in calls.items():
            began = time.thread_time()
            for k in range(count):
                call(k)
            found[title].append((time.thread_time() - began) / count * 1e6)
    return {title: statistics.median(values) for title, values in found.items()}


def main() -> int:
    """Measures every size, filter and form, and whole crops of photographs."""
    arguments = common.parser(__doc__, rounds=15).parse_args()
    order = pillow_order()
    if order is None:
        common.console.print(
            "the installed Pillow resizes otherwise: there is nothing to compare", style="red"
        )
        return 2
    files = sorted(common.corpus(arguments.corpus, "in500").rglob("*.jp*g"))[: 5 * CALLS : 5]
    cases: dict[str, tuple[dict[str, Call], float | None]] = {}
    for name in NAMES:
        for width, height in SIZES:
            cases[f"{width} x {height} RGB, {name}"] = (
                resizes(width, height, 3, name, order),
                TARGETS.get(name),
            )
        cases[f"500 x 375 grey, {name}"] = resizes(500, 375, 1, name, order), None
    cases["decode, crop and bilinear"] = crops(files, "bilinear", order), None
    shown = Table(title=f"CPU us a resize to 224 x 224; Pillow {Image.__version__}, {core.cpu_features()}")
    for heading in ("", "Pillow", "exact", "engine", "Pillow / exact"):
        shown.add_column(heading, justify="right" if heading else "left")
    rows, targets = {}, []
    for title, (calls, bound) in cases.items():
        row = rows[title] = measured(calls, arguments.rounds, CALLS)
        ratio = row["Pillow"] / row["exact"]
        shown.add_row(
            title,
            *(f"{row[each]:.0f}" if each in row else "" for each in ("Pillow", "exact", "engine")),
            f"{ratio:.1f}",
        )
        if bound is not None:
            targets.append(common.Target(f"{title}: Pillow / exact", ratio, bound))
    common.console.print(shown)
    return common.finish("resize", arguments, targets, pillow=Image.__version__, rows=rows)


if __name__ == "__main__":
    sys.exit(main())
