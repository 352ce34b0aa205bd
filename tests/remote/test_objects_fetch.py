"""Batches of objects from a bucket: the size of a batch follows from tables that the host does not have
yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import reading
from scenes import Scenes
from servers.seaweedfs import SeaweedFS

import fastload
from fastload import FastLoader, PackedDataset, push
from fastload import transforms as T

BOXED = [T.RandomIoUCrop(), T.RandomHorizontalFlip(), T.SanitizeBoundingBoxes(2, 4)]


def epochs(dataset: PackedDataset, **options: Any) -> list[Any]:
    """Batches of two epochs."""
    with FastLoader(dataset, 4, shuffle=True, seed=7, collate="padded", pad_to=1, **options) as loader:
        return [reading.copied(batch) for _ in range(2) for batch in loader]


@pytest.mark.parametrize("size", [None, 0], ids=["a cache", "no cache"])
@pytest.mark.parametrize("eager", [True, False], ids=["columns in memory", "columns in tables"])
def test_batches_are_those_of_local_files(
    seaweedfs: SeaweedFS,
    s3_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    eager: bool,
    size: int | None,
) -> None:
    """Boxes, masks, keypoints and polygons, and images whose sizes their boxes decide; the cache is empty
    at first."""
    fastload.pack(Scenes(26), tmp_path / "d", shard_size="1MiB")
    expected = epochs(PackedDataset(tmp_path / "d", BOXED))
    push(tmp_path / "d", s3_url, storage_options=seaweedfs.options())
    if not eager:
        monkeypatch.setattr("fastload.store.reader.HELD_BYTES", 0)
    more: dict[str, Any] = {
        "cache": tmp_path / "cache",
        "cache_size": size,
        "storage_options": seaweedfs.options(),
    }
    for workers in (1, 2):
        dataset = PackedDataset(s3_url, BOXED, **more)
        assert reading.same(epochs(dataset, num_workers=workers), expected)
        dataset.close()
