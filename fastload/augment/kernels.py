"""Pixels: kernels over rows of images (G, 3, H, W), one value of each parameter per row.

Values are 0..255 in uint8, or 0..1 in float16, bfloat16 and float32; a kernel returns the dtype it got,
computes in float32, and never writes to its input nor returns it. For uint8, intermediate values are rounded
or truncated where torchvision's v2 kernels do, which do as Pillow does. No kernel reads a device's value on
the host, and a row's result does not depend on the other rows.

Kornia has most of these too; `fastload.augment.kornia_ops` says which of its kernels run and why the others
do not.
"""

from __future__ import annotations

import torch
from torch import Tensor

_RED, _GREEN, _BLUE = 0.2989, 0.587, 0.114
"""torchvision's weights of luma (Pillow: 0.299): ITU-R BT.601."""


def on_cpu(device: torch.device) -> bool:
    """Returns True if a device has caches to mind and no queue. Such branches ask here, so that a test can
    send the CPU the other way."""
    return device.type == "cpu"


def bound(x: Tensor) -> float:
    """The value of white."""
    return 255.0 if x.dtype == torch.uint8 else 1.0


def back(y: Tensor, like: Tensor) -> Tensor:
    """float32 to the dtype of `like`; uint8 truncates."""
    return y if y.dtype == like.dtype else y.to(like.dtype)


def column(parameter: Tensor) -> Tensor:
    """(G,) as (G, 1, 1, 1)."""
    return parameter.view(-1, 1, 1, 1)


def luma(x: Tensor, whole: bool) -> Tensor:
    """(G, 3, H, W) float32 to (G, 1, H, W); `whole`: truncated to whole levels."""
    y = x[:, 0:1].mul(_RED).add_(x[:, 1:2], alpha=_GREEN).add_(x[:, 2:3], alpha=_BLUE)
    return y.floor_() if whole else y


def hflip(x: Tensor) -> Tensor:
    return x.flip(-1)


def vflip(x: Tensor) -> Tensor:
    return x.flip(-2)


def grayscale(x: Tensor) -> Tensor:
    """Luma in all three channels."""
    return torch.empty_like(x).copy_(luma(x.float(), x.dtype == torch.uint8))


def brightness(x: Tensor, factor: Tensor) -> Tensor:
    """factor 0 is black, 1 the image."""
    return back(x.float().mul(column(factor)).clamp_(0.0, bound(x)), x)


def saturation(x: Tensor, factor: Tensor) -> Tensor:
    """factor 0 is grey, 1 the image."""
    values, f = x.float(), column(factor)
    return back(
        torch.addcmul(luma(values, x.dtype == torch.uint8) * (1.0 - f), values, f).clamp_(0.0, bound(x)), x
    )


def mean_of(level: Tensor) -> Tensor:
    """Mean of each row, (B, 1, 1, 1). Summed in float64 and rounded once, so that the number of rows, or
    of threads, leaves no trace."""
    if level.device.type == "mps":  # has no float64
        return level.mean(dim=(1, 2, 3), keepdim=True)
    return level.mean(dim=(1, 2, 3), keepdim=True, dtype=torch.float64).float()


def contrast(x: Tensor, factor: Tensor) -> Tensor:
    """factor 0 is the image's mean luma, 1 the image."""
    values, f = x.float(), column(factor)
    mean = mean_of(luma(values, x.dtype == torch.uint8))
    return back(torch.addcmul(mean * (1.0 - f), values, f).clamp_(0.0, bound(x)), x)


def hue(x: Tensor, factor: Tensor) -> Tensor:
    """Turns the hue by factor (of the whole circle, -0.5..0.5) in HSV.

    The way back from HSV is f(n) = v - c * max(0, min(k, 4 - k, 1)), k = (n + 6h) mod 6, with n = 5, 3, 1 for
    R, G, B: the same values as by the usual six sectors, in a third of the passes over memory.
    """
    whole = x.dtype == torch.uint8
    values = x.float()
    top, low = values.amax(1, keepdim=True), values.amin(1, keepdim=True)
    chroma = top - low
    scale = chroma.clamp(min=1e-12).reciprocal_()
    r, g, b = values[:, 0:1], values[:, 1:2], values[:, 2:3]
    sector = torch.where(
        top == r, (g - b) * scale, torch.where(top == g, (b - r) * scale + 2.0, (r - g) * scale + 4.0)
    )
    sector.add_(column(factor), alpha=6.0)
    out = torch.empty_like(values)
    for channel, n in enumerate((5.0, 3.0, 1.0)):
        k = torch.remainder(sector + n, 6.0)
        torch.sub(
            top, torch.minimum(k, 4.0 - k).clamp_(0.0, 1.0).mul_(chroma), out=out[:, channel : channel + 1]
        )
    if whole:
        out.mul_((256.0 - 1e-3) / 255.0)  # torchvision's scaling of 0..1 to levels, which truncates
    return back(out.clamp_(0.0, bound(x)), x)


def invert(x: Tensor) -> Tensor:
    return x.bitwise_not() if x.dtype == torch.uint8 else 1.0 - x


def solarize(x: Tensor, threshold: Tensor) -> Tensor:
    """Inverts values of at least threshold, which is in the image's own units."""
    return torch.where(x >= column(threshold), invert(x), x)


def posterize(x: Tensor, bits: Tensor) -> Tensor:
    """Keeps the highest bits; 0 is black, 8 the image. bits: int64."""
    bits = column(bits)
    if x.dtype == torch.uint8:
        return x & (256 - torch.bitwise_left_shift(torch.ones_like(bits), 8 - bits)).to(torch.uint8)
    levels = torch.exp2(bits.float())
    return back(torch.minimum((x.float() * levels).floor_().clamp_(min=0.0), levels - 1.0) / levels, x)


def autocontrast(x: Tensor) -> Tensor:
    """Spreads each channel over the whole range; a channel of one value stays."""
    values, white = x.float(), bound(x)
    low, high = values.amin((2, 3), keepdim=True), values.amax((2, 3), keepdim=True)
    flat = low == high
    scale = torch.where(flat, torch.ones_like(low), (high - low) * (1.0 / white))
    return back((values - torch.where(flat, torch.zeros_like(low), low)).div_(scale).clamp_(0.0, white), x)


def equalize(x: Tensor) -> Tensor:
    """Equalises each channel's histogram by Pillow's rule, over 256 levels; a channel that cannot be spread
    stays.

    Counts are integers, so that the order in which a device adds them is of no consequence.
    """
    levels = x if x.dtype == torch.uint8 else (x.float() * (256.0 - 1e-3)).clamp_(0.0, 255.0).to(torch.uint8)
    flat = levels.flatten(2).long()
    counts = torch.zeros((*flat.shape[:2], 256), dtype=torch.int32, device=x.device)
    counts.scatter_add_(2, flat, counts.new_ones(1).expand_as(flat))
    below = counts.cumsum(2)
    last = counts.gather(2, below.argmax(2, keepdim=True))  # pixels of the highest level that occurs
    step = (flat.shape[2] - last).div_(255, rounding_mode="floor")
    table = (below - counts).add_(step // 2).div_(step.clamp(min=1), rounding_mode="floor").clamp_(0, 255)
    table = torch.where(step > 0, table, torch.arange(256, device=x.device))
    if x.dtype == torch.uint8:
        return table.to(torch.uint8).gather(2, flat).view(x.shape)
    return (table.float() / 255.0).to(x.dtype).gather(2, flat).view(x.shape)


def sharpness(x: Tensor, factor: Tensor) -> Tensor:
    """factor 0 is smoothed by a 3x3 kernel of ones about a 5, 1 the image; the outermost pixels stay."""
    if x.shape[2] <= 2 or x.shape[3] <= 2:
        return x.clone()
    values = x.float()
    inner = values[:, :, 1:-1, 1:-1]
    lines = values[:, :, :, :-2] + values[:, :, :, 1:-1]
    lines += values[:, :, :, 2:]
    smooth = lines[:, :, :-2] + lines[:, :, 1:-1]
    smooth += lines[:, :, 2:]
    smooth = smooth.add_(inner, alpha=4.0).mul_(1.0 / 13.0)
    if x.dtype == torch.uint8:
        smooth.round_()
    out = values.clone() if values is x else values
    smooth.sub_(inner).mul_(1.0 - column(factor)).add_(inner)
    out[:, :, 1:-1, 1:-1] = smooth.clamp_(0.0, bound(x))
    return back(out, x)


def erase(x: Tensor, box: Tensor, value: Tensor) -> Tensor:
    """Sets a box to value. box: int64 (G, 4) of top, left, bottom, right; value: float32 (3,), in the
    image's units."""
    top, left, bottom, right = (side.view(-1, 1) for side in box.unbind(1))
    down, across = (torch.arange(n, device=x.device)[None, :] for n in x.shape[2:])
    inside = ((down >= top) & (down < bottom))[:, :, None] & ((across >= left) & (across < right))[:, None, :]
    return torch.where(inside[:, None], value.to(x.dtype).view(1, 3, 1, 1), x)


def crop(
    x: Tensor, corner: Tensor, fill: Tensor, pads: tuple[int, int, int, int], size: tuple[int, int]
) -> Tensor:
    """Pads with a colour, then cuts one box a row.

    corner: int64 (G, 2), top and left in the padded image; fill: float32, of one channel or of each; pads:
    left, top, right, bottom.
    """
    left, top, right, bottom = pads
    rows, channels, height, width = x.shape
    if any(pads):
        padded = x.new_empty((rows, channels, height + top + bottom, width + left + right))
        padded.copy_(fill.to(x.dtype).view(1, -1, 1, 1).expand_as(padded))
        padded[:, :, top : top + height, left : left + width] = x
        x = padded
    # Gathering by index takes ten times as long there as copying windows, whose places are known.
    if on_cpu(x.device):
        out = x.new_empty((rows, channels, *size))
        for row, (y, across) in enumerate(corner.tolist()):
            out[row] = x[row, :, y : y + size[0], across : across + size[1]]
        return out
    down = corner[:, 0:1] + torch.arange(size[0], device=x.device)
    across = corner[:, 1:2] + torch.arange(size[1], device=x.device)
    which = torch.arange(rows, device=x.device)
    channel = torch.arange(channels, device=x.device)
    return x[
        which[:, None, None, None],
        channel[None, :, None, None],
        down[:, None, :, None],
        across[:, None, None, :],
    ]


def affine(x: Tensor, matrix: Tensor, fill: Tensor | None = None, *, mode: str) -> Tensor:
    """Resamples each row by its matrix: what torchvision's affine and rotate do with theirs.

    matrix: float32 (G, 2, 3), from a pixel of the result to a place in the image, both measured in pixels
    from the image's centre; fill: float32 (3,), what is outside, None for black; mode: "nearest" or
    "bilinear".
    """
    out = _resampled(x.float(), matrix, fill, mode)
    if fill is not None:
        out.clamp_(0.0, bound(x))
    return back(out.round_() if x.dtype == torch.uint8 else out, x)


def affine_labels(x: Tensor, matrix: Tensor, fill: Tensor | None = None) -> Tensor:
    """Resamples labels (G, N, H, W) by each row's matrix, as `affine`, by the nearest pixel; fill: float32
    (1,)."""
    out = _resampled(x.float(), matrix, fill, "nearest")
    return out.to(x.dtype) if x.dtype.is_floating_point else out.round_().to(x.dtype)


def _resampled(values: Tensor, matrix: Tensor, fill: Tensor | None, mode: str) -> Tensor:
    rows, _, height, width = values.shape
    grid = torch.empty((rows, height, width, 2), dtype=torch.float32, device=values.device)
    across = (
        torch.arange(width, dtype=torch.float32, device=values.device).add_(0.5 - 0.5 * width).view(1, 1, -1)
    )
    down = (
        torch.arange(height, dtype=torch.float32, device=values.device)
        .add_(0.5 - 0.5 * height)
        .view(1, -1, 1)
    )
    for axis, half in ((0, 0.5 * width), (1, 0.5 * height)):
        m = matrix[:, axis] / half
        torch.add(
            m[:, 0, None, None] * across,
            m[:, 1, None, None] * down + m[:, 2, None, None],
            out=grid[..., axis],
        )
    if fill is None:
        return torch.nn.functional.grid_sample(
            values, grid, mode=mode, padding_mode="zeros", align_corners=False
        )
    # Outside is 0 to grid_sample: sampling what is above the fill, and adding it again, fills without a mask.
    fill = fill.view(1, -1, 1, 1)
    return torch.nn.functional.grid_sample(
        values - fill, grid, mode=mode, padding_mode="zeros", align_corners=False
    ).add_(fill)


CHEAP: frozenset[object] = frozenset({hflip, vflip, invert, posterize})
"""Kernels that are one pass over bytes: to cut up their work costs more than it saves."""
