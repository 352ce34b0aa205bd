"""Under shuffle="window" what finds no room in the cache comes in large requests: counted at a proxy,
bounded in memory, bit for bit."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reading
import torch
from reading import batches, same, size_of, until
from servers.proxy import Proxy
from servers.seaweedfs import SeaweedFS
from torch.utils.data import ConcatDataset, Subset

import fastload.engines.threads.engine
from fastload import FastLoader, PackedDataset, WindowSampler, push
from fastload.remote import requests
from fastload.remote.requests import HeldRoom

URL = "s3://fastload/window-fetch/raw.fl"
TINY = "s3://fastload/window-fetch/tiny.fl"
COUNT, HEIGHT, WIDTH = 1200, 104, 131  # 49 MB of raw images that fill their pages; each is a unit
BLOCK, BUFFER = 20, 240
SAMPLE = HEIGHT * WIDTH * 3


@pytest.fixture(scope="module")
def raw(seaweedfs: SeaweedFS, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A local dataset of raw images, which is also at URL."""
    out = reading.write_raw(tmp_path_factory.mktemp("raw") / "raw.fl", COUNT, HEIGHT, WIDTH, 12_000_000)
    push(out, URL, storage_options=seaweedfs.options())
    return out


@pytest.fixture(scope="module")
def tiny(seaweedfs: SeaweedFS, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A local dataset of raw images of 3 KB, ten in a unit, which is also at TINY."""
    out = reading.write_tiny(tmp_path_factory.mktemp("tiny") / "tiny.fl", 6000)
    push(out, TINY, storage_options=seaweedfs.options())
    return out


@pytest.fixture(autouse=True)
def little_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """So little of these data is asked for ahead of the loop as of large ones."""
    monkeypatch.setattr(fastload.engines.threads.engine, "READ_AHEAD_BYTES", 2 << 20)


Open = Callable[..., PackedDataset]


@pytest.fixture
def opened(seaweedfs: SeaweedFS, raw: Path, proxy: Proxy, tmp_path: Path) -> Iterator[Open]:
    """Opens URL, or another, by way of the proxy, with a cache of half the data unless told otherwise;
    closed at the end."""
    found: list[PackedDataset] = []

    def open_(url: str = URL, **more: Any) -> PackedDataset:
        given = {"cache": tmp_path / f"cache-{len(found)}", "cache_size": size_of(raw) // 2, **more}
        found.append(PackedDataset(url, storage_options=seaweedfs.options(proxy.endpoint), **given))
        return found[-1]

    yield open_
    for dataset in found:
        dataset.close()


def window(dataset: Any, epoch: int, block: int = BLOCK, buffer: int = BUFFER, **more: Any) -> WindowSampler:
    """The sampler of an epoch."""
    sampler = WindowSampler(dataset, block=block, buffer=buffer, seed=7, **more)
    sampler.set_epoch(epoch)
    return sampler


def epoch_of(
    dataset: Any, epoch: int, sampler: WindowSampler | None = None, workers: int = 2, **more: Any
) -> list[Any]:
    """The batches of one epoch by a loader of its own."""
    order = window(dataset, epoch) if sampler is None else sampler
    given: dict[str, Any] = {"batch_size": 16, "sampler": order, "num_workers": workers, "seed": 1, **more}
    with FastLoader(dataset, **given) as loader:
        loader.set_epoch(epoch)
        return [reading.copied(batch) for batch in loader]


def room(dataset: PackedDataset) -> HeldRoom:
    """Of this process."""
    found: HeldRoom = dataset.opened.reader.files.session.room  # type: ignore[attr-defined]
    return found


def let_go(dataset: PackedDataset) -> None:
    """Nothing is held, soon."""
    until(lambda: room(dataset).size == 0)


def test_hosts_that_keep_their_blocks_fetch_them_once(raw: Path, opened: Open, proxy: Proxy) -> None:
    """Two hosts, each with a cache for half of the data: with hosts=2 the second epoch asks for nothing, and
    has the local batches in another order than the first; without, it asks for about half of the data again.
    """
    local, expected = PackedDataset(raw), {2: (0, 0), None: (0.4, 0.6)}
    for hosts, (least, most) in expected.items():
        caches = [opened(cache_size=size_of(raw) * 6 // 10) for _ in range(2)]
        fetched = []
        for epoch in range(2):
            proxy.counts(reset=True)
            for rank, dataset in enumerate(caches):
                order, again = (
                    window(each, epoch, hosts=hosts, num_replicas=2, rank=rank) for each in (dataset, local)
                )
                assert same(epoch_of(dataset, epoch, order), epoch_of(local, epoch, again))
            fetched.append(proxy.counts(reset=True)["down"])
        assert 0.9 < fetched[0] / (COUNT * SAMPLE) < 1.2
        assert least <= fetched[1] / (COUNT * SAMPLE) <= most


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_later_epochs_ask_for_large_ranges(raw: Path, opened: Open, proxy: Proxy, workers: int) -> None:
    """With half a cache: as few requests for each byte as where all of it finds room, no byte twice, and the
    local batches.

    The requests are those of the middle one of three epochs: the first one after the cache was filled has
    shorter runs (0.79 of the bytes a request, on a busy machine 0.63 to 0.85; the two after it 0.89 to 1.07).
    """
    local, half = PackedDataset(raw), opened()
    assert same(epoch_of(half, 0, workers=workers), epoch_of(local, 0))
    seen = proxy.counts(reset=True)
    counted = []
    for epoch in (1, 2, 3):
        assert same(epoch_of(half, epoch, workers=workers), epoch_of(local, epoch))
        later = proxy.counts(reset=True)
        assert later["down"] <= (0.5 + 0.02) * COUNT * SAMPLE
        assert later["requests"] < COUNT / 2 / 5  # a fifth of what single samples take
        counted.append(later["down"] / later["requests"])
    assert sorted(counted)[1] >= 0.7 * seen["down"] / seen["requests"], counted
    let_go(half)


def test_without_a_cache(raw: Path, opened: Open, proxy: Proxy) -> None:
    """Nothing fits: all of it comes in blocks, in every epoch, and once."""
    local, none = PackedDataset(raw), opened(cache_size=0)
    epoch_of(none, 0)
    proxy.counts(reset=True)
    assert same(epoch_of(none, 1), epoch_of(local, 1))
    found = proxy.counts()
    assert found["down"] <= 1.02 * COUNT * SAMPLE
    assert found["requests"] < COUNT / 5
    let_go(none)


def test_a_small_room_is_kept_to(raw: Path, opened: Open, proxy: Proxy) -> None:
    """Where the process may hold less than the buffer, it holds no more, and asks for smaller ranges."""
    none = opened(cache_size=0)
    len(none)
    room(none).limit = 20 * SAMPLE
    proxy.counts(reset=True)
    most = 0
    expected = iter(epoch_of(PackedDataset(raw), 0))
    with FastLoader(none, batch_size=16, sampler=window(none, 0), num_workers=1, seed=1) as loader:
        for batch in loader:
            most = max(most, room(none).size)
            assert same(reading.copied(batch), next(expected))
    assert 0 < most <= 20 * SAMPLE
    found = proxy.counts()
    assert found["down"] <= 1.02 * COUNT * SAMPLE
    assert COUNT / 5 < found["requests"] < COUNT
    let_go(none)


def test_no_more_than_the_buffer_is_held(opened: Open) -> None:
    none = opened(cache_size=0)
    most = 0
    with FastLoader(none, batch_size=16, sampler=window(none, 0), num_workers=1, seed=1) as loader:
        for _ in loader:
            most = max(most, room(none).size)
    assert BUFFER * SAMPLE / 4 < most <= BUFFER * SAMPLE
    let_go(none)


def test_two_loaders_over_one_dataset(raw: Path, opened: Open, proxy: Proxy) -> None:
    """A window and a shuffle of all of it side by side: each has its batches, and neither takes the
    other's ranges from it."""
    half = opened()
    epoch_of(half, 0)
    proxy.counts(reset=True)
    local = PackedDataset(raw)
    expected = epoch_of(local, 1), batches(local, shuffle=True)
    with (
        FastLoader(half, batch_size=16, sampler=window(half, 1), num_workers=1, seed=1) as one,
        FastLoader(half, batch_size=16, shuffle=True, num_workers=2, seed=1) as other,
    ):
        one.set_epoch(1)
        found: tuple[list[Any], list[Any]] = ([], [])
        for pair in itertools.zip_longest(one, other):
            for into, batch in zip(found, pair, strict=True):
                into.append(reading.copied(batch))
    assert same(found[0], expected[0])
    assert same(found[1], expected[1])
    counted = proxy.counts()
    assert counted["down"] <= 2 * (0.5 + 0.02) * COUNT * SAMPLE
    assert counted["requests"] < COUNT / 2 * (1 + 1 / 5)
    let_go(half)


def test_a_pass_that_is_dropped_holds_nothing(opened: Open) -> None:
    """Half-way, by `break`; by closing the dataset under it; and a later pass has all of the room."""
    none = opened(cache_size=0)
    loader = FastLoader(none, batch_size=16, sampler=window(none, 0), num_workers=1, seed=1)
    held = 0
    for number, _ in enumerate(loader):
        if number == 20:
            held = room(none).size  # with the break the iterator goes, and what it held
            break
    assert held > 0
    loader.close()
    del loader, _
    gc.collect()
    let_go(none)
    loader = FastLoader(none, batch_size=16, sampler=window(none, 0), num_workers=1, seed=1)
    iterator = iter(loader)
    for _ in range(20):
        next(iterator)
    kept = room(none)
    assert kept.size > 0
    none.close()
    until(lambda: kept.size == 0)
    loader.close()
    del iterator


def test_resumed_in_mid_epoch(raw: Path, opened: Open, proxy: Proxy) -> None:
    """What was delivered before is neither fetched nor held again."""
    local, none = PackedDataset(raw), opened(cache_size=0)
    given: dict[str, Any] = {"batch_size": 16, "num_workers": 1, "seed": 1}
    whole = FastLoader(local, sampler=window(local, 0), **given)
    iterator = iter(whole)
    for _ in range(40):
        next(iterator)
    state = whole.state_dict()
    expected = [reading.copied(batch) for batch in iterator]
    whole.close()
    far = FastLoader(none, sampler=window(none, 0), **given)
    far.load_state_dict(state)
    len(none)
    proxy.counts(reset=True)
    assert same([reading.copied(batch) for batch in far], expected)
    assert proxy.counts()["down"] <= 1.02 * (COUNT - 40 * 16) * SAMPLE
    let_go(none)
    far.close()


def test_ranks_subsets_and_concatenations(raw: Path, tiny: Path, opened: Open, proxy: Proxy) -> None:
    """Positions are not samples there, and blocks lie across datasets: the local batches, and few
    requests."""
    local, none, local_tiny, none_tiny = (
        PackedDataset(raw),
        opened(cache_size=0),
        PackedDataset(tiny),
        opened(TINY, cache_size=0),
    )
    part = np.random.default_rng(0).permutation(COUNT)[:600].tolist()
    small = "label", "image"
    assert none.fields == local.fields != small
    pairs: list[tuple[Any, Any, dict[str, Any]]] = [
        (none, local, {"num_replicas": 3, "rank": 1}),
        (Subset(none, range(100, 900)), Subset(local, range(100, 900)), {}),
        (Subset(none, part), Subset(local, part), {}),
        (
            ConcatDataset([Subset(none, range(95)), none]),
            ConcatDataset([Subset(local, range(95)), local]),
            {},
        ),
    ]
    for ours, theirs, more in pairs:
        proxy.counts(reset=True)
        found = epoch_of(ours, 0, window(ours, 0, **more))
        assert same(found, epoch_of(theirs, 0, window(theirs, 0, **more)))
        assert proxy.counts()["down"] <= 1.05 * sum(len(batch[1]) for batch in found) * SAMPLE
    let_go(none)
    assert len(none_tiny) == len(local_tiny)


def test_small_samples_are_held_in_their_groups(tiny: Path, opened: Open, proxy: Proxy) -> None:
    """Ten samples of 3 KB in a unit: with no cache each group is fetched about once, not once for each of
    its samples."""
    local, none = PackedDataset(tiny), opened(TINY, cache_size=0)
    assert same(
        epoch_of(none, 0, window(none, 0, 300, 1500)), epoch_of(local, 0, window(local, 0, 300, 1500))
    )
    proxy.counts(reset=True)
    epoch_of(none, 1, window(none, 1, 300, 1500))
    found = proxy.counts()
    assert found["down"] <= 1.25 * size_of(tiny)  # units on the border of two blocks come with each
    assert found["requests"] < 6000 / 50
    let_go(none)


def finished(image: torch.Tensor) -> torch.Tensor:
    """A step that only Python can do."""
    return image.flip(-1).contiguous()


@pytest.mark.long
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_worker_processes_hold_nothing(raw: Path, opened: Open, proxy: Proxy, context: str) -> None:
    """They fetch what they use, once, and give the local batches."""
    local, half = PackedDataset(raw, [finished]), opened(transform=[finished])
    epoch_of(half, 0, workers=1, multiprocessing_context=context)
    proxy.counts(reset=True)
    assert same(epoch_of(half, 1, multiprocessing_context=context), epoch_of(local, 1, workers=0))
    assert proxy.counts()["down"] <= (0.5 + 0.03) * COUNT * SAMPLE


def test_the_room_of_the_docs() -> None:
    """What the guide says of memory."""
    guide = (Path(__file__).parents[2] / "docs" / "guide" / "shuffling.md").read_text()
    assert requests.HELD_BYTES == 1 << 30
    assert requests.MEMORY_SHARE == 0.25
    assert "1 GiB a process" in guide
    assert "a quarter of the memory" in guide
