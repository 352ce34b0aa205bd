"""Whatever pack stores decodes to the original's pixels: of broken files too, for everything that writes
other bytes than the source's."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from packing_helpers import encoded, picture
from pictures import by_pillow
from PIL import Image

from fastload._native import core
from fastload.errors import SampleError
from fastload.packing.encode import Encoded, Encoder
from fastload.packing.options import PackOptions
from fastload.sources import Item
from fastload.sources.pixels import upright

DATA = Path(__file__).parent / "data"
COMMENT = b"\xff\xfe\x00\x04ab"


def pixels_of(stored: Encoded) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """What the loader makes of what was stored; the size noted beside it must be right."""
    pixels = core.jpeg_decode(stored.data) if isinstance(stored.data, bytes) else stored.data
    assert pixels.shape[:2] == (stored.height, stored.width)
    return pixels


def same_or_refused(encoder: Encoder, data: bytes) -> Encoded | None:
    """The stored form, its pixels those of the source; None where the source cannot be decoded."""
    try:
        expected = core.jpeg_decode(data)
    except SampleError:
        expected = by_pillow(data)
    if expected is None:
        with pytest.raises(SampleError):
            encoder(Item("x.jpg", data))
        return None
    try:
        stored = encoder(Item("x.jpg", data))
    except SampleError:
        return None  # refused by its name: nothing was stored
    assert np.array_equal(pixels_of(stored), expected)
    return stored


def cut_by_a_comment(data: bytes, behind: bytes) -> bytes:
    """A file whose scan ends in the middle with a marker segment, and what comes behind that."""
    return data[: len(data) // 2].rstrip(b"\xff") + COMMENT + behind


@pytest.mark.parametrize(
    "options", [{}, {"check": "structure"}, {"optimize_huffman": True}, {"encode": "keep"}], ids=str
)
@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize(
    "behind", [b"", b"junk" * 10, b"\xff\xd9", b"\xff\xda\x00\x04junk"], ids=["cut", "stray", "ended", "scan"]
)
def test_a_marker_segment_inside_the_scan(
    options: dict[str, object], progressive: bool, behind: bytes
) -> None:
    """libjpeg-turbo fills up such a scan at the segment, which stripping removes: what is stored gives the
    same pixels all the same."""
    data = cut_by_a_comment(encoded(picture(1, 64, 64), quality=95, progressive=progressive), behind)
    same_or_refused(Encoder(PackOptions(**options)), data)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["marker-in-scan-1.jpg", "marker-in-scan-2.jpg"])
def test_files_that_stripping_made_unreadable(name: str) -> None:
    """Found by a fuzzer: readable without an end marker, not so when stripped. They are stored, and read."""
    stored = same_or_refused(Encoder(PackOptions()), (DATA / name).read_bytes())
    assert stored is not None


@pytest.mark.parametrize("seed", range(4))
def test_damaged_files_keep_their_pixels(seed: int) -> None:
    """Bits flipped, stretches lost, markers put in anywhere, ends cut, baseline and progressive, restarts:
    the same pixels, or refused."""
    rng = random.Random(seed)
    encoders = [
        Encoder(PackOptions()),
        Encoder(PackOptions(check="structure")),
        Encoder(PackOptions(optimize_huffman=True)),
    ]
    stored = 0
    for round_ in range(60):
        options = rng.choice(({}, {"progressive": True}, {"restart_marker_blocks": 2}, {"optimize": True}))
        data = bytearray(encoded(picture(round_, 40, 56), quality=90, comment=b"hello", **options))
        for _ in range(rng.choice((1, 1, 2))):
            at = rng.randrange(2, len(data))
            what = rng.randrange(5)
            if what == 0:
                data[at] ^= 1 << rng.randrange(8)
            elif what == 1:
                del data[at : at + rng.randrange(1, 30)]
            elif what == 2:
                data[at:at] = rng.choice(
                    (COMMENT, b"\xff\xd9", b"\xff\xd3", b"\xff\x00", b"\xff\xff", bytes(20))
                )
            elif what == 3:
                del data[max(at, len(data) // 2) :]
            else:
                data[at:] = COMMENT + data[at:][rng.randrange(50) :]
        stored += same_or_refused(rng.choice(encoders), bytes(data)) is not None
    assert stored > 0, f"seed {seed}"


@pytest.mark.parametrize("orientation", range(2, 9))
@pytest.mark.parametrize("subsampling", [0, 1, 2])
def test_turned_coefficients_are_all_there(orientation: int, subsampling: int) -> None:
    """A file turned by EXIF, turned back, is the source's own coefficients; its pixels are the upright
    ones, but for rounding."""

    block = Image.Exif()
    block[0x0112] = orientation
    data = encoded(picture(orientation, 64, 96), quality=90, subsampling=subsampling, exif=block.tobytes())
    stored = Encoder(PackOptions(exif="apply"))(Item("x.jpg", data))
    assert stored.how == ("rotated",)
    assert isinstance(stored.data, bytes)
    assert core.jpeg_transform(
        stored.data, {6: 8, 8: 6}.get(orientation, orientation)
    ) == core.jpeg_to_baseline(data)
    assert np.abs(pixels_of(stored).astype(int) - upright(core.jpeg_decode(data), orientation)).mean() < 1


def test_a_damaged_file_is_not_turned_into_another_picture() -> None:
    """What a damaged file is turned to, or encoded anew from, is close to what it decodes to."""

    block = Image.Exif()
    block[0x0112] = 6
    whole = encoded(picture(3, 64, 96), quality=90, exif=block.tobytes())
    for behind in (b"\xff\xd9", b"junk" * 10 + b"\xff\xd9"):
        data = cut_by_a_comment(whole, behind)
        stored = Encoder(PackOptions(exif="apply"))(Item("x.jpg", data))
        assert np.abs(pixels_of(stored).astype(int) - upright(core.jpeg_decode(data), 6)).mean() < 3
