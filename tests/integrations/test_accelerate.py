"""HF Accelerate: prepare() builds a plain DataLoader of a FastLoader's attributes; fastload.accelerate()
and shard= keep it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import warm
from integration_helpers import two_ranks_of
from numbers_data import COUNT, FORMS, WITH_FILES, Net, accumulated, dataset_of, loader_of, runs_as_it_should
from torch.utils.data import DataLoader, IterableDataset

import fastload
from fastload import FastLoader, PackedDataset
from fastload import transforms as T

rebuilds = pytest.mark.filterwarnings("ignore:Accelerate's prepare:UserWarning")
"""For tests about the loader that prepare() builds."""

accelerate = pytest.importorskip("accelerate")
from accelerate.state import AcceleratorState, GradientState, PartialState  # noqa: E402

stateful = pytest.mark.skipif(
    not hasattr(FastLoader, "state_dict"), reason="FastLoader has no state_dict yet"
)


@pytest.fixture
def accelerator() -> Iterator[Any]:
    """An Accelerator of one CPU process that accumulates four batches; its process-wide state is reset
    after."""
    yield accelerate.Accelerator(cpu=True, gradient_accumulation_steps=4)
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()


def labels_of(loader: Any) -> list[int]:
    """The labels of an epoch, in order."""
    return [int(label) for _, labels in loader for label in labels]


class Counting(PackedDataset):
    """A PackedDataset that writes down which batches it was asked for, whole."""

    asked: list[int]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        self.asked.append(len(indices))
        return super().__getitems__(indices)


@rebuilds
@pytest.mark.parametrize("form", WITH_FILES)
@pytest.mark.parametrize(("workers", "shuffle"), [(0, True), (2, True), (0, "window")])
def test_prepare_rebuilds_a_right_loader(
    accelerator: Any, numbered: Path, form: str, workers: int, shuffle: Any, no_children: None
) -> None:
    """What prepare() builds is a plain DataLoader; every epoch has every sample once, each epoch in an
    order of its own."""
    loader = loader_of(form, numbered, shuffle=shuffle, num_workers=workers)
    prepared = accelerator.prepare(loader)
    assert type(prepared.base_dataloader) is DataLoader
    assert type(prepared.base_dataloader.batch_sampler.sampler) is type(loader.sampler)
    assert prepared.num_workers == workers
    assert len(prepared) == len(loader) == 10
    orders = [labels_of(prepared) for _ in range(3)]
    assert all(sorted(order) == list(range(COUNT)) for order in orders)
    assert len({tuple(order) for order in orders}) == 3
    shape = next(iter(loader))[0].shape
    assert next(iter(prepared))[0].shape == shape
    loader.close()


@rebuilds
def test_rebuilt_loader_asks_for_whole_batches(accelerator: Any, numbered: Path) -> None:
    """On packed data the plain DataLoader goes through PackedDataset.__getitems__, a whole batch at a
    time."""
    dataset = Counting(numbered, transform=[T.CenterCrop(16)])
    dataset.asked = []
    prepared = accelerator.prepare(FastLoader(dataset, batch_size=7, num_workers=0))
    with FastLoader(numbered, transform=[T.CenterCrop(16)], batch_size=7, num_workers=2) as native:
        for (images, labels), (expected, same) in zip(prepared, native, strict=True):
            assert torch.equal(images, expected)
            assert torch.equal(labels, same)
    assert dataset.asked == [7] * 6 + [6]


@rebuilds
@pytest.mark.parametrize("workers", [0, 2])
def test_seeded_dataset_has_the_same_pixels_rebuilt(
    accelerator: Any, numbered: Path, workers: int, no_children: None
) -> None:
    """A PackedDataset with a seed gives in the rebuilt loader the pixels that a FastLoader of that seed
    gives, epoch by epoch."""
    dataset = PackedDataset(numbered, transform=[T.RandomResizedCrop(16), T.RandomHorizontalFlip()], seed=6)
    prepared = accelerator.prepare(FastLoader(dataset, batch_size=6, num_workers=workers))
    with FastLoader(
        PackedDataset(numbered, transform=dataset.transform), batch_size=6, num_workers=2, seed=6
    ) as native:
        for _ in range(2):
            for (images, _), (expected, _) in zip(prepared, native, strict=True):
                assert torch.equal(images, expected)


@rebuilds
@pytest.mark.parametrize("form", WITH_FILES)
@pytest.mark.parametrize("shuffle", [False, True])
def test_kept_inside_the_wrapper(accelerator: Any, numbered: Path, form: str, shuffle: bool) -> None:
    """A FastLoader put into Accelerate's wrapper makes its batches, in the order and number of the loader
    it replaces."""
    expected = accelerator.prepare(loader_of(form, numbered, shuffle=shuffle))
    kept = fastload.accelerate(accelerator, loader_of(form, numbered, shuffle=shuffle))
    assert type(kept.base_dataloader) is FastLoader
    assert runs_as_it_should(form, kept.base_dataloader)
    assert isinstance(kept, DataLoader)
    assert len(kept) == 10
    orders = []
    for loader in (kept, expected):
        torch.manual_seed(2)
        orders.append([labels_of(loader) for _ in range(3)])
    assert orders[0] == orders[1]
    kept.base_dataloader.close()


@pytest.mark.parametrize("form", FORMS)
def test_kept_loader_ends_an_accumulation(accelerator: Any, numbered: Path, form: str) -> None:
    """Gradients are applied every fourth batch and at the last one: the wrapper knows the end of a
    FastLoader's epoch."""
    model, optimizer = Net(), None
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    kept = fastload.accelerate(accelerator, loader_of(form, numbered))
    for _ in range(2):
        synced = [applied for _, applied in accumulated(accelerator, model, optimizer, kept)]
        assert [i for i, now in enumerate(synced) if now] == [3, 7, 9]
    kept.base_dataloader.close()


@pytest.mark.parametrize("form", FORMS)
def test_marked_loader_is_taken_as_it_is(accelerator: Any, numbered: Path, form: str) -> None:
    """With `_is_accelerate_prepared`, prepare() hands back the very loader, and knows it."""
    loader = loader_of(form, numbered, shuffle=True, seed=1, device=accelerator.device)
    loader._is_accelerate_prepared = True  # type: ignore[attr-defined]
    model, prepared = accelerator.prepare(Net(), loader)
    assert prepared is loader
    assert loader in accelerator._dataloaders
    for images, labels in prepared:
        assert model(images).shape == (len(labels), 2)
    assert sorted(labels_of(prepared)) == list(range(COUNT))
    loader.close()


@stateful
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shuffle", [False, True])
def test_kept_loader_resumes(accelerator: Any, numbered: Path, form: str, shuffle: bool) -> None:
    """The wrapper's state_dict counts the batches handed out, though it pulls one ahead; loaded, the rest
    of the epoch follows."""

    def kept() -> Any:
        torch.manual_seed(2)
        return fastload.accelerate(accelerator, loader_of(form, numbered, shuffle=shuffle, seed=4))

    whole = [labels.tolist() for _, labels in kept()]
    first = kept()
    batches = iter(first)
    seen = [next(batches)[1].tolist() for _ in range(3)]
    state = json.loads(json.dumps(first.state_dict()))
    assert "_iterator_finished" in state  # Accelerate's own key, in FastLoader's dict
    del batches
    second = kept()
    second.load_state_dict(state)
    assert seen + [labels.tolist() for _, labels in second] == whole
    for each in (first, second):
        each.base_dataloader.close()


@pytest.fixture(scope="module")
def two_ranks(numbered: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What both ranks of accelerate_program.py saw."""
    return two_ranks_of(
        "accelerate_program.py",
        numbered,
        tmp_path_factory.mktemp("accelerate"),
        imports=(*warm.TRAINING, "accelerate"),
    )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("way", "maker"),
    [
        ("rebuilt", "DataLoader"),
        ("window", "DataLoader"),
        ("kept", "FastLoader"),
        ("own", "FastLoader"),
        ("shard", "FastLoader"),
    ],
)
def test_two_processes_see_every_sample_once(
    two_ranks: list[dict[str, Any]], form: str, way: str, maker: str
) -> None:
    """Gathered from two processes, each epoch holds every sample once, in an order of its own, whoever
    makes the batches."""
    for report in (rank[f"{form} {way}"] for rank in two_ranks):
        assert report["made_by"] == maker
        assert report["batches"] == 5
        first, second = report["epochs"]
        assert sorted(first) == sorted(second) == list(range(COUNT))
        assert first != second
    assert two_ranks[0][f"{form} {way}"]["epochs"] == two_ranks[1][f"{form} {way}"]["epochs"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", ["rebuilt", "kept"])
def test_two_processes_accumulate_to_the_end(two_ranks: list[dict[str, Any]], form: str, way: str) -> None:
    """Of five batches accumulated by two, the second, the fourth and the last are applied, in both
    processes."""
    for report in (rank[f"{form} {way}"] for rank in two_ranks):
        assert report["synced"] == [False, True, False, True, True] * 2


@pytest.mark.parametrize("form", FORMS)
def test_a_loader_that_shards_accumulates_across_epochs(two_ranks: list[dict[str, Any]], form: str) -> None:
    """Accelerate does not know where its epoch ends: what the last batch leaves open is applied with the
    next epoch's first."""
    for report in (rank[f"{form} shard"] for rank in two_ranks):
        assert report["synced"] == [False, True] * 5


class Numbers(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(7))


def test_prepare_warns_that_it_drops_fastloader(accelerator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning names fastload.accelerate(), which gives none; nor does prepare() where its DataLoader is
    FastLoader."""
    with pytest.warns(UserWarning, match=r"fastload\.accelerate"):
        accelerator.prepare(FastLoader(range(4)))
    assert not FastLoader(range(4))._is_accelerate_prepared
    monkeypatch.setattr(accelerate.data_loader, "DataLoader", FastLoader)
    assert type(accelerator.prepare(FastLoader(range(4))).base_dataloader) is FastLoader


@pytest.mark.parametrize(
    ("dataset", "given", "batches"),
    [
        (range(7), {"batch_size": 3, "drop_last": True}, [[0, 1, 2], [3, 4, 5]]),
        (range(3), {"batch_size": None, "collate_fn": torch.tensor}, [0, 1, 2]),
        (Numbers(), {"batch_size": 3, "num_workers": 1}, [[0, 1, 2], [3, 4, 5], [6]]),
        (Numbers(), {"batch_size": 3, "drop_last": True}, [[0, 1, 2], [3, 4, 5]]),
    ],
)
def test_kept_with_each_kind_of_order(
    accelerator: Any, dataset: Any, given: dict[str, Any], batches: list[Any]
) -> None:
    """Batches are in the order of the loader that prepare() builds, and the other arguments are the
    FastLoader's own."""
    kept = fastload.accelerate(accelerator, FastLoader(dataset, seed=3, **given))
    assert type(kept.base_dataloader) is FastLoader
    assert kept.base_dataloader.seed == 3
    assert [batch.tolist() for batch in kept] == batches
    kept.base_dataloader.close()


@rebuilds
def test_dataset_is_shared_not_copied(accelerator: Any, numbered: Path) -> None:
    """The rebuilt loader reads the very dataset, open as it is."""
    dataset = dataset_of("packed", numbered)
    assert accelerator.prepare(FastLoader(dataset, batch_size=5)).dataset is dataset
