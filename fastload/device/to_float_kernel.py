"""to_float as one Triton kernel for NVIDIA and AMD GPUs. Imported only where Triton is installed.

It reads each byte and writes each value once. The size of a batch is not compiled in, so the last, smaller
batch runs the same code. Another dtype, another image size or other layouts may compile another kernel.
See fastload.device.exact_division for the divisions. No other multiplication may be fused with an addition,
because torch rounds between them.
"""

# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-untyped-call"
from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from fastload.device.exact_division import divides, inverses
from fastload.device.gpu import launching

BLOCK = 4096
"""Values that each program computes if both layouts are planar."""
RUNS = 128
"""Runs of 48 values, that is 16 pixels, that each program computes if the result is channels_last."""
PIXELS = 1024
"""Pixels that each program converts from channels_last to contiguous."""


@triton.jit
def _quotient(a, minus_b, r, DIVIDE: tl.constexpr):
    if DIVIDE:
        return tl.div_rn(a, -minus_b)
    q = a * r
    return tl.fma(tl.fma(q, minus_b, a), r, q)


@triton.jit
def _value(
    x, mean, minus_std, inverse, RECIPROCAL: tl.constexpr, NORMALIZE: tl.constexpr, DIVIDE: tl.constexpr
):
    """The float value of a byte. inverse: 1 / std, rounded."""
    value = x.to(tl.float32)
    if RECIPROCAL:
        value = value * 0.003921568859368563
    else:
        value = _quotient(
            value,
            tl.full(value.shape, -255.0, tl.float32),
            tl.full(value.shape, 0.003921568859368563, tl.float32),
            DIVIDE,
        )
    if NORMALIZE:
        minus_std, value = tl.broadcast(minus_std, value)
        inverse, value = tl.broadcast(inverse, value)
        value = _quotient(value - mean, minus_std, inverse, DIVIDE)
    return value


@triton.jit
def _convert(
    source,
    out,
    inside,
    whole,
    mean,
    minus_std,
    inverse,
    RECIPROCAL: tl.constexpr,
    NORMALIZE: tl.constexpr,
    DIVIDE: tl.constexpr,
):
    """Converts the values at `source` that are `inside`, and stores them at `out`. `whole`: all are, so
    that loads and stores are wider."""
    if whole:
        value = _value(tl.load(source), mean, minus_std, inverse, RECIPROCAL, NORMALIZE, DIVIDE)
        tl.store(out, value.to(out.dtype.element_ty))
    else:
        value = _value(
            tl.load(source, mask=inside, other=0), mean, minus_std, inverse, RECIPROCAL, NORMALIZE, DIVIDE
        )
        tl.store(out, value.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _of(channel, v0, v1, v2):
    return tl.where(channel == 0, v0, tl.where(channel == 1, v1, v2))


@triton.jit(do_not_specialize=["count"])
def _innermost(
    source,
    out,
    count,
    m0,
    m1,
    m2,
    n0,
    n1,
    n2,
    i0,
    i1,
    i2,
    RECIPROCAL: tl.constexpr,
    NORMALIZE: tl.constexpr,
    DIVIDE: tl.constexpr,
    RUNS: tl.constexpr,
):
    """Both channels_last: one thread converts a run of 48 values, so that the compiler knows the channel
    of each of its registers."""
    first = tl.program_id(0).to(tl.int64) * (RUNS * 48)
    column = tl.arange(0, 16)[None, :]
    start = tl.arange(0, RUNS)[:, None] * 48
    for part in tl.static_range(3):
        channel = (column + part) % 3
        mean, minus_std, inverse = (
            _of(channel, m0, m1, m2),
            _of(channel, n0, n1, n2),
            _of(channel, i0, i1, i2),
        )
        at = first + (start + part * 16 + column)
        whole = first + RUNS * 48 <= count
        _convert(
            source + at, out + at, at < count, whole, mean, minus_std, inverse, RECIPROCAL, NORMALIZE, DIVIDE
        )


@triton.jit
def _planar(
    source,
    out,
    plane,
    m0,
    m1,
    m2,
    n0,
    n1,
    n2,
    i0,
    i1,
    i2,
    RECIPROCAL: tl.constexpr,
    NORMALIZE: tl.constexpr,
    DIVIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Both contiguous: each program converts a part of one plane. plane: pixels of an image."""
    number = tl.program_id(0).to(tl.int64)
    channel = number % 3
    mean, minus_std, inverse = _of(channel, m0, m1, m2), _of(channel, n0, n1, n2), _of(channel, i0, i1, i2)
    start = tl.program_id(1) * BLOCK
    pixel = start + tl.arange(0, BLOCK)
    at = number * plane + pixel
    whole = start + BLOCK <= plane
    _convert(
        source + at, out + at, pixel < plane, whole, mean, minus_std, inverse, RECIPROCAL, NORMALIZE, DIVIDE
    )


@triton.jit
def _to_planar(
    source,
    out,
    plane,
    m0,
    m1,
    m2,
    n0,
    n1,
    n2,
    i0,
    i1,
    i2,
    RECIPROCAL: tl.constexpr,
    NORMALIZE: tl.constexpr,
    DIVIDE: tl.constexpr,
    PIXELS: tl.constexpr,
):
    """From channels_last to contiguous: each program converts some pixels of one image."""
    image = tl.program_id(0).to(tl.int64) * plane * 3
    pixel = tl.program_id(1) * PIXELS + tl.arange(0, PIXELS)
    inside = pixel < plane
    for channel in tl.static_range(3):
        if channel == 0:
            mean = m0
            minus_std = n0
            inverse = i0
        elif channel == 1:
            mean = m1
            minus_std = n1
            inverse = i1
        else:
            mean = m2
            minus_std = n2
            inverse = i2
        last, apart = source + image + pixel * 3 + channel, out + image + channel * plane + pixel
        _convert(last, apart, inside, False, mean, minus_std, inverse, RECIPROCAL, NORMALIZE, DIVIDE)


@triton.jit
def _to_last(
    source,
    out,
    plane,
    m0,
    m1,
    m2,
    n0,
    n1,
    n2,
    i0,
    i1,
    i2,
    RECIPROCAL: tl.constexpr,
    NORMALIZE: tl.constexpr,
    DIVIDE: tl.constexpr,
    RUNS: tl.constexpr,
):
    """From contiguous to channels_last: runs as in _innermost, with each value loaded from its plane, so
    that the stores are wide."""
    image = tl.program_id(0).to(tl.int64) * plane * 3
    first = tl.program_id(1) * (RUNS * 16)
    column = tl.arange(0, 16)[None, :]
    run = tl.arange(0, RUNS)[:, None]
    for part in tl.static_range(3):
        channel = (column + part) % 3
        mean, minus_std, inverse = (
            _of(channel, m0, m1, m2),
            _of(channel, n0, n1, n2),
            _of(channel, i0, i1, i2),
        )
        pixel = first + (run * 16 + (column + part * 16) // 3)
        last, apart = (
            out + image + first * 3 + (run * 48 + part * 16 + column),
            source + image + channel * plane + pixel,
        )
        whole = first + RUNS * 16 <= plane
        _convert(apart, last, pixel < plane, whole, mean, minus_std, inverse, RECIPROCAL, NORMALIZE, DIVIDE)


def to_float(
    images: Tensor,
    dtype: torch.dtype,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
    memory_format: torch.memory_format,
    reciprocal: bool,
) -> Tensor:
    """See fastload.device.to_float.to_float. images: uint8, contiguous in one of the two formats."""
    out = torch.empty_like(images, dtype=dtype, memory_format=memory_format)
    from_last, to_last = not images.is_contiguous(), not out.is_contiguous()
    batch, plane = images.shape[0], images.shape[2] * images.shape[3]
    means, stds = tuple(mean or (0.0,) * 3), tuple(std or (1.0,) * 3)
    values = (*means, *(-value for value in stds), *inverses(stds))
    flags = (reciprocal, mean is not None, divides(means, stds, reciprocal))
    kernel: triton.JITFunction
    grid: tuple[int, ...]
    if from_last and to_last:
        kernel, size, extent = _innermost, RUNS, images.numel()
        grid = (triton.cdiv(extent, RUNS * 48),)
    elif to_last:
        kernel, size, extent, grid = _to_last, RUNS, plane, (batch, triton.cdiv(plane, RUNS * 16))
    elif from_last:
        kernel, size, extent, grid = _to_planar, PIXELS, plane, (batch, triton.cdiv(plane, PIXELS))
    else:
        kernel, size, extent, grid = _planar, BLOCK, plane, (batch * 3, triton.cdiv(plane, BLOCK))
    with launching(images.device):
        kernel[grid](images, out, extent, *values, *flags, size, enable_fp_fusion=False)
    return out


def prove(device: torch.device) -> None:
    """Runs the kernel once, to find out whether it can be built."""
    x = torch.zeros((1, 3, 16, 16), dtype=torch.uint8, device=device)
    to_float(
        x.contiguous(memory_format=torch.channels_last), torch.float32, None, None, torch.channels_last, False
    )
