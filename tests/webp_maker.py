"""WebPs of many forms, made by Pillow: lossy and lossless, with alpha, metadata, animated; and damage to
them."""

from __future__ import annotations

import io
import random
import struct
from typing import Any

import numpy as np
from pictures import photo
from PIL import Image

FORMS: dict[str, dict[str, Any]] = {
    "lossy": {"quality": 70},
    "lossy, by all means": {"quality": 20, "method": 6},
    "lossy, at once": {"quality": 95, "method": 0},
    "lossless": {"lossless": True, "method": 3},
    "lossless, at once": {"lossless": True, "method": 0, "quality": 0},
    "with metadata": {
        "quality": 50,
        "icc_profile": b"profile",
        "exif": b"Exif\0\0II*\0\x08\0\0\0\0\0\0\0\0\0",
        "xmp": b"<x/>",
    },
    "alpha": {"quality": 60, "alpha_quality": 40},
    "alpha, exact": {"quality": 60, "exact": True},
    "alpha, lossless": {"lossless": True, "exact": True},
}
"""Arguments of Pillow's save(); those of a name that begins with "alpha" are of an image with alpha."""


def picture(draw: random.Random, alpha: bool) -> Image.Image:
    """A photograph, flat colours or noise, of any small size."""
    width, height = draw.randint(1, 70), draw.randint(1, 70)
    noise = np.random.default_rng(draw.randrange(1 << 30))
    kind = draw.randrange(4)
    if kind == 0:
        pixels = noise.integers(0, 256, (height, width, 3), np.uint8)
    elif kind == 1:
        pixels = noise.integers(0, 256, (4, 3), np.uint8)[noise.integers(0, 4, (height, width))]
    else:
        pixels = np.asarray(photo(draw.randrange(1000), height, width))
    if alpha:
        pixels = np.dstack([pixels, noise.integers(0, 256, (height, width), np.uint8) >> draw.randrange(8)])
    return Image.fromarray(pixels)


def webp(draw: random.Random, form: str) -> bytes:
    """A sound file."""
    out = io.BytesIO()
    picture(draw, form.startswith("alpha")).save(out, "WEBP", **FORMS[form])
    return out.getvalue()


def animated() -> bytes:
    """Two frames."""
    out = io.BytesIO()
    photo(1, 40, 50).save(out, "WEBP", save_all=True, append_images=[photo(2, 40, 50)])
    return out.getvalue()


def chunks(data: bytes) -> list[bytes]:
    """A file's chunks, each with its head and the byte that evens its size."""
    found, at = [], 12
    while at < len(data):
        size = 8 + int.from_bytes(data[at + 4 : at + 8], "little")
        found.append(data[at : at + size + size % 2])
        at += size + size % 2
    return found


def chunk(name: bytes, content: bytes) -> bytes:
    return name + struct.pack("<I", len(content)) + content + bytes(len(content) % 2)


def riff(parts: list[bytes]) -> bytes:
    """A file of chunks."""
    body = b"WEBP" + b"".join(parts)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def damaged(draw: random.Random, data: bytes) -> bytes:
    """The file cut, changed in some bytes, or with its chunks in another order, twice, or one too few."""
    how = draw.randrange(6)
    if how == 0:
        return data[: draw.randrange(len(data))]
    if how == 1:
        return data + bytes(draw.randrange(1, 9))
    if how <= 3:
        changed = bytearray(data)
        for _ in range(draw.randint(1, 4)):
            changed[draw.randrange(draw.choice([40, len(data)]) if len(data) > 40 else len(data))] = (
                draw.randrange(256)
            )
        return bytes(changed)
    parts = chunks(data)
    parts.insert(
        draw.randrange(len(parts) + 1),
        draw.choice([*parts, chunk(b"EXIF", b"abc"), chunk(b"mine", b""), chunk(b"ALPH", b"\0")]),
    )
    if how == 5 or draw.random() < 0.5:
        del parts[draw.randrange(len(parts))]
    return riff(parts)
