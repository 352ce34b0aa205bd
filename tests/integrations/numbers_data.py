"""The plain dataset of the integration tests, and the loaders over either form, for tests and programs
alike."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from fastload import FastLoader, PackedDataset
from fastload import transforms as T

COUNT = 48
FORMS = ("packed", "plain")
WITH_FILES = (*FORMS, "files")
"""The images of the packed dataset as they were before: an ImageFolder, which native threads read in
place."""


class Numbers(Dataset[Any]):
    """COUNT samples: sample i is (an image full of i, i)."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((3, 8, 8), index, dtype=torch.float32), index


def dataset_of(form: str, packed: str | Path) -> Any:
    """The packed dataset, or its files, with a native random transform, or the plain one."""
    if form == "plain":
        return Numbers()
    if form == "files":
        from torchvision import datasets, transforms

        transform = transforms.Compose(
            [transforms.RandomResizedCrop(8), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
        )
        return datasets.ImageFolder(str(Path(packed).parent / "src"), transform)
    return PackedDataset(packed, transform=[T.RandomResizedCrop(8), T.RandomHorizontalFlip(), T.ToFloat()])


def loader_of(form: str, packed: str | Path, **options: Any) -> FastLoader:
    """A FastLoader over any form with two workers, batches of 5."""
    return FastLoader(dataset_of(form, packed), **{"batch_size": 5, "num_workers": 2, **options})


def runs_as_it_should(form: str, loader: FastLoader) -> bool:
    """Whether native threads read what they can: packed data, and files in place, which explain() says."""
    found = f"native, on {COUNT} files in place" in loader.explain(all=True)
    return found == (form == "files") and (loader.stats()["engine"] == "threads") == (form != "plain")


class Net(torch.nn.Module):
    """Enough of a model to train: the mean of an image, times a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(images.float().mean(dim=(2, 3)))
        return out


def accumulated(
    accelerator: Any, model: Any, optimizer: Any, loader: Any
) -> Iterator[tuple[torch.Tensor, bool]]:
    """Trains for an epoch under accelerator.accumulate; of each batch its labels, and whether the
    gradients were applied at it."""
    for images, labels in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(images).sum())
            optimizer.step()
            optimizer.zero_grad()
        yield labels, accelerator.sync_gradients


def write_report(folder: str | Path, rank: int, report: dict[str, Any]) -> None:
    """Leaves what a rank saw for the test to read."""
    path = Path(folder) / f"rank{rank}.json"
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_text(json.dumps(report))
    part.rename(path)
