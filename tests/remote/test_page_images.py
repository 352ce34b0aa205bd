"""Images in uncompressed Parquet pages in a store: what finds no room in the cache is fetched by itself,
once its page told where it lies."""

from __future__ import annotations

import io
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from servers.proxy import Proxy
from servers.seaweedfs import SeaweedFS
from test_attach_url import CROP, MIDDLE, check_every_order, opened
from test_pack_from_url import Put, there

from fastload import FastLoader, PackedDataset
from fastload.packing import attach, pack
from fastload.remote import page_images
from fastload.remote.files import RemoteFiles
from fastload.store import Manifest, parquet_pages
from fastload.unpacking.verify import verify

__all__ = ["there"]

FILES, EACH, ROOM = 2, 30, 900_000
"""Of 60 pictures of 40 KB a third finds room."""


def noise(number: int) -> bytes:
    """A picture of about 40 KB."""
    pixels = np.random.default_rng(number).integers(0, 256, (150, 150, 3), np.uint8)
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, "JPEG", quality=92)
    return data.getvalue()


def parquet_of(numbers: range, **how: Any) -> bytes:
    images = [{"bytes": noise(number), "path": None} for number in numbers]
    table = pa.table({"image": pa.array(images), "label": list(numbers)})
    data = io.BytesIO()
    pq.write_table(
        table, data, **{"compression": "none", "row_group_size": 10, "write_batch_size": 10, **how}
    )
    return data.getvalue()


def written(there: Put, **how: Any) -> int:
    """Puts the files there; returns the bytes of the pictures."""
    there(
        {
            f"{number}.parquet": parquet_of(range(EACH * number, EACH * (number + 1)), **how)
            for number in range(FILES)
        }
    )
    return sum(len(noise(number)) for number in range(FILES * EACH))


@pytest.fixture
def attached(tmp_path: Path, s3_url: str, there: Put, seaweedfs: SeaweedFS) -> int:
    """An attached dataset at out.fl; bytes of its pictures."""
    size = written(there, use_dictionary=False)
    attach(f"{s3_url}/*.parquet", tmp_path / "out.fl", storage_options=seaweedfs.options())
    return size


def epochs(loader: FastLoader[Any], proxy: Proxy, count: int) -> list[dict[str, int]]:
    """What passes a proxy in each of some epochs."""
    found = []
    for epoch in range(count):
        before = proxy.counts()
        loader.set_epoch(epoch)
        assert sum(len(labels) for _, labels in loader) == FILES * EACH
        found.append({name: value - before.get(name, 0) for name, value in proxy.counts().items()})
    return found


def test_attach_reads_headers_alone(attached: int, tmp_path: Path) -> None:
    shards = Manifest.load(tmp_path / "out.fl").shards
    assert all(each.foreign is not None and each.foreign.pointed for each in shards)
    assert not any(each.foreign is not None and each.foreign.compressed for each in shards)


@pytest.mark.parametrize(
    "how", [{"use_dictionary": False}, {"data_page_version": "2.0"}], ids=["plain", "v2"]
)
@pytest.mark.parametrize("threads", [0, 2])
def test_the_same_samples(
    how: dict[str, Any], threads: int, tmp_path: Path, s3_url: str, there: Put, seaweedfs: SeaweedFS
) -> None:
    """In every order, with no room in the cache, some, and all."""
    written(there, **how)
    attach(f"{s3_url}/*.parquet", tmp_path / "out.fl", storage_options=seaweedfs.options())
    pack(str(tmp_path / "files" / "*.parquet"), tmp_path / "local.fl", encode="keep")
    form = {"fields": {"image": "image", "label": "label"}}
    local = PackedDataset(tmp_path / "local.fl", CROP, seed=1, **form)
    for size in (1, ROOM, None):
        found = opened(tmp_path / "out.fl", tmp_path / f"cache{size}", seaweedfs, cache_size=size, **form)
        check_every_order(local, found, threads)
        found.close()
    assert verify(tmp_path / "out.fl", decode=True, storage_options=seaweedfs.options()).ok


def files_of(dataset: PackedDataset) -> RemoteFiles:
    files = dataset.opened.reader.files
    assert isinstance(files, RemoteFiles)
    return files


@pytest.mark.parametrize("size", [1, ROOM])
@pytest.mark.parametrize("shuffle", [False, True, "window"])
def test_bytes(
    size: int,
    shuffle: bool | str,
    attached: int,
    tmp_path: Path,
    seaweedfs: SeaweedFS,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A page without room is fetched whole once; then each image by itself. Where there is room for it, this
    outlives the process."""
    monkeypatch.setattr(page_images, "AT_HAND", 1)
    with Proxy(seaweedfs.port) as proxy:
        through = {"storage_options": {**seaweedfs.options(), "endpoint": proxy.endpoint}}
        for run in range(2):
            found = opened(tmp_path / "out.fl", tmp_path / "cache", seaweedfs, cache_size=size, **through)
            loader = FastLoader(found, batch_size=4, shuffle=shuffle, num_workers=2, seed=3)
            first, *later = (each["down"] / attached for each in epochs(loader, proxy, 3))
            share = files_of(found).status().cached / len(found)
            assert 0.2 < share < 0.8 if size > 1 else not share
            assert max(later) < 1 - share + 0.03
            assert first < 1 - share + 0.03 if run and size > 1 else first < 2
            found.close()


def test_damaged_pointers(
    attached: int, tmp_path: Path, seaweedfs: SeaweedFS, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pointers that do not hold cost the whole page again, and never show anything else."""
    monkeypatch.setattr(page_images, "AT_HAND", 1)
    found = opened(tmp_path / "out.fl", tmp_path / "cache", seaweedfs, cache_size=ROOM, transform=MIDDLE)
    loader = FastLoader(found, batch_size=None, num_workers=2)
    expected = [image.clone() for image, _ in loader]
    for shard in files_of(found).shards:
        state = bytearray(shard.state_path.read_bytes())
        pointers = np.frombuffer(state, "<u4", offset=len(shard.state)).reshape(-1, 2)
        for row, change in enumerate(itertools.cycle([0, 1, 8, 1 << 31, 2**32 - 1])):
            if row == len(pointers):
                break
            pointers[row, row // 5 % 2] ^= change
        shard.state_path.write_bytes(state)
    for (image, _), other in zip(loader, expected, strict=True):
        assert torch.equal(image, other)
    before = files_of(found).status().fetched
    list(loader)
    assert files_of(found).status().fetched - before < attached
    found.close()


def test_a_large_page(
    tmp_path: Path, s3_url: str, there: Put, monkeypatch: pytest.MonkeyPatch, seaweedfs: SeaweedFS
) -> None:
    """Of a page that is too large to be read whole the lengths are read, and the images alone fetched."""
    monkeypatch.setattr(parquet_pages, "_WHOLE_MOST", 100_000)
    written(there, use_dictionary=False)
    attach(f"{s3_url}/*.parquet", tmp_path / "out.fl", storage_options=seaweedfs.options())
    assert all(each.foreign and not each.foreign.pages for each in Manifest.load(tmp_path / "out.fl").shards)
