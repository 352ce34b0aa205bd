"""Job: the parameters that the workers of an iterator are started with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastload.batch.bad_samples import RAISE, Policy
from fastload.resume.dataset_state import DatasetState


@dataclass(frozen=True)
class Job:
    """Parameters of a worker process, the same for all workers of an iterator.

    Attributes:
        kind: torch's _DatasetKind.
        auto_collation, drop_last, collate_fn, init_fn: as the loader's.
        base_seed: the base of torch's worker seeds.
        shared_seed: the shared seed of an IterDataPipe, else None.
        sample_seed: (seed, epoch) under seed_by="sample", else None.
        rowwise: workers share the rows of each batch, once the layout of a sample is known.
        parent: PID of the process that they work for.
        replicas: for a resumed pass, the state of each worker's copy of the dataset; else empty.
        batch_size: samples in a batch of an iterable dataset.
        snapshot_every: a worker sends the state of an iterable dataset after each so many of its batches; 0: only at the end.
        set_draws: for packed data and mixtures, sets what a new epoch's samples and random transforms follow from.
        policy: how the first epoch treats samples that fail.
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
