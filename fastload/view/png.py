"""PNG files of pixels and of labels: lossless, made with zlib alone, so that a page needs no library of
pictures."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import numpy.typing as npt

from fastload.dataset.drawing import COLOURS, Pixels, colour_of, numbers_of

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_GREY, _RGB, _PALETTE = 0, 2, 3
_UP = 2
_LEVEL = 1
"""zlib's: a page on the same machine waits for the compression, and not for the bytes."""


def png(pixels: Pixels) -> bytes:
    """The PNG of grey pixels (height, width) or of RGB (height, width, 3)."""
    height, width = pixels.shape[:2]
    rows = np.ascontiguousarray(pixels).reshape(height, -1)
    filtered = np.empty((height, rows.shape[1] + 1), np.uint8)
    filtered[:, 0] = _UP
    filtered[0, 1:] = rows[0]
    np.subtract(rows[1:], rows[:-1], out=filtered[1:, 1:])
    return _file(width, height, _GREY if pixels.ndim == 2 else _RGB, b"", filtered)


def label_png(labels: npt.NDArray[np.integer]) -> bytes:
    """The PNG of labels (height, width) in the colours of `colour_of`; 0 is transparent, and 255 of 8-bit
    labels is grey."""
    height, width = labels.shape
    filtered = np.zeros((height, width + 1), np.uint8)
    filtered[:, 1:] = numbers_of(labels)
    palette = np.array([(0, 0, 0), *map(colour_of, range(1, COLOURS + 1)), (128, 128, 128)], np.uint8)
    extra = _chunk(b"PLTE", palette.tobytes()) + _chunk(b"tRNS", b"\0")
    return _file(width, height, _PALETTE, extra, filtered)


def _file(width: int, height: int, colour: int, extra: bytes, rows: Pixels) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    body = (
        _chunk(b"IHDR", header)
        + extra
        + _chunk(b"IDAT", zlib.compress(rows.data, _LEVEL))
        + _chunk(b"IEND", b"")
    )
    return _SIGNATURE + body


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
