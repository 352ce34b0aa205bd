"""NativePart: the steps of a list that the native decoder has, as a program under construction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

import numpy as np

from fastload import transforms as T
from fastload._native import core
from fastload.common.rng import OP_STREAM
from fastload.errors import TransformError
from fastload.transforms.library import NativeStep
from fastload.transforms.ops import (
    Augmentation,
    CornerCrop,
    Erasing,
    colour,
    keypoint_pairs,
    padding_sides,
    size_pair,
)
from fastload.transforms.spec import ImageForm, normalized

_FLIPS = (T.RandomHorizontalFlip, T.RandomVerticalFlip)
_RESIZES = (
    T.RandomResizedCrop,
    T.Resize,
    T.ScaleJitter,
    T.RandomShortestSize,
    T.RandomResize,
    T.Letterbox,
    T.Patches,
)
_OF_ONE_SIZE = (T.RandomResizedCrop, T.CenterCrop, CornerCrop, T.RandomCrop, T.Letterbox)
_OF_DRAWN_SIZE = (T.ScaleJitter, T.RandomShortestSize, T.RandomResize, T.RandomZoomOut, T.RandomIoUCrop)
_RANDOM = (T.RandomResizedCrop, T.RandomCrop, *_FLIPS, *_OF_DRAWN_SIZE, Augmentation)
_ON_BOXES = (T.SanitizeBoundingBoxes, T.ConvertBoundingBoxFormat)
_OF_BOXES = (T.RandomIoUCrop, T.SanitizeBoundingBoxes)
MOST_OPS = 16
"""Most ops of one program: FL_OPS_MAX."""
MOST_OPTIONS = 32
"""Most options of one transform: FL_OPTIONS_MAX."""


class NativePart:
    """The native part of a plan under construction: geometry and values of the steps so far.

    1. add() takes a step whole or raises and is as before.
    2. Values (ToFloat, Normalize) are written after all geometry; a crop or flip added after them must be one
       that commutes with them.
    3. Boxes are erased after all of it: what is added after an erasing step is done to what that writes, too,
       or is refused.

    Attributes:
        form: form of the images after the steps so far.
        is_tv: True if they are torchvision's tv_tensors.Image.
        is_tensor: True if "image" is a tensor for steps in Python, too, and never Pillow's.
        size: (height, width) of every sample after the steps so far, or None if it depends on the sample.
        drawn_size: True if the size depends on the random draws.
        boxed_size: True if the size depends on the sample's boxes. Then only its bound is known before the
            sample is made.
        fill: the colour of the padding since the resize, or None if no step may have padded.
        mask_fill: the label of all padding of masks, or None.
        mask_dtype: dtype to which masks are converted, a name of torch's dtypes; "": they stay as they are.
        box_format: format to which boxes are converted; "": they stay as they are.
        colour: the last fill that is not grey, or None.
        of_boxes: positions of the steps that need the sample's boxes.
        keypoint_pairs: the argument of the flips that exchange keypoints; None: no flip exchanges any.
        keeping_flips: positions of the flips that exchange no keypoints.
        unaugmented, unwarped: see Samples.
        augmented_from: position of the first step that changes the finished image, and the form of the images
            before it; None: there is none.
        augmented: number of ops on batches that the steps from there on stand for.
        patches: the step that makes patches, after which come only floats; None: there is none.

    Args:
        is_tensor, unaugmented, unwarped: see Attributes.
        boxes: True if the engine has the sample's boxes.
        first_op: stream of the first op on batches.
    """

    def __init__(
        self,
        *,
        is_tensor: bool = False,
        boxes: bool = False,
        unaugmented: str = "",
        unwarped: str = "",
        first_op: int = OP_STREAM,
    ) -> None:
        self.is_tensor = is_tensor
        self._boxes = boxes
        self.unaugmented, self.unwarped = unaugmented, unwarped
        self._warps = False  # True if a step so far may move the finished image's pixels
        self._flipped_late = False  # True if a flip comes after such a step
        self._erased: list[dict[str, Any]] = []  # the ops so far that erase
        self._first_op = first_op
        self.patches: T.Patches | None = None
        self.augmented_from: tuple[int, ImageForm] | None = None
        self.augmented = 0
        self.form: ImageForm = "image"
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
        self.keypoint_pairs: str | tuple[tuple[int, int], ...] | None = None
        self.keeping_flips: list[int] = []
        self._resized = False

    def take(self, made: NativeStep, stream: int, position: int) -> None:
        """Takes a step at a position of the list, a library's or fastload's; raises as add() does."""
        if made.step is not None:
            self._add_numbered(made, stream, position)
        for name, value in made.values.items():
            setattr(self, name, value)

    def program(self) -> core.Program:
        """The geometry, compiled."""
        return core.Program(self.ops)

    def _add_numbered(self, made: NativeStep, stream: int, position: int) -> None:
        """Adds a step; from the first one that changes the finished image on, those that are ops on
        batches draw from the streams that a device's would."""
        step, form = made.step, self.form
        assert step is not None
        augments = isinstance(step, Augmentation)
        is_op = augments or (self.augmented_from is not None and isinstance(step, _FLIPS))
        self.add(
            step,
            self._first_op + self.augmented if is_op else stream,
            commutes=made.commutes,
            strict=made.strict,
        )
        self.augmented += is_op
        self._warps |= isinstance(step, Augmentation) and bool(step.warp)
        if augments and self.augmented_from is None:
            self.augmented_from = position, form

    def add(self, step: T.Transform, stream: int, *, commutes: bool = False, strict: bool = False) -> None:
        """Takes a step; `stream` is its random stream, `commutes` says that as a crop it may be done before
        what made floats, and `strict` that an image which a resize leaves no row or column of is an error.

        Raises:
            TransformError: it has no native meaning at this place.
        """
        if isinstance(step, T.ToFloat | T.Normalize):
            self._add_values(step)
            return
        if self.patches is not None:
            raise TransformError(f"{step!r} after Patches: put it before")
        flips = isinstance(step, (*_FLIPS, Augmentation))
        if self.augmented_from is not None and not flips and not isinstance(step, _ON_BOXES):
            raise TransformError(f"{step!r} after an augmentation: put crops and resizes first")
        if self._flipped_late and isinstance(step, Augmentation) and step.warp:
            raise TransformError("it warps what was warped and flipped: put flips first")
        if self._erased and isinstance(step, Augmentation) and not isinstance(step, Erasing):
            raise TransformError("it would change what RandomErasing has filled: put RandomErasing last")
        if self.to_float and not flips and not commutes and not isinstance(step, _ON_BOXES):
            raise TransformError(f"{step!r} after ToFloat or Normalize: put crops and resizes first")
        self._check_padding(step)
        if len(self.ops) == MOST_OPS:
            raise TransformError(f"{step!r} is one too many: at most {MOST_OPS} steps of a list are native")
        if isinstance(step, _OF_BOXES) and not self._boxes:
            raise TransformError(
                f"{type(step).__name__} needs the boxes of the sample, which the decoder does not have here"
            )
        resizes = isinstance(step, _RESIZES)
        if resizes and self._resized:
            raise TransformError(f"{step!r} is a second resize: one image is resampled once")
        op = _program_op(step, stream) | ({"strict": True} if strict else {})
        if isinstance(step, _FLIPS) and self._warps:
            op["late"] = self._flipped_late = True
        pairs = keypoint_pairs(step.keypoint_pairs, type(step).__name__) if isinstance(step, _FLIPS) else None
        if pairs is not None:
            if self.keypoint_pairs not in (None, pairs):
                raise TransformError(
                    f"{step!r} exchanges other keypoints than a flip before it: give both the same "
                    "keypoint_pairs"
                )
            self.keypoint_pairs, op["exchange"] = pairs, True
        fill, mask_fill = self._fills_after(step, None if resizes else self.fill)
        if "fill" in op and fill is not None and not isinstance(step, Augmentation):
            op["fill"] = fill
        self.fill, self.mask_fill = fill, mask_fill
        if len(set(op.get("fill", ()))) > 1 and not isinstance(step, Augmentation):
            self.colour = op["fill"]
        if isinstance(step, T.Patches):
            self._add_patches(step)
        self._resized |= resizes
        self.random |= isinstance(step, _RANDOM)
        if isinstance(step, _FLIPS) and pairs is None:
            self.keeping_flips.append(stream)
        if isinstance(step, _OF_BOXES):
            self.of_boxes.append(stream)
        if isinstance(step, T.ConvertBoundingBoxFormat):
            self.box_format = str(step.format)
        self._size_after(step)
        self.ops.append(op)
        if isinstance(step, Erasing):
            self._erased.append(op)

    def _add_patches(self, step: T.Patches) -> None:
        if self.boxed_size:
            raise TransformError(f"{step!r} after RandomIoUCrop, whose size depends on the sample's boxes")
        self.patches = step
        if step.dtype not in (None, "uint8"):
            self.to_float, self.form = True, "float"

    def _check_padding(self, step: T.Transform) -> None:
        """Refuses a crop that would pad floats with what no byte becomes."""
        if self.form == "normalized" and isinstance(step, T.CenterCrop) and not self.holds(step):
            raise TransformError("it may pad what is normalised: put it before Normalize")
        if pads(step) and self.form == "normalized":
            raise TransformError("it pads what is normalised: put it before Normalize")
        if pads(step) and self.form == "float" and any(colour(step.fill, "RandomCrop")):
            raise TransformError("it pads floats with other than 0: put it before the conversion to floats")

    def _size_after(self, step: T.Transform) -> None:
        if isinstance(step, (*_FLIPS, *_ON_BOXES, Augmentation)):
            return
        size = step.size if isinstance(step, (*_OF_ONE_SIZE, T.Resize)) else None
        self.size = (int(size[0]), int(size[1])) if isinstance(size, tuple) else None
        self.drawn_size = self.size is None and (self.drawn_size or isinstance(step, _OF_DRAWN_SIZE))
        self.boxed_size = self.size is None and (self.boxed_size or isinstance(step, T.RandomIoUCrop))

    def _add_values(self, step: T.Transform) -> None:
        if self.mean is not None:
            raise TransformError(f"{step!r} after Normalize: normalise once, last")
        if self.patches is not None and self.patches.dtype == "uint8":
            raise TransformError(f"{step!r} after Patches(dtype='uint8'): leave dtype out")
        self.to_float = True
        self.form = "float"
        if isinstance(step, T.Normalize):
            self.mean, self.std = step.mean, step.std
            self.form = "normalized"
            for op in self._erased:
                if op["values"]:
                    values = np.array(op["values"], np.float32)[:, None]
                    op["values"] = tuple(normalized(values, step.mean, step.std)[:, 0].tolist())

    def _fills_after(
        self, step: T.Transform, fill: tuple[int, ...] | None
    ) -> tuple[tuple[int, ...] | None, int | None]:
        """The engine knows one colour of padding before the resize and one after it: that of the last padding
        step, black from any centre crop on; and of masks one label for both."""
        if isinstance(step, T.CenterCrop) and (fill is not None or not self.holds(step)):
            new, label = (0, 0, 0), 0
        elif isinstance(step, T.RandomZoomOut | T.Letterbox) or pads(step):
            new, label = colour(step.fill, type(step).__name__), step.mask_fill
        else:
            return fill, self.mask_fill
        if fill not in (None, new):
            raise TransformError(
                f"{step!r} pads with {new} what an earlier step may have padded with {fill}: use one fill"
            )
        if self.mask_fill not in (None, label):
            raise TransformError(
                f"{step!r} pads masks with {label}, and an earlier step may with {self.mask_fill}: "
                "use one mask_fill"
            )
        return new, label

    def holds(self, crop: T.CenterCrop) -> bool:
        """Returns True if every image after the steps so far is known to be at least as large as the crop."""
        size = size_pair(crop.size, "CenterCrop")
        return self.size is not None and self.size[0] >= size[0] and self.size[1] >= size[1]


def pads(step: T.Transform) -> TypeGuard[T.RandomCrop]:
    """Returns True if a step is a RandomCrop with padding."""
    return isinstance(step, T.RandomCrop) and (any(padding_sides(step.padding)) or bool(step.pad_if_needed))


def _program_op(step: T.Transform, stream: int) -> dict[str, Any]:
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


def _sized(
    kind: str,
    step: T.RandomResizedCrop | T.CenterCrop | CornerCrop | T.RandomCrop | T.Letterbox,
    **rest: object,
) -> dict[str, Any]:
    height, width = size_pair(step.size, type(step).__name__)
    return {"kind": kind, "height": height, "width": width, **rest}


def _filled(step: T.RandomCrop | T.Letterbox | T.RandomZoomOut) -> dict[str, Any]:
    return {"fill": step.fill, "mask_fill": step.mask_fill}


def _resize(step: T.Resize) -> dict[str, Any]:
    height, width = step.size if isinstance(step.size, tuple) else (0, step.size or 0)
    return {"kind": "resize", "height": height, "width": width, "max_size": step.max_size or 0}


_OPS: Mapping[type[T.Transform], Callable[[Any], dict[str, Any]]] = {
    Augmentation: lambda s: {
        "kind": s.kind,
        "p": s.p,
        "options": s.options,
        "fill": s.fill,
        "warp": s.warp or "nearest",
        "policy": s.policy,
    },
    Erasing: lambda s: {"kind": s.kind, "p": s.p, "options": s.options, "fill": s.fill, "values": s.values},
    T.RandomHorizontalFlip: lambda s: {"kind": "hflip", "p": s.p},
    T.RandomVerticalFlip: lambda s: {"kind": "vflip", "p": s.p},
    T.RandomResizedCrop: lambda s: _sized("resized_crop", s, scale=s.scale, ratio=s.ratio),
    T.Resize: _resize,
    T.CenterCrop: lambda s: _sized("center_crop", s, floors=s.floor),
    CornerCrop: lambda s: _sized("corner_crop", s, right=s.right, bottom=s.bottom),
    T.RandomCrop: lambda s: _sized(
        "random_crop", s, padding=s.padding, pad_if_needed=s.pad_if_needed, **_filled(s)
    ),
    T.Letterbox: lambda s: _sized("letterbox", s, **_filled(s)),
    T.RandomZoomOut: lambda s: {"kind": "zoom_out", "p": s.p, "scale": s.side_range, **_filled(s)},
    T.ScaleJitter: lambda s: {
        "kind": "scale_jitter",
        "width": s.target_size[0],
        "height": s.target_size[1],
        "scale": s.scale_range,
    },
    T.RandomShortestSize: lambda s: {
        "kind": "shortest_size",
        "options": s.min_size,
        "max_size": s.max_size or 0,
    },
    T.RandomIoUCrop: lambda s: {
        "kind": "iou_crop",
        "scale": (s.min_scale, s.max_scale),
        "ratio": (s.min_aspect_ratio, s.max_aspect_ratio),
        "options": s.sampler_options,
        "trials": s.trials,
    },
    T.Patches: lambda s: {"kind": "patch_grid", "options": (s.side, s.min_pixels, s.max_pixels)},
    T.RandomResize: lambda s: {"kind": "random_resize", "options": (s.min_size, s.max_size)},
    T.ConvertBoundingBoxFormat: lambda s: {"kind": "format", "box_format": s.format},
    T.SanitizeBoundingBoxes: lambda s: {"kind": "sanitize", "min_size": s.min_size, "min_area": s.min_area},
}
