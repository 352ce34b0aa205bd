"""How a FastLoader stays one under Accelerate, as the README shows it."""

from __future__ import annotations

from typing import Any

from accelerate import Accelerator

from fastload import FastLoader


def prepare_kept(accelerator: Accelerator, loader: FastLoader, **options: Any) -> Any:
    """accelerator.prepare(loader), with its batches made by a FastLoader instead of the DataLoader that Accelerate builds.

    Accelerate's wrapper keeps its batch_sampler (sharded over the processes), device placement and gradient accumulation; only what
    makes the batches is replaced.
    """
    prepared = accelerator.prepare(loader)
    prepared.base_dataloader = FastLoader(
        prepared.dataset, batch_sampler=prepared.batch_sampler, num_workers=loader.num_workers, seed=loader.seed, **options
    )
    return prepared
