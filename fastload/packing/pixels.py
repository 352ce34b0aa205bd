"""Pixel operations of packing, and its uses of two libraries: PyTurboJPEG encodes JPEGs, Pillow reads other formats."""

from __future__ import annotations

import functools
import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.errors import FastloadError, PackError, SampleError
from fastload.packing.options import JPEG_SIDE_MOST
from fastload.packing.pillow_images import FORMATS, Pixels, open_image, orientation, refuse_deep, to_rgb

if TYPE_CHECKING:
    from PIL.Image import Image

P = TypeVar("P", bound=np.generic)

_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_MARKS = (b"eXIf", b"Raw profile type", b"XML:com.adobe.xmp")
"""Where Pillow looks for an orientation in a PNG."""


class MissingLibrary(PackError):
    """A library that an image needs is not installed. The sample is not at fault, so on_error does not skip it."""


def upright(pixels: npt.NDArray[P], turn: int) -> npt.NDArray[P]:
    """Turns stored pixels, or labels, upright by EXIF's orientation, 1 to 8 (EXIF 2.3, 4.6.4)."""
    if turn >= 5:
        pixels = pixels.swapaxes(0, 1)
    rows = -1 if turn in (3, 4, 7, 8) else 1
    columns = -1 if turn in (2, 3, 6, 7) else 1
    return np.ascontiguousarray(pixels[::rows, ::columns])


def orientation_of(data: bytes) -> int:
    """EXIF's orientation, 1 to 8, of an image's file, as far as decoding it does not apply it; 1 if there is none that can be read.

    Raises:
        MissingLibrary, SampleError: as for `read_other`.
    """
    if data[:2] == b"\xff\xd8":
        found: int = core.jpeg_scan(data)["orientation"]
        return found if found in range(1, 9) else 1
    if data[:8] == _PNG and not any(mark in data for mark in _PNG_MARKS):
        return 1  # without the pixels being decoded, which Pillow does to find what follows them
    with opened_image(data) as image:
        return 1 if image.format == "TIFF" else orientation(image)


def shrunk_size(width: int, height: int, max_side: int | None, min_side: int | None) -> tuple[int, int] | None:
    """(width, height) at which the longer side is at most max_side and the shorter at most min_side, of the same aspect
    ratio, rounded to whole pixels and at least 1; None when the image is no larger than that already."""
    scale = 1.0
    if max_side is not None:
        scale = min(scale, max_side / max(width, height))
    if min_side is not None:
        scale = min(scale, min_side / min(width, height))
    if scale >= 1.0:
        return None
    return max(1, round(width * scale)), max(1, round(height * scale))


def resample(pixels: Pixels, size: tuple[int, int], box: tuple[float, float, float, float] | None = None) -> Pixels:
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
        reason = f"{pixels.shape[1]} x {pixels.shape[0]} pixels: no side of a JPEG is longer than {JPEG_SIDE_MOST}"
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
        raise MissingLibrary("encoding a JPEG needs PyTurboJPEG: pip install 'PyTurboJPEG>=1.8,<2'") from error
    except (RuntimeError, OSError) as error:
        raise MissingLibrary(
            "encoding a JPEG needs the TurboJPEG library: install libturbojpeg0 (Debian), libturbojpeg (Ubuntu), "
            "jpeg-turbo (Homebrew) or libjpeg-turbo (conda)"
        ) from error


def read_other(data: bytes, max_pixels: int, turn: bool) -> tuple[Pixels, tuple[str, ...], str]:
    """RGB pixels (height, width, 3) of any image that Pillow reads, turned upright on request; what they lack; the format's name.

    Palettes, transparency and grey become RGB as Pillow's ``convert("RGB")`` makes them: what torchvision's
    ImageFolder would have trained on. Of an animation, the first frame is read. What they lack is given as kinds of notices.

    Raises:
        MissingLibrary: Pillow is not installed.
        DeepImageError: it has more than 8 bits a channel.
        SampleError: it is no image that Pillow reads, or it has more than max_pixels pixels.
    """
    with opened_image(data) as image:
        width, height = image.size
        if width * height > max_pixels:
            reason = f"{width} x {height} pixels are more than the limit of {max_pixels} (FASTLOAD_MAX_PIXELS)"
            raise SampleError(reason, reason=reason)
        return *to_rgb(image, data, turn), (image.format or "other").lower()


def check_depth(data: bytes) -> None:
    """Checks the depth in the header of an image that is no JPEG.

    Raises:
        DeepImageError: it has more than 8 bits a channel.
        SampleError, MissingLibrary: as for `read_other`.
    """
    if data[:2] != b"\xff\xd8":
        with opened_image(data) as image:
            refuse_deep(image, data)


@contextmanager
def opened_image(data: bytes) -> Iterator[Image]:
    """Opens an image with Pillow, without decoding its pixels. Whatever Pillow raises becomes a SampleError."""
    try:
        from PIL.Image import DecompressionBombError
    except ImportError as error:
        raise MissingLibrary("this source has images that are not JPEG, which need Pillow: pip install pillow") from error
    if not data:
        raise SampleError("the file is empty", reason="the file is empty")
    try:
        with open_image(io.BytesIO(data)) as image:
            yield image
    except (FastloadError, MemoryError):
        raise
    except DecompressionBombError as error:
        reason = f"{error}: this limit is Pillow's, PIL.Image.MAX_IMAGE_PIXELS"
        raise SampleError(reason, reason=reason) from error
    except Exception as error:  # Pillow's plugins raise many kinds of errors: ValueError, struct.error, SyntaxError, ...
        text = str(error).split("<_io.BytesIO")[0].rstrip() or type(error).__name__
        reason = f"neither a JPEG nor another image that is read ({', '.join(FORMATS)}): {text}"
        raise SampleError(reason, reason=reason) from error
