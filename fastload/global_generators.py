"""The global generators of torch, random and NumPy: seeded for a worker or a sample, and kept."""

from __future__ import annotations

import hashlib
import operator
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import numpy.random
import torch
from torch.utils.data._utils.worker import _generate_state

from fastload._native import core
from fastload.common.rng import SAMPLE_STREAM


def seed_worker(base_seed: int, worker: int) -> int:
    """Seeds torch, random and NumPy as torch's worker processes do; returns the worker's seed."""
    seed = base_seed + worker
    random.seed(seed)
    torch.manual_seed(seed)
    np.random.seed(_generate_state(base_seed, worker))  # type: ignore[no-untyped-call]
    return seed


def seed_sample(seed: int, epoch: int, index: Any) -> None:
    """Seeds torch, random and NumPy for one sample, from (seed, epoch, index) alone; an index that is no integer counts by its repr."""
    with suppress(TypeError):
        index = operator.index(index)
    if not isinstance(index, int) or index < 0:
        index = int.from_bytes(hashlib.blake2b(repr(index).encode(), digest_size=8).digest(), "little")
    words = core.random_words(seed, epoch, index & (2**64 - 1), SAMPLE_STREAM, 4)
    wide = words[0] | words[1] << 32
    if torch.version.cuda is None and torch.version.hip is None:
        torch.default_generator.manual_seed(wide)  # a seventh of the time
    else:
        torch.manual_seed(wide)
    random.seed(wide)
    np.random.seed(words[2])  # a fourth of the time of a list's


@contextmanager
def kept_state() -> Iterator[None]:
    """Leaves the global generators of torch, random and NumPy as they were."""
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        random.setstate(states[1])
        np.random.set_state(states[2])
