"""Subclasses of PackedDataset whose own code makes samples: it runs, whatever it overrides."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fastload import FastLoader, PackedDataset
from fastload import transforms as T
from fastload.dataset.packed import _MAKERS, is_plain

CROP = T.CenterCrop(8)


class Whole(PackedDataset):
    """Makes whole batches."""

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        return [(image, -label) for image, label in super().__getitems__(indices)]


class ByItem(PackedDataset):
    def __getitem__(self, index: Any) -> Any:
        image, label = super().__getitem__(index)
        return image, -label


class BySample(PackedDataset):
    def sample(self, index: int) -> Any:
        image, label = super().sample(index)
        return image, -label


class ByValues(PackedDataset):
    def values(self, indices: Sequence[int]) -> dict[str, list[Any]]:
        return {name: [-value for value in column] for name, column in super().values(indices).items()}


class ByAssembly(PackedDataset):
    def assemble(self, values: dict[str, Any]) -> Any:
        image, label = super().assemble(values)
        return image, -label


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", [Whole, ByItem, BySample, ByValues, ByAssembly])
def test_its_own_code_runs(packed: Path, kind: Any, workers: int) -> None:
    """Labels that a subclass negates, at whichever method, come negated, images as ever; through a Subset
    as well."""
    plain = PackedDataset(packed, transform=CROP)
    with FastLoader(kind(packed, transform=CROP), batch_size=20, num_workers=workers) as loader:
        labels = [int(label) for batch in loader for label in batch[1]]
        assert loader.stats()["engine"] == ("processes" if workers else "caller")
    assert labels == [-plain[i][1] for i in range(len(plain))]
    part = torch.utils.data.Subset(kind(packed, transform=CROP), [3, 40])
    images, labels = next(iter(FastLoader(part, batch_size=2, num_workers=0)))
    assert labels.tolist() == [-plain[3][1], -plain[40][1]]
    assert torch.equal(images[1], plain[40][0])


def test_a_method_of_the_object_runs(packed: Path) -> None:
    """A method that is put on the object itself makes the samples."""
    dataset = PackedDataset(packed, transform=CROP)
    dataset.sample = lambda index: (torch.zeros(1), index)  # type: ignore[method-assign]
    images, labels = next(iter(FastLoader(dataset, batch_size=4, num_workers=0)))
    assert images.shape == (4, 1)
    assert labels.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("name", _MAKERS)
def test_no_maker_is_bypassed(packed: Path, name: str) -> None:
    """Whatever a sample comes through, overriding it takes the dataset from native threads."""
    kind: Any = type("Overriding", (PackedDataset,), {name: getattr(PackedDataset, name)})
    assert is_plain(kind(packed))
    known = inspect.getattr_static(PackedDataset, name)
    other = (
        property(lambda self: known.fget(self)) if isinstance(known, property) else lambda *args: known(*args)
    )
    assert not is_plain(type("Overriding", (PackedDataset,), {name: other})(packed))


def test_other_methods_stay_native(packed: Path) -> None:
    """A subclass that adds methods, or overrides what makes no sample, is read by native threads."""

    class Named(PackedDataset):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self.device = "cuda"

        def __repr__(self) -> str:
            return "Named"

        def weights(self) -> Any:
            return np.ones(len(self))

    with FastLoader(Named(packed, transform=CROP), batch_size=20, num_workers=1) as loader:
        assert loader.stats()["engine"] == "threads"
        assert sum(len(labels) for _, labels in loader) == 50
