"""Samplers of shuffle="huge": KeyedSampler, for users, and the one that FastLoader(shuffle="huge") makes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from fastload.common.rng import KeyedPermutation
from fastload.sampling.window import RandomOrderSampler, RankedSampler


class KeyedSampler(RankedSampler):
    """A sampler that gives a random order without a list of it: for datasets of any size.

    1. Each pass gives every sample once. The order is a pure function of (seed, epoch) and the number of
       samples, by fastload.common.rng.KeyedPermutation.
    2. Rank r has the order's places r, r + num_replicas, and so on, all ranks equally many: the last ones
       repeat the first samples of the order, or with drop_last the last samples are left out.
    3. Call `set_epoch` before each epoch.

    Args:
        dataset: the dataset, or the number of its samples.
        seed: 0 .. 2**64-1, the same on every rank. None, for one rank only: drawn from torch's generator for
            each pass, where RandomSampler draws its own; the epoch has then no effect.
        num_replicas, rank: as DistributedSampler's. None: taken from the process group at each `iter()`;
            without a group, one rank.
        drop_last: True: ranks leave samples out if the number of samples is not divisible; False: they repeat
            some.
        generator: generator to draw from if seed is None; None: torch's default generator.

    Raises:
        ArgumentError: an argument is out of range; several ranks have no seed; or, at iter(), a launcher such
            as torchrun has started several processes, and neither a process group nor num_replicas and rank
            say which samples are this one's.
    """

    def _chunks(self, key: int) -> Iterator[npt.NDArray[np.int64]]:
        self._begin()
        count = len(self.dataset)
        if not count:
            return
        order, place, end = KeyedPermutation(count, key), self.rank, self.total_size
        while place < end:  # once, and again where places beyond the order's end repeat its beginning
            stop = min(count, end)
            yield from order.chunks(place, self.num_replicas, stop)
            place += -(-max(0, stop - place) // self.num_replicas) * self.num_replicas
            place, end = place - count, end - count


class RandomKeyedSampler(RandomOrderSampler):
    """The sampler of FastLoader(shuffle="huge"): its order takes no memory."""

    def _chunks(self, key: int) -> Iterator[npt.NDArray[np.int64]]:
        return KeyedPermutation(len(self.data_source), key).chunks()
