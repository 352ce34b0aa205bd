"""Samplers of shuffle="window": WindowSampler, for users, and the one that FastLoader(shuffle="window") makes."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import ConcatDataset, RandomSampler, Subset

from fastload.common.limits import parse_size
from fastload.dataset.packed import PackedDataset
from fastload.window.order import WindowOrder, expanded
from fastload.window.ranks import RankedSampler, count_of, drawn

BLOCK = "2MiB"
BUFFER = "1GiB"
MEAN_BYTES = 110_000
"""Size that a sample is taken to have where the dataset does not tell: about ImageNet's."""


class WindowSampler(RankedSampler):
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
        super().__init__(dataset, seed, num_replicas, rank, drop_last, generator)
        self.block, self.buffer = block, buffer
        window_sizes(self.dataset, block, buffer)  # what is no size is an error here
        self._divide()

    def __iter__(self) -> Iterator[int]:
        for chunk in self._order(self._key()).chunks():
            yield from chunk.tolist()

    def indices(self) -> npt.NDArray[np.int64]:
        """The order of this rank's next pass, without a draw: without a seed, that of a pass that would begin now."""
        return self._order(self._key_undrawn()).indices()

    def positions(self) -> npt.NDArray[np.int64]:
        """The samples of this rank's next pass, block by block as blocks are opened, without a draw; without a seed, all in sequence."""
        if self.seed is None:
            return np.arange(len(self.dataset))
        starts, lengths = self._order(self._key()).runs()
        return expanded(starts, lengths) if len(starts) else starts

    def _order(self, key: int) -> WindowOrder:
        self._begin()
        block, buffer = window_sizes(self.dataset, self.block, self.buffer)
        return WindowOrder(len(self.dataset), block, buffer, key, self.rank * self.num_samples, self.num_samples)


class RandomWindowSampler(RandomSampler):
    """The sampler of FastLoader(shuffle="window"): a RandomSampler, to torch and to frameworks, with another order.

    It draws one number from its generator at the first index of each pass, and follows set generators, seeds and resumes as RandomSampler.
    """

    def __init__(self, data_source: Sized, generator: torch.Generator | None = None) -> None:
        super().__init__(data_source, generator=generator)

    def __iter__(self) -> Iterator[int]:
        block, buffer = window_sizes(self.data_source, BLOCK, BUFFER)
        for chunk in WindowOrder(len(self.data_source), block, buffer, drawn(self.generator)).chunks():
            yield from chunk.tolist()


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
    return count_of(name, value, 1, f' samples, or a size such as "{BLOCK if name == "block" else BUFFER}"')
