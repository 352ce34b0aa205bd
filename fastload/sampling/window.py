"""Samplers of shuffle="window": WindowSampler, for users, and the one that FastLoader(shuffle="window")
makes. WindowOrder: the order of one pass, as a pure function of a key. RankedSampler: their base, with seed,
epoch, generator and each rank's part.

NOTE [ window: which sample comes when ]
A block is a run of consecutive samples, which one range request can fetch. Blocks are opened in random order.
Time is counted in rounds: in each round every open block gives one sample, in random order among the blocks;
which of its samples a block gives next is random too. Block number p, counted in the order of opening, opens
in round p * B // S, for blocks of B samples, and is finished B rounds later. So S blocks are open at a time,
with 1 to B samples left in each, and any S samples in a row come from about S different blocks: batches of
fewer than S samples have as many distinct classes as independent draws, even where a block is all of one
class. The buffer is what a reader has to hold if it fetches a block whole when its first sample is asked for:
the samples of open blocks that were not given yet. At most ceil(k * S / B) blocks open in any k rounds in a
row, so that it holds, summed over k = 1 .. B, at most (S + 1) * (B + 1) / 2 - 1 samples. For a buffer of M
samples S is therefore 2 * (M + 1) // (B + 1) - 1, which is at least 1 where M >= B. Permuting windows of the
same size one after another would mix less (a window of M samples has only M / B blocks, about half of S), and
so would a shuffle buffer from which samples are drawn at random: benchmarks/bench_shuffle.py compares the
three.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Sized
from functools import cached_property
from itertools import accumulate, starmap
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import distributed
from torch.utils.data import ConcatDataset, DistributedSampler, RandomSampler, Subset

from fastload.common.limits import parse_size
from fastload.common.positions import position_of
from fastload.common.rng import checked_epoch, checked_seed, host_order_seed, hosts_seed, order_seed
from fastload.dataset.packed import PackedDataset
from fastload.errors import ArgumentError
from fastload.sampling.block_line import BlockLine, expanded, words_at
from fastload.sampling.host_part import HostPart

COUNT_LIMIT = 1 << 32
"""Limit on samples: rounds are the upper 32 bits of the numbers that are sorted."""
_STEP = 1 << 14
"""Samples that are ordered at a time: few enough that the first index comes at once, many enough that
NumPy's calls cost nothing."""

_Words = npt.NDArray[np.uint64]
_Positions = npt.NDArray[np.int64]


class WindowOrder:
    """Order of one pass over a part of a dataset. See NOTE [ window: which sample comes when ].

    All blocks of the dataset, in the order that `key` gives them, form a line of `count` samples; a part is a
    stretch of that line, which goes on at its beginning where it is longer. Parts that share nothing of the
    line share no sample. A block on the border of two parts is in both, with some of its samples in each.

    Args:
        count: samples of the dataset.
        block: consecutive samples of a block; a block is never larger than the buffer.
        buffer: limit on samples that are fetched and not yet given, if blocks are fetched whole at their
            first sample. If it holds the whole part, the order is a permutation drawn uniformly.
        key: 0 .. 2**64-1; the order is a pure function of the arguments.
        first: place in the line of the part's first sample.
        samples: number of the part's samples; None: all.

    Attributes:
        line: the line of all blocks.

    Raises:
        ArgumentError: there are too many samples.
    """

    def __init__(
        self, count: int, block: int, buffer: int, key: int, first: int = 0, samples: int | None = None
    ) -> None:
        if count >= COUNT_LIMIT:
            raise ArgumentError(
                f'a dataset of {count:,} samples: shuffle="window" orders at most '
                f'{COUNT_LIMIT - 1:,}; use shuffle="huge"'
            )
        self.samples = count if samples is None else samples
        self.block = usable_block(count, block, buffer)
        self.buffer = buffer
        self.open_blocks = 2 * (buffer + 1) // (self.block + 1) - 1
        self._key, self._first = key, first
        self.line = BlockLine(count, self.block, key)
        self._stretches = self.line.stretches(first, first + self.samples)

    def indices(self) -> _Positions:
        """The whole order."""
        return np.concatenate([np.empty(0, np.int64), *self.chunks()])

    def chunks(self, start: int = 0) -> Iterator[_Positions]:
        """The order from its place `start` on, in pieces of some thousand samples, each computed when it is
        asked for.

        What comes before `start` is not computed, but for the blocks that are open there.
        """
        if start >= self.samples:
            return
        if self.buffer >= self.samples:
            positions = self.line.positions(self._first, self._first + self.samples)
            yield positions[_permutation(self._words(0), len(positions))][start:]
            return
        step = max(1, max(_STEP, self.buffer // 4) // self.block)
        ends = self._ends_of_stretches
        begins = range(0, ends[-1], step)
        begin = begins[bisect_right(begins, start, key=lambda number: self._given(self._round(number))) - 1]
        since = self._round(begin)
        skipped = start - self._given(since)
        number = self._finished(since)
        words = self._words(number * self.block)
        times, positions = np.empty(0, np.uint64), np.empty(0, np.int64)
        for starts, lengths in _regrouped(self.runs(number), begin - number, step):
            new_times, new_positions = self._scheduled(number, starts, lengths, words)
            number += len(starts)
            if number <= begin:  # of the blocks that are open at the beginning, what was given before
                later = new_times >= np.uint64(since << 32)
                new_times, new_positions = new_times[later], new_positions[later]
            times, positions = np.concatenate([times, new_times]), np.concatenate([positions, new_positions])
            if number <= begin:
                continue
            due = (
                np.full(len(times), True)
                if number == ends[-1]
                else times < np.uint64(self._round(number) << 32)
            )
            now = positions[due]
            yield now[times[due].argsort(kind="stable")][skipped:]
            skipped = max(0, skipped - len(now))
            times, positions = times[~due], positions[~due]

    def places_of(self, low: int, high: int) -> tuple[_Positions, _Positions]:
        """(samples, their places in the order) of the samples that are number low .. high-1 of the part's
        stretch of the line."""
        wanted = self.line.positions(self._first + low, self._first + high)
        at = 0 if self.buffer >= self.samples else self._given(self._round(self._run_at(low)))
        samples, places, left = [], [], len(wanted)
        for chunk in self.chunks(at):
            found = np.flatnonzero(np.isin(chunk, wanted))
            samples.append(chunk[found])
            places.append(found + at)
            at, left = at + len(chunk), left - len(found)
            if not left:
                break
        return np.concatenate(samples), np.concatenate(places)

    def covered(self) -> Iterator[_Positions]:
        """The samples of the order, run by run in the order of opening, some thousand at a time."""
        return starmap(expanded, _regrouped(self.runs(), 0, max(1, _STEP // self.block)))

    def runs(self, first: int = 0) -> Iterator[tuple[_Positions, _Positions]]:
        """First position and length of the part's runs from number `first` on, in the order of opening, many
        thousand at a time.

        Runs are blocks, and parts of blocks at the ends of the part's stretch of the line.
        """
        for stretch, end in zip(self._stretches, self._ends_of_stretches, strict=True):
            if first < end:
                yield from stretch.runs(max(0, first - (end - len(stretch))))

    def _words(self, first: int) -> np.random.Philox:
        return words_at(first, key=self._key, stream=(self._first, 1))

    def _round(self, number: int) -> int:
        """The round in which a block opens."""
        return number * self.block // self.open_blocks

    def _scheduled(
        self, begin: int, starts: _Positions, lengths: _Positions, words: np.random.Philox
    ) -> tuple[_Words, _Positions]:
        """Time and position of each sample of the blocks from number `begin` on. A time is a round and,
        below it, 32 random bits."""
        draws = np.asarray(words.random_raw(len(starts) * self.block), np.uint64).reshape(
            len(starts), self.block
        )
        turn = np.arange(self.block, dtype=np.int64)
        there = turn < lengths[:, None]
        # Samples that a short block lacks come last in it.
        upper = np.where(there, draws >> np.uint64(32), np.uint64(1 << 32))
        chosen = upper.argsort(axis=1, kind="stable")
        rounds = (np.arange(begin, begin + len(starts), dtype=np.int64) * self.block // self.open_blocks)[
            :, None
        ] + turn
        times = rounds.astype(np.uint64) << np.uint64(32) | draws & np.uint64(0xFFFF_FFFF)
        return times[there], (starts[:, None] + chosen)[there]

    def _finished(self, round_: int) -> int:
        """Number of runs, counted from the first, all of whose rounds come before one."""
        return min(
            max(0, -(-(round_ - self.block + 1) * self.open_blocks // self.block)),
            self._ends_of_stretches[-1],
        )

    def _given(self, round_: int) -> int:
        """Number of samples that come before a round."""
        finished, count = self._finished(round_), self._ends_of_stretches[-1]
        opened = min(-(-round_ * self.open_blocks // self.block), count)
        given = finished * self.block + int(
            (round_ - np.arange(finished, opened) * self.block // self.open_blocks).sum()
        )
        for number, length in self._short_runs:
            if number < opened:
                given -= max(0, min(self.block, round_ - self._round(number)) - length)
        return given

    @cached_property
    def _ends_of_stretches(self) -> list[int]:
        """Number of runs in all stretches up to each."""
        return list(accumulate(map(len, self._stretches)))

    @cached_property
    def _short_runs(self) -> list[tuple[int, int]]:
        """(number, length) of the runs that are shorter than a block."""
        return [
            (end - len(stretch) + number, length)
            for stretch, end in zip(self._stretches, self._ends_of_stretches, strict=True)
            for number, length in stretch.short_runs()
        ]

    def _run_at(self, place: int) -> int:
        """The number of the run that has a place of the part's stretch of the line."""
        for stretch, end in zip(self._stretches, self._ends_of_stretches, strict=True):
            if place < stretch.samples:
                return end - len(stretch) + stretch.run_at(place)
            place -= stretch.samples
        raise IndexError(place)


def _regrouped(
    runs: Iterator[tuple[_Positions, _Positions]], before: int, step: int
) -> Iterator[tuple[_Positions, _Positions]]:
    """Runs, some at a time: at most `step`, of which the first `before` runs end a group."""
    parts: list[tuple[_Positions, _Positions]] = []
    have, left = 0, before
    for starts, lengths in runs:
        while len(starts):
            wanted = min(step, left or step) - have
            parts.append((starts[:wanted], lengths[:wanted]))
            have += len(parts[-1][0])
            starts, lengths = starts[wanted:], lengths[wanted:]
            if have == min(step, left or step):
                yield np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
                parts, have, left = [], 0, max(0, left - have)
    if parts:
        yield np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def usable_block(count: int, block: int, buffer: int) -> int:
    """Samples of a block: no more than the buffer holds, nor than there are."""
    return max(1, min(block, buffer, count))


def _permutation(words: np.random.Philox, count: int) -> _Positions:
    """The numbers 0 .. count-1 in random order: sorted by random upper bits, with the number itself in the
    lower bits."""
    below = np.uint64((1 << max(1, (count - 1).bit_length())) - 1)
    keys = np.asarray(words.random_raw(count), np.uint64) & ~below | np.arange(count, dtype=np.uint64)
    keys.sort()
    out: _Positions = (keys & below).astype(np.int64)
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
        for chunk in self.chunks():
            yield from chunk.tolist()

    def chunks(self) -> Iterator[npt.NDArray[np.int64]]:
        """The order of this rank's pass, some thousand samples at a time; without a seed its key is drawn
        now."""
        return self._chunks(self._key())

    def indices(self) -> npt.NDArray[np.int64]:
        """The order of this rank's next pass, without a draw: without a seed, that of a pass that would
        begin now."""
        return np.concatenate([np.empty(0, np.int64), *self._chunks(self._key_undrawn())])

    def covered(self) -> Iterator[npt.NDArray[np.int64]]:
        """The samples of this rank's next pass, some thousand at a time, in no promised order and without
        a draw."""
        return self._chunks(self._key_undrawn())

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
            raise ArgumentError(
                f"num_replicas={replicas} without rank=, and there is no process group to tell it: give rank="
            )
        if rank is None:
            rank = distributed.get_rank() if self.num_replicas > 1 else 0
        self.rank = count_of("rank", rank, 0)
        if self.rank >= self.num_replicas:
            raise ArgumentError(
                f"rank={rank} of num_replicas={replicas}: ranks are counted from 0 to {replicas - 1}"
            )
        if self.num_replicas > 1 and self.seed is None:
            raise ArgumentError(
                f"{type(self).__name__} on several ranks needs seed=, the same on each: without it "
                "their parts overlap"
            )
        count = len(self.dataset)
        self.num_samples = count // self.num_replicas if self.drop_last else -(-count // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def _begin(self) -> None:
        """Divides the samples for a pass; refuses one of which nobody says whose samples it has."""
        self._divide()
        if (
            self.num_replicas == 1
            and self._given == (None, None)
            and int(os.environ.get("WORLD_SIZE") or 1) > 1
            and not grouped()
        ):
            raise ArgumentError(
                f"{type(self).__name__}: several processes were started, and there is no process "
                "group to say which samples are this "
                "one's: call torch.distributed.init_process_group(), or give num_replicas= and rank="
            )


def count_of(name: str, value: object, least: int, hint: str = "") -> int:
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
    """A sampler that gives blocks of consecutive samples in random order, mixed through a shuffle buffer: for
    data in a bucket.

    1. Each pass gives every sample once. The order is a pure function of (seed, epoch), the arguments and the
       number of ranks. A reader that fetches blocks whole never holds more than the buffer.
    2. Ranks get disjoint parts, of equal length: the last ones repeat the first samples of the order, or with
       drop_last the last samples are left out.
    3. Call `set_epoch` before each epoch, on the sampler or the loader, or every epoch has the same order.
    4. With `hosts` each host reads the same part of the data in every epoch. See
       NOTE [ hosts: whose block it is ].

    Args:
        dataset: the dataset, or the number of its samples.
        block: samples of a block, or its size such as "2MiB".
        buffer: samples that the buffer holds, or its size such as "1GiB"; at least two blocks. Of other than
            packed data a sample is taken to have 110,000 bytes.
        seed: 0 .. 2**64-1, the same on every rank. None, for one rank only: drawn from `generator` for each
            pass.
        num_replicas, rank: as DistributedSampler's. None: taken from the process group at each `iter()`;
            without a group, one rank.
        drop_last: leaves samples out if their number is not divisible by that of ranks.
        generator: None: torch's default generator.
        hosts: number of hosts, with equally many ranks, in torchrun's order. None: ranks share out the blocks
            anew in every epoch.
        deal_every: with `hosts`, number of epochs after which blocks are dealt out anew; None: never.

    Raises:
        ArgumentError: an argument is out of range; several ranks, or `hosts`, have no seed; the number of
            ranks is no multiple of `hosts`; or, at iter(), a launcher has started several processes, and
            this one's rank is unknown.
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
        hosts: int | None = None,
        deal_every: int | None = None,
    ) -> None:
        self.hosts = None if hosts is None else count_of("hosts", hosts, 1)
        self.deal_every = None if deal_every is None else count_of("deal_every", deal_every, 1)
        super().__init__(
            dataset, seed=seed, num_replicas=num_replicas, rank=rank, drop_last=drop_last, generator=generator
        )
        if self.hosts is None and self.deal_every is not None:
            raise ArgumentError(f"deal_every={deal_every} deals out blocks to hosts: give hosts= as well")
        if self.hosts is not None and self.seed is None:
            raise ArgumentError(
                f"hosts={hosts} needs seed=, by which a host has the same part in every epoch"
            )
        self.block, self.buffer = block, buffer
        window_sizes(self.dataset, block, buffer)  # a wrong size is an error here

    def _chunks(self, key: int) -> Iterator[npt.NDArray[np.int64]]:
        order, part = self._order(key)
        return order.chunks() if part is None else map(part.positions, order.chunks())

    def covered(self) -> Iterator[npt.NDArray[np.int64]]:
        """The samples of this rank's next pass, block by block as blocks are opened, without a draw."""
        order, part = self._order(self._key_undrawn())
        return order.covered() if part is None else map(part.positions, order.covered())

    def _order(self, key: int) -> tuple[WindowOrder, HostPart | None]:
        """The order of this rank's pass, and the part of the dataset whose samples it numbers; None: all
        of it."""
        self._begin()
        count = len(self.dataset)
        block, buffer = window_sizes(self.dataset, self.block, self.buffer)
        if self.hosts is None:
            return WindowOrder(
                count, block, buffer, key, self.rank * self.num_samples, self.num_samples
            ), None
        host, rank = divmod(self.rank, self.num_replicas // self.hosts)
        period = 0 if self.deal_every is None else self.epoch // self.deal_every
        part = HostPart(
            count, usable_block(count, block, buffer), hosts_seed(self.seed, period), host, self.hosts
        )
        own = host_order_seed(self.seed, self.epoch, host)
        return WindowOrder(part.samples, block, buffer, own, rank * self.num_samples, self.num_samples), part

    def _divide(self) -> None:
        super()._divide()
        if self.hosts is None:
            return
        if len(self.dataset) < self.hosts:
            raise ArgumentError(
                f"hosts={self.hosts}: the dataset has {len(self.dataset)} samples, fewer than hosts: "
                "leave hosts= out"
            )
        if self.num_replicas % self.hosts:
            raise ArgumentError(
                f"hosts={self.hosts} with num_replicas={self.num_replicas}: each host has as many "
                "ranks as any other, so give a number of "
                "ranks that is a multiple of it"
            )


class RandomOrderSampler(RandomSampler):
    """A RandomSampler, to torch and to frameworks, whose order derived classes make in _chunks().

    It draws one number from its generator at the first index of each pass, and follows set generators, seeds
    and resumes as RandomSampler.
    """

    def __init__(self, data_source: Sized, generator: torch.Generator | None = None) -> None:
        super().__init__(data_source, generator=generator)

    def _chunks(self, key: int) -> Iterator[npt.NDArray[np.int64]]:
        raise NotImplementedError

    def __iter__(self) -> Iterator[int]:
        for chunk in self.chunks():
            yield from chunk.tolist()

    def chunks(self) -> Iterator[npt.NDArray[np.int64]]:
        """The order of a pass, some thousand samples at a time; its key is drawn now."""
        return self._chunks(drawn(self.generator))


class RandomWindowSampler(RandomOrderSampler):
    """The sampler of FastLoader(shuffle="window")."""

    def _chunks(self, key: int) -> Iterator[npt.NDArray[np.int64]]:
        return WindowOrder(
            len(self.data_source), *window_sizes(self.data_source, BLOCK, BUFFER), key
        ).chunks()


def window_sizes(dataset: object, block: int | str, buffer: int | str) -> tuple[int, int]:
    """Samples of a block and of the buffer. Raises ArgumentError for what is neither a number of samples
    nor a size."""
    mean = mean_bytes(dataset) or MEAN_BYTES
    return _samples("block", block, mean), _samples("buffer", buffer, mean)


def mean_bytes(dataset: object) -> float | None:
    """Mean size of the stored samples of packed data, or of Subset and ConcatDataset of them; None where
    it is not known."""
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
