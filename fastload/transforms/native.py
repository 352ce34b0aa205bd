"""The native part of a plan, built step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastload import transforms as T
from fastload._native import core
from fastload.errors import TransformError
from fastload.transforms.spec import Form
from fastload.transforms.torchvision import CornerCrop

_FLIPS = (T.RandomHorizontalFlip, T.RandomVerticalFlip)
_RESIZES = (T.RandomResizedCrop, T.Resize, T.ScaleJitter, T.RandomShortestSize, T.RandomResize, T.Letterbox)
_OF_ONE_SIZE = (T.RandomResizedCrop, T.CenterCrop, CornerCrop, T.RandomCrop, T.Letterbox)
_OF_DRAWN_SIZE = (T.ScaleJitter, T.RandomShortestSize, T.RandomResize, T.RandomZoomOut, T.RandomIoUCrop)
_RANDOM = (T.RandomResizedCrop, T.RandomCrop, *_FLIPS, *_OF_DRAWN_SIZE)
_ON_BOXES = (T.SanitizeBoundingBoxes, T.ConvertBoundingBoxFormat)
_OF_BOXES = (T.RandomIoUCrop, T.SanitizeBoundingBoxes)
MOST_OPS = 16
"""Most ops of one program: FL_OPS_MAX."""
MOST_OPTIONS = 32
"""Most options of one transform: FL_OPTIONS_MAX."""


class NativePart:
    """The native part of a plan under construction: geometry and values of the steps so far.

    1. add() takes a step whole or raises and is as before.
    2. Values (ToFloat, Normalize) are written after all geometry; a crop or flip added after them must be one that commutes with them.

    Attributes:
        form: form of the images after the steps so far.
        is_tv: True if they are torchvision's tv_tensors.Image.
        is_tensor: True if "image" is a tensor for steps in Python, too, and never Pillow's.
        size: (height, width) of every sample after the steps so far, or None if it depends on the sample.
        drawn_size: True if the size depends on the random draws.
        boxed_size: True if the size depends on the sample's boxes. Then only its bound is known before the sample is made.
        fill: the colour of the padding since the resize, or None if no step may have padded.
        mask_fill: the label of all padding of masks, or None.
        mask_dtype: dtype to which masks are converted, a name of torch's dtypes; "": they stay as they are.
        box_format: format to which boxes are converted; "": they stay as they are.
        colour: the last fill that is not grey, or None.
        of_boxes: positions of the steps that need the sample's boxes.
        keypoint_pairs: the argument of the flips that exchange keypoints; None: no flip exchanges any.
        keeping_flips: positions of the flips that exchange no keypoints.

    Args:
        is_tensor: see Attributes.
        boxes: True if the engine has the sample's boxes.
    """

    def __init__(self, *, is_tensor: bool = False, boxes: bool = False) -> None:
        self.is_tensor = is_tensor
        self._boxes = boxes
        self.form: Form = "image"
        self.is_tv = False
        self.ops: list[dict[str, Any]] = []
        self.to_float = self.reciprocal = self.random = False
        self.mean: tuple[float, ...] | None = None
        self.std: tuple[float, ...] | None = None
        self.size: tuple[int, int] | None = None
        self.fill: tuple[int, ...] | None = None
        self.mask_fill: int | None = None
        self.colour: tuple[int, ...] | None = None
        self.mask_dtype = self.box_format = ""
        self.drawn_size = self.boxed_size = False
        self.of_boxes: list[int] = []
        self.keypoint_pairs: Any = None
        self.keeping_flips: list[int] = []
        self._resized = False

    def program(self) -> core.Program:
        """The geometry, compiled."""
        return core.Program(self.ops)

    def add(self, step: T.Transform, stream: int, *, commutes: bool = False, strict: bool = False) -> None:
        """Takes a step; `stream` is its random stream, `commutes` says that as a crop it may be done before what made floats, and `strict`
        that an image which a resize leaves no row or column of is an error.

        Raises:
            TransformError: it has no native meaning at this place.
        """
        if isinstance(step, T.ToFloat | T.Normalize):
            self._add_values(step)
            return
        flips = isinstance(step, _FLIPS)
        if self.to_float and not flips and not commutes and not isinstance(step, _ON_BOXES):
            raise TransformError(f"{step!r} after ToFloat or Normalize: put crops and resizes first")
        if len(self.ops) == MOST_OPS:
            raise TransformError(f"{step!r} is one too many: a list has at most {MOST_OPS} crops, resizes and flips")
        if isinstance(step, _OF_BOXES) and not self._boxes:
            raise TransformError(f"{type(step).__name__} needs the boxes of the sample, which the decoder does not have here")
        resizes = isinstance(step, _RESIZES)
        if resizes and self._resized:
            raise TransformError(f"{step!r} is a second resize: one image is resampled once")
        op = _op(step, stream) | ({"strict": True} if strict else {})
        pairs = step.keypoint_pairs if isinstance(step, _FLIPS) else None
        if pairs is not None:
            if self.keypoint_pairs not in (None, pairs):
                raise TransformError(f"{step!r} exchanges other keypoints than a flip before it: give both the same keypoint_pairs")
            self.keypoint_pairs, op["exchange"] = pairs, True
        fill, mask_fill = self._fills_after(step, None if resizes else self.fill)
        if "fill" in op and fill is not None:
            op["fill"] = fill
        self.fill, self.mask_fill = fill, mask_fill
        if len(set(op.get("fill", ()))) > 1:
            self.colour = op["fill"]
        self._resized |= resizes
        self.random |= isinstance(step, _RANDOM)
        if isinstance(step, _FLIPS) and pairs is None:
            self.keeping_flips.append(stream)
        if isinstance(step, _OF_BOXES):
            self.of_boxes.append(stream)
        if isinstance(step, T.ConvertBoundingBoxFormat):
            self.box_format = step.format
        self._size_after(step)
        self.ops.append(op)

    def _size_after(self, step: T.Transform) -> None:
        if isinstance(step, (*_FLIPS, *_ON_BOXES)):
            return
        size = step.size if isinstance(step, (*_OF_ONE_SIZE, T.Resize)) else None
        self.size = (int(size[0]), int(size[1])) if isinstance(size, tuple) else None
        self.drawn_size = self.size is None and (self.drawn_size or isinstance(step, _OF_DRAWN_SIZE))
        self.boxed_size = self.size is None and (self.boxed_size or isinstance(step, T.RandomIoUCrop))

    def _add_values(self, step: T.Transform) -> None:
        if self.mean is not None:
            raise TransformError(f"{step!r} after Normalize: normalise once, last")
        self.to_float = True
        self.form = "float"
        if isinstance(step, T.Normalize):
            self.mean, self.std = step.mean, step.std
            self.form = "normalized"

    def _fills_after(self, step: T.Transform, fill: tuple[int, ...] | None) -> tuple[tuple[int, ...] | None, int | None]:
        """The engine knows one colour of padding before the resize and one after it: that of the last padding step, black from any centre
        crop on; and of masks one label for both."""
        if isinstance(step, T.CenterCrop) and (fill is not None or not self.holds(step.size)):  # type: ignore[arg-type]
            new, label = (0, 0, 0), 0
        elif isinstance(step, T.RandomZoomOut | T.Letterbox) or pads(step):
            new, label = step.fill, step.mask_fill  # type: ignore[attr-defined]
        else:
            return fill, self.mask_fill
        if fill not in (None, new):
            raise TransformError(f"{step!r} pads with {new} what an earlier step may have padded with {fill}: use one fill")
        if self.mask_fill not in (None, label):
            raise TransformError(f"{step!r} pads masks with {label}, and an earlier step may with {self.mask_fill}: use one mask_fill")
        return new, label

    def holds(self, size: tuple[int, int]) -> bool:
        """Returns True if every image after the steps so far is known to be at least that large."""
        return self.size is not None and self.size[0] >= size[0] and self.size[1] >= size[1]


def pads(step: T.Transform) -> bool:
    """Returns True if a step is a RandomCrop with padding."""
    return isinstance(step, T.RandomCrop) and bool(any(step.padding or ()) or step.pad_if_needed)  # type: ignore[arg-type]


def _op(step: T.Transform, stream: int) -> dict[str, Any]:
    """One transform as the engine takes it; its place in the list is its random stream."""
    make = _OPS.get(type(step))
    if make is None:
        raise TransformError(f"{step!r} has no native form")
    op: dict[str, Any] = {"stream": stream, **make(step)}
    if isinstance(step, _RESIZES):
        op |= {"filter": step.interpolation, "antialias": step.antialias, "dct_scale": step.dct_scale}
    if len(op.get("options", ())) > MOST_OPTIONS:
        raise TransformError(f"{step!r} has {len(op['options'])} sizes or options: at most {MOST_OPTIONS}")
    return op


def _sized(kind: str, step: Any, **rest: Any) -> dict[str, Any]:
    return {"kind": kind, "height": step.size[0], "width": step.size[1], **rest}


def _filled(step: Any) -> dict[str, Any]:
    return {"fill": step.fill, "mask_fill": step.mask_fill}


def _resize(step: T.Resize) -> dict[str, Any]:
    height, width = step.size if isinstance(step.size, tuple) else (0, step.size or 0)
    return {"kind": "resize", "height": height, "width": width, "max_size": step.max_size or 0}


_OPS: Mapping[type[T.Transform], Callable[[Any], dict[str, Any]]] = {
    T.RandomHorizontalFlip: lambda s: {"kind": "hflip", "p": s.p},
    T.RandomVerticalFlip: lambda s: {"kind": "vflip", "p": s.p},
    T.RandomResizedCrop: lambda s: _sized("resized_crop", s, scale=s.scale, ratio=s.ratio),
    T.Resize: _resize,
    T.CenterCrop: lambda s: _sized("center_crop", s),
    CornerCrop: lambda s: _sized("corner_crop", s, right=s.right, bottom=s.bottom),
    T.RandomCrop: lambda s: _sized("random_crop", s, padding=s.padding, pad_if_needed=s.pad_if_needed, **_filled(s)),
    T.Letterbox: lambda s: _sized("letterbox", s, **_filled(s)),
    T.RandomZoomOut: lambda s: {"kind": "zoom_out", "p": s.p, "scale": s.side_range, **_filled(s)},
    T.ScaleJitter: lambda s: {"kind": "scale_jitter", "width": s.target_size[0], "height": s.target_size[1], "scale": s.scale_range},
    T.RandomShortestSize: lambda s: {"kind": "shortest_size", "options": s.min_size, "max_size": s.max_size or 0},
    T.RandomIoUCrop: lambda s: {
        "kind": "iou_crop",
        "scale": (s.min_scale, s.max_scale),
        "ratio": (s.min_aspect_ratio, s.max_aspect_ratio),
        "options": s.sampler_options,
        "trials": s.trials,
    },
    T.RandomResize: lambda s: {"kind": "random_resize", "options": (s.min_size, s.max_size)},
    T.ConvertBoundingBoxFormat: lambda s: {"kind": "format", "box_format": s.format},
    T.SanitizeBoundingBoxes: lambda s: {"kind": "sanitize", "min_size": s.min_size, "min_area": s.min_area},
}
