"""torchvision's `gaussian_blur` of lazy images as a step of their recipe, in worker processes. Its own code
makes a tensor of the image, floats of that, a convolution, and an image again.

NOTE [ blurring: torch's convolution in the order of its sums ]
torchvision convolves by torch's conv2d, which leaves one kernel on separate channels to oneDNN. Its kernels
for that sum by fused multiply-adds, weight by weight: the same sums in the same order have the same bits. The
weights are torchvision's own. A trial compares some images and kernels, once in a process, and torchvision's
function runs where they differ, and where torch is told to compute in another way: without oneDNN, in other
precisions, under autocast, watched by a mode. Everything else, and every error, is left to it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image

from fastload._native import core
from fastload.common import originals
from fastload.common.originals import OwnCode
from fastload.common.torch_modes import is_watched
from fastload.lazy import images
from fastload.lazy.core_image import LazyCore
from fastload.lazy.functions import aside
from fastload.lazy.pillow_code import Probe
from fastload.lazy.pixels import Array, Core, to_array, to_core
from fastload.lazy.resampling import noise
from fastload.lazy.steps import Kept, Size

_MODULE = "torchvision.transforms.functional"
_TENSORS = "torchvision.transforms._functional_tensor"
_OWN = OwnCode(
    (_MODULE, ("gaussian_blur", "pil_to_tensor", "to_pil_image")),
    (
        _TENSORS,
        (
            *("gaussian_blur", "_get_gaussian_kernel2d", "_get_gaussian_kernel1d", "_cast_squeeze_in"),
            *("_cast_squeeze_out", "_assert_image_tensor", "is_tensor_a_torch_image"),
        ),
    ),
)
_SIDE_MOST = 255
_SIGMA_MOST = 1e3
"""Larger kernels are torchvision's business."""
_TRIED = (((31, 37), 3, 0.4), ((31, 37), 9, 1.3), ((224, 160), 9, 0.7), ((40, 300), 23, 1.9))
"""(height, width), side and deviation of the kernel of the trials."""


def exchange() -> None:
    """Exchanges torchvision's function in this process; its module is imported."""
    if not _OWN.replaced():
        originals.exchange(sys.modules[_MODULE], "gaussian_blur", _as_a_step)


class _Convolve(NamedTuple):
    side: int
    weights: bytes


class Convolve(_Convolve, Kept):
    """A convolution with one square kernel, float32 weights row by row, of an image with three channels."""

    __slots__ = ()

    def fourth(self, value: int | None, size: Size) -> int | None:
        """As Step.fourth."""
        return 255

    def on_array(self, pixels: Array) -> Array:
        """As Step.on_array."""
        weights = np.frombuffer(self.weights, np.float32).reshape(self.side, self.side)
        return core.colour_convolve(pixels, weights)

    def on_core(self, core: Core) -> Core:
        """As Step.on_core."""
        return to_core(self.on_array(to_array(core)))


def _as_a_step(own: Callable[..., Any]) -> Callable[..., Any]:
    trial = Probe(lambda: all(_same(own, *each) for each in _TRIED))

    @functools.wraps(own)
    def gaussian_blur(img: Any, kernel_size: Any, sigma: Any = None) -> object:
        made = None
        if type(img) in images.KINDS and _is_usual() and not _OWN.replaced():
            step = _step(kernel_size, sigma, img.size)
            made = _stepped(images.core_of(img), step) if step is not None and trial() else None
        return own(img, kernel_size, sigma) if made is None else images.image_of(Image.Image(), made)

    return gaussian_blur


def _is_usual() -> bool:
    """Returns True if nothing has told torch to compute a convolution in another way."""
    return not (
        is_watched()
        or torch.is_autocast_enabled("cpu")
        or not torch.backends.mkldnn.enabled
        or torch.get_float32_matmul_precision() != "highest"
        or torch.get_default_dtype() is not torch.float32
        or sys.modules[_TENSORS].conv2d is not torch.conv2d
    )


def _step(kernel_size: Any, sigma: Any, size: tuple[int, int]) -> Convolve | None:
    """The step for arguments as GaussianBlur gives them; None for any other."""
    if type(kernel_size) not in (tuple, list) or type(sigma) is not list or len(sigma) != 2:
        return None
    if len(kernel_size) != 2 or type(kernel_size[0]) is not int or kernel_size[0] != kernel_size[1]:
        return None
    side = kernel_size[0]
    if not (side % 2 and 0 < side <= _SIDE_MOST and side // 2 < min(size)):
        return None
    if not all(type(each) is float and 0.0 < each < _SIGMA_MOST for each in sigma):
        return None
    weights = sys.modules[_TENSORS]._get_gaussian_kernel2d(
        list(kernel_size), sigma, dtype=torch.float32, device=torch.device("cpu")
    )
    return Convolve(side, weights.numpy().tobytes())


def _stepped(lazy: LazyCore | None, step: Convolve) -> LazyCore | None:
    recipe = None if lazy is None or lazy.mode != "RGB" else lazy.recipe()
    return LazyCore.of(None if recipe is None else recipe.then(step))


def _same(own: Callable[..., Any], shape: tuple[int, int], side: int, sigma: float) -> bool:
    pixels = noise(shape[1], shape[0], 3)
    step = _step((side, side), [sigma, sigma], (shape[1], shape[0]))
    with aside():
        wanted = own(Image.Image()._new(to_core(pixels)), [side, side], [sigma, sigma])
    return step is not None and np.array_equal(step.on_array(pixels), to_array(wanted.im))
