"""Copies of a loader's dataset for the engines that make samples in Python: of one pass, with its draws."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import Subset

from fastload.dataset.mixture import Changes, Mixture
from fastload.dataset.packed import PackedDataset

DrawBasis = tuple[int | None, int, Changes | None]
"""Basis of the samples of one pass: the seed (None: that of each dataset), the epoch, and a Mixture's
weights by epoch."""


def rebuilt(dataset: Any, leaf: Callable[[PackedDataset], PackedDataset]) -> Any:
    """A copy of a tree that a Resolver has resolved, with `leaf` of each packed dataset in its place;
    Subsets share their indices."""
    if isinstance(dataset, PackedDataset):
        return leaf(dataset)
    if isinstance(dataset, Mixture):
        return dataset.with_sources([rebuilt(source, leaf) for source in dataset.sources])
    out = copy.copy(dataset)
    if isinstance(dataset, Subset):
        out.dataset = rebuilt(dataset.dataset, leaf)
    else:
        out.datasets = [rebuilt(part, leaf) for part in dataset.datasets]
    return out


def set_draws(dataset: object, draws: DrawBasis) -> None:
    """Sets seed and epoch of a tree that rebuilt() made: a worker process does that to its own copy, at
    every epoch."""
    set_mixture(dataset, draws)
    for packed in _leaves(dataset):
        packed.seed, packed.epoch = packed.seed if draws[0] is None else draws[0], draws[1]


def set_mixture(dataset: object, draws: DrawBasis) -> None:
    """Sets the epoch, and the weights of all epochs, of a copy of a Mixture; any other dataset stays as it
    is."""
    if isinstance(dataset, Mixture):
        dataset.set_state(draws[1], draws[2])


def _leaves(dataset: Any) -> Iterator[PackedDataset]:
    if isinstance(dataset, PackedDataset):
        yield dataset
    elif isinstance(dataset, Mixture):
        for source in dataset.sources:
            yield from _leaves(source)
    else:
        for part in [dataset.dataset] if isinstance(dataset, Subset) else dataset.datasets:
            yield from _leaves(part)
