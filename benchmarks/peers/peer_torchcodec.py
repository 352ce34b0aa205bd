"""torchcodec's decode_jpeg under torch's DataLoader, with torch's own antialiased resize. uint8.

torchcodec decodes; crops and resizes are the caller's, here torch.nn.functional.interpolate, as in
torchvision's v2.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import torch
import turn
from torch.utils.data import Dataset
from torch_loader import torch_loader
from torchcodec.decoders import decode_jpeg

from fastload.bench.boxes import random_box


def resized(image: torch.Tensor, size: int) -> torch.Tensor:
    """A CHW image as a square."""
    return torch.nn.functional.interpolate(image[None], (size, size), mode="bilinear", antialias=True)[0]


def cropped(image: torch.Tensor, size: int, scale: tuple[float, float]) -> torch.Tensor:
    """A random crop of a CHW image, half of them mirrored."""
    x, y, w, h = random_box(image.shape[2], image.shape[1], scale)
    image = resized(image[:, y : y + h, x : x + w], size)
    return image.flip(2) if random.random() < 0.5 else image


class Files(Dataset[Any]):
    """Random crops of the task's files, one of each or all views."""

    def __init__(self, task: turn.Task) -> None:
        self.files = task.files
        self.size = task.size
        self.several = task.work == "views"

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        path, label = self.files[index]
        image = decode_jpeg(path)
        if self.several:
            return [
                cropped(image, size, scale) for size, scale, count in turn.VIEWS for _ in range(count)
            ], label
        return cropped(image, self.size, (0.08, 1.0)), label


def load(task: turn.Task) -> Any:
    """The folder's files."""
    return torch_loader(Files(task), task)


def crops(task: turn.Task) -> Iterator[Any]:
    """The same resize."""
    return (resized(decode_jpeg(path), task.size).permute(1, 2, 0).numpy() for path, _ in task.files)


if __name__ == "__main__":
    turn.run(load, crops, views=load)
