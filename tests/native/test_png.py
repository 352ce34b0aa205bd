"""PNGs by the engine's decoder (csrc/png): the pixels are those of Pillow's convert("RGB"), and what it
decodes Pillow decodes too."""

from __future__ import annotations

import io
import random
import struct
import zlib
from functools import partial
from typing import Any

import numpy as np
import pytest
from pictures import by_pillow, photo
from png_maker import FORMS, MAGIC, chunk, damaged, interlaced, png
from stored_files import by_engine

from fastload._native import core
from fastload.errors import ArgumentError, SampleError

by_us = partial(by_engine, "png")


@pytest.mark.parametrize(("colour", "bits"), FORMS)
def test_every_form(colour: int, bits: int) -> None:
    """Sound files of every colour, depth and filter, whole and any box of them."""
    draw = random.Random(f"{colour} {bits}")
    for _ in range(150):
        data = png(draw, colour, bits)
        want = by_pillow(data)
        assert np.array_equal(by_us(data), want), data
        height, width = want.shape[:2]
        assert core.stored_size(core.IMAGE_KINDS["png"], data) == (height, width)
        x, y = draw.randrange(width), draw.randrange(height)
        w, h = draw.randint(1, width - x), draw.randint(1, height - y)
        assert np.array_equal(by_us(data, (x, y, w, h)), want[y : y + h, x : x + w])


def test_damaged_files_are_errors_or_pillows_pixels() -> None:
    """Whatever is damaged: pixels are Pillow's, and a file that Pillow refuses is never decoded."""
    draw = random.Random(7)
    decoded = refused = 0
    for _ in range(6000):
        data = damaged(draw, png(draw, *draw.choice(FORMS)))
        found = by_us(data)
        if found is None:
            refused += 1
            continue
        want = by_pillow(data)
        assert want is not None, data
        assert np.array_equal(found, want), data
        decoded += 1
    assert decoded > 30
    assert refused > 1000


def photograph(**options: Any) -> bytes:
    out = io.BytesIO()
    photo(3, 90, 120).save(out, "PNG", **options)
    return out.getvalue()


def parts(data: bytes) -> list[bytes]:
    """The chunks of a file."""
    found, at = [], 8
    while at < len(data):
        size = 12 + int.from_bytes(data[at : at + 4], "big")
        found.append(data[at : at + size])
        at += size
    return found


def rebuilt(**changed: Any) -> bytes:
    """A photograph's file with something of it changed: `after_header`, `before_end`: chunks put there;
    `data`: its zlib stream."""
    header, *data, end = parts(photograph())
    stream = b"".join(each[8:-4] for each in data)
    return (
        MAGIC
        + header
        + changed.get("after_header", b"")
        + chunk(b"IDAT", changed.get("data", stream))
        + changed.get("before_end", b"")
        + end
    )


STREAM = b"".join(each[8:-4] for each in parts(photograph())[1:-1])
BOMB = zlib.compress(bytes(1 << 21))
LEFT = {
    "a wrong sum of zlib's": rebuilt(data=STREAM[:-1] + bytes([STREAM[-1] ^ 1])),
    "data that ends early": rebuilt(data=STREAM[: len(STREAM) // 2]),
    "data after the last row": rebuilt(data=zlib.compress(zlib.decompress(STREAM) + b"more")),
    "a row too few": rebuilt(data=zlib.compress(zlib.decompress(STREAM)[:-361])),
    "no such filter": rebuilt(data=zlib.compress(b"\7" + zlib.decompress(STREAM)[1:])),
    "a text that inflates to 2 MiB": rebuilt(after_header=chunk(b"zTXt", b"k\0\0" + BOMB)),
    "a profile of an unknown compression": rebuilt(after_header=chunk(b"iCCP", b"p\0\1")),
    "a chunk of too few bytes": rebuilt(after_header=chunk(b"gAMA", b"\0\0")),
    "one after the data": rebuilt(before_end=chunk(b"pHYs", b"\0\0")),
    "a wrong checksum": rebuilt(after_header=chunk(b"tEXt", b"a\0b")[:-1] + b"?"),
    "two frames": rebuilt(after_header=chunk(b"acTL", struct.pack(">II", 2, 0))),
    "an empty size": MAGIC
    + chunk(b"IHDR", struct.pack(">IIBBBBB", 0, 9, 8, 2, 0, 0, 0))
    + b"".join(parts(photograph())[1:]),
    "no such depth": MAGIC
    + chunk(b"IHDR", struct.pack(">IIBBBBB", 120, 90, 4, 2, 0, 0, 0))
    + b"".join(parts(photograph())[1:]),
    "no PNG": b"\xff\xd8" + photograph()[2:],
    "nothing": b"",
    "interlaced": interlaced(np.asarray(photo(3, 90, 120))),
}


@pytest.mark.parametrize("how", LEFT)
def test_left_to_pillow(how: str) -> None:
    """Files that the engine refuses, whatever Pillow makes of them."""
    with pytest.raises(SampleError):
        core.stored_decode(core.IMAGE_KINDS["png"], LEFT[how])


def test_taken_as_pillow_takes_them() -> None:
    """A wrong checksum of the data's chunk, data without an end, and a profile that does not hold change
    nothing that Pillow gives."""
    whole = photograph()
    at = (
        whole.index(b"IDAT")
        + 4
        + int.from_bytes(whole[whole.index(b"IDAT") - 4 : whole.index(b"IDAT")], "big")
    )
    wrong = whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :]
    assert np.array_equal(by_us(wrong), by_pillow(wrong))
    assert np.array_equal(by_us(whole + b"more"), by_pillow(whole))


def test_limits() -> None:
    """More pixels than the limit, a header that promises more than its data can hold, and a box beyond the
    image are errors."""
    with pytest.raises(SampleError, match="more than the limit"):
        core.stored_decode(core.IMAGE_KINDS["png"], photograph(), None, 1000)
    huge = (
        MAGIC
        + chunk(b"IHDR", struct.pack(">IIBBBBB", 1 << 15, 1 << 13, 16, 6, 0, 0, 0))
        + b"".join(parts(photograph())[1:])
    )
    with pytest.raises(SampleError, match="bytes of data for"):
        core.stored_decode(core.IMAGE_KINDS["png"], huge)
    for box in ((0, 0, 121, 90), (120, 0, 1, 1), (0, 0, 0, 5)):
        with pytest.raises(ArgumentError, match="box"):
            core.stored_decode(core.IMAGE_KINDS["png"], photograph(), box)
