"""PNGs of every form, made by hand: colours, depths, filters, chunks, and damage."""

from __future__ import annotations

import random
import struct
import zlib

import numpy as np
import numpy.typing as npt

SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
FORMS = [(colour, bits) for colour, depths in DEPTHS.items() for bits in depths]
"""(PNG's number of the colour, bits of a sample)"""
MAGIC = b"\x89PNG\r\n\x1a\n"


def chunk(name: bytes, data: bytes) -> bytes:
    """A chunk with its length and checksum."""
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


OTHERS = [
    chunk(b"gAMA", struct.pack(">I", 45455)),
    chunk(b"tEXt", b"Comment\0hello"),
    chunk(b"tIME", bytes(7)),
    chunk(b"pHYs", bytes(9)),
    chunk(b"zTXt", b"k\0\0" + zlib.compress(b"x" * 100)),
    chunk(b"iTXt", b"k\0\1\0\0\0" + zlib.compress(b"y" * 50)),
    chunk(b"iCCP", b"p\0\0" + zlib.compress(bytes(300))),
    chunk(b"eXIf", b"MM\0*\0\0\0\x08\0\0\0\0\0\0"),
]
"""Chunks that change no pixel."""


def png(draw: random.Random, colour: int, bits: int) -> bytes:
    """A sound PNG of up to 40 x 40 pixels: rows of any filters, data in several chunks, other chunks
    before and after it."""
    width, height = draw.randint(1, 40), draw.randint(1, 40)
    row = (width * SAMPLES[colour] * bits + 7) // 8
    filters = draw.choice([(0,), (1,), (2,), (3,), (4,), (0, 1, 2, 3, 4)])
    rows = b"".join(
        bytes([draw.choice(filters)]) + (draw.randbytes(row) if draw.random() < 0.7 else bytes(row))
        for _ in range(height)
    )
    chunks = [chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0))]
    if draw.random() < 0.3:
        chunks.append(draw.choice(OTHERS))
    if colour == 3:
        chunks.append(chunk(b"PLTE", draw.randbytes(3 * draw.randint(1, 2**bits))))
    if draw.random() < 0.3:
        chunks.append(
            chunk(b"tRNS", draw.randbytes({0: 2, 2: 6, 3: draw.randint(1, 2**bits)}.get(colour, 2)))
        )
    data = zlib.compress(rows, draw.randint(0, 9))
    ends = sorted(draw.randint(0, len(data)) for _ in range(draw.randint(0, 3)))
    chunks += [
        chunk(b"IDAT", data[start:end]) for start, end in zip([0, *ends], [*ends, len(data)], strict=True)
    ]
    if draw.random() < 0.2:
        chunks.append(draw.choice(OTHERS))
    return MAGIC + b"".join(chunks) + chunk(b"IEND", b"")


def damaged(draw: random.Random, data: bytes) -> bytes:
    """The file with a few bytes changed, lost or cut off, anywhere after its first eight."""
    found = bytearray(data)
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(8, len(found))
        how = draw.randrange(4)
        if how == 0:
            found[at] = draw.randrange(256)
        elif how == 1:
            found[at] ^= 1 << draw.randrange(8)
        elif how == 2:
            del found[at : at + draw.randint(1, 6)]
        else:
            del found[at:]
        if len(found) < 10:
            break
    return bytes(found)


ADAM7 = [(0, 8, 0, 8), (0, 8, 4, 8), (4, 8, 0, 4), (0, 4, 2, 4), (2, 4, 0, 2), (0, 2, 1, 2), (1, 2, 0, 1)]
"""The passes of an interlaced file: (first row, rows apart, first column, columns apart)."""


def interlaced(pixels: npt.NDArray[np.uint8]) -> bytes:
    """An interlaced PNG of RGB pixels (height, width, 3)."""
    passes = [pixels[row::rows, column::columns] for row, rows, column, columns in ADAM7]
    rows = b"".join(b"\0" + row.tobytes() for each in passes if each.size for row in each)
    header = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 8, 2, 0, 0, 1)
    return MAGIC + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
