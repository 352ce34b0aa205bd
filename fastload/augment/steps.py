"""Steps: the kernels that ops ask for, the way of their parameters to the device, and the loop that runs
them.

NOTE [ augment: drawn on the host, sent once ]
Every parameter is drawn and derived in NumPy before the first kernel is queued, and all arrays of all steps
cross to the device in one copy from pinned memory. Nothing is read back, so that neither the host nor the
device ever waits for the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fastload.augment import kernels
from fastload.augment.philox import Ints

Array = npt.NDArray[Any]
_ALIGN = 16


@dataclass(frozen=True)
class Frame:
    """Size and kind of the batch that an op gets, without its pixels.

    Attributes:
        rows: samples in the batch.
        height, width: size of the images as this op gets them.
        floating: True if values are 0..1 instead of 0..255.
        triton: True if the jitter's kernel in Triton runs on the batch's device.
        channels: channels of the images.
    """

    rows: int
    height: int
    width: int
    floating: bool
    triton: bool = False
    channels: int = 3

    @property
    def unit(self) -> float:
        """Factor for a value of 0..255 in an op's parameters."""
        return 1.0 / 255.0 if self.floating else 1.0


@dataclass
class Step:
    """One kernel over some rows.

    Attributes:
        kernel: takes (rows of images, **arrays as tensors, **constants) and returns rows of the same dtype in
            memory of their own, which may be written to; never writes to its input.
        rows: ascending; those it runs on.
        arrays: one parameter a row, as NumPy arrays of a type that torch has.
        constants: equal for every row.
        shared: arrays that are, such as a colour.
        on_host: the kernel wants its arrays on the host, whatever the device.
        exact: matrices of a resampling step's rows before they were rounded.
        size: (height, width) afterwards, if it changes; such a step runs on every row.
        keypoint_pairs: the keypoints that a flip exchanges, as fastload.transforms has them.
        masks: the kernel's counterpart for masks of the same rows, called with the label that fills gaps as
            `fill`, too; None: the kernel leaves masks alone, or is known to move them.
        centres: called with the step and the size before it: matrices (R, 3, 3) from pixels' centres to
            pixels' centres; None: the kernel moves no boxes and keypoints, or is known to.
    """

    kernel: Callable[..., Tensor]
    rows: Ints
    arrays: dict[str, Array] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    size: tuple[int, int] | None = None
    shared: dict[str, Array] = field(default_factory=dict)
    on_host: bool = False
    exact: Array | None = None
    keypoint_pairs: str | Sequence[tuple[int, int]] | None = None
    masks: Callable[..., Tensor] | None = None
    centres: Callable[[Step, tuple[int, int]], Array] | None = None


def send(arrays: Sequence[Array], device: torch.device) -> list[Tensor]:
    """NumPy arrays as tensors on the device, by one copy; to CUDA the host does not wait for it."""
    if kernels.on_cpu(device):
        return [torch.from_numpy(np.require(array, requirements=("C", "W"))) for array in arrays]
    starts, total = [], 0
    for array in arrays:
        starts.append(total)
        total += -(-array.nbytes // _ALIGN) * _ALIGN
    packed = np.zeros(total, np.uint8)
    for array, start in zip(arrays, starts, strict=True):
        packed[start : start + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    host = torch.from_numpy(packed)
    # Elsewhere torch does not promise to keep the source until the copy has read it.
    sent = host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host.to(device)
    return [
        sent[start : start + array.nbytes]
        .view(torch.from_numpy(np.empty(0, array.dtype)).dtype)
        .view(array.shape)
        for array, start in zip(arrays, starts, strict=True)
    ]


def run(images: Tensor, steps: Sequence[Step]) -> Tensor:
    """Does the steps in order on (B, 3, H, W); the input stays as it was, the result may be it where there
    is nothing to do."""
    if not steps:
        return images
    own, shared, rows = _sent(images, steps)
    out, ours = images, False
    for number, step in enumerate(steps):

        def kernel(x: Tensor, start: int, stop: int, number: int = number, step: Step = step) -> Tensor:
            part = {name: tensor[start:stop] for name, tensor in own[number].items()}
            return step.kernel(x, **part, **shared[number], **step.constants)

        count = len(step.rows)
        if not count:
            continue
        whole = count == len(images)
        chunk = (
            count if step.kernel in kernels.CHEAP and images.dtype == torch.uint8 else _chunk(images, count)
        )
        if whole and (chunk >= count or step.size):
            out, ours = kernel(out, 0, count), True
            continue
        source = out
        if not ours:
            out, ours = torch.empty_like(out) if whole else out.clone(), True
        for start in range(0, count, chunk):
            if whole:
                out[start : start + chunk] = kernel(source[start : start + chunk], start, start + chunk)
            else:
                picked = rows[number][start : start + chunk]
                _put(
                    out,
                    step.rows[start : start + chunk],
                    picked,
                    kernel(source.index_select(0, picked), start, start + chunk),
                )
    return out


def _put(out: Tensor, places: Ints, picked: Tensor, done: Tensor) -> None:
    """Rows back to their places. index_copy_ on the CPU goes element by element, a hundred times slower
    than copying rows."""
    if kernels.on_cpu(out.device):
        for place, row in zip(places.tolist(), done.unbind(0), strict=True):
            out[place].copy_(row)
    else:
        out.index_copy_(0, picked, done)


_CHUNK_BYTES = 4 << 20


def _chunk(images: Tensor, count: int) -> int:
    """Number of rows that a kernel gets at once: all; on the CPU, as many as stay in its caches, and below
    the size from which malloc maps fresh pages, which cost more to fault in than to compute on. Rows are
    independent: no chunk changes a pixel."""
    if not kernels.on_cpu(images.device):
        return max(count, 1)
    return max(1, _CHUNK_BYTES // (4 * images[0].numel()))


def _sent(
    images: Tensor, steps: Sequence[Step]
) -> tuple[list[dict[str, Tensor]], list[dict[str, Tensor]], list[Tensor]]:
    """Every step's arrays, shared arrays and rows where they are needed; rows that are all of them are
    not."""
    kinds = [{} if step.on_host else step.arrays for step in steps], [step.shared for step in steps]
    partial = [kernels.on_cpu(images.device) or len(step.rows) < len(images) for step in steps]
    flat = [array for kind in kinds for named in kind for array in named.values()]
    flat += [step.rows for step, needed in zip(steps, partial, strict=True) if needed]
    tensors = iter(send(flat, images.device))
    own, shared = ([{name: next(tensors) for name in named} for named in kind] for kind in kinds)
    for step, there in zip(steps, own, strict=True):
        if step.on_host:
            there.update(zip(step.arrays, send(list(step.arrays.values()), torch.device("cpu")), strict=True))
    return own, shared, [next(tensors) if needed else torch.empty(0, device="cpu") for needed in partial]
