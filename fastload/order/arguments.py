"""order_of: the sampler that a loader's arguments about order ask for, made where torch's DataLoader does not make it."""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.utils.data import IterableDataset

from fastload.window import shuffle_class


@dataclass(frozen=True)
class OrderArguments:
    """Arguments about order, as torch's DataLoader takes them.

    Attributes:
        shuffle, sampler, batch_sampler, generator: DataLoader's arguments of those names.
        own_generator: the generator was made here, for an order that follows (seed, epoch).
    """

    shuffle: bool | None
    sampler: Any
    batch_sampler: Any
    generator: torch.Generator | None
    own_generator: bool


def order_of(
    dataset: Any, *, shuffle: Any, sampler: Any, batch_sampler: Any, generator: torch.Generator | None, seed: int | None
) -> OrderArguments:
    """Makes the sampler of a loader that shuffles in another way than torch's; everything else is left to torch.

    Raises:
        ArgumentError: `shuffle` is a text that names no order.
    """
    own_generator = seed is not None and generator is None and bool(shuffle)
    generator = torch.Generator() if own_generator else generator
    named = shuffle_class(shuffle)
    if named is not None and sampler is None and batch_sampler is None and not isinstance(dataset, IterableDataset):
        sampler, shuffle = named(cast("Sized", dataset), generator), None
    return OrderArguments(shuffle, sampler, batch_sampler, generator, own_generator)
