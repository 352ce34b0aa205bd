"""Entropy indexes of images in a store, which a check made: the first reading of an image uses them."""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from servers.seaweedfs import SeaweedFS
from test_attach_url import MIDDLE, opened
from test_pack_from_url import EACH, KINDS, TARS, Put, files, picture, there

import fastload
from fastload import FastLoader, PackedDataset
from fastload.packing import attach, pack, rebase
from fastload.remote.files import RemoteFiles
from fastload.store import Manifest, Segment
from fastload.unpacking.verify import verify
from fastload.versions.drop import drop

__all__ = ["there"]

ALL = TARS * EACH


def brought(dataset: PackedDataset, samples: range | list[int]) -> list[bool]:
    """Has samples fetched, and says of which the readers know something then."""
    remote = dataset.opened.reader.files
    assert isinstance(remote, RemoteFiles)
    request = remote.request(np.array(samples))
    assert request is not None
    remote.session.wait(request)
    return [dataset.opened.reader.store.knows(each) for each in range(len(dataset))]


def check_pixels(dataset: PackedDataset, path: Path, samples: list[int]) -> None:
    """Compares two epochs with a packed dataset."""
    local = PackedDataset(path, MIDDLE, fields=("image", "label"))
    expected = torch.stack([local[each][0] for each in samples])
    for _ in range(2):
        loader = FastLoader(dataset, batch_size=4, num_workers=2)
        assert torch.equal(torch.cat([images for images, _ in loader]), expected)


def indexes_of(path: Path) -> list[Segment]:
    found = [each.foreign.indexes for each in Manifest.load(path).shards if each.foreign is not None]
    assert None not in found
    return [each for each in found if each is not None]


@pytest.fixture
def source(
    tmp_path: Path, s3_url: str, there: Put, seaweedfs: SeaweedFS, request: pytest.FixtureRequest
) -> dict[str, Any]:
    """Samples of some kind, packed as packed.fl and attached with a check as out.fl; the store's options."""
    kind = getattr(request, "param", "tar")
    options: dict[str, Any] = {"storage_options": seaweedfs.options()}
    pictures = {f"0/{number:02}.jpg": picture(number) for number in range(ALL)}
    there(pictures if kind == "loose" else files(kind))
    urls = s3_url if kind == "loose" else f"{s3_url}/*.{kind}"
    pack(urls, tmp_path / "packed.fl", encode="keep", **options)
    attach(urls, tmp_path / "out.fl", check="entropy", **options)
    return options


@pytest.mark.parametrize("source", [*KINDS, "loose"], indirect=True)
@pytest.mark.parametrize("size", [None, 1])
def test_before_the_first_reading(
    size: int | None, source: dict[str, Any], tmp_path: Path, seaweedfs: SeaweedFS
) -> None:
    """Readers know all images once these have come, with room in the cache and without."""
    assert sum(each.bytes for each in indexes_of(tmp_path / "out.fl")) > 20 * ALL
    form: dict[str, Any] = {"transform": MIDDLE, "fields": {"image": "image"}}
    pages = any(each.foreign and each.foreign.pages for each in Manifest.load(tmp_path / "out.fl").shards)
    with pytest.warns(UserWarning, match="compressed pages") if size and pages else nullcontext():
        found = opened(tmp_path / "out.fl", tmp_path / "cache", seaweedfs, cache_size=size, **form)
    assert not any(found.opened.reader.store.knows(each) for each in range(ALL))
    assert all(brought(found, range(ALL)))
    loader = FastLoader(found, batch_size=None, num_workers=2)
    expected = PackedDataset(tmp_path / "packed.fl", **form)
    for mine, other in zip(loader, expected, strict=True):  # type: ignore[call-overload]
        assert torch.equal(mine["image"], other["image"])
    found.close()


def test_without_a_check(tmp_path: Path, s3_url: str, there: Put, seaweedfs: SeaweedFS) -> None:
    there(files("tar"))
    attach(f"{s3_url}/*.tar", tmp_path / "out.fl", storage_options=seaweedfs.options())
    assert all(
        each.foreign is not None and each.foreign.indexes is None
        for each in Manifest.load(tmp_path / "out.fl").shards
    )
    found = opened(tmp_path / "out.fl", tmp_path / "cache", seaweedfs)
    assert not any(brought(found, range(ALL)))
    found.close()


def test_a_damaged_index(source: dict[str, Any], tmp_path: Path, seaweedfs: SeaweedFS) -> None:
    """A damaged one is made anew when its image is read, and verify names its file."""
    segment = indexes_of(tmp_path / "out.fl")[1]
    path = tmp_path / "out.fl" / segment.file
    data = bytearray(path.read_bytes())
    data[segment.offset + (EACH + 1) * 8 + 10] ^= 1
    path.write_bytes(data)
    found = opened(tmp_path / "out.fl", tmp_path / "cache", seaweedfs, transform=MIDDLE)
    assert [number for number, known in enumerate(brought(found, range(ALL))) if not known] == [EACH]
    check_pixels(found, tmp_path / "packed.fl", list(range(ALL)))
    assert all(found.opened.reader.store.knows(each) for each in range(ALL))
    found.close()
    assert any(path.name in each for each in verify(tmp_path / "out.fl", **source).problems)


@pytest.mark.parametrize("source", ["loose"], indirect=True)
def test_in_a_bucket(source: dict[str, Any], tmp_path: Path, s3_url: str, seaweedfs: SeaweedFS) -> None:
    """Of a dataset in a bucket the indexes are fetched once, while the first images are read without."""
    fastload.push(tmp_path / "out.fl", f"{s3_url}/made/out.fl", **source)
    found = opened(f"{s3_url}/made/out.fl", tmp_path / "cache", seaweedfs, transform=MIDDLE)  # type: ignore[arg-type]
    assert not any(brought(found, [0]))
    remote = found.opened.reader.files
    assert isinstance(remote, RemoteFiles)
    paths = [remote.session.cache.segment_path(each) for each in indexes_of(tmp_path / "out.fl")]
    until = time.monotonic() + 10
    while not all(path.exists() for path in paths) and time.monotonic() < until:
        time.sleep(0.01)
    assert brought(found, range(ALL)) == [False] + [True] * (ALL - 1)
    check_pixels(found, tmp_path / "packed.fl", list(range(ALL)))
    found.close()


def test_fewer_samples(source: dict[str, Any], tmp_path: Path, s3_url: str, seaweedfs: SeaweedFS) -> None:
    """An index stays that of its image where samples before it were dropped, and objects were moved."""
    drop(tmp_path / "out.fl", indices=[0, EACH + 1, ALL - 1])
    rebase(tmp_path / "out.fl", s3_url, **source)
    left = [each for each in range(ALL) if each not in (0, EACH + 1, ALL - 1)]
    found = opened(tmp_path / "out.fl", tmp_path / "cache", seaweedfs, transform=MIDDLE)
    assert all(brought(found, range(len(left))))
    check_pixels(found, tmp_path / "packed.fl", left)
    assert verify(tmp_path / "out.fl", decode=True, **source).ok
    found.close()
