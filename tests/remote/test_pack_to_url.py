"""A pack to a URL makes the very dataset of a pack into a folder, through a disk that holds two shards; it
can be resumed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from servers.seaweedfs import SeaweedFS
from transfer_helpers import files_of, manifest_at, names_at, source_of, values_of

import fastload
from fastload import FastLoader, PackedDataset
from fastload.errors import ArgumentError, DatasetError, PackError, RemoteError
from fastload.packing import verify
from fastload.remote.objects import Objects
from fastload.remote.obstore import ObstoreObjects
from fastload.store import Manifest

Open = Callable[..., Objects]


@pytest.fixture
def options(seaweedfs: SeaweedFS, tmp_path: Path) -> dict[str, Any]:
    """The keywords of a pack to the server."""
    return {"storage_options": seaweedfs.options(), "staging": tmp_path / "staging", "shard_size": "1MiB"}


def contents(objects: Objects) -> dict[str, bytes]:
    """Names and contents of the objects at a URL."""
    return {name: objects.get(name, 1 << 30) for name in names_at(objects)}


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"shuffle": True, "encode": "raw", "limit": 20},
        {"index": False, "max_side": 80, "on_error": "skip"},
        {"encode": "dct"},
    ],
)
def test_the_same_dataset(
    tmp_path: Path, s3_url: str, open_s3: Open, options: dict[str, Any], how: dict[str, Any]
) -> None:
    """Every byte of every file, the sidecar and the manifest among them; the staging folder is gone."""
    source = source_of(tmp_path)
    local = fastload.pack(source, tmp_path / "local", shard_size="1MiB", **how)
    summary = fastload.pack(source, s3_url, **options, **how)
    assert contents(open_s3()) == files_of(tmp_path / "local")
    assert (summary.samples, summary.shards, summary.packed_now) == (
        local.samples,
        local.shards,
        local.samples,
    )
    assert not (tmp_path / "staging").exists()


def test_conversion_to_a_url(tmp_path: Path, s3_url: str, open_s3: Open, options: dict[str, Any]) -> None:
    """The very dataset of a conversion into a folder; batches from the bucket are those of the source's
    pack."""
    fastload.pack(source_of(tmp_path), tmp_path / "keep", encode="keep")
    fastload.convert(tmp_path / "keep", tmp_path / "local", encode="dct", shard_size="1MiB")
    assert fastload.convert(tmp_path / "keep", s3_url, encode="dct", **options).dct > 0
    assert contents(open_s3()) == files_of(tmp_path / "local")
    crops = [fastload.transforms.RandomResizedCrop(32)]
    with (
        FastLoader(
            PackedDataset(s3_url, crops, storage_options=options["storage_options"]), 8, num_workers=2, seed=1
        ) as bucket,
        FastLoader(PackedDataset(tmp_path / "keep", crops), 8, num_workers=2, seed=1) as folder,
    ):
        for (mine, _), (theirs, _) in zip(bucket, folder, strict=True):
            assert torch.equal(mine, theirs)


def test_columns_of_large_rows_are_left_out_of_the_sidecar(
    tmp_path: Path, s3_url: str, open_s3: Open, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sidecar copies columns of small rows: the bytes are those of a local pack."""
    monkeypatch.setattr("fastload.store.sidecar.ROW_MOST", 7)  # labels have 8 bytes, heights and widths 4
    source = source_of(tmp_path)
    fastload.pack(source, tmp_path / "local", shard_size="1MiB")
    fastload.pack(source, s3_url, **options)
    assert contents(open_s3()) == files_of(tmp_path / "local")


def test_two_shards_at_most(
    tmp_path: Path, s3_url: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While each shard is uploaded, at most it and one more lie in the staging folder; the manifest is put
    last."""
    put_file, put = ObstoreObjects.put_file, ObstoreObjects.put
    there: list[int] = []
    order: list[str] = []

    def looking(self: ObstoreObjects, name: str, *arguments: Any) -> None:
        there.append(len(list((tmp_path / "staging").glob("*.lmdb"))))
        put_file(self, name, *arguments)
        there.append(len(list((tmp_path / "staging").glob("*.lmdb"))))
        order.append(name)

    def putting(self: ObstoreObjects, name: str, data: bytes) -> None:
        order.append(name)
        put(self, name, data)

    monkeypatch.setattr(ObstoreObjects, "put_file", looking)
    monkeypatch.setattr(ObstoreObjects, "put", putting)
    summary = fastload.pack(source_of(tmp_path, 100), s3_url, **options)
    assert max(there) <= 2
    assert order == [
        *(f"shard-{number:05d}.lmdb" for number in range(summary.shards)),
        "index-00000.bin",
        "manifest.json",
    ]


def test_an_occupied_url(tmp_path: Path, s3_url: str, open_s3: Open, options: dict[str, Any]) -> None:
    """A dataset and objects of others are refused; --resume of a complete pack does nothing."""
    source = source_of(tmp_path)
    fastload.pack(source, s3_url, **options)
    before = open_s3().list()
    with pytest.raises(PackError, match="already holds a packed dataset; --overwrite replaces it"):
        fastload.pack(source, s3_url, **options)
    assert fastload.pack(source, s3_url, resume=True, **options).packed_now == 0
    with pytest.raises(PackError, match="was begun with quality=90, now it is 80"):
        fastload.pack(source, s3_url, resume=True, quality=80, **options)
    assert open_s3().list() == before
    open_s3(f"{s3_url}/mine").put("notes.txt", b"x")
    with pytest.raises(PackError, match="holds other objects"):
        fastload.pack(source, f"{s3_url}/mine", overwrite=True, **options)


def test_overwriting(
    tmp_path: Path, s3_url: str, open_s3: Open, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old dataset is whole until the new manifest is there; then only the new one's objects are left."""
    fastload.pack(source_of(tmp_path), s3_url, **options)
    old = manifest_at(open_s3())
    put = ObstoreObjects.put
    seen = []

    def looking(self: ObstoreObjects, name: str, data: bytes) -> None:
        seen.append((manifest_at(self) == old, verify(s3_url, storage_options=options["storage_options"]).ok))
        put(self, name, data)

    monkeypatch.setattr(ObstoreObjects, "put", looking)
    fastload.pack(source_of(tmp_path, 40), s3_url, overwrite=True, shuffle=True, **options)
    assert seen == [(True, True)]
    new = manifest_at(open_s3())
    assert new.count == 40
    assert not {shard.file for shard in new.shards} & {shard.file for shard in old.shards}
    assert len(names_at(open_s3())) == len(new.shards) + 2
    fastload.pack(source_of(tmp_path, 40), tmp_path / "local", shuffle=True, shard_size="1MiB")
    fastload.pull(s3_url, tmp_path / "back", storage_options=options["storage_options"])
    assert values_of(tmp_path / "back") == values_of(tmp_path / "local")


def test_stopped_by_a_bad_file_and_resumed(
    tmp_path: Path, s3_url: str, open_s3: Open, options: dict[str, Any]
) -> None:
    """What is uploaded stays uploaded; without its journal, or with another object in a shard's place, a
    resume is refused."""
    source = source_of(tmp_path)
    fastload.pack(source, tmp_path / "local", shard_size="1MiB")
    bad = sorted(source.rglob("*.jpg"))[-1]
    whole = bad.read_bytes()
    bad.write_bytes(b"")
    with pytest.raises(PackError, match="go on with resume=True"):
        fastload.pack(source, s3_url, **options)
    bad.write_bytes(whole)
    objects = open_s3()
    uploaded = objects.list()
    assert uploaded
    with pytest.raises(PackError, match="holds an unfinished pack: --resume finishes it"):
        fastload.pack(source, s3_url, **options)
    elsewhere = {**options, "staging": tmp_path / "elsewhere"}
    with pytest.raises(
        PackError,
        match=r"the journal of their pack is not in .*elsewhere: --resume needs the --staging folder",
    ):
        fastload.pack(source, s3_url, resume=True, **elsewhere)
    with pytest.raises(DatasetError, match="holds no packed dataset"):
        fastload.pull(s3_url, tmp_path / "back", storage_options=options["storage_options"])
    name = uploaded[0].name
    mine = objects.get(name, 1 << 30)
    objects.put(name, bytes(len(mine)))
    with pytest.raises(PackError, match=f"{name} was replaced since it was sent: --overwrite"):
        fastload.pack(source, s3_url, resume=True, **options)
    fastload.pack(source, s3_url, overwrite=True, **options)
    assert contents(objects) == files_of(tmp_path / "local")


@pytest.mark.long
def test_the_server_dies_in_the_middle(
    tmp_path: Path,
    seaweedfs: SeaweedFS,
    s3_url: str,
    open_s3: Open,
    options: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error says what to do; with the server back, --resume ends with the dataset of an uninterrupted
    pack."""
    source = source_of(tmp_path)
    fastload.pack(source, tmp_path / "local", shard_size="1MiB")
    put_file = ObstoreObjects.put_file

    def dying(self: ObstoreObjects, name: str, *arguments: Any) -> None:
        if name == "shard-00001.lmdb":
            seaweedfs.kill()
            self._timeout = 1.0
            self._maker._timeout = 1.0
        put_file(self, name, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(ObstoreObjects, "put_file", dying)
        with pytest.raises(
            RemoteError, match=r"shard-00001.*what was uploaded stays: go on with resume=True \(--resume\)"
        ):
            fastload.pack(source, s3_url, **options)
    seaweedfs.start()
    assert fastload.pack(source, s3_url, resume=True, **options).packed_now < 60
    assert contents(open_s3()) == files_of(tmp_path / "local")


def test_options_of_urls(
    tmp_path: Path, s3_url: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are refused for folders; staging lies below the cache folder by default; nothing is attached or
    appended at a URL."""
    source = source_of(tmp_path, 10)
    for name in ("staging", "storage_options"):
        with pytest.raises(ArgumentError, match=f"{name} is for a pack to a URL"):
            fastload.pack(source, tmp_path / "local", **{name: options[name]})
    with pytest.raises(ArgumentError, match="an attached dataset is made in a folder"):
        fastload.attach(source, s3_url)
    monkeypatch.setenv("FASTLOAD_CACHE", str(tmp_path / "cache"))
    (source / "class0" / "x.jpg").write_bytes(b"")
    with pytest.raises(PackError):
        fastload.pack(source, s3_url, storage_options=options["storage_options"])
    (staging,) = (tmp_path / "cache" / "staging").iterdir()
    assert (staging / "progress.json").exists()
    assert "fastload-test-secret" not in (staging / "progress.json").read_text()
    url = (tmp_path / "a file url").as_uri()
    fastload.pack(source, url, on_error="skip")
    assert Manifest.load(tmp_path / "a file url").count == 10
