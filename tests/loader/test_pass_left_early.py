"""A pass that is left early lets go of its order at once, without the cyclic collector, on every engine."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, RandomSampler, Sampler

from fastload import FastLoader, PackedDataset
from fastload import transforms as T


class Order(list[int]):
    """An order that can be watched."""


class Watched(Sampler[int]):
    """A sampler whose passes each hold an order of their own."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.alive: weakref.WeakValueDictionary[int, Order] = weakref.WeakValueDictionary()
        self._made = itertools.count()

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        order = Order(range(self.count))
        self.alive[next(self._made)] = order
        yield from order


class Numbers(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(index)


@pytest.fixture
def uncollected() -> Iterator[None]:
    """The cyclic collector does not run."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def left(loader: Any) -> None:
    """A loop that breaks off, and one that islice ends."""
    for _ in loader:
        break
    list(itertools.islice(loader, 2))


LOADERS = {
    "threads": {"num_workers": 2},
    "calling thread": {"num_workers": 0},
    "on a device": {"num_workers": 2, "device": "cpu", "batch_transform": T.ToFloat()},
    "python engine": {"num_workers": 0, "engine": "python"},
    "processes": {"num_workers": 2},
    "processes kept": {"num_workers": 2, "persistent_workers": True},
    "calling process": {"num_workers": 0},
    "calling process, by sample": {"num_workers": 0, "seed_by": "sample"},
    "calling process, stages": {"num_workers": 0, "batch_transform": lambda batch: batch},
}


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("seed", [None, 3])
def test_its_order_is_gone(packed: Path, uncollected: None, name: str, seed: int | None) -> None:
    """Only the pass begun last may be alive, and none after close()."""
    packs = name in ("threads", "calling thread", "on a device", "python engine")
    data: Any = PackedDataset(packed, T.Resize((8, 8))) if packs else Numbers()
    sampler = Watched(len(data))
    with FastLoader(data, batch_size=4, sampler=sampler, seed=seed, **LOADERS[name]) as loader:
        for _ in range(3):
            left(loader)
            assert len(sampler.alive) <= 1
            loader.state_dict()
        list(loader)
        assert len(sampler.alive) <= 1
    del loader
    assert not sampler.alive


@pytest.mark.parametrize("name", LOADERS)
def test_its_iterator_is_gone(packed: Path, uncollected: None, name: str) -> None:
    """An iterator that nobody holds is freed at once, with torch's own sampler as well."""
    packs = name in ("threads", "calling thread", "on a device", "python engine")
    data: Any = PackedDataset(packed, T.Resize((8, 8))) if packs else Numbers()
    with FastLoader(data, batch_size=4, sampler=RandomSampler(data), **LOADERS[name]) as loader:
        iterator = iter(loader)
        next(iterator)
        alive = weakref.ref(iterator)
        del iterator
        assert (alive() is None) == (name != "processes kept")
