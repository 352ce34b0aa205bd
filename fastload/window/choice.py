"""shuffle_class: which sampler the argument shuffle= names."""

from __future__ import annotations

from typing import Any

from torch.utils.data import RandomSampler

from fastload.errors import ArgumentError
from fastload.window.keyed import RandomKeyedSampler
from fastload.window.sampler import RandomWindowSampler

_NAMED: dict[str, type[RandomWindowSampler | RandomKeyedSampler]] = {"window": RandomWindowSampler, "huge": RandomKeyedSampler}
SHUFFLES: tuple[type[RandomSampler], ...] = (RandomSampler, RandomWindowSampler, RandomKeyedSampler)
"""Classes of which a sampler, without replacement, gives each sample of its data once, and draws at its first index only."""


def shuffle_class(shuffle: Any) -> type[RandomWindowSampler | RandomKeyedSampler] | None:
    """The sampler of a loader's shuffle=; None: what is no text is torch's. Raises ArgumentError for a text that names none."""
    if not isinstance(shuffle, str):
        return None
    if shuffle not in _NAMED:
        raise ArgumentError(f'shuffle={shuffle!r}: choose True, False, "window" or "huge"')
    return _NAMED[shuffle]
