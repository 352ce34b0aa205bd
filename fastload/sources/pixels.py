"""Pixels of images that are no JPEGs, read by Pillow.

Images of other forms than 8-bit RGB (grey, RGBA, 16 bits) are read without loss. Others are converted to
8-bit RGB: deeper images are refused, and notices name the losses. Pillow itself converts silently: values
over 255 of 16-bit grey become white, and 16-bit RGB loses its low bytes when the file is opened. The reader
of .npy files from tar files checks the header before it allocates memory, and reads no pickles and no .npz.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.common.distribution import pip_install
from fastload.common.images import FORMATS, open_image
from fastload.errors import FastloadError, PackError, SampleError
from fastload.sources.notices import ALPHA, COLOUR, FRAMES, ORIENTATION
from fastload.store import Field

if TYPE_CHECKING:
    from PIL.Image import Image

NPY_MAGIC = b"\x93NUMPY"
"""First bytes of a .npy file."""
_READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
"""Header readers by version. Version 3.0 exists for structured arrays alone, which no field can hold."""


def read_npy(data: bytes) -> npt.NDArray[Any]:
    """Reads the array in the bytes of a .npy file (NEP 1), read-only and not copied.

    Raises:
        ValueError: the bytes are no .npy file, hold objects, or are shorter than the header says.
    """
    if not data.startswith(NPY_MAGIC):
        raise ValueError("it does not begin as a .npy file does")
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)
        shape, fortran, dtype = _READERS[version](file)
    except (
        Exception
    ) as error:  # the header is a Python literal: TokenError, RecursionError, MemoryError, KeyError, ...
        raise ValueError(f"its header cannot be read ({type(error).__name__})") from error
    if dtype.hasobject or dtype.itemsize == 0:
        raise ValueError(f"arrays of {dtype} are not read")
    if any(isinstance(side, bool) or side < 0 for side in shape):
        raise ValueError(f"its shape is {shape}")
    count, rest = math.prod(shape), len(data) - file.tell()
    if count * dtype.itemsize > rest:
        raise ValueError(
            f"its header says {count * dtype.itemsize:,} bytes of values, and {rest:,} are there"
        )
    values: npt.NDArray[Any] = np.frombuffer(data, dtype, count, file.tell()) if count else np.empty(0, dtype)
    return values.reshape(shape, order="F" if fortran else "C")


Pixels = npt.NDArray[np.uint8]
"""A decoded image: (height, width, 3) RGB or (height, width) grey."""

_RAW_MODE = re.compile(r"(?!BGR)[A-Za-z]+;(12|16|32|64)[A-Z]+|[IF];\d+")
"""Pillow's names for raw channels of more than 8 bits: "RGB;16B", "I;12"; but "RGB;16" and "BGR;16" have
16 bits a pixel."""
_EXIF_ORIENTATION = 0x0112


class DeepImageError(SampleError):
    """An image of more than 8 bits a channel. It is readable, but fastload stores only 8 bits."""

    def __init__(self, bits: str) -> None:
        reason = (
            f"{bits} a channel; fastload stores 8, and does not throw the rest away: convert it to 8 "
            "bits first"
        )
        super().__init__(reason, reason=reason)

    def __reduce__(self) -> tuple[object, ...]:
        return SampleError, (self.args[0],)


def to_rgb(
    image: Image, data: bytes = b"", turn: bool = False, *, oriented: bool = True
) -> tuple[Pixels, tuple[str, ...]]:
    """RGB pixels (height, width, 3) as Pillow's ``convert("RGB")`` makes them, and the kinds of notices on
    what they lack.

    Args:
        image: the image; of an animation, its first frame.
        data: the bytes of the file that it was opened from, if any: only these show the depth of some
            formats.
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
        # The same colours; convert("RGB") would warn, and the notice says it already.
        image = image.convert("RGBA")
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
    except (
        Exception
    ):  # Pillow's parser raises many errors on a damaged block, which is no reason to refuse the pixels
        return 1
    return found if found in range(1, 9) else 1


def _is_transparent(image: Image) -> bool:
    """Returns True if any pixel is not opaque."""
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
        if match := next(
            (m for value in values if isinstance(value, str) and (m := _RAW_MODE.fullmatch(value))), None
        ):
            return f"{match[1] or 16} bits"
        if codec.startswith("ppm") and len(values) > 1 and _number(values[1]) > 255:
            return f"{_number(values[1]).bit_length()} bits"
    bits = _BITS[image.format](data) if image.format in _BITS else 8
    return f"{bits} bits" if bits > 8 else ""


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _avif_bits(data: bytes) -> int:
    """Bits a channel, by the AV1 configuration (AV1 in ISOBMFF, 2.3.3): the flags high_bitdepth and
    twelve_bit of its third byte."""
    at = data.find(b"av1C")
    flags = data[at + 6] if 0 <= at < len(data) - 6 else 0
    if not flags & 0x40:
        return 8
    return 12 if flags & 0x20 else 10


def _heif_bits(data: bytes) -> int:
    """Bits a channel, by the HEVC configuration (ISO/IEC 14496-15, 8.3.3.1), bit_depth_luma_minus8, or the
    AV1 one."""
    at = data.find(b"hvcC")
    return 8 + (data[at + 21] & 7) if 0 <= at < len(data) - 21 else _avif_bits(data)


def _jpeg2000_bits(data: bytes) -> int:
    """Bits a channel, by the codestream's SIZ segment (ISO/IEC 15444-1, A.5.1): the largest depth of its
    components."""
    at = data.find(b"\xff\x4f\xff\x51")
    if not 0 <= at < len(data) - 42:
        return 8
    count = int.from_bytes(data[at + 40 : at + 42], "big")
    return max(((depth & 0x7F) + 1 for depth in data[at + 42 : at + 42 + 3 * count : 3]), default=8)


_BITS = {"AVIF": _avif_bits, "HEIF": _heif_bits, "JPEG2000": _jpeg2000_bits}


P = TypeVar("P", bound=np.generic)

_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_MARKS = (b"eXIf", b"Raw profile type", b"XML:com.adobe.xmp")
"""Markers in a PNG after which Pillow looks for an orientation."""


class MissingLibrary(PackError):
    """A library that an image needs is not installed. The sample is not at fault, so on_error does not
    skip it."""


def upright(pixels: npt.NDArray[P], turn: int) -> npt.NDArray[P]:
    """Turns stored pixels, or labels, upright by EXIF's orientation, 1 to 8 (EXIF 2.3, 4.6.4)."""
    if turn >= 5:
        pixels = pixels.swapaxes(0, 1)
    rows = -1 if turn in (3, 4, 7, 8) else 1
    columns = -1 if turn in (2, 3, 6, 7) else 1
    return np.ascontiguousarray(pixels[::rows, ::columns])


def orientation_of(data: bytes) -> int:
    """EXIF's orientation, 1 to 8, of an image's file, as far as decoding it does not apply it; 1 if there is
    none that can be read.

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


_NO_IMAGE = f"neither a JPEG nor another image that is read ({', '.join(FORMATS)})"


def read_other(
    data: bytes, max_pixels: int, turn: bool, refused: str = _NO_IMAGE
) -> tuple[Pixels, tuple[str, ...], str]:
    """RGB pixels (height, width, 3) of any image that Pillow reads, turned upright on request; what they
    lack; the format's name.

    Palettes, transparency and grey become RGB as Pillow's ``convert("RGB")`` makes them: what torchvision's
    ImageFolder would have trained on. Of an animation, the first frame is read. What they lack is given as
    kinds of notices.

    Args:
        data: the file's bytes.
        max_pixels: most pixels.
        turn: turn the image upright by its EXIF orientation.
        refused: beginning of the reason, before Pillow's words, where Pillow raises an error.

    Raises:
        MissingLibrary: Pillow is not installed.
        DeepImageError: it has more than 8 bits a channel.
        SampleError: it is no image that Pillow reads, or it has more than max_pixels pixels.
    """
    with opened_image(data, refused) as image:
        width, height = image.size
        if width * height > max_pixels:
            reason = (
                f"{width} x {height} pixels are more than the limit of {max_pixels} (FASTLOAD_MAX_PIXELS)"
            )
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
def opened_image(data: bytes, refused: str = _NO_IMAGE) -> Iterator[Image]:
    """Opens an image with Pillow, without decoding its pixels. Whatever Pillow raises becomes a SampleError,
    whose reason begins with `refused`."""
    try:
        from PIL.Image import DecompressionBombError
    except ImportError as error:
        raise MissingLibrary(
            "this source has images that are not JPEG, or damaged JPEGs, which need Pillow: "
            f"{pip_install('pack')}"
        ) from error
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
    except (
        Exception
    ) as error:  # Pillow's plugins raise many kinds of errors: ValueError, struct.error, SyntaxError, ...
        text = str(error).split("<_io.BytesIO")[0].rstrip() or type(error).__name__
        reason = f"{refused}: {text}"
        raise SampleError(reason, reason=reason) from error


_GREY = ("1", "L", "I", "I;16", "I;16B", "I;16L")
_CHANNELS = {"RGB": 3, "RGBA": 4}


def read_pixels(data: bytes, field: Field, max_pixels: int) -> npt.NDArray[Any]:
    """The pixels in a file, in the form that it has them: (height, width), or (height, width, channels); of a
    .npy file, its array.

    Raises:
        MissingLibrary: Pillow is not installed.
        SampleError: the file has pixels of another form than the field, or cannot be decoded; the message is
            the reason alone.
    """
    if data.startswith(NPY_MAGIC):
        try:
            return read_npy(data)
        except ValueError as error:
            raise _refused(f"its {field.name!r} is no .npy file: {error}") from None
    with opened_image(data) as image:
        if image.width * image.height > max_pixels:
            raise _refused(
                f"{image.width} x {image.height} pixels are more than the limit of {max_pixels} "
                "(FASTLOAD_MAX_PIXELS)"
            )
        grey = field.channels == 1 and image.mode in _GREY
        if not grey and (_CHANNELS.get(image.mode) != field.channels or field.dtype != "uint8"):
            raise _refused(
                f"its {field.name!r} has pixels of mode {image.mode}, which are not those of {field}"
            )
        return np.array(image)


def _refused(reason: str) -> SampleError:
    return SampleError(reason, reason=reason)
