"""The entropy walk: it never vouches for a file of which libjpeg-turbo has something to say, and vouches for every usual one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from packing_helpers import encoded, picture

from fastload._native import core
from fastload.errors import SampleError


def libjpeg_is_silent(data: bytes) -> bool:
    try:
        count, _ = core.jpeg_check(data)
    except SampleError:
        return False
    return count == 0


def proved(data: bytes) -> bool:
    try:
        return core.JpegPreparer().prepare(data).sound
    except SampleError:
        return False


USUAL = [
    {"quality": quality, "subsampling": subsampling, "optimize": optimize, **restart}
    for quality in (5, 60, 95, 100)
    for subsampling in (0, 1, 2)
    for optimize in (False, True)
    for restart in ({}, {"restart_marker_blocks": 3}, {"restart_marker_rows": 1})
]


@pytest.mark.parametrize("options", USUAL, ids=str)
def test_usual_files_are_proved(options: dict[str, object]) -> None:
    """Baseline files of all qualities, subsamplings, table kinds and restarts, colour and grey, of whole and broken blocks."""
    for height, width in ((64, 48), (61, 83), (1, 1), (8, 200), (250, 330)):
        image = picture(height, height, width)
        assert proved(encoded(image, **options))
        grey = {name: value for name, value in options.items() if name != "subsampling"}
        assert proved(encoded(image.convert("L"), **grey))


def test_the_corpus_is_proved(shared: Path) -> None:
    """Real photographs: the fast path is the path that is taken."""
    files = sorted((shared / "corpus" / "in500").rglob("*.jpg"))
    preparer = core.JpegPreparer()
    assert all(preparer.prepare(path.read_bytes()).sound for path in files)


@pytest.mark.parametrize("seed", range(8))
def test_it_never_vouches_for_what_libjpeg_warns_of(seed: int) -> None:
    """Flipped bits, cut ends, doubled and lost stretches, in header and scan: proved only if libjpeg-turbo is silent."""
    rng = random.Random(seed)
    options = rng.choice(USUAL)
    data = encoded(picture(seed, 60 + seed, 70), **options)
    preparer = core.JpegPreparer()  # one for all: tables that it remembers must not leak from file to file
    vouched = 0
    for _ in range(600):
        broken = bytearray(data)
        for _ in range(rng.choice((1, 1, 1, 4))):
            at = rng.randrange(2, len(broken))
            what = rng.randrange(5)
            if what == 0:
                broken[at] ^= 1 << rng.randrange(8)
            elif what == 1:
                broken[at] = rng.choice((0, 0xFF, 0xD0, 0xD9))
            elif what == 2:
                del broken[at : at + rng.randrange(1, 30)]
            elif what == 3:
                broken[at:at] = broken[at : at + rng.randrange(1, 30)]
            else:
                del broken[rng.randrange(len(broken) // 2, len(broken)) :]
                break
        try:
            sound = preparer.prepare(bytes(broken)).sound
        except SampleError:
            continue
        if sound:
            vouched += 1
            assert libjpeg_is_silent(bytes(broken)), f"seed {seed}: {broken.hex()}"
    assert proved(data)
    # Most single flipped bits in a scan give another valid file: a walk that never vouched would prove nothing here.
    assert vouched > 0, f"seed {seed}"


def test_tables_of_the_last_file_do_not_serve_the_next() -> None:
    """A file without tables of its own is not proved with those of the file before it."""
    data = encoded(picture(1, 40, 40))
    preparer = core.JpegPreparer()
    assert preparer.prepare(data).sound
    start = data.index(b"\xff\xc4")
    end = data.index(b"\xff\xda")
    assert not preparer.prepare(data[:start] + data[end:]).sound
