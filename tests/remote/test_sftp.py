"""A dataset behind sftp://, a protocol of fsspec whose client no two threads may share: the batches of
local files, from a real server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from reading import CROP, batches, same, write_photos
from servers.process import Unavailable
from servers.sftp import SftpServer

from fastload import PackedDataset, push
from fastload.errors import RemoteError
from fastload.packing import verify

COUNT = 60
NAME = "data/train.fl"


@pytest.fixture(scope="module")
def server() -> Iterator[SftpServer]:
    try:
        started = SftpServer()
    except Unavailable as error:
        pytest.skip(str(error))
    with started:
        yield started


@pytest.fixture(scope="module")
def local(server: SftpServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Several shards, which are on the server too: pushed with several files at a time."""
    out = write_photos(tmp_path_factory.mktemp("photos") / "photos.fl", COUNT, shard_size=200_000)
    push(out, f"{server.url}/{NAME}", storage_options=server.options())
    return out


@pytest.mark.timeout(120)
def test_batches_are_those_of_local_files(server: SftpServer, local: Path, tmp_path: Path) -> None:
    """Read by many threads at once and in forked workers, with and without room in the cache; no thread is
    left."""
    url = f"{server.url}/{NAME}"
    before = set(threading.enumerate())
    for number, (size, arguments) in enumerate(
        (("1GiB", {}), ("1MiB", {}), ("1GiB", {"engine": "python", "seed_by": "sample"}))
    ):
        expected = batches(PackedDataset(local, CROP), epochs=2, **arguments)
        with closing(
            PackedDataset(
                url, CROP, cache=tmp_path / f"{number}", cache_size=size, storage_options=server.options()
            )
        ) as dataset:
            assert same(batches(dataset, epochs=2, **arguments), expected), (size, arguments)
    for thread in set(threading.enumerate()) - before:
        thread.join(20)
        assert not thread.is_alive(), thread.name


@pytest.mark.timeout(120)
def test_all_of_it_is_verified(server: SftpServer, local: Path) -> None:
    assert verify(f"{server.url}/{NAME}", storage_options=server.options()).ok


@pytest.mark.timeout(120)
def test_a_lost_connection_is_made_anew(server: SftpServer, local: Path, tmp_path: Path) -> None:
    """The server is killed in mid-epoch and starts again: every sample is the local one."""
    whole = PackedDataset(local)
    with closing(
        PackedDataset(f"{server.url}/{NAME}", cache=tmp_path / "cache", storage_options=server.options())
    ) as dataset:
        for index in range(COUNT):
            if index == COUNT // 2:
                server.kill()
                threading.Timer(0.5, server.start).start()
            assert same(dataset[index], whole[index]), index


@pytest.mark.timeout(60)
def test_a_wrong_password_is_one_sentence(server: SftpServer, local: Path, tmp_path: Path) -> None:
    """It names the URL and what failed, and no secret."""
    with pytest.raises(RemoteError, match=r"sftp://127\.0\.0\.1.*access denied") as caught:
        PackedDataset(
            f"{server.url}/{NAME}",
            cache=tmp_path / "cache",
            storage_options={**server.options(), "password": "wrong-word"},
        )[0]
    assert "wrong-word" not in str(caught.value)
