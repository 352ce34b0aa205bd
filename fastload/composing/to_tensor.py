"""torchvision's `to_tensor` of Pillow images in one pass over their pixels, in worker processes. Its own code
makes three: to planes, to float, by 255.

Values are those of torch's division (`NOTE [ normalizing: torch's bits in one pass ]`); all other images,
other default types, modes that watch torch's operators, and every error, are left to torchvision's function.
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

_MODULE = "torchvision.transforms.functional"
_OWN = OwnCode((_MODULE, ("to_tensor", "_is_numpy", "_is_numpy_image")))
_BANDS = {"RGB": 3, "L": 1}


def exchange() -> None:
    """Exchanges torchvision's function in this process; its module is imported."""
    if not _OWN.replaced():
        originals.exchange(sys.modules[_MODULE], "to_tensor", _in_one_pass)


def _in_one_pass(own: Callable[..., Any]) -> Callable[..., Any]:
    kinds = _pillow_kinds()

    @functools.wraps(own)
    def to_tensor(pic: Any) -> object:
        mode = pic.mode if type(pic) in kinds and torch.get_default_dtype() is torch.float32 else None
        if mode not in _BANDS or is_watched() or _OWN.replaced():
            return own(pic)
        width, height = pic.size
        pixels = np.asarray(pic, np.uint8)
        shape = (height, width) if mode == "L" else (height, width, 3)
        if pixels.shape != shape or width * height < 2:  # whose strides are others
            return own(pic)
        planes = torch.empty((_BANDS[mode], height, width), dtype=torch.float32, device="cpu")
        core.resize_exact(
            pixels, None, (width, height), "nearest", dtype="float32", layout="CHW", into=planes.numpy()
        )
        return planes.view(height, width, 1).permute(2, 0, 1) if mode == "L" else planes

    return to_tensor


def _pillow_kinds() -> frozenset[type]:
    """Classes of images whose pixels are looked at here: Pillow's own, plain and lazy."""
    from PIL import Image

    from fastload.lazy.images import KINDS

    return KINDS | {Image.Image}
