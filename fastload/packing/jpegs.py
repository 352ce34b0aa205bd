"""JPEGs that a pack encodes anew, by PyTurboJPEG, and the resampling before it."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from fastload._native import core
from fastload.errors import SampleError
from fastload.sources.pixels import MissingLibrary, Pixels

JPEG_SIDE_MOST = 65500
"""Limit on a JPEG's longer side, in pixels: it is libjpeg's, below the format's 65535."""


def shrunk_size(
    width: int, height: int, max_side: int | None, min_side: int | None
) -> tuple[int, int] | None:
    """(width, height) at which the longer side is at most max_side and the shorter at most min_side, of the
    same aspect ratio, rounded to whole pixels and at least 1; None when the image is no larger than that
    already."""
    scale = 1.0
    if max_side is not None:
        scale = min(scale, max_side / max(width, height))
    if min_side is not None:
        scale = min(scale, min_side / min(width, height))
    if scale >= 1.0:
        return None
    return max(1, round(width * scale)), max(1, round(height * scale))


def resample(
    pixels: Pixels, size: tuple[int, int], box: tuple[float, float, float, float] | None = None
) -> Pixels:
    """Resamples to `size` (width, height) by antialiased bicubic interpolation, as Pillow does."""
    resized: Pixels = core.resize(pixels, box, size, filter="bicubic")
    return resized


def encode_jpeg(pixels: Pixels, quality: int, subsampling: str) -> bytes:
    """Encodes RGB pixels (height, width, 3) as a baseline JPEG, by libjpeg-turbo.

    Raises:
        MissingLibrary: PyTurboJPEG or the libturbojpeg that it loads is not installed.
        SampleError: libjpeg-turbo refuses the image.
    """
    turbo, samplings = _turbojpeg()
    from turbojpeg import TJFLAG_ACCURATEDCT, TJPF_RGB

    if max(pixels.shape[:2]) > JPEG_SIDE_MOST:
        reason = (
            f"{pixels.shape[1]} x {pixels.shape[0]} pixels: no side of a JPEG is longer than {JPEG_SIDE_MOST}"
        )
        raise SampleError(reason, reason=reason)
    try:
        encoded = turbo.encode(
            np.ascontiguousarray(pixels),
            quality=quality,
            pixel_format=TJPF_RGB,
            jpeg_subsample=samplings[subsampling],
            flags=TJFLAG_ACCURATEDCT,
        )
    except (OSError, ValueError) as error:
        raise SampleError(f"cannot be encoded: {error}", reason=f"cannot be encoded: {error}") from error
    return bytes(encoded)


@functools.lru_cache(maxsize=1)
def _turbojpeg() -> tuple[Any, dict[str, int]]:
    try:
        import turbojpeg

        names = {"4:4:4": turbojpeg.TJSAMP_444, "4:2:2": turbojpeg.TJSAMP_422, "4:2:0": turbojpeg.TJSAMP_420}
        return turbojpeg.TurboJPEG(), {**names, "gray": turbojpeg.TJSAMP_GRAY}
    except ImportError as error:
        raise MissingLibrary(
            "encoding a JPEG needs PyTurboJPEG: pip install 'PyTurboJPEG>=1.8,<2'"
        ) from error
    except (RuntimeError, OSError) as error:
        raise MissingLibrary(
            "encoding a JPEG needs the TurboJPEG library: install libturbojpeg0 (Debian), "
            "libturbojpeg (Ubuntu), "
            "jpeg-turbo (Homebrew) or libjpeg-turbo (conda)"
        ) from error
