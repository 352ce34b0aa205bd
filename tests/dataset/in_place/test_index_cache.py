"""The index cache on disk (fastload/dataset/in_place/listed.py): what one run learns serves the next, and
nothing depends on it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from in_place_helpers import EXACT, image_folder, save
from pictures import photo
from torch.utils.data import DataLoader
from torchvision import datasets

from fastload import FastLoader
from fastload._native import core
from fastload.dataset.in_place.torchvision import FileDataset
from fastload.errors import ArgumentError

COUNT = 9


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Pictures that are large enough for an index of 1.5 % of their size."""
    for number in range(COUNT):
        path = tmp_path / "tree" / f"class{number % 3}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        photo(number, 480, 640).save(path, quality=95)
    return tmp_path / "tree"


def loader_of(tree: Path, cache: Path | None, **options: Any) -> FastLoader[Any]:
    dataset = datasets.ImageFolder(str(tree), EXACT)
    return FastLoader(dataset, batch_size=4, num_workers=2, engine="native", index_cache=cache, **options)


def learnt(loader: FastLoader[Any]) -> int:
    """Files whose entropy index is held."""
    native = loader._fastload.read(loader).native
    assert native is not None
    assert isinstance(native.datasets[0], FileDataset)
    return native.datasets[0].learnt()[0]


def images(loader: Any) -> torch.Tensor:
    return torch.cat([batch[0] for batch in loader])


def cache_file(cache: Path) -> Path:
    (found,) = cache.iterdir()
    return found


def test_another_loader_begins_with_what_the_first_learnt(tree: Path, tmp_path: Path) -> None:
    cache = tmp_path / "made" / "cache"
    first = loader_of(tree, cache)
    assert learnt(first) == 0
    pixels = images(first)
    assert learnt(first) == COUNT
    assert cache_file(cache).stat().st_size <= 0.02 * sum(path.stat().st_size for path in tree.rglob("*.jpg"))
    second = loader_of(tree, cache)
    assert learnt(second) == COUNT
    assert "of 9 files" in second.explain(all=True)
    assert torch.equal(images(second), pixels)


def test_a_changed_file_is_proved_anew(tree: Path, tmp_path: Path) -> None:
    images(loader_of(tree, tmp_path / "cache"))
    path = tree / "class0" / "0.jpg"
    path.write_bytes((tree / "class1" / "1.jpg").read_bytes()[:-2000])
    loader = loader_of(tree, tmp_path / "cache")
    with pytest.raises(OSError, match="truncated"):
        images(loader)
    save(path, 77)
    assert torch.equal(
        images(loader_of(tree, tmp_path / "cache")),
        images(DataLoader(datasets.ImageFolder(str(tree), EXACT))),
    )


@pytest.mark.parametrize("at", [0, 9, 17, 25, 40, 300, -1])
def test_a_damaged_cache_counts_as_none(tree: Path, tmp_path: Path, at: int) -> None:
    pixels = images(loader_of(tree, tmp_path / "cache"))
    path = cache_file(tmp_path / "cache")
    data = bytearray(path.read_bytes())
    data[at] ^= 0x55
    path.write_bytes(data)
    loader = loader_of(tree, tmp_path / "cache")
    assert learnt(loader) == 0
    assert torch.equal(images(loader), pixels)
    assert learnt(loader_of(tree, tmp_path / "cache")) == COUNT  # it was written anew


def test_a_cut_cache_counts_as_none(tree: Path, tmp_path: Path) -> None:
    images(loader_of(tree, tmp_path / "cache"))
    path = cache_file(tmp_path / "cache")
    data = path.read_bytes()
    for size in (0, 5, 31, 60, len(data) - 1):
        path.write_bytes(data[:size])
        assert learnt(loader_of(tree, tmp_path / "cache")) == 0


def test_two_processes_add_to_each_others(tree: Path, tmp_path: Path) -> None:
    one = loader_of(tree, tmp_path / "cache", sampler=[0, 1, 2])
    other = loader_of(tree, tmp_path / "cache", sampler=[2, 3, 4])
    images(one)
    images(other)
    assert learnt(loader_of(tree, tmp_path / "cache")) == 5


def test_what_a_killed_process_left_is_removed(tree: Path, tmp_path: Path) -> None:
    images(loader_of(tree, tmp_path / "cache", sampler=[0]))
    old, young = (tmp_path / "cache" / f"{cache_file(tmp_path / 'cache').stem}{name}.new" for name in "ab")
    for path, age in ((old, 7200), (young, 60)):
        path.write_bytes(b"half")
        os.utime(path, (time.time() - age, time.time() - age))
    images(loader_of(tree, tmp_path / "cache"))
    assert not old.exists()
    assert young.exists()


def test_nothing_is_written_where_nothing_is_new(tree: Path, tmp_path: Path) -> None:
    images(loader_of(tree, tmp_path / "cache"))
    before = cache_file(tmp_path / "cache").stat().st_ino
    loader = loader_of(tree, tmp_path / "cache")
    images(loader)
    images(loader)
    assert cache_file(tmp_path / "cache").stat().st_ino == before


def test_a_disk_that_refuses_is_told_and_the_epoch_goes_on(
    tree: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loader = loader_of(tree, tmp_path / "cache")
    (tmp_path / "cache").rmdir()
    assert len(images(loader)) == COUNT
    assert "cannot be written" in caplog.text


def test_a_folder_that_cannot_be_made_is_refused(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ArgumentError, match="index_cache"):
        loader_of(tree, tmp_path / "file" / "cache")


def test_the_cache_of_another_list_is_another_file(tree: Path, tmp_path: Path) -> None:
    images(loader_of(tree, tmp_path / "cache"))
    image_folder(tmp_path / "other")
    images(loader_of(tmp_path / "other", tmp_path / "cache"))
    assert len(os.listdir(tmp_path / "cache")) == 2


def test_lengths_that_do_not_fit() -> None:
    files = core.Files(b"", b"a\0b\0", 2, 100)
    stamps, sizes = np.ones(2, np.uint64), np.array([1, 2], np.uint32)
    files.learn(stamps, sizes, b"123")
    assert (files.export()[1].tolist(), files.export()[2]) == ([1, 2], b"123")
    for arguments in (
        (stamps[:1], sizes, b"123"),
        (stamps, sizes[:1], b"1"),
        (stamps, sizes, b"12"),
        (stamps, sizes, b"1234"),
    ):
        with pytest.raises(ArgumentError):
            files.learn(*arguments)


def test_a_planted_file_is_not_believed(tree: Path, tmp_path: Path) -> None:
    """Neither a link in the place of the cache file, nor another user's file in a folder that everybody
    may write; links are replaced."""
    cache = tmp_path / "cache"
    with loader_of(tree, cache) as first:
        images(first)
    file = cache_file(cache)
    elsewhere = tmp_path / "elsewhere"
    file.rename(elsewhere)
    before = elsewhere.read_bytes()
    file.symlink_to(elsewhere)
    with loader_of(tree, cache) as linked:
        assert learnt(linked) == 0
        images(linked)
    assert not file.is_symlink()
    assert elsewhere.read_bytes() == before
    if os.geteuid() == 0:
        cache.chmod(0o1777)
        os.chown(file, 65533, 65533)
        with loader_of(tree, cache) as others:
            assert learnt(others) == 0
