"""Index batches as arrays: the order of a sampler that is known here, without a Python object for each
sample.

torch's samplers make an integer object of each sample, and its BatchSampler a list of each batch: 0.2 us a
sample of the loop's thread, and 48 bytes a sample of a permutation. The arrays here have the same positions,
from the same draws, made at the same calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import RandomSampler, SequentialSampler

from fastload.sampling.keyed import KeyedSampler, RandomKeyedSampler
from fastload.sampling.known import DrawTimes, SamplerFacts, gives_each_once
from fastload.sampling.window import RandomWindowSampler, WindowSampler

_CHUNK = 1 << 16
"""Samples of a sequential order that are written out at a time."""
_Positions = npt.NDArray[np.int64]


def comes_in_arrays(facts: SamplerFacts) -> bool:
    """Returns True if index_batches() gives the order as arrays: of a sampler by its library's own code,
    in torch's BatchSampler."""
    sampler = facts.deciding
    if not facts.is_own or not facts.in_batches:
        return False
    if type(sampler) is RandomSampler:  # from a generator of the user's, torch draws once more at the end
        return gives_each_once(sampler) and (sampler.generator is None or facts.draws is DrawTimes.NOTHING)
    return type(sampler) in (
        SequentialSampler,
        RandomWindowSampler,
        RandomKeyedSampler,
        WindowSampler,
        KeyedSampler,
    )


def index_batches(index_sampler: Any, facts: SamplerFacts) -> Iterator[Any]:
    """The batches of iter(index_sampler), each as an int64 array if comes_in_arrays(facts), else as the
    sampler makes them."""
    if not comes_in_arrays(facts):
        return iter(index_sampler)
    return _batches(facts.deciding, index_sampler.batch_size, index_sampler.drop_last)


def _batches(sampler: object, size: int, drop_last: bool) -> Iterator[_Positions]:
    """The sampler's order in batches. As in BatchSampler, nothing is drawn before the first one is asked
    for."""
    rest = np.empty(0, np.int64)
    for chunk in _chunks(sampler):
        if len(rest):
            chunk = np.concatenate((rest, chunk))
        whole = len(chunk) - len(chunk) % size
        for begin in range(0, whole, size):
            yield chunk[begin : begin + size]
        rest = chunk[whole:]
    if len(rest) and not drop_last:
        yield rest


def _chunks(sampler: Any) -> Iterator[_Positions]:
    if type(sampler) is RandomSampler:
        return iter([_permutation(sampler)])
    if type(sampler) is SequentialSampler:
        count = len(sampler.data_source)
        return (np.arange(begin, min(begin + _CHUNK, count)) for begin in range(0, count, _CHUNK))
    chunks: Iterator[_Positions] = sampler.chunks()
    return chunks


def _permutation(sampler: RandomSampler) -> _Positions:
    """The order of a RandomSampler that gives each sample once, drawn as its `__iter__` draws it."""
    generator = sampler.generator
    if generator is None:
        generator = torch.Generator()
        generator.manual_seed(int(torch.empty((), dtype=torch.int64).random_().item()))
    order: _Positions = torch.randperm(len(sampler.data_source), generator=generator).numpy()
    return order
