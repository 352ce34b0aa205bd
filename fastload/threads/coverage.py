"""Coverage of a pass: which positions it will ask for, where that is known before it does, so that neighbours can be fetched together."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

from fastload.execution.settings import Settings
from fastload.window import RandomWindowSampler, coverage


def known_positions(settings: Settings) -> npt.NDArray[np.int64] | None:
    """The positions that a pass will ask for, ascending; None: a sampler that is not known here decides.

    Nothing is drawn from a generator, and no sampler is advanced.
    """
    if settings.auto_collation and type(settings.batch_sampler) is not BatchSampler:
        return None
    sampler = settings.batch_sampler.sampler if settings.auto_collation else settings.sampler
    kind = type(sampler)
    if kind is SequentialSampler:
        return np.arange(len(sampler.data_source))
    if kind in (RandomSampler, RandomWindowSampler):
        whole = not sampler.replacement and sampler.num_samples == len(sampler.data_source)
        return np.arange(len(sampler.data_source)) if whole else None
    return coverage(sampler, len(settings.dataset))
