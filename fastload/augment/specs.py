"""Ops on a batch, as plain values: names, parameters and meaning are torchvision's (transforms v2), per
sample.

A spec is frozen, picklable, holds no tensor, and says in `plan` which rows it changes and how, from its words
alone. Flips and the padded crop are those of `fastload.transforms`. Colours such as `fill` and `value` are
0..255 whatever the images' dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from torch import Tensor

from fastload.augment import kernels
from fastload.augment.kornia_ops import filters, gaussian_blur
from fastload.augment.philox import Draw, Ints
from fastload.augment.space import affine_step, inverse_matrices
from fastload.augment.steps import Frame, Step
from fastload.errors import TransformError

Range = tuple[float, float]
Colour = tuple[float, float, float]


def fail(spec: object, message: str) -> TransformError:
    return TransformError(f"{type(spec).__name__}: {message}")


def keep(spec: object, **values: object) -> None:
    """Sets validated fields of a frozen spec."""
    for name, value in values.items():
        object.__setattr__(spec, name, value)


def span(
    spec: object, name: str, value: float | Sequence[float], *, low: float = -math.inf, high: float = math.inf
) -> Range:
    """A number r as (-r, r), or a pair; ascending, inside low..high."""
    pair = (
        (-abs(float(value)), abs(float(value)))
        if isinstance(value, (int, float))
        else tuple(float(v) for v in value)
    )
    if len(pair) != 2 or not low <= pair[0] <= pair[1] <= high:
        raise fail(spec, f"{name}={value!r}; give a number or an ascending pair between {low:g} and {high:g}")
    return pair[0], pair[1]


def colour(spec: object, name: str, value: float | Sequence[float]) -> Colour:
    """One value or three, 0..255."""
    three = (float(value),) * 3 if isinstance(value, (int, float)) else tuple(float(v) for v in value)
    if len(three) != 3 or not all(0 <= v <= 255 for v in three):
        raise fail(spec, f"{name}={value!r}; give one value or three, 0 to 255")
    return three[0], three[1], three[2]


def interpolation_mode(spec: object, value: object) -> str:
    name = str(getattr(value, "value", value)).lower()
    if name not in ("nearest", "bilinear"):
        raise fail(spec, f'interpolation={value!r}; a batch is resampled by "nearest" or "bilinear"')
    return name


def kernel_sides(spec: object, size: int | Sequence[int]) -> tuple[int, int]:
    """One odd size, or (width, height)."""
    sides = (size,) * 2 if isinstance(size, int) else tuple(size)
    if len(sides) != 2 or any(not isinstance(n, int) or n < 1 or n % 2 == 0 for n in sides):
        raise fail(spec, f"kernel_size={size!r}; give an odd int or two")
    return sides[0], sides[1]


def shear_ranges(spec: object, shear: float | Sequence[float]) -> tuple[Range, Range]:
    """The ranges along x and y, in degrees: of a number or a range along x, or of both as four numbers."""
    if isinstance(shear, (int, float)) or len(shear) == 2:
        return span(spec, "shear", shear), (0.0, 0.0)
    if len(shear) != 4:
        raise fail(spec, f"shear={shear!r}; give a number, two or four")
    return span(spec, "shear", shear[:2]), span(spec, "shear", shear[2:])


class Op:
    """Base of the specs here. A probability `p` is checked by check_p()."""

    words = 2
    """Words of a sample's stream that the op takes; a multiple of 4 wastes none."""

    def plan(self, draw: Draw, frame: Frame) -> list[Step]:
        """The steps that do it to this batch."""
        raise NotImplementedError

    def check_p(self) -> None:
        p = getattr(self, "p", 1.0)
        if not isinstance(p, (int, float)) or not 0.0 <= p <= 1.0:
            raise fail(self, f"p={p!r} is no probability")

    def __post_init__(self) -> None:
        self.check_p()


@dataclass(frozen=True)
class _Plain(Op):
    p: float = 0.5

    kernel: ClassVar[Callable[..., Tensor]]

    def plan(self, draw: Draw, frame: Frame) -> list[Step]:
        return [Step(type(self).kernel, draw.chance(self.p))]


class RandomGrayscale(_Plain):
    """Replaces all channels by their luma, with probability p."""

    kernel = staticmethod(kernels.grayscale)

    def __init__(self, p: float = 0.1) -> None:
        super().__init__(p)


class RandomEqualize(_Plain):
    """Equalises each channel's histogram by Pillow's rule, with probability p; floats in 256 levels."""

    kernel = staticmethod(kernels.equalize)


class RandomAutocontrast(_Plain):
    """Spreads each channel over the whole range, with probability p."""

    kernel = staticmethod(kernels.autocontrast)


class RandomInvert(_Plain):
    """Inverts colours, with probability p."""

    kernel = staticmethod(kernels.invert)


@dataclass(frozen=True)
class RandomSolarize(Op):
    """Inverts values of at least `threshold` (0..255, also for floats), with probability p."""

    threshold: float
    p: float = 0.5

    def __post_init__(self) -> None:
        self.check_p()
        if not 0 <= self.threshold <= 255:
            raise fail(self, f"threshold={self.threshold!r}; give 0 to 255")

    def plan(self, draw: Draw, frame: Frame) -> list[Step]:
        rows = draw.chance(self.p)
        return [
            Step(
                kernels.solarize,
                rows,
                {"threshold": np.full(len(rows), self.threshold * frame.unit, np.float32)},
            )
        ]


@dataclass(frozen=True)
class RandomPosterize(Op):
    """Keeps the highest `bits` (0..8) of each value, with probability p."""

    bits: int
    p: float = 0.5

    def __post_init__(self) -> None:
        self.check_p()
        if not isinstance(self.bits, int) or not 0 <= self.bits <= 8:
            raise fail(self, f"bits={self.bits!r}; give an int, 0 to 8")

    def plan(self, draw: Draw, frame: Frame) -> list[Step]:
        rows = draw.chance(self.p)
        return [Step(kernels.posterize, rows, {"bits": np.full(len(rows), self.bits, np.int64)})]


@dataclass(frozen=True)
class RandomAdjustSharpness(Op):
    """Sharpens, with probability p: sharpness_factor 0 smooths, 1 changes nothing."""

    sharpness_factor: float
    p: float = 0.5

    def __post_init__(self) -> None:
        self.check_p()
        if not self.sharpness_factor >= 0:
            raise fail(self, f"sharpness_factor={self.sharpness_factor!r}; give at least 0")

    def plan(self, draw: Draw, frame: Frame) -> list[Step]:
        rows = draw.chance(self.p)
        return [
            Step(kernels.sharpness, rows, {"factor": np.full(len(rows), self.sharpness_factor, np.float32)})
        ]


@dataclass(frozen=True)
class GaussianBlur(Op):
    """Gaussian blur. Raises MissingKornia if Kornia is not installed.

    Args:
        kernel_size: odd, an int or (width, height).
        sigma: standard deviation in pixels, or its range.
        p: probability.
    """

    kernel_size: int | Sequence[int]
    sigma: float | Sequence[float] = (0.1, 2.0)
    p: float = 1.0

    words = 4

    def __post_init__(self) -> None:
        self.check_p()
        sigma = (float(self.sigma),) * 2 if isinstance(self.sigma, (int, float)) else self.sigma
        keep(
            self,
            kernel_size=kernel_sides(self, self.kernel_size),
            sigma=span(self, "sigma", sigma, low=1e-6),
        )
        filters("GaussianBlur")  # an error here, not in the middle of an epoch

    def plan(self, draw: Draw, frame: Frame) -> list[Step]:
        width, height = kernel_sides(self, self.kernel_size)
        if height // 2 >= frame.height or width // 2 >= frame.width:
            raise fail(
                self,
                f"kernel_size={self.kernel_size!r} reflects beyond images of "
                f"{frame.height}x{frame.width}; take a smaller one",
            )
        rows = draw.chance(self.p)
        sigma = draw.uniform(*span(self, "sigma", self.sigma))[rows]
        return [Step(gaussian_blur, rows, {"sigma": sigma.astype(np.float32)}, {"kernel": (height, width)})]


@dataclass(frozen=True)
class RandomErasing(Op):
    """Sets a random box to `value`.

    Args:
        p: probability.
        scale: range of the box's share of the image's area.
        ratio: range of its height divided by its width.
        value: one number or (r, g, b), 0..255; not "random".
    """

    p: float = 0.5
    scale: Range = (0.02, 0.33)
    ratio: Range = (0.3, 3.3)
    value: float | Sequence[float] | str = 0.0

    words = 4 + 4 * 10

    def __post_init__(self) -> None:
        self.check_p()
        if isinstance(self.value, str):
            raise fail(
                self, f"value={self.value!r}; give a number or (r, g, b): noise is not done on a batch"
            )
        keep(
            self,
            scale=span(self, "scale", self.scale, low=0.0, high=1.0),
            ratio=span(self, "ratio", self.ratio, low=1e-6),
        )
        keep(self, value=colour(self, "value", self.value))

    def boxes(
        self, draw: Draw, height: int, width: int, rows: slice | Ints = slice(None)
    ) -> tuple[npt.NDArray[np.bool_], Ints]:
        """(rows,) True if a box fits in one of ten tries; (rows, 4) top, left, bottom and right of the
        first that does."""
        tries = draw.words(40)[rows].reshape(-1, 10, 4).astype(np.float64) * 2.0**-32
        area = height * width * (self.scale[0] + (self.scale[1] - self.scale[0]) * tries[..., 0])
        low, high = np.log(self.ratio)
        # exp's last bit is another in csrc/engine/erase.c: neither leaves the range.
        aspect = np.exp(low + (high - low) * tries[..., 1]).clip(*self.ratio)
        tall, wide = (
            np.rint(np.sqrt(area * aspect)).astype(np.int64),
            np.rint(np.sqrt(area / aspect)).astype(np.int64),
        )
        fits = (tall < height) & (wide < width)
        first = fits.argmax(1), np.arange(len(fits))
        tall, wide = tall[first[::-1]], wide[first[::-1]]
        place = tries[first[::-1]]
        top = np.floor(place[:, 2] * np.maximum(height - tall + 1, 1)).astype(np.int64)
        left = np.floor(place[:, 3] * np.maximum(width - wide + 1, 1)).astype(np.int64)
        return fits.any(1), np.stack((top, left, top + tall, left + wide), axis=1)

    def plan(self, draw: Draw, frame: Frame) -> list[Step]:
        wanted = draw.chance(self.p)
        draw.words(2)
        fits, boxes = self.boxes(draw, frame.height, frame.width, wanted)
        value = np.array(self.value, np.float32) * np.float32(frame.unit)
        return [Step(kernels.erase, wanted[fits], {"box": boxes[fits]}, shared={"value": value})]


@dataclass(frozen=True)
class RandomRotation(Op):
    """Rotates about the centre, counter-clockwise for positive angles.

    Args:
        degrees: r for (-r, r), or the range.
        interpolation: "nearest" or "bilinear".
        fill: colour from outside the image, 0..255.
        p: probability.
    """

    degrees: float | Sequence[float]
    interpolation: str | Enum = "nearest"
    fill: float | Sequence[float] = 0.0
    p: float = 1.0

    words = 4

    def __post_init__(self) -> None:
        self.check_p()
        keep(self, degrees=span(self, "degrees", self.degrees), fill=colour(self, "fill", self.fill))
        keep(self, interpolation=interpolation_mode(self, self.interpolation))

    def plan(self, draw: Draw, frame: Frame) -> list[Step]:
        rows = draw.chance(self.p)
        angle = -draw.uniform(*span(self, "degrees", self.degrees))
        mode, fill = interpolation_mode(self, self.interpolation), colour(self, "fill", self.fill)
        return [affine_step(rows, inverse_matrices(angle)[rows], frame, mode, fill)]


@dataclass(frozen=True)
class RandomAffine(Op):
    """Rotates (clockwise), shears, scales and shifts by whole pixels, about the centre.

    Args:
        degrees: r for (-r, r), or the range.
        translate: limits on the shift, as shares of width and height.
        scale: range of the factor.
        shear: degrees: r for (-r, r) along x, a range along x, or four numbers, ranges along x and y.
        interpolation, fill, p: see RandomRotation.
    """

    degrees: float | Sequence[float]
    translate: Sequence[float] | None = None
    scale: Sequence[float] | None = None
    shear: float | Sequence[float] | None = None
    interpolation: str | Enum = "nearest"
    fill: float | Sequence[float] = 0.0
    p: float = 1.0

    words = 14

    def __post_init__(self) -> None:
        self.check_p()
        keep(self, degrees=span(self, "degrees", self.degrees), fill=colour(self, "fill", self.fill))
        keep(self, interpolation=interpolation_mode(self, self.interpolation))
        if self.translate is not None:
            keep(self, translate=tuple(float(t) for t in self.translate))
            if len(self.translate) != 2 or not all(0 <= t <= 1 for t in self.translate):
                raise fail(self, f"translate={self.translate!r}; give two shares, 0 to 1")
        if self.scale is not None:
            keep(self, scale=span(self, "scale", self.scale, low=1e-6))
        if self.shear is not None:
            along_x, along_y = shear_ranges(self, self.shear)
            keep(self, shear=(*along_x, *along_y))

    def plan(self, draw: Draw, frame: Frame) -> list[Step]:
        rows = draw.chance(self.p)
        angle = draw.uniform(*span(self, "degrees", self.degrees))
        most = self.translate or (0.0, 0.0)
        shift_x, shift_y = (
            np.rint(draw.uniform(-m, m)) for m in (most[0] * frame.width, most[1] * frame.height)
        )
        scale = draw.uniform(*(self.scale or (1.0, 1.0)))
        along_x, along_y = shear_ranges(self, 0.0 if self.shear is None else self.shear)
        shear_x, shear_y = draw.uniform(*along_x), draw.uniform(*along_y)
        matrices = inverse_matrices(angle, shift_x, shift_y, scale, shear_x, shear_y)
        mode, fill = interpolation_mode(self, self.interpolation), colour(self, "fill", self.fill)
        return [affine_step(rows, matrices[rows], frame, mode, fill)]
