"""A pack on a cluster to a URL: the objects are the files of a pack on one machine."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cluster_helpers import EACH, files_of, folder, path_of
from packing_helpers import encoded, picture
from servers.seaweedfs import SeaweedFS

import fastload
from fastload.errors import PackError, PackStoppedError
from fastload.remote.client import open_objects

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]


@pytest.fixture
def contents(seaweedfs: SeaweedFS) -> Callable[[str], dict[str, bytes]]:
    """Names and contents of the objects at a URL."""

    def read(url: str) -> dict[str, bytes]:
        with closing(open_objects(url, seaweedfs.options())) as objects:
            return {info.name: objects.get(info.name, 1 << 30) for info in objects.list()}

    return read


def test_the_same_objects(
    tmp_path: Path, cluster: Any, seaweedfs: SeaweedFS, contents: Callable[[str], dict[str, bytes]]
) -> None:
    """Also after a stop and a resume; nothing else stays at the URL, nor in the folder for shards."""
    url, source = "s3://fastload/same", folder(tmp_path / "src", bad=(15,))
    how: dict[str, Any] = {
        "ray": cluster.address,
        "storage_options": seaweedfs.options(),
        "staging": tmp_path / "staging",
    }
    (tmp_path / "staging").mkdir()
    with pytest.raises(PackStoppedError, match=r"0015\.jpg"):
        fastload.pack(source, url, shard_samples=EACH, **how)
    assert "shard-00000.done" in contents(url)
    with pytest.raises(PackError, match="holds an unfinished pack"):
        fastload.pack(source, url, shard_samples=EACH, **how)
    path_of(source, 15).write_bytes(encoded(picture(15, 20, 30)))
    fastload.pack(source, url, resume=True, **how)
    fastload.pack(source, tmp_path / "one", shard_samples=EACH)
    assert contents(url) == files_of(tmp_path / "one")
    assert not list((tmp_path / "staging").iterdir())
    assert fastload.pack(source, url, resume=True, **how).packed_now == 0
    with pytest.raises(PackError, match="already holds a packed dataset"):
        fastload.pack(source, url, **how)


def test_overwrite(
    tmp_path: Path, cluster: Any, seaweedfs: SeaweedFS, contents: Callable[[str], dict[str, bytes]]
) -> None:
    """The old dataset is there until the new one is complete, also where the new one stopped and was
    resumed; its shards have new names."""
    url, how = "s3://fastload/again", {"ray": cluster.address, "storage_options": seaweedfs.options()}
    fastload.pack(folder(tmp_path / "first"), url, shard_samples=20, **how)  # type: ignore[arg-type]
    old = contents(url)
    source = folder(tmp_path / "second", bad=(39,))
    with pytest.raises(PackStoppedError, match=r"0039\.jpg"):
        fastload.pack(source, url, shard_samples=EACH, overwrite=True, **how)  # type: ignore[arg-type]
    assert old.items() <= contents(url).items()
    summary = fastload.pack(source, url, shard_samples=EACH, resume=True, on_error="skip", **how)  # type: ignore[arg-type]
    now = contents(url)
    assert sorted(now) == [
        "index-00001.bin",
        "manifest.json",
        *(f"shard-{number:05d}.lmdb" for number in range(2, 9)),
    ]
    fastload.pack(source, tmp_path / "one", shard_samples=EACH, on_error="skip")
    one = files_of(tmp_path / "one")
    assert [now[f"shard-{number + 2:05d}.lmdb"] for number in range(7)] == [
        one[f"shard-{number:05d}.lmdb"] for number in range(7)
    ]
    assert summary.samples == 39
