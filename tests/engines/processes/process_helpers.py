"""Datasets and collate modes that the tests of the process engine share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

engine_marks = [
    pytest.mark.usefixtures("no_leaks", "nothing_left"),
    pytest.mark.timeout(60),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
]
"""What every test of the engine has as its module's `pytestmark`."""


class Made(Dataset[Any]):
    """Samples made by a function of their index."""

    def __init__(self, make: Callable[[int], Any], count: int) -> None:
        self.make = make
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


def ones(index: int) -> torch.Tensor:
    return torch.full((1000,), float(index))


MODES: dict[str, dict[str, Any]] = {
    "in turn": {},
    "custom": {"collate_fn": torch.stack},
    "any order": {"in_order": False},
    "by sample": {"seed_by": "sample"},
    "by sample, custom": {"seed_by": "sample", "collate_fn": torch.stack},
}


modes = pytest.mark.parametrize("mode", MODES)


def slots_of(iterator: Any) -> Any:
    return iterator._scheduler.slots
