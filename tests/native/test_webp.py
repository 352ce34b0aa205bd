"""WebPs by the engine's decoder (csrc/webp): the pixels are those of Pillow's convert("RGB"), and what it
decodes Pillow decodes too."""

from __future__ import annotations

import io
import random
import struct
from functools import partial
from typing import Any

import numpy as np
import pytest
from pictures import by_pillow, photo
from stored_files import by_engine
from webp_maker import FORMS, animated, chunk, chunks, damaged, riff, webp

from fastload._native import core
from fastload.errors import ArgumentError, SampleError

by_us = partial(by_engine, "webp")


@pytest.mark.parametrize("form", FORMS)
def test_every_form(form: str) -> None:
    """Sound files, whole and any box of them."""
    draw = random.Random(form)
    for _ in range(60):
        data = webp(draw, form)
        want = by_pillow(data)
        assert np.array_equal(by_us(data), want)
        height, width = want.shape[:2]
        assert core.stored_kind(data) == core.IMAGE_KINDS["webp"]
        assert core.stored_size(core.IMAGE_KINDS["webp"], data) == (height, width)
        for _ in range(4):
            x, y = draw.randrange(width), draw.randrange(height)
            w, h = draw.randint(1, width - x), draw.randint(1, height - y)
            assert np.array_equal(by_us(data, (x, y, w, h)), want[y : y + h, x : x + w])


def test_damaged_files_are_errors_or_pillows_pixels() -> None:
    """Whatever is damaged: pixels are Pillow's, and a file that Pillow refuses is never decoded, not even
    a box above the damage."""
    draw = random.Random(7)
    sound = [webp(draw, form) for form in FORMS for _ in range(4)]
    decoded = refused = 0
    for _ in range(2500):
        data = damaged(draw, draw.choice(sound))
        found = by_us(data)
        if found is None:
            refused += 1
            assert by_us(data, (0, 0, 1, 1)) is None
            continue
        want = by_pillow(data)
        assert want is not None, data
        assert np.array_equal(found, want), data
        decoded += 1
    assert decoded > 300
    assert refused > 300


def photograph(**options: Any) -> bytes:
    out = io.BytesIO()
    photo(3, 90, 120).save(out, "WEBP", **options)
    return out.getvalue()


(IMAGE,) = chunks(photograph())
(LOSSLESS,) = chunks(photograph(lossless=True))
HEAD = chunk(b"VP8X", struct.pack("<I", 0) + (119).to_bytes(3, "little") + (89).to_bytes(3, "little"))
LEFT = {
    "animated": animated(),
    "another canvas": riff([HEAD[:-3] + b"\x5a\0\0", IMAGE]),
    "a cut file": photograph()[:-2],
    "an odd size": b"RIFF" + struct.pack("<I", len(photograph()) - 9) + photograph()[8:],
    "a chunk after the image": riff([IMAGE, chunk(b"EXIF", b"")]),
    "two images": riff([HEAD, IMAGE, IMAGE]),
    "no image": riff([HEAD]),
    "metadata before the image": riff([HEAD, chunk(b"EXIF", b""), IMAGE]),
    "alpha of a lossless image": riff([HEAD, chunk(b"ALPH", b"\0"), LOSSLESS]),
    "an unknown chunk": riff([HEAD, chunk(b"mine", b""), IMAGE]),
    "a canvas of too few bytes": riff([chunk(b"VP8X", b"\0\0\0\0"), IMAGE]),
    "no WebP": b"RIFX" + photograph()[4:],
    "a sound file of another kind": b"RIFF\x24\0\0\0WAVE" + photograph()[12:],
    "nothing": b"",
}


@pytest.mark.parametrize("how", LEFT)
def test_left_to_pillow(how: str) -> None:
    """Files that the engine refuses, whatever Pillow makes of them."""
    with pytest.raises(SampleError):
        core.stored_decode(core.IMAGE_KINDS["webp"], LEFT[how])


def test_extended_files() -> None:
    """A canvas that the image fills, with chunks where the container has them, and whatever lies after the
    file."""
    want = by_pillow(photograph())
    for parts in (
        [HEAD, IMAGE],
        [HEAD, chunk(b"ICCP", b"abc"), IMAGE, chunk(b"XMP ", b""), chunk(b"EXIF", b"a")],
    ):
        assert np.array_equal(by_us(riff(parts) + b"more"), want)


def test_limits() -> None:
    """An image of more pixels than allowed is refused before memory is asked for, and a box outside of it
    is an error."""
    with pytest.raises(SampleError, match="120 x 90 pixels are more than the limit of 100"):
        core.stored_decode(core.IMAGE_KINDS["webp"], photograph(), None, 100)
    with pytest.raises(ArgumentError, match="is not inside"):
        core.stored_decode(core.IMAGE_KINDS["webp"], photograph(), (100, 0, 21, 1))
