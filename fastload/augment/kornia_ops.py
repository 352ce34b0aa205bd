"""fastload's ops that run in Kornia, and the one place that imports it, when the first of them is made.

Gaussian blur runs in Kornia's separable filter with one sigma a row: 5 times as fast as torchvision's
two-dimensional one at 23x23 on a CPU, and equal to 1e-6. The rest of `fastload.augment.kernels` does not: no
kernel of Kornia 0.9.0 gives the same pixels in the same time on a CPU (benchmarks/bench_augment.py has the
modules around them).

- Kornia takes floats only. Bytes are divided and multiplied again: flips, invert, solarize, posterize and
  equalize give the same bytes, in 1.2 to 130 times the time; brightness, contrast, saturation, sharpness and
  grayscale round where torchvision truncates, which makes one level in half of the pixels.
- hue goes through HSV in radians with six sectors gathered: three times the time of `kernels.hue`.
  Autocontrast is of other pixels.
- affine, rotation and shear build and invert 3x3 matrices on the device, and resample with a border rule of
  their own.
- the modules around them draw from torch's global generator, and once per batch what the policies choose per
  sample.

Kornia's own modules run in AugmentBatch with parameters per sample (`fastload.augment.by_params`), and any as
it is under `Seeded`.
"""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor

from fastload.augment import kernels
from fastload.common.distribution import pip_install
from fastload.errors import FastloadError


class MissingKornia(FastloadError, ImportError):
    """Kornia is not installed."""


def filters(user: str) -> ModuleType:
    """kornia.filters, imported when it is first needed. `user`: the op that needs it.

    Raises:
        MissingKornia: Kornia cannot be imported.
    """
    try:
        from kornia import filters as found
    except ImportError as error:
        raise MissingKornia(f"fastload.augment's {user} needs Kornia: {pip_install('augment')}") from error
    return found


def gaussian_blur(x: Tensor, sigma: Tensor, kernel: tuple[int, int]) -> Tensor:
    """Blurs each row by its sigma, in pixels; borders are reflected. kernel: (height, width), odd; uint8
    rounds."""
    kornia = filters("GaussianBlur")
    if kernels.on_cpu(x.device):
        values: Tensor = kornia.gaussian_blur2d(
            x.float(), kernel, sigma.view(-1, 1).expand(-1, 2), border_type="reflect"
        )
    else:  # the same without its check of sigma, which would read it back to the host
        down, across = (kornia.get_gaussian_kernel1d(size, sigma.view(-1, 1)) for size in kernel)
        values = kornia.filter2d_separable(x.float(), across, down, "reflect")
    return (values.round_() if x.dtype == torch.uint8 else values).to(x.dtype)
