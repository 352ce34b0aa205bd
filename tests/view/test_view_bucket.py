"""A page of a dataset in a bucket, which a real S3 server holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from servers.seaweedfs import SeaweedFS
from serving import serving

from fastload import PackedDataset, push

URL = "s3://fastload/view.fl"


def test_a_bucket(
    packed: Path, seaweedfs: SeaweedFS, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thumbnails, whole pictures, listings, facts and draws are those of the same dataset in a folder."""
    monkeypatch.setenv("FASTLOAD_CACHE", str(tmp_path / "cache"))
    push(packed, URL, storage_options=seaweedfs.options())
    local = PackedDataset(packed)
    with serving(packed) as folder, serving(URL, storage_options=seaweedfs.options()) as bucket:
        assert bucket.document("/dataset")["path"] == URL
        paths = [
            "/facts",
            "/rows?where=label+%3D+1",
            "/picture/3.png?side=64",
            "/picture/41.png",
            "/draw/41.png?epoch=2",
            "/draws/7",
        ]
        for path in paths:
            assert bucket.content(path) == folder.content(path), path
        assert np.array_equal(bucket.pixels("/picture/41.png"), local[41][0].permute(1, 2, 0))
        assert bucket.document("/sample/41")["size"] == folder.document("/sample/41")["size"]
        at = 0
        while at < 50:
            at = bucket.document("/check", start=at)["next"]
        assert bucket.document("/bad") == {"bad": []}
