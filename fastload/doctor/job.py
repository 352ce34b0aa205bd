"""Job: what a training job asks of the machine, as far as the caller says, with the loader's own choices
for the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fastload.common.system import share_of_cpus

PREFETCH = 2
"""The loader's default of prefetch_factor."""


@dataclass(frozen=True)
class Job:
    """A training job.

    Attributes:
        dataset: a packed dataset's folder or URL; None: only the machine is checked.
        num_workers: threads of the loader; None: as many as the loader would take.
        batch_size: samples of a batch.
        size: side of the crop that is trained on, pixels.
        step_ms: milliseconds of a training step; None: unknown.
        storage_options: options of the dataset's store, if it is in a bucket.
        timeout: seconds after which a request to the store is given up.
    """

    dataset: str | None = None
    num_workers: int | None = None
    batch_size: int = 64
    size: int = 224
    step_ms: float | None = None
    storage_options: Mapping[str, object] | None = None
    timeout: float = 60.0

    @property
    def workers(self) -> int:
        """Threads of the loader."""
        return share_of_cpus() if self.num_workers is None else self.num_workers

    @property
    def batch_bytes(self) -> int:
        """Bytes of a batch of uint8 images."""
        return self.batch_size * self.size * self.size * 3

    @property
    def slots_bytes(self) -> int:
        """Bytes of the batches that the loader holds: those in flight, and the one that the loop has."""
        return (PREFETCH + 1) * self.batch_bytes

    @property
    def needed_rate(self) -> float | None:
        """Samples a second that the step takes; None: unknown."""
        return None if self.step_ms is None else self.batch_size / self.step_ms * 1000
