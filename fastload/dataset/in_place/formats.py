"""Formats of image files that native threads decode: by their names, by their first bytes, and as the
installed Pillow opens them."""

from __future__ import annotations

import base64
import importlib
import io
import itertools
import struct
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np

from fastload._native import core
from fastload.common.originals import OwnCode

NATIVE = 0.9
"""Part of the images that must have such a format: Pillow opens the others."""


@dataclass(frozen=True)
class Format:
    """A format of image files.

    Attributes:
        name: the name of its decoder.
        suffixes: ends of its files' names, in small letters.
        plugin: "module:name" of what Pillow registers itself to open them.
        own: code of Pillow's that opens them.
        is_pillows: returns True if native threads and the installed Pillow make the same RGB pixels of its
            files.
    """

    name: str
    suffixes: tuple[str, ...]
    plugin: str
    own: OwnCode
    is_pillows: Callable[[], bool]

    @property
    def kind(self) -> int:
        """Record kind of its images."""
        return core.IMAGE_KINDS[self.name]


def formats() -> tuple[Format, ...]:
    """The formats that are decoded here: those of which the installed Pillow makes the same pixels."""
    return tuple(each for each in FORMATS if each.is_pillows())


def suffixes() -> tuple[str, ...]:
    """The suffixes of all, in small letters."""
    return tuple(itertools.chain.from_iterable(each.suffixes for each in formats()))


def is_native(start: bytes) -> bool:
    """Returns True if bytes are the start of a file of one of them. `start`: at least START bytes, or the
    whole file."""
    kind = core.stored_kind(start)
    return any(each.kind == kind for each in formats())


START = 16
"""Bytes by which a format is known."""


def _same(files: Iterable[bytes], plugin: str) -> bool:
    """Returns True if native threads make the pixels of all files that Pillow's own plugin makes, by its
    module and class."""
    module, _, name = plugin.partition(":")
    opened = getattr(importlib.import_module(module), name)
    for data in files:
        with opened(io.BytesIO(data)) as image:
            theirs = np.asarray(image.convert("RGB"))
        if not np.array_equal(core.stored_decode(core.stored_kind(data), data), theirs):
            return False
    return True


@cache
def pngs_are_pillows() -> bool:
    """Asks of PNGs of every form. Releases of Pillow differ in grey of 16 bits."""
    return _same((_png(bits, colour) for bits, colour in _PNGS), "PIL.PngImagePlugin:PngImageFile")


@cache
def webps_are_pillows() -> bool:
    """Asks of WebPs of both codings. False where Pillow was built without WebP."""
    from PIL import features

    return bool(features.check("webp")) and _same(
        map(base64.b85decode, _WEBPS), "PIL.WebPImagePlugin:WebPImageFile"
    )


FORMATS = (
    Format(
        "jpeg",
        (".jpg", ".jpeg", ".jpe", ".jfif"),
        "PIL.JpegImagePlugin:jpeg_factory",
        OwnCode(
            ("PIL.JpegImagePlugin", ("jpeg_factory",)),
            ("PIL.JpegImagePlugin:JpegImageFile", ("_open", "load_read")),
        ),
        lambda: True,
    ),
    Format(
        "png",
        (".png",),
        "PIL.PngImagePlugin:PngImageFile",
        OwnCode(
            ("PIL.PngImagePlugin:PngImageFile", ("_open", "load_prepare", "load_read", "load_end")),
            "PIL.PngImagePlugin:ChunkStream",
            "PIL.PngImagePlugin:PngStream",
        ),
        pngs_are_pillows,
    ),
    Format(
        "webp",
        (".webp",),
        "PIL.WebPImagePlugin:WebPImageFile",
        OwnCode(
            (
                "PIL.WebPImagePlugin:WebPImageFile",
                ("_open", "load", "load_seek", "seek", "_get_next", "_reset"),
            )
        ),
        webps_are_pillows,
    ),
)
_WEBPS = (
    "Qb|TecmMzZS4BclR!}$~YybcNumS*`0V)ju3jhLuLM5;QbVnd$fPSj_00J{mhX4Tn`=Jg2qJ8yj+vz9v{=x(K{(q3-*Y-Ox#g6XD1kam8*-!XZ-}|UWlkVv9fA|73{T|Iz"
    "y-B+tPtpo^&g9?r0i#sr91h--y#N3J",
    "Qb|TeOaK4?S4BclR!}%hKmY&$FARVJ0L^tFqW`go81Vi_K~dXAl3@-1*AP2*2?z*^{2z@-+h(}3?jK!IkWJc<EomPizyK+~SEPN>;g2)`",
)
"""Checks of 13 x 11 pixels, lossy, with chroma at half the resolution, and lossless."""
_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""Samples of a pixel, by PNG's number of its colour."""
_PNGS = [
    (bits, colour)
    for colour in _SAMPLES
    for bits in {0: (1, 2, 4, 8, 16), 3: (1, 2, 4, 8)}.get(colour, (8, 16))
]


def _png(bits: int, colour: int) -> bytes:
    """A PNG of one row in which each sample has many values; its palette lacks entries that the row uses."""
    row = bytes(range(0, 256, 3)) + struct.pack(">8H", 0, 1, 254, 255, 256, 300, 40000, 65535)
    width = 8 * len(row) // (bits * _SAMPLES[colour])
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, 1, bits, colour, 0, 0, 0))]
    if colour == 3:
        chunks.append((b"PLTE", bytes(range(30 if bits == 8 else 6))))
    row = row[: (width * bits * _SAMPLES[colour] + 7) // 8]
    chunks += [(b"IDAT", zlib.compress(b"\0" + row)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )
