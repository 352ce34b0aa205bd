"""Coverage of a pass: which positions it will ask for, where that is known before it does, so that neighbours can be fetched together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

from fastload.engines.resume.position import EpochState
from fastload.engines.settings import Settings
from fastload.sampling.known import SHUFFLES, blocks_of, coverage
from fastload.sampling.sampler import ShardSampler


@dataclass(frozen=True, eq=False)
class Coverage:
    """The samples that a pass may ask for.

    Attributes:
        needed: for each sample, True if the pass asks for it.
        block: samples of a block, if the pass asks for blocks of consecutive positions, each within a short time; block k begins at
            position k * block. 0: it does not.
        buffer: most samples of such blocks that are open at a time and not asked for yet.
    """

    needed: npt.NDArray[np.bool_]
    block: int = 0
    buffer: int = 0

    @property
    def positions(self) -> npt.NDArray[np.int64]:
        """All that it asks for, ascending."""
        return np.flatnonzero(self.needed)

    def leave_out(self, positions: Sequence[int] | int) -> None:
        """Notes positions that an earlier part of the pass was given."""
        self.needed[positions] = False


def known_coverage(settings: Settings, epoch_state: EpochState) -> Coverage | None:
    """The coverage of a pass, of which nothing was drawn yet; None: a sampler that is not known here decides.

    Nothing is drawn from a generator, and no sampler is advanced.
    """
    if not settings.order.is_own or (settings.auto_collation and type(settings.index_sampler) is not BatchSampler):
        return None
    sampler = settings.order.deciding
    count = len(settings.dataset)
    if isinstance(sampler, ShardSampler):
        found = np.sort(sampler.positions(epoch_state.sampler["epoch"], epoch_state.splits))
        positions: npt.NDArray[np.int64] | None = found
    else:
        positions = _positions(sampler, count)
    if positions is None or (len(positions) and positions[-1] >= count):
        return None
    needed = np.zeros(count, bool)
    needed[positions] = True
    blocks = sampler.blocks if isinstance(sampler, ShardSampler) else blocks_of(sampler)
    return Coverage(needed, *(blocks or ()))


def _positions(sampler: object, count: int) -> npt.NDArray[np.int64] | None:
    if isinstance(sampler, SequentialSampler) and type(sampler) is SequentialSampler:
        return np.arange(len(sampler.data_source))
    if isinstance(sampler, RandomSampler) and type(sampler) in SHUFFLES:
        whole = not sampler.replacement and sampler.num_samples == len(sampler.data_source)
        return np.arange(len(sampler.data_source)) if whole else None
    return coverage(sampler, count)
