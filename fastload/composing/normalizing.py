"""Normalizing: torchvision's `normalize` of float images in one pass over them, in worker processes. Its own
code makes three.

NOTE [ normalizing: torch's bits in one pass ]
torchvision copies the tensor, and subtracts the mean and divides by the standard deviation in place. Where
these three are elementwise operations on float32 of the CPU, one pass that rounds after each gives the same
bits. Everything else, and every error, is left to torchvision's function: other types and subclasses, other
layouts, tensors that need a gradient, numbers that round to zero, modes that watch torch's operators. The
function is exchanged only where it is still torchvision's own, and what a program puts into its place, or
into one of those that it calls, runs.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fastload._native import core
from fastload.common import originals
from fastload.common.originals import OwnCode
from fastload.common.torch_modes import is_watched

MOST_CHANNELS = 4
"""Channels that the native pass has room for."""
_MODULE = "torchvision.transforms._functional_tensor"
_OWN = OwnCode((_MODULE, ("normalize", "_assert_image_tensor", "is_tensor_a_torch_image")))


def exchange() -> None:
    """Exchanges torchvision's function in this process; its module is imported."""
    if not _OWN.replaced():
        originals.exchange(sys.modules[_MODULE], "normalize", _in_one_pass)


def _in_one_pass(own: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(own)
    def normalize(tensor: Any, mean: Any, std: Any, inplace: bool = False) -> object:
        if (
            inplace
            or not _is_plain(tensor)
            or _OWN.replaced()
            or (numbers := rounded(mean, std, tensor.shape[0])) is None
        ):
            return own(tensor, mean, std, inplace)
        interleaved = not tensor.is_contiguous()
        if interleaved and not tensor.permute(1, 2, 0).is_contiguous():
            return own(tensor, mean, std, inplace)
        made = torch.empty_like(tensor)
        image, out = (each.permute(1, 2, 0) if interleaved else each for each in (tensor, made))
        core.normalize(image.numpy(), out.numpy(), *numbers, interleaved)
        return made

    return normalize


def _is_plain(tensor: object) -> bool:
    """Returns True for a float32 image of the CPU with nothing around it."""
    return (
        type(tensor) is torch.Tensor
        and tensor.dtype is torch.float32
        and tensor.ndim == 3
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and not tensor.requires_grad
        and not tensor.is_neg()
        and not is_watched()
    )


def rounded(mean: Any, std: Any, channels: int) -> tuple[list[float], list[float]] | None:
    """The numbers as float32 has them, one for each channel; None where torchvision's code is to decide."""
    mean, std = _listed(mean), _listed(std)
    if not (
        type(mean) in (list, tuple)
        and type(std) in (list, tuple)
        and len(mean) == len(std) == channels <= MOST_CHANNELS
    ):
        return None
    if not all(type(each) is float for numbers in (mean, std) for each in numbers):
        return None
    return _rounded(tuple(mean), tuple(std))


def _listed(numbers: Any) -> Any:
    """The floats of a plain tensor, as timm gives them; any other value as it is."""
    if type(numbers) is not torch.Tensor or numbers.dtype is not torch.float32 or numbers.ndim != 1:
        return numbers
    return numbers if numbers.device.type != "cpu" or numbers.requires_grad else numbers.tolist()


@functools.lru_cache(maxsize=32)
def _rounded(mean: tuple[float, ...], std: tuple[float, ...]) -> tuple[list[float], list[float]] | None:
    with np.errstate(over="ignore"):
        rounded = [[float(np.float32(each)) for each in numbers] for numbers in (mean, std)]
    return None if 0.0 in rounded[1] else (rounded[0], rounded[1])
