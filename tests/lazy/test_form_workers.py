"""Forms that decode faster of the JPEGs that a Dataset opens: workers make them while they rest, in the
folder of cache=, and find each other's. Batches are torch's in every epoch."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lazy_helpers import lazily, with_damage
from own_photos import OwnPhotos
from pictures import photo
from PIL import Image
from test_index_workers import COUNT, Crop, Stream, epochs
from torch.utils.data import DataLoader
from typer.testing import CliRunner

from fastload import FastLoader
from fastload._native import core
from fastload.cli.main import app
from fastload.dataset.kept_folder import shares_of
from fastload.dataset.opened_forms import FormsPlace, OpenedForms
from fastload.lazy import indexes
from fastload.remote.kept_table import CachePlace

OPTIONS: dict[str, Any] = {"batch_size": 2, "num_workers": 2, "persistent_workers": True}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Photographs: two grey, one of them progressive, one damaged, and one with bytes behind its end."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(COUNT):
        image = photo(number, 180 + 10 * number, 290)
        image = image.convert("L") if number in (4, 5) else image
        options = {} if image.mode == "L" else {"subsampling": number % 3}
        image.save(folder / f"{number}.jpg", quality=90, progressive=number == 5, **options)
    path = folder / "6.jpg"
    path.write_bytes(with_damage(path.read_bytes()))
    with open(folder / "7.jpg", "ab") as file:
        file.write(b"behind the end")
    return folder


def folder_of(cache: Path) -> Path:
    (table,) = cache.rglob("*.table")
    return table.parent


def forms(cache: Path) -> int:
    """Files that are there in a form that decodes faster."""
    return sum(share.forms for share in shares_of(folder_of(cache)))


def come(cache: Path, count: int) -> bool:
    """Waits until so many forms are there, which a loop makes that rests."""
    ends = time.monotonic() + 60
    while forms(cache) < count and time.monotonic() < ends:
        time.sleep(0.01)
    return forms(cache) == count


MADE = COUNT - 2
"""Files that get a form: not the damaged one, nor the progressive one, which Pillow loads."""


@pytest.mark.parametrize("context", ["fork", "spawn"])
@pytest.mark.parametrize("kind", [OwnPhotos, Stream])
def test_made_while_the_loop_is_busy(root: Path, tmp_path: Path, context: str, kind: Any) -> None:
    """And of use from then on, to other runs, too; explain() tells their number."""
    make = (lambda: OwnPhotos(root, Crop())) if kind is OwnPhotos else (lambda: Stream(root))
    cache, options = tmp_path / "cache", {**OPTIONS, "multiprocessing_context": context}
    expected = epochs(DataLoader(make(), **options), 3)
    with FastLoader(make(), **options, cache=cache) as loader:
        torch.manual_seed(3)
        first = [[part.tolist() for part in batch] for batch in loader]
        assert come(cache, MADE)
        rest = [[[part.tolist() for part in batch] for batch in loader] for _ in range(2)]
        assert ([first, *rest], torch.get_rng_state().tolist()) == expected
        assert f"{MADE} files are there in a form that decodes faster" in told(loader)
    shown = CliRunner().invoke(app, ["cache", "--cache", str(cache)]).output
    assert f"{MADE} files that a Dataset opens, in a form that decodes faster" in shown
    assert "0 damaged" in CliRunner().invoke(app, ["cache", "--cache", str(cache), "--verify"]).output
    for path in folder_of(cache).glob("*.index"):
        path.unlink()
    with FastLoader(make(), **options, cache=cache) as loader:
        assert epochs(loader, 3) == expected
        opened = loader._fastload.opened
        assert opened is not None
        assert opened.memory is not None
        assert opened.memory.learnt()[0] <= 1  # no file with a form was read without it


def told(loader: FastLoader[Any]) -> str:
    return " ".join(loader.explain(all=True).split())


def test_what_is_kept_is_never_another_file_s(root: Path, tmp_path: Path) -> None:
    """Logs that were damaged, forms under other keys, forms of no image: batches stay torch's."""
    data, cache = OwnPhotos(root, Crop()), tmp_path / "cache"
    expected = epochs(DataLoader(data, **OPTIONS), 1)
    with FastLoader(data, **OPTIONS, cache=cache) as loader:
        assert epochs(loader, 1) == expected
        assert come(cache, MADE)
    for log in folder_of(cache).glob("*.log"):
        raw = bytearray(log.read_bytes())
        raw[::97] = bytes(each ^ 0x10 for each in raw[::97])
        log.write_bytes(raw)
    with FastLoader(data, **OPTIONS, cache=cache) as loader:
        assert epochs(loader, 1) == expected


def test_forms_that_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another size, cut short, or of no image: the file itself is decoded."""
    path = tmp_path / "a.jpg"
    photo(1, 90, 120).save(path)
    data = path.read_bytes()
    mine, other = (core.DctCoder().encode(each)[0] for each in (data, other_file(tmp_path)))
    wanted = Image.open(path).crop((8, 9, 80, 81)).tobytes()

    class Forms:
        def __init__(self, form: bytes) -> None:
            self.form = form

        def find(self, key: int, data: bytes) -> bytes:
            return self.form

    assert mine is not None
    for form in (mine, other, mine[:200], mine[: len(mine) // 2], b"\0" * 100, b"\xff\xd8", data):
        monkeypatch.setattr(indexes._use, "forms", Forms(form or b""))
        with lazily():
            assert Image.open(path).crop((8, 9, 80, 81)).tobytes() == wanted


def other_file(folder: Path) -> bytes:
    photo(2, 60, 70).save(folder / "b.jpg")
    return (folder / "b.jpg").read_bytes()


def test_a_file_that_changes(root: Path, tmp_path: Path) -> None:
    """Other bytes under a name, of the same size and time or not, have forms of their own."""
    data, cache = OwnPhotos(root, Crop()), tmp_path / "cache"
    path, made = data.paths[3], MADE
    first = path.read_bytes()
    with FastLoader(data, **OPTIONS, cache=cache) as ours:
        theirs = DataLoader(data, **OPTIONS)
        for number in (0, 50, 0, 51):
            before = path.stat()
            if number:
                photo(number, 210, 290).save(path, quality=70)
                path.write_bytes(path.read_bytes().ljust(len(first), b"\0")[: len(first)])
                made += 1
            else:
                path.write_bytes(first)
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
            assert epochs(ours, 1) == epochs(theirs, 1)
            assert come(cache, made)


@pytest.mark.parametrize("size", ["64KiB", "200KiB"])
def test_a_small_budget(root: Path, tmp_path: Path, size: str) -> None:
    """Takes what it has room for; batches stay torch's."""
    data, cache = OwnPhotos(root, Crop()), tmp_path / "cache"
    expected = epochs(DataLoader(data, **OPTIONS), 2)
    with FastLoader(data, **OPTIONS, cache=cache, cache_size=size) as loader:
        assert epochs(loader, 2) == expected
    assert sum(path.stat().st_blocks * 512 for path in cache.rglob("*.log")) <= int(size[:-3]) << 10


def place(tmp_path: Path, images: int) -> FormsPlace:
    return FormsPlace(CachePlace(str(tmp_path / "cache"), None), "opened://test", "indexes", images)


def test_only_while_it_rests(tmp_path: Path) -> None:
    """A worker that has tasks makes none; files beyond what it holds wait for another epoch."""
    found = OpenedForms(place(tmp_path, 100))
    data = other_file(tmp_path)
    for key in range(1, 101):
        assert found.find(key, data) == b""
    found.find(101, bytes(9 << 20))
    time.sleep(0.2)
    assert forms(tmp_path / "cache") == 0
    found.rest(True)
    assert come(tmp_path / "cache", 100)
    assert found.find(7, data) == core.DctCoder().encode(data)[0]
    found.rest(False)


@given(st.lists(st.tuples(st.integers(1, 40), st.binary(max_size=9)), max_size=60), st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_a_table_by_keys(puts: list[tuple[int, bytes]], rows: int) -> None:
    """What was put last under a key is found, or nothing was put: of a table with as many rows as keys hardly
    any is left out."""
    table, log = (os.memfd_create(name) for name in ("table", "log"))
    kept = core.Kept(table, rows)
    kept.add_log(0, log)
    kept.append(0, 0)
    kept.grant(1 << 20)
    there: dict[int, bytes] = {}
    for key, form in puts:
        if kept.put_form(key, form):
            there[key] = form
        else:
            assert key not in there
    for key in range(1, 41):
        assert kept.form_of(key) == there.get(key)
    assert len(there) >= min(rows, 1) * bool(puts)
