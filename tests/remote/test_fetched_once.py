"""Bytes of whole trainings: each is fetched once into the cache, what has no room there once an epoch, and
hardly any for an epoch that nobody asks for."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
import reading
from reading import same, size_of, until
from servers.seaweedfs import SeaweedFS

from fastload import FastLoader, PackedDataset, push

URL = "s3://fastload/fetched-once/raw.fl"
COUNT, HEIGHT, WIDTH = 400, 104, 131  # 16 MB of raw images that fill their pages; each is a unit
EPOCHS, BATCH = 4, 16


@pytest.fixture(scope="module")
def raw(seaweedfs: SeaweedFS, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A local dataset of raw images, which is also at URL."""
    out = reading.write_raw(tmp_path_factory.mktemp("raw") / "raw.fl", COUNT, HEIGHT, WIDTH, 6_000_000)
    push(out, URL, storage_options=seaweedfs.options())
    return out


@pytest.mark.parametrize(
    ("share", "order", "ranks"),
    [
        (0.0, True, 1),
        (0.5, True, 1),
        (0.5, "window", 1),
        (0.0, True, 2),
        (0.5, True, 2),
        (0.5, "window", 2),
        (2.0, True, 2),
    ],
)
def test_bytes_of_four_epochs(
    seaweedfs: SeaweedFS,
    raw: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    share: float,
    order: Any,
    ranks: int,
) -> None:
    """With c of the data in the cache they are 1 + 3 (1 - c) of the data, within 3 %, even if ranks never
    see what the others fetched."""
    monkeypatch.setattr("fastload.remote.dataset_cache.LOOK_S", 3600.0)
    size = size_of(raw)
    more: dict[str, Any] = {
        "cache": tmp_path / "cache",
        "cache_size": int(share * size),
        "storage_options": seaweedfs.options(),
    }
    datasets = [PackedDataset(URL, **more) for _ in range(ranks)]
    given: dict[str, Any] = {"shuffle": order, "seed": 3, "num_workers": 2}
    loaders = [
        FastLoader(dataset, BATCH, shard=(rank, ranks), **given) for rank, dataset in enumerate(datasets)
    ]
    theirs = [FastLoader(PackedDataset(raw), BATCH, shard=(rank, ranks), **given) for rank in range(ranks)]
    for _ in range(EPOCHS):
        for mine, wanted in zip(zip(*loaders, strict=True), zip(*theirs, strict=True), strict=True):
            assert same(mine, wanted)
    sessions = [dataset.opened.reader.files.session for dataset in datasets]
    until(lambda: not any(session.fetcher._flying or session.fetcher._waiting for session in sessions))
    fetched = sum(session.fetched[0] for session in sessions)
    datasets.append(PackedDataset(URL, **more))
    cached = datasets[-1].opened.reader.files.status().cached / COUNT
    assert (cached > 0.3) == (share > 0)
    assert (cached == 1) == (share > 1)
    assert fetched <= (1 + (EPOCHS - 1) * (1 - cached) + 0.03) * size, (fetched / size, cached)
    for loader in (*loaders, *theirs):
        loader.close()
    for dataset in datasets:
        dataset.close()


def test_a_range_that_is_cut_is_left_to_others(
    seaweedfs: SeaweedFS, raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is cut off a claimed range, since another process has fetched its middle meanwhile, may be
    fetched by whoever comes first."""
    monkeypatch.setattr("fastload.remote.dataset_cache.LOOK_S", 3600.0)
    monkeypatch.setattr("fastload.remote.fetcher.IN_FLIGHT", 1)
    more: dict[str, Any] = {
        "cache": tmp_path / "cache",
        "cache_size": "1GiB",
        "storage_options": seaweedfs.options(),
    }
    mine, theirs, third = (PackedDataset(URL, **more) for _ in range(3))
    mine[0]  # looks at what is there
    theirs[5]
    fetcher = mine.opened.reader.files.session.fetcher
    begun, on = threading.Event(), threading.Event()
    fetch = fetcher._traced

    async def when_told(span: Any) -> Any:
        begun.set()
        await asyncio.to_thread(on.wait, 30)
        return await fetch(span)

    monkeypatch.setattr(fetcher, "_traced", when_told)
    loader = FastLoader(mine, 5, sampler=range(3, 8), num_workers=1)
    iterator = iter(loader)
    assert begun.wait(30)
    assert sorted(fetcher._flying) == [(0, 3), (0, 4)]
    del iterator
    loader.close()
    on.set()
    until(lambda: not fetcher._flying)
    with (
        FastLoader(third, 2, sampler=[6, 7], num_workers=1, timeout=10) as others,
        FastLoader(PackedDataset(raw), 2, sampler=[6, 7]) as local,
    ):
        assert all(same(*batches) for batches in zip(others, local, strict=True))
    for dataset in (mine, theirs, third):
        dataset.close()
