"""Format version 2: shards elsewhere, under other keys, with rows left out, fields added and fields
hidden."""

from __future__ import annotations

import json
import multiprocessing
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from store_helpers import SCHEMA, values_of, write
from test_manifest import sealed
from version_helpers import changed, segment, values_now

from fastload._native import core
from fastload.errors import DatasetError, SampleError
from fastload.store import DatasetReader, Manifest

STORED = ("raw", "caption", "meta", "note", "tags")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """A changed dataset, and the number of each of its samples."""
    return changed(tmp_path_factory.mktemp("changed"))


def check(reader: DatasetReader, of: list[int]) -> None:
    """Compares every value of every sample."""
    assert len(reader) == len(of)
    columns = {name: reader.column(name) for name in ("label", "box", "score", "__height__")}
    for index, number in enumerate(of):
        expected = values_now(values_of(number), number)
        found = reader.stored_values(index, STORED)
        assert found == {name: expected[name] for name in STORED}
        assert reader.stored_values(index, ["note"]) == {"note": expected["note"]}
        image = reader.schema.number("image")
        assert reader.stored_fields(index)[image] == (core.KIND_JPEG, expected["image"])
        assert columns["label"][index] == expected["label"]
        assert columns["score"][index] == expected["score"]
        assert np.array_equal(columns["box"][index], expected["box"])
        assert columns["__height__"][index] == number % 90 + 1


def test_every_value(made: tuple[Path, list[int]]) -> None:
    """Every field of every sample is that of the sample that the manifest names, packed or added; a field
    that was taken away is gone."""
    path, of = made
    with DatasetReader(path) as reader:
        check(reader, of)
        assert "weight" not in reader.schema.columns
        assert "version 7" in repr(reader)
        assert reader.store.base(0) == os.fspath(path.parent / "there" / "files" / "0")
        assert reader.shard_of(0).startswith("../there/shard-")
        chunk = reader.chunk(1, "score")
        assert (
            chunk.tolist() == reader.column("score")[reader.manifest.shards[1].first :][: len(chunk)].tolist()
        )


def _in_spawned(reader: DatasetReader, of: list[int]) -> bool:
    check(reader, of)
    return True


def test_in_other_processes(made: tuple[Path, list[int]]) -> None:
    """A forked child and a spawned one read the same."""
    path, of = made
    with DatasetReader(path) as reader, multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_in_spawned, (reader, of))
        child = os.fork()
        if child == 0:
            check(reader, of)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0


def test_written_only_where_needed(made: tuple[Path, list[int]], tmp_path: Path) -> None:
    """A packed dataset's manifest is of format 1, a changed one's of format 2; either survives the file."""
    packed = json.loads(write(tmp_path / "packed", 5).to_bytes())
    assert packed["version"] == 1
    assert packed.keys() == {
        "format",
        "version",
        "count",
        "schema",
        "classes",
        "shards",
        "options",
        "summary",
        "sidecars",
        "crc32c",
    }
    assert packed["shards"][0].keys() == {"file", "first", "count", "bytes", "crc32c", "columns"}
    manifest = Manifest.load(made[0])
    assert json.loads(manifest.to_bytes())["version"] == 2
    assert Manifest.from_bytes(manifest.to_bytes(), made[0]) == manifest


def test_format_1_ignores_the_keys(made: tuple[Path, list[int]]) -> None:
    """In a manifest of format 1 the keys of format 2 mean nothing."""
    content = json.loads(Manifest.load(made[0]).to_bytes())
    content["version"] = 1
    with pytest.raises(DatasetError, match="columns of shard 0"):
        Manifest.from_bytes(sealed(content), Path("x"))


LATER = [
    ("dataset_version",),
    *[("shards", 0, key) for key in ("folder", "key", "stored", "rows", "added", "fields", "base")],
    *[("shards", 0, "rows", key) for key in ("file", "offset", "bytes", "crc32c", "folder")],
    *[("shards", 0, "added", "note", key) for key in ("file", "offset", "bytes", "crc32c", "folder")],
    ("shards", 0, "added", "score"),
    ("shards", 0, "added", "image"),
    ("shards", 0, "fields", 0),
]
HOSTILE: list[Any] = [
    True,
    -1,
    0.5,
    2**63,
    10**40,
    "",
    "../x",
    "a\0b",
    "x" * 5000,
    "\ud800",
    [],
    [1],
    [[]],
    {},
    {"a": 1},
    [{}],
]
FOLDERS = ("../x",)
ALLOWED = {("shards", 0, "folder"): FOLDERS, ("shards", 0, "base"): FOLDERS}
ALLOWED |= {("shards", 0, *part, "folder"): FOLDERS for part in (("rows",), ("added", "note"))}


@pytest.mark.parametrize("place", LATER, ids=lambda place: ".".join(map(str, place)))
def test_hostile_value(made: tuple[Path, list[int]], place: tuple[Any, ...]) -> None:
    """Every value replaced by every wrong one, under a checksum that fits: DatasetError, never another
    exception."""
    data = Manifest.load(made[0]).to_bytes()
    for value in HOSTILE:
        content = json.loads(data)
        owner = content
        for step in place[:-1]:
            owner = owner[step]
        owner[place[-1]] = value
        if value in ALLOWED.get(place, ()):
            Manifest.from_bytes(sealed(content), Path("x"))
            continue
        with pytest.raises(DatasetError, match=r"manifest\.json"):
            Manifest.from_bytes(sealed(content), Path("x"))


def _edit(path: Path, change: Any) -> None:
    content = json.loads((path / "manifest.json").read_bytes())
    change(content["shards"][0])
    (path / "manifest.json").write_bytes(sealed(content))


@pytest.mark.parametrize("rows", [[1, 1], [2, 1], [0, 10**6], [2**32 - 1, 0]])
def test_rows_that_do_not_hold(tmp_path: Path, rows: list[int]) -> None:
    """Rows that are not ascending, or beyond the file, under a checksum that fits: DatasetError when the
    dataset is opened."""
    path, _ = changed(tmp_path)
    count = Manifest.load(path).shards[0].count
    numbers = np.array([*range(count - 2), *rows], "<u4")
    part = segment(path.parent / "there" / "rows-00000.bin", numbers.tobytes(), "../there")
    _edit(path, lambda shard: shard.update(rows=part.to_json()))
    with pytest.raises(DatasetError, match="the rows of shard"):
        DatasetReader(path)


@pytest.mark.parametrize("size", [-8, 0, 8])
def test_offsets_that_do_not_hold(tmp_path: Path, size: int) -> None:
    """Offsets of added values that are not ascending or do not end with the segment: an error that names
    the sample, on first use."""
    path, _ = changed(tmp_path)
    shard = Manifest.load(path).shards[0]
    head = np.zeros(shard.stored + 1, "<u8")
    head[-1] = 100 + size
    head[1:3] = (50, 20) if not size else (0, 0)
    part = segment(path / "values-00001.bin", head.tobytes() + b"y" * 100)
    _edit(path, lambda shard: shard["added"].update(note=part.to_json()))
    with DatasetReader(path) as reader:
        with pytest.raises(SampleError, match=r"sample 0 .*offsets are not ascending"):
            reader.stored_values(0, ["note"])


@pytest.mark.parametrize("damage", ["flip", "cut", "gone", "folder"])
@pytest.mark.parametrize("name", ["rows-00000.bin", "values-00000.bin", "values-00001.bin"])
def test_damaged_file(tmp_path: Path, name: str, damage: str) -> None:
    """A file beside the shards that is changed, cut, lost or no file is a DatasetError or SampleError that
    names it."""
    path, _ = changed(tmp_path)
    file = (path.parent / "there" if name.startswith("rows") else path) / name
    data = bytearray(file.read_bytes())
    file.unlink()
    if damage == "flip":
        data[-1] ^= 1
        file.write_bytes(data)
    elif damage == "cut":
        file.write_bytes(data[:-1])
    elif damage == "folder":
        file.mkdir()
    with pytest.raises((DatasetError, SampleError), match=name), DatasetReader(path) as reader:
        reader.stored_values(0, ["note"])


def test_versions_by_number(tmp_path: Path) -> None:
    """An older version is read by its number; one that there is not is named with those that there are."""
    now = write(tmp_path, 20)
    (tmp_path / "manifest.json").rename(tmp_path / "manifest-00001.json")
    Manifest(now.schema, now.shards[:1], now.classes, version=2).write(tmp_path)
    assert len(DatasetReader(tmp_path)) == now.shards[0].count
    with DatasetReader(tmp_path, 1) as reader:
        assert len(reader) == 20
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            assert pool.apply(len, (reader,)) == 20
    for version in (0, 3, -1):
        with pytest.raises(DatasetError, match=rf"no version {version} .*it has 1, 2;"):
            DatasetReader(tmp_path, version)
    (tmp_path / "manifest-00001.json").write_bytes(Manifest(SCHEMA, now.shards, version=4).to_bytes())
    with pytest.raises(DatasetError, match=r"manifest-00001\.json does not hold"):
        DatasetReader(tmp_path, 1)
