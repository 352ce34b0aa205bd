"""verify and info of URLs: each kind of damage at a URL is named, what is whole is not, and nothing is
left on the disk."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from servers.seaweedfs import SeaweedFS
from transfer_helpers import dataset_of, manifest_at, source_of

import fastload
from fastload.errors import DatasetError, RemoteError
from fastload.packing import verify
from fastload.remote import manifest as stream
from fastload.remote.objects import Objects
from fastload.remote.obstore import ObstoreObjects
from fastload.store import Manifest

Open = Callable[..., Objects]


@pytest.fixture
def options(seaweedfs: SeaweedFS) -> dict[str, Any]:
    """The keyword with which functions reach the server."""
    return {"storage_options": seaweedfs.options()}


@pytest.fixture
def changed(tmp_path: Path, s3_url: str, options: dict[str, Any]) -> Path:
    """A dataset with rows left out and added values of two kinds, which is at `s3_url` too."""
    dataset = dataset_of(tmp_path, 80)
    fastload.drop(dataset, where="label = 1 and hash(width * 10000 + height) % 2 = 0")
    count = Manifest.load(dataset).count
    (tmp_path / "more.csv").write_text("score,note\n" + "".join(f"{k / 2},note {k}\n" for k in range(count)))
    fastload.add_columns(dataset, tmp_path / "more.csv", columns=["score:float", "note:text"])
    fastload.push(dataset, s3_url, **options)
    return dataset


def damage(objects: Objects, name: str, at: int) -> None:
    """Flips a bit of an object."""
    data = bytearray(objects.get(name, 1 << 30))
    data[at] ^= 1
    objects.put(name, bytes(data))


def test_whole(
    changed: Path, tmp_path: Path, s3_url: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files, and with decode=True every record; the temporary folder is removed, and had one shard at a
    time."""
    manifest = Manifest.load(changed)
    plain = verify(s3_url, **options)
    assert plain.ok
    assert (plain.samples, plain.shards, plain.records, plain.decoded) == (
        manifest.count,
        len(manifest.shards),
        False,
        False,
    )
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    fetch = ObstoreObjects.fetch
    shards: list[int] = []

    def looking(self: ObstoreObjects, *arguments: Any) -> Any:
        shards.append(len(list((tmp_path / "scratch").rglob("shard-*"))))
        return fetch(self, *arguments)

    monkeypatch.setattr(ObstoreObjects, "fetch", looking)
    whole = verify(s3_url, decode=True, **options)
    assert whole.ok, whole
    assert (whole.decoded, whole.unchecked) == (True, 0)
    assert max(shards) <= 1
    assert not list((tmp_path / "scratch").iterdir())


@pytest.mark.parametrize("decode", [False, True])
def test_damage(changed: Path, s3_url: str, open_s3: Open, options: dict[str, Any], decode: bool) -> None:
    """A flipped bit in a shard, the sidecar, the rows or the values; a missing object; one that was cut:
    each is named, alone."""
    objects = open_s3()
    manifest = manifest_at(objects)
    beside = {
        part.file
        for shard in manifest.shards
        for part in (*shard.added.values(), *([shard.rows] if shard.rows else []))
    }
    names = [manifest.shards[0].file, manifest.sidecars[0].file, *sorted(beside)]
    assert len(names) >= 4
    for name in names:
        good = objects.get(name, 1 << 30)
        damage(objects, name, len(good) // 2)
        (problem,) = verify(s3_url, decode=decode, **options).problems
        assert problem.startswith(f"{s3_url}/{name}: ")
        assert "checksum" in problem
        objects.put(name, good[:-1])
        (problem,) = verify(s3_url, decode=decode, **options).problems
        assert f"{s3_url}/{name}: {len(good) - 1:,} bytes where the manifest says {len(good):,}" in problem
        objects.delete(name)
        report = verify(s3_url, decode=decode, **options)
        assert f"{s3_url}/{name}: there is no such object" in report.problems[0]
        assert not report.ok
        objects.put(name, good)
    assert verify(s3_url, decode=decode, **options).ok


def test_push_mends_what_verify_finds(
    changed: Path, s3_url: str, open_s3: Open, options: dict[str, Any]
) -> None:
    """As its advice says: --overwrite sends also what the manifest says is there."""
    damage(open_s3(), manifest_at(open_s3()).shards[0].file, 5000)
    assert "`fastload push --overwrite`" in verify(s3_url, **options).problems[0]
    fastload.push(changed, s3_url, overwrite=True, **options)
    assert verify(s3_url, **options).ok


def test_a_bad_record_is_found_by_decoding(
    tmp_path: Path, s3_url: str, open_s3: Open, options: dict[str, Any]
) -> None:
    """A shard that was packed from a damaged image, and holds: its sample is named by its index in the
    dataset."""
    source = source_of(tmp_path, 40)
    path = sorted(source.rglob("*.jpg"))[35]
    data = path.read_bytes()
    fastload.pack(
        source,
        tmp_path / "dataset",
        shard_size="1MiB",
        encode="keep",
        check="structure",
        index=False,
        shuffle=False,
    )
    manifest = Manifest.load(tmp_path / "dataset")
    stored = tmp_path / "dataset" / manifest.shards[-1].file
    content = stored.read_bytes()
    at = content.find(data[2000:2100])
    assert at > 0
    assert len(manifest.shards) > 1
    stored.write_bytes(content[:at] + bytes(100) + content[at + 100 :])
    with pytest.raises(DatasetError, match="it is not pushed"):
        fastload.push(tmp_path / "dataset", s3_url, **options)
    from dataclasses import replace

    from fastload.store import file_crc32c

    last = replace(manifest.shards[-1], crc32c=file_crc32c(stored))
    replace(manifest, shards=(*manifest.shards[:-1], last), sidecars=()).write(tmp_path / "dataset")
    fastload.push(tmp_path / "dataset", s3_url, **options)
    assert verify(s3_url, **options).ok
    report = verify(s3_url, decode=True, **options)
    local = verify(tmp_path / "dataset", decode=True)
    assert (
        [(bad.index, bad.shard, bad.reason) for bad in report.bad]
        == [(bad.index, bad.shard, bad.reason) for bad in local.bad]
        != []
    )


@pytest.mark.long
def test_what_stops_a_verification(
    changed: Path, s3_url: str, seaweedfs: SeaweedFS, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No dataset, an older version, and a server that is gone are errors, and no verdict on the dataset."""
    with pytest.raises(DatasetError, match="holds no packed dataset"):
        verify(f"{s3_url}/nothing", **options)
    with pytest.raises(DatasetError, match="has only version 3"):
        verify(s3_url, version=1, **options)
    assert verify(s3_url, version=3, **options).ok
    head = ObstoreObjects.head

    def dying(self: ObstoreObjects, name: str) -> Any:
        self._timeout = 1.0
        if name.startswith("shard-00001"):
            seaweedfs.kill()
        return head(self, name)

    monkeypatch.setattr(ObstoreObjects, "head", dying)
    try:
        with pytest.raises(RemoteError, match="failed after"):
            verify(s3_url, **options)
    finally:
        seaweedfs.start()
    assert stream.REQUESTS > 1
