"""Entropy indexes of lazy images: pixels are Pillow's with them and without, whatever became of a file, and
whatever anybody wrote where they are kept."""

from __future__ import annotations

import io
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from handles import none_left
from lazy_helpers import files, is_lazy, jpeg, outcome
from pictures import photo
from PIL import Image

from fastload._native import core
from fastload.errors import ArgumentError
from fastload.lazy import compressed, indexes
from fastload.lazy.compressed import CompressedImage
from fastload.lazy.indexes import FileIndex
from fastload.lazy.opening import opened_lazily

ROOM = 4 << 20
TABLE = 12288
"""Bytes of shared memory that are taken before any index is kept."""
Pixels = npt.NDArray[np.uint8]


def picture(number: int, **options: Any) -> bytes:
    """A JPEG that is large enough for an index."""
    return jpeg(photo(number, 300, 400), quality=96, **options)


def kinds() -> dict[str, bytes]:
    """Files with an index, and odd ones."""
    grey = jpeg(photo(4, 300, 400).convert("L"), quality=99)
    return {
        "420": picture(1, subsampling=2),
        "422": picture(2, subsampling=1),
        "444": picture(3, subsampling=0),
        "grey": grey,
        "restarts": picture(5, restart_marker_blocks=7),
        "trailing": picture(6) + b"\xff\xd9 and more",
        "progressive large": picture(7, progressive=True),
        "damaged large": broken(picture(8), 0.3),
    } | {f"small {name}": data for name, data in files().items()}


def broken(data: bytes, where: float) -> bytes:
    """A file of the same size with wrong bits in its coded data, at a share of them."""
    begin = data.index(b"\xff\xda") + 14
    at = begin + int((len(data) - begin) * where)
    out = bytearray(data)
    for i in range(at, at + 8):
        if 0xFF not in (out[i - 1], out[i], out[i] ^ 0x35):
            out[i] ^= 0x35
    assert bytes(out) != data
    return bytes(out)


@contextmanager
def lazily(shared: core.SharedIndexes | None) -> Iterator[None]:
    """Images that are opened here are lazy, and find their indexes there."""
    with opened_lazily("exact", shared):
        yield


def crop_of(data: bytes, rng: random.Random) -> Callable[[], Any]:
    """A program that opens a file, and looks at a random part of it."""
    share, left, upper, way = rng.uniform(0.1, 0.9), rng.random(), rng.random(), rng.randrange(3)

    def program() -> Any:
        image = Image.open(io.BytesIO(data))
        width, height = (max(1, int(side * share)) for side in image.size)
        x, y = int(left * (image.width - width)), int(upper * (image.height - height))
        image = image.convert("RGB") if way else image
        part = image.crop((x, y, x + width, y + height))
        return np.asarray(part if way < 2 else part.resize((50, 40), Image.Resampling.BILINEAR)).tolist()

    return program


def found_and_kept(shared: core.SharedIndexes) -> tuple[int, int]:
    return shared.found, shared.learnt()[0]


def bottom(data: bytes) -> Pixels:
    """The lower right part of an image, for which nothing above is needed but by who has no index."""
    image = Image.open(io.BytesIO(data))
    return np.asarray(image.crop((image.width - 90, image.height - 60, image.width, image.height)))


def test_pixels_are_pillows_in_every_epoch() -> None:
    """Of random parts of files of all kinds, while indexes are made and when they are found."""
    shared, rng = core.SharedIndexes(ROOM), random.Random(5)
    names = kinds()
    for epoch in range(3):
        for name, data in names.items():
            program = crop_of(data, rng)
            plain = outcome(program)
            with lazily(shared):
                assert outcome(program) == plain, (epoch, name)
        if not epoch:
            made = found_and_kept(shared)
    with_index = ("420", "422", "444", "grey", "restarts", "trailing")
    assert made[0] == 0
    assert len(with_index) <= made[1] <= len(with_index) + 1  # of the damaged file as far as the damage
    assert found_and_kept(shared)[0] >= 2 * len(with_index)


def test_odd_files_of_others(shared: Path) -> None:
    """Real odd and broken JPEGs, whole and in parts, three times."""
    folder = shared / "torture"
    if not folder.is_dir():
        pytest.skip("no torture files in the shared folder")
    kept, rng, compared = core.SharedIndexes(ROOM), random.Random(6), 0
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        if path.suffix == ".csv" or len(data) > 1 << 20:
            continue
        for _ in range(3):
            program = crop_of(data, rng)
            plain = outcome(program)
            with lazily(kept):
                assert outcome(program) == plain, path.name
            compared += 1
    assert compared > 60
    assert kept.found > 10


def test_real_photographs(shared: Path) -> None:
    """Of a corpus, by random parts; nearly all have an index, in at most 2 % of their bytes."""
    folder = shared / "corpus" / "in500"
    if not folder.is_dir():
        pytest.skip("no corpus in the shared folder")
    kept, rng = core.SharedIndexes(ROOM), random.Random(7)
    paths = sorted(folder.rglob("*.jp*g"))[::7][:60]
    for _ in range(2):
        for path in paths:
            program = crop_of(path.read_bytes(), rng)
            plain = outcome(program)
            with lazily(kept):
                assert outcome(program) == plain, path.name
    found, held = kept.learnt()
    assert kept.found == found > 0.8 * len(paths)
    assert held - TABLE <= 0.02 * sum(path.stat().st_size for path in paths)


def test_an_index_takes_at_most_its_share() -> None:
    """Also of small files, of which most have none; every entry counts."""
    shared, size = core.SharedIndexes(ROOM), 0
    for number in range(60):
        data = jpeg(photo(number, 40 + 4 * number, 60 + 5 * number), quality=70 + number // 2)
        size += len(data)
        with lazily(shared):
            bottom(data)
    found, held = shared.learnt()
    assert 10 < found < 60
    assert held - TABLE <= 0.02 * size


def same_stamp(path: Path, data: bytes) -> None:
    """Puts other bytes into a file, whose size, times of change and inode stay."""
    before = path.stat()
    assert len(data) == before.st_size
    with open(path, "r+b") as file:
        file.write(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns


@pytest.mark.parametrize("by_name", [False, True])
def test_a_file_that_changes_behind_its_name(tmp_path: Path, by_name: bool) -> None:
    """Another photograph of the same size and time, and the same one with damage above what is looked at."""
    shared, path, first = core.SharedIndexes(ROOM), tmp_path / "photo.jpg", picture(11)
    other = picture(12, subsampling=0)[: len(first)]
    other = other[:-2] + b"\xff\xd9" if len(other) == len(first) else other.ljust(len(first), b"\0")
    path.write_bytes(first)

    def program() -> Any:
        if by_name:
            image = Image.open(path)
        else:
            with open(path, "rb") as file:
                image = Image.open(file)
                image.load()
        return np.asarray(image.crop((10, image.height - 40, 90, image.height))).tolist()

    for data in (first, other, broken(first, 0.2), first, picture(13)[:5000].ljust(len(first), b"\xff")):
        same_stamp(path, data)
        plain = outcome(program)
        for _ in range(2):
            with lazily(shared):
                assert outcome(program) == plain
    assert shared.found >= 3


@pytest.mark.parametrize("where", [0.02, 0.3, 0.6])
def test_damage_above_the_part_that_is_looked_at(where: float) -> None:
    """A known index does not hide it: what Pillow makes of damaged data shifts all that follows."""
    shared, data = core.SharedIndexes(ROOM), picture(14)
    damaged = broken(data, where)
    with lazily(shared):
        whole = bottom(data)
        seen = bottom(damaged)
    assert np.array_equal(whole, bottom(data))
    assert np.array_equal(seen, bottom(damaged))
    assert not np.array_equal(whole, seen)


LIES = ("nothing", "noise", "another's", "cut", "longer", "zeros", "widths")


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_about_a_file_is_found_out(lie: str) -> None:
    """An index under the key of another file, or no index at all, costs time and no pixel."""
    rng = random.Random(lie)
    for number in range(12):
        data = picture(20 + number, subsampling=number % 3)
        own = core.JpegPreparer().index(data)
        told = {
            "nothing": b"",
            "noise": own[:10] + rng.randbytes(len(own) - 10),
            "another's": core.JpegPreparer().index(picture(40 + number, subsampling=number % 3)),
            "cut": own[:-3],
            "longer": own + b"\0",
            "zeros": own[:10] + bytes(len(own) - 10),
            "widths": own[:2] + rng.randbytes(8) + own[10:],
        }[lie]
        shared = core.SharedIndexes(1 << 20)
        assert shared.keep(core.index_key(data, len(data)), told)
        program = crop_of(data, rng)
        plain = outcome(program)
        with lazily(shared):
            assert outcome(program) == plain
        assert shared.found == bool(told)


def test_full_memory_keeps_what_it_has() -> None:
    """It grows no further, nothing is noted of files that are not kept, and pixels stay Pillow's."""
    shared, others = core.SharedIndexes(1 << 16), 24
    assert all(shared.keep(number + 1, bytes(2000)) for number in range(others))
    datas = [picture(60 + number) for number in range(30)]
    for epoch in range(2):
        for data in datas:
            with lazily(shared):
                seen = bottom(data)
            assert np.array_equal(seen, bottom(data))
        assert shared.full
        found, held = shared.learnt()
        assert others < found < others + len(datas)
        assert held <= shared.room
        assert shared.found == epoch * (found - others)
    assert not any(FileIndex(shared, data, len(data)).learns for data in datas)


def test_an_index_grows_once() -> None:
    """A part of the upper rows teaches these; the first that goes beyond completes the index."""
    shared, data = core.SharedIndexes(ROOM), picture(73)
    key, sizes = core.index_key(data, len(data)), []
    for lower in (100, 90, 200, 300, 250):
        with lazily(shared):
            seen = np.asarray(Image.open(io.BytesIO(data)).crop((30, 20, 200, lower)))
        assert np.array_equal(seen, np.asarray(Image.open(io.BytesIO(data)).crop((30, 20, 200, lower))))
        sizes.append(len(shared.find(key) or b""))
    assert 0 < sizes[0] == sizes[1] < sizes[2] == sizes[3] == sizes[4]
    assert shared.learnt()[0] == 1
    assert shared.learnt()[1] - TABLE <= 0.02 * len(data)


def test_what_is_kept_settles() -> None:
    """Of small files too, for which no index of all rows is small enough: after some parts of each nothing
    more is kept, and no decode reads on for an index."""
    shared, rng = core.SharedIndexes(ROOM), random.Random(8)
    datas = [
        jpeg(photo(number, 160 + 9 * number, 90 + 7 * number), quality=75 + number, subsampling=number % 3)
        for number in range(20)
    ]
    held = []
    for epoch in range(12):
        for data in datas:
            program = crop_of(data, rng)
            plain = outcome(program)
            with lazily(shared):
                assert outcome(program) == plain
        held.append(shared.learnt()[1])
        if epoch == 5:
            with lazily(shared):
                assert all(np.array_equal(bottom(data), bottom(data)) for data in datas)
    assert held[7] == held[-1]
    assert held[-1] - TABLE <= 0.02 * sum(map(len, datas))
    for data in datas:
        index = FileIndex(shared, data, len(data))
        assert not index.learns or index.known[10] & 0x80  # no more can be known


def test_who_gives_no_indexes_has_none() -> None:
    """Without them nothing is made or kept; within a block of one loader's, another's are not touched."""
    outer, inner, data = core.SharedIndexes(ROOM), core.SharedIndexes(ROOM), picture(70)
    with lazily(None):
        bottom(data)
    with lazily(outer):
        with lazily(inner):
            bottom(data)
        assert (outer.learnt()[0], inner.learnt()[0]) == (0, 1)
        bottom(data)
    assert outer.learnt()[0] == 1
    assert indexes.in_use() is None


def test_an_image_that_was_never_looked_at_is_not_read() -> None:
    """Opening, cropping and loading make no index."""
    shared = core.SharedIndexes(ROOM)
    with lazily(shared):
        image = Image.open(io.BytesIO(picture(71)))
        image.load()
        part = image.crop((0, 0, 50, 50))
        assert is_lazy(part)
        assert shared.learnt()[0] == 0
        assert part.getpixel((0, 0))
        assert shared.learnt()[0] == 1


def test_regions_cost_their_share_with_an_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two small parts of a file with an index are two small decodes; without one, the second takes the
    whole."""
    data, decoded = picture(72), []
    real = CompressedImage._decode

    def told(self: CompressedImage, area: Any, eighths: int) -> bool:
        decoded.append((area.width, area.height))
        return real(self, area, eighths)

    monkeypatch.setattr(CompressedImage, "_decode", told)
    for shared, expected in (
        (None, [(160, 300), (400, 300)]),
        (core.SharedIndexes(ROOM), [(160, 300), (160, 300)]),
    ):
        decoded.clear()
        compressed._begin_anew()
        with lazily(shared):
            image = Image.open(io.BytesIO(data))
            parts = [image.crop((x, 0, x + 160, 300)) for x in (0, 240)]
            seen = [np.asarray(part) for part in parts]
        assert decoded == expected
        whole = np.asarray(Image.open(io.BytesIO(data)))
        assert np.array_equal(seen[0], whole[:, :160])
        assert np.array_equal(seen[1], whole[:, 240:])


def test_what_one_exports_another_learns() -> None:
    """All entries, once; and arrays that do not fit are refused."""
    one, other = core.SharedIndexes(ROOM), core.SharedIndexes(ROOM)
    with lazily(one):
        for number in range(5):
            bottom(picture(80 + number))
    keys, sizes, held = one.export()
    assert len(keys) == 5
    assert min(sizes) > 0
    other.learn(keys, sizes, held)
    other.learn(keys, sizes, held)
    assert other.learnt() == one.learnt()
    assert all(other.find(int(key)) == one.find(int(key)) for key in keys)
    for wrong in ((keys[:-1], sizes, held), (keys, sizes, held[:-1]), (keys, sizes, held + b"x")):
        with pytest.raises(ArgumentError):
            other.learn(*wrong)


def test_memory_goes_with_its_last_user() -> None:
    """Two mappings of one memory see the same; nothing is left of either."""
    with none_left("shared_indexes"):
        one = core.SharedIndexes(ROOM)
        other = core.SharedIndexes(fd=os.dup(one.fd))
        assert one.keep(5, b"index")
        one.release_fd()
        assert one.fd == -1
        del one
        assert other.find(5) == b"index"
        assert other.find(6) is None
        assert other.room == ROOM
        del other


@pytest.mark.parametrize("given", [{"room": 100}, {"fd": "slot"}, {"fd": "closed"}])
def test_other_memory_is_refused(given: dict[str, Any]) -> None:
    """Too little, or what is no memory of indexes."""
    slot = core.SharedSlot(1 << 20)
    descriptors = {"slot": os.dup(slot.fd), "closed": 10**6}
    if "fd" in given:
        given = {"fd": descriptors[given["fd"]]}
    with pytest.raises(ArgumentError):
        core.SharedIndexes(**given)


def test_keys_are_of_the_bytes_alone() -> None:
    """A key is that of the first bytes of a file, and no file has too few."""
    data = picture(90)
    assert core.index_key(data, len(data)) == core.index_key(data + b"more", len(data))
    assert core.index_key(data, len(data)) != core.index_key(data, len(data) - 1)
    with pytest.raises(ArgumentError):
        core.index_key(data, len(data) + 1)
