"""Agreement of the own decoder with the installed Pillow's: Pillow may have been built with another
libjpeg."""

from __future__ import annotations

import numpy as np

from fastload.lazy.compressed import CompressedImage, Region
from fastload.lazy.pillow_code import Probe
from fastload.lazy.pixels import decoded_by_pillow, to_array
from fastload.lazy.probes import PROBES, SIZE


@Probe
def decoder_agrees() -> bool:
    """Returns True if Pillow's libjpeg and the own decoder make equal pixels of files of several
    samplings, colour and grey."""
    return all(_agrees(mode, data) for mode, data in PROBES)


def _agrees(mode: str, data: bytes) -> bool:
    if CompressedImage.known(data, mode) is None:
        return False
    ours = CompressedImage(data, SIZE, mode).pixels(Region(0, 0, *SIZE))
    return bool(np.array_equal(ours, to_array(decoded_by_pillow(data, SIZE, mode))))
