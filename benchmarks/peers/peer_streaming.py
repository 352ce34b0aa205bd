"""Mosaic Streaming: its MDS shards of the JPEGs' bytes on the local disk, torch's DataLoader, Pillow's
pixels. uint8, antialiased."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import importable_torchvision  # noqa: F401  (before torchvision)
import streaming
import turn
from pixels import augmented, resized
from torch_loader import torch_loader


class Crops(streaming.StreamingDataset):
    """Random crops of the shards' samples."""

    def __init__(self, task: turn.Task) -> None:
        super().__init__(local=task.data, shuffle=True, shuffle_seed=task.seed, batch_size=task.batch)
        self.side = task.size

    def __getitem__(self, index: int) -> tuple[Any, int]:
        found = super().__getitem__(index)
        return augmented(found["image"], self.side), found["label"]


def make(task: turn.Task) -> None:
    """MDS shards of its default size."""
    with streaming.MDSWriter(out=task.data, columns={"image": "bytes", "label": "int"}) as writer:
        for path, label in task.files:
            writer.write({"image": Path(path).read_bytes(), "label": label})


def load(task: turn.Task) -> Any:
    """As its documentation has it: the dataset shuffles."""
    streaming.base.util.clean_stale_shared_memory()
    return torch_loader(Crops(task), task, shuffle=None)


def crops(task: turn.Task) -> Iterator[Any]:
    """Pillow's resize of what is in the shards."""
    streaming.base.util.clean_stale_shared_memory()
    dataset = streaming.StreamingDataset(local=task.data, shuffle=False, batch_size=1)
    return (resized(dataset[k]["image"], task.size) for k in range(len(task.files)))


if __name__ == "__main__":
    turn.run(load, crops, make)
