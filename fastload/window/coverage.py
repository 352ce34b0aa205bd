"""coverage: which samples a pass may ask for, and in which blocks, told by its sampler before anything is drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from torch.utils.data import DistributedSampler, SubsetRandomSampler

from fastload.common.positions import as_positions, listed_positions
from fastload.window.keyed import KeyedSampler
from fastload.window.order import usable_block
from fastload.window.sampler import BLOCK, BUFFER, RandomWindowSampler, WindowSampler, window_sizes


def coverage(sampler: Any, count: int) -> npt.NDArray[np.int64] | None:
    """Positions that the next pass of a sampler may ask for, ascending, without a draw; None: any, or nobody can tell.

    Args:
        sampler: a loader's, the innermost one: the one that decides the order.
        count: samples of the loader's dataset.
    """
    kind = type(sampler)
    if kind is WindowSampler:
        positions = sampler.positions()
    elif kind is KeyedSampler:
        positions = sampler.indices() if sampler.seed is not None else np.arange(count)
    elif kind is DistributedSampler:
        positions = as_positions(list(sampler))  # a function of its seed and epoch
    elif kind is SubsetRandomSampler:
        listed = listed_positions(sampler.indices)
        if listed is None:
            return None
        positions = listed
    else:
        return None
    found = np.zeros(count, np.bool_)
    try:
        found[positions] = True
    except IndexError:
        return None  # the loop will say which position the dataset has not
    return np.flatnonzero(found)


def blocks_of(sampler: Any) -> tuple[int, int] | None:
    """(samples of a block, samples of the buffer) of a sampler that asks for blocks of positions: block k begins at k times their size.

    None: of any other sampler.
    """
    kind = type(sampler)
    if kind is WindowSampler:
        data, sizes = sampler.dataset, (sampler.block, sampler.buffer)
    elif kind is RandomWindowSampler:
        data, sizes = sampler.data_source, (BLOCK, BUFFER)
    else:
        return None
    block, buffer = window_sizes(data, *sizes)
    return usable_block(len(data), block, buffer), buffer
