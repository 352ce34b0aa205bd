"""Agreement: does the own decoder make the pixels of the installed Pillow? Asked once in a process, on small JPEGs made here."""

from __future__ import annotations

import io
from functools import cache

import numpy as np
from PIL import Image, JpegImagePlugin

from fastload.lazy.compressed import CompressedImage, Region
from fastload.lazy.pixels import to_array

_SIZE = (37, 29)
"""Neither side is whole blocks."""


@cache
def decoder_agrees() -> bool:
    """Returns True if Pillow's libjpeg and the own decoder make equal pixels of files of several samplings, colour and grey."""
    noise = np.random.Generator(np.random.PCG64(1)).integers(0, 256, (_SIZE[1], _SIZE[0], 3), dtype=np.uint8)
    return all(_agrees(noise, mode, sampling) for mode, sampling in (("RGB", 2), ("RGB", 1), ("RGB", 0), ("L", 0)))


def _agrees(noise: np.ndarray[tuple[int, ...], np.dtype[np.uint8]], mode: str, sampling: int) -> bool:
    file = io.BytesIO()
    Image.fromarray(noise).convert(mode).save(file, "JPEG", quality=90, subsampling=sampling)
    image = JpegImagePlugin.JpegImageFile(io.BytesIO(file.getvalue()))
    image.load()
    if CompressedImage.known(file.getvalue(), mode) is None:
        return False
    ours = CompressedImage(file.getvalue(), _SIZE, mode).pixels(Region(0, 0, *_SIZE))
    return bool(np.array_equal(ours, to_array(image.im)))
