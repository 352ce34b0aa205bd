"""Anybody's batch transform, made reproducible: the generators it draws from are seeded for the call and put back."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.random
import torch

from fastload.augment.philox import words
from fastload.batch.bad_samples import kept_state
from fastload.batch.containers import tensors_of
from fastload.common.rng import MIX_STREAM

_STREAM = MIX_STREAM + 3


def first_device(value: Any) -> torch.device:
    """Device of the first tensor of a batch that is not on the CPU; the CPU where there is none."""
    return next((tensor.device for tensor in tensors_of(value) if not tensor.is_cpu), torch.device("cpu"))


@contextmanager
def generators(seed_words: list[int], device: torch.device) -> Iterator[None]:
    """torch's generators of the CPU and of `device`, random's and NumPy's start from these words, and afterwards are as they were.

    Not torch.manual_seed, which would seed every device. A device's generator keeps its state on the host: nothing waits.
    """
    wide = seed_words[0] | seed_words[1] << 32
    ahead = None if device.type == "cpu" else torch.get_device_module(device)
    on_device = None if ahead is None else (ahead.get_rng_state() if device.type == "mps" else ahead.get_rng_state(device))
    with kept_state():
        try:
            torch.default_generator.manual_seed(wide)
            random.seed(wide)
            np.random.seed(seed_words)
            if device.type == "cuda":
                with torch.cuda.device(device):
                    torch.cuda.manual_seed(wide)
            elif ahead is not None:
                ahead.manual_seed(wide)
            yield
        finally:
            if ahead is not None and on_device is not None:
                ahead.set_rng_state(on_device) if device.type == "mps" else ahead.set_rng_state(on_device, device)


class Seeded:
    """A module or function of a batch, with every random number it draws a function of (seed, epoch, number of the batch).

    1. torch's global generators (CPU and the batch's device), random's and NumPy's are set for the call and put back after it, also when
       it raises; so Kornia's AugmentationSequential, which knows no other, runs as it is.
    2. What it does to a sample depends on the batch around it; AugmentBatch's ops do not.

    Args:
        transform: called with what Seeded is called with; picklable if this is to be.
    """

    def __init__(self, transform: Callable[..., Any]) -> None:
        self.transform = transform

    def __call__(self, *args: Any, seed: int, epoch: int, batch: int, **kwargs: Any) -> Any:
        """transform(*args, **kwargs) under this batch's generators. batch: its number in the epoch, from 0."""
        drawn = [int(word) for word in words(seed, epoch, [batch], _STREAM, 4)[0]]
        with generators(drawn, first_device((*args, kwargs))):
            return self.transform(*args, **kwargs)

    def __repr__(self) -> str:
        return f"Seeded({self.transform!r})"
