"""The size of an epoch, as far as it can be known before its first batch is pulled: what slots are made for in advance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastload.execution.settings import Settings


@dataclass(frozen=True)
class EpochSize:
    """An expectation, which no batch has to meet: a larger batch, or one more, is given a slot of its size when its turn comes.

    Attributes:
        rows: samples in its largest batch, at least 1.
        batches: batches of the epoch, at least 1.
    """

    rows: int
    batches: int

    def in_flight(self, depth: int) -> int:
        """Batches of one pass to keep in flight where `depth` are asked for: no more than there are, and one of the next epoch."""
        return min(depth, self.batches + 1)

    def slots(self, depth: int) -> int:
        """Slots for `depth` batches: no more than this epoch and the next, begun early, have batches."""
        return min(depth, 2 * self.batches)


def epoch_size(settings: Settings, samples: int) -> EpochSize:
    """What the samplers tell of an epoch over a dataset of that many samples."""
    batch_sampler = settings.batch_sampler
    drawn = _length(getattr(batch_sampler, "sampler", settings.sampler))
    samples = max(1, samples if drawn is None else drawn)
    asked = getattr(batch_sampler, "batch_size", None) or settings.batch_size or 1
    rows = min(samples, asked) if isinstance(asked, int) and asked > 0 else 1
    batches = None if batch_sampler is None else _length(batch_sampler)
    return EpochSize(rows, -(-samples // rows) if batches is None else max(1, batches))


def _length(sampler: Any) -> int | None:
    """A user's sampler may have no length, or none yet."""
    try:
        return len(sampler)
    except Exception:
        return None
