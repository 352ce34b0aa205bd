"""torch's DataLoader and Pillow: ImageFolder with RandomResizedCrop, written out. uint8, antialiased."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import turn
from pixels import augmented_views, opened, planes, resized, squared
from torch.utils.data import Dataset
from torch_loader import torch_loader, with_boxes

from fastload.bench.rivals import PillowFolder


class Views(Dataset[Any]):
    """(A list of all views, label) of each file."""

    def __init__(self, task: turn.Task) -> None:
        self.files = task.files

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        path, label = self.files[index]
        return [
            torch.from_numpy(view) for view in augmented_views(Path(path).read_bytes(), turn.VIEWS)
        ], label


class Objects(Dataset[Any]):
    """(The whole image as a square, its boxes) of each file, half of them mirrored."""

    def __init__(self, task: turn.Task) -> None:
        self.files = task.files
        self.boxes = task.boxes

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        picture, mirrored = opened(Path(self.files[index][0]).read_bytes()), random.random() < 0.5
        boxes = turn.squeezed(self.boxes[index], *picture.size, mirrored=mirrored)
        return torch.from_numpy(planes(squared(picture, turn.SIDE), mirrored=mirrored)), torch.from_numpy(
            boxes
        )


def load(task: turn.Task) -> Any:
    """The folder's files."""
    return torch_loader(PillowFolder(task.files, task.size), task)


def crops(task: turn.Task) -> Iterator[Any]:
    """What the others are compared with, by the same code."""
    return (resized(Path(path).read_bytes(), task.size) for path, _ in task.files)


if __name__ == "__main__":
    turn.run(
        load,
        crops,
        views=lambda task: torch_loader(Views(task), task),
        detection=lambda task: torch_loader(Objects(task), task, collate_fn=with_boxes),
    )
