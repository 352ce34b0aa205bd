"""open_image(): an image file, opened by Pillow as one of the formats that are safe to open."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("AVIF", "BMP", "GIF", "HEIF", "JPEG", "JPEG2000", "JXL", "PNG", "PPM", "TIFF", "WEBP")
"""Formats that Pillow may recognise by a file's bytes. All are decoded within the process. Of Pillow's
others, EPS passes the file to Ghostscript, which runs it as a program, and most have had no users, and no
fuzzing, for decades."""


def open_image(file: IO[bytes]) -> Image:
    """Opens an image of one of `FORMATS`, without decoding its pixels. This is the only place where fastload
    lets Pillow open a file.

    Raises:
        PIL.UnidentifiedImageError: the file is no such image.
        Exception: whatever Pillow's plugins raise on a damaged file.
    """
    from PIL import Image

    Image.init()  # HEIF and JXL are available if the user registered them, AVIF if Pillow was built with it
    return Image.open(file, formats=[name for name in FORMATS if name in Image.OPEN])
