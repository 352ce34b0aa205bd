"""torchvision's v2 transforms on tensors of its own decode_jpeg, under torch's DataLoader. uint8, antialiased."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import importable_torchvision  # noqa: F401  (before torchvision)
import turn
from torch_loader import torch_loader
from torchvision.datasets import ImageFolder
from torchvision.io import ImageReadMode, decode_jpeg, read_file
from torchvision.transforms import v2


def decoded(path: str) -> Any:
    """The CHW tensor of a file."""
    return decode_jpeg(read_file(path), ImageReadMode.RGB)


def load(task: turn.Task) -> Any:
    """An ImageFolder whose loader gives tensors."""
    transform = v2.Compose([v2.RandomResizedCrop(task.size, antialias=True), v2.RandomHorizontalFlip()])
    return torch_loader(ImageFolder(task.tree, transform, loader=decoded), task)


def crops(task: turn.Task) -> Iterator[Any]:
    """The same resize."""
    resize = v2.Resize((task.size, task.size), antialias=True)
    return (resize(decoded(path)).permute(1, 2, 0).numpy() for path, _ in task.files)


if __name__ == "__main__":
    turn.run(load, crops)
