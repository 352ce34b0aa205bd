"""IteratorArguments: what torch's iterator class reads of a loader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from fastload.execution.plan import ExecutionPlan


@dataclass
class IteratorArguments:
    """What `_BaseDataLoaderIter` reads of the loader that it is made for, as of one plan."""

    dataset: Any
    collate_fn: Any
    _dataset_kind: int
    _IterableDataset_len_called: int | None
    _auto_collation: bool
    _index_sampler: Any
    drop_last: bool
    num_workers: int
    prefetch_factor: int | None
    pin_memory: bool
    pin_memory_device: str
    timeout: float
    generator: torch.Generator | None
    persistent_workers: bool

    @classmethod
    def of(cls, plan: ExecutionPlan, dataset: Any, length_called: int | None) -> IteratorArguments:
        """Those of a plan, over `dataset`; `length_called`: what len(loader) told of an iterable dataset."""
        settings = plan.settings
        return cls(
            dataset=dataset,
            collate_fn=plan.collate_fn,
            _dataset_kind=settings.kind,
            _IterableDataset_len_called=length_called,
            _auto_collation=settings.auto_collation,
            _index_sampler=settings.index_sampler,
            drop_last=settings.drop_last,
            num_workers=settings.num_workers,
            prefetch_factor=settings.prefetch_factor,
            pin_memory=settings.pin_memory,
            pin_memory_device=settings.pin_memory_device,
            timeout=settings.timeout,
            generator=settings.generator,
            persistent_workers=settings.persistent_workers,
        )
