"""Job: what the workers of an iterator are started with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastload.bad_samples import RAISE, Policy
from fastload.resume.dataset_state import DatasetState


@dataclass(frozen=True)
class Job:
    """What a worker works on; the same for all workers of an iterator but for the worker's number.

    Attributes:
        kind: torch's _DatasetKind.
        auto_collation, drop_last, collate_fn, init_fn: as the loader's.
        base_seed: of torch's worker seeds.
        shared_seed: of an IterDataPipe, else None.
        sample_seed: (seed, epoch) under seed_by="sample", else None.
        rowwise: batches are split over workers, once a sample's layout is known.
        parent: the process to work for, by PID.
        replicas: of a dataset that goes on from a state, where each worker's copy stands; else empty.
        batch_size: samples in a batch of an iterable dataset.
        snapshot_every: batches of a worker between two states of an iterable dataset that it sends; 0: only at its end.
        set_draws: of packed data: tells the dataset what random transforms follow from in a new epoch.
        policy: what becomes of samples that cannot be made, in the first epoch.
    """

    dataset: Any
    kind: int
    auto_collation: bool
    drop_last: bool
    collate_fn: Callable[[Any], Any]
    init_fn: Callable[[int], None] | None
    base_seed: int
    shared_seed: int | None
    sample_seed: tuple[int, int] | None
    rowwise: bool
    parent: int
    workers: int
    replicas: tuple[DatasetState, ...] = ()
    batch_size: int = 1
    snapshot_every: int = 1
    set_draws: Callable[[Any, Any], None] | None = None
    policy: Policy = RAISE
