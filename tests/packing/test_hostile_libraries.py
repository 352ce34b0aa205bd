"""Damaged TFRecord, MDS, LitData and LMDB files: a PackError that names the file, never another exception,
a wait or a flood of memory."""

from __future__ import annotations

import json
import shutil
import struct
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_library_files import DATA, KINDS, opened

from fastload.errors import PackError
from fastload.sources import Placed, open_source
from fastload.sources.tfrecord import features

MOST = 16 << 20
"""Bytes that opening and reading a damaged dataset of some KB may take."""

NUMBERS = st.one_of(
    st.binary(min_size=1, max_size=12),
    st.sampled_from(
        [
            b"\xff" * 4,
            b"\xff" * 8,
            b"\x7f" + b"\xff" * 7,
            bytes(4),
            bytes(8),
            b"\0\0\0\x80",
            b"\0" * 7 + b"\x80",
        ]
    ),
    st.integers(0, 2**34).map(lambda value: value.to_bytes(8, "little")),
)
CHANGES = st.lists(st.tuples(st.one_of(st.floats(0, 0.999), st.integers(0, 400)), NUMBERS), max_size=5)


def changed(data: bytes, changes: list[tuple[float | int, bytes]], cut: float) -> bytes:
    """Bytes with others at some places (a part of the whole, or a number from the beginning), cut off."""
    out = bytearray(data)
    for where, content in changes:
        at = min(int(where * len(out)) if isinstance(where, float) else where, len(out))
        out[at : at + len(content)] = content
    return bytes(out[: int(len(data) * cut)])


def drain(kind: str, root: Path) -> None:
    """Opens a source, and reads all samples and places; each failure must be a PackError that names the
    dataset."""
    tracemalloc.start()
    try:
        try:
            source = opened(kind, root)
        except PackError as error:
            assert str(root / kind) in str(error)
            return
        assert isinstance(source, Placed)
        for position in range(len(source)):
            for call in (source.read, source.place):
                try:
                    call(position)
                except PackError as error:
                    assert str(root / kind) in str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < MOST, f"{peak:,} bytes"


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data(), changes=CHANGES, cut=st.one_of(st.just(1.0), st.floats(0, 1)))
@settings(max_examples=80)
def test_changed_and_cut_files(
    kind: str, data: st.DataObject, changes: list[tuple[float, bytes]], cut: float
) -> None:
    """Whatever bytes of any file of a dataset are changed or missing."""
    names = sorted(path.name for path in (DATA / kind).iterdir())
    name = data.draw(st.sampled_from(names))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, kind)
        shutil.copytree(DATA / kind, folder)
        (folder / name).write_bytes(changed((folder / name).read_bytes(), changes, cut))
        drain(kind, Path(temporary))


def index_of(kind: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / kind / "index.json").read_text())
    return found


def put(tree: Any, path: tuple[str | int, ...], value: Any) -> None:
    for step in path[:-1]:
        tree = tree[step]
    tree[path[-1]] = value


ODD = [
    None,
    True,
    -1,
    2**70,
    1.5,
    "",
    "x",
    "../x",
    "/etc/passwd",
    "a\0b",
    [],
    {},
    [[]],
    [None],
    "[" * 5000,
    '[1, {"type": "x"}]',
]
PLACES: list[tuple[str, tuple[str | int, ...]]] = [
    *(("mds", ("shards", 0, name)) for name in index_of("mds")["shards"][0]),
    *(("mds", ("shards", 0, "raw_data", name)) for name in ("basename", "bytes")),
    *(("mds", ("shards", 0, name, 3)) for name in ("column_names", "column_encodings", "column_sizes")),
    ("mds", ("shards",)),
    ("mds", ("version",)),
    *(("litdata", ("config", name)) for name in index_of("litdata")["config"]),
    *(("litdata", ("chunks", 0, name)) for name in index_of("litdata")["chunks"][0]),
    ("litdata", ("config", "data_format", 2)),
    ("litdata", ("chunks",)),
    ("litdata", ("config",)),
]


@pytest.mark.parametrize(("kind", "where"), PLACES)
def test_odd_values_in_an_index(kind: str, where: tuple[str | int, ...], tmp_path: Path) -> None:
    """Whatever JSON stands where the index has another type, number, name or path."""
    for value in ODD:
        shutil.rmtree(tmp_path / kind, ignore_errors=True)
        shutil.copytree(DATA / kind, tmp_path / kind)
        index = index_of(kind)
        put(index, where, value)
        (tmp_path / kind / "index.json").write_text(json.dumps(index))
        drain(kind, tmp_path)


def test_an_index_that_names_one_file_often(tmp_path: Path) -> None:
    """A file of rows is read once, however often the index names it."""
    shutil.copytree(DATA / "mds", tmp_path / "mds")
    index = index_of("mds")
    index["shards"] *= 1000
    (tmp_path / "mds" / "index.json").write_text(json.dumps(index))
    with pytest.raises(PackError, match="names a file twice"):
        open_source(tmp_path / "mds")


def test_a_sparse_file_of_any_length(tmp_path: Path) -> None:
    """Lengths of GiB in files that have them, as holes, are refused or not read before they are asked for."""
    (tmp_path / "long.tfrecord").write_bytes(struct.pack("<Q", 1 << 40))
    (tmp_path / "long.mds").write_bytes(b"\xff" * 8)
    (tmp_path / "x.lmdb").write_bytes(bytes(4096))
    for name in ("long.tfrecord", "long.mds", "x.lmdb"):
        with open(tmp_path / name, "r+b") as file:
            file.truncate(1 << 41)
    for name in ("long.tfrecord", "x.lmdb"):
        with pytest.raises(PackError, match=name):
            open_source(tmp_path / name)
    index = {
        "version": 2,
        "shards": [
            index_of("mds")["shards"][0] | {"samples": 2**32 - 1, "raw_data": {"basename": "long.mds"}}
        ],
    }
    (tmp_path / "index.json").write_text(json.dumps(index))
    with pytest.raises(PackError, match=r"index\.json: the number of samples"):
        open_source(tmp_path)


@given(st.binary(max_size=200))
@settings(max_examples=300)
def test_only_malformed_leaves_the_parser_of_examples(data: bytes) -> None:
    """Any bytes are an Example, or a ValueError, or an IndexError where they end, says why not."""
    try:
        found = features(data, len(data))
    except (ValueError, IndexError):
        return
    assert all(0 <= feature.begin <= feature.end <= len(data) for feature in found.values())
