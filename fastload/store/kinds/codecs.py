"""Image codecs: how an image is stored in a record, one class a codec. CODECS has each by its name,
BY_ENTRY by its entry's kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.errors import PackError
from fastload.store.kinds.base import Data, Size, refuse, wrong

if TYPE_CHECKING:
    from fastload.store.field import Field

_RAW_HEADER = 12

Pixels = npt.NDArray[Any]


class ImageCodec:
    """One way to store an image.

    1. Instances hold no state, and any thread may call them.
    2. `encoded` checks an image that is packed. All others get stored bytes, which may be damaged or hostile,
       and check each length.
    3. `opened` comes first of these: it gives the bytes that lie elsewhere, and the codec that the others are
       asked of.
    4. What does not hold is a SampleError with the reason alone.

    Attributes:
        name: the codec's, in a StoredImage.
        entry: record kind of its entry, a `core.KIND_...`.
        can_be_indexed: the image may have an entropy index.
        is_file: the bytes are a picture's file as a source has it, which can be attached.
        ending: the ending of the name of a picture's file that `file` returns.
        is_first: the entry comes first in a record, where who reads ahead looks for it.
    """

    name = ""
    entry = -1
    can_be_indexed = False
    is_file = False
    ending = ""
    is_first = False

    def encoded(self, field: Field, value: object, height: int, width: int) -> Data | tuple[Data, ...]:
        """The bytes of an image of 8-bit RGB, or parts of them. Raises PackError."""
        raise NotImplementedError(self.name)

    def opened(self, data: bytes, read: Callable[[bytes], bytes]) -> tuple[int, bytes]:
        """(entry's kind, bytes) of the image itself; `read` reads the place of an attached one."""
        return self.entry, data

    def decoded(self, data: bytes, max_pixels: int) -> Pixels:
        """The pixels, uint8 (height, width, 3)."""
        raise NotImplementedError(self.name)

    def verified(self, data: bytes, max_pixels: int, decode: bool) -> tuple[Size, int]:
        """The size, and the number of warnings of a decoder; with `decode` the whole image is decoded."""
        raise NotImplementedError(self.name)

    def file(self, data: bytes) -> bytes | Pixels:
        """The file of the picture, or the pixels that one is to be made of."""
        raise NotImplementedError(self.name)


class JpegCodec(ImageCodec):
    """JPEG files."""

    name = "jpeg"
    entry = core.KIND_JPEG
    can_be_indexed = True
    is_file = True
    ending = "jpg"

    def encoded(self, field: Field, value: object, height: int, width: int) -> Data:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise refuse(field, value, "a JPEG is bytes")
        return value

    def decoded(self, data: bytes, max_pixels: int) -> Pixels:
        return core.jpeg_decode(data, None, 8, max_pixels)

    def verified(self, data: bytes, max_pixels: int, decode: bool) -> tuple[Size, int]:
        header = core.jpeg_header(data, max_pixels)
        warnings = core.jpeg_decode_report(data, None, 8, max_pixels)[1] if decode else 0
        return (header.height, header.width), warnings

    def file(self, data: bytes) -> bytes | Pixels:
        return data


class FileCodec(ImageCodec):
    """Image files of one format, decoded as the row of the engine's table of decoders for their kind does."""

    is_file = True

    def encoded(self, field: Field, value: object, height: int, width: int) -> Data:
        if not isinstance(value, bytes | bytearray | memoryview) or core.stored_kind(value) != self.entry:
            raise refuse(field, value, f"it is no {self.name.upper()} file")
        return value

    def decoded(self, data: bytes, max_pixels: int) -> Pixels:
        return core.stored_decode(self.entry, data, None, max_pixels)

    def verified(self, data: bytes, max_pixels: int, decode: bool) -> tuple[Size, int]:
        height, width = (
            self.decoded(data, max_pixels).shape[:2]
            if decode
            else core.stored_size(self.entry, data, max_pixels)
        )
        return (height, width), 0

    def file(self, data: bytes) -> bytes | Pixels:
        return data


class PngCodec(FileCodec):
    """PNG files of which Pillow makes 8-bit RGB."""

    name = ending = "png"
    entry = core.IMAGE_KINDS[name]


class WebpCodec(FileCodec):
    """Still WebP files."""

    name = ending = "webp"
    entry = core.IMAGE_KINDS[name]


class DctCodec(ImageCodec):
    """JPEGs in the DCT form: their coefficients without Huffman codes. docs/format.md has the bytes."""

    name = "dct"
    entry = core.KIND_DCT
    ending = "jpg"

    def encoded(self, field: Field, value: object, height: int, width: int) -> Data:
        if not isinstance(value, bytes) or not core.is_dct_form(value):
            raise refuse(field, value, "an image in the DCT form is bytes that `core.DctCoder.encode` made")
        return value

    def decoded(self, data: bytes, max_pixels: int) -> Pixels:
        decoder = self._opened(data, max_pixels)[0]
        try:
            decoder.decode()
            return decoder.pixels()
        finally:
            decoder.close()

    def verified(self, data: bytes, max_pixels: int, decode: bool) -> tuple[Size, int]:
        if decode:
            self.file(data)
            height, width = self.decoded(data, max_pixels).shape[:2]
            return (height, width), 0
        decoder, size = self._opened(data, max_pixels)
        decoder.close()
        return size, 0

    def file(self, data: bytes) -> bytes | Pixels:
        return core.DctCoder().restore(data)

    @staticmethod
    def _opened(data: bytes, max_pixels: int) -> tuple[core.RegionDecoder, Size]:
        if not core.is_dct_form(data):
            raise wrong("its image is not in the DCT form")
        decoder = core.RegionDecoder()
        width, height = decoder.open(data, max_pixels)
        return decoder, (height, width)


class RawCodec(ImageCodec):
    """Raw pixels of 8-bit RGB: height, width and channels, each u32, and rows."""

    name = "raw"
    entry = core.KIND_RAW

    def encoded(self, field: Field, value: object, height: int, width: int) -> tuple[Data, Data]:
        if isinstance(value, np.ndarray):
            if value.dtype != np.uint8 or value.shape != (height, width, 3):
                raise refuse(
                    field, value, f"pixels are uint8 ({height}, {width}, 3), not {value.dtype} {value.shape}"
                )
            pixels: Data = np.ascontiguousarray(value).reshape(-1)
        elif isinstance(value, bytes | bytearray | memoryview):
            pixels = value
            if memoryview(value).nbytes != height * width * 3:
                raise refuse(field, "...", f"{memoryview(value).nbytes} bytes are not {height} x {width} x 3")
        else:
            raise refuse(field, value, "pixels are an array or bytes")
        return np.array([height, width, 3], "<u4"), pixels

    @staticmethod
    def _shape(data: bytes) -> tuple[int, ...]:
        return tuple(int.from_bytes(data[at : at + 4], "little") for at in (0, 4, 8))

    def _pixels(self, data: bytes, reason: str) -> Pixels:
        shape = self._shape(data)
        if shape[2] != 3 or len(data) != _RAW_HEADER + shape[0] * shape[1] * 3:
            raise wrong(reason)
        return np.frombuffer(data, np.uint8, offset=_RAW_HEADER).reshape(shape)

    def decoded(self, data: bytes, max_pixels: int) -> Pixels:
        return self._pixels(data, "its raw pixels do not hold")

    def verified(self, data: bytes, max_pixels: int, decode: bool) -> tuple[Size, int]:
        if len(data) < _RAW_HEADER:
            raise wrong(f"its raw image has {len(data)} bytes, less than its header")
        height, width, channels = self._shape(data)
        if channels != 3 or len(data) != _RAW_HEADER + height * width * channels:
            raise wrong(
                f"its raw image of {height} x {width} x {channels} has {len(data) - _RAW_HEADER} bytes"
            )
        return (height, width), 0

    def file(self, data: bytes) -> bytes | Pixels:
        return self._pixels(data, "its raw image does not hold")


class PlaceCodec(ImageCodec):
    """The place of an image's file in another one, bytes of a `fastload.store.shard.StoredPlace`. `opened`
    makes it that file."""

    name = "place"
    entry = core.KIND_PLACE
    can_be_indexed = True
    is_first = True

    def encoded(self, field: Field, value: object, height: int, width: int) -> Data:
        if not isinstance(value, bytes):
            raise refuse(field, value, "a place is bytes")
        return value

    def opened(self, data: bytes, read: Callable[[bytes], bytes]) -> tuple[int, bytes]:
        file = read(data)
        return core.stored_kind(file) or core.KIND_JPEG, file


class ForeignCodec(ImageCodec):
    """An image's file of any format in an object of a store. `opened` tells which it is."""

    name = "file"
    entry = core.KIND_FILE

    def encoded(self, field: Field, value: object, height: int, width: int) -> Data:
        raise refuse(field, value, "an image that lies elsewhere is not packed")

    def opened(self, data: bytes, read: Callable[[bytes], bytes]) -> tuple[int, bytes]:
        return core.stored_kind(data) or core.KIND_JPEG, data


class PlanesCodec(ImageCodec):
    """Pixels of a mask, or of an image of another form than 8-bit RGB, losslessly. csrc/store/planes.h has
    the bytes."""

    name = "planes"
    entry = core.KIND_PLANES

    def encoded(self, field: Field, value: object, height: int, width: int) -> Data:
        assert isinstance(value, bytes)
        header = core.planes_header(value)
        if (header.height, header.width) != (height, width) or (header.channels, header.dtype) != (
            field.channels,
            field.stored_dtype,
        ):
            size = f"{header.width} x {header.height} pixels of {header.channels} channels of {header.dtype}"
            raise PackError(
                f"field {field.name!r} ({field}) of {width} x {height} pixels cannot hold planes of {size}"
            )
        return value

    def parsed(self, field: Field, data: bytes, size: Size) -> Pixels:
        """The pixels of a field: (height, width), or (height, width, channels) of several channels."""
        header = core.planes_header(data)
        if (header.height, header.width) != size:
            raise wrong(
                f"field {field.name!r} is {header.width} x {header.height}, the columns say "
                f"{size[1]} x {size[0]}"
            )
        if header.dtype != field.stored_dtype or header.channels != field.channels:
            raise wrong(
                f"field {field.name!r} has {header.channels} channels of {header.dtype}, the schema "
                f"says {field}"
            )
        return core.decode_planes(data)


JPEG, PNG, WEBP, DCT, RAW, PLACE, FOREIGN, PLANES = (
    JpegCodec(),
    PngCodec(),
    WebpCodec(),
    DctCodec(),
    RawCodec(),
    PlaceCodec(),
    ForeignCodec(),
    PlanesCodec(),
)
BY_ENTRY: Mapping[int, ImageCodec] = {
    codec.entry: codec for codec in (JPEG, PNG, WEBP, DCT, RAW, PLACE, FOREIGN)
}
"""Codecs of images of 8-bit RGB, by the kind of their entry."""
CODECS: Mapping[str, ImageCodec] = {codec.name: codec for codec in (*BY_ENTRY.values(), PLANES)}
