"""Samples of any number of images in a bucket: packed to it, pushed, pulled, and read through the cache, of
which each epoch fetches what it asks for once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from documents import Documents
from servers.proxy import Proxy
from servers.seaweedfs import SeaweedFS
from torch.utils.data import Subset

import fastload
from fastload import FastLoader, PackedDataset
from fastload import transforms as T
from fastload.errors import DatasetError, RemoteError
from fastload.packing import verify

CROP = [T.RandomResizedCrop(24), T.ToFloat()]
Open = Callable[..., PackedDataset]


@pytest.fixture
def local(tmp_path: Path) -> Path:
    fastload.pack(Documents(), tmp_path / "documents.fl")
    return tmp_path / "documents.fl"


def epochs(dataset: Any, count: int = 2, **options: Any) -> list[Any]:
    given = {"seed": 5, "shuffle": True, "collate": "flat", "num_workers": 2, **options}
    with FastLoader(dataset, 4, **given) as loader:
        return [batch for _ in range(count) for batch in loader]


def same(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(
        torch.equal(a["images"].values, b["images"].values)
        and torch.equal(a["images"].offsets, b["images"].offsets)
        and a["text"] == b["text"]
        for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_workers": 0},
        {"engine": "python"},
        {"shuffle": "window"},
        {"shuffle": False},
        {"shard": (1, 2)},
    ],
    ids=str,
)
def test_it_is_what_it_is_on_a_disk(
    options: dict[str, Any], local: Path, s3_url: str, seaweedfs: SeaweedFS, opened: Open
) -> None:
    fastload.push(local, s3_url, storage_options=seaweedfs.options())
    assert same(epochs(opened(s3_url, CROP), **options), epochs(PackedDataset(local, CROP), **options))


def test_pack_push_and_pull(
    local: Path, s3_url: str, seaweedfs: SeaweedFS, tmp_path: Path, opened: Open
) -> None:
    """To a URL and back: equal samples; another push and pull send nothing."""
    store = {"storage_options": seaweedfs.options()}
    fastload.pack(Documents(), s3_url, staging=tmp_path / "staging", **store)
    assert verify(s3_url, decode=True, **store).ok
    assert same(epochs(opened(s3_url, CROP)), epochs(PackedDataset(local, CROP)))
    fastload.pull(s3_url, tmp_path / "pulled.fl", **store)
    assert verify(tmp_path / "pulled.fl").ok
    assert same(epochs(PackedDataset(tmp_path / "pulled.fl", CROP)), epochs(PackedDataset(local, CROP)))
    other = f"{s3_url}-pushed"
    assert fastload.push(local, other, **store).sent_files == 4
    assert fastload.push(local, other, **store).sent_files == 0


def test_overwritten_by_a_dataset_without_lists(
    local: Path, packed: Path, s3_url: str, seaweedfs: SeaweedFS
) -> None:
    """The images go; those of a dataset that lies in a folder of the same name stay."""
    store: dict[str, Any] = {"storage_options": seaweedfs.options()}
    fastload.push(local, s3_url, **store)
    fastload.push(packed, s3_url, overwrite=True, **store)
    assert verify(s3_url, **store).ok
    with pytest.raises(DatasetError, match="no packed dataset"):
        verify(f"{s3_url}/images", **store)
    fastload.push(packed, f"{s3_url}/images", **store)
    fastload.push(packed, s3_url, overwrite=True, **store)
    assert verify(f"{s3_url}/images", **store).ok


def test_the_images_of_chosen_samples_alone_are_fetched(
    tmp_path: Path, s3_url: str, seaweedfs: SeaweedFS, proxy: Proxy, opened: Open
) -> None:
    """And once: a second epoch asks for nothing."""
    noise = np.random.default_rng(1)
    rows = [
        {"images": [noise.integers(0, 256, (300, 300, 3), np.uint8) for _ in range(2)], "text": str(at)}
        for at in range(10)
    ]
    fastload.pack(rows, tmp_path / "noise.fl")
    fastload.push(tmp_path / "noise.fl", s3_url, storage_options=seaweedfs.options())
    options = {**seaweedfs.options(), "endpoint": proxy.endpoint}
    chosen = Subset(opened(s3_url, CROP, storage_options=options), [2, 9])
    proxy.counts(reset=True)
    epochs(chosen, 1)
    assert 4 * 270_000 < proxy.counts(reset=True)["down"] < 4 * 270_000 + 50_000
    epochs(chosen, 1)
    assert not proxy.counts()["requests"]


@pytest.mark.parametrize("engine", [{}, {"num_workers": 0}, {"engine": "python"}], ids=str)
def test_samples_without_images_need_none(
    engine: dict[str, Any], local: Path, s3_url: str, seaweedfs: SeaweedFS, open_s3: Any, opened: Open
) -> None:
    """Batches of them are made of a bucket whose images are gone."""
    fastload.push(local, s3_url, storage_options=seaweedfs.options())
    dataset = opened(s3_url, CROP)
    open_s3(f"{s3_url}/images").delete(["shard-00000.lmdb"])
    none = Subset(
        dataset, [at for at, count in enumerate(dataset.table()["images_count"].to_pylist()) if not count]
    )
    for batch in epochs(none, 1, **engine):
        assert batch["images"].values.shape == (0, 3, 24, 24)


def test_images_that_are_not_there_are_said(
    local: Path, s3_url: str, seaweedfs: SeaweedFS, open_s3: Any
) -> None:
    fastload.push(local, s3_url, storage_options=seaweedfs.options())
    open_s3(f"{s3_url}/images").delete(["manifest.json"])
    with pytest.raises((RemoteError, fastload.errors.DatasetError), match="images"):
        PackedDataset(s3_url, storage_options=seaweedfs.options())
