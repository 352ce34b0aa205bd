"""A Mixture of datasets in a bucket: the batches of local sources, bit for bit, in every order, with
little in the cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import reading
import torch
from servers.seaweedfs import SeaweedFS
from torch.utils.data import Subset

from fastload import FastLoader, Mixture, PackedDataset, push

FIRST, SECOND = 900, 250
PLACE = "s3://fastload/mixture-fetch"


@pytest.fixture(scope="module")
def local(seaweedfs: SeaweedFS, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two local datasets, which are also in PLACE."""
    root = tmp_path_factory.mktemp("mixture")
    paths = [reading.write_tiny(root / name, count) for name, count in (("a.fl", FIRST), ("b.fl", SECOND))]
    for path in paths:
        push(path, f"{PLACE}/{path.name}", storage_options=seaweedfs.options(), progress=False)
    return paths


def epochs(sources: list[PackedDataset], shuffle: Any) -> list[list[Any]]:
    mixture = Mixture(
        [(sources[0], 0.4), (sources[1], 0.4), (Subset(sources[0], range(5, 700)), 0.2)],
        samples_per_epoch=500,
        seed=2,
    )
    with FastLoader(mixture, 16, shuffle=shuffle, num_workers=2, seed=1, engine="native") as loader:
        return [list(loader) for _ in range(3)]


@pytest.mark.parametrize("shuffle", [None, True, "window", "huge"])
def test_batches_of_local_sources(
    seaweedfs: SeaweedFS, local: list[Path], tmp_path: Path, shuffle: Any
) -> None:
    """Each epoch's own records are fetched: its batches are those of the local copies."""
    options: dict[str, Any] = {
        "storage_options": seaweedfs.options(),
        "cache": tmp_path / "cache",
        "cache_size": 1 << 20,
    }
    remote = [PackedDataset(f"{PLACE}/{path.name}", **options) for path in local]
    expected = epochs([PackedDataset(path) for path in local], shuffle)
    found = epochs(remote, shuffle)
    for theirs, ours in zip(expected, found, strict=True):
        assert len(theirs) == len(ours) == 32
        assert all(
            torch.equal(a, b) for x, y in zip(theirs, ours, strict=True) for a, b in zip(x, y, strict=True)
        )
    for dataset in remote:
        dataset.close()
