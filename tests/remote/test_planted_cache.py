"""A cache folder in which others write: no planted link, folder or file is followed or believed; groups
share; a tight budget is named."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from reading import CROP, URL, batches, same
from servers.seaweedfs import SeaweedFS

from fastload import FastLoader, PackedDataset
from fastload._native import core
from fastload.common.files import check_entry, open_entry, open_folder
from fastload.errors import DatasetError, PackError
from fastload.remote.cache_folder import OWNER, write_used
from fastload.remote.caches import cached_datasets, remove_caches
from fastload.remote.obstore_process import own_obstore
from fastload.remote.shared_files import (
    dataset_folder,
    make_dataset_folder,
    remove_dataset_folder,
    remove_in_dataset,
    replace_file,
)
from fastload.remote.writer import default_staging
from fastload.store import Manifest

Open = Callable[..., PackedDataset]
OTHER = 65533
GROUP = 54321
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="giving files to another user needs root")


@pytest.fixture(scope="module")
def expected(photos: Path) -> list[Any]:
    """The local dataset's batches."""
    return batches(PackedDataset(photos, CROP, seed=3))


def dataset_in(cache: Path) -> Path:
    """The folder of the one dataset that a cache has."""
    (found,) = [path for path in cache.iterdir() if path.is_dir()]
    return found


def read(opened: Open, cache: Path, why: str = "") -> list[Any]:
    """All batches, read by way of a cache; a warning that has `why` is given, or none."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dataset = opened(cache=cache, seed=3)
        found = batches(dataset)
        dataset.close()
    said = [str(each.message) for each in caught if issubclass(each.category, UserWarning)]
    assert [each for each in said if why in each] if why else not said, said
    return found


def filled(opened: Open, cache: Path) -> Path:
    """A cache that has the whole dataset; returns the dataset's folder."""
    dataset = opened(cache=cache)
    dataset.__getitems__(range(len(dataset)))
    dataset.close()
    return dataset_in(cache)


PLANTED = {
    "used": "used",
    "the lock": "lock",
    "users": "users",
    "claims": "claims",
    "dataset.json": "dataset.json",
    "a shard": "*.lmdb",
    "a state": "*.state",
    "a segment": "*-index-*",
    "the owner": OWNER,
}


@pytest.mark.parametrize("what", PLANTED)
def test_a_planted_link_is_not_followed(opened: Open, expected: list[Any], tmp_path: Path, what: str) -> None:
    """A link in the place of any file of a cache: what it leads to stays as it is, byte for byte, and the
    right samples come."""
    cache = tmp_path / "shared"
    folder = filled(opened, cache)
    (victim,) = list((cache if PLANTED[what] in ("lock", OWNER) else folder).glob(PLANTED[what]))[:1]
    target = tmp_path / "precious"
    target.write_bytes(b"precious" * 1000)
    victim.unlink()
    victim.symlink_to(target)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset = opened(cache=cache, seed=3)
        assert same(batches(dataset), expected)
        dataset.close()
        cached_datasets(cache) if what != "the lock" else None
    assert target.read_bytes() == b"precious" * 1000


def test_a_dataset_s_folder_that_is_a_link(opened: Open, expected: list[Any], tmp_path: Path) -> None:
    """Nothing is written or removed where it leads; the cache says why it is not used."""
    cache, elsewhere = tmp_path / "shared", tmp_path / "elsewhere"
    folder = filled(opened, cache)
    folder.rename(elsewhere)
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in elsewhere.iterdir()}
    folder.symlink_to(elsewhere)
    assert same(read(opened, cache, "is a symbolic link, which somebody may have planted"), expected)
    assert remove_caches(None, cache) == (0, 0)
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in elsewhere.iterdir()} == before


def test_a_link_in_the_place_of_a_file_that_is_not_there_yet(opened: Open, tmp_path: Path) -> None:
    """A dangling link makes no file elsewhere."""
    cache = tmp_path / "shared"
    folder = filled(opened, cache)
    (folder / "used").unlink()
    (folder / "used").symlink_to(tmp_path / "made")
    (folder / "dataset.json.tmp").symlink_to(tmp_path / "made")
    with pytest.warns(UserWarning, match="used is a symbolic link"):
        opened(cache=cache).close()
    assert not (tmp_path / "made").exists()


@root_only
def test_another_user_s_cache_is_refused(opened: Open, tmp_path: Path) -> None:
    """A cache folder that belongs to somebody else, and a link of theirs, end in one sentence."""
    cache = tmp_path / "theirs"
    cache.mkdir()
    os.chown(cache, OTHER, OTHER)
    link = tmp_path / "link"
    (tmp_path / "mine").mkdir()
    link.symlink_to(tmp_path / "mine")
    os.lchown(link, OTHER, OTHER)
    for each in (cache, link):
        with pytest.raises(
            DatasetError, match=rf"the cache {each} is refused: it belongs to another user \(uid {OTHER}\)"
        ):
            opened(cache=each)
        assert not list(each.iterdir())


@root_only
def test_another_user_s_folder_in_a_cache_that_all_may_write(
    opened: Open, expected: list[Any], tmp_path: Path
) -> None:
    """It is not read, though its files are sound; nothing is written to it. One's own folder beside it is
    used."""
    cache = tmp_path / "all"
    cache.mkdir()
    cache.chmod(0o1777)
    folder = filled(opened, cache)
    for path in (folder, *folder.iterdir()):
        os.chown(path, OTHER, OTHER)
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert same(read(opened, cache, f"belongs to another user (uid {OTHER})"), expected)
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before


@root_only
def test_a_file_that_everybody_may_write(opened: Open, expected: list[Any], tmp_path: Path) -> None:
    """A shard of mode 0666 counts as missing: it is made anew, and its bytes are fetched again."""
    folder = filled(opened, tmp_path / "cache")
    for path in folder.glob("*.lmdb"):
        path.chmod(0o666)
        path.write_bytes(bytes(path.stat().st_size))
    assert same(read(opened, tmp_path / "cache"), expected)
    assert not [path for path in folder.iterdir() if path.stat().st_mode & stat.S_IWOTH]


def test_no_file_is_writable_by_everybody(opened: Open, tmp_path: Path) -> None:
    """Whatever the umask."""
    before = os.umask(0)
    try:
        filled(opened, tmp_path / "cache")
    finally:
        os.umask(before)
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.stat().st_mode & stat.S_IWOTH]


@root_only
def test_a_group_shares_a_cache(opened: Open, photos: Path, seaweedfs: SeaweedFS, tmp_path: Path) -> None:
    """Root makes a folder for a group (mode 2775): what one member has fetched, another one reads, adds to
    and does not fetch again."""
    cache = tmp_path / "group"
    cache.mkdir()
    os.chown(cache, 0, GROUP)
    cache.chmod(0o2775)
    for path in tmp_path.parents:
        if path.stat().st_uid == 0 and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o011)
    tmp_path.chmod(0o755)

    def member(uid: int, first: int, last: int) -> int:
        """Reads samples as one member, in a child; returns the bytes that it fetched."""
        receiver, sender = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                own_obstore()  # while it is root: the environment's packages may lie where only root can read
                os.setgroups([GROUP])
                os.setresgid(GROUP, GROUP, GROUP)
                os.setresuid(uid, uid, uid)
                os.umask(0o002)
                warnings.simplefilter("error")
                dataset = PackedDataset(
                    URL,
                    cache=cache,
                    storage_options=seaweedfs.options(),
                    transform=None,
                    fields=("label", "raw"),
                )
                dataset.__getitems__(range(first, last))
                os.write(sender, str(dataset.opened.reader.files.status().fetched).encode())
                dataset.close()
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        os.close(sender)
        with os.fdopen(receiver) as answer:
            text = answer.read()
        os.waitpid(pid, 0)
        assert text, "see the child's traceback on stderr"
        return int(text)

    assert member(1001, 0, 60) > 0
    assert member(1002, 0, 60) == 0
    assert member(1002, 60, 120) > 0
    assert member(1001, 0, 120) == 0


@root_only
def test_a_planted_staging_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder through which a pack goes to a URL is nobody else's, and no link."""
    monkeypatch.setenv("FASTLOAD_CACHE", str(tmp_path))
    staging = default_staging("s3://bucket/a")
    (tmp_path / "elsewhere").mkdir()
    staging.parent.mkdir()
    staging.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PackError, match=r"symbolic link.*--staging"):
        default_staging("s3://bucket/a")
    staging.unlink()
    staging.mkdir()
    os.chown(staging, OTHER, OTHER)
    with pytest.raises(PackError, match=rf"another user .uid {OTHER}.*--staging"):
        default_staging("s3://bucket/a")


@root_only
def test_entries(tmp_path: Path) -> None:
    """Whose entry is taken: one's own and root's everywhere; others' where only owner and group may write;
    no link; none that all write."""
    file = tmp_path / "file"
    for mode, owner, own_mode, taken in [
        (0o755, 0, 0o644, True),
        (0o1777, 0, 0o644, True),
        (0o777, OTHER, 0o644, False),
        (0o1777, OTHER, 0o644, False),
        (0o775, OTHER, 0o664, True),
        (0o755, OTHER, 0o664, True),
        (0o755, 0, 0o666, False),
    ]:
        tmp_path.chmod(mode)
        file.write_bytes(b"x")
        os.chown(file, owner, owner)
        file.chmod(own_mode)
        folder = open_folder(tmp_path)
        try:
            descriptor = open_entry(folder, "file", os.O_RDONLY)
        except OSError as error:
            assert not taken
            assert error.errno == errno.EPERM
        else:
            assert taken
            os.close(descriptor)
        os.close(folder)
        file.unlink()
    file.symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="symbolic link"):
        check_entry(os.lstat(file), os.stat(tmp_path), file)


@root_only
def test_a_cache_folder_that_is_exchanged_while_it_is_in_use(
    opened: Open, expected: list[Any], tmp_path: Path
) -> None:
    """Who owns the folder around a cache may put another one in its place: it is neither read nor written
    to from then on."""
    home = tmp_path / "theirs"
    home.mkdir()
    cache = home / "cache"
    filled(opened, cache)
    os.chown(home, OTHER, OTHER)
    dataset = opened(cache=cache, seed=3)
    cache.rename(home / "mine")
    shutil.copytree(home / "mine", cache)
    for path in (cache, *cache.rglob("*")):
        if path.suffix == ".state":
            path.write_bytes(b"\1" * path.stat().st_size)
        os.chown(path, OTHER, OTHER)
    before = {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in cache.rglob("*")}
    assert same(batches(dataset), expected)
    dataset.close()
    with pytest.raises(DatasetError, match=rf"the cache {cache} is refused: it belongs to another user"):
        opened(cache=cache)
    assert {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in cache.rglob("*")} == before


def test_a_link_below_the_open_folder(tmp_path: Path) -> None:
    """Files are made, replaced and removed in the folder that was opened, though another has its name by
    now."""
    cache, elsewhere = tmp_path / "cache", tmp_path / "elsewhere"
    folder = cache / "photos-0"
    for path in (folder, elsewhere):
        path.mkdir(parents=True)
    (elsewhere / "used").write_bytes(b"precious")
    with dataset_folder(folder) as held:
        folder.rename(cache / "moved")
        folder.symlink_to(elsewhere)
        replace_file(held, "used", b"1")
        os.unlink("used", dir_fd=held)
    for call in (
        lambda: remove_in_dataset(folder / "used"),
        lambda: remove_dataset_folder(folder),
        lambda: write_used(folder, 7),
    ):
        with pytest.raises(OSError, match=r"symbolic link|Not a directory"):
            call()
    make_dataset_folder(folder)
    assert (elsewhere / "used").read_bytes() == b"precious"
    assert list((cache / "moved").iterdir()) == []


def test_a_shard_that_is_a_link_or_everybody_s_is_not_opened(photos: Path, tmp_path: Path) -> None:
    """By the native reader, of a guarded file, when it opens it and when it opens it again; any other file
    may be a link, as ever."""
    shard = Manifest.load(photos).shards[0]
    arguments = shard.first, shard.count, shard.bytes
    link, own = tmp_path / "link.lmdb", tmp_path / "own.lmdb"
    link.symlink_to(photos / shard.file)
    shutil.copy(photos / shard.file, own)
    core.Store().add(str(link), *arguments)
    core.Store().add(str(own), *arguments, guarded=True)
    with pytest.raises(DatasetError, match=r"cannot open shard link.lmdb"):
        core.Store().add(str(link), *arguments, guarded=True)
    own.chmod(0o666)
    with pytest.raises(DatasetError, match=r"cannot open shard own.lmdb"):
        core.Store().add(str(own), *arguments, guarded=True)


def test_a_tight_budget_is_named(opened: Open, seaweedfs: SeaweedFS, tmp_path: Path) -> None:
    """Where cache_size leaves no room for the dataset, the warning names the setting, its value and what
    is needed, not the folder."""
    cache = tmp_path / "cache"
    held = opened(cache=cache, cache_size="64KiB")
    hosts = ("localhost", "LOCALHOST", "Localhost")  # for the cache, other datasets
    others = [seaweedfs.options(seaweedfs.endpoint.replace("127.0.0.1", host)) for host in hosts]
    with pytest.warns(
        UserWarning,
        match=r"is full: cache_size=65,536 bytes.*needs 20,480 bytes.*cache_size= \(--cache-size\)",
    ) as caught:
        datasets = [opened(cache=cache, cache_size="64KiB", storage_options=other) for other in others]
    with FastLoader(datasets[-1], batch_size=8) as loader:
        text = " ".join(str(loader.explain(all=True)).split())
    assert "name a folder" not in str(caught[0].message)
    assert "cannot be written" not in str(caught[0].message) + text
    held.close()
