"""RankedSampler: what samplers with an order of their own have in common: seed, epoch, generator, and each rank's part."""

from __future__ import annotations

import os
from collections.abc import Sized
from typing import Any

import torch
from torch import distributed
from torch.utils.data import DistributedSampler

from fastload.common.positions import position_of
from fastload.common.rng import checked_epoch, checked_seed, order_seed
from fastload.errors import ArgumentError


class RankedSampler(DistributedSampler[int]):
    """A DistributedSampler, to torch and to frameworks, whose order derived classes make.

    Args:
        dataset, seed, num_replicas, rank, drop_last, generator: as WindowSampler's.

    Raises:
        ArgumentError: as WindowSampler.
    """

    def __init__(
        self,
        dataset: Sized | int,
        seed: int | None,
        num_replicas: int | None,
        rank: int | None,
        drop_last: bool,
        generator: torch.Generator | None,
    ) -> None:
        self.dataset: Any = dataset if hasattr(dataset, "__len__") else range(count_of("dataset", dataset, 0))
        self.seed: Any = checked_seed(seed)  # DistributedSampler's is never None
        self.epoch = 0
        self.shuffle = True
        self.drop_last = drop_last
        self.generator = generator
        self._given = num_replicas, rank

    def __len__(self) -> int:
        self._divide()
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that the next pass has."""
        self.epoch = checked_epoch(epoch)

    def _key(self) -> int:
        """The key of a pass that begins now; without a seed it is drawn."""
        return drawn(self.generator) if self.seed is None else order_seed(self.seed, self.epoch)

    def _key_undrawn(self) -> int:
        """The same without a draw."""
        if self.seed is not None:
            return order_seed(self.seed, self.epoch)
        generator = torch.default_generator if self.generator is None else self.generator
        return drawn(generator.clone_state())

    def _divide(self) -> None:
        """Sets DistributedSampler's attributes by what the process group and the dataset's length are now."""
        replicas, rank = self._given
        if replicas is None:
            replicas = distributed.get_world_size() if grouped() else 1
        self.num_replicas = count_of("num_replicas", replicas, 1)
        if rank is None and self.num_replicas > 1 and not grouped():
            raise ArgumentError(f"num_replicas={replicas} without rank=, and there is no process group to tell it: give rank=")
        if rank is None:
            rank = distributed.get_rank() if self.num_replicas > 1 else 0
        self.rank = count_of("rank", rank, 0)
        if self.rank >= self.num_replicas:
            raise ArgumentError(f"rank={rank} of num_replicas={replicas}: ranks are counted from 0 to {replicas - 1}")
        if self.num_replicas > 1 and self.seed is None:
            raise ArgumentError(f"{type(self).__name__} on several ranks needs seed=, the same on each: without it their parts overlap")
        count = len(self.dataset)
        self.num_samples = count // self.num_replicas if self.drop_last else -(-count // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def _begin(self) -> None:
        """Divides the samples for a pass; refuses one of which nobody says whose samples it has."""
        self._divide()
        if self.num_replicas == 1 and self._given == (None, None) and int(os.environ.get("WORLD_SIZE") or 1) > 1 and not grouped():
            raise ArgumentError(
                f"{type(self).__name__}: several processes were started, and there is no process group to say which samples are this "
                "one's: call torch.distributed.init_process_group(), or give num_replicas= and rank="
            )


def count_of(name: str, value: Any, least: int, hint: str = "") -> int:
    """An argument that is a number of something. Raises ArgumentError where it is none, or below `least`."""
    try:
        number = position_of(value)
    except TypeError:
        number = -1
    if number < least:
        raise ArgumentError(f"{name}={value!r}: give a number of {least} or more{hint}")
    return number


def drawn(generator: torch.Generator | None) -> int:
    """A key of 63 bits, drawn as RandomSampler draws its own."""
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator))


def grouped() -> bool:
    """Whether this process has a process group."""
    return distributed.is_available() and distributed.is_initialized()
