"""What an op asks to be done, how its parameters get to the device, and the loop that does it.

NOTE [ augment: drawn on the host, sent once ]
Every parameter is drawn and derived in NumPy before the first kernel is queued, and all arrays of all steps cross to the device
in one copy from pinned memory. Nothing is read back, so that neither the host nor the device ever waits for the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fastload.augment.philox import Ints

Array = npt.NDArray[Any]
_ALIGN = 16


@dataclass(frozen=True)
class Frame:
    """What an op may know of the batch before it runs: its size and kind, not its pixels.

    Attributes:
        rows: samples in the batch.
        height, width: of the images as this op gets them.
        floating: values are 0..1 instead of 0..255.
    """

    rows: int
    height: int
    width: int
    floating: bool

    @property
    def unit(self) -> float:
        """What a value of 0..255 in an op's parameters is multiplied by."""
        return 1.0 / 255.0 if self.floating else 1.0


@dataclass
class Step:
    """One kernel over some rows.

    Attributes:
        kernel: takes (rows of images, **arrays as tensors, **constants) and returns new rows of the same dtype; never writes to its input.
        rows: ascending; those it runs on.
        arrays: one parameter a row, as NumPy arrays (int64, float32, uint8 or bool).
        constants: equal for every row.
        size: (height, width) afterwards, where it changes; such a step runs on every row.
    """

    kernel: Callable[..., Tensor]
    rows: Ints
    arrays: dict[str, Array] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    size: tuple[int, int] | None = None


def send(arrays: Sequence[Array], device: torch.device) -> list[Tensor]:
    """NumPy arrays as tensors on the device, by one copy that the host does not wait for."""
    if device.type == "cpu":
        return [torch.from_numpy(np.require(array, requirements=("C", "W"))) for array in arrays]
    starts, total = [], 0
    for array in arrays:
        starts.append(total)
        total += -(-array.nbytes // _ALIGN) * _ALIGN
    packed = np.zeros(total, np.uint8)
    for array, start in zip(arrays, starts, strict=True):
        packed[start : start + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    host = torch.from_numpy(packed)
    sent = (host.pin_memory() if device.type == "cuda" else host).to(device, non_blocking=True)
    return [
        sent[start : start + array.nbytes].view(_TORCH[array.dtype.name]).view(array.shape)
        for array, start in zip(arrays, starts, strict=True)
    ]


_TORCH = {"int64": torch.int64, "float32": torch.float32, "uint8": torch.uint8, "bool": torch.bool}


def run(images: Tensor, steps: Sequence[Step]) -> Tensor:
    """Does the steps in order on (B, 3, H, W); the input stays as it was, the result may be it where there is nothing to do."""
    batch = len(images)
    named = [(number, name) for number, step in enumerate(steps) for name in step.arrays]
    partial = [len(step.rows) < batch for step in steps]
    picked = [number for number, part in enumerate(partial) if part]
    sent = send([steps[n].arrays[name] for n, name in named] + [steps[n].rows for n in picked], images.device)
    tensors: list[dict[str, Tensor]] = [{} for _ in steps]
    for (number, name), tensor in zip(named, sent, strict=False):
        tensors[number][name] = tensor
    rows = dict(zip(picked, sent[len(named) :], strict=True))
    out, ours = images, False
    for number, step in enumerate(steps):
        if number not in rows:
            out, ours = step.kernel(out, **tensors[number], **step.constants), True
            continue
        done = step.kernel(out.index_select(0, rows[number]), **tensors[number], **step.constants)
        if not ours:
            out, ours = out.clone(), True
        out.index_copy_(0, rows[number], done)
    return out
