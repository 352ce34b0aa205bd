"""Datasets that an older fastload packed, of every kind of field, image codec and format version, read and
packed as they were then."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from golden import DATA, MAKES, VERSIONS, described, lines, stored

from fastload.packing import verify
from fastload.store.kinds import KINDS

NAMES = (*MAKES, "joined")
EVERY = [(name, version) for name in NAMES for version in VERSIONS.get(name, (None,))]
ON_MACHINE = ("attached", "unindexed", "kinds", "turned", "grey")
"""Datasets whose records hold a file's time of change, or what a version of zlib makes of pixels."""


def expected(name: str, version: int | None = None) -> dict[str, Any]:
    """Digests of a golden dataset, read when it was packed."""
    text = (DATA / f"{name}{'' if version is None else f'-{version}'}.json").read_text()
    content: dict[str, Any] = json.loads(text)
    return content


@pytest.mark.parametrize(("name", "version"), EVERY)
def test_read_as_then(name: str, version: int | None) -> None:
    """Every record, column, value, sample and batch of every version has the bytes that it had when it was
    packed."""
    found = json.loads(lines(described(DATA / f"{name}.fl", version)))
    wanted = expected(name, version)
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        assert found[key] == value, key


@pytest.mark.parametrize(("name", "version"), EVERY)
def test_verified(name: str, version: int | None) -> None:
    """verify finds nothing, with every image decoded."""
    report = verify(DATA / f"{name}.fl", version=version, decode=True, workers=2)
    assert (report.problems, report.bad, report.unchecked) == ((), (), 0)


@pytest.mark.parametrize("name", sorted(MAKES.keys() - {"noindex"}))  # whose PNGs were stored as pixels then
def test_packed_as_then(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same inputs are stored as the same bytes; where zlib or a file's time has a part in them, as the
    same values."""
    for pictures in ("photos", "jpegs", "files"):
        shutil.copytree(DATA / pictures, tmp_path / pictures)
    monkeypatch.chdir(tmp_path)
    MAKES[name](Path(f"{name}.fl"))
    found = json.loads(lines(stored(tmp_path / f"{name}.fl")))
    wanted = expected(name, max(VERSIONS.get(name, (0,))) or None)
    if name in ON_MACHINE:
        for each in (found, wanted):
            del each["records"], each["columns"]["__crc32c__"]
            for image in (value["dict"]["image"] for value in each["values"]):
                # A checkout gives its files a time of its own.
                if "StoredImage" in image and "place" in image["StoredImage"]["kind"]:
                    del image["StoredImage"]["data"]
    assert found == {key: wanted[key] for key in found}


def test_every_form_is_there() -> None:
    """The datasets have every kind of record's entry, every kind of field, and every format version."""
    contents = [expected(name, version) for name, version in EVERY]
    assert {entry[1] for content in contents for record in content["entries"] for entry in record} == {
        *range(1, 10),
        11,
        12,
    }
    assert {field["kind"] for content in contents for field in content["schema"]} == set(KINDS)
    manifests = [json.loads(path.read_bytes())["version"] for path in DATA.glob("*.fl/manifest*.json")]
    assert set(manifests) == {1, 2, 3}
