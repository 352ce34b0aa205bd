"""coverage: which samples a pass may ask for, told by its sampler before anything is drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from torch.utils.data import DistributedSampler, SubsetRandomSampler

from fastload.positions import as_positions
from fastload.window.sampler import WindowSampler


def coverage(sampler: Any, count: int) -> npt.NDArray[np.int64] | None:
    """Positions that the next pass of a sampler may ask for, ascending, without a draw; None: any, or nobody can tell.

    Args:
        sampler: a loader's, the innermost one: the one that decides the order.
        count: samples of the loader's dataset.
    """
    kind = type(sampler)
    if kind is WindowSampler:
        positions = sampler.positions()
    elif kind is DistributedSampler:
        positions = as_positions(list(sampler))  # a function of its seed and epoch
    elif kind is SubsetRandomSampler:
        positions = as_positions(sampler.indices)
    else:
        return None
    found = np.zeros(count, np.bool_)
    try:
        found[positions] = True
    except IndexError:
        return None  # the loop will say which position the dataset has not
    return np.flatnonzero(found)
