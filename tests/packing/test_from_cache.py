"""pack(..., from_cache=): image files that a loader kept are not read again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from packing_helpers import encoded, picture, tree
from stored_equal import assert_equal_datasets
from typer.testing import CliRunner

from fastload import FastLoader, append
from fastload.cli.main import app
from fastload.dataset.in_place import listed
from fastload.errors import ArgumentError, PackError
from fastload.packing import pack

COUNT = 9


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """JPEGs and two PNGs of three classes."""
    files = {f"c{i % 3}/{i}.jpg": encoded(picture(i, 90, 120), quality=92) for i in range(COUNT - 2)}
    files |= {f"c{i % 3}/{i}.png": encoded(picture(i, 90, 120), "PNG") for i in range(COUNT - 2, COUNT)}
    return tree(tmp_path / "photos", files)


@pytest.fixture
def cache(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder after an epoch over them, which lie on a slow disk."""
    pytest.importorskip("torchvision")
    from torchvision import datasets, transforms

    steps = transforms.Compose([transforms.CenterCrop(64), transforms.PILToTensor()])
    with monkeypatch.context() as patch:
        patch.setattr(listed, "is_local", lambda folder: False)
        options = {"cache": tmp_path / "cache", "engine": "native", "batch_size": 4, "num_workers": 2}
        with FastLoader(datasets.ImageFolder(str(photos), steps), **options) as loader:
            assert sum(len(batch[0]) for batch in loader) == COUNT
    return tmp_path / "cache"


@contextmanager
def other_bytes(*paths: Path) -> Iterator[None]:
    """Files whose bytes are others in the block, and that look as before."""
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}
    for path, (data, when) in before.items():
        path.write_bytes(bytes(len(data)))
        os.utime(path, ns=(when, when))
    yield
    for path, (data, when) in before.items():
        path.write_bytes(data)
        os.utime(path, ns=(when, when))


def files(photos: Path) -> list[Path]:
    return sorted(path for path in photos.rglob("*") if path.is_file())


def table_of(photos: Path, folder: Path) -> Path:
    table = folder / "table.csv"
    table.write_text("path,label\n" + "".join(f"{path},{path.parent.name}\n" for path in files(photos)))
    return table


def test_no_file_is_read_again(photos: Path, cache: Path, tmp_path: Path) -> None:
    """The dataset is that of the files, in a folder, a table and a list of images."""
    sources = {
        "folder": photos,
        "table": table_of(photos, tmp_path),
        "list": [str(path) for path in files(photos)],
    }
    for name, source in sources.items():
        pack(source, tmp_path / f"{name}.fl")
        with other_bytes(*files(photos)):
            summary = pack(source, tmp_path / f"{name}-cached.fl", from_cache=cache, workers=3)
        assert summary.from_cache == COUNT
        assert_equal_datasets(tmp_path / f"{name}.fl", tmp_path / f"{name}-cached.fl")


def test_what_is_not_kept_is_read(photos: Path, cache: Path, tmp_path: Path) -> None:
    """A file that has changed, one that is new, and one whose bytes in the cache are damaged."""
    changed, damaged, new = photos / "c0" / "0.jpg", photos / "c1" / "1.jpg", photos / "c2" / "new.jpg"
    changed.write_bytes(encoded(picture(77, 90, 120)))
    new.write_bytes(encoded(picture(78, 90, 120)))
    (log,) = cache.rglob("*.log")
    data = bytearray(log.read_bytes())
    data[data.index(damaged.read_bytes()) + 500] ^= 1
    log.write_bytes(data)
    summary = pack(photos, tmp_path / "cached.fl", from_cache=cache)
    assert (summary.samples, summary.from_cache) == (COUNT + 1, COUNT - 2)
    pack(photos, tmp_path / "plain.fl")
    assert_equal_datasets(tmp_path / "plain.fl", tmp_path / "cached.fl")


def test_a_file_that_is_gone_is_an_error(photos: Path, cache: Path, tmp_path: Path) -> None:
    table = table_of(photos, tmp_path)
    gone = files(photos)[4]
    gone.unlink()
    with pytest.raises(PackError, match=gone.name):
        pack(table, tmp_path / "out.fl", from_cache=cache)
    summary = pack(table, tmp_path / "out.fl", from_cache=cache, on_error="skip", overwrite=True)
    assert (summary.samples, summary.skipped_count) == (COUNT - 1, 1)


def test_a_resume_takes_the_rest_from_it(photos: Path, cache: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.fl"
    broken = files(photos)[-1]
    whole = broken.read_bytes()
    broken.write_bytes(whole[:100])
    with pytest.raises(PackError):
        pack(photos, out, shard_samples=3)
    broken.write_bytes(whole)
    summary = pack(photos, out, from_cache=cache, resume=True, shard_samples=3)
    assert (summary.samples, summary.packed_now, summary.from_cache) == (COUNT, 3, 2)
    pack(photos, tmp_path / "plain.fl")
    assert_equal_datasets(tmp_path / "plain.fl", out)


def test_append_takes_files_from_it(photos: Path, cache: Path, tmp_path: Path) -> None:
    pack(photos, tmp_path / "out.fl")
    pack(photos, tmp_path / "plain.fl")
    append(tmp_path / "plain.fl", photos)
    with other_bytes(*files(photos)):
        done = append(tmp_path / "out.fl", photos, from_cache=cache)
    assert (done.samples, done.pack.from_cache) == (2 * COUNT, COUNT)
    assert_equal_datasets(tmp_path / "plain.fl", tmp_path / "out.fl")


def test_refused(photos: Path, cache: Path, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="is no folder: name the cache= of a loader"):
        pack(photos, tmp_path / "out.fl", from_cache=tmp_path / "none")
    with pytest.raises(ArgumentError, match="from_cache is of one host"):
        pack(photos, tmp_path / "out.fl", from_cache=cache, ray=True)
    pairs = [(np.zeros((8, 8, 3), np.uint8), 0)]
    with pytest.raises(ArgumentError, match="are parts of other files"):
        pack(pairs, tmp_path / "out.fl", from_cache=cache)


def test_the_command(photos: Path, cache: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app, ["pack", str(photos), str(tmp_path / "out.fl"), "--from-cache", str(cache)]
    )
    assert result.exit_code == 0, result.output
    assert [line for line in result.output.splitlines() if "taken from the cache" in line and "9" in line]
