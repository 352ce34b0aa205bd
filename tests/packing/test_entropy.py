"""The entropy walk: it never vouches for a file of which libjpeg-turbo has something to say, and vouches
for every usual one."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path

import pytest
from coded_jpegs import EOB, ZRL, file_of, padded, random_file
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
    """Baseline files of all qualities, subsamplings, table kinds and restarts, colour and grey, of whole
    and broken blocks."""
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
    """Flipped bits, cut ends, doubled and lost stretches, in header and scan: proved only if libjpeg-turbo
    is silent."""
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
    # Most single flipped bits in a scan give another valid file: a walk that never vouched would prove
    # nothing here.
    assert vouched > 0, f"seed {seed}"


def test_tables_of_the_last_file_do_not_serve_the_next() -> None:
    """A file without tables of its own is not proved with those of the file before it."""
    data = encoded(picture(1, 40, 40))
    preparer = core.JpegPreparer()
    assert preparer.prepare(data).sound
    start = data.index(b"\xff\xc4")
    end = data.index(b"\xff\xda")
    assert not preparer.prepare(data[:start] + data[end:]).sound


SHORT_ZRL = {"dc": {0: "0", 1: "10"}, "ac": {ZRL: "0", EOB: "10"}}


@pytest.mark.parametrize("runs", range(5, 14))
def test_plain_runs_over_the_end_of_a_block_are_not_its_end(runs: int) -> None:
    """Runs of zeros that add up beyond a block, in one window of the walk, are never taken for its end."""
    data = file_of(padded("0" * (1 + runs) * 64), 512, **SHORT_ZRL)
    assert not libjpeg_is_silent(data)
    assert not proved(data)


@pytest.mark.parametrize("seed", range(4))
def test_any_tables_are_proved_and_only_where_libjpeg_is_silent(seed: int) -> None:
    """Random Huffman tables, samplings and restarts are proved; with a bit of the coded data changed, only
    if libjpeg is silent."""
    rng = random.Random(seed)
    preparer = core.JpegPreparer()
    for _ in range(25):
        data = random_file(rng)
        assert libjpeg_is_silent(data), f"seed {seed}: {data.hex()}"
        assert preparer.prepare(data).sound, f"seed {seed}: {data.hex()}"
        for _ in range(5):
            broken = bytearray(data)
            broken[rng.randrange(data.index(b"\xff\xda") + 10, len(data) - 2)] ^= 1 << rng.randrange(8)
            if preparer.prepare(bytes(broken)).sound:
                assert libjpeg_is_silent(bytes(broken)), f"seed {seed}: {broken.hex()}"


def decodes(data: bytes) -> bool:
    try:
        core.jpeg_decode(data)
    except SampleError:
        return False
    return True


def test_samplings_and_sides_that_libjpeg_refuses_are_not_proved() -> None:
    """Of all sampling factors and of the longest sides, those are proved that libjpeg decodes; others it
    calls fractional or too big."""
    tables = {"dc": {0: "0"}, "ac": {EOB: "0"}}
    for sampling in product(product((1, 2, 3, 4), repeat=2), repeat=3):
        blocks = sum(h * v for h, v in sampling)
        if blocks <= 10:
            width, height = 16 * max(h for h, _ in sampling) - 3, 8 * max(v for _, v in sampling)
            data = file_of(padded("00" * blocks * 2), width, height, sampling=sampling, **tables)
            assert proved(data) == decodes(data), sampling
    for side in (65500, 65501, 65535):
        for width, height in ((side, 8), (8, side)):
            data = file_of(padded("00" * ((side + 7) // 8)), width, height, **tables)
            assert proved(data) == decodes(data) == (side == 65500)
