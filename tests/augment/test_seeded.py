"""Seeded: Kornia's own sequences, modules and functions become functions of (seed, epoch, batch), and
leave no trace."""

from __future__ import annotations

import pickle
import random
from typing import Any

import kornia.augmentation as K
import numpy as np
import pytest
import torch
from augment_helpers import pictures
from torch import Tensor

from fastload.augment import Seeded
from fastload.augment.batch import first_device

X = pictures(4) / 255


def noisy(x: Tensor) -> Tensor:
    """Draws from every generator there is."""
    return x + torch.rand_like(x) + random.random() + float(np.random.random())


def sequence() -> K.AugmentationSequential:
    return K.AugmentationSequential(
        K.RandomHorizontalFlip(),
        K.ColorJitter(0.4, 0.4, 0.4, 0.1),
        K.RandomAffine(20.0),
        data_keys=["input"],
        same_on_batch=False,
    )


class Dropped(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.dropout(x, 0.5)


@pytest.mark.parametrize("transform", [noisy, sequence(), Dropped()], ids=["function", "kornia", "module"])
def test_function_of_seed_epoch_and_batch(transform: Any) -> None:
    """The same three give the same pixels whatever was drawn before; another of any of them gives others."""
    seeded = Seeded(transform)
    first = seeded(X.clone(), seed=1, epoch=2, batch=3)
    torch.rand(7)
    random.random()
    assert torch.equal(first, seeded(X.clone(), seed=1, epoch=2, batch=3))
    for key in (
        {"seed": 5, "epoch": 2, "batch": 3},
        {"seed": 1, "epoch": 5, "batch": 3},
        {"seed": 1, "epoch": 2, "batch": 5},
    ):
        assert not torch.equal(first, seeded(X.clone(), **key))


def states() -> tuple[Any, ...]:
    return (
        torch.get_rng_state().numpy().tobytes(),
        random.getstate(),
        np.random.get_state()[1].tobytes(),
        np.random.get_state()[2],
    )


def test_no_trace() -> None:
    """The global generators stand where they stood, also when the transform raises."""

    def fails(x: Tensor) -> None:
        noisy(x)
        raise RuntimeError("inside")

    before = states()
    Seeded(noisy)(X, seed=1, epoch=0, batch=0)
    Seeded(sequence())(X, seed=1, epoch=0, batch=0)
    with pytest.raises(RuntimeError, match="inside"):
        Seeded(fails)(X, seed=1, epoch=0, batch=0)
    assert states() == before


def test_arguments_pass_through() -> None:
    """Whatever it is called with reaches the transform; it pickles with it, and shows it."""
    seeded = Seeded(lambda *args, **kwargs: (args, kwargs))
    assert seeded(1, "a", seed=1, epoch=0, batch=0, more=2) == ((1, "a"), {"more": 2})
    again = pickle.loads(pickle.dumps(Seeded(noisy)))
    assert torch.equal(again(X, seed=1, epoch=0, batch=0), Seeded(noisy)(X, seed=1, epoch=0, batch=0))
    assert "Dropped" in repr(Seeded(Dropped()))


def test_device_of_nested_batches() -> None:
    """The device is found inside tuples, lists and dicts."""
    meta = torch.empty(1, device="meta")
    assert first_device([{"label": 3, "image": (meta,)}]).type == "meta"
    assert first_device({"label": 3}).type == "cpu"
