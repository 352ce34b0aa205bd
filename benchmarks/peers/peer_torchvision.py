"""torchvision's v2 transforms on tensors of its own decode_jpeg, under torch's DataLoader. uint8,
antialiased."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import importable_torchvision  # noqa: F401  (before torchvision)
import torch
import turn
from torch.utils.data import Dataset
from torch_loader import torch_loader, with_boxes
from torchvision import tv_tensors
from torchvision.datasets import ImageFolder
from torchvision.io import ImageReadMode, decode_jpeg, read_file
from torchvision.transforms import v2


def decoded(path: str) -> Any:
    """The CHW tensor of a file."""
    return decode_jpeg(read_file(path), ImageReadMode.RGB)


def cropping(size: int, scale: tuple[float, float] = (0.08, 1.0)) -> Any:
    """A random crop and flip."""
    return v2.Compose([v2.RandomResizedCrop(size, scale, antialias=True), v2.RandomHorizontalFlip()])


class Several:
    """A transform that gives the list of all views."""

    def __init__(self) -> None:
        self.views = [cropping(size, scale) for size, scale, count in turn.VIEWS for _ in range(count)]

    def __call__(self, image: Any) -> list[Any]:
        return [view(image) for view in self.views]


class Objects(Dataset[Any]):
    """(The whole image as a square, its boxes) of each file, half of them mirrored."""

    def __init__(self, task: turn.Task) -> None:
        self.files = task.files
        self.boxes = [torch.from_numpy(boxes) for boxes in task.boxes]
        self.transform = v2.Compose(
            [v2.Resize((turn.SIDE, turn.SIDE), antialias=True), v2.RandomHorizontalFlip()]
        )

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        image = tv_tensors.Image(decoded(self.files[index][0]))
        boxes = tv_tensors.BoundingBoxes(self.boxes[index], format="XYWH", canvas_size=image.shape[-2:])
        return self.transform(image, boxes)


def load(task: turn.Task) -> Any:
    """An ImageFolder whose loader gives tensors."""
    return torch_loader(ImageFolder(task.tree, cropping(task.size), loader=decoded), task)


def crops(task: turn.Task) -> Iterator[Any]:
    """The same resize."""
    resize = v2.Resize((task.size, task.size), antialias=True)
    return (resize(decoded(path)).permute(1, 2, 0).numpy() for path, _ in task.files)


if __name__ == "__main__":
    turn.run(
        load,
        crops,
        views=lambda task: torch_loader(ImageFolder(task.tree, Several(), loader=decoded), task),
        detection=lambda task: torch_loader(Objects(task), task, collate_fn=with_boxes),
    )
