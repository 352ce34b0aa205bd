"""A transform list, planned: what the native decoder does of it, and what is left for Python.

The planner keeps the list's meaning or refuses it: nothing is reordered unless the result is the same pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload import transforms as T
from fastload._native import core
from fastload.errors import ArgumentError, TransformError

FLOAT_DTYPES = ("float32", "float16", "bfloat16")
_RANDOM = (T.RandomResizedCrop, T.RandomCrop, T.RandomHorizontalFlip, T.RandomVerticalFlip)


@dataclass(frozen=True)
class Plan:
    """What a transform list means.

    Attributes:
        program: the geometry, compiled for the engine.
        to_float: whether samples are floats.
        mean, std: of Normalize, or None.
        python: callables that run per sample in Python after the native part, on the CHW tensor.
        fixed_size: (height, width) when every sample ends at one size, else None.
        random: whether the native part draws random numbers.
    """

    program: core.Program
    to_float: bool = False
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    python: tuple[Callable[[Any], Any], ...] = ()
    fixed_size: tuple[int, int] | None = None
    random: bool = False

    @property
    def native(self) -> bool:
        """Whether the engine can run all of it."""
        return not self.python


def compile_plan(transform: Any) -> Plan:
    """Plans a transform: None, one transform, or a sequence (also anything with a ``transforms`` list, such as a Compose).

    Raises:
        TransformError: the list has no native meaning in this order; the message says what to change.
    """
    steps = _as_list(transform)
    split = next((i for i, s in enumerate(steps) if not isinstance(s, T.Transform)), len(steps))
    native, rest = steps[:split], steps[split:]
    for step in rest:
        if isinstance(step, T.Transform):
            raise TransformError(f"{step!r} comes after {rest[0]!r}, which runs in Python: put fastload's transforms first")
        if not callable(step):
            raise TransformError(f"{step!r} is neither a fastload transform nor callable")
    ops, mean, std, to_float = _native_ops(native)
    return Plan(
        program=core.Program(ops),
        to_float=to_float,
        mean=mean,
        std=std,
        python=tuple(rest),
        fixed_size=_fixed_size(native),
        random=any(isinstance(s, _RANDOM) for s in native),
    )


def _as_list(transform: Any) -> list[Any]:
    if transform is None:
        return []
    if isinstance(transform, T.Transform):
        return [transform]
    inner = getattr(transform, "transforms", transform)
    if isinstance(inner, Sequence) and not isinstance(inner, str):
        return [s for step in inner for s in _as_list(step)]
    return [transform]


def _native_ops(
    native: Sequence[T.Transform],
) -> tuple[list[dict[str, Any]], tuple[float, ...] | None, tuple[float, ...] | None, bool]:
    ops: list[dict[str, Any]] = []
    mean = std = None
    to_float = resized = padded = False
    for position, step in enumerate(native):
        if isinstance(step, T.ToFloat | T.Normalize):
            if mean is not None:
                raise TransformError(f"{step!r} after Normalize: normalise once, last")
            to_float = True
            if isinstance(step, T.Normalize):
                mean, std = step.mean, step.std
            continue
        if to_float and not isinstance(step, T.RandomHorizontalFlip | T.RandomVerticalFlip):
            raise TransformError(f"{step!r} after ToFloat or Normalize: put crops and resizes first")
        if isinstance(step, T.RandomResizedCrop | T.Resize):
            if resized:
                raise TransformError(f"{step!r} is a second resize: one image is resampled once")
            if padded:
                raise TransformError(f"{step!r} after a padding crop: resize first")
            resized = True
        if isinstance(step, T.RandomCrop) and (any(step.padding or ()) or step.pad_if_needed):  # type: ignore[arg-type]
            padded = True
        ops.append(_op(step, position + 1))
    return ops, mean, std, to_float


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


def _fixed_size(native: Sequence[T.Transform]) -> tuple[int, int] | None:
    for step in reversed(native):
        if isinstance(step, T.Resize) and isinstance(step.size, int):
            return None
        size = getattr(step, "size", None)
        if size is not None:
            return int(size[0]), int(size[1])
    return None


def output_of(plan: Plan, dtype: str | None, layout: str) -> core.Output:
    """The engine's output for a plan: dtype "uint8" or a float one (None: what the plan implies), layout "HWC" or "CHW".

    Raises:
        ArgumentError: the dtype contradicts the plan.
    """
    chosen = dtype or ("float32" if plan.to_float else "uint8")
    if chosen == "uint8":
        if plan.to_float:
            raise ArgumentError("dtype=uint8 with ToFloat or Normalize in the transform: drop one of them")
        return core.Output("uint8", layout, None)
    if chosen not in FLOAT_DTYPES:
        raise ArgumentError(f"dtype={chosen!r}: native batches are uint8, float32, float16 or bfloat16")
    return core.Output(chosen, layout, value_table(plan, chosen))


def value_table(plan: Plan, dtype: str) -> npt.NDArray[Any]:
    """The 3 x 256 values that bytes become: computed in float32 in torchvision's order (divide, subtract, divide), then rounded."""
    values = np.tile(np.arange(256, dtype=np.float32) / np.float32(255), (3, 1))
    if plan.mean is not None and plan.std is not None:
        values = (values - np.asarray(plan.mean, np.float32)[:, None]) / np.asarray(plan.std, np.float32)[:, None]
    if dtype == "float32":
        return values
    if dtype == "float16":
        return values.astype(np.float16)
    bits = values.view(np.uint32)
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)  # to nearest, ties to even, as hardware does
    return (rounded >> 16).astype(np.uint16)
