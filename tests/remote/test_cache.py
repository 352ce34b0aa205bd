"""The cache of datasets in buckets: never over budget, shared by all processes of a host, left in order by
those that are killed."""

from __future__ import annotations

import gc
import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reading
from dev_shm import entries, ours_since
from handles import descriptors, none_left
from reading import CROP, URL, Reader, batches, data_files, fetched, on_disk, same, size_of, until
from servers.seaweedfs import SeaweedFS

from fastload import PackedDataset, push
from fastload._native import core
from fastload.errors import DatasetError
from fastload.remote import cache_folder
from fastload.remote.cache_folder import ALIVE_S, OWNER, CacheFolder, is_local
from fastload.remote.files import RemoteFiles
from fastload.store import DatasetReader

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def copies(seaweedfs: SeaweedFS, photos: Path) -> list[str]:
    """URLs of two more copies of the dataset."""
    urls = [f"{URL}-2", f"{URL}-3"]
    for url in urls:
        push(photos, url, storage_options=seaweedfs.options())
    return urls


@pytest.fixture(scope="module")
def crcs(photos: Path) -> list[int]:
    """Checksums of the local dataset's records."""
    with DatasetReader(photos) as reader:
        return [core.crc32c(reader.record(index)) for index in range(len(reader))]


# ---- budget


@pytest.mark.long
def test_eight_processes_never_exceed_the_budget(
    seaweedfs: SeaweedFS, photos: Path, crcs: list[int], cache: Path
) -> None:
    """While eight processes fill it at once, the folder never takes more than cache_size; all of them read
    right; what is cached stays."""
    size = size_of(photos) // 3
    readers = [Reader(seaweedfs, cache, seed, URL, cache_size=size) for seed in range(8)]
    most = 0
    while any(reader.process.poll() is None for reader in readers):
        most = max(most, on_disk(cache))
        time.sleep(0.005)
    results = [reader.result() for reader in readers]
    assert all(result["crc"] == crcs for result in results)
    assert 0.8 * size < on_disk(cache) <= most <= size
    before = {path: path.read_bytes() for path in data_files(cache)}
    files = RemoteFiles(URL, cache, size, seaweedfs.options())
    with DatasetReader(files) as reader:
        there = [index for index in range(len(crcs)) if not files.missing(np.array([index]))]
        assert len(there) == files.cached() > len(crcs) // 5
        assert [core.crc32c(reader.record(index)) for index in there] == [crcs[index] for index in there]
        assert files.status().fetched == 0
    assert not list(cache.rglob("grant-*"))
    for path, data in before.items():  # what was written is still there
        now = np.frombuffer(path.read_bytes(), np.uint8)
        then = np.frombuffer(data, np.uint8)
        assert np.array_equal(now[then != 0], then[then != 0])


def test_each_byte_is_fetched_once_for_all_processes(
    seaweedfs: SeaweedFS, photos: Path, crcs: list[int], cache: Path
) -> None:
    """Eight processes, each of which reads everything in an order of its own."""
    results = [reader.result() for reader in [Reader(seaweedfs, cache, seed, URL) for seed in range(8)]]
    assert all(result["crc"] == crcs for result in results)
    assert sum(result["fetched"] for result in results) <= 1.01 * size_of(photos)
    again = Reader(seaweedfs, cache, 9, URL).result()
    assert (again["crc"], again["fetched"], again["cached"]) == (crcs, 0, len(crcs))


def test_grants_of_killed_processes_are_found_again(
    seaweedfs: SeaweedFS, photos: Path, crcs: list[int], cache: Path
) -> None:
    """Processes that are killed leave what they were granted; it is used by those after them, who need not
    be alone."""
    size = size_of(photos) + 200_000
    holder = RemoteFiles(URL, cache, size, seaweedfs.options())
    with DatasetReader(holder):
        for seed in range(6):  # each is granted 1/64 of the budget, of which no more than 200 KB is spare
            Reader(seaweedfs, cache, seed, URL, cache_size=size, kill_at=["write", 1]).killed()
        result = Reader(seaweedfs, cache, 1, URL, cache_size=size).result()
    assert (result["crc"], result["cached"]) == (crcs, len(crcs))
    assert on_disk(cache) <= size


def test_unused_datasets_go_oldest_first_and_used_ones_stay(
    photos: Path, copies: list[str], cache: Path, opened: Any
) -> None:
    """Room for two and a half: a third one takes the place of the one that was opened longest ago and is
    used by nobody."""
    size = int(2.5 * size_of(photos))
    for number, url in enumerate((URL, copies[0])):
        dataset = opened(url, cache_size=size)
        batches(dataset)
        folder = dataset.opened.reader.files.session.cache.path
        dataset.close()
        os.utime(folder / "dataset.json", (number + 1e9, number + 1e9))
    first, second = sorted(
        (path.parent for path in cache.glob("*/dataset.json")),
        key=lambda path: (path / "dataset.json").stat().st_mtime,
    )
    foreign = [cache / "mine.txt", cache / "mine" / "dataset.json", first / "mine.bin"]
    (cache / "mine").mkdir()
    for path in foreign:
        path.write_bytes(b"{}")
    third = opened(copies[1], cache_size=size)
    batches(third)
    assert [path.name for path in first.iterdir()] == ["mine.bin"]
    assert len(data_files(second)) > 1
    assert all(path.read_bytes() == b"{}" for path in foreign)
    assert on_disk(cache) <= size + 4096 * len(foreign) * 2
    used = opened(copies[0], cache_size=size)  # both that are left are used now: nothing goes
    again = opened(URL, cache_size=size)
    assert same(batches(again), batches(PackedDataset(photos, CROP)))
    for dataset in (used, third):
        before = fetched(dataset)
        batches(dataset)
        assert fetched(dataset) == before
    assert on_disk(cache) <= size + 4096 * len(foreign) * 2


def test_a_replaced_dataset_s_cache_makes_room(
    seaweedfs: SeaweedFS, photos: Path, cache: Path, opened: Any, s3_url: str, tmp_path: Path
) -> None:
    """What was cached of the dataset that was at a URL before goes when the new one is opened, and not
    while somebody reads the old one."""
    push(photos, s3_url, storage_options=seaweedfs.options())
    old = opened(s3_url)
    batches(old)
    files = set(data_files(cache))
    other = reading.write_photos(tmp_path / "other.fl", 40)
    push(other, s3_url, overwrite=True, storage_options=seaweedfs.options())
    new = opened(s3_url)
    assert same(batches(new), batches(PackedDataset(other, CROP)))
    assert files < set(data_files(cache))
    assert same(batches(old), batches(PackedDataset(photos, CROP)))  # all of it is cached
    old.close()
    new.close()
    assert same(batches(new), batches(PackedDataset(other, CROP)))
    assert not files & set(data_files(cache))


def test_a_cache_of_nothing_makes_no_file(opened: Any, photos: Path, cache: Path) -> None:
    assert same(batches(opened(cache_size=0)), batches(PackedDataset(photos, CROP)))
    assert not cache.exists()


def test_a_full_disk(photos: Path, copies: list[str], opened: Any, tmp_path: Path) -> None:
    """A disk with less room than the cache may take: what does not fit is used from memory, and nothing
    fails."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size_of(photos) // 3}", "tmpfs", disk], capture_output=True
    ).returncode:
        pytest.skip("mounting needs root")
    try:
        far = opened(cache=disk / "cache", cache_size="1GiB")
        assert same(batches(far, 2), batches(PackedDataset(photos, CROP), 2))
        far.close()
        with open(disk / "rest", "wb", buffering=0) as file:
            try:
                while file.write(bytes(4096)):
                    pass
            except OSError:
                pass
        with pytest.warns(
            UserWarning,
            match=rf"the cache {disk}/cache cannot be written \(No space left on device\).*cache=",
        ):
            late = opened(copies[0], cache=disk / "cache", cache_size="1GiB")  # not even a folder has room
        assert same(batches(late), batches(PackedDataset(photos, CROP)))
        late.close()
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


# ---- ends of life


@pytest.mark.long
@pytest.mark.parametrize("call", ["create", "claim", "write", "mark"])
def test_killed_right_after_a_call(
    seaweedfs: SeaweedFS, photos: Path, crcs: list[int], cache: Path, call: str
) -> None:
    """The next reader gets the right records and is not kept waiting; one that runs meanwhile neither."""
    beside = Reader(seaweedfs, cache, 7, URL)
    for count in (1, 2, 5):
        Reader(seaweedfs, cache, count, URL, kill_at=[call, count]).killed()
    assert beside.result()["crc"] == crcs
    result = Reader(seaweedfs, cache, 3, URL).result()
    assert (result["crc"], result["cached"]) == (crcs, len(crcs))


@pytest.mark.long
def test_killed_at_any_moment(seaweedfs: SeaweedFS, photos: Path, crcs: list[int], cache: Path) -> None:
    """kill -9 at random moments, of processes that run two at a time, in a cache that has room for most;
    then everything is right."""
    seed = random.randrange(1 << 30)
    draw, size = random.Random(seed), int(0.8 * size_of(photos))
    for round_ in range(8):
        pair = [Reader(seaweedfs, cache, draw.randrange(100), URL, cache_size=size) for _ in range(2)]
        assert pair[0].process.stdout is not None
        if round_ % 3:
            pair[0].process.stdout.readline()  # it is open
        time.sleep(draw.uniform(0, 0.15))
        for reader in pair:
            reader.process.kill()
            reader.killed()
        assert on_disk(cache) <= size, f"seed {seed}"
    result = Reader(seaweedfs, cache, 1, URL, cache_size=size).result()
    assert result["crc"] == crcs, f"seed {seed}"
    assert on_disk(cache) <= size, f"seed {seed}"
    assert not list(cache.rglob("grant-*")), f"seed {seed}"


def test_nothing_is_left_after_close(photos: Path, opened: Any, cache: Path, no_leaks: None) -> None:
    """Neither descriptors, nor threads of Python, nor files in /tmp and /dev/shm: after close(), and after
    collection."""
    before_shm = entries()

    def held() -> tuple[list[str], list[str]]:
        gc.collect()
        mine = [link for link in descriptors().values() if str(cache) in link or "fastload-shard" in link]
        return mine, [thread.name for thread in threading.enumerate() if thread.name.startswith("fastload")]

    for size in (None, 1_000_000, 0):
        dataset = opened(cache_size=size)
        batches(dataset)
        assert held()[1].count("fastload-fetch") == 1
        dataset.close()
        until(lambda: held() == ([], []))
    assert not ours_since(before_shm)


def test_the_thread_that_fetches_keeps_nothing_of_what_was_closed(
    photos: Path, opened: Any, cache: Path, tmp_path: Path
) -> None:
    """Once close() returns, no native object is left, though the thread goes on for another dataset and
    gets the interpreter late."""
    opened(cache=tmp_path / "other")
    switching = sys.getswitchinterval()
    sys.setswitchinterval(0.05)
    try:
        for round_ in range(8):
            with none_left():
                dataset = opened(cache=cache / str(round_))
                with reading.FastLoader(dataset, batch_size=16, num_workers=2) as loader:
                    next(iter(loader))
                dataset.close()
                del loader, dataset
    finally:
        sys.setswitchinterval(switching)


def test_collected_without_close(seaweedfs: SeaweedFS, photos: Path, cache: Path) -> None:
    """A dataset that nobody holds any more lets go of its files and of the thread, also with requests on
    their way."""
    dataset = PackedDataset(URL, CROP, cache=cache, storage_options=seaweedfs.options())
    iterator = iter(reading.FastLoader(dataset, batch_size=8, shuffle=True, num_workers=2))
    next(iterator)
    assert [thread for thread in threading.enumerate() if thread.name == "fastload-fetch"]
    del iterator, dataset
    gc.collect()
    until(lambda: not [thread for thread in threading.enumerate() if thread.name == "fastload-fetch"])
    until(lambda: not [link for link in descriptors().values() if str(cache) in link])


# ---- two hosts

ANEW = "import fastload.remote.cache_folder as folder; folder.boot_id = lambda: 'another-boot'"
OTHER = f"{ANEW}; folder.is_local = lambda path: False"


def test_another_host_is_refused_and_takes_over_later(
    seaweedfs: SeaweedFS, photos: Path, crcs: list[int], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one sentence that names the folder and the host; once nobody has used the folder for ALIVE_S,
    it is the other host's."""
    monkeypatch.setattr(cache_folder, "is_local", lambda path: False)
    files = RemoteFiles(URL, cache, None, seaweedfs.options())
    with DatasetReader(files) as reader:
        reader.record(0)
        refused = Reader(seaweedfs, cache, 0, URL, OTHER)
        _, err = refused.process.communicate(timeout=60)
        assert refused.process.returncode == 1
        last = err.strip().splitlines()[-1]
        assert f"the cache {cache} is in use by another host" in last
        assert "give each host a folder" in last
        long_ago = time.time() - ALIVE_S - 1
        os.utime(cache / OWNER, (long_ago, long_ago))
        assert Reader(seaweedfs, cache, 0, URL, OTHER).result()["crc"] == crcs
        files.session.folder.renew()  # as it does every RENEWED_S: the folder is another's now
        assert files.session.cache.full
        assert json.loads((cache / OWNER).read_text())["boot"] == "another-boot"
        assert [core.crc32c(reader.record(index)) for index in range(20)] == crcs[:20]
    with pytest.raises(DatasetError, match="in use by another host"):
        CacheFolder(cache)


def test_a_host_that_was_started_anew_has_its_cache_at_once(
    seaweedfs: SeaweedFS, photos: Path, crcs: list[int], cache: Path
) -> None:
    """Its boot ID is another, and the folder is on its own disk, as it was: nothing is waited for, and
    what is cached is used."""
    cache.mkdir()
    if not is_local(cache):
        pytest.skip("the tests' folder is on a network file system")
    assert Reader(seaweedfs, cache, 0, URL).result()["crc"] == crcs
    found = Reader(seaweedfs, cache, 1, URL, ANEW).result()
    assert (found["crc"], found["fetched"], found["cached"]) == (crcs, 0, len(crcs))
    assert json.loads((cache / OWNER).read_text())["boot"] == "another-boot"


@pytest.mark.parametrize(("was", "now"), [(True, False), (False, True), (False, False), (None, True)])
def test_a_folder_that_another_host_may_see_is_refused(
    cache: Path, monkeypatch: pytest.MonkeyPatch, was: bool | None, now: bool
) -> None:
    """An exported disk is local for the server alone, a network file system for nobody: who comes second
    is refused, whoever that is."""
    monkeypatch.setattr(cache_folder, "is_local", lambda path: bool(was))
    CacheFolder(cache).close()
    if was is None:  # written by an earlier fastload
        found = json.loads((cache / OWNER).read_text())
        del found["local"]
        (cache / OWNER).write_text(json.dumps(found))
    monkeypatch.setattr(cache_folder, "is_local", lambda path: now)
    CacheFolder(cache).close()
    monkeypatch.setattr(cache_folder, "boot_id", lambda: "another-boot")
    with pytest.raises(DatasetError, match="in use by another host"):
        CacheFolder(cache)


def test_which_folders_are_of_this_host_alone(tmp_path: Path) -> None:
    """A tmpfs is; what the kernel makes up, and what is not there, is not known to be."""
    assert is_local(Path("/dev/shm"))
    assert not is_local(Path("/proc"))
    assert not is_local(tmp_path / "none")


def test_a_folder_in_use_is_renewed_though_nothing_is_fetched(
    seaweedfs: SeaweedFS, photos: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who reads from a full cache for hours keeps other hosts away."""
    monkeypatch.setattr("fastload.remote.session.RENEWED_S", 0.05)
    with DatasetReader(RemoteFiles(URL, cache, None, seaweedfs.options())):
        os.utime(cache / OWNER, (0, 0))
        until(lambda: (cache / OWNER).stat().st_mtime > time.time() - 60)


# ---- where it is


def test_default_folder(
    seaweedfs: SeaweedFS, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FASTLOAD_CACHE, then XDG_CACHE_HOME, then ~/.cache; train/ and val/, and two endpoints, never share
    a folder."""
    monkeypatch.setenv("FASTLOAD_CACHE", str(tmp_path / "named"))
    dataset = PackedDataset(URL, CROP, storage_options=seaweedfs.options())
    batches(dataset)
    dataset.close()
    assert data_files(tmp_path / "named")
    monkeypatch.delenv("FASTLOAD_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder.default_folder() == tmp_path / "xdg" / "fastload"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder.default_folder() == tmp_path / "home" / ".cache" / "fastload"
    root = CacheFolder(tmp_path / "root")
    places = {
        root.folder_of(url, place)
        for url in ("s3://b/train/x.fl", "s3://b/val/x.fl", "gs://b/train/x.fl")
        for place in ("", "http://e")
    }
    assert len(places) == 6
    assert root.folder_of("s3://b/x.fl/", "") == root.folder_of("S3://b/x.fl", "")
    root.close()
