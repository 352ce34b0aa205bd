"""Fixtures of remote data: one real server of each kind per test process, each with a bucket."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import reading
from servers.azurite import Azurite
from servers.nginx import Nginx
from servers.process import Unavailable
from servers.proxy import Proxy
from servers.seaweedfs import SeaweedFS

from fastload import PackedDataset, push
from fastload.remote.client import open_objects
from fastload.remote.objects import Objects

# Its helpers are modules for these tests.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "store"))

_count = itertools.count()


@pytest.fixture
def s3_url(seaweedfs: SeaweedFS) -> str:
    """A URL below which nothing is."""
    return f"s3://fastload/test-{next(_count)}"


@pytest.fixture
def open_s3(seaweedfs: SeaweedFS, s3_url: str) -> Iterator[Callable[..., Objects]]:
    """Opens `s3_url`, or another, with options changed as given; what it opened is closed at the test's
    end."""
    opened: list[Objects] = []

    def open_(url: str | None = None, timeout: float = 20.0, **changed: object) -> Objects:
        opened.append(open_objects(url or s3_url, {**seaweedfs.options(), **changed}, timeout))
        return opened[-1]

    yield open_
    for objects in opened:
        objects.close()


@pytest.fixture
def proxy(seaweedfs: SeaweedFS) -> Iterator[Proxy]:
    """A proxy before the server, which counts, delays and spoils."""
    with Proxy(seaweedfs.port) as running:
        yield running


@pytest.fixture(scope="session")
def photos(seaweedfs: SeaweedFS, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A local dataset in several shards, which is also at reading.URL."""
    out = reading.write_photos(tmp_path_factory.mktemp("photos") / "photos.fl")
    push(out, reading.URL, storage_options=seaweedfs.options())
    return out


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache folder, which does not exist yet."""
    return tmp_path / "cache"


@pytest.fixture
def opened(seaweedfs: SeaweedFS, photos: Path, cache: Path) -> Iterator[Callable[..., PackedDataset]]:
    """Opens reading.URL, or another, with its cache in `cache`; closes what it opened at the test's end."""
    found: list[PackedDataset] = []

    def open_(url: str = reading.URL, transform: Any = reading.CROP, **more: Any) -> PackedDataset:
        found.append(
            PackedDataset(url, transform, **{"cache": cache, "storage_options": seaweedfs.options(), **more})
        )
        return found[-1]

    yield open_
    for dataset in found:
        dataset.close()


@pytest.fixture(scope="session")
def azurite() -> Iterator[Azurite]:
    """An Azurite with the container `fastload`."""
    try:
        server = Azurite()
    except Unavailable as error:
        pytest.skip(str(error))
    with server:
        server.make_container("fastload")
        yield server


@pytest.fixture(scope="session")
def nginx() -> Iterator[Nginx]:
    """A web server for HTTPS and HTTP."""
    try:
        server = Nginx()
    except Unavailable as error:
        pytest.skip(str(error))
    with server:
        yield server
