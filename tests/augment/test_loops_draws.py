"""A loop that draws random numbers, while modules of Kornia run in the thread that works ahead of it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import kornia.augmentation as K
import numpy as np
import pytest
import torch

from fastload import FastLoader
from fastload import augment as A
from fastload import transforms as T

pytestmark = pytest.mark.usefixtures("no_leaks")
DRAWS = 400
"""Of each kind for each batch: they take as long as the thread has work on the next batches."""


def drawn() -> list[float]:
    return [
        value
        for _ in range(DRAWS)
        for value in (float(torch.rand(())), random.random(), float(np.random.random()))
    ]


def seed() -> None:
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)


def epoch(packed: Path, prefetch: int) -> tuple[torch.Tensor, list[float], int]:
    """The pixels of an epoch, what the loop drew in it, and how many batches there were."""
    modules = (
        K.ColorJiggle(0.4, 0.4, 0.4, 0.1),
        K.RandomGaussianNoise(),
        K.RandomPlasmaBrightness(),
        K.ColorJitter(0.4, 0.4, 0.4, 0.1, p=1.0),
    )
    common: dict[str, Any] = {
        "batch_size": 4,
        "seed": 1,
        "dtype": torch.float32,
        "transform": T.Resize((24, 24)),
        "num_workers": 1,
    }
    with FastLoader(
        packed, **common, device="cpu", device_prefetch=prefetch, batch_transform=A.AugmentBatch(modules)
    ) as loader:
        seed()
        found, numbers = [], []
        for images, _ in loader:
            found.append(images)
            numbers += drawn()
    return torch.cat(found), numbers, len(found)


def test_the_loop_draws_as_without_a_loader(packed: Path) -> None:
    """Numbers that the loop draws from torch, random and NumPy are those that it draws with no loader at all,
    and the pixels those of a loader that works in the loop's thread."""
    pixels, numbers, batches = epoch(packed, prefetch=3)
    seed()
    assert numbers == [value for _ in range(batches) for value in drawn()]
    assert torch.equal(pixels, epoch(packed, prefetch=0)[0])
