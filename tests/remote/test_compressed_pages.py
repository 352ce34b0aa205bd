"""Compressed Parquet pages in a store, decompressed as they come: the samples of a pack of the same files, in
any order, a page by one request."""

from __future__ import annotations

import io
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from servers.proxy import Proxy
from servers.seaweedfs import SeaweedFS
from test_attach_url import CROP, MIDDLE, check_every_order, opened
from test_pack_from_url import EACH, TARS, Put, picture, table_of, there

import fastload
from fastload import FastLoader, PackedDataset
from fastload.errors import PackError, SampleError
from fastload.packing import attach, pack, rebase
from fastload.store import Manifest
from fastload.store.pages import CODECS, Page, PageSlots
from fastload.unpacking.verify import verify

__all__ = ["there"]


def parquet_of(numbers: range, **how: Any) -> bytes:
    data = io.BytesIO()
    pq.write_table(
        table_of(numbers), data, **{"row_group_size": 4, "data_page_size": 6000, "write_batch_size": 1, **how}
    )
    return data.getvalue()


def files(**how: Any) -> dict[str, bytes]:
    return {
        f"train-{number:03}.parquet": parquet_of(range(EACH * number, EACH * (number + 1)), **how)
        for number in range(TARS)
    }


HOW: list[dict[str, Any]] = [
    {"compression": "snappy"},
    {"compression": "zstd", "data_page_version": "2.0"},
    {"compression": "gzip", "use_dictionary": False},
    {"compression": "none"},
    {"compression": "none", "data_page_version": "2.0", "use_dictionary": False},
    {
        "compression": {"image.list.element": "snappy"}
        | {"image.bytes": "zstd", "label": "none", "image.path": "none"}
    },
]


@pytest.mark.parametrize("how", HOW, ids=lambda how: str(how["compression"])[:8])
@pytest.mark.parametrize("threads", [0, 2])
def test_the_same_samples(
    how: dict[str, Any], threads: int, tmp_path: Path, s3_url: str, there: Put, seaweedfs: SeaweedFS
) -> None:
    """Two epochs of every order, with room in the cache, and without, of which it warns."""
    there(files(**how))
    options: dict[str, Any] = {"storage_options": seaweedfs.options()}
    pack(str(tmp_path / "files" / "*.parquet"), tmp_path / "local.fl", encode="keep")
    check = "entropy" if threads else None
    summary = attach(f"{s3_url}/*.parquet", tmp_path / "out.fl", check=check, **options)
    assert (summary.samples, summary.shards) == (TARS * EACH, TARS)
    form = {"fields": {"image": "image", "label": "label"}}
    local = PackedDataset(tmp_path / "local.fl", CROP, seed=1, **form)
    for size in (None, 1):
        warns = size and how["compression"] != "none"
        with pytest.warns(UserWarning, match="compressed pages") if warns else nullcontext():
            found = opened(tmp_path / "out.fl", tmp_path / f"cache{size}", seaweedfs, cache_size=size, **form)
        check_every_order(local, found, threads)
        found.close()


def test_requests(tmp_path: Path, s3_url: str, there: Put, seaweedfs: SeaweedFS) -> None:
    """Each page comes once, whatever the order; later epochs ask for nothing."""
    content = files(compression="snappy", data_page_size=1 << 20, row_group_size=EACH)
    there(content)
    attach(f"{s3_url}/*.parquet", tmp_path / "out.fl", storage_options=seaweedfs.options())
    assert Manifest.load(tmp_path / "out.fl").bytes == sum(map(len, content.values()))
    images = sum(len(picture(number)) for number in range(TARS * EACH))
    with Proxy(seaweedfs.port) as proxy:
        through = {**seaweedfs.options(), "endpoint": proxy.endpoint}
        found = opened(tmp_path / "out.fl", tmp_path / "cache", seaweedfs, storage_options=through)
        loader = FastLoader(found, batch_size=4, shuffle=True, num_workers=2)
        for epoch in range(2):
            before = proxy.counts()
            assert len(list(loader)) == -(-TARS * EACH // 4)
            requests = proxy.counts()["requests"] - before["requests"]
            assert requests == (0 if epoch else TARS)
        assert proxy.counts()["down"] < 1.1 * images
        found.close()


def test_what_is_wrong(tmp_path: Path, s3_url: str, there: Put, seaweedfs: SeaweedFS) -> None:
    """A replaced object, a damaged page where the store gives no tag, and a damaged table are their samples'
    errors; moved objects are found."""
    objects = there({f"a/{name}": data for name, data in files(compression="snappy").items()})
    options: dict[str, Any] = {"storage_options": seaweedfs.options()}
    attach(f"{s3_url}/a/*.parquet", tmp_path / "out.fl", **options)
    assert verify(tmp_path / "out.fl", decode=True, **options).ok
    for name, data in files(compression="snappy").items():
        objects.put(f"b/{name}", data)
        objects.delete(f"a/{name}")
    assert rebase(tmp_path / "out.fl", f"{s3_url}/b", **options) == TARS * EACH
    found = opened(tmp_path / "out.fl", tmp_path / "cache", seaweedfs, transform=MIDDLE)
    objects.put("b/train-001.parquet", files(compression="zstd")["train-001.parquet"])
    loader = FastLoader(found, batch_size=None, num_workers=2, on_error="skip")
    assert (len(list(loader)), loader.skipped) == ((TARS - 1) * EACH, EACH)
    found.close()
    (problem,) = verify(tmp_path / "out.fl", **options).problems
    assert "train-001.parquet" in problem
    shard = Manifest.load(tmp_path / "out.fl").shards[0]
    assert shard.foreign is not None
    assert shard.foreign.pages is not None
    path, at = tmp_path / "out.fl" / shard.foreign.pages.file, shard.foreign.pages.offset
    data = bytearray(path.read_bytes())
    data[at + 16] ^= 1
    path.write_bytes(data)
    assert any(path.name in each for each in verify(tmp_path / "out.fl", **options).problems)
    fresh = opened(tmp_path / "out.fl", tmp_path / "fresh", seaweedfs, transform=MIDDLE)
    with pytest.raises(SampleError, match="table of its pages is damaged"):
        fresh[0]
    fresh.close()


def test_brotli(tmp_path: Path, s3_url: str, there: Put, seaweedfs: SeaweedFS) -> None:
    """Other compressions are refused in a sentence that says what reads them."""
    there(files(compression="brotli"))
    with pytest.raises(PackError, match="`fastload pack` reads it"):
        attach(f"{s3_url}/*.parquet", tmp_path / "out.fl", storage_options=seaweedfs.options())
    found = fastload.read(str(tmp_path / "files" / "*.parquet"))
    assert len(found) == TARS * EACH


@given(st.binary(max_size=300), st.integers(1, len(CODECS) - 1), st.integers(-3, 3), st.data())
def test_pages(content: bytes, codec: int, off: int, data: st.DataObject) -> None:
    """A page is exactly what was compressed, or an error: never a byte of anything else."""
    packed = pa.Codec(CODECS[codec].lower()).compress(content, asbytes=True)
    page = PageSlots().add(7, len(packed), len(content), codec)
    assert page.decompressed(packed) == content
    if off:
        with pytest.raises(ValueError, match="page"):
            page._replace(length=len(content) + off).decompressed(packed)
    damaged = bytearray(packed)
    damaged[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        found = page.decompressed(damaged)
    except ValueError:
        return
    assert len(found) == len(content)


def test_unknown_compression() -> None:
    with pytest.raises(ValueError, match="another compression"):
        Page(0, 1, 0, 1, len(CODECS)).decompressed(b"x")
