"""An image's file as Pillow and as the engine's decoders make pixels of it."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
from PIL import Image

from fastload._native import core
from fastload.errors import SampleError


def by_pillow(data: bytes) -> Any:
    """Pillow's RGB pixels; None if that raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
        except Exception:
            return None


def by_engine(name: str, data: bytes, box: tuple[int, ...] | None = None) -> Any:
    """The pixels of a box by the decoder of this name; None if it refuses the file."""
    try:
        return core.stored_decode(core.IMAGE_KINDS[name], data, box)
    except SampleError:
        return None
