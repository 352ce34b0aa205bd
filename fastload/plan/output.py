"""The engine's output for a plan: dtype, layout, and the table of values that bytes become."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.errors import ArgumentError
from fastload.plan.spec import Plan

FLOAT_DTYPES = ("float32", "float16", "bfloat16")


def outputs_of(plan: Plan, dtype: str | None, layout: str) -> list[core.Output]:
    """The engine's output for each tensor of a plan: dtype "uint8" or a float one (None: what the plan implies), layout "HWC" or "CHW".

    Raises:
        ArgumentError: the dtype contradicts the plan.
    """
    if plan.views:
        return [output for view in plan.views for output in outputs_of(view, dtype, layout)]
    chosen = dtype or ("float32" if plan.to_float else "uint8")
    if chosen == "uint8":
        if plan.to_float:
            raise ArgumentError("dtype=uint8 with ToFloat or Normalize in the transform: drop one of them")
        return [core.Output("uint8", layout, None)]
    if chosen not in FLOAT_DTYPES:
        raise ArgumentError(f"dtype={chosen!r}: native batches are uint8, float32, float16 or bfloat16")
    return [core.Output(chosen, layout, value_table(plan, chosen))]


def value_table(plan: Plan, dtype: str) -> npt.NDArray[Any]:
    """The 3 x 256 values that bytes become: computed in float32 in torchvision's order (divide, subtract, divide), then rounded."""
    levels = np.arange(256, dtype=np.float32)
    levels = levels * np.float32(1 / 255) if plan.reciprocal else levels / np.float32(255)
    values = np.tile(levels, (3, 1))
    if plan.mean is not None and plan.std is not None:
        values = (values - np.asarray(plan.mean, np.float32)[:, None]) / np.asarray(plan.std, np.float32)[:, None]
    if dtype == "float32":
        return values
    if dtype == "float16":
        return values.astype(np.float16)
    bits = values.view(np.uint32)
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)  # to nearest, ties to even, as hardware does
    return (rounded >> 16).astype(np.uint16)
