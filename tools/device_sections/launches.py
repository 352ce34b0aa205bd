"""One launch of each kernel of Triton's, and of one with a planted overrun. As a program, on the device:
for compute-sanitizer."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

from fastload.augment import jitter_kernel
from fastload.device import to_float_kernel
from fastload.device.to_float import eager

LAST, FIRST = torch.channels_last, torch.contiguous_format
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def floats(source: torch.memory_format, out: torch.memory_format) -> Callable[[torch.Tensor], None]:
    """The launch of one kernel of to_float, by the layouts of its input and its result."""

    def launch(images: torch.Tensor) -> None:
        given = images.contiguous(memory_format=source)
        got = to_float_kernel.to_float(given, torch.float32, MEAN, STD, out, False)
        torch.testing.assert_close(got, eager(given, torch.float32, MEAN, STD, out))

    return launch


def jitter(images: torch.Tensor) -> None:
    """Both kernels of the jitter; a factor of 1 changes nothing."""
    codes = torch.tensor([[0, 1, 2, 4]] * len(images), dtype=torch.int32).to(images.device)
    got = jitter_kernel.jitter(images, codes, torch.ones(len(images), 4).to(images.device), contrasts=True)
    assert torch.equal(got, images)


CASES: dict[Any, Callable[[torch.Tensor], None]] = {
    to_float_kernel._innermost: floats(LAST, LAST),
    to_float_kernel._to_last: floats(FIRST, LAST),
    to_float_kernel._to_planar: floats(LAST, FIRST),
    to_float_kernel._planar: floats(FIRST, FIRST),
    jitter_kernel._sums: jitter,
    jitter_kernel._apply: jitter,
}
"""By kernel: a launch of it, of images that end in the middle of a block."""


@triton.jit
def planted_overrun(values, count, BLOCK: tl.constexpr):
    """Writes beyond the end of its values."""
    tl.store(values + tl.arange(0, BLOCK) + count, 1.0)


def all_of(device: str) -> list[str]:
    """Launches every kernel once. Returns their names."""
    images = torch.randint(0, 256, (3, 3, 37, 41), dtype=torch.uint8).to(device)
    for launch in dict.fromkeys(CASES.values()):
        launch(images)
    return [kernel.__name__ for kernel in CASES]


if __name__ == "__main__":
    sys.stdout.write(f"launched: {' '.join(all_of('cuda'))}\n")
    torch.cuda.synchronize()
    sys.stdout.flush()
    planted_overrun[(1,)](torch.zeros(128, device="cuda"), 1 << 20, 128)
    torch.cuda.synchronize()
