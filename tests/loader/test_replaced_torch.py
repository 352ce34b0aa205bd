"""torch's own collation, samplers and parts of datasets, replaced: batches are what torch's loader makes
with them then."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, ConcatDataset, DataLoader, RandomSampler, SequentialSampler, Subset
from torch.utils.data._utils import collate

from fastload import FastLoader, PackedDataset
from fastload import transforms as T


class Numbers(torch.utils.data.Dataset[Any]):
    """Tensors and numbers, by index."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> Any:
        return torch.full((2,), index), index, f"{index}"


def data(packed: Path, kind: str) -> Any:
    """A dataset for native threads, for processes or for the calling process."""
    return PackedDataset(packed, T.CenterCrop(8)) if kind == "native" else Numbers()


def assert_as_torch(loader: FastLoader[Any], **options: Any) -> None:
    """An epoch has the values of torch's own loader, of the same types."""
    ours, theirs = list(loader), list(DataLoader(loader.dataset, **options))
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert type(mine) is type(other)
        assert list(map(type, mine)) == list(map(type, other))
        assert str(mine) == str(other)


ENGINES = pytest.mark.parametrize(
    ("kind", "ways"),
    [
        ("native", {"num_workers": 1}),
        ("python", {"num_workers": 0}),
        ("python", {"num_workers": 1, "seed_by": "sample"}),
    ],
    ids=["native", "caller", "by sample"],
)


def negative(batch: Any, *, collate_fn_map: Any = None) -> torch.Tensor:
    """Collates tensors or numbers in a way of its own."""
    return -torch.as_tensor(batch) if isinstance(batch[0], int) else 1 - torch.stack(batch)


def as_pairs(batch: Any, *, collate_fn_map: Any = None) -> Any:
    return list(batch)


@ENGINES
@pytest.mark.parametrize(
    ("key", "function"), [(int, negative), (torch.Tensor, negative), (tuple, as_pairs), (object, as_pairs)]
)
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_the_table_of_default_collate(
    packed: Path, kind: str, ways: dict[str, Any], key: Any, function: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program's own function for a type collates on every engine from the next epoch on."""
    if key is int and kind == "native":
        key = torch.Tensor
    with FastLoader(data(packed, kind), 4, **ways) as loader:
        assert_as_torch(loader, batch_size=4)
        with monkeypatch.context() as patch:
            patch.setitem(collate.default_collate_fn_map, key, function)
            assert_as_torch(loader, batch_size=4)
            assert "default_collate_fn_map has" in loader.explain(all=True)
        assert_as_torch(loader, batch_size=4)
        assert "default_collate_fn_map" not in loader.explain(all=True)


def test_a_function_for_a_type_that_no_batch_has_changes_nothing(
    packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Graph:
        pass

    monkeypatch.setitem(collate.default_collate_fn_map, Graph, as_pairs)
    with FastLoader(data(packed, "native"), 4, num_workers=1) as loader:
        assert loader._fastload.plan.settings.by_default_collate
        assert_as_torch(loader, batch_size=4)


@ENGINES
@pytest.mark.parametrize(
    ("name", "options"), [("collate", {"batch_size": 4}), ("default_convert", {"batch_size": None})]
)
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_replaced_functions_of_collation(
    packed: Path,
    kind: str,
    ways: dict[str, Any],
    name: str,
    options: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = getattr(collate, name)

    @functools.wraps(original)
    def counted(value: Any, **rest: Any) -> Any:
        made = original(value, **rest)
        return made + 1 if isinstance(made, torch.Tensor) else made

    with FastLoader(data(packed, kind), **options, **ways) as loader:
        with monkeypatch.context() as patch:
            patch.setattr(collate, name, counted)
            if name == "default_convert":
                patch.setattr(loader, "collate_fn", counted)
            assert_as_torch(loader, **options)
            assert loader._fastload.plan.settings.own_collate_fn is not None


def drawing(of: Any) -> Callable[..., Any]:
    """A sampler's __iter__ with draws of its own, in another order."""

    @functools.wraps(of)
    def iterate(self: Any) -> Any:
        found = list(of(self))
        shift = random.randrange(len(found)) + int(np.random.randint(3))
        return iter(found[shift % len(found) :] + found[: shift % len(found)])

    return iterate


@pytest.mark.parametrize("kind", [SequentialSampler, RandomSampler, BatchSampler])
def test_replaced_samplers(packed: Path, kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their draws from random and NumPy are made when an epoch begins, as torch makes them, and a resumed
    epoch makes them again."""
    monkeypatch.setattr(kind, "__iter__", drawing(kind.__iter__))
    dataset, options = (
        data(packed, "native"),
        {"batch_size": 4, "shuffle": kind is RandomSampler, "num_workers": 0},
    )

    def labels(make: Any) -> list[Any]:
        torch.manual_seed(5), random.seed(5), np.random.seed(5)
        with make(dataset, **options) as loader:
            return [[labels.tolist() for _, labels in loader] for _ in range(3)]

    class Torchs(DataLoader[Any]):
        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    assert labels(FastLoader) == labels(Torchs)
    with FastLoader(dataset, **options) as loader, FastLoader(dataset, **options) as other:
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        rest = [labels.tolist() for _, labels in batches]
        random.seed(99), np.random.seed(99)
        other.load_state_dict(state)
        assert [labels.tolist() for _, labels in other] == rest


def test_replaced_code_of_packed_datasets(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PackedDataset's own methods, and those of Subset and ConcatDataset, are called where they are not
    what they were."""
    for owner, make in (
        (PackedDataset, lambda each: each),
        (Subset, lambda each: Subset(each, range(8))),
        (ConcatDataset, lambda each: ConcatDataset([each])),
    ):
        original = owner.__getitem__

        def item(self: Any, index: Any, original: Any = original) -> Any:
            image, label = original(self, index)
            return image, label + 100

        with (
            FastLoader(make(data(packed, "native")), 4, num_workers=0) as loader,
            monkeypatch.context() as patch,
        ):
            assert loader.stats()["engine"] == "threads"
            patch.setattr(owner, "__getitem__", item)
            if owner is Subset:
                patch.setattr(owner, "__getitems__", lambda self, at: [self[each] for each in at])
            assert_as_torch(loader, batch_size=4)
            assert loader.stats()["engine"] == "caller"
            assert f"{owner.__name__}.__getitem__ was replaced" in loader.explain(all=True)
