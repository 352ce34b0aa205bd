"""Samples that are numbers, and what loaders make of them."""

from __future__ import annotations

from typing import Any

from torch.utils.data import Dataset

COUNT = 23
ENGINES = {"threads": 1, "threads, 0": 0, "processes": 2, "caller": 0}


class Numbers(Dataset[Any]):
    """Sample i is i, twice."""

    def __init__(self, count: int = COUNT) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return index, index


def labels(loader: Any) -> list[list[int]]:
    """The numbers of an epoch's samples, by batch."""
    return [numbers.tolist() for _, numbers in loader]
