"""Subset.indices of any kind: the samples and exceptions of torch's Subset, on every engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, DataLoader, Subset

from fastload import BucketBatchSampler, FastLoader, PackedDataset, pack
from fastload import transforms as T

COUNT = 12
ENGINES: list[tuple[str, dict[str, Any]]] = [
    ("packed", {"num_workers": 2}),
    ("packed", {"num_workers": 0}),
    ("in place", {"num_workers": 2}),
    ("packed", {"num_workers": 1, "engine": "python"}),
    ("in place", {"num_workers": 0, "engine": "python"}),
]


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """By kind, a dataset whose label is the sample's index: one picture in each class."""
    torchvision = pytest.importorskip("torchvision")
    root = tmp_path_factory.mktemp("subsets")
    for number in range(COUNT):
        (root / "photos" / f"{number:02d}").mkdir(parents=True)
        Image.fromarray(np.full((8, 8 + number, 3), number, np.uint8)).save(
            root / "photos" / f"{number:02d}" / "0.jpg"
        )
    pack(root / "photos", root / "packed.fl", workers=1)
    small = torchvision.transforms.Compose(
        [torchvision.transforms.CenterCrop(8), torchvision.transforms.PILToTensor()]
    )
    folder = torchvision.datasets.ImageFolder(str(root / "photos"), transform=small)
    return {"packed": PackedDataset(Path(root / "packed.fl"), transform=T.CenterCrop(8)), "in place": folder}


class Computed:
    """A sequence that computes its items; iterating over it gives others."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, place: int) -> int:
        return COUNT - 1 - range(6)[place]

    def __iter__(self) -> Any:
        return iter(range(6))


class Moved(list[int]):
    """A list whose items are found one further on."""

    def __getitem__(self, place: Any) -> Any:
        return super().__getitem__((place + 1) % len(self))


class Named(Subset[Any]):
    """A Subset with a name."""

    name = "named"


class Backwards(Subset[Any]):
    """A Subset that turns its indices round."""

    def __getitem__(self, place: Any) -> Any:
        return self.dataset[self.indices[len(self) - 1 - place]]

    def __getitems__(self, places: list[int]) -> list[Any]:
        return [self[place] for place in places]


def series(values: list[Any], labels: list[Any] | None = None) -> Any:
    return pytest.importorskip("pandas").Series(values, index=labels)


SUBSETS: dict[str, Callable[[Any], Any]] = {
    "list": lambda ds: Subset(ds, [3, 1, -1, 3]),
    "tuple": lambda ds: Subset(ds, (3, 1, 5)),  # type: ignore[arg-type]
    "range": lambda ds: Subset(ds, range(9, 2, -2)),
    "array": lambda ds: Subset(ds, np.array([3, 1, 5], np.uint16)),
    "huge": lambda ds: Subset(ds, np.array([3, 2**64 - 1], np.uint64)),
    "rows": lambda ds: Subset(ds, np.array([[3], [1]])),
    "tensor": lambda ds: Subset(ds, torch.tensor([3, 1, 5])),  # type: ignore[arg-type]
    "objects": lambda ds: Subset(ds, np.array([3, 1, "a"], object)),
    "series": lambda ds: Subset(ds, series([5, 6, 7, 8])),
    "labels": lambda ds: Subset(ds, series([5, 6, 7, 8], [3, 2, 1, 0])),
    "missing labels": lambda ds: Subset(ds, series([5, 6, 7, 8], [0, 1, 2, 30])),
    "dict": lambda ds: Subset(ds, {1: 4, 0: 7, 2: 1}),  # type: ignore[arg-type]
    "set": lambda ds: Subset(ds, {1, 2}),  # type: ignore[arg-type]
    "computed": lambda ds: Subset(ds, Computed()),  # type: ignore[arg-type]
    "list of its own": lambda ds: Subset(ds, Moved([4, 5, 6])),
    "out of range": lambda ds: Subset(ds, [1, 2, 3, COUNT, 5]),
    "below": lambda ds: Subset(ds, [1, 2, -COUNT - 1, 5]),
    "floats": lambda ds: Subset(ds, [1, 2.0, 3]),  # type: ignore[list-item]
    "nested": lambda ds: Subset(Subset(ds, series([5, 6, 7], [2, 1, 0])), [1, 0, -1]),
    "in nested": lambda ds: Subset(Subset(ds, [8, 7, 6]), series([0, 1, 2], [2, 1, 0])),
    "out of a nested one": lambda ds: Subset(Subset(ds, [8, COUNT, 6]), [0, 2, 1, 2]),
    "joined": lambda ds: ConcatDataset([Subset(ds, [1, 2]), Subset(ds, series([5, 6], [1, 0])), ds]),
    "of joined": lambda ds: Subset(ConcatDataset([ds, Subset(ds, Computed())]), {0: COUNT, 1: 2, 2: -1}),  # type: ignore[arg-type]
    "named": lambda ds: Named(ds, [4, 2]),
    "backwards": lambda ds: Backwards(ds, [4, 2, 8]),
}


def got(loader_class: Any, dataset: Any, options: dict[str, Any]) -> list[Any]:
    """Labels batch by batch, then the class of what the loop ends with."""
    out: list[Any] = []
    loader = loader_class(dataset, batch_size=2, **options)
    assert len(loader) == -(-len(dataset) // 2)
    try:
        out.extend(batch[1].tolist() for batch in loader)
    except Exception as error:
        out.append(type(error))
    return out


@pytest.mark.parametrize("kind", SUBSETS)
def test_indices_say_what_they_say_to_torch(datasets: dict[str, Any], kind: str) -> None:
    """Every engine gives torch's samples, and where torch raises, at the same batch an exception of that
    class."""
    for data, options in ENGINES:
        subset = SUBSETS[kind](datasets[data])
        loader_options = {key: value for key, value in options.items() if key != "engine"}
        ours, theirs = (
            got(FastLoader, subset, options),
            got(DataLoader, subset, {**loader_options, "num_workers": 0}),
        )
        assert ours == theirs, (data, options)


def test_a_list_of_bools_is_what_the_dataset_takes_it_for(datasets: dict[str, Any]) -> None:
    """ImageFolder's list takes True for 1, on native threads as well; packed data refuse it."""
    bools = Subset(datasets["in place"], [True, False])  # type: ignore[list-item]
    assert (
        got(FastLoader, bools, {"num_workers": 2, "engine": "native"})
        == got(DataLoader, bools, {})
        == [[1, 0]]
    )
    assert got(FastLoader, Subset(datasets["packed"], [True]), {"num_workers": 2}) == [TypeError]  # type: ignore[list-item]


def test_native_threads_ask_an_object_for_its_indices(datasets: dict[str, Any]) -> None:
    """Indices that have to be asked for leave the engine as it is, and are asked for anew in each epoch."""
    table = {0: 4, 1: 7}
    subset = Subset(datasets["packed"], table)  # type: ignore[arg-type]
    with FastLoader(subset, batch_size=2, num_workers=2, engine="native") as loader:
        assert [batch[1].tolist() for batch in loader] == [[4, 7]]
        table[0], table[2] = 5, 1
        assert [batch[1].tolist() for batch in loader] == [[5, 7], [1]]
        subset.indices = (3, 2)  # type: ignore[assignment]
        assert [batch[1].tolist() for batch in loader] == [[3, 2]]
        engine = loader._fastload.epochs.running
        assert [batch[1].tolist() for batch in loader] == [[3, 2]]
        assert loader._fastload.epochs.running is engine


def test_an_index_that_no_batch_asks_for_does_no_harm(datasets: dict[str, Any]) -> None:
    """An index out of range is an error of the batch that it comes in; what else the loader has is not
    touched."""
    for data, options in ENGINES:
        subset = Subset(datasets[data], [2, COUNT + 5, 4])
        assert [batch[1].tolist() for batch in FastLoader(subset, sampler=[0, 2], **options)] == [[2], [4]]


def test_buckets_are_of_the_samples_that_indices_say(datasets: dict[str, Any]) -> None:
    """BucketBatchSampler reads the sizes of the samples that a Subset has by label."""
    subset = Subset(datasets["packed"], series([0, 11, 1], [2, 1, 0]))
    sampler = BucketBatchSampler(subset, 2, edges=[1.3], shuffle=False)
    assert sampler.buckets.tolist() == [0, 1, 0]
