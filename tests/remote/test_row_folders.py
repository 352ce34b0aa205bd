"""TFRecord files, MDS shards and LitData chunks in a store give the samples of the folder on a disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from servers.proxy import Proxy
from servers.seaweedfs import SeaweedFS
from test_attach_url import MIDDLE, opened
from test_pack_from_url import Put, picture, there
from tfrecord_maker import example, framed

import fastload
from fastload import PackedDataset
from fastload.errors import FastloadError, PackError
from fastload.packing import attach, pack
from fastload.remote.foreign import ForeignObjects
from fastload.remote.objects import Objects
from fastload.store import Manifest

Open = Callable[..., Objects]
SOURCES = Path(__file__).parents[1] / "packing" / "data" / "sources"
__all__ = ["there"]


def content(kind: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (SOURCES / kind).iterdir()}


def named(sample: Any) -> dict[str, Any]:
    return sample if isinstance(sample, dict) else dict(zip(("image", "label"), sample, strict=True))


@pytest.mark.parametrize("kind", ["tfrecord", "mds", "litdata", "litdata-pairs"])
def test_the_same_samples(kind: str, tmp_path: Path, s3_url: str, there: Put, seaweedfs: SeaweedFS) -> None:
    """Fields and images, by one object at a time, with small reads; what cannot lie beside images elsewhere
    is refused in a sentence."""
    there(content(kind))
    options: dict[str, Any] = {"storage_options": seaweedfs.options()}
    pack(SOURCES / kind, tmp_path / "local.fl", encode="keep")
    pack(s3_url, tmp_path / "packed.fl", encode="keep", **options)
    before, after = (Manifest.load(tmp_path / name) for name in ("local.fl", "packed.fl"))
    assert [shard.columns for shard in before.shards] == [shard.columns for shard in after.shards]
    local = PackedDataset(tmp_path / "local.fl", MIDDLE)
    found = fastload.read(s3_url, transform=MIDDLE, cache=tmp_path / "cache", **options)
    assert isinstance(found, PackedDataset)
    assert len(found) == len(local)
    for sample, (image, number) in zip(map(named, local), found, strict=True):
        assert torch.equal(sample["image"], image)
        assert number == sample.get("label", number)
    found.close()
    wide = [field.name for field in before.schema if field.is_column and field.row_bytes > 64]
    if wide:
        with pytest.raises(PackError, match=f"'{wide[0]}'.*cannot lie beside images"):
            attach(s3_url, tmp_path / "out.fl", **options)
        return
    summary = attach(s3_url, tmp_path / "out.fl", check="entropy", **options)
    assert summary.samples == len(local)
    attached = opened(tmp_path / "out.fl", tmp_path / "cache", seaweedfs, transform=MIDDLE, fields=None)
    for sample, other in zip(map(named, local), map(named, attached), strict=True):
        assert sample.keys() == other.keys()
        for name, value in sample.items():
            assert (
                torch.equal(value, other[name]) if isinstance(value, torch.Tensor) else value == other[name]
            )
    attached.close()


def test_what_is_wrong(tmp_path: Path, s3_url: str, there: Put, seaweedfs: SeaweedFS, proxy: Proxy) -> None:
    """A file that the index names and that is not there, pixels, and an index that is none, are named."""
    objects = there(content("mds"))
    options: dict[str, Any] = {"storage_options": seaweedfs.options(proxy.endpoint)}
    objects.delete("shard.00001.mds")
    with pytest.raises(PackError, match=r"shard\.00001\.mds: no such object"):
        attach(s3_url, tmp_path / "out.fl", **options)
    objects.put("shard.00001.mds", content("mds")["shard.00000.mds"][:40])
    with pytest.raises(FastloadError, match=r"shard\.00001\.mds.*copy"):
        attach(s3_url, tmp_path / "out.fl", **options)
    summary = attach(s3_url, tmp_path / "out.fl", on_error="skip", **options)
    assert [name for name, _ in summary.skipped] == [f"{s3_url}/shard.00001.mds"]
    objects.put("index.json", b"[")
    with pytest.raises(PackError, match=r"index\.json: it cannot be read as JSON"):
        attach(s3_url, tmp_path / "out.fl", overwrite=True, **options)
    for name, data in content("mds-pixels").items():
        objects.put(name, data)
    with pytest.raises(FastloadError, match="`fastload pack` reads it"):
        attach(s3_url, tmp_path / "out.fl", overwrite=True, **options)


def test_tfrecord(
    tmp_path: Path, s3_url: str, there: Put, seaweedfs: SeaweedFS, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but the pictures is read once, with the headers; names of classes lie beside the files; a record
    that is none is that sample's error."""
    records = [
        example(**{"image/encoded": [picture(number)], "label": [number % 2], "text": [b"t%d" % number]})
        for number in range(8)
    ]
    content, other_content = framed(*records), framed(*records[:2], b"no example")
    there({"a-0.tfrecord": content, "a-1.tfrecord": other_content, "label.labels.txt": b"cat\ndog\n"})
    asked, get = [], ForeignObjects.get

    def counted(objects: ForeignObjects, url: str, start: int, stop: int, info: Any) -> Any:
        asked.append(stop - start if url.endswith("a-0.tfrecord") else 0)
        return get(objects, url, start, stop, info)

    monkeypatch.setattr(ForeignObjects, "get", counted)
    options: dict[str, Any] = {"storage_options": seaweedfs.options(), "on_error": "skip"}
    summary = attach(f"{s3_url}/*.tfrecord", tmp_path / "out.fl", **options)
    assert sum(asked) < 1.2 * len(content) + 1000
    assert summary.samples == 10
    ((name, reason),) = summary.skipped
    assert (name, "the tag 110 in an Example" in reason) == (f"{s3_url}/a-1.tfrecord: record 2", True)
    pack(f"{s3_url}/*.tfrecord", tmp_path / "packed.fl", encode="keep", **options)
    found = opened(tmp_path / "out.fl", tmp_path / "cache", seaweedfs, transform=MIDDLE, fields=None)
    assert found.classes == ["cat", "dog"]
    for mine, other in zip(found, PackedDataset(tmp_path / "packed.fl", MIDDLE), strict=True):
        assert torch.equal(mine["image"], other["image"])
        assert (mine["label"], mine["text"]) == (other["label"], other["text"])
    found.close()
