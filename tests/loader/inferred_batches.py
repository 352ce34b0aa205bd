"""Batches whose type a checker infers from the Dataset's: stated by assert_type for mypy, and held against
real batches by check()."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset
from typing_extensions import assert_type

from fastload import FastLoader, HealthMonitor, PackedDataset
from fastload.engines.batch_types import Batches, DefaultBatches

_T = TypeVar("_T", covariant=True)


class Point(NamedTuple):
    x: Tensor
    y: int


class Same(Dataset[_T]):
    """The same sample four times."""

    def __init__(self, sample: _T) -> None:
        self.sample = sample

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> _T:
        return self.sample


class Stream(IterableDataset[Tensor]):
    def __iter__(self) -> Any:
        return iter(torch.zeros(4, 3))


class Named(FastLoader[_T]):
    pass


PAIR: tuple[Tensor, int] = (torch.zeros(3), 1)
PAIRS = Same(PAIR)
WORDS: tuple[Tensor, str] = (torch.zeros(3), "a")
OPEN: tuple[Any, Any] = WORDS
MIXED: dict[str, Any] = {"image": torch.zeros(3), "name": "a"}
NESTED: tuple[Tensor, tuple[Tensor, int]] = (torch.zeros(3), PAIR)
MATRIX: npt.NDArray[np.float32] = np.zeros((2, 2), np.float32)


def known() -> None:
    """Batches of default_collate, by samples whose type tells."""
    pairs = assert_type(
        next(iter(FastLoader(PAIRS, batch_size=2, shuffle=True, num_workers=1))), list[Tensor]
    )
    assert type(pairs) is list
    assert [type(each) for each in pairs] == [Tensor, Tensor]
    for images, labels in FastLoader(Subset(PAIRS, [0, 1]), 2):
        assert_type(labels, Tensor)
        assert images.shape == (2, 3)
    for batch in HealthMonitor(FastLoader(PAIRS)):
        assert_type(batch, list[Tensor])
    by_name = assert_type(next(iter(FastLoader(Same({"image": torch.zeros(3)})))), dict[str, Tensor])
    assert type(by_name) is dict
    assert type(by_name["image"]) is Tensor
    assert type(assert_type(next(iter(FastLoader([1, 2, 3]))), Tensor)) is Tensor
    assert type(assert_type(next(iter(FastLoader(Same(1.5)))), Tensor)) is Tensor
    assert type(assert_type(next(iter(FastLoader(Same(MATRIX)))), Tensor)) is Tensor
    assert type(assert_type(next(iter(FastLoader(Stream(), 2))), Tensor)) is Tensor


def unknown() -> None:
    """Batches of which a Dataset's type says too little."""
    assert_type(next(iter(FastLoader(PAIRS, collate_fn=len))), Any)
    assert_type(next(iter(FastLoader(PAIRS, batch_size=None))), Any)
    assert_type(next(iter(FastLoader(PAIRS, 2, batch_transform=torch.neg))), Any)
    assert_type(next(iter(FastLoader(PAIRS, 2, collate="list"))), Any)
    assert_type(next(iter(FastLoader(Same(WORDS)))), Any)
    assert_type(next(iter(FastLoader(Same(OPEN)))), Any)
    assert_type(next(iter(FastLoader(Same(MIXED)))), Any)
    assert_type(next(iter(FastLoader(Same(NESTED)))), Any)
    point = assert_type(next(iter(FastLoader(Same(Point(torch.zeros(3), 1))))), Any)
    assert type(point) is Point


def annotated() -> None:
    """Annotations of programs that know of items alone, as torch's are: all of them hold, and a batch is
    Any under them."""
    torchs: DataLoader[tuple[Tensor, int]] = FastLoader(PAIRS)
    ours: FastLoader[tuple[Tensor, int]] = FastLoader(PAIRS, collate_fn=list)
    assert_type(next(iter(torchs)), Any)
    assert_type(next(iter(ours)), Any)
    assert_type(Named(PAIRS), Named[tuple[Tensor, int]])
    assert_type(FastLoader(PAIRS), FastLoader[tuple[Tensor, int], DefaultBatches])
    assert_type(FastLoader(PAIRS, collate_fn=list), FastLoader[tuple[Tensor, int], Batches])


def packed(path: str) -> None:
    """A packed dataset's schema is on the disk: checked only."""
    dataset = PackedDataset(path)
    assert_type(dataset[0], Any)
    assert_type(dataset[1:], Subset[Any])
    assert_type(next(iter(FastLoader(dataset, batch_size=2))), Any)
    assert_type(next(iter(FastLoader(path, batch_size=2))), Any)


def check() -> None:
    """Raises AssertionError where a batch is not what is inferred."""
    known()
    unknown()
    annotated()
