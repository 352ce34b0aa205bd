"""Manifest: what it says survives the file, and no file makes it say what does not hold."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from store_helpers import write

from fastload._native import core
from fastload.errors import DatasetError
from fastload.store import Field, Manifest, Schema, ShardEntry

SUMS = {"label": 1, "__height__": 2, "__width__": 3, "__crc32c__": 2**32 - 1}
MANIFEST = Manifest(
    Schema((Field("image", "image"), Field("label", "int"))),
    (
        ShardEntry("shard-00000.lmdb", 0, 10, 4096, 5, SUMS),
        ShardEntry("shard-00001.lmdb", 10, 3, 8192, 6, SUMS),
    ),
    ("cat", "d\N{LATIN SMALL LETTER O WITH DIAERESIS}g", "not utf-8: \udcff"),
    {"encode": "lossless", "quality": None},
    {"bytes": 2**40, "rate": 0.1},
)


def sealed(content: dict[str, Any]) -> bytes:
    """Content with a checksum that fits, so that only its values can be wrong."""
    rest = {key: value for key, value in content.items() if key != "crc32c"}
    crc = core.crc32c(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode())
    return json.dumps({**rest, "crc32c": crc}).encode()


def test_round_trip(tmp_path: Path) -> None:
    """Written and loaded it is the same, and nothing else is left in the folder."""
    MANIFEST.write(tmp_path)
    loaded = Manifest.load(tmp_path)
    assert loaded == MANIFEST
    assert (loaded.count, loaded.bytes) == (13, 12288)
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def test_format_version() -> None:
    """A manifest has the first format version that has its fields' kinds; a lower one with them does not
    hold."""
    assert json.loads(MANIFEST.to_bytes())["version"] == 1
    schema = Schema((*MANIFEST.schema, Field("boxes", "boxes", format="xyxy")))
    shards = tuple(replace(shard, columns={**SUMS, "__count__:boxes": 7}) for shard in MANIFEST.shards)
    manifest = replace(MANIFEST, schema=schema, shards=shards)
    content = json.loads(manifest.to_bytes())
    assert content["version"] == 3
    assert Manifest.from_bytes(manifest.to_bytes(), "x") == manifest
    for version in (1, 2):
        with pytest.raises(DatasetError, match="format version"):
            Manifest.from_bytes(sealed({**content, "version": version}), "x")
    with pytest.raises(DatasetError, match="__count__"):
        Manifest.from_bytes(
            sealed({**content, "shards": [shard.to_json() for shard in MANIFEST.shards]}), "x"
        )


def test_flipped_byte() -> None:
    """Any byte changed: an error, or (in blanks between values) the very same manifest."""
    data = MANIFEST.to_bytes()
    rng = random.Random(3)
    refused = 0
    for at in range(len(data)):
        bad = bytearray(data)
        bad[at] ^= rng.randrange(1, 256)
        try:
            assert Manifest.from_bytes(bytes(bad), Path("x")) == MANIFEST
        except DatasetError as error:
            assert "manifest.json" in str(error)
            refused += 1
    assert refused > len(data) * 0.6


@pytest.mark.parametrize("size", range(0, len(MANIFEST.to_bytes()) - 1, 23))
def test_cut_off(size: int) -> None:
    """Cut anywhere it is an error that says what to do."""
    with pytest.raises(DatasetError, match="copy it again or pack again"):
        Manifest.from_bytes(MANIFEST.to_bytes()[:size], Path("x"))


def test_later_version() -> None:
    """A later version is told before anything else of it is looked at."""
    with pytest.raises(DatasetError, match=r"later fastload \(format version 5.*upgrade"):
        Manifest.from_bytes(b'{"format": "fastload", "version": 5, "shards": "other"}', Path("x"))


HOSTILE: list[Any] = [
    None,
    True,
    -1,
    0,
    0.5,
    2**63,
    10**40,
    "",
    "x",
    "../x",
    [],
    [1],
    [[]],
    {},
    {"a": 1},
    [{}],
]
PLACES: list[tuple[Any, ...]] = [
    ("version",),
    ("count",),
    ("schema",),
    ("schema", 0),
    ("schema", 0, "name"),
    ("schema", 0, "kind"),
    ("shards",),
    ("shards", 1),
    *[("shards", 1, key) for key in ("file", "first", "count", "bytes", "crc32c", "columns")],
    ("shards", 1, "columns", "label"),
    ("classes",),
    ("classes", 0),
    ("options",),
    ("summary",),
]
ALLOWED = {
    ("count",): (),
    ("classes",): (None, []),
    ("classes", 0): ("", "x", "../x"),
    ("options",): ({}, {"a": 1}),
    ("summary",): ({}, {"a": 1}),
    ("schema", 0, "name"): ("x", "../x"),
    ("shards", 1, "crc32c"): (0,),
    ("shards", 1, "columns", "label"): (0,),
}


@pytest.mark.parametrize("place", PLACES, ids=lambda place: ".".join(map(str, place)))
def test_hostile_value(place: tuple[Any, ...]) -> None:
    """Every value replaced by every wrong one, under a checksum that fits: DatasetError, never another
    exception."""
    for value in HOSTILE:
        content = json.loads(MANIFEST.to_bytes())
        owner = content
        for step in place[:-1]:
            owner = owner[step]
        owner[place[-1]] = value
        if any(
            value is allowed or (value == allowed and value is not True) for allowed in ALLOWED.get(place, ())
        ):
            Manifest.from_bytes(sealed(content), Path("x"))
            continue
        with pytest.raises(DatasetError, match=r"manifest\.json"):
            Manifest.from_bytes(sealed(content), Path("x"))


@pytest.mark.parametrize("place", [place for place in PLACES if not isinstance(place[-1], int)])
def test_missing_value(place: tuple[Any, ...]) -> None:
    """Every value left out: DatasetError, save for classes, which may be absent."""
    content = json.loads(MANIFEST.to_bytes())
    owner = content
    for step in place[:-1]:
        owner = owner[step]
    del owner[place[-1]]
    if place == ("classes",):
        assert Manifest.from_bytes(sealed(content), Path("x")).classes is None
        return
    with pytest.raises(DatasetError, match=r"manifest\.json"):
        Manifest.from_bytes(sealed(content), Path("x"))


@pytest.mark.parametrize(
    "file",
    [
        "shard-00000.lmdb",
        "../shard-00001.lmdb",
        "/etc/passwd",
        "shard-00001.lmdb\n",
        "shard-1.lmdb",
        "shard-00001.lmdb/x",
    ],
)
def test_file_names(file: str) -> None:
    """Only a shard's own plain name, and each once."""
    content = json.loads(MANIFEST.to_bytes())
    content["shards"][1]["file"] = file
    with pytest.raises(DatasetError, match="file of shard 1"):
        Manifest.from_bytes(sealed(content), Path("x"))


@pytest.mark.parametrize(
    "data", [b"", b"\xff\xfe", b"[" * 100_000, b"1" * 5000, b"{}", b"null", b'{"format": NaN}']
)
def test_no_manifest(data: bytes) -> None:
    """Bytes that are no manifest at all."""
    with pytest.raises(DatasetError, match=r"manifest\.json"):
        Manifest.from_bytes(data, Path("x"))


def test_load_says_what_is_there(tmp_path: Path) -> None:
    """No folder, an empty one, a file, an unfinished one: each told apart, each with what to do."""
    with pytest.raises(DatasetError, match=r"there is no .*fastload pack"):
        Manifest.load(tmp_path / "none")
    (tmp_path / "file").write_text("x")
    with pytest.raises(DatasetError, match="is a file"):
        Manifest.load(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatasetError, match="holds no packed dataset"):
        Manifest.load(tmp_path / "empty")
    write(tmp_path / "lost", 5)
    (tmp_path / "lost" / "manifest.json").unlink()
    with pytest.raises(DatasetError, match=r"its manifest\.json is lost.*--overwrite"):
        Manifest.load(tmp_path / "lost")
    (tmp_path / "lost" / "progress.json").write_bytes(b"")
    with pytest.raises(DatasetError, match=r"unfinished.*--resume` finishes it, --overwrite"):
        Manifest.load(tmp_path / "lost")
