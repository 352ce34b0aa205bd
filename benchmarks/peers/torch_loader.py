"""torch's DataLoader as the peers that use it start it."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader
from turn import Task


def torch_loader(dataset: Any, task: Task, **more: Any) -> DataLoader[Any]:
    """Shuffled whole batches from worker processes that live on."""
    options = {"shuffle": True, **more}
    return DataLoader(
        dataset,
        batch_size=task.batch,
        drop_last=True,
        num_workers=task.workers,
        persistent_workers=True,
        **options,
    )


def with_boxes(samples: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The images of one size as a tensor, and the list of their boxes."""
    return torch.stack([image for image, _ in samples]), [boxes for _, boxes in samples]
