"""Pixels in their forms, and from one to the other: arrays, into which the native code decodes, Pillow's core
images, and JPEG files.

Pillow's C library is met directly: what a program puts in the place of Pillow's Python functions has no say
in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import _imaging as library

Array: TypeAlias = npt.NDArray[np.uint8]
Floats: TypeAlias = npt.NDArray[np.float32]
Core: TypeAlias = Any
"""An ImagingCore of Pillow: the object behind an image's `im`."""
_new: Callable[..., Core] = library.new
_jpeg_decoder: Callable[..., Any] = library.jpeg_decoder
_raw_decoder: Callable[..., Any] = library.raw_decoder
_raw_encoder: Callable[..., Any] = library.raw_encoder


class _Decoder(Protocol):
    """One of Pillow's decoders in C."""

    def setimage(self, core: Core, extents: tuple[int, int, int, int]) -> object: ...

    def decode(self, data: Any) -> tuple[int, int]: ...

    def cleanup(self) -> object: ...


_BLOCK = 1 << 16
"""Bytes of a file that Pillow gives its decoder at a time."""


def to_core(pixels: Array | Core, fourth: int = 255) -> Core:
    """A core image of these pixels: mode L of an array (height, width), RGB of (height, width, 3).

    Args:
        pixels: the array; a core image is returned as it is.
        fourth: the fourth byte that a core image of mode RGB has in each pixel.
    """
    if not isinstance(pixels, np.ndarray):
        return pixels
    height, width = pixels.shape[:2]
    mode = raw = "L" if pixels.ndim == 2 else "RGB"
    if mode == "RGB" and fourth != 255:
        raw, three = "RGBX", pixels
        pixels = np.full((height, width, 4), fourth, np.uint8)
        pixels[:, :, :3] = three
    core = _new(mode, (width, height))
    _decode(_raw_decoder(mode, raw, 0, 1), core, [np.ascontiguousarray(pixels)])
    return core


def to_array(pixels: Array | Core) -> Array:
    """A contiguous array of the pixels of an L or RGB image; it cannot be written where Pillow made it."""
    if isinstance(pixels, np.ndarray):
        return np.ascontiguousarray(pixels)
    width, height = pixels.size
    shape = (height, width) if pixels.mode == "L" else (height, width, 3)
    encoder = _raw_encoder(pixels.mode, pixels.mode, 0, 1)
    try:
        encoder.setimage(pixels, (0, 0, width, height))
        _, _, data = encoder.encode(int(np.prod(shape)))
    finally:
        encoder.cleanup()
    return np.frombuffer(data, np.uint8).reshape(shape)


def decoded_by_pillow(data: bytes, size: tuple[int, int], mode: str, scale: int = 1) -> Core:
    """The core image that Pillow's decoder makes of a JPEG file.

    Args:
        data: the file.
        size: size of the result.
        mode: "RGB" or "L", as Pillow opens the file.
        scale: 1, 2, 4 or 8: what is divided by in the inverse transform.
    """
    core = _new(mode, size)
    _decode(
        _jpeg_decoder(mode, mode, "", scale, 0),
        core,
        [data[at : at + _BLOCK] for at in range(0, len(data), _BLOCK)],
    )
    return core


def _decode(decoder: _Decoder, core: Core, blocks: Sequence[Any]) -> None:
    """Runs one of Pillow's decoders on the blocks of a file, as ImageFile.load does."""
    try:
        decoder.setimage(core, (0, 0, *core.size))
        left = b""
        for block in blocks:
            data = left + block if left else block
            used, failed = decoder.decode(data)
            if used < 0:
                break
            left = data[used:]
        assert used < 0 and not failed, f"Pillow's decoder gives {used}, {failed}"  # noqa: PT018
    finally:
        decoder.cleanup()
