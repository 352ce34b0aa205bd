"""Colour jitter in two passes over memory, for NVIDIA and AMD GPUs, in Triton. Imported only where Triton is.

Every row goes through its own ops in its own order, pixel by pixel in registers, rounded and truncated where
`fastload.augment.kernels` rounds and truncates: the same values. The first pass is for the mean that contrast
needs of what comes before it.
"""

# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-untyped-call"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fastload.augment.kernels import bound
from fastload.device.gpu import launching

PIXELS = 1024
"""Pixels of one row that a program does."""


@triton.jit
def _of(like, value):
    return tl.full(like.shape, value, tl.float32)


@triton.jit
def _luma(r, g, b, WHOLE: tl.constexpr):
    y = tl.fma(b, _of(b, 0.114), tl.fma(g, _of(g, 0.587), r * 0.2989))
    return tl.floor(y) if WHOLE else y


@triton.jit
def _kept(v, white, WHOLE: tl.constexpr, dtype: tl.constexpr):
    """Clamped, and as an image of that dtype would hold it between two ops."""
    v = tl.minimum(tl.maximum(v, 0.0), white)
    return tl.floor(v) if WHOLE else v.to(dtype).to(tl.float32)


@triton.jit
def _band(sector, n: tl.constexpr, top, chroma):
    """A channel of what the hue has been turned to; see kernels.hue. The sector lies between -4 and 8, so
    that its remainder is this."""
    k = sector + n
    k = tl.where(k >= 12.0, k - 12.0, tl.where(k >= 6.0, k - 6.0, tl.where(k < 0.0, k + 6.0, k)))
    return top - tl.minimum(tl.maximum(tl.minimum(k, 4.0 - k), 0.0), 1.0) * chroma


@triton.jit
def _turned(r, g, b, factor, WHOLE: tl.constexpr):
    top, low = tl.maximum(tl.maximum(r, g), b), tl.minimum(tl.minimum(r, g), b)
    chroma = top - low
    scale = tl.div_rn(_of(chroma, 1.0), tl.maximum(chroma, 1e-12))
    sector = tl.where(
        top == r, (g - b) * scale, tl.where(top == g, (b - r) * scale + 2.0, (r - g) * scale + 4.0)
    )
    sector = tl.fma(_of(sector, 0.0) + factor, _of(sector, 6.0), sector)
    r, g, b = (
        _band(sector, 5.0, top, chroma),
        _band(sector, 3.0, top, chroma),
        _band(sector, 1.0, top, chroma),
    )
    if WHOLE:
        r, g, b = r * 1.003917694091797, g * 1.003917694091797, b * 1.003917694091797
    return r, g, b


@triton.jit
def _done(
    r, g, b, row, codes, factors, mean, white, BEFORE: tl.constexpr, WHOLE: tl.constexpr, dtype: tl.constexpr
):
    """The row's ops in their order; BEFORE: those before its contrast, which need no mean."""
    going = 1
    for place in tl.static_range(4):
        code, factor = tl.load(codes + row * 4 + place), tl.load(factors + row * 4 + place)
        if BEFORE:
            going = tl.where(code == 1, 0, going)
            code = tl.where(going == 1, code, 4)
        if code == 0:
            r, g, b = r * factor, g * factor, b * factor
        if code == 1:
            rest, f = mean * (1.0 - factor) + _of(r, 0.0), factor + _of(r, 0.0)
            r, g, b = tl.fma(r, f, rest), tl.fma(g, f, rest), tl.fma(b, f, rest)
        if code == 2:
            rest, f = _luma(r, g, b, WHOLE) * (1.0 - factor), factor + _of(r, 0.0)
            r, g, b = tl.fma(r, f, rest), tl.fma(g, f, rest), tl.fma(b, f, rest)
        if code == 3:
            r, g, b = _turned(r, g, b, factor, WHOLE)
        if code != 4:
            r, g, b = (
                _kept(r, white, WHOLE, dtype),
                _kept(g, white, WHOLE, dtype),
                _kept(b, white, WHOLE, dtype),
            )
    return r, g, b


@triton.jit
def _places(plane, PIXELS: tl.constexpr, LAST: tl.constexpr):
    """The program's row, its pixels, and where their first channel is; the distance to the next."""
    row = tl.program_id(0)
    pixel = tl.program_id(1) * PIXELS + tl.arange(0, PIXELS)
    at = row.to(tl.int64) * plane * 3 + (pixel * 3 if LAST else pixel)
    return row, pixel < plane, at


@triton.jit
def _sums(
    source, codes, factors, sums, plane, white, WHOLE: tl.constexpr, LAST: tl.constexpr, PIXELS: tl.constexpr
):
    """Luma before the contrast, summed over the program's pixels."""
    row, inside, at = _places(plane, PIXELS, LAST)
    apart = 1 if LAST else plane
    r = tl.load(source + at, mask=inside, other=0).to(tl.float32)
    g = tl.load(source + at + apart, mask=inside, other=0).to(tl.float32)
    b = tl.load(source + at + 2 * apart, mask=inside, other=0).to(tl.float32)
    r, g, b = _done(r, g, b, row, codes, factors, 0.0, white, True, WHOLE, source.dtype.element_ty)
    y = tl.where(inside, _luma(r, g, b, WHOLE), 0.0).to(tl.float64)
    tl.store(sums + row * tl.num_programs(1) + tl.program_id(1), tl.sum(y, 0))


@triton.jit
def _apply(
    source,
    out,
    codes,
    factors,
    means,
    plane,
    white,
    WHOLE: tl.constexpr,
    LAST: tl.constexpr,
    PIXELS: tl.constexpr,
):
    row, inside, at = _places(plane, PIXELS, LAST)
    apart = 1 if LAST else plane
    r = tl.load(source + at, mask=inside, other=0).to(tl.float32)
    g = tl.load(source + at + apart, mask=inside, other=0).to(tl.float32)
    b = tl.load(source + at + 2 * apart, mask=inside, other=0).to(tl.float32)
    r, g, b = _done(
        r, g, b, row, codes, factors, tl.load(means + row), white, False, WHOLE, source.dtype.element_ty
    )
    tl.store(out + at, r.to(source.dtype.element_ty), mask=inside)
    tl.store(out + at + apart, g.to(source.dtype.element_ty), mask=inside)
    tl.store(out + at + 2 * apart, b.to(source.dtype.element_ty), mask=inside)


def jitter(x: Tensor, codes: Tensor, factor: Tensor, *, contrasts: bool) -> Tensor:
    """The jitter of each row.

    Args:
        x: (G, 3, H, W), uint8 or floats in 0..1.
        codes: int32 (G, 4), its ops in their order: brightness 0, contrast 1, saturation 2, hue 3, none 4.
        factor: float32 (G, 4), theirs.
        contrasts: True if any row may have a contrast.
    """
    last = x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    x = x if last else x.contiguous()
    out = torch.empty_like(x)
    rows, plane = len(x), x.shape[2] * x.shape[3]
    grid = (rows, triton.cdiv(plane, PIXELS))
    white, flags = bound(x), (x.dtype == torch.uint8, last, PIXELS)
    sums = torch.zeros(grid, dtype=torch.float64, device=x.device)
    with launching(x.device):
        if contrasts:
            _sums[grid](x, codes, factor, sums, plane, white, *flags, enable_fp_fusion=False)
        means = sums.sum(1).div_(plane).float()
        _apply[grid](x, out, codes, factor, means, plane, white, *flags, enable_fp_fusion=False)
    return out


def prove(device: torch.device) -> None:
    """Runs once."""
    x = torch.zeros((1, 3, 16, 16), dtype=torch.uint8, device=device)
    codes, factor = torch.zeros((1, 4), dtype=torch.int32, device=device), torch.zeros((1, 4), device=device)
    jitter(x.contiguous(memory_format=torch.channels_last), codes, factor, contrasts=True)
