"""What the native decoder can do to an image, as plain values: parameters and meaning are torchvision's (transforms v2).

They hold parameters only; `fastload.plan` turns a list of them into a program for the engine. Random ones draw from
(seed, epoch, index in the dataset), each from a stream of its own, so the same list gives the same pixels in any loader.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastload.errors import TransformError

Size = int | Sequence[int]


MOST_VIEWS = 64
"""Of one image: FL_PARTS_MAX."""


def _pair(size: Size, who: str) -> tuple[int, int]:
    values = (size, size) if isinstance(size, int) else tuple(size)
    if len(values) == 1:
        values = (values[0], values[0])
    if len(values) != 2 or any(not isinstance(v, int) or isinstance(v, bool) or v < 1 for v in values):
        raise TransformError(f"{who}: size is {size!r}; give a positive int or (height, width)")
    return int(values[0]), int(values[1])


def _interpolation(value: Any, who: str) -> str:
    """Accepts "bilinear", "bicubic", or torchvision's InterpolationMode members of those names."""
    name = str(getattr(value, "value", value)).lower()
    if name not in ("bilinear", "bicubic"):
        raise TransformError(f'{who}: interpolation {value!r} is not native; use "bilinear" or "bicubic"')
    return name


def _range(value: Sequence[float], who: str, name: str, *, most: float | None = None) -> tuple[float, float]:
    low, high = (float(v) for v in value)
    if not 0 < low <= high or (most is not None and high > most):
        raise TransformError(f"{who}: {name}={tuple(value)!r} must be positive and ascending")
    return low, high


def _chance(p: float, who: str) -> float:
    if not 0.0 <= p <= 1.0:
        raise TransformError(f"{who}: p={p!r} is no probability")
    return float(p)


class Transform:
    """Base of every native transform."""


@dataclass(frozen=True)
class RandomResizedCrop(Transform):
    """A random box of the image, resized: torchvision's RandomResizedCrop, its draws and its fallback after ten tries.

    Args:
        size: of the result, an int (square) or (height, width).
        scale: the box's share of the image's area.
        ratio: its width divided by its height.
        interpolation: "bilinear" or "bicubic".
        antialias: low-pass before shrinking, as Pillow does; False samples as torch's interpolate does.
        dct_scale: let the JPEG decoder shrink by 2, 4 or 8 first where the box stays at least `size`; much faster on large
            images, and not bit-equal to a full decode. Only with antialias.
    """

    size: Size
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3.0 / 4.0, 4.0 / 3.0)
    interpolation: Any = "bilinear"
    antialias: bool = True
    dct_scale: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", _pair(self.size, "RandomResizedCrop"))
        object.__setattr__(self, "scale", _range(self.scale, "RandomResizedCrop", "scale"))
        object.__setattr__(self, "ratio", _range(self.ratio, "RandomResizedCrop", "ratio"))
        object.__setattr__(self, "interpolation", _interpolation(self.interpolation, "RandomResizedCrop"))


@dataclass(frozen=True)
class Resize(Transform):
    """The whole image, resized: an int is the shorter side (the other keeps the ratio, truncated), a pair is (height, width).

    Args:
        size: the target.
        interpolation: "bilinear" or "bicubic".
        max_size: with an int size, the most that the longer side may become.
        antialias: see RandomResizedCrop.
        dct_scale: see RandomResizedCrop.
    """

    size: Size
    interpolation: Any = "bilinear"
    max_size: int | None = None
    antialias: bool = True
    dct_scale: bool = True

    def __post_init__(self) -> None:
        size: Size = self.size
        if not isinstance(size, int) and len(size) == 1:
            size = size[0]
        if self.max_size is not None and (not isinstance(size, int) or self.max_size <= size):
            raise TransformError("Resize: max_size needs an int size, and must be larger than it")
        pair = _pair(size, "Resize")
        object.__setattr__(self, "size", size if isinstance(size, int) else pair)
        object.__setattr__(self, "interpolation", _interpolation(self.interpolation, "Resize"))


@dataclass(frozen=True)
class CenterCrop(Transform):
    """The middle (height, width) of the image, padded with black where the image is smaller."""

    size: Size

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", _pair(self.size, "CenterCrop"))


@dataclass(frozen=True)
class RandomCrop(Transform):
    """A random (height, width) of the image after padding.

    Args:
        size: an int (square) or (height, width).
        padding: one int, (left and right, top and bottom), or (left, top, right, bottom).
        pad_if_needed: pad further where the image is too small; without it that is an error.
        fill: of the padding, one value or (r, g, b), 0 to 255.
        padding_mode: "constant".
    """

    size: Size
    padding: int | Sequence[int] | None = None
    pad_if_needed: bool = False
    fill: int | Sequence[int] = 0
    padding_mode: str = "constant"

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", _pair(self.size, "RandomCrop"))
        padding = (0,) if self.padding is None else (self.padding,) if isinstance(self.padding, int) else self.padding
        sides = {1: (0, 0, 0, 0), 2: (0, 1, 0, 1), 4: (0, 1, 2, 3)}.get(len(padding))
        if sides is None or any(p < 0 for p in padding):
            raise TransformError(f"RandomCrop: padding={self.padding!r}; give 1, 2 or 4 sides of at least 0")
        object.__setattr__(self, "padding", tuple(padding[i] for i in sides))
        fill = (self.fill,) * 3 if isinstance(self.fill, int) else tuple(self.fill)
        if len(fill) != 3 or any(not 0 <= f <= 255 for f in fill):
            raise TransformError(f"RandomCrop: fill={self.fill!r}; give one value or three, 0 to 255")
        object.__setattr__(self, "fill", fill)
        if self.padding_mode != "constant":
            raise TransformError(f'RandomCrop: padding_mode={self.padding_mode!r} is not native; only "constant" is')


@dataclass(frozen=True)
class RandomHorizontalFlip(Transform):
    """Mirrors left and right with probability p."""

    p: float = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", _chance(self.p, "RandomHorizontalFlip"))


@dataclass(frozen=True)
class RandomVerticalFlip(Transform):
    """Mirrors top and bottom with probability p."""

    p: float = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", _chance(self.p, "RandomVerticalFlip"))


@dataclass(frozen=True)
class ToFloat(Transform):
    """Bytes 0..255 become floats 0..1 (the loader's dtype, float32 by default), written by the pass that makes the pixels."""


@dataclass(frozen=True)
class Normalize(Transform):
    """Floats (value / 255 - mean) / std by channel; implies ToFloat. Written by the pass that makes the pixels.

    Args:
        mean: of R, G, B, in 0..1.
        std: of R, G, B; not 0.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            values = tuple(float(v) for v in getattr(self, name))
            object.__setattr__(self, name, values * 3 if len(values) == 1 else values)
        if len(self.mean) != 3 or len(self.std) != 3:
            raise TransformError("Normalize: mean and std take one value or three")
        if 0.0 in self.std:
            raise TransformError("Normalize: std holds a 0, which leads to division by zero")


@dataclass(frozen=True, eq=False)
class Views(Transform):
    """Several views of each image, as DINO, SwAV and SimCLR train on: the image becomes a list of tensors, one for each entry.

    The last step of a transform. The image is read and decoded once for all of its views; each then goes through an entry of its own, with
    its own draws, also where one transform is an entry twice: ``Views([global_crop] * 2 + [local_crop] * 8)``. Steps before it are
    applied to every view, with the same draws.

    Args:
        transforms: of each view: a transform, or a list of them, of fastload or torchvision, callables included. All entries deliver one
            dtype: all end in ToFloat or Normalize, or none.
    """

    transforms: Sequence[Any]

    def __post_init__(self) -> None:
        if not isinstance(self.transforms, list | tuple) or not 0 < len(self.transforms) <= MOST_VIEWS:
            raise TransformError(f"Views: give a list of 1 to {MOST_VIEWS} transforms, one for each view")
        object.__setattr__(self, "transforms", tuple(self.transforms))

    def __repr__(self) -> str:
        return f"Views({len(self.transforms)} transforms)"
