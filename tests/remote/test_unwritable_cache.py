"""A cache folder that cannot be written is read as far as it goes; the user is told once, and nothing
fails."""

from __future__ import annotations

import os
import signal
import subprocess
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import reading
from reading import CROP, ENGINES, batches, fetched, same, steps_of
from servers.seaweedfs import SeaweedFS

from fastload import FastLoader, PackedDataset, push
from fastload.remote.cache_folder import OWNER

URL = "s3://fastload/unwritable/photos.fl"
PAIR = ("image", "label")
NOBODY = 65534


@pytest.fixture(scope="module")
def photos(seaweedfs: SeaweedFS, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A local dataset, which is also at URL."""
    out = reading.write_photos(tmp_path_factory.mktemp("photos") / "photos.fl", 60, 300_000)
    push(out, URL, storage_options=seaweedfs.options())
    return out


@pytest.fixture
def opened(seaweedfs: SeaweedFS, photos: Path) -> Iterator[Callable[..., PackedDataset]]:
    """Opens URL with a cache; closed at the end."""
    found: list[PackedDataset] = []

    def open_(cache: Path, steps: Any = CROP) -> PackedDataset:
        found.append(PackedDataset(URL, steps, cache=cache, storage_options=seaweedfs.options(), fields=PAIR))
        return found[-1]

    yield open_
    for dataset in found:
        dataset.close()


@contextmanager
def read_only(folder: Path, at: Path) -> Iterator[Path]:
    """The folder, mounted at another place where nobody can write."""
    at.mkdir()
    if subprocess.run(["mount", "--bind", folder, at], capture_output=True).returncode:
        pytest.skip("mounting needs root")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", at], check=True)
        yield at
    finally:
        subprocess.run(["umount", "--lazy", at], check=True)


@pytest.mark.parametrize("engine", [name for name in ENGINES if name != "spawned"])
@pytest.mark.parametrize("part", ["all", "half", "none"])
def test_a_read_only_folder(
    opened: Callable[..., PackedDataset], photos: Path, tmp_path: Path, engine: str, part: str
) -> None:
    """What is there is used, the rest is fetched in each epoch; one warning names folder and reason;
    explain() says so, nothing changes."""
    steps = steps_of(ENGINES[engine])
    full = tmp_path / "full"
    full.mkdir()
    if part != "none":
        first = opened(full)
        first.__getitems__(range(60 if part == "all" else 30))
        first.close()
    before = {path: path.stat().st_mtime_ns for path in full.rglob("*")}
    with read_only(full, tmp_path / "there") as there:
        with pytest.warns(
            UserWarning,
            match=(
                rf"the cache {there} cannot be written \(Read-only file system\): .*cache= or "
                r"FASTLOAD_CACHE"
            ),
        ):
            dataset = opened(there, steps)
        expected = batches(PackedDataset(photos, steps, fields=PAIR), num_workers=0)
        for _ in range(2):
            assert same(batches(dataset, **ENGINES[engine]), expected)
        if "engine" not in ENGINES[engine]:
            assert (fetched(dataset) == 0) == (part == "all")
        with FastLoader(dataset, batch_size=8) as loader:
            text = str(loader.explain(all=True))
        assert "which cannot be written (Read-only file system)" in " ".join(text.split())
        opened(there, steps).close()  # no second warning: it would be an error here
        dataset.close()
    assert {path: path.stat().st_mtime_ns for path in full.rglob("*")} == before


def records(dataset: PackedDataset) -> list[bytes]:
    """All records of a dataset. No tensor is touched: torch's own threads do not outlive a fork."""
    return [bytes(dataset.opened.reader.record(index)) for index in range(60)]


@pytest.mark.parametrize("mode", [0o755, 0o700])
def test_another_user_s_folder(
    opened: Callable[..., PackedDataset], photos: Path, tmp_path: Path, mode: int
) -> None:
    """It is read where that is allowed, and else left alone; never a bare PermissionError."""
    if os.geteuid():
        pytest.skip("becoming another user needs root")
    cache = tmp_path / "cache"
    opened(cache).__getitems__(range(60))
    for path in tmp_path.parents:
        if path.stat().st_uid == 0 and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o011)
    tmp_path.chmod(0o755)
    cache.chmod(mode)
    expected = records(PackedDataset(photos))

    def read() -> bool:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)
        far = opened(tmp_path / "other")
        far[0]
        os.seteuid(NOBODY)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            dataset = opened(cache)
        right = records(dataset) == expected
        return (
            right
            and (fetched(dataset) == 0) == (mode == 0o755)
            and "Permission denied" in str(caught[0].message)
        )

    pid = os.fork()
    if not pid:
        status = 1
        try:
            status = 0 if read() else 2
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, "see the child's traceback on stderr"


def test_a_folder_that_is_written_says_nothing(opened: Callable[..., PackedDataset], tmp_path: Path) -> None:
    """Neither a warning, which would be an error here, nor a word in explain()."""
    dataset = opened(tmp_path / "cache")
    batches(dataset)
    with FastLoader(dataset, batch_size=8) as loader:
        assert "cannot be written" not in str(loader.explain(all=True))
    assert (tmp_path / "cache" / OWNER).exists()
