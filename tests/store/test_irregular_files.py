"""A packed dataset's files are regular files: a FIFO, a device or terabytes of nothing in their place is
an error at once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fastload import PackedDataset, pack
from fastload.bench.harness import count_packed
from fastload.errors import DatasetError, FastloadError, PackError
from fastload.packing import index, unpack, verify
from fastload.store import JOURNAL_NAME, MANIFEST_NAME, DatasetReader, Manifest

pytestmark = pytest.mark.timeout(20)


def fifo(path: Path) -> None:
    os.mkfifo(path)


def zero(path: Path) -> None:
    path.symlink_to("/dev/zero")


def sparse(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(16 << 30)


def folder(path: Path) -> None:
    path.mkdir()


IRREGULAR: dict[str, Callable[[Path], None]] = {
    "FIFO": fifo,
    "device": zero,
    "sparse": sparse,
    "folder": folder,
}
COMMANDS: dict[str, Callable[[Path], object]] = {
    "PackedDataset": PackedDataset,
    "reader": DatasetReader,
    "verify": verify,
    "index": index,
    "unpack": lambda path: unpack(path, path.parent / "files"),
    "bench": count_packed,
}


@pytest.fixture
def copy(packed: Path, tmp_path: Path) -> Path:
    """A packed dataset of this test's own."""
    return Path(shutil.copytree(packed, tmp_path / "ds"))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", IRREGULAR)
def test_manifest(copy: Path, kind: str, command: str) -> None:
    """Whoever opens a dataset says so of its manifest, and waits for nothing."""
    (copy / MANIFEST_NAME).unlink()
    IRREGULAR[kind](copy / MANIFEST_NAME)
    with pytest.raises(DatasetError, match=r"manifest\.json: .*(regular file|limit)"):
        COMMANDS[command](copy)


@pytest.mark.parametrize("command", ["PackedDataset", "reader", "index", "unpack"])
@pytest.mark.parametrize("kind", IRREGULAR)
def test_shard(copy: Path, kind: str, command: str) -> None:
    """The same of a shard."""
    name = Manifest.load(copy).shards[-1].file
    (copy / name).unlink()
    IRREGULAR[kind](copy / name)
    with pytest.raises(DatasetError, match=f"shard {name} is"):
        COMMANDS[command](copy)


@pytest.mark.parametrize("kind", IRREGULAR)
def test_verify_lists_an_irregular_shard(copy: Path, kind: str) -> None:
    """verify tells it as a problem of that file."""
    name = Manifest.load(copy).shards[-1].file
    (copy / name).unlink()
    IRREGULAR[kind](copy / name)
    report = verify(copy)
    assert not report.ok
    assert any(name in problem for problem in report.problems)


@pytest.mark.parametrize("kind", IRREGULAR)
def test_journal(image_folder: Path, tmp_path: Path, kind: str) -> None:
    """A resume reads the journal as a manifest is read."""
    (tmp_path / "out").mkdir()
    IRREGULAR[kind](tmp_path / "out" / JOURNAL_NAME)
    with pytest.raises(PackError, match="cannot start to pack"):
        pack(image_folder, tmp_path / "out", resume=True)


@pytest.mark.parametrize("name", [MANIFEST_NAME, JOURNAL_NAME])
def test_a_temporary_file_is_made_anew(image_folder: Path, tmp_path: Path, name: str) -> None:
    """What lies where a temporary file is to be written, a FIFO or a link, is neither waited for nor
    written through."""
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    out.mkdir()
    elsewhere.write_bytes(b"mine")
    fifo(out / "progress.json.tmp")
    (out / "manifest.json.tmp").symlink_to(elsewhere)
    pack(image_folder, out, overwrite=True, limit=3)
    assert elsewhere.read_bytes() == b"mine"
    fifo(out / f"{name}.tmp")
    try:
        index(out)
    except FastloadError:
        pass
    assert len(DatasetReader(out)) == 3
