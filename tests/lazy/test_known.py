"""Files whose pixels may be asked for later: Pillow raises no exception about any of them, whatever their
coded data are."""

from __future__ import annotations

import io
import random
import warnings

import numpy as np
import pytest
from lazy_helpers import LAZY, files, jpeg
from pictures import photo
from PIL import Image, JpegImagePlugin

from fastload.lazy.compressed import CompressedImage, Region
from fastload.lazy.pixels import to_array

ROUNDS = 2500
INSERTED = (0, 0xC4, 0xD0, 0xD3, 0xD7, 0xD9, 0xFE, 0xFF)
"""Second bytes of markers that are put into files: stuffing, tables, restarts, ends, comments, fill bytes."""


def changed(data: bytes, rng: random.Random) -> bytes:
    """A file with wrong, missing, repeated or further bytes, mostly in its coded data."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        scan = max(2, out.find(b"\xff\xda"))
        if len(out) < scan + 8:
            break
        at = rng.randrange(rng.choice((2, scan, scan)), len(out))
        kind = rng.randrange(6)
        if kind < 2:
            out[at] = rng.choice((0, 255, rng.randrange(256)))
        elif kind == 2:
            del out[at : at + rng.randrange(1, 40)]
        elif kind == 3:
            out[at:at] = bytes((255, rng.choice(INSERTED)))
        elif kind == 4:
            other = rng.randrange(scan, len(out))
            out[at:at] = out[other : other + rng.randrange(60)]
        else:
            del out[max(at, scan) : -2]
    return bytes(out)


@pytest.mark.parametrize("name", [name for name in LAZY if name != "damaged"] + ["large", "large restarts"])
def test_pillow_loads_what_is_known(name: str) -> None:
    """Of changed files, Pillow loads all that are known, and any region of theirs has Pillow's pixels."""
    rng, large = random.Random(name), name.startswith("large")
    data = (
        jpeg(photo(3, 300, 400), quality=97, restart_marker_blocks=5 * name.endswith("restarts"))
        if large
        else files()[name]
    )
    known = damaged = 0
    for _ in range(ROUNDS // 25 if large else ROUNDS):
        tried = changed(data, rng)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                image = JpegImagePlugin.JpegImageFile(io.BytesIO(tried))
            except (SyntaxError, OSError, ValueError):
                continue
        found = CompressedImage.known(tried, image.mode)
        if found is None or (found.width, found.height) != image.size:
            continue
        known += 1
        image.load()  # raises nothing
        width, height = image.size
        x, y = rng.randrange(width), rng.randrange(height)
        region = Region(x, y, rng.randint(1, width - x), rng.randint(1, height - y))
        file = CompressedImage(tried, image.size, image.mode)
        assert np.array_equal(
            file.pixels(region), to_array(image.im)[y : y + region.height, x : x + region.width]
        )
        damaged += file._whole is not None
    assert known > ROUNDS // 250
    assert damaged or name == "tiny"


@pytest.mark.parametrize("name", sorted(set(files()) - set(LAZY) - {"empty", "no jpeg"}))
def test_others_are_not_known(name: str) -> None:
    """Progressive, CMYK and cut-off files, and those with a marker in their coded data, are Pillow's."""
    for mode in ("RGB", "L"):
        assert CompressedImage.known(files()[name], mode) is None


def test_a_file_is_known_by_its_mode() -> None:
    """A colour file that was drafted as grey is Pillow's."""
    assert CompressedImage.known(files()["420"], "L") is None
    assert CompressedImage.known(files()["grey"], "RGB") is None
    image = Image.open(io.BytesIO(files()["420"]))
    assert CompressedImage.known(files()["420"], "RGB") == (*image.size, len(files()["420"]))
    assert CompressedImage.known(files()["trailing"], "RGB") == (*image.size, len(files()["420"]))
