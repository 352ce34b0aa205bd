"""Pixels of files for image fields of another form than 8-bit RGB: grey, RGBA and 16 bits, read by Pillow without loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.errors import SampleError
from fastload.packing.npy import NPY_MAGIC, read_npy
from fastload.packing.pixels import opened_image
from fastload.store import Field

_GREY = ("1", "L", "I", "I;16", "I;16B", "I;16L")
_CHANNELS = {"RGB": 3, "RGBA": 4}


def read_pixels(data: bytes, field: Field, max_pixels: int) -> npt.NDArray[Any]:
    """The pixels in a file, in the form that it has them: (height, width), or (height, width, channels); of a .npy file, its array.

    Raises:
        MissingLibrary: Pillow is not installed.
        SampleError: the file has pixels of another form than the field, or cannot be decoded; the message is the reason alone.
    """
    if data.startswith(NPY_MAGIC):
        try:
            return read_npy(data)
        except ValueError as error:
            raise _refused(f"its {field.name!r} is no .npy file: {error}") from None
    with opened_image(data) as image:
        if image.width * image.height > max_pixels:
            raise _refused(f"{image.width} x {image.height} pixels are more than the limit of {max_pixels} (FASTLOAD_MAX_PIXELS)")
        grey = field.channels == 1 and image.mode in _GREY
        if not grey and (_CHANNELS.get(image.mode) != field.channels or field.dtype != "uint8"):
            raise _refused(f"its {field.name!r} has pixels of mode {image.mode}, which are not those of {field}")
        return np.array(image)


def _refused(reason: str) -> SampleError:
    return SampleError(reason, reason=reason)
