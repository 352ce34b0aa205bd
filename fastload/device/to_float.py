"""Conversion of a batch's bytes to floats on its device: cast, normalisation and memory format in one pass.

NOTE [ floats: the same bits everywhere ]
value = (byte / 255 - mean) / std. Each operation is rounded to float32, and the result is rounded once to the
dtype. These are the bits that the native pass writes, and that torchvision's ToTensor and Normalize give. The
divisions are true divisions: for a Python number as divisor, CUDA would multiply by its reciprocal, so the
divisors here are tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from fastload.batch.containers import PatchedImages
from fastload.device.gpu import working
from fastload.errors import ArgumentError

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
FORMATS = (torch.channels_last, torch.contiguous_format)
MOST = {torch.uint8: 255.0, torch.uint16: 65535.0}
"""The value that becomes 1, by the dtype of images that are no floats."""


@dataclass(frozen=True)
class Floats:
    """A conversion of images to floats, as a callable with the arguments of to_float."""

    dtype: torch.dtype = torch.float32
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    memory_format: torch.memory_format = torch.contiguous_format
    reciprocal: bool = False

    def __call__(self, images: Tensor) -> Tensor:
        return to_float(
            images, self.dtype, self.mean, self.std, self.memory_format, reciprocal=self.reciprocal
        )


def to_float(
    images: Tensor,
    dtype: torch.dtype = torch.float32,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    memory_format: torch.memory_format = torch.contiguous_format,
    *,
    reciprocal: bool = False,
) -> Tensor:
    """Computes (images / 255 - mean) / std without waiting for the device. The result shares the input's
    memory only if nothing changes.

    Args:
        images: (B, C, H, W) of 1, 3 or 4 channels, on any device: uint8, uint16, which are divided by 65535
            instead, or floats, which are taken as divided already.
        dtype: float32, float16 or bfloat16.
        mean, std: three values, one a channel, in units of 0..1; equal ones for images of other than three
            channels. None: only divided.
        memory_format: memory format of the result: torch.channels_last or torch.contiguous_format.
        reciprocal: multiply by the rounded 1/255 in place of dividing (torchvision's ToDtype).

    Raises:
        ArgumentError: another shape, dtype or format; mean without std; three different values for other than
            three channels.
    """
    if (
        images.ndim != 4
        or images.shape[1] not in (1, 3, 4)
        or not (images.dtype in MOST or images.is_floating_point())
    ):
        raise ArgumentError(
            "to_float takes uint8, uint16 or float images (B, C, H, W) of 1, 3 or 4 channels, not "
            f"{images.dtype} of {tuple(images.shape)}"
        )
    if dtype not in DTYPES or memory_format not in FORMATS:
        raise ArgumentError(
            f"to_float: dtype={dtype}, memory_format={memory_format}: use float32, float16 or "
            "bfloat16; channels_last or not"
        )
    if (mean is None) != (std is None) or any(
        values is not None and len(values) != 3 for values in (mean, std)
    ):
        raise ArgumentError(f"to_float: mean={mean}, std={std}: give three values of each, or neither")
    channels = images.shape[1]
    if channels != 3 and any(len(set(values or ())) > 1 for values in (mean, std)):
        raise ArgumentError(
            f"to_float: mean={mean}, std={std}, and images of {channels} channels: give one value "
            "for all channels"
        )
    if (
        images.is_cuda
        and images.dtype == torch.uint8
        and channels == 3
        and _is_dense(images)
        and images.numel()
    ):
        kernel = working(_kernel, images.device)
        if kernel is not None:
            out: Tensor = kernel.to_float(images, dtype, mean, std, memory_format, reciprocal)
            return out
    return eager(images, dtype, mean, std, memory_format, reciprocal)


def eager(
    images: Tensor,
    dtype: torch.dtype,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
    memory_format: torch.memory_format,
    reciprocal: bool = False,
) -> Tensor:
    """to_float in torch's own ops: what the kernel is tested against, and what runs everywhere else."""
    out = images.to(torch.float32)
    most, channels = MOST.get(images.dtype), images.shape[1]
    constants = _constants(most or 1.0, mean, std, images.device)
    if most:
        out = out.mul_(1 / most) if reciprocal else out.div_(constants[0])
    if mean is not None:
        change = out.sub_ if out is not images else out.sub
        means, stds = (values if channels == 3 else values[:1] for values in (constants[1:4], constants[4:7]))
        out = change(means.view(-1, 1, 1)).div_(stds.view(-1, 1, 1))
    return out.to(dtype, memory_format=memory_format)


@dataclass(frozen=True)
class TensorForm:
    """The dtype and memory format that images made in Python are converted to; None keeps the images' own.
    Called with a batch."""

    dtype: torch.dtype | None
    memory_format: torch.memory_format | None

    def __str__(self) -> str:
        return ", ".join(
            str(each).removeprefix("torch.") for each in (self.dtype, self.memory_format) if each is not None
        )

    def __call__(self, images: object) -> Any:
        """Converts the images, or their patches, which have no memory format; bytes become floats as value /
        255, as in the native pass.

        Raises:
            ArgumentError: they are no batch of image tensors, or floats where bytes are asked for.
        """
        if isinstance(images, PatchedImages):
            return images.changed(replace(self, memory_format=None))
        if isinstance(images, Tensor) and images.ndim == 5:  # of samples with any number of images
            return self(images.flatten(0, 1)).unflatten(0, images.shape[:2])
        if (
            not isinstance(images, Tensor)
            or images.ndim != 4
            or not (images.dtype in MOST or images.is_floating_point())
        ):
            told = (
                f"batches of {images.dtype} {tuple(images.shape)}"
                if isinstance(images, Tensor)
                else type(images).__name__
            )
            raise ArgumentError(
                "dtype= and memory_format= act on uint8, uint16 or float tensors (channels, height, "
                "width), and the transform's Python "
                f"steps leave {told}: end them with PILToTensor() or ToTensor(), or drop the argument"
            )
        dtype = images.dtype if self.dtype is None else self.dtype
        if dtype == torch.uint8 and images.dtype == torch.uint16:
            # Its own, as in the native pass.
            return images.contiguous(memory_format=self.memory_format or torch.contiguous_format)
        if dtype == torch.uint8 and images.dtype != torch.uint8:
            raise ArgumentError("dtype=uint8, and the transform's Python steps make floats: drop one of them")
        memory_format = self.memory_format or torch.contiguous_format
        if dtype == images.dtype:
            return images.contiguous(memory_format=memory_format)
        convert = to_float if images.shape[1] in (1, 3, 4) else eager
        return convert(images, dtype, None, None, memory_format)

    def one(self, image: object) -> Any:
        """Converts one image, or the images of a sample that has any number of them."""
        if isinstance(image, PatchedImages) or (isinstance(image, Tensor) and image.ndim == 4):
            return self(image)
        return self(image.unsqueeze(0) if isinstance(image, Tensor) else image)[0]


def _constants(
    most: float, mean: Sequence[float] | None, std: Sequence[float] | None, device: torch.device
) -> Tensor:
    host = torch.tensor([most, *(mean or ()), *(std or ())], dtype=torch.float32, device="cpu")
    return host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host.to(device)


def _is_dense(images: Tensor) -> bool:
    return images.is_contiguous() or images.is_contiguous(memory_format=torch.channels_last)


def _kernel() -> ModuleType:
    from fastload.device import to_float_kernel as float_kernel

    return float_kernel
