"""HostPart: the part of a dataset that one host reads in every epoch, under WindowSampler(hosts=).

NOTE [ hosts: whose block it is ]
All blocks of the dataset form a line, in an order that depends on the seed alone, or on the seed and the
number of the period, where the blocks are dealt out anew after so many epochs. Host h of H has the stretch
from sample h * N // H up to sample (h + 1) * N // H of the line of N samples, so that no two hosts differ by
more than one sample. A block on a border is two hosts'. In each epoch a window's order is drawn within the
part, by a key of the host and the epoch, and the host's ranks have stretches of it. As all parts are of
nearly one length, each rank has as many samples as it has under DistributedSampler: what pads or is left out
is of the rank's own host. A part is numbered from its first whole block on: the block that it begins in the
midst of comes last. So a run of numbers that begins at a multiple of the block size is one block, but for the
last two. A short last block of the dataset is the last of the line. Nothing is kept for a sample: the line is
a keyed permutation, computed where it is asked for.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fastload.common.rng import KeyedPermutation

_Positions = npt.NDArray[np.int64]


class HostPart:
    """The samples of one host. See NOTE [ hosts: whose block it is ].

    Args:
        count: samples of the dataset.
        block: consecutive samples of a block.
        key: key of the line of blocks.
        host, hosts: number of the host, from 0, and number of hosts.

    Attributes:
        samples: number of samples in the part.
    """

    def __init__(self, count: int, block: int, key: int, host: int, hosts: int) -> None:
        self._begin = host * count // hosts
        self.samples = (host + 1) * count // hosts - self._begin
        self._block = block
        self._ahead = -self._begin % block  # samples of the block that begins in the host before
        self._whole = count // block * block
        self._blocks = KeyedPermutation(count // block, key)

    def positions(self, numbers: _Positions) -> _Positions:
        """Positions in the dataset of samples by their numbers in the part, each 0 .. samples-1."""
        places = self._begin + (numbers + self._ahead) % max(1, self.samples)
        found: _Positions = places.copy()  # those of the short last block
        whole = places < self._whole
        found[whole] = (
            self._blocks.at(places[whole] // self._block) * self._block + places[whole] % self._block
        )
        return found
