"""to_float as one kernel for NVIDIA and AMD GPUs, in Triton. Imported only where Triton is.

It reads each byte and writes each value once. Nothing about a batch's size is compiled in, so that the last, smaller batch runs the same
code; the dtype, the layouts and the image's size make another kernel.
"""

# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-untyped-call"
from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096
"""Values that a program makes where the layouts are alike."""
PIXELS = 1024
"""Pixels that a program makes where they are not."""


@triton.jit
def _value(x, mean, std, RECIPROCAL: tl.constexpr, NORMALIZE: tl.constexpr):
    value = x.to(tl.float32)
    value = value * 0.003921568859368563 if RECIPROCAL else tl.div_rn(value, tl.full(value.shape, 255.0, tl.float32))
    if NORMALIZE:
        value = tl.div_rn(value - mean, std)
    return value


@triton.jit
def _store(source, out, start, end, offset, mean, std, RECIPROCAL: tl.constexpr, NORMALIZE: tl.constexpr, BLOCK: tl.constexpr):
    """Values start .. start + BLOCK, of those below end, at `offset` from both pointers."""
    at = offset + start + tl.arange(0, BLOCK)
    if start + BLOCK <= end:  # without a mask loads and stores are wide
        value = _value(tl.load(source + at), mean, std, RECIPROCAL, NORMALIZE)
        tl.store(out + at, value.to(out.dtype.element_ty))
    else:
        inside = start + tl.arange(0, BLOCK) < end
        value = _value(tl.load(source + at, mask=inside, other=0), mean, std, RECIPROCAL, NORMALIZE)
        tl.store(out + at, value.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["count"])
def _innermost(source, out, count, m0, m1, m2, s0, s1, s2, RECIPROCAL: tl.constexpr, NORMALIZE: tl.constexpr, BLOCK: tl.constexpr):
    """Both channels_last: channel by channel, over the whole batch."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    channel = ((start % 3).to(tl.int32) + tl.arange(0, BLOCK)) % 3
    mean = tl.where(channel == 0, m0, tl.where(channel == 1, m1, m2))
    std = tl.where(channel == 0, s0, tl.where(channel == 1, s1, s2))
    _store(source, out, start, count, 0, mean, std, RECIPROCAL, NORMALIZE, BLOCK)


@triton.jit
def _planar(source, out, plane, m0, m1, m2, s0, s1, s2, RECIPROCAL: tl.constexpr, NORMALIZE: tl.constexpr, BLOCK: tl.constexpr):
    """Both contiguous: a program does a part of one plane. plane: pixels of an image."""
    number = tl.program_id(0).to(tl.int64)
    channel = number % 3
    mean = tl.where(channel == 0, m0, tl.where(channel == 1, m1, m2))
    std = tl.where(channel == 0, s0, tl.where(channel == 1, s1, s2))
    _store(source, out, tl.program_id(1) * BLOCK, plane, number * plane, mean, std, RECIPROCAL, NORMALIZE, BLOCK)


@triton.jit
def _across(
    source,
    out,
    plane,
    m0,
    m1,
    m2,
    s0,
    s1,
    s2,
    RECIPROCAL: tl.constexpr,
    NORMALIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    TO_LAST: tl.constexpr,
):
    """Between the layouts: a program does some pixels of one image. TO_LAST: from contiguous to channels_last, else the other way."""
    image = tl.program_id(0).to(tl.int64) * plane * 3
    pixel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = pixel < plane
    for channel in tl.static_range(3):
        mean = m0 if channel == 0 else (m1 if channel == 1 else m2)
        std = s0 if channel == 0 else (s1 if channel == 1 else s2)
        last, apart = image + pixel * 3 + channel, image + channel * plane + pixel
        x = tl.load(source + (apart if TO_LAST else last), mask=inside, other=0)
        value = _value(x, mean, std, RECIPROCAL, NORMALIZE)
        tl.store(out + (last if TO_LAST else apart), value.to(out.dtype.element_ty), mask=inside)


def to_float(
    images: Tensor,
    dtype: torch.dtype,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
    memory_format: torch.memory_format,
    reciprocal: bool,
) -> Tensor:
    """See floats.to_float. images: uint8, contiguous in one of the two formats."""
    out = torch.empty_like(images, dtype=dtype, memory_format=memory_format)
    from_last, to_last = not images.is_contiguous(), not out.is_contiguous()
    batch, plane = images.shape[0], images.shape[2] * images.shape[3]
    values = [float(value) for value in (*(mean or (0.0,) * 3), *(std or (1.0,) * 3))]
    flags = (reciprocal, mean is not None)
    with _on(images.device):
        if from_last and to_last:
            _innermost[(triton.cdiv(images.numel(), BLOCK),)](images, out, images.numel(), *values, *flags, BLOCK)
        elif from_last == to_last:
            _planar[(batch * 3, triton.cdiv(plane, BLOCK))](images, out, plane, *values, *flags, BLOCK)
        else:
            _across[(batch, triton.cdiv(plane, PIXELS))](images, out, plane, *values, *flags, PIXELS, to_last)
    return out


def _on(device: torch.device) -> Any:
    """Triton launches on the current device."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
