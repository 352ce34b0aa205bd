"""Pillow's colour steps, blurs and warps of a 224 x 224 photograph, by Pillow and by the native code that
lazy images use, with equal bytes.

    python benchmarks/bench_colour.py [--rounds 15] [--save colour]

Method: eight photographs of the corpus, resized. In each round Pillow and native code do a step to all of
them, one after the other, in one thread; the figure is the median over the rounds of the ratio of their CPU
times. Both make new pixels, in memory that malloc keeps, as it does in workers. Pillow's side is its public
calls, as torchvision has them.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
import numpy as np
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from rich.table import Table

from fastload._native import core
from fastload.common.images import open_image
from fastload.common.system import keep_memory
from fastload.lazy import colours
from fastload.lazy.colours import Proved
from fastload.lazy.warps import Warp

SIDE, COUNT = 224, 8
MAP = (0.93, 0.17, 5.3, -0.16, 1.04, 11.7)
BLACK = b"\0\0\0\xff"
Pillow = Callable[[Image.Image], Image.Image]


def hue(image: Image.Image) -> Image.Image:
    """As torchvision's adjust_hue by 0.2."""
    h, s, v = image.convert("HSV").split()
    turned = np.array(h, np.uint8) + np.uint8(51)
    return Image.merge("HSV", (Image.fromarray(turned), s, v)).convert("RGB")


def grey(image: Image.Image) -> Image.Image:
    """As torchvision's to_grayscale, of three channels."""
    return Image.fromarray(np.dstack([np.array(image.convert("L"))] * 3), "RGB")


def warp(number: int) -> tuple[Pillow, Proved]:
    """An affine warp with one of Pillow's filters."""
    size = SIDE, SIDE
    return (
        lambda image: image.transform(size, Image.Transform.AFFINE, MAP, number),
        Warp(size, MAP, number, BLACK),
    )


TABLE = bytes(255 - each if each >= 128 else each for each in range(256))
STEPS: dict[str, tuple[Pillow, Proved, float | None]] = {
    "hue": (hue, colours.Hue(51), 6.0),
    "brightness": (
        lambda image: ImageEnhance.Brightness(image).enhance(1.3),
        colours.Blend(bytes(4), 1.3),
        6.0,
    ),
    "contrast": (lambda image: ImageEnhance.Contrast(image).enhance(1.3), colours.Contrast(1.3), 6.0),
    "saturation": (lambda image: ImageEnhance.Color(image).enhance(1.3), colours.Saturate(1.3), 6.0),
    "greyscale": (grey, colours.Grey(), 6.0),
    "solarize": (lambda image: ImageOps.solarize(image, 128), colours.Point(3 * TABLE), 6.0),
    "equalize": (ImageOps.equalize, colours.Equalize(), None),
    "autocontrast": (ImageOps.autocontrast, colours.Autocontrast(), None),
    "sharpness": (lambda image: ImageEnhance.Sharpness(image).enhance(1.5), colours.Sharpen(1.5), 8.0),
    "Gaussian blur": (
        lambda image: image.filter(ImageFilter.GaussianBlur(1.2)),
        colours.Gaussian((1.2, 1.2)),
        5.0,
    ),
    "box blur": (lambda image: image.filter(ImageFilter.BoxBlur(2)), colours.Box((2.0, 2.0)), 5.0),
    "affine, nearest": (*warp(0), None),
    "affine, bilinear": (*warp(2), 4.0),
    "affine, bicubic": (*warp(3), 4.0),
}


def picture(path: Path) -> Image.Image:
    """A photograph in the size that is measured."""
    with open(path, "rb") as file:
        return open_image(file).convert("RGB").resize((SIDE, SIDE))


def timed(call: Callable[[Any], object], values: list[Any]) -> float:
    """CPU time of a call with each value, in microseconds."""
    began = time.thread_time()
    for value in values:
        call(value)
    return (time.thread_time() - began) / len(values) * 1e6


def main() -> int:
    """Measures every step, whose bytes must be equal."""
    arguments = common.parser(__doc__, rounds=15).parse_args()
    files = sorted(common.corpus(arguments.corpus, "in500").rglob("*.jp*g"))[: 5 * COUNT : 5]
    keep_memory("samples", 1 << 25, 1 << 28)
    images = [picture(path) for path in files]
    pixels = [np.asarray(image) for image in images]
    shown = Table(title=f"CPU us a 224 x 224 image; Pillow {Image.__version__}, {core.cpu_features()}")
    for heading in ("", "Pillow", "native", "Pillow / native"):
        shown.add_column(heading, justify="right" if heading else "left")
    rows, targets = {}, []
    for title, (pillow, step, bound) in STEPS.items():
        for image, array in zip(images, pixels, strict=True):
            np.testing.assert_array_equal(step.natively(array), np.asarray(pillow(image)), title)
        pairs = [(timed(pillow, images), timed(step.natively, pixels)) for _ in range(arguments.rounds)]
        theirs, ours = (statistics.median(each) for each in zip(*pairs, strict=True))
        ratio = statistics.median(a / b for a, b in pairs)
        rows[title] = {"Pillow": theirs, "native": ours, "ratio": ratio}
        shown.add_row(title, f"{theirs:.0f}", f"{ours:.0f}", f"{ratio:.1f}")
        if bound is not None:
            targets.append(common.Target(f"{title}: Pillow / native", ratio, bound))
    common.console.print(shown)
    return common.finish("colour", arguments, targets, pillow=Image.__version__, rows=rows)


if __name__ == "__main__":
    sys.exit(main())
