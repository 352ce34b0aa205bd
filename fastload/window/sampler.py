"""Samplers of shuffle="window": WindowSampler, for users, and the one that FastLoader(shuffle="window") makes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sized
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import distributed
from torch.utils.data import ConcatDataset, DistributedSampler, RandomSampler, Subset

from fastload.dataset import PackedDataset
from fastload.errors import ArgumentError
from fastload.positions import position_of
from fastload.rng import checked_epoch, checked_seed, order_seed
from fastload.sizes import parse_size
from fastload.window.order import WindowOrder, expanded

BLOCK = "2MiB"
BUFFER = "1GiB"
MEAN_BYTES = 110_000
"""Size that a sample is taken to have where the dataset does not tell: about ImageNet's."""


class WindowSampler(DistributedSampler[int]):
    """A sampler that gives blocks of consecutive samples in random order, mixed through a shuffle buffer: for data in a bucket.

    1. Each pass gives every sample once. The order is a pure function of (seed, epoch) and of the arguments; with another number of ranks
       it is another.
    2. Where a reader fetches a block whole at its first sample, it never holds more samples that were not asked for yet than the buffer.
       The guide's page on shuffling says how random such an order is.
    3. Ranks get disjoint parts, of equal length: as with DistributedSampler the last ones repeat the first samples of the order, or with
       drop_last the last samples of the order are left out. A block is one rank's, but for one at each border. Each rank has a buffer of
       its own.
    4. Call `set_epoch` before each epoch, on the sampler or the loader, or every epoch has the same order.

    Args:
        dataset: the dataset, or the number of its samples.
        block: samples of a block, or its size such as "2MiB".
        buffer: samples that the buffer holds, or its size such as "1GiB". At least two blocks; much more for a good shuffle.
            Sizes are divided by the mean size of stored samples: packed data tell it, any other is taken to have 110,000 bytes a sample.
        seed: 0 .. 2**64-1, the same on every rank. None, for one rank only: drawn from torch's generator for each pass, where RandomSampler
            draws its own; the epoch has then no effect.
        num_replicas, rank: as DistributedSampler's. None: those of the process group at each `iter()`; without a group, one rank.
        drop_last: whether ranks leave samples out or repeat some where the number of samples is not divisible.
        generator: drawn from where seed is None; None: torch's default generator.

    Raises:
        ArgumentError: an argument is out of range; several ranks have no seed; or, at iter(), a launcher such as torchrun has started
            several processes, and neither a process group nor num_replicas and rank say which samples are this one's.
    """

    def __init__(
        self,
        dataset: Sized | int,
        *,
        block: int | str = BLOCK,
        buffer: int | str = BUFFER,
        seed: int | None = None,
        num_replicas: int | None = None,
        rank: int | None = None,
        drop_last: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        self.dataset: Any = dataset if hasattr(dataset, "__len__") else range(_count("dataset", dataset, 0))
        self.block, self.buffer = block, buffer
        self.seed: Any = checked_seed(seed)  # DistributedSampler's is never None
        self.epoch = 0
        self.shuffle = True
        self.drop_last = drop_last
        self.generator = generator
        self._given = num_replicas, rank
        window_sizes(self.dataset, block, buffer)  # what is no size is an error here
        self._divide()

    def __len__(self) -> int:
        self._divide()
        return self.num_samples

    def __iter__(self) -> Iterator[int]:
        for chunk in self._order(_drawn(self.generator) if self.seed is None else None).chunks():
            yield from chunk.tolist()

    def indices(self) -> npt.NDArray[np.int64]:
        """The order of this rank's next pass, without a draw: without a seed, that of a pass that would begin now."""
        if self.seed is not None:
            return self._order(None).indices()
        generator = torch.default_generator if self.generator is None else self.generator
        return self._order(_drawn(generator.clone_state())).indices()

    def positions(self) -> npt.NDArray[np.int64]:
        """The samples of this rank's next pass, block by block as blocks are opened, without a draw; without a seed, all in sequence."""
        if self.seed is None:
            return np.arange(len(self.dataset))
        starts, lengths = self._order(None).runs()
        return expanded(starts, lengths) if len(starts) else starts

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that the next pass has."""
        self.epoch = checked_epoch(epoch)

    def _order(self, key: int | None) -> WindowOrder:
        self._divide()
        if self.num_replicas == 1 and self._given == (None, None) and int(os.environ.get("WORLD_SIZE") or 1) > 1 and not _grouped():
            raise ArgumentError(
                "WindowSampler: several processes were started, and there is no process group to say which samples are this one's: "
                "call torch.distributed.init_process_group(), or give num_replicas= and rank="
            )
        block, buffer = window_sizes(self.dataset, self.block, self.buffer)
        if key is None:
            key = order_seed(self.seed, self.epoch)
        return WindowOrder(len(self.dataset), block, buffer, key, self.rank * self.num_samples, self.num_samples)

    def _divide(self) -> None:
        """Sets DistributedSampler's attributes by what the process group and the dataset's length are now."""
        replicas, rank = self._given
        if replicas is None:
            replicas = distributed.get_world_size() if _grouped() else 1
        self.num_replicas = _count("num_replicas", replicas, 1)
        if rank is None and self.num_replicas > 1 and not _grouped():
            raise ArgumentError(f"num_replicas={replicas} without rank=, and there is no process group to tell it: give rank=")
        if rank is None:
            rank = distributed.get_rank() if self.num_replicas > 1 else 0
        self.rank = _count("rank", rank, 0)
        if self.rank >= self.num_replicas:
            raise ArgumentError(f"rank={rank} of num_replicas={replicas}: ranks are counted from 0 to {replicas - 1}")
        if self.num_replicas > 1 and self.seed is None:
            raise ArgumentError("WindowSampler on several ranks needs seed=, the same on each: without it their parts overlap")
        count = len(self.dataset)
        self.num_samples = count // self.num_replicas if self.drop_last else -(-count // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas


class RandomWindowSampler(RandomSampler):
    """The sampler of FastLoader(shuffle="window"): a RandomSampler, to torch and to frameworks, with another order.

    It draws one number from its generator at the first index of each pass, and follows set generators, seeds and resumes as RandomSampler.
    """

    def __init__(self, data_source: Sized, generator: torch.Generator | None = None) -> None:
        super().__init__(data_source, generator=generator)

    def __iter__(self) -> Iterator[int]:
        block, buffer = window_sizes(self.data_source, BLOCK, BUFFER)
        for chunk in WindowOrder(len(self.data_source), block, buffer, _drawn(self.generator)).chunks():
            yield from chunk.tolist()


def windowed(shuffle: Any) -> bool:
    """Whether the argument shuffle= is "window". Raises ArgumentError for any other text."""
    if isinstance(shuffle, str) and shuffle != "window":
        raise ArgumentError(f'shuffle={shuffle!r}: choose True, False or "window"')
    return isinstance(shuffle, str)


def window_sizes(dataset: Any, block: int | str, buffer: int | str) -> tuple[int, int]:
    """Samples of a block and of the buffer. Raises ArgumentError for what is neither a number of samples nor a size."""
    mean = mean_bytes(dataset) or MEAN_BYTES
    return _samples("block", block, mean), _samples("buffer", buffer, mean)


def mean_bytes(dataset: Any) -> float | None:
    """Mean size of the stored samples of packed data, or of Subset and ConcatDataset of them; None where it is not known."""
    if isinstance(dataset, PackedDataset):
        return dataset.mean_bytes
    if isinstance(dataset, Subset):
        return mean_bytes(dataset.dataset)
    if not isinstance(dataset, ConcatDataset):
        return None
    parts = [(mean_bytes(part), len(cast(Sized, part))) for part in dataset.datasets]
    found = [mean * count for mean, count in parts if mean is not None]
    return sum(found) / max(1, sum(count for _, count in parts)) if len(found) == len(parts) else None


def _samples(name: str, value: int | str, mean: float) -> int:
    if isinstance(value, str):
        return max(1, int(parse_size(value, name) / mean))
    return _count(name, value, 1)


def _count(name: str, value: Any, least: int) -> int:
    try:
        number = position_of(value)
    except TypeError:
        number = -1
    if number < least:
        raise ArgumentError(f"{name}={value!r}: give a number of {least} or more{_HINTS.get(name, '')}")
    return number


_HINTS = {name: f' samples, or a size such as "{size}"' for name, size in (("block", BLOCK), ("buffer", BUFFER))}


def _grouped() -> bool:
    return distributed.is_available() and distributed.is_initialized()


def _drawn(generator: torch.Generator | None) -> int:
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator))
