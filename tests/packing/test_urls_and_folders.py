"""Functions that need a dataset on a disk, or write to one, refuse URLs, and do not take them for paths."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from packing_helpers import encoded, picture

import fastload
from fastload.errors import ArgumentError, DatasetError
from fastload.packing import export, unpack

URL = "s3://me:secret@bucket/set?token=secret"


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """A dataset of one picture, in a folder below the current one."""
    (tmp_path / "files/a").mkdir(parents=True)
    (tmp_path / "files/a/0.jpg").write_bytes(encoded(picture(0, 8, 8)))
    (tmp_path / "columns.csv").write_text("score\n1\n")
    fastload.pack(tmp_path / "files", tmp_path / "packed")
    return tmp_path / "packed"


NEED_FOLDERS: dict[str, Callable[[Path], Any]] = {
    "unpack": lambda top: unpack(URL, top / "out"),
    "export": lambda top: export(URL, top / "out.tar"),
    "convert": lambda top: fastload.convert(URL, top / "out"),
    "append": lambda top: fastload.append(URL, top / "files"),
    "drop": lambda top: fastload.drop(URL, indices=[0]),
    "concat": lambda top: fastload.concat([top / "packed", URL], top / "out"),
    "prune": lambda top: fastload.prune(URL),
    "add_columns": lambda top: fastload.add_columns(URL, top / "columns.csv"),
    "drop_columns": lambda top: fastload.drop_columns(URL, ["label"]),
}


@pytest.mark.parametrize("name", NEED_FOLDERS)
def test_a_url_is_no_folder(packed: Path, name: str) -> None:
    """The error says what makes a folder of a URL, and has none of its secrets."""
    with pytest.raises(
        DatasetError,
        match=r"^s3://bucket/set is a URL, and this needs .*: `fastload pull s3://bucket/set OUT`",
    ) as caught:
        NEED_FOLDERS[name](packed.parent)
    assert "secret" not in str(caught.value)
    assert sorted(path.name for path in packed.parent.iterdir()) == ["columns.csv", "files", "packed"]


WRITE_FILES: dict[str, Callable[[Path], Any]] = {
    "unpack": lambda packed: unpack(packed, URL),
    "export": lambda packed: export(packed, "s3://me:secret@bucket/set.tar"),
    "concat": lambda packed: fastload.concat([packed, packed], URL),
}


@pytest.mark.parametrize("name", WRITE_FILES)
def test_a_url_is_no_output(packed: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written into a folder that is named as the scheme."""
    monkeypatch.chdir(packed.parent)
    with pytest.raises(ArgumentError, match=r"^s3://bucket/set(\.tar)? is a URL, and this writes to a disk"):
        WRITE_FILES[name](packed)
    assert not Path("s3:").exists()


def test_urls_of_files_are_paths(packed: Path, tmp_path: Path) -> None:
    """What a file:// URL names is read and written."""
    assert unpack(f"file://{packed}", f"file://{tmp_path}/out").files == 1
    assert (tmp_path / "out/a/00000000.jpg").exists()
