"""Two gloo processes as torchrun starts them, DistributedSampler and DistributedDataParallel: the real
collective."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import warm
from integration_helpers import two_ranks_of
from numbers_data import COUNT, FORMS, dataset_of, loader_of
from torch.utils.data import BatchSampler, DataLoader
from torch.utils.data.distributed import DistributedSampler

WAYS = ("loader", "batch_sampler")


def flat(batches: list[list[int]]) -> list[int]:
    """The labels of an epoch, in order."""
    return [label for batch in batches for label in batch]


@pytest.fixture(scope="module")
def ranks(numbered: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What both ranks of ddp_program.py saw."""
    return two_ranks_of("ddp_program.py", numbered, tmp_path_factory.mktemp("ddp"), imports=warm.TRAINING)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", WAYS)
def test_every_sample_once_over_the_ranks(ranks: list[dict[str, Any]], form: str, way: str) -> None:
    """In each epoch the ranks together see every sample exactly once."""
    first, second = (report[form][way] for report in ranks)
    for mine, other in zip(first, second, strict=True):
        assert sorted(flat(mine) + flat(other)) == list(range(COUNT))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", WAYS)
def test_set_epoch_reshuffles(ranks: list[dict[str, Any]], form: str, way: str) -> None:
    """Each epoch has an order of its own, and another share of the samples."""
    for report in ranks:
        orders = [tuple(flat(epoch)) for epoch in report[form][way]]
        assert len(set(orders)) == len(orders)
        assert len({frozenset(order) for order in orders}) == len(orders)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", WAYS)
def test_batches_are_those_of_dataloader(ranks: list[dict[str, Any]], form: str, way: str) -> None:
    """Batch by batch the labels are what torch's DataLoader gives the same rank and epoch."""
    for report in ranks:
        assert report[form][way] == report[form]["torch"]


@pytest.mark.parametrize("form", FORMS)
def test_gradients_were_averaged(ranks: list[dict[str, Any]], form: str) -> None:
    """DistributedDataParallel over gloo worked alongside the loader's threads and processes."""
    first, second = (report[form]["gradient"] for report in ranks)
    assert first == second
    assert any(first)


@pytest.mark.parametrize("form", FORMS)
def test_loader_set_epoch_tells_the_sampler(numbered: Path, form: str) -> None:
    """FastLoader.set_epoch reaches the sampler, and the one inside a batch_sampler; a resumed run sees the
    same order."""
    for inside in (False, True):
        sampler = DistributedSampler(dataset_of(form, numbered), num_replicas=2, rank=1, seed=3)
        options: dict[str, Any] = (
            {"batch_sampler": BatchSampler(sampler, 5, False), "batch_size": 1}
            if inside
            else {"sampler": sampler}
        )
        with loader_of(form, numbered, **options) as loader:
            loader.set_epoch(7)
            labels = [labels.tolist() for _, labels in loader]
        reference = DistributedSampler(range(COUNT), num_replicas=2, rank=1, seed=3)  # type: ignore[arg-type]
        reference.set_epoch(7)
        assert flat(labels) == list(reference)


@pytest.mark.parametrize("form", FORMS)
def test_batch_sampler_is_drawn_when_its_epoch_begins(numbered: Path, form: str) -> None:
    """A set_epoch between epochs, on the sampler inside a batch_sampler, counts for the very next epoch,
    whatever is prefetched."""
    sampler = DistributedSampler(dataset_of(form, numbered), num_replicas=2, rank=0, seed=3)
    with loader_of(
        form, numbered, batch_size=1, batch_sampler=BatchSampler(sampler, 5, False), persistent_workers=True
    ) as loader:
        for epoch in (0, 1, 2):
            sampler.set_epoch(epoch)
            assert flat([labels.tolist() for _, labels in loader]) == list(sampler)


def test_seeded_pixels_do_not_depend_on_ranks(numbered: Path) -> None:
    """With a seed, a sample of an epoch has the same pixels on one rank of two as in one process."""

    def pixels(sampler: Any) -> dict[int, torch.Tensor]:
        with loader_of("packed", numbered, sampler=sampler, seed=5) as loader:
            loader.set_epoch(2)
            return {
                int(label): image.clone()
                for images, labels in loader
                for image, label in zip(images, labels, strict=True)
            }

    dataset = dataset_of("packed", numbered)
    whole = pixels(None)
    shared = pixels(DistributedSampler(dataset, num_replicas=2, rank=0)) | pixels(
        DistributedSampler(dataset, num_replicas=2, rank=1)
    )
    assert shared.keys() == whole.keys()
    assert all(torch.equal(shared[label], whole[label]) for label in whole)


@pytest.mark.parametrize("form", FORMS)
def test_uneven_ranks_as_dataloader(numbered: Path, form: str) -> None:
    """Where ranks do not divide the samples, padding and drop_last give what they give under DataLoader."""
    for drop_last in (False, True):
        for rank in range(5):
            sampler = DistributedSampler(
                dataset_of(form, numbered), num_replicas=5, rank=rank, drop_last=drop_last
            )
            mine = loader_of(form, numbered, sampler=sampler)
            torchs = DataLoader(dataset_of("plain", numbered), batch_size=5, sampler=sampler)
            assert len(mine) == len(torchs)
            assert [labels.tolist() for _, labels in mine] == [labels.tolist() for _, labels in torchs]
            mine.close()
