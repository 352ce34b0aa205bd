"""Conversion of images that Pillow reads to 8-bit RGB. Deeper images are refused, and notices name what is lost.

Pillow itself converts silently: values over 255 of 16-bit grey become white, and 16-bit RGB loses its low bytes when the file is opened.
"""

from __future__ import annotations

import re
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastload.errors import SampleError
from fastload.packing.notices import ALPHA, COLOUR, FRAMES, ORIENTATION

if TYPE_CHECKING:
    from PIL.Image import Image

Pixels = npt.NDArray[np.uint8]
"""A decoded image: (height, width, 3) RGB or (height, width) grey."""

_RAW_MODE = re.compile(r"(?!BGR)[A-Za-z]+;(12|16|32|64)[A-Z]+|[IF];\d+")
"""Pillow's names for raw channels of more than 8 bits: "RGB;16B", "I;12"; but "RGB;16" and "BGR;16" have 16 bits a pixel."""
_EXIF_ORIENTATION = 0x0112


FORMATS = ("AVIF", "BMP", "GIF", "HEIF", "JPEG", "JPEG2000", "JXL", "PNG", "PPM", "TIFF", "WEBP")
"""Formats that Pillow may recognise by a file's bytes. All are decoded within the process. Of Pillow's others, EPS passes the file to
Ghostscript, which runs it as a program, and most have had no users, and no fuzzing, for decades."""


def open_image(file: IO[bytes]) -> Image:
    """Opens an image of one of `FORMATS`, without decoding its pixels. This is the only place where fastload lets Pillow open a file.

    Raises:
        PIL.UnidentifiedImageError: the file is no such image.
        Exception: whatever Pillow's plugins raise on a damaged file.
    """
    from PIL import Image

    Image.init()  # HEIF and JXL are available if the user registered them, AVIF if Pillow was built with it
    return Image.open(file, formats=[name for name in FORMATS if name in Image.OPEN])


class DeepImageError(SampleError):
    """An image of more than 8 bits a channel. It is readable, but fastload stores only 8 bits."""

    def __init__(self, bits: str) -> None:
        reason = f"{bits} a channel; fastload stores 8, and does not throw the rest away: convert it to 8 bits first"
        super().__init__(reason, reason=reason)

    def __reduce__(self) -> tuple[object, ...]:
        return SampleError, (self.args[0],)


def to_rgb(image: Image, data: bytes = b"", turn: bool = False, *, oriented: bool = True) -> tuple[Pixels, tuple[str, ...]]:
    """RGB pixels (height, width, 3) as Pillow's ``convert("RGB")`` makes them, and the kinds of notices on what they lack.

    Args:
        image: the image; of an animation, its first frame.
        data: the bytes of the file that it was opened from, if any: only these show the depth of some formats.
        turn: turn it upright by its EXIF orientation.
        oriented: add a notice for an orientation that was not applied.

    Raises:
        DeepImageError: it has more than 8 bits a channel.
    """
    refuse_deep(image, data)
    lost: list[str] = []
    if _is_animated(image):
        lost.append(FRAMES)
    if image.mode in ("CMYK", "YCbCr", "LAB", "HSV"):
        lost.append(COLOUR)
    image.load()  # this turns TIFFs upright and removes their orientation
    turned = orientation(image) != 1
    if turned and turn:
        from PIL import ImageOps

        image = ImageOps.exif_transpose(image)
    elif turned and oriented:
        lost.append(ORIENTATION)
    if image.mode == "P" and isinstance(image.info.get("transparency"), bytes):
        image = image.convert("RGBA")  # the same colours; convert("RGB") would warn, and the notice says it already
    if _is_transparent(image):
        lost.append(ALPHA)
    return np.array(image.convert("RGB")), tuple(lost)


def refuse_deep(image: Image, data: bytes = b"") -> None:
    """Raises DeepImageError for an image of more than 8 bits a channel, judged by its header alone."""
    if bits := _more_than_8_bits(image, data):
        raise DeepImageError(bits)


def _is_animated(image: Image) -> bool:
    try:
        return bool(getattr(image, "is_animated", False))
    except Exception:  # a damaged second frame, which is not packed anyway
        return True


def orientation(image: Image) -> int:
    """EXIF's orientation, 1 to 8; 1 if there is none, or none that can be read."""
    try:
        found = image.getexif().get(_EXIF_ORIENTATION, 1)
    except Exception:  # Pillow's parser raises many errors on a damaged block, which is no reason to refuse the pixels
        return 1
    return found if found in range(1, 9) else 1


def _is_transparent(image: Image) -> bool:
    """Whether any pixel is not opaque."""
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa"):
        lowest = image.getchannel(len(image.getbands()) - 1).getextrema()[0]
        return isinstance(lowest, int | float) and lowest < 255
    if "transparency" not in image.info:
        return False
    return bool((np.asarray(image.convert("RGBA"))[:, :, 3] < 255).any())


def _more_than_8_bits(image: Image, data: bytes) -> str:
    """The bits of an image's channels, in words; "" for 8 or fewer."""
    if image.mode.startswith(("I", "F")):
        return {"I": "16 or 32 bits", "F": "32 bits (floats)"}.get(image.mode, "16 bits")
    for codec, _, _, arguments in getattr(image, "tile", ()):
        values = arguments if isinstance(arguments, tuple) else (arguments,)
        if match := next((m for value in values if isinstance(value, str) and (m := _RAW_MODE.fullmatch(value))), None):
            return f"{match[1] or 16} bits"
        if codec.startswith("ppm") and len(values) > 1 and _number(values[1]) > 255:
            return f"{_number(values[1]).bit_length()} bits"
    bits = _BITS[image.format](data) if image.format in _BITS else 8
    return f"{bits} bits" if bits > 8 else ""


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _avif_bits(data: bytes) -> int:
    """Bits a channel, by the AV1 configuration (AV1 in ISOBMFF, 2.3.3): the flags high_bitdepth and twelve_bit of its third byte."""
    at = data.find(b"av1C")
    flags = data[at + 6] if 0 <= at < len(data) - 6 else 0
    return (12 if flags & 0x20 else 10) if flags & 0x40 else 8


def _heif_bits(data: bytes) -> int:
    """Bits a channel, by the HEVC configuration (ISO/IEC 14496-15, 8.3.3.1), bit_depth_luma_minus8, or the AV1 one."""
    at = data.find(b"hvcC")
    return 8 + (data[at + 21] & 7) if 0 <= at < len(data) - 21 else _avif_bits(data)


def _jpeg2000_bits(data: bytes) -> int:
    """Bits a channel, by the codestream's SIZ segment (ISO/IEC 15444-1, A.5.1): the largest depth of its components."""
    at = data.find(b"\xff\x4f\xff\x51")
    if not 0 <= at < len(data) - 42:
        return 8
    count = int.from_bytes(data[at + 40 : at + 42], "big")
    return max(((depth & 0x7F) + 1 for depth in data[at + 42 : at + 42 + 3 * count : 3]), default=8)


_BITS = {"AVIF": _avif_bits, "HEIF": _heif_bits, "JPEG2000": _jpeg2000_bits}
