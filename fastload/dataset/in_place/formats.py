"""Formats of image files that native threads decode: by their names, by their first bytes, and as the installed Pillow decodes them."""

from __future__ import annotations

import io
import itertools
import struct
import zlib
from dataclasses import dataclass
from functools import cache

import numpy as np

from fastload._native import core

NATIVE = 0.9
"""Part of the images that must have such a format: the others are decoded one after the other, in the calling process."""


@dataclass(frozen=True)
class Format:
    """A format of image files.

    Attributes:
        suffixes: ends of its files' names, in small letters.
        magic: bytes that its files begin with.
    """

    suffixes: tuple[str, ...]
    magic: bytes


JPEG = Format((".jpg", ".jpeg", ".jpe", ".jfif"), b"\xff\xd8")
PNG = Format((".png",), b"\x89PNG\r\n\x1a\n")


def formats() -> tuple[Format, ...]:
    """The formats that are decoded here: PNG only where the installed Pillow gives its pixels."""
    return (JPEG, PNG) if pngs_are_pillows() else (JPEG,)


def suffixes() -> tuple[str, ...]:
    """The suffixes of all, in small letters."""
    return tuple(itertools.chain.from_iterable(each.suffixes for each in formats()))


def magics() -> tuple[bytes, ...]:
    """The first bytes of all."""
    return tuple(each.magic for each in formats())


@cache
def pngs_are_pillows() -> bool:
    """Returns True if native threads and the installed Pillow make the same RGB pixels of PNGs of every form. Releases differ in grey of
    16 bits."""
    from PIL.PngImagePlugin import PngImageFile

    for bits, colour in _FORMS:
        data = _png(bits, colour)
        with PngImageFile(io.BytesIO(data)) as image:
            theirs = np.asarray(image.convert("RGB"))
        if not np.array_equal(core.stored_decode(core.KIND_PNG, data), theirs):
            return False
    return True


_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""Samples of a pixel, by PNG's number of its colour."""
_FORMS = [(bits, colour) for colour in _SAMPLES for bits in {0: (1, 2, 4, 8, 16), 3: (1, 2, 4, 8)}.get(colour, (8, 16))]


def _png(bits: int, colour: int) -> bytes:
    """A PNG of one row in which each sample has many values; its palette lacks entries that the row uses."""
    row = bytes(range(0, 256, 3)) + struct.pack(">8H", 0, 1, 254, 255, 256, 300, 40000, 65535)
    width = 8 * len(row) // (bits * _SAMPLES[colour])
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, 1, bits, colour, 0, 0, 0))]
    if colour == 3:
        chunks.append((b"PLTE", bytes(range(30 if bits == 8 else 6))))
    row = row[: (width * bits * _SAMPLES[colour] + 7) // 8]
    chunks += [(b"IDAT", zlib.compress(b"\0" + row)), (b"IEND", b"")]
    return PNG.magic + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
