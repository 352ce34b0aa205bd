"""A dataset that is replaced or deleted while it is open ends in an error that says which, on every kind
of store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import reading
from reading import CROP, batches, same
from servers.azurite import Azurite
from servers.nginx import Nginx
from servers.seaweedfs import SeaweedFS

from fastload import PackedDataset, push
from fastload.errors import RemoteError
from fastload.remote.client import open_objects

Place = tuple[str, dict[str, Any], str, dict[str, Any]]
"""Where to write and where to read, each with its options."""


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A local dataset."""
    return reading.write_photos(tmp_path_factory.mktemp("photos") / "photos.fl", 60, 300_000)


@pytest.fixture(params=["seaweedfs", "azurite", "nginx"])
def place(request: pytest.FixtureRequest) -> Place:
    """A store and a name in it that is the test's own."""
    name = f"replaced-{abs(hash(request.node.name))}"
    server: SeaweedFS | Azurite | Nginx = request.getfixturevalue(request.param)
    if isinstance(server, Nginx):
        certificate = {"client_options": {"root_certificate": server.certificate}}
        return f"file://{server.root}/{name}", {}, f"{server.https}/{name}", certificate
    url = f"{'az' if isinstance(server, Azurite) else 's3'}://fastload/{name}"
    return url, server.options(), url, server.options()


def spoil(place: Place, how: str, tmp_path: Path) -> None:
    """Replaces the dataset by another, or deletes it."""
    if how == "deleted":
        objects = open_objects(place[0], place[1])
        for info in objects.list():
            objects.delete(info.name)
        objects.close()
    else:
        other = reading.write_photos(tmp_path / "other.fl", 80, 500_000)
        push(other, place[0], overwrite=True, storage_options=place[1])


@pytest.mark.parametrize("how", ["replaced", "deleted"])
def test_it_is_an_error_that_says_so(place: Place, photos: Path, tmp_path: Path, how: str) -> None:
    """Never a sample of the other dataset. One that is gone may come back before the timeout; another in
    its place ends the tries."""
    push(photos, place[0], storage_options=place[1])
    timeout = {"replaced": 1000, "deleted": 4}[how]
    dataset = PackedDataset(
        place[2], CROP, cache=tmp_path / "cache", storage_options=place[3], timeout=timeout
    )
    dataset[0]
    spoil(place, how, tmp_path)
    with pytest.raises(RemoteError, match=f"the dataset there was {how}.* after it was opened"):
        batches(dataset)
    dataset.close()


def test_objects_that_are_written_again_as_they_were_are_read_on(
    place: Place, photos: Path, tmp_path: Path
) -> None:
    """Their ETags may change, their bytes do not: that is no other dataset."""
    push(photos, place[0], storage_options=place[1])
    dataset = PackedDataset(
        place[2], CROP, cache=tmp_path / "cache", cache_size=0, storage_options=place[3], timeout=20
    )
    expected = batches(PackedDataset(photos, CROP))
    assert same(batches(dataset), expected)
    objects = open_objects(place[0], place[1])
    for path in photos.iterdir():
        if path.name.startswith("shard-"):
            objects.put_file(path.name, path)
    objects.close()
    assert same(batches(dataset), expected)
    dataset.close()
