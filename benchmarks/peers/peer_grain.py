"""Grain: files in its MapDataset, its own worker processes, Pillow's pixels. uint8, antialiased."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grain
import numpy as np
import turn
from pixels import augmented, resized


class Crops(grain.transforms.Map):
    """Random crops of files."""

    def __init__(self, size: int) -> None:
        self.size = size

    def map(self, element: tuple[str, int]) -> tuple[Any, Any]:
        """A sample of a (path, label)."""
        path, label = element
        return augmented(Path(path).read_bytes(), self.size), np.int64(label)


def load(task: turn.Task) -> Any:
    """A dataset that is shuffled, repeated, mapped and batched, read ahead by the task's number of
    processes."""
    mapped = grain.MapDataset.source(task.files).seed(task.seed).shuffle().repeat().map(Crops(task.size))
    batches = mapped.to_iter_dataset().batch(task.batch, drop_remainder=True)
    return turn.Stream(
        iter(batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=task.workers))), task.batches
    )


def crops(task: turn.Task) -> Iterator[Any]:
    """Pillow's resize."""
    return (resized(Path(path).read_bytes(), task.size) for path, _ in task.files)


if __name__ == "__main__":
    turn.run(load, crops)
