"""Transforms that the native decoder can do, as plain values: parameters and meaning are torchvision's
(transforms v2).

They hold parameters only, checked when they are made; a wrong one raises TransformError in the name of the
transform. `fastload.transforms.compiler` turns a list of them into a program for the engine. Random ones draw
from (seed, epoch, index in the dataset), each from a stream of its own, so the same list gives the same
pixels in any loader.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from operator import index
from typing import Any

from fastload.errors import TransformError
from fastload.transforms.policies import Scales

SizeArgument = int | Sequence[int]
KEYPOINTS_MOST = 1 << 16
"""Limit on the keypoints of one object, whose numbers a flip may exchange."""
SIDE_MOST = 1 << 24
"""Limit on a side of an image (FL_IMAGE_SIDE_MAX)."""
_PIXELS_MOST = SIDE_MOST**2
_ROUNDS_TO_0 = 2.0**-150
"""Largest number that is 0 in float32."""
_FLOAT32_MOST = 2.0**128 - 2.0**104
"""Largest number of float32."""


def whole(value: object, most: int = SIDE_MOST) -> bool:
    """Returns True for an int of 1 to `most`, by default those that a side can have."""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


def finite(values: Iterable[Any], who: str, name: str) -> tuple[float, ...]:
    """Accepts numbers that are finite in float32."""
    numbers = tuple(value if isinstance(value, int) else float(value) for value in values)
    if not all(-_FLOAT32_MOST <= number <= _FLOAT32_MOST for number in numbers):
        raise TransformError(f"{who}: {name}={numbers!r} has a number that is not finite in float32")
    return tuple(map(float, numbers))


def size_pair(size: SizeArgument, who: str) -> tuple[int, int]:
    """Accepts a positive int or (height, width)."""
    values = (size, size) if isinstance(size, int) else tuple(size)
    if len(values) == 1:
        values = (values[0], values[0])
    if len(values) != 2 or not all(map(whole, values)):
        raise TransformError(
            f"{who}: size is {size!r}; give a positive int or (height, width), at most {SIDE_MOST}"
        )
    return int(values[0]), int(values[1])


def interpolation_name(value: object, who: str) -> str:
    """Accepts "bilinear", "bicubic", or torchvision's InterpolationMode members of those names."""
    name = str(getattr(value, "value", value)).lower()
    if name not in ("bilinear", "bicubic"):
        raise TransformError(f'{who}: interpolation {value!r} is not native; use "bilinear" or "bicubic"')
    return name


def ascending(
    value: Sequence[float], who: str, name: str, *, most: float = _FLOAT32_MOST
) -> tuple[float, float]:
    """Accepts two positive numbers, the second at least the first and at most `most`."""
    low, high = finite(value, who, name)
    if not 0 < low <= high <= most:
        raise TransformError(f"{who}: {name}={tuple(value)!r} must be positive and ascending")
    return low, high


def colour(fill: int | Sequence[int], who: str) -> tuple[int, int, int]:
    """Accepts one value of 0 to 255 or three."""
    values = (fill,) * 3 if isinstance(fill, int) else tuple(fill)
    if len(values) != 3 or any(not 0 <= f <= 255 for f in values):
        raise TransformError(f"{who}: fill={fill!r}; give one value or three, 0 to 255")
    return values[0], values[1], values[2]


def padding_sides(padding: int | Sequence[int] | None) -> tuple[int, int, int, int]:
    """Accepts None, and RandomCrop's one, two or four sides; returns left, top, right and bottom."""
    if padding is None:
        given: tuple[int, ...] = (0,)
    else:
        given = (padding,) if isinstance(padding, int) else tuple(padding)
    sides = {1: (0, 0, 0, 0), 2: (0, 1, 0, 1), 4: (0, 1, 2, 3)}.get(len(given))
    if sides is None or not all(0 <= each <= SIDE_MOST for each in given):
        raise TransformError(f"RandomCrop: padding={padding!r}; give 1, 2 or 4 sides of 0 to {SIDE_MOST}")
    left, top, right, bottom = (given[side] for side in sides)
    return left, top, right, bottom


def mask_label(fill: int, who: str) -> int:
    """Accepts one label of 16 bits."""
    if not isinstance(fill, int) or not 0 <= fill < 1 << 16:
        raise TransformError(f"{who}: mask_fill={fill!r}; give one label, 0 to 65535")
    return fill


def probability(p: float, who: str) -> float:
    """Accepts a number from 0 to 1."""
    if not 0.0 <= p <= 1.0:
        raise TransformError(f"{who}: p={p!r} is no probability")
    return float(p)


def wrong_pairs(pairs: Sequence[Any], count: int) -> str:
    """Describes, as a clause, the mistake in pairs of keypoints' numbers, for `count` points; "" if there
    is none."""
    seen: set[int] = set()
    for pair in pairs:
        if (
            not isinstance(pair, tuple | list)
            or len(pair) != 2
            or not all(type(each) is int for each in pair)
        ):
            return f"a pair is two numbers of points, not {pair!r:.80}"
        if not all(0 <= each < count for each in pair):
            return f"points are numbered from 0 to {count - 1}, and the pair {tuple(pair)} has another number"
        if pair[0] == pair[1] or not seen.isdisjoint(pair):
            return f"a point has one partner, another one, and the pair {tuple(pair)} has one that is used"
        seen.update(pair)
    return ""


def keypoint_pairs(value: Any, who: str) -> str | tuple[tuple[int, int], ...] | None:
    """Accepts None, "auto", or pairs of keypoints' numbers, none of them in two pairs."""
    if value is None or (isinstance(value, str) and value == "auto"):
        return value
    try:
        pairs = [tuple(index(each) for each in pair) for pair in value]
    except TypeError:
        raise TransformError(
            f'{who}: keypoint_pairs={value!r}; give "auto", or pairs of numbers of points, as [(1, '
            "2), (3, 4)]"
        ) from None
    if wrong := wrong_pairs(pairs, KEYPOINTS_MOST):
        raise TransformError(f"{who}: keypoint_pairs: {wrong}")
    return tuple(sorted((min(pair), max(pair)) for pair in pairs))


MOST_VIEWS = 64
"""Limit on the views of one image (FL_PARTS_MAX)."""


class Transform:
    """Base of every native transform."""


@dataclass(frozen=True)
class RandomResizedCrop(Transform):
    """A random box of the image, resized.

    Args:
        size: an int (square) or (height, width).
        scale: range of the box's share of the image's area.
        ratio: range of the box's width divided by its height.
        interpolation: "bilinear" or "bicubic".
        antialias: True filters as Pillow does, False as torch's interpolate.
        dct_scale: lets the JPEG decoder shrink by 2, 4 or 8 first if the box stays at least `size`: faster
            on large images, but not bit-equal. Only with antialias.
    """

    size: SizeArgument
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3.0 / 4.0, 4.0 / 3.0)
    interpolation: str | Enum = "bilinear"
    antialias: bool = True
    dct_scale: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", size_pair(self.size, "RandomResizedCrop"))
        object.__setattr__(self, "scale", ascending(self.scale, "RandomResizedCrop", "scale"))
        object.__setattr__(self, "ratio", ascending(self.ratio, "RandomResizedCrop", "ratio"))
        object.__setattr__(self, "interpolation", interpolation_name(self.interpolation, "RandomResizedCrop"))


@dataclass(frozen=True)
class Resize(Transform):
    """The whole image, resized.

    Args:
        size: the shorter side (the other keeps the ratio, truncated), or (height, width); None: max_size is
            the longer side.
        max_size: limit on the longer side, with an int size.
        interpolation, antialias, dct_scale: see RandomResizedCrop.
    """

    size: SizeArgument | None
    interpolation: str | Enum = "bilinear"
    max_size: int | None = None
    antialias: bool = True
    dct_scale: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "interpolation", interpolation_name(self.interpolation, "Resize"))
        if self.size is None:
            if not whole(self.max_size):
                raise TransformError(
                    f"Resize: size=None needs max_size, the longer side, not {self.max_size!r}"
                )
            return
        size: SizeArgument = self.size
        if not isinstance(size, int) and len(size) == 1:
            size = size[0]
        if self.max_size is not None:
            if not (isinstance(size, int) and size < self.max_size):
                raise TransformError("Resize: max_size needs an int size, and must be larger than it")
            object.__setattr__(self, "max_size", min(self.max_size, SIDE_MOST))
        pair = size_pair(size, "Resize")
        object.__setattr__(self, "size", size if isinstance(size, int) else pair)


@dataclass(frozen=True)
class CenterCrop(Transform):
    """The middle of the image, padded with black where the image is smaller.

    Odd margins are split as in torchvision: half of a cut is rounded to the even number, padding has its
    smaller half on the left and on top.

    Args:
        size: an int (square) or (height, width).
        floor: rounds down, as Hugging Face's processors do.
    """

    size: SizeArgument
    floor: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", size_pair(self.size, "CenterCrop"))


@dataclass(frozen=True)
class CornerCrop(Transform):
    """(height, width) of the image from one of its corners. An image that is smaller is an error, as it is in
    torchvision's five_crop.

    Args:
        size: (height, width).
        right, bottom: True for the corner at that side.
    """

    size: tuple[int, int]
    right: bool
    bottom: bool


@dataclass(frozen=True)
class Policy:
    """Numbers of a policy that chooses ops per sample, as fl_policy has them.

    Attributes:
        scales: its largest magnitudes.
        bins: number of bins of each range, at least 2.
        count: number of ops.
        bin: the bin of their magnitude.
    """

    scales: Scales
    bins: int
    count: int = 1
    bin: int = 0


@dataclass(frozen=True)
class Augmentation(Transform):
    """A step of torchvision's that changes the pixels of the finished image, which keeps its size. See NOTE
    [ augment: one set of draws, two places ].

    Args:
        kind: its kind in core.Program.
        options: its numbers, as fl_op has them.
        p: probability.
        warp: interpolation, if it may move pixels; else "".
        fill: colour from outside of the image.
        policy: its policy, if it has one.
    """

    kind: str
    options: tuple[float, ...] = ()
    p: float = 1.0
    warp: str = ""
    fill: int | Sequence[int] = 0
    policy: Policy | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", probability(self.p, self.kind))
        object.__setattr__(self, "fill", colour(self.fill, self.kind))


@dataclass(frozen=True)
class Erasing(Augmentation):
    """torchvision's RandomErasing, of the finished image.

    Args:
        options, p: see Augmentation.
        fill: the bytes that it fills a box with.
        values: floats of three channels in place of these; empty where images are bytes.
    """

    kind: str = "erase"
    values: tuple[float, ...] = ()


@dataclass(frozen=True)
class RandomCrop(Transform):
    """A random box of the image, cut out after padding.

    Args:
        size: an int (square) or (height, width).
        padding: one int, (left and right, top and bottom), or (left, top, right, bottom).
        pad_if_needed: pads an image that is too small, which is an error otherwise.
        fill: colour of the padding, one value or (r, g, b), 0 to 255.
        padding_mode: "constant".
        mask_fill: label of masks in the padding.
    """

    size: SizeArgument
    padding: int | Sequence[int] | None = None
    pad_if_needed: bool = False
    fill: int | Sequence[int] = 0
    padding_mode: str = "constant"
    mask_fill: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", size_pair(self.size, "RandomCrop"))
        object.__setattr__(self, "padding", padding_sides(self.padding))
        object.__setattr__(self, "fill", colour(self.fill, "RandomCrop"))
        mask_label(self.mask_fill, "RandomCrop")
        if self.padding_mode != "constant":
            raise TransformError(
                f'RandomCrop: padding_mode={self.padding_mode!r} is not native; only "constant" is'
            )


@dataclass(frozen=True, repr=False)
class _Flip(Transform):
    """Base of the flips."""

    p: float = 0.5
    keypoint_pairs: str | Sequence[tuple[int, int]] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", probability(self.p, type(self).__name__))
        object.__setattr__(self, "keypoint_pairs", keypoint_pairs(self.keypoint_pairs, type(self).__name__))

    def __repr__(self) -> str:
        pairs = "" if self.keypoint_pairs is None else f", keypoint_pairs={self.keypoint_pairs!r}"
        return f"{type(self).__name__}(p={self.p!r}{pairs})"


@dataclass(frozen=True, repr=False)
class RandomHorizontalFlip(_Flip):
    """Mirrors left and right.

    Args:
        p: probability.
        keypoint_pairs: numbers of keypoints that a mirrored image exchanges, such as the eyes, for all
            fields: [(1, 2), (3, 4)]; or "auto", each field's pairs from COCO's keypoint names or YOLO's
            flip_idx. All flips of a list exchange the same.
    """


@dataclass(frozen=True, repr=False)
class RandomVerticalFlip(_Flip):
    """Mirrors top and bottom.

    Args:
        p, keypoint_pairs: see RandomHorizontalFlip.
    """


@dataclass(frozen=True)
class ScaleJitter(Transform):
    """The whole image, resized by a random factor (large scale jitter).

    Args:
        target_size: (width, height), in torchvision's order, into which factor 1 fits the image.
        scale_range: range of the factor.
        interpolation, antialias, dct_scale: see RandomResizedCrop.
    """

    target_size: tuple[int, int]
    scale_range: tuple[float, float] = (0.1, 2.0)
    interpolation: str | Enum = "bilinear"
    antialias: bool = True
    dct_scale: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.target_size, int) or len(self.target_size) != 2:
            raise TransformError(f"ScaleJitter: target_size={self.target_size!r}; give two positive ints")
        object.__setattr__(self, "target_size", size_pair(self.target_size, "ScaleJitter"))
        object.__setattr__(self, "scale_range", ascending(self.scale_range, "ScaleJitter", "scale_range"))
        object.__setattr__(self, "interpolation", interpolation_name(self.interpolation, "ScaleJitter"))


@dataclass(frozen=True)
class RandomShortestSize(Transform):
    """The whole image, resized to one of several shorter sides; both sides are truncated.

    Args:
        min_size: one size, or several to draw from.
        max_size: limit on the longer side.
        interpolation, antialias, dct_scale: see RandomResizedCrop.
    """

    min_size: SizeArgument
    max_size: int | None = None
    interpolation: str | Enum = "bilinear"
    antialias: bool = True
    dct_scale: bool = True

    def __post_init__(self) -> None:
        sizes = (self.min_size,) if isinstance(self.min_size, int) else tuple(self.min_size)
        if not isinstance(self.max_size, bool) and isinstance(self.max_size, int):
            object.__setattr__(self, "max_size", min(self.max_size, SIDE_MOST))  # no limit
        if not sizes or not all(map(whole, (*sizes, self.max_size or 1))):
            raise TransformError(
                f"RandomShortestSize: min_size={self.min_size!r}, max_size={self.max_size!r}; give "
                f"positive ints, at most {SIDE_MOST}"
            )
        object.__setattr__(self, "min_size", sizes)
        object.__setattr__(
            self, "interpolation", interpolation_name(self.interpolation, "RandomShortestSize")
        )


@dataclass(frozen=True)
class RandomResize(Transform):
    """The whole image, resized to a random shorter side; the longer side is truncated.

    Args:
        min_size: smallest size drawn.
        max_size: one more than the largest.
        interpolation, antialias, dct_scale: see RandomResizedCrop.
    """

    min_size: int
    max_size: int
    interpolation: str | Enum = "bilinear"
    antialias: bool = True
    dct_scale: bool = True

    def __post_init__(self) -> None:
        if not (whole(self.min_size) and whole(self.max_size) and self.min_size < self.max_size):
            raise TransformError(
                f"RandomResize: min_size={self.min_size!r}, max_size={self.max_size!r}; give "
                f"positive ints, ascending, at most {SIDE_MOST}"
            )
        object.__setattr__(self, "interpolation", interpolation_name(self.interpolation, "RandomResize"))


@dataclass(frozen=True)
class Letterbox(Transform):
    """The whole image, resized to fit into `size` and centred on a colour, for YOLO. The smaller half of an
    odd margin is left or above.

    Args:
        size, fill, mask_fill: see RandomCrop.
        interpolation, antialias, dct_scale: see RandomResizedCrop.
    """

    size: SizeArgument
    fill: int | Sequence[int] = 114
    mask_fill: int = 0
    interpolation: str | Enum = "bilinear"
    antialias: bool = True
    dct_scale: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", size_pair(self.size, "Letterbox"))
        object.__setattr__(self, "fill", colour(self.fill, "Letterbox"))
        mask_label(self.mask_fill, "Letterbox")
        object.__setattr__(self, "interpolation", interpolation_name(self.interpolation, "Letterbox"))


@dataclass(frozen=True)
class RandomZoomOut(Transform):
    """The image at a random place of a larger canvas (SSD).

    Args:
        fill, mask_fill: see RandomCrop.
        side_range: range of the canvas's sides, as multiples of the image's; at least 1.
        p: probability.
    """

    fill: int | Sequence[int] = 0
    side_range: tuple[float, float] = (1.0, 4.0)
    p: float = 0.5
    mask_fill: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "fill", colour(self.fill, "RandomZoomOut"))
        object.__setattr__(self, "side_range", ascending(self.side_range, "RandomZoomOut", "side_range"))
        if self.side_range[0] < 1:
            raise TransformError(f"RandomZoomOut: side_range={self.side_range!r} begins below 1")
        object.__setattr__(self, "p", probability(self.p, "RandomZoomOut"))
        mask_label(self.mask_fill, "RandomZoomOut")


@dataclass(frozen=True)
class RandomIoUCrop(Transform):
    """A random crop that overlaps a box of the sample enough (SSD). Needs boxes.

    Boxes whose centres are cut away become empty; SanitizeBoundingBoxes drops them. After 200 rounds without
    a crop the image stays.

    Args:
        min_scale, max_scale: range of the crop's sides, as shares of the image's.
        min_aspect_ratio, max_aspect_ratio: range of the crop's width divided by its height.
        sampler_options: least overlaps (Jaccard) to draw from; 1 or more keeps the image. None:
            torchvision's.
        trials: crops tried in a round, at most 1,000.
    """

    min_scale: float = 0.3
    max_scale: float = 1.0
    min_aspect_ratio: float = 0.5
    max_aspect_ratio: float = 2.0
    sampler_options: Sequence[float] | None = None
    trials: int = 40

    def __post_init__(self) -> None:
        options = (
            (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
            if self.sampler_options is None
            else finite(self.sampler_options, "RandomIoUCrop", "sampler_options")
        )
        object.__setattr__(self, "sampler_options", options)
        ascending((self.min_scale, self.max_scale), "RandomIoUCrop", "min_scale, max_scale", most=1.0)
        ascending(
            (self.min_aspect_ratio, self.max_aspect_ratio),
            "RandomIoUCrop",
            "min_aspect_ratio, max_aspect_ratio",
        )
        if not options or not 1 <= self.trials <= 1000:
            raise TransformError(
                f"RandomIoUCrop: sampler_options={options!r}, trials={self.trials!r}; give options, "
                "and 1 to 1,000 trials"
            )


@dataclass(frozen=True)
class SanitizeBoundingBoxes(Transform):
    """Drops boxes that are small or not inside the image, with the rows of fields that are `of` them.

    Args:
        min_size: least length of both sides, in pixels; at least 1.
        min_area: least area, in pixels; at least 1.
    """

    min_size: float = 1.0
    min_area: float = 1.0

    def __post_init__(self) -> None:
        if min(finite((self.min_size, self.min_area), "SanitizeBoundingBoxes", "(min_size, min_area)")) < 1:
            raise TransformError(
                f"SanitizeBoundingBoxes: min_size={self.min_size!r}, min_area={self.min_area!r} must "
                "be at least 1"
            )


@dataclass(frozen=True)
class ConvertBoundingBoxFormat(Transform):
    """Converts boxes to another format; rotated boxes are not converted.

    int64 boxes are rounded as in torchvision 0.28.

    Args:
        format: "xyxy", "xywh" or "cxcywh", in any case; or torchvision's member.
    """

    format: str | Enum

    def __post_init__(self) -> None:
        name = str(getattr(self.format, "name", self.format)).lower()
        if name not in ("xyxy", "xywh", "cxcywh"):
            raise TransformError(
                f'ConvertBoundingBoxFormat: format={self.format!r}; give "xyxy", "xywh" or "cxcywh"'
            )
        object.__setattr__(self, "format", name)


PATCH_DTYPES = ("uint8", "float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Patches(Transform):
    """The whole image as patches, as Hugging Face's Qwen2-VL processors make them: PatchedImages.

    Only ToFloat or Normalize may follow.

    Args:
        patch: pixels of a patch's side.
        merge: merge x merge patches are one token.
        temporal: frames of a patch, all alike.
        min_pixels, max_pixels: range of the grid's pixels.
        dtype: "uint8", "float32", "float16" or "bfloat16"; None: as ToFloat or Normalize says.
        interpolation, antialias, dct_scale: see RandomResizedCrop.
    """

    patch: int = 14
    merge: int = 2
    temporal: int = 2
    min_pixels: int = 56 * 56
    max_pixels: int = 28 * 28 * 1280
    dtype: str | None = None
    interpolation: str | Enum = "bicubic"
    antialias: bool = True
    dct_scale: bool = True

    def __post_init__(self) -> None:
        for name, most in (("patch", 1024), ("merge", 64), ("temporal", 64)):
            value = getattr(self, name)
            if not whole(value, most):
                raise TransformError(f"Patches: {name}={value!r}; give a number of 1 to {most}")
        least, largest = self.min_pixels, min(self.max_pixels, _PIXELS_MOST)
        object.__setattr__(self, "max_pixels", largest)
        finite((least, largest), "Patches", "(min_pixels, max_pixels)")
        if not self.side**2 <= largest or not 0 < least <= largest:
            raise TransformError(
                f"Patches: min_pixels={least!r}, max_pixels={largest!r} have to be positive and ascending, "
                f"the second at least {self.side} x {self.side}"
            )
        dtype = None if self.dtype is None else str(self.dtype).removeprefix("torch.")
        if dtype not in (None, *PATCH_DTYPES):
            raise TransformError(f"Patches: dtype={self.dtype!r}; give {', '.join(PATCH_DTYPES)}, or None")
        object.__setattr__(self, "dtype", dtype)
        object.__setattr__(self, "interpolation", interpolation_name(self.interpolation, "Patches"))

    @property
    def side(self) -> int:
        """The number of pixels of which the sides of a grid are multiples."""
        return self.patch * self.merge

    @property
    def form(self) -> tuple[int, int, int]:
        """(patch, merge, temporal)."""
        return self.patch, self.merge, self.temporal


@dataclass(frozen=True)
class ToFloat(Transform):
    """Makes floats 0..1, of the loader's dtype, in the pass that makes the pixels."""


@dataclass(frozen=True)
class Normalize(Transform):
    """Makes floats (value / 255 - mean) / std in the pass that makes the pixels; includes ToFloat.

    Args:
        mean: means of R, G, B, in 0..1.
        std: standard deviations of R, G, B; not 0.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            values = finite(getattr(self, name), "Normalize", name)
            object.__setattr__(self, name, values * 3 if len(values) == 1 else values)
        if len(self.mean) != 3 or len(self.std) != 3:
            raise TransformError("Normalize: mean and std take one value or three")
        if any(abs(each) <= _ROUNDS_TO_0 for each in self.std):
            raise TransformError("Normalize: std holds a 0 in float32, which leads to division by zero")


@dataclass(frozen=True, eq=False)
class Views(Transform):
    """Several views of each image: a list with a tensor for each entry.

    Views is the last step of a transform. The image is decoded once. Each entry has its own draws, also in
    ``Views([global_crop] * 2 + [local_crop] * 8)``; steps before Views draw once for all.

    Args:
        transforms: a transform, or a list, for each view, of fastload or torchvision, callables included.
            All entries end in ToFloat or Normalize, or none does.
    """

    transforms: Sequence[Any]

    def __post_init__(self) -> None:
        if not isinstance(self.transforms, list | tuple) or not 0 < len(self.transforms) <= MOST_VIEWS:
            raise TransformError(f"Views: give a list of 1 to {MOST_VIEWS} transforms, one for each view")
        object.__setattr__(self, "transforms", tuple(self.transforms))

    def __repr__(self) -> str:
        return f"Views({len(self.transforms)} transforms)"
