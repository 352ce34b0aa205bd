"""Masks of a batch, moved by the steps that move the images' pixels. See NOTE [ objects: moved as
torchvision does ]."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fastload.augment import kernels
from fastload.augment.philox import Ints
from fastload.augment.steps import Step, run
from fastload.batch.containers import Flat, Padded, sequence_like
from fastload.errors import ArgumentError

LABEL_MOST = 1 << 24
"""Labels up to this one are exact in float32, in which a mask is resampled."""


def moved_masks(value: object, name: str, images: Tensor, steps: Sequence[Step], fill: int) -> Any:
    """Masks after the steps of these images, in the form that they came in.

    Args:
        value: (B, H, W) or (B, N, H, W), Padded (B, N, H, W), Flat (T, H, W), or a list of B tensors (N, H,
            W) or (H, W); of any real dtype. A sample may have no mask. The offsets of Flat are read on the
            host, which waits for them.
        name: name of the masks, for messages.
        images: images of the batch, (B, 3, H, W).
        steps: steps of the batch; steps that move no pixels are skipped.
        fill: the label for places from outside the image.

    Raises:
        ArgumentError: they are not of this batch, on another device, or of another size.
    """
    if isinstance(value, Padded):
        out = _moved(
            _checked(value.values, name, images, len(images)), np.arange(len(images)), images, steps, fill
        )
        return value._replace(values=out.masked_fill(~value.mask[:, :, None, None], 0) if fill else out)
    if isinstance(value, Flat):
        lengths = value.offsets.diff().tolist()
        if len(lengths) != len(images):
            raise ArgumentError(
                f"{name}: Flat with {len(lengths) + 1} offsets for {len(images)} images; give "
                f"{len(images) + 1}"
            )
        return Flat(
            torch.cat(moved_masks(list(torch.split(value.values, lengths)), name, images, steps, fill)),
            value.offsets,
        )
    if not isinstance(value, list | tuple):
        return _moved(_checked(value, name, images, len(images)), np.arange(len(images)), images, steps, fill)
    if len(value) != len(images):
        raise ArgumentError(f"{name}: a list of {len(value)} tensors for {len(images)} images")
    if not value:
        return value
    alone = [_checked(each, name, images, None) for each in value]
    single = [each.ndim == 2 for each in alone]
    stacked = torch.cat([each[None] if one else each for each, one in zip(alone, single, strict=True)])
    lengths = [1 if one else len(each) for each, one in zip(alone, single, strict=True)]
    out = _moved(stacked, np.repeat(np.arange(len(images)), lengths), images, steps, fill)
    parts = torch.split(out, lengths)
    return sequence_like(
        type(value), [each[0] if one else each for each, one in zip(parts, single, strict=True)]
    )


def _checked(value: object, name: str, images: Tensor, count: int | None) -> Tensor:
    """A plain tensor of masks, of `count` samples or of one. Raises ArgumentError."""
    if not isinstance(value, Tensor) or value.is_complex():
        raise ArgumentError(
            f"{name}: masks are a tensor, or a list of a tensor for each image, not {type(value).__name__}"
        )
    most = 4 if count is not None else 3
    size = tuple(images.shape[2:])
    if (
        not most - 1 <= value.ndim <= most
        or tuple(value.shape[-2:]) != size
        or (count is not None and len(value) != count)
    ):
        what = f"{count} images" if count is not None else "an image"
        raise ArgumentError(
            f"{name}: {tuple(value.shape)} for {what} of {size[0]}x{size[1]}; masks have the size of "
            "their image"
        )
    if value.device != images.device:
        raise ArgumentError(
            f"{name} is on {value.device}, and the images are on {images.device}: move it there"
        )
    return value.as_subclass(Tensor)


def _moved(masks: Tensor, sample: Ints, images: Tensor, steps: Sequence[Step], fill: int) -> Tensor:
    """Masks (T, H, W) or (T, N, H, W), each the sample's of that number."""
    own = [
        _of_masks(step, sample, fill) for step in steps if step.masks is not None or step.kernel in _KERNELS
    ]
    own = [step for step in own if len(step.rows)]
    height, width = next((step.size for step in reversed(steps) if step.size), tuple(images.shape[2:]))
    if not masks.numel():
        return masks.new_empty((*masks.shape[:-2], height, width))
    values = masks if masks.ndim == 4 else masks[:, None]
    if values.dtype == torch.uint16:  # few kernels of torch's know it
        values = values.to(torch.int32)
    out = run(values, own).to(masks.dtype)
    return (out if masks.ndim == 4 else out[:, 0]).contiguous()


def _of_masks(step: Step, sample: Ints, fill: int) -> Step:
    """A step that moves pixels, for masks."""
    place = np.full(int(sample[-1]) + 1 if len(sample) else 0, -1)
    known = step.rows[step.rows < len(place)]
    place[known] = np.arange(len(known))
    at = place[sample]
    rows = np.flatnonzero(at >= 0)
    arrays = {name: array[at[rows]] for name, array in step.arrays.items()}
    if step.masks is not None:
        return replace(
            step, kernel=step.masks, rows=rows, arrays=arrays, constants={**step.constants, "fill": fill}
        )
    fills = step.kernel is kernels.crop or (step.kernel is kernels.affine and fill != 0)
    shared = {"fill": np.full(1, fill, np.float32)} if fills else {}
    constants = {name: value for name, value in step.constants.items() if name != "mode"}
    return replace(
        step,
        kernel=_KERNELS[step.kernel],
        rows=rows,
        arrays=arrays,
        constants=constants,
        shared=shared,
        exact=None,
    )


_KERNELS: dict[Callable[..., Tensor], Callable[..., Tensor]] = {
    kernels.hflip: kernels.hflip,
    kernels.vflip: kernels.vflip,
    kernels.crop: kernels.crop,
    kernels.affine: kernels.affine_labels,
}
