"""Slots are as large and as many as an epoch's data asks for, not as batch_size and prefetch_factor would
allow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, Dataset, SequentialSampler, Subset, SubsetRandomSampler

from fastload import FastLoader, PackedDataset
from fastload import transforms as T

pytestmark = pytest.mark.usefixtures("no_leaks")
SIDE = 32
IMAGE = SIDE * SIDE * 3


def slots_of(rows: int) -> int:
    """Bytes mapped for a batch of that many images: whole pages."""
    return -(-rows * IMAGE // 4096) * 4096


def dataset(packed: Path) -> PackedDataset:
    return PackedDataset(packed, transform=[T.Resize((SIDE, SIDE))])  # 50 images


@pytest.mark.parametrize(
    ("arguments", "most"),
    [
        ({"batch_size": 2048}, 3 * slots_of(50)),
        ({"batch_size": 2048, "num_workers": 0}, 2 * slots_of(50)),
        ({"batch_size": 20, "prefetch_factor": 500}, 7 * slots_of(20)),  # three batches an epoch
        ({"batch_size": 2048, "prefetch_factor": 500, "device": "cpu"}, 5 * slots_of(50)),
        ({"batch_size": 2048, "sampler": SubsetRandomSampler(range(7))}, 3 * slots_of(7)),
        ({"batch_sampler": BatchSampler(SequentialSampler(range(9)), 4000, False)}, 3 * slots_of(9)),
        ({"batch_size": 10}, 4 * slots_of(10)),  # two in flight, one on its way, one in the loop
    ],
)
def test_no_more_than_the_data(packed: Path, arguments: dict[str, Any], most: int) -> None:
    """At the start and in the midst of epochs the mapped bytes stay within what is needed for an epoch's
    batches, the one that the loop holds and the first of the next epoch; every sample comes."""
    whole = not ({"sampler", "batch_sampler"} & arguments.keys())
    with FastLoader(dataset(packed), seed=1, **{"num_workers": 2, **arguments}) as loader:
        assert 0 < loader.stats()["slot_bytes"] <= most
        for _ in range(3):
            rows = 0
            for images, _ in loader:
                rows += len(images)
                assert loader.stats()["slot_bytes"] <= most
            assert rows == 50 if whole else rows in (7, 9)


def test_a_subset_that_grows(packed: Path) -> None:
    """Slots follow a Subset's indices, batch_sampler's batch_size and the sampler between epochs, with the
    samples of each epoch."""
    subset = Subset(dataset(packed), [3, 4])
    with FastLoader(subset, batch_size=30, num_workers=2) as loader:
        for count, most in ((2, 2), (40, 30), (50, 30), (5, 5)):
            subset.indices = list(range(count))  # type: ignore[assignment]
            assert sum(len(images) for images, _ in loader) == count
            assert loader.stats()["slot_bytes"] <= 5 * slots_of(most)


class Odd:
    """Batches of sizes that nobody was told, larger than batch_size and than the dataset."""

    def __init__(self, batch_size: Any = None) -> None:
        if batch_size is not None:
            self.batch_size = batch_size

    def __iter__(self) -> Iterator[list[int]]:
        yield from ([1], list(range(50)) * 2, [2, 3], list(range(40)))


class OddWithLength(Odd):
    def __len__(self) -> int:
        raise RuntimeError("not before set_epoch()")


@pytest.mark.parametrize("sampler", [Odd(), Odd(2), Odd("many"), Odd(-1), Odd(10**9), OddWithLength(3)])
def test_batches_larger_than_expected(packed: Path, sampler: Odd) -> None:
    """A batch sampler that says nothing, or nonsense, of its sizes is served all the same; its slots grow
    to its largest batch."""
    with FastLoader(dataset(packed), batch_sampler=sampler, num_workers=2) as loader:
        for _ in range(2):
            assert [len(images) for images, _ in loader] == [1, 100, 2, 40]
        assert loader.stats()["slot_bytes"] <= 4 * slots_of(100)


def test_one_large_batch(packed: Path) -> None:
    """What a batch took that was much larger than the rest is given back some hundred batches later, in
    the midst of the epoch."""
    batches = [[number % 50] for number in range(700)]
    batches[20] = list(range(50)) * 8
    with FastLoader(dataset(packed), batch_sampler=batches, num_workers=2) as loader:
        for number, (images, _) in enumerate(loader):
            assert len(images) == len(batches[number])
            if number == 20:
                assert loader.stats()["slot_bytes"] >= slots_of(400)
            del images
        assert 0 < loader.stats()["slot_bytes"] <= 2 * 4 * slots_of(1)


class Numbers(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((3, SIDE, SIDE), index, dtype=torch.uint8)


@pytest.mark.parametrize("seed_by", [None, "sample"])
def test_worker_slots(seed_by: Any) -> None:
    """Worker processes' slots are made for the batches that come: a large batch_size or prefetch_factor
    costs nothing."""
    with FastLoader(
        Numbers(),
        batch_size=2048,
        num_workers=2,
        prefetch_factor=100,
        persistent_workers=True,
        seed_by=seed_by,
    ) as loader:
        for _ in range(3):
            for batch in loader:
                assert len(batch) == 20
                assert 0 < loader.stats()["slot_bytes"] <= 2 * 1.2 * slots_of(20)
