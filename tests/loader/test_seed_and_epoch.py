"""Which values seed= and set_epoch() take, on every engine, and which are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fastload import FastLoader, PackedDataset
from fastload import transforms as T
from fastload.errors import ArgumentError


def unchanged(image: Any) -> Any:
    """A step of Python that changes nothing."""
    return image


@pytest.mark.parametrize(
    "seed", [1.5, -1, 2**64, 2**70, True, "3", np.float64(1), torch.tensor(1.5)], ids=repr
)
def test_seeds_that_are_refused(packed: Path, seed: Any) -> None:
    """A seed is an integer of 64 bits without a sign; anything else is one clear error, in the loader and
    in the dataset."""
    for make in (
        lambda: FastLoader(packed, seed=seed),
        lambda: FastLoader([1, 2], seed=seed),
        lambda: PackedDataset(packed, seed=seed),
    ):
        with pytest.raises(ArgumentError, match=r"seed=.*0 to 2\*\*64 - 1"):
            make()


def test_seeds_that_are_taken(packed: Path) -> None:
    """Every integer of 64 bits, of whatever type, on every engine."""
    for seed in (0, np.int64(7), torch.tensor(7), 2**64 - 1):
        for transform in ([T.RandomCrop(32)], [T.RandomCrop(32), unchanged]):
            with FastLoader(
                packed, 50, transform=transform, shuffle=True, seed=seed, num_workers=0
            ) as loader:
                assert loader.seed == int(seed)
                ((pixels, _),) = loader
            assert pixels.shape == (50, 3, 32, 32)
        with FastLoader(
            list(range(9)), 9, shuffle=True, seed=seed, seed_by="sample", batch_transform=torch.clone
        ) as loader:
            assert sorted(next(iter(loader)).tolist()) == list(range(9))


@pytest.mark.parametrize("epoch", [1.5, -1, True, "3", 2**64], ids=repr)
def test_epochs_that_are_refused(packed: Path, epoch: Any) -> None:
    """An epoch is counted in integers, in the loader and in the dataset; a refused one changes nothing."""
    with FastLoader(packed, transform=[T.CenterCrop(32)]) as loader:
        for what in (loader, loader.dataset):
            with pytest.raises(ArgumentError, match=r"epoch .*: give its number"):
                what.set_epoch(epoch)
            assert what.epoch == 0
        loader.set_epoch(2**63 - 2)
        assert len(next(iter(loader))[0]) == 1
