"""torch's DataLoader and Pillow: ImageFolder with RandomResizedCrop, written out. uint8, antialiased."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import turn
from pixels import resized
from torch_loader import torch_loader

from fastload.bench.rivals import PillowFolder


def load(task: turn.Task) -> Any:
    """The folder's files."""
    return torch_loader(PillowFolder(task.files, task.size), task)


def crops(task: turn.Task) -> Iterator[Any]:
    """What the others are compared with, by the same code."""
    return (resized(Path(path).read_bytes(), task.size) for path, _ in task.files)


if __name__ == "__main__":
    turn.run(load, crops)
