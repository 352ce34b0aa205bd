"""Samplers of shuffle="window": WindowSampler, for users, and the one that FastLoader(shuffle="window") makes. WindowOrder: the order of
one pass, as a pure function of a key. RankedSampler: their base, with seed, epoch, generator and each rank's part.

NOTE [ window: which sample comes when ]
A block is a run of consecutive samples, which one range request can fetch. Blocks are opened in random order. Time is counted in rounds: in
each round every open block gives one sample, in random order among the blocks; which of its samples a block gives next is random too. Block
number p, counted in the order of opening, opens in round p * B // S, for blocks of B samples, and is finished B rounds later. So S blocks
are open at a time, with 1 to B samples left in each, and any S samples in a row come from about S different blocks: batches of fewer than
S samples have as many distinct classes as independent draws, even where a block is all of one class.
The buffer is what a reader has to hold if it fetches a block whole when its first sample is asked for: the samples of open blocks that were
not given yet. At most ceil(k * S / B) blocks open in any k rounds in a row, so that it holds, summed over k = 1 .. B, at most
(S + 1) * (B + 1) / 2 - 1 samples. For a buffer of M samples S is therefore 2 * (M + 1) // (B + 1) - 1, which is at least 1 where M >= B.
Permuting windows of the same size one after another would mix less (a window of M samples has only M / B blocks, about half of S), and so
would a shuffle buffer from which samples are drawn at random: benchmarks/bench_shuffle.py compares the three.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sized
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import distributed
from torch.utils.data import ConcatDataset, DistributedSampler, RandomSampler, Subset

from fastload.common.limits import parse_size
from fastload.common.positions import position_of
from fastload.common.rng import checked_epoch, checked_seed, order_seed
from fastload.dataset.packed import PackedDataset
from fastload.errors import ArgumentError

COUNT_LIMIT = 1 << 32
"""Limit on samples: rounds are the upper 32 bits of the numbers that are sorted."""
_STEP = 1 << 14
"""Samples that are ordered at a time: few enough that the first index comes at once, many enough that NumPy's calls cost nothing."""

_Words = npt.NDArray[np.uint64]
_Positions = npt.NDArray[np.int64]


class WindowOrder:
    """Order of one pass over a part of a dataset. See NOTE [ window: which sample comes when ].

    All blocks of the dataset, in the order that `key` gives them, form a line of `count` samples; a part is a stretch of that line, which
    goes on at its beginning where it is longer. Parts that share nothing of the line share no sample. A block on the border of two parts
    is in both, with some of its samples in each.

    Args:
        count: samples of the dataset.
        block: consecutive samples of a block; a block is never larger than the buffer.
        buffer: limit on samples that are fetched and not yet given, if blocks are fetched whole at their first sample. If it holds the
            whole part, the order is a permutation drawn uniformly.
        key: 0 .. 2**64-1; the order is a pure function of the arguments.
        first: place in the line of the part's first sample.
        samples: number of the part's samples; None: all.

    Raises:
        ArgumentError: there are too many samples.
    """

    def __init__(self, count: int, block: int, buffer: int, key: int, first: int = 0, samples: int | None = None) -> None:
        if count >= COUNT_LIMIT:
            raise ArgumentError(f'a dataset of {count:,} samples: shuffle="window" orders at most {COUNT_LIMIT - 1:,}; use shuffle=True')
        self.samples = count if samples is None else samples
        self.block = usable_block(count, block, buffer)
        self.buffer = buffer
        self.open_blocks = 2 * (buffer + 1) // (self.block + 1) - 1
        self._count, self._key, self._first = count, key, first

    def indices(self) -> _Positions:
        """The whole order."""
        return np.concatenate([np.empty(0, np.int64), *self.chunks()])

    def chunks(self) -> Iterator[_Positions]:
        """The order in pieces of some thousand samples, each computed when it is asked for."""
        if not self.samples:
            return
        starts, lengths = self.runs()
        words = np.random.Philox(key=self._key, counter=[0, 0, self._first, 1])
        if self.buffer >= self.samples:
            positions = expanded(starts, lengths)
            yield positions[_permutation(words, len(positions))]
            return
        step = max(1, max(_STEP, self.buffer // 4) // self.block)
        times, positions = np.empty(0, np.uint64), np.empty(0, np.int64)
        for begin in range(0, len(starts), step):
            end = min(begin + step, len(starts))
            new_times, new_positions = self._scheduled(begin, starts[begin:end], lengths[begin:end], words)
            times, positions = np.concatenate([times, new_times]), np.concatenate([positions, new_positions])
            due = np.full(len(times), True) if end == len(starts) else times < np.uint64(self._round(end) << 32)
            now = positions[due]
            yield now[times[due].argsort(kind="stable")]
            times, positions = times[~due], positions[~due]

    def _round(self, number: int) -> int:
        """The round in which a block opens."""
        return number * self.block // self.open_blocks

    def _scheduled(self, begin: int, starts: _Positions, lengths: _Positions, words: np.random.Philox) -> tuple[_Words, _Positions]:
        """Time and position of each sample of the blocks from number `begin` on. A time is a round and, below it, 32 random bits."""
        draws = np.asarray(words.random_raw(len(starts) * self.block), np.uint64).reshape(len(starts), self.block)
        turn = np.arange(self.block, dtype=np.int64)
        there = turn < lengths[:, None]
        upper = np.where(there, draws >> np.uint64(32), np.uint64(1 << 32))  # samples that a short block lacks come last in it
        chosen = upper.argsort(axis=1, kind="stable")
        rounds = (np.arange(begin, begin + len(starts), dtype=np.int64) * self.block // self.open_blocks)[:, None] + turn
        times = rounds.astype(np.uint64) << np.uint64(32) | draws & np.uint64(0xFFFF_FFFF)
        return times[there], (starts[:, None] + chosen)[there]

    def runs(self) -> tuple[_Positions, _Positions]:
        """First position and length of the part's runs, in the order of opening: blocks, and parts of blocks at its ends."""
        if not self.samples:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        count, block = self._count, self.block
        blocks = -(-count // block)
        order = _permutation(np.random.Philox(key=self._key), blocks)
        lengths = np.minimum(block, count - order * block)
        ends = np.cumsum(lengths)
        starts_found, lengths_found, at, left = [], [], self._first % count, self.samples
        while left:
            stop = min(count, at + left)
            low, high = int(np.searchsorted(ends, at, "right")), int(np.searchsorted(ends, stop, "left"))
            starts, some = order[low : high + 1] * block, lengths[low : high + 1].copy()
            before = at - int(ends[low] - lengths[low])
            starts[0] += before
            some[0] -= before
            some[-1] -= int(ends[high]) - stop
            starts_found.append(starts)
            lengths_found.append(some)
            at, left = 0, left - (stop - at)
        return np.concatenate(starts_found), np.concatenate(lengths_found)


def usable_block(count: int, block: int, buffer: int) -> int:
    """Samples of a block: no more than the buffer holds, nor than there are."""
    return max(1, min(block, buffer, count))


def _permutation(words: np.random.Philox, count: int) -> _Positions:
    """The numbers 0 .. count-1 in random order: sorted by random upper bits, with the number itself in the lower bits."""
    below = np.uint64((1 << max(1, (count - 1).bit_length())) - 1)
    keys = np.asarray(words.random_raw(count), np.uint64) & ~below | np.arange(count, dtype=np.uint64)
    keys.sort()
    out: _Positions = (keys & below).astype(np.int64)
    return out


def expanded(starts: _Positions, lengths: _Positions) -> _Positions:
    """The positions of all runs, at least one, one run after another."""
    shift = np.repeat(starts - np.concatenate([[0], np.cumsum(lengths)[:-1]]), lengths)
    out: _Positions = np.arange(int(lengths.sum()), dtype=np.int64) + shift
    return out


class RankedSampler(DistributedSampler[int]):
    """A DistributedSampler, to torch and to frameworks, whose order derived classes make in _chunks().

    Args:
        dataset, seed, num_replicas, rank, drop_last, generator: as WindowSampler's.

    Raises:
        ArgumentError: as WindowSampler.
    """

    def __init__(
        self,
        dataset: Sized | int,
        *,
        seed: int | None = None,
        num_replicas: int | None = None,
        rank: int | None = None,
        drop_last: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        self.dataset: Any = dataset if hasattr(dataset, "__len__") else range(count_of("dataset", dataset, 0))
        self.seed: Any = checked_seed(seed)  # DistributedSampler's is never None
        self.epoch = 0
        self.shuffle = True
        self.drop_last = drop_last
        self.generator = generator
        self._given = num_replicas, rank
        self._divide()

    def _chunks(self, key: int) -> Iterator[npt.NDArray[np.int64]]:
        """The order of this rank's pass, some thousand samples at a time."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[int]:
        for chunk in self._chunks(self._key()):
            yield from chunk.tolist()

    def indices(self) -> npt.NDArray[np.int64]:
        """The order of this rank's next pass, without a draw: without a seed, that of a pass that would begin now."""
        return np.concatenate([np.empty(0, np.int64), *self._chunks(self._key_undrawn())])

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
        """The key of the next pass, found without a draw from the generator."""
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
    """Returns True if this process has a process group."""
    return distributed.is_available() and distributed.is_initialized()


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
        num_replicas, rank: as DistributedSampler's. None: taken from the process group at each `iter()`; without a group, one rank.
        drop_last: True: ranks leave samples out if the number of samples is not divisible; False: they repeat some.
        generator: generator to draw from if seed is None; None: torch's default generator.

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
        super().__init__(dataset, seed=seed, num_replicas=num_replicas, rank=rank, drop_last=drop_last, generator=generator)
        self.block, self.buffer = block, buffer
        window_sizes(self.dataset, block, buffer)  # a wrong size is an error here

    def _chunks(self, key: int) -> Iterator[npt.NDArray[np.int64]]:
        return self._order(key).chunks()

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


class RandomOrderSampler(RandomSampler):
    """A RandomSampler, to torch and to frameworks, whose order derived classes make in _chunks().

    It draws one number from its generator at the first index of each pass, and follows set generators, seeds and resumes as RandomSampler.
    """

    def __init__(self, data_source: Sized, generator: torch.Generator | None = None) -> None:
        super().__init__(data_source, generator=generator)

    def _chunks(self, key: int) -> Iterator[npt.NDArray[np.int64]]:
        raise NotImplementedError

    def __iter__(self) -> Iterator[int]:
        for chunk in self._chunks(drawn(self.generator)):
            yield from chunk.tolist()


class RandomWindowSampler(RandomOrderSampler):
    """The sampler of FastLoader(shuffle="window")."""

    def _chunks(self, key: int) -> Iterator[npt.NDArray[np.int64]]:
        return WindowOrder(len(self.data_source), *window_sizes(self.data_source, BLOCK, BUFFER), key).chunks()


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
