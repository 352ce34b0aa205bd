"""push, pull, verify and pack are alike on Azure, on file:// and on file systems of fsspec; HTTPS servers
are only read from."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from servers.azurite import Azurite
from servers.nginx import Nginx
from transfer_helpers import dataset_of, files_of, names_at, source_of

import fastload
from fastload.errors import DatasetError, FastloadError, PackError
from fastload.packing import verify
from fastload.remote.client import open_objects
from fastload.store import Manifest


@pytest.fixture(params=["azure", "file", "fsspec"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """A URL below which nothing is, and the options of its store."""
    if request.param == "azure":
        azurite: Azurite = request.getfixturevalue("azurite")
        yield f"az://fastload/{tmp_path.name}", azurite.options()
    elif request.param == "file":
        yield (tmp_path / "store").as_uri(), {}
    else:
        pytest.importorskip("fsspec")
        yield f"memory://{tmp_path.name}", {}


def test_there_and_back(store: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    """A push, a push of a later version, a pull, a verification that finds damage, and an overwriting push
    that mends it."""
    url, options = store
    dataset = dataset_of(tmp_path)
    assert fastload.push(dataset, url, storage_options=options).sent_files == len(files_of(dataset)) - 1
    assert fastload.push(dataset, url, storage_options=options).sent_files == 0
    fastload.append(dataset, source_of(tmp_path, 20), shard_size="1MiB")
    assert fastload.push(dataset, url, storage_options=options).sent_files == 2
    with pytest.raises(PackError, match="holds another packed dataset"):
        fastload.push(dataset_of(tmp_path, 10, "other"), url, storage_options=options)
    fastload.pull(url, tmp_path / "back", storage_options=options)
    assert verify(tmp_path / "back").ok
    assert Manifest.load(tmp_path / "back").same_samples(Manifest.load(dataset))
    assert verify(url, storage_options=options).ok
    objects = open_objects(url, options, 20.0)
    shard = Manifest.load(dataset).shards[0].file
    data = bytearray(objects.get(shard, 1 << 30))
    data[9000] ^= 1
    objects.put(shard, bytes(data))
    (problem,) = verify(url, storage_options=options).problems
    assert shard in problem
    with pytest.raises(DatasetError, match=shard):
        fastload.pull(url, tmp_path / "again", storage_options=options)
    fastload.push(dataset, url, overwrite=True, storage_options=options)
    assert verify(url, decode=True, storage_options=options).ok
    assert shard not in names_at(objects)
    objects.close()


def test_pack_there(store: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    """The bytes of a local pack, also after a pack that stopped at a bad file and was resumed."""
    url, options = store
    source = source_of(tmp_path)
    fastload.pack(source, tmp_path / "local", shard_size="1MiB")
    bad = sorted(source.rglob("*.jpg"))[-1]
    whole = bad.read_bytes()
    bad.write_bytes(b"")
    settings: dict[str, Any] = {"shard_size": "1MiB"}
    if not url.startswith("file:"):
        settings |= {"staging": tmp_path / "staging", "storage_options": options}
    with pytest.raises(PackError):
        fastload.pack(source, url, **settings)
    bad.write_bytes(whole)
    fastload.pack(source, url, resume=True, **settings)
    objects = open_objects(url, options, 20.0)
    assert {name: objects.get(name, 1 << 30) for name in names_at(objects)} == files_of(tmp_path / "local")
    objects.close()


def test_https(nginx: Nginx, tmp_path: Path) -> None:
    """A folder that a web server shows is pulled and verified; what cannot be written there is refused in
    a sentence."""
    dataset = dataset_of(tmp_path)
    shutil.copytree(dataset, nginx.root / "train.fl")
    (nginx.root / "train.fl").chmod(0o755)
    url, options = f"{nginx.https}/train.fl", {"client_options": {"root_certificate": nginx.certificate}}
    assert verify(url, storage_options=options).ok
    fastload.pull(url, tmp_path / "back", storage_options=options)
    assert files_of(tmp_path / "back") == files_of(dataset)
    (nginx.root / "train.fl" / Manifest.load(dataset).shards[0].file).unlink()
    assert "there is no such object" in verify(url, storage_options=options).problems[0]
    with pytest.raises(FastloadError, match="is a web server's, which is read from, and not written to"):
        fastload.push(dataset, f"{nginx.https}/other", timeout=3, storage_options=options)
