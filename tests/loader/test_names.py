"""Subclasses of FastLoader own every name that DataLoader does not take."""

from __future__ import annotations

import copy
import inspect
import pickle
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from fastload import FastLoader, PackedDataset
from fastload import transforms as T

ARGUMENTS = set(inspect.signature(FastLoader.__init__).parameters) - {"self", "shuffle"}
THEIRS = (
    set(vars(DataLoader(range(2))))
    | set(dir(DataLoader))
    | set(inspect.signature(DataLoader.__init__).parameters)
)  # type: ignore[arg-type]
PUBLIC = {name for name in set(dir(FastLoader)) | ARGUMENTS if not name.startswith("_")}
OURS_ONCE = (
    "_view",
    "_packed",
    "_course",
    "_steps",
    "_spent",
    "_pending",
    "_alive",
    "_moving",
    "_settings",
    "_state",
)
NAMES = [*sorted(PUBLIC - THEIRS), *OURS_ONCE]


class Squares(Dataset[Any]):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> int:
        return index * index


def loader_class(name: str, when: str) -> Any:
    """A subclass that sets an attribute of that name, before or after DataLoader is initialised, or as a
    property or class attribute."""

    class Owning(FastLoader[Any]):
        def __init__(self, *args: Any, **options: Any) -> None:
            if when == "before":
                setattr(self, name, "mine")
            super().__init__(*args, **options)
            if when == "after":
                setattr(self, name, "mine")

    if when == "class":
        setattr(Owning, name, "mine")
    elif when == "property":
        setattr(Owning, name, property(lambda self: "mine"))
    return Owning


def labels_of(loader: Any) -> list[int]:
    return [
        int(label) for batch in loader for label in (batch[1] if isinstance(batch, tuple | list) else batch)
    ]


@pytest.mark.parametrize(
    ("name", "when"),
    [
        *product(NAMES, ["before", "after"]),
        *product(["device", "seed", "epoch", "health", "transform"], ["class", "property"]),
    ],
)
def test_subclass_owns_the_name(packed: Path, name: str, when: str) -> None:
    """An attribute that a subclass gives any name that is not DataLoader's keeps its value over two epochs, a
    copy and a report, and the loader goes on with the arguments it was made with: order, pixels and dtype are
    those of a plain FastLoader."""
    dataset = PackedDataset(packed, transform=[T.RandomResizedCrop(8)])
    options: dict[str, Any] = {
        "batch_size": 8,
        "num_workers": 2,
        "shuffle": True,
        "seed": 3,
        "dtype": torch.float16,
        "device": "cpu",
    }
    owning = loader_class(name, when)(dataset, **options)
    plain = FastLoader(dataset, **options)
    for _ in range(2):
        assert owning.__dict__.get(name, "mine") == getattr(owning, name) == "mine"
        for (mine, labels), (expected, same) in zip(owning, plain, strict=True):
            assert mine.dtype == torch.float16
            assert torch.equal(mine, expected)
            assert torch.equal(labels, same)
    assert getattr(copy.copy(owning), name) == "mine"
    assert owning._fastload.health.figures().workers == 2
    for method in ("close", "explain", "stats"):
        if method != name:
            getattr(owning, method)()
    with owning:
        pass
    FastLoader.close(owning)
    plain.close()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("when", ["before", "after"])
def test_subclass_owns_all_names_on_python_data(when: str, workers: int) -> None:
    """The same for all names at once on a Python dataset, in the caller and in processes, seeded by
    sample."""
    options: dict[str, Any] = {
        "batch_size": 5,
        "num_workers": workers,
        "shuffle": True,
        "seed": 3,
        "seed_by": "sample",
    }

    class Owning(FastLoader[Any]):
        def __init__(self, *args: Any, **options: Any) -> None:
            if when == "before":
                self.__dict__.update(dict.fromkeys(NAMES, "mine"))
            super().__init__(*args, **options)
            self.__dict__.update(dict.fromkeys(NAMES, "mine"))

    owning, plain = Owning(Squares(), **options), FastLoader(Squares(), **options)
    assert [labels_of(owning) for _ in range(2)] == [labels_of(plain) for _ in range(2)]
    assert all(getattr(owning, name) == "mine" for name in NAMES)
    type(owning).close(owning)
    plain.close()


@pytest.mark.parametrize("form", ["packed", "plain"])
def test_public_attributes_are_arguments(packed: Path, form: str) -> None:
    """Every public attribute in the loader's __dict__ is an argument of __init__ or one of DataLoader's
    own, also after an epoch."""
    dataset: Any = PackedDataset(packed) if form == "packed" else Squares()
    with FastLoader(dataset, num_workers=0 if form == "plain" else 2) as loader:
        next(iter(loader))
        public = {name for name in vars(loader) if not name.startswith("_")}
        assert public <= ARGUMENTS
        assert {name for name in vars(loader) if name.startswith("_")} - set(vars(DataLoader(Squares()))) == {
            "_fastload"
        }


def test_read_only_names_stay_readable(packed: Path) -> None:
    """epoch, health, replaced and skipped are there for who does not set them, on the class with a
    docstring, and after a pickle."""
    with FastLoader(PackedDataset(packed, transform=T.CenterCrop(8)), batch_size=8, num_workers=1) as loader:
        assert len(labels_of(loader)) == 50
        assert (loader.epoch, loader.replaced, loader.skipped) == (1, 0, 0)
        assert loader.health.figures().epochs == 1
        again = pickle.loads(pickle.dumps(loader))
        assert (again.epoch, again.health.figures().epochs) == (1, 0)
        assert len(labels_of(again)) == 50
        again.close()
    for name in ("epoch", "health", "replaced", "skipped"):
        assert inspect.getdoc(inspect.getattr_static(FastLoader, name))
