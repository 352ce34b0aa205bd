"""The native part of a plan, built step by step."""

from __future__ import annotations

from typing import Any

from fastload import transforms as T
from fastload._native import core
from fastload.errors import TransformError
from fastload.plan.spec import Form

_RANDOM = (T.RandomResizedCrop, T.RandomCrop, T.RandomHorizontalFlip, T.RandomVerticalFlip)
MOST_OPS = 16
"""Of one program: FL_OPS_MAX."""


class NativePart:
    """Geometry and values so far.

    1. add() takes a step whole or raises and is as before.
    2. Values (ToFloat, Normalize) are written after all geometry; a crop or flip added after them must be one that commutes with them.

    Attributes:
        form: what the list holds here.
        size: (height, width) of every sample here, or None where it depends on the sample.
        fill: of the padding that may be seen here, or None where no step may have padded.
    """

    def __init__(self) -> None:
        self.form: Form = "image"
        self.ops: list[dict[str, Any]] = []
        self.to_float = self.reciprocal = self.random = False
        self.mean: tuple[float, ...] | None = None
        self.std: tuple[float, ...] | None = None
        self.size: tuple[int, int] | None = None
        self.fill: tuple[int, ...] | None = None
        self._resized = self._padded = False

    def program(self) -> core.Program:
        """The geometry, compiled."""
        return core.Program(self.ops)

    def add(self, step: T.Transform, stream: int, *, commutes: bool = False) -> None:
        """Takes a step; `stream` is its random stream, `commutes` says that as a crop it may be done before what made floats.

        Raises:
            TransformError: it has no native meaning at this place.
        """
        if isinstance(step, T.ToFloat | T.Normalize):
            self._add_values(step)
            return
        flips = isinstance(step, T.RandomHorizontalFlip | T.RandomVerticalFlip)
        if self.to_float and not flips and not commutes:
            raise TransformError(f"{step!r} after ToFloat or Normalize: put crops and resizes first")
        if len(self.ops) == MOST_OPS:
            raise TransformError(f"{step!r} is one too many: a list has at most {MOST_OPS} crops, resizes and flips")
        resizes = isinstance(step, T.RandomResizedCrop | T.Resize)
        if resizes and self._resized:
            raise TransformError(f"{step!r} is a second resize: one image is resampled once")
        if resizes and self._padded:
            raise TransformError(f"{step!r} after a padding crop: resize first")
        op = _op(step, stream)
        fill = self._fill_after(step)
        if "fill" in op and fill is not None:
            op["fill"] = fill
        self.fill = fill
        self._resized |= resizes
        self._padded |= pads(step)
        self.random |= isinstance(step, _RANDOM)
        if not flips:
            size = step.size  # type: ignore[attr-defined]
            self.size = None if isinstance(size, int) else (int(size[0]), int(size[1]))
        self.ops.append(op)

    def _add_values(self, step: T.Transform) -> None:
        if self.mean is not None:
            raise TransformError(f"{step!r} after Normalize: normalise once, last")
        self.to_float = True
        self.form = "float"
        if isinstance(step, T.Normalize):
            self.mean, self.std = step.mean, step.std
            self.form = "normalized"

    def _fill_after(self, step: T.Transform) -> tuple[int, ...] | None:
        """The engine knows one colour of padding: that of the last padding crop, and black from any centre crop on."""
        if isinstance(step, T.CenterCrop) and (self.fill is not None or not self.holds(step.size)):  # type: ignore[arg-type]
            fill: tuple[int, ...] = (0, 0, 0)
        elif isinstance(step, T.RandomCrop) and pads(step):
            fill = step.fill  # type: ignore[assignment]
        else:
            return self.fill
        if self.fill not in (None, fill):
            raise TransformError(f"{step!r} pads with {fill} what an earlier step may have padded with {self.fill}: use one fill")
        return fill

    def holds(self, size: tuple[int, int]) -> bool:
        """Whether every image here is known to be at least that large."""
        return self.size is not None and self.size[0] >= size[0] and self.size[1] >= size[1]


def pads(step: T.Transform) -> bool:
    """Whether it is a RandomCrop that is asked to pad."""
    return isinstance(step, T.RandomCrop) and bool(any(step.padding or ()) or step.pad_if_needed)  # type: ignore[arg-type]


def _op(step: T.Transform, stream: int) -> dict[str, Any]:
    """One transform as the engine takes it; its place in the list is its random stream."""
    if isinstance(step, T.RandomHorizontalFlip | T.RandomVerticalFlip):
        return {"kind": "hflip" if isinstance(step, T.RandomHorizontalFlip) else "vflip", "stream": stream, "p": step.p}
    if isinstance(step, T.Resize) and isinstance(step.size, int):
        height, width = 0, step.size
    else:
        height, width = step.size  # type: ignore[attr-defined]
    op: dict[str, Any] = {"stream": stream, "width": width, "height": height}
    if isinstance(step, T.RandomResizedCrop | T.Resize):
        op |= {"filter": step.interpolation, "antialias": step.antialias, "dct_scale": step.dct_scale}
    if isinstance(step, T.RandomResizedCrop):
        return op | {"kind": "resized_crop", "scale": step.scale, "ratio": step.ratio}
    if isinstance(step, T.Resize):
        return op | {"kind": "resize", "max_size": step.max_size or 0}
    if isinstance(step, T.CenterCrop):
        return op | {"kind": "center_crop"}
    if isinstance(step, T.RandomCrop):
        extra = {"padding": step.padding, "pad_if_needed": step.pad_if_needed, "fill": step.fill}
        return op | extra | {"kind": "random_crop"}
    raise TransformError(f"{step!r} has no native form")
