"""What is kept of files in place in a cache folder: it serves the next run, and nothing depends on it."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from in_place_helpers import EXACT, image_folder, save
from kept_helpers import COUNT, expected, folder_of, images, kept_of, known, loader_of, of_kind
from pictures import photo
from slow_disk import opened, slow_disk
from torch.utils.data import DataLoader
from torchvision import datasets

from fastload import FastLoader
from fastload._native import core
from fastload.dataset import kept_files
from fastload.dataset.in_place import listed
from fastload.errors import ArgumentError, DatasetError
from fastload.remote import kept_table
from fastload.remote.caches import cached_datasets, remove_caches


@pytest.fixture(autouse=True)
def no_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is converted, which happens at any time: see test_kept_forms.py."""
    monkeypatch.setattr(kept_files, "_LOCAL", core.KEEP_FACTS)


@pytest.fixture(params=["local", "slow"])
def disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A disk of this host alone, or one that counts as slow, whose files are kept themselves."""
    if request.param == "slow":
        monkeypatch.setattr(listed, "is_local", lambda folder: False)
    return str(request.param)


def found(loader: FastLoader[Any]) -> tuple[int, int]:
    """Times that facts and bytes were found by this loader."""
    counts = kept_of(loader)._table.counts()
    return counts["facts_found"], counts["bytes_found"]


def test_another_run_begins_with_what_the_first_learnt(tree: Path, tmp_path: Path, disk: str) -> None:
    """Facts of all files, and the bytes of those on a slow disk, which are read once; explain() says so."""
    cache = tmp_path / "made" / "cache"
    whole = COUNT * (disk == "slow")
    expected = images(DataLoader(datasets.ImageFolder(str(tree), EXACT)))
    with loader_of(tree, cache) as first:
        assert known(first) == (0, 0)
        assert torch.equal(images(first), expected)
        assert known(first) == (COUNT, whole)
        assert torch.equal(images(first), expected)
    size = sum(path.stat().st_size for path in tree.rglob("*.jpg"))
    logs = sum(path.stat().st_size for path in of_kind(cache, "log"))
    assert logs <= (1.02 if whole else 0.02) * size
    if whole:
        for path in tree.rglob("*.jpg"):
            path.chmod(0)  # which root may read all the same
    with loader_of(tree, cache) as second:
        assert torch.equal(images(second), expected)
        assert found(second)[0] >= COUNT
        assert found(second)[1] >= whole
        assert known(second) == (COUNT, whole)
        text = second.explain(all=True)
    assert f"{COUNT} of {COUNT} files are known" in text
    assert str(folder_of(cache)) in re.sub(r"\s+", "", text) or folder_of(cache).name in text
    assert ("which lie on a slow disk" in re.sub(r"\s+", " ", text)) == bool(whole)
    assert sum(path.stat().st_size for path in of_kind(cache, "log")) == logs


def test_slow_files_are_not_opened_again(tree: Path, tmp_path: Path) -> None:
    """On a real file system that takes its time: many reads at once in the first epoch, none later."""
    with slow_disk(tree, disk := tmp_path / "fuse", 100) as mount:
        with loader_of(mount, tmp_path / "cache") as loader:
            pixels = images(loader)
            count, at_once = opened(disk)
            assert count == COUNT
            assert at_once > 2  # more than there are threads
            assert known(loader) == (COUNT, COUNT)
            assert torch.equal(images(loader), pixels)
            assert opened(disk)[0] == COUNT
        assert torch.equal(images(DataLoader(datasets.ImageFolder(str(tree), EXACT))), pixels)
    with slow_disk(tree, tmp_path / "again", 100) as mount, loader_of(mount, tmp_path / "cache") as loader:
        images(loader)
        assert known(loader)[0] == COUNT


def test_a_changed_file_is_read_anew(tree: Path, tmp_path: Path, disk: str) -> None:
    images(loader_of(tree, tmp_path / "cache"))
    path = tree / "class0" / "0.jpg"
    path.write_bytes((tree / "class1" / "1.jpg").read_bytes()[:-2000])
    with loader_of(tree, tmp_path / "cache") as loader, pytest.raises(OSError, match="truncated"):
        images(loader)
    save(path, 77)
    for _ in range(2):
        assert torch.equal(
            images(loader_of(tree, tmp_path / "cache")),
            images(DataLoader(datasets.ImageFolder(str(tree), EXACT))),
        )
    path.unlink()
    with loader_of(tree, tmp_path / "cache") as loader:
        path.parent.joinpath("3.jpg").unlink()
        with pytest.raises(FileNotFoundError):
            images(loader)


@pytest.mark.parametrize("suffix", ["table", "log", "paths"])
@pytest.mark.parametrize("change", ["flipped", "cut", "empty", "link", "folder", "fifo", "gone"])
def test_a_hostile_folder_costs_time_alone(
    tree: Path, tmp_path: Path, disk: str, suffix: str, change: str
) -> None:
    """Damaged, cut or planted files change no pixel."""
    cache = tmp_path / "cache"
    with loader_of(tree, cache) as loader:
        pixels = images(loader)
    del loader
    path = of_kind(cache, suffix)[0]
    data = path.read_bytes()
    path.unlink()
    if change == "flipped":
        path.write_bytes(bytes(byte ^ 0x55 for byte in data))
    elif change == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif change == "empty":
        path.write_bytes(b"")
    elif change == "link":
        (tmp_path / "elsewhere").write_bytes(data)
        path.symlink_to(tmp_path / "elsewhere")
    elif change == "folder":
        path.mkdir()
    elif change == "fifo":
        os.mkfifo(path)
    for _ in range(2):
        with loader_of(tree, cache) as again:
            assert torch.equal(images(again), pixels)
            assert torch.equal(images(again), pixels)
    if change == "link":
        assert (tmp_path / "elsewhere").read_bytes() == data


def test_lists_and_loaders_share_a_folder(tree: Path, tmp_path: Path, disk: str) -> None:
    """Two at once add to each other's; another list of the same folder has a table of its own, another
    folder all of its own; a lock says who writes which log."""
    cache = tmp_path / "cache"
    with loader_of(tree, cache, sampler=[0, 1, 2]) as one, loader_of(tree, cache, sampler=[2, 3, 4]) as other:
        images(one)
        images(other)
        assert known(one)[0] == known(other)[0] == 5
        assert len([log for log in of_kind(cache, "log") if int(log.stem) % 2 == 0]) == 2
        with loader_of(tree, cache, sampler=[0, 4]) as third:
            images(third)
            assert found(third)[0] >= 2
    with loader_of(tree, cache) as later:
        assert known(later)[0] == 5
    assert len(of_kind(cache, "table")) == 1
    image_folder(tmp_path / "other")
    images(loader_of(tmp_path / "other", cache))
    assert len(cached_datasets(cache)) == 2


@pytest.mark.parametrize("block", [1 << 16, 2])
def test_a_list_that_changed_begins_with_what_is_known(
    tree: Path, tmp_path: Path, disk: str, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    """Files that came, went, or stand in another order: only new ones are read."""
    monkeypatch.setattr(kept_files, "_BLOCK", block)
    cache, whole = tmp_path / "cache", disk == "slow"
    with loader_of(tree, cache, sampler=[0, 1, 2, 3, 5, 8]) as loader:
        images(loader)
    (tree / "class0" / "0.jpg").unlink()
    photo(50, 480, 640).save(tree / "class1" / "00.jpg", quality=95)
    expected = images(DataLoader(datasets.ImageFolder(str(tree), EXACT)))
    with loader_of(tree, cache) as loader:
        assert known(loader) == (5, 5 * whole)
        assert torch.equal(images(loader), expected)
        assert known(loader) == (COUNT, COUNT * whole)
    dataset = datasets.ImageFolder(str(tree), EXACT)
    dataset.samples = dataset.samples[::-1] + dataset.samples[:2]
    with FastLoader(dataset, batch_size=4, num_workers=2, engine="native", cache=cache) as loader:
        assert known(loader) == (COUNT + 2, (COUNT + 2) * whole)
        assert torch.equal(images(loader), torch.cat([expected.flip(0), expected[:2]]))
        assert known(loader) == (COUNT + 2, (COUNT + 2) * whole)
    assert len(of_kind(cache, "table")) == len(of_kind(cache, "paths")) == 3


def test_the_cache_is_listed_and_removed(tree: Path, tmp_path: Path, disk: str) -> None:
    """As those of buckets, and not while it is used."""
    cache = tmp_path / "cache"
    with loader_of(tree, cache) as loader:
        images(loader)
        (each,) = cached_datasets(cache)
        assert (each.url, each.used) == (f"file://{tree}", True)
        assert remove_caches(f"file://{tree}", cache) == (0, 1)
    del loader
    (each,) = cached_datasets(cache)
    assert not each.used
    assert each.bytes > 0
    assert remove_caches(f"file://{tree}", cache) == (1, 0)
    assert not cached_datasets(cache)
    assert sorted(path.name for path in cache.iterdir()) == ["fastload-cache.json", "lock"]


def test_the_size_is_kept(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit is read again; explain() says that the folder takes no more."""
    monkeypatch.setattr(listed, "is_local", lambda folder: False)
    cache = tmp_path / "cache"
    with loader_of(tree, cache, cache_size=500_000) as loader:
        pixels = images(loader)
        assert torch.equal(images(loader), pixels)
        assert 0 < known(loader)[1] < COUNT
        kept_of(loader).tend(0.0)
        assert "takes no more" in kept_of(loader).report()
        assert sum(path.stat().st_blocks * 512 for path in cache.rglob("*")) <= 500_000 + (64 << 10)
    with loader_of(tree, tmp_path / "none", cache_size=0) as loader:
        assert torch.equal(images(loader), pixels)
        assert "nothing is kept" in loader.explain(all=True)
    with pytest.raises(ArgumentError, match="cache_size"):
        loader_of(tree, cache, cache_size="some")
    with pytest.raises(ArgumentError, match=r"cache_size='1MiB' needs a folder"):
        loader_of(tree, None, cache_size="1MiB")


def test_room_is_asked_for_while_it_runs(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By slabs, before one is used up."""
    monkeypatch.setattr(listed, "is_local", lambda folder: False)
    monkeypatch.setattr(kept_files, "_SLOW_SLAB", 200_000)
    monkeypatch.setattr(kept_table, "_TENDED_S", 0.01)
    with loader_of(tree, tmp_path / "cache", cache_size="10MiB") as loader:
        for _ in range(40):
            images(loader)
            if known(loader) == (COUNT, COUNT):
                break
            time.sleep(0.02)
        assert known(loader) == (COUNT, COUNT)
        counts = kept_of(loader)._table.counts()
        assert 200_000 < counts["written"] <= counts["granted"]


def test_a_folder_that_cannot_be_written(tree: Path, tmp_path: Path) -> None:
    """A file in the way is refused when the loader is made; a folder of another user, too."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ArgumentError, match=r"cache=.* is no folder"):
        loader_of(tree, tmp_path / "file" / "cache")
    if os.geteuid() == 0:
        (tmp_path / "others").mkdir()
        os.chown(tmp_path / "others", 65533, 65533)
        with pytest.raises(DatasetError, match="is refused"):
            loader_of(tree, tmp_path / "others")


def test_auto_is_the_users_cache_folder(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTLOAD_CACHE", str(tmp_path / "named"))
    with loader_of(tree, "auto") as loader:
        images(loader)
        assert kept_of(loader).path.parent == tmp_path / "named"


def test_a_child_reads_and_writes_nothing(tree: Path, tmp_path: Path, disk: str) -> None:
    """A forked process has the parent's table and logs."""
    cache = tmp_path / "cache"
    with loader_of(tree, cache, sampler=[0, 1, 2, 3]) as loader:
        images(loader)
        before = known(loader)
        dataset = loader._fastload.read(loader).native.datasets[0]  # type: ignore[union-attr]

        def look() -> None:
            assert all(dataset._listed.files.read(each) for each in range(COUNT))

        child = multiprocessing.get_context("fork").Process(target=look)
        child.start()
        child.join()
        assert child.exitcode == 0
        assert known(loader) == before


KILLED = """
import sys
sys.path[:0] = {path!r}
import torchvision_ops, test_kept_in_place as t
from pathlib import Path
t.listed.is_local = lambda folder: False
loader = t.loader_of(Path({tree!r}), {cache!r})
print("begun", flush=True)
while True:
    t.images(loader)
    for path in Path({tree!r}).rglob("*.jpg"):
        path.touch()
"""


@pytest.mark.timeout(120)
def test_killed_at_any_moment(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a killed process left is used, or counts as nothing: pixels are the same."""
    expected = images(DataLoader(datasets.ImageFolder(str(tree), EXACT)))
    program = KILLED.format(path=sys.path, tree=str(tree), cache=str(tmp_path / "cache"))
    monkeypatch.setattr(listed, "is_local", lambda folder: False)
    for pause in (0.0, 0.05, 0.13):
        command = [sys.executable, "-c", program]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                assert process.stdout.readline() == "begun\n"
                time.sleep(pause)
            finally:
                process.send_signal(signal.SIGKILL)
        with loader_of(tree, tmp_path / "cache") as loader:
            assert torch.equal(images(loader), expected)
            assert torch.equal(images(loader), expected)
            assert known(loader) == (COUNT, COUNT)


def test_other_formats_of_a_slow_disk_are_read_once(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pillow, too, opens the kept bytes; what it has to say of a file that is no image names the file."""
    monkeypatch.setattr(listed, "is_local", lambda folder: False)
    for number in range(10, 20):
        photo(number, 480, 640).save(tree / "class0" / f"{number}.jpg")
    photo(20, 480, 640).save(tree / "class1" / "20.bmp")
    pixels = expected(tree)
    with loader_of(tree, tmp_path / "cache") as loader:
        assert torch.equal(images(loader), pixels)
    for path in tree.rglob("*.*"):
        when, size = path.stat().st_mtime_ns, path.stat().st_size
        path.write_bytes(bytes(size))
        os.utime(path, ns=(when, when))
    with loader_of(tree, tmp_path / "cache") as loader:
        assert torch.equal(images(loader), pixels)
    (tree / "class1" / "20.bmp").write_bytes(b"no image")
    with (
        loader_of(tree, tmp_path / "cache") as loader,
        pytest.raises(OSError, match=r"cannot identify image file.*20\.bmp"),
    ):
        images(loader)
