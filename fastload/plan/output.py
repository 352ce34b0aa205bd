"""The engine's output for a plan: dtype, layout, and the table of values that bytes become."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.errors import ArgumentError, TransformError
from fastload.plan.spec import Plan

FLOAT_DTYPES = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Planes:
    """An image that is not 8-bit RGB: what its pixels are.

    Attributes:
        name: of its field.
        channels: 1, 3 or 4.
        depth: bytes of a value, 1 or 2.
    """

    name: str
    channels: int
    depth: int

    def check(self, plan: Plan) -> None:
        """Refuses colours that this image cannot have.

        Raises:
            TransformError: a mean, std or fill has three values, and the image other than three channels.
        """
        if self.channels == 3:
            return
        has = f"and the image {self.name!r} has {self.channels} channel{'s' * (self.channels > 1)}"
        for what, values in (("mean", plan.mean), ("std", plan.std)):
            if len(set(values or ())) > 1:
                raise TransformError(
                    f"Normalize's {what} has a value for each of three channels, {has}: give one value for all, normalise on the device, "
                    "or leave the field out with fields=[...]"
                )
        if plan.fill and len(set(plan.fill)) > 1:
            raise TransformError(f"fill={plan.fill} is a colour of three channels, {has}: pad with one value, or leave the field out")


def outputs_of(plan: Plan, dtype: str | None, layout: str, planes: Planes | None = None) -> list[core.Output]:
    """The engine's output for each tensor of a plan: dtype "uint8" or a float one (None: what the plan implies), layout "HWC" or "CHW".
    `planes`: what the image is, where it is not 8-bit RGB; "uint8" then means its own dtype.

    Raises:
        ArgumentError: the dtype contradicts the plan.
        TransformError: the plan's colours are not those of planes.
    """
    if plan.views:
        return [output for view in plan.views for output in outputs_of(view, dtype, layout, planes)]
    if planes is not None:
        planes.check(plan)
    chosen = dtype or ("float32" if plan.to_float else "uint8")
    if chosen == "uint8":
        if plan.to_float:
            raise ArgumentError("dtype=uint8 with ToFloat or Normalize in the transform: drop one of them")
        return [stored_output(layout, planes)]
    if chosen not in FLOAT_DTYPES:
        raise ArgumentError(f"dtype={chosen!r}: native batches are uint8, float32, float16 or bfloat16")
    if planes is None:
        return [core.Output(chosen, layout, value_table(plan, chosen))]
    table = value_table(plan, chosen, planes.channels, 1 << 8 * planes.depth)
    return [core.Output(chosen, layout, table, (planes.channels, planes.depth))]


def stored_output(layout: str, planes: Planes | None) -> core.Output:
    """Values as they are stored."""
    if planes is None:
        return core.Output("uint8", layout)
    return core.Output("uint16" if planes.depth == 2 else "uint8", layout, None, (planes.channels, planes.depth))


def value_table(plan: Plan, dtype: str, channels: int = 3, count: int = 256) -> npt.NDArray[Any]:
    """The channels x count values that bytes, or values of two bytes, become: computed in float32 in torchvision's order (divide, subtract,
    divide), then rounded."""
    levels = np.arange(count, dtype=np.float32)
    levels = levels * np.float32(1 / (count - 1)) if plan.reciprocal else levels / np.float32(count - 1)
    values = np.tile(levels, (channels, 1))
    if plan.mean is not None and plan.std is not None:
        mean, std = (np.asarray(each if channels == 3 else each[:1], np.float32)[:, None] for each in (plan.mean, plan.std))
        values = (values - mean) / std
    if dtype == "float32":
        return values
    if dtype == "float16":
        return values.astype(np.float16)
    bits = values.view(np.uint32)
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)  # to nearest, ties to even, as hardware does
    return (rounded >> 16).astype(np.uint16)
