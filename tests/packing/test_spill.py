"""Spilled lists give what lists in memory give, and a listing of many samples takes little memory."""

from __future__ import annotations

import errno
import json
import os
import random
import sys
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
from handles import descriptors, opened_since
from packing_helpers import encoded, picture, tree

from fastload.common import folders, spill
from fastload.common.folders import IMAGE_EXTENSIONS
from fastload.common.spill import Numbers, Texts, TextSorter
from fastload.errors import PackError
from fastload.packing import pack
from fastload.packing.job import PackJob
from fastload.packing.options import PackOptions
from fastload.packing.origins import shuffled
from fastload.sources import folder as folder_source
from fastload.sources import unpacked
from fastload.sources.folder import FolderSource
from fastload.sources.unpacked import UnpackedSource
from fastload.store import Field, Schema

T = TypeVar("T")
MANY = 50_000


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits on memory that small lists reach."""
    monkeypatch.setattr(spill, "MEMORY_BYTES", 500)
    monkeypatch.setattr(spill, "RUN_BYTES", 3000)
    monkeypatch.setattr(spill, "SORTED_AT_ONCE", 100)


def peak(action: Callable[[], T]) -> tuple[T, int]:
    """The result of an action, and the most memory that Python's objects took at once meanwhile."""
    tracemalloc.start()
    try:
        return action(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("count", [0, 1, 511, 512, 513, 5000])
@pytest.mark.usefixtures("small")
def test_texts(count: int) -> None:
    """Each text is read as it was appended, in any order, by any thread."""
    texts = [os.urandom(i % 37) for i in range(count)]
    found = Texts()
    for text in texts:
        found.append(text)
    found.seal()
    assert len(found) == count
    assert list(found) == texts
    order = random.Random(1).sample(range(count), count)
    assert [found[i] for i in order] == [texts[i] for i in order]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(found.__getitem__, range(count))) == texts
    for outside in (-1, count):
        with pytest.raises(IndexError):
            found[outside]


@pytest.mark.usefixtures("small")
def test_numbers() -> None:
    """Numbers at a position, in a range and at many positions are those that were appended."""
    values = np.random.default_rng(0).integers(0, 2**64, 3000, dtype=np.uint64)
    found = Numbers("<u8")
    for part in np.array_split(values, 13):
        found.extend(part)
    found.seal()
    positions = np.random.default_rng(1).permutation(3000)
    assert (found.take(positions) == values[positions]).all()
    assert (found.take(np.arange(100, 900)) == values[100:900]).all()
    assert (found.read(2990, 4000) == values[2990:]).all()
    assert (np.concatenate(list(found.blocks(700))) == values).all()
    assert found[7] == values[7]


@pytest.mark.parametrize("limit", [100, 3000, 1 << 30])
def test_sorted_texts(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The texts come in the order of `sorted`, from one run or many; long, empty and equal ones too. A
    sorter can be used again."""
    monkeypatch.setattr(spill, "RUN_BYTES", limit)
    draws, sorter = random.Random(2), TextSorter()
    texts = [draws.randbytes(draws.choice((0, 1, 3, 3, 3, 20))) for _ in range(2000)] + [
        b"x" * 200_000,
        b"x" * 65_532,
    ]
    for _ in range(2):
        for text in texts:
            sorter.add(text)
        assert list(sorter.drain()) == sorted(texts)
    assert list(sorter.drain()) == []


def whole_shuffle(names: np.ndarray, seed: int) -> np.ndarray:
    """The order of a shuffle by its definition, on whole arrays."""
    mixed = sys.modules["fastload.packing.origins"]._mixed  # type: ignore[attr-defined]
    seen: dict[int, int] = {}
    repeats = np.array(
        [seen.__setitem__(name, seen.get(name, -1) + 1) or seen[name] for name in names.tolist()], np.uint64
    )
    return np.argsort(
        mixed(mixed(names + mixed(repeats)) ^ mixed(np.full(1, seed, np.uint64))), kind="stable"
    )


@pytest.mark.parametrize("count", [1, 99, 100, 101, 5000])
@pytest.mark.usefixtures("small")
def test_shuffle_by_parts(count: int) -> None:
    """A shuffle whose keys are sorted part by part is that of all keys at once, also of equal names."""
    draws = np.random.default_rng(count)
    names = draws.integers(0, 2**64, count, dtype=np.uint64)[draws.integers(0, max(1, count // 3), count)]
    found = shuffled(Numbers("<u8", names), 5)
    assert found.read(0, count).tolist() == whole_shuffle(names, 5).tolist()


def imagefolder(root: Path) -> list[tuple[str, int]]:
    """(path, label) of all images of a folder, by `sorted` alone."""
    found = []
    for label, name in enumerate(sorted(entry.name for entry in os.scandir(root) if entry.is_dir())):
        for at, _, files in sorted(os.walk(root / name, followlinks=True)):
            found += [
                (os.path.join(at, file), label)
                for file in sorted(files)
                if file.lower().endswith(IMAGE_EXTENSIONS)
            ]
    return found


ODD = [
    "a.jpg", "B.jpg", "b.JPG", "Z.Png", " lead.jpg", "two  spaces.jpg", "é.jpg", "e\u0301.jpg", "日本.png",
    "\U0001f600.jpg", "\ue000.jpg",
    "\ufffd.jpg", "\udc80.jpg", "\udcff\udc80.jpg", "x\udce9.jpg", "line\nbreak.jpg", "10.jpg", "9.jpg",
    "-.jpg", "~.jpg", ".jpg",
    "\x01.jpg",
    "sub/a.jpg", "sub-x/a.jpg", "sub/deep/a.jpg", "sub.jpg/in.jpg", "sub x/a.jpg", "SUB/a.jpg",
    "\udcff/a.jpg", "\uffee/a.jpg",
    "\U00010000/a.jpg",
    "notes.txt", "sub/notes.txt", "kelvin.jp\u212a", "a.gif",
]  # fmt: skip


@pytest.mark.parametrize("limit", [100, 1 << 30])
def test_order_of_odd_names(tmp_path: Path, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples, labels and keys are in the order of `sorted`, whatever is in names: bytes that are no UTF-8,
    spaces, cases, code points above those of surrogates; also where the names of a class are sorted by
    runs."""
    monkeypatch.setattr(spill, "RUN_BYTES", limit)
    monkeypatch.setattr(spill, "MEMORY_BYTES", limit)
    for top in ("cat", "Dog", "\udcfe", "\ue001", "c at"):
        for name in ODD:
            path = os.fsencode(os.path.join(tmp_path, top, name))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb"):
                pass
    os.symlink(tmp_path / "cat" / "sub", tmp_path / "Dog" / "link")
    os.symlink(tmp_path / "nowhere", tmp_path / "Dog" / "gone.txt")
    source = FolderSource(str(tmp_path))
    oracle = imagefolder(tmp_path)
    assert [(source.name(i), source.fields_of(i)["label"]) for i in range(len(source))] == oracle
    assert [source.key(i) for i in range(len(source))] == [
        os.path.relpath(path, tmp_path) for path, _ in oracle
    ]
    assert [source.read(i).name for i in range(len(source))] == [path for path, _ in oracle]
    left_out = {notice.kind: notice for notice in source.notices}
    assert left_out[".gif"].count == 5
    part = source.with_rows([7, 3], source.rows([7, 3]))
    assert len(part) == len(source)
    assert [part.name(3), part.name(7)] == [oracle[3][0], oracle[7][0]]


def test_listing_order_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system may list in any order: samples and examples of what is left out are the same."""
    tree(tmp_path, {f"c{i % 2}/{i % 5}/{i}.{'jpg' if i % 3 else 'txt'}": b"" for i in range(300)})
    there = FolderSource(str(tmp_path))
    listed = folders.files_below

    def backwards(top: str) -> Iterator[tuple[str, str]]:
        yield from reversed(list(listed(top)))

    monkeypatch.setattr(folder_source, "files_below", backwards)
    again = FolderSource(str(tmp_path))
    assert [again.name(i) for i in range(len(again))] == [there.name(i) for i in range(len(there))]
    assert again.notices == there.notices


@pytest.mark.long
def test_memory_of_a_listing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Listing 50,000 files, and the digests of their names, take less than 10 bytes a sample at their peak,
    runs and lists in memory included; and hardly more than a listing of a quarter of them."""
    tree(tmp_path, {"a/0.jpg": b"", "b/0.jpg": b""})
    monkeypatch.setattr(spill, "MEMORY_BYTES", 1 << 16)
    monkeypatch.setattr(spill, "RUN_BYTES", 1 << 18)
    monkeypatch.setattr(spill, "SORTED_AT_ONCE", 1 << 13)
    count = MANY

    def listing(top: str) -> Iterator[tuple[str, str]]:
        for number in range(count // 2):
            yield f"{top}/{number % 7}", f"image_{number * 7919 % count:09}.jpg"

    monkeypatch.setattr(folder_source, "files_below", listing)

    held, small = peak(lambda: FolderSource(str(tmp_path)))
    assert small < 10 * MANY
    assert held.name(MANY - 1) > held.name(0)
    job, most = peak(lambda: PackJob(held, PackOptions()))
    assert most < 10 * MANY
    assert len(job.order) == MANY
    count = MANY // 4
    assert small < peak(lambda: FolderSource(str(tmp_path)))[1] + (1 << 19)


@pytest.mark.usefixtures("small")
def test_datasets_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pack whose lists are in temporary files gives the bytes of one whose lists are in memory: at once,
    and stopped and resumed."""
    source = tree(
        tmp_path / "src", {f"c{i % 2}/{i}.jpg": encoded(picture(i, 20 + i % 7, 30)) for i in range(120)}
    )
    options = {"shuffle": True, "seed": 4, "shard_samples": 11}
    pack(source, tmp_path / "spilled", **options)
    with monkeypatch.context() as stopped:
        calls = iter(range(70))
        read = FolderSource.read

        def failing(self: FolderSource, position: int) -> object:
            if next(calls, None) is None:
                raise KeyboardInterrupt
            return read(self, position)

        stopped.setattr(FolderSource, "read", failing)
        with pytest.raises(KeyboardInterrupt):
            pack(source, tmp_path / "resumed", workers=1, **options)
    summary = pack(source, tmp_path / "resumed", resume=True, **options)
    assert 0 < summary.packed_now < 120
    monkeypatch.undo()
    pack(source, tmp_path / "whole", **options)
    wholes = {path.name: path.read_bytes() for path in (tmp_path / "whole").iterdir()}
    for name in ("spilled", "resumed"):
        assert {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} == wholes


@pytest.mark.usefixtures("small")
def test_a_full_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk without room for the list is one sentence, which names the folder and TMPDIR."""

    def write(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    tree(tmp_path, {f"c/{i:040}.jpg": b"" for i in range(50)})
    monkeypatch.setattr(spill.os, "write", write)
    with pytest.raises(PackError, match=rf"{tempfile.gettempdir()}: the disk is full.*TMPDIR"):
        FolderSource(str(tmp_path))


def test_temporary_files_end_with_their_lists(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing has a name in the folder for temporary files, and no descriptor stays open."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(spill, "MEMORY_BYTES", 100)
    before = descriptors()
    lists = [Numbers("<i8", range(100)) for _ in range(5)]
    assert len(opened_since(before)) == 5
    assert list(tmp_path.iterdir()) == []
    del lists
    assert not opened_since(before)


@pytest.mark.long
def test_memory_of_an_unpacked_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The source of an unpacked folder of 25,000 samples, the digests of their names, and the search for
    pictures that no line names take less than 20 bytes a sample at their peak, and hardly more than those of
    a quarter of them."""
    monkeypatch.setattr(spill, "MEMORY_BYTES", 1 << 14)
    monkeypatch.setattr(spill, "RUN_BYTES", 1 << 17)
    monkeypatch.setattr(unpacked, "_BLOCK", 1 << 16)
    schema = Schema((Field("image", "image"), Field("label", "int")))
    about = {"fields": schema.to_json(), "classes": None, "path": "file_name"}
    tree(tmp_path, {"fastload.json": json.dumps(about).encode()})

    def listing(top: str) -> Iterator[tuple[str, str]]:
        for number in range(-1, count):
            yield f"{top}/{number % 7}", f"image_{number * 7919 % MANY:09}.jpg"

    monkeypatch.setattr(unpacked, "files_below", listing)
    peaks = []
    for count in (MANY // 8, MANY // 2):
        with open(tmp_path / "fields.jsonl", "w") as file:
            file.writelines(
                f'{{"file_name": "{n % 7}/image_{n * 7919 % MANY:09}.jpg", "label": {n}}}\n'
                for n in range(count)
            )

        def opened() -> UnpackedSource:
            source = UnpackedSource(str(tmp_path))
            PackJob(source, PackOptions())
            assert [(notice.kind, notice.count) for notice in source.notices] == [("unlisted", 1)]
            return source

        source, most = peak(opened)
        assert source.key(count - 1) == f"{(count - 1) % 7}/image_{(count - 1) * 7919 % MANY:09}.jpg"
        peaks.append(most)
    assert peaks[1] < 20 * MANY // 2
    assert peaks[1] < peaks[0] + (1 << 17)
