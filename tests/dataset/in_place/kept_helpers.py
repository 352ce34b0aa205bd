"""A loader of files in place with a cache, and what is in it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from in_place_helpers import EXACT
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

from fastload import FastLoader
from fastload.dataset.in_place.torchvision import FileDataset
from fastload.dataset.kept_files import KeptFiles

COUNT = 9
"""Pictures of the tree."""


def loader_of(tree: Path, cache: Path | str | None, **options: Any) -> FastLoader[Any]:
    dataset = datasets.ImageFolder(str(tree), EXACT)
    return FastLoader(dataset, batch_size=4, num_workers=2, engine="native", cache=cache, **options)


def kept_of(loader: FastLoader[Any]) -> KeptFiles:
    native = loader._fastload.read(loader).native
    assert native is not None
    assert isinstance(native.datasets[0], FileDataset)
    _ = native.datasets[0]._listed.files
    kept = native.datasets[0]._listed._kept
    assert kept is not None
    return kept


def known(loader: FastLoader[Any]) -> tuple[int, int]:
    """Files that are known, and those whose bytes are kept."""
    facts, whole, _ = kept_of(loader)._table.entries()
    return facts, whole


def images(loader: Any) -> torch.Tensor:
    return torch.cat([batch[0] for batch in loader])


def folder_of(cache: Path) -> Path:
    """The one dataset's folder of a cache."""
    (path,) = (each for each in cache.iterdir() if each.is_dir())
    return path


def of_kind(cache: Path, suffix: str) -> list[Path]:
    return sorted(folder_of(cache).glob(f"*.{suffix}"))


def log_of(cache: Path) -> Path:
    """The one log of what is not passing."""
    (path,) = (each for each in of_kind(cache, "log") if int(each.stem) % 2 == 0)
    return path


def logs_are_cut(cache: Path) -> bool:
    """Waits until what was learnt of images is needed no more, and given back."""
    odd = [each for each in of_kind(cache, "log") if int(each.stem) % 2]
    deadline = time.monotonic() + 30
    while any(each.stat().st_size for each in odd) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not any(each.stat().st_size for each in odd)


def forms(loader: FastLoader[object]) -> int:
    """Images whose DCT form is kept."""
    return kept_of(loader)._table.entries()[2]


def come(loader: FastLoader[object], count: int = COUNT) -> bool:
    """Waits until the forms of so many images are there."""
    deadline = time.monotonic() + 30
    while forms(loader) != count and time.monotonic() < deadline:
        time.sleep(0.01)
    return forms(loader) == count


def used(loader: FastLoader[object]) -> int:
    """Images that were decoded from their form."""
    return kept_of(loader)._table.counts()["forms_found"]


def expected(tree: Path) -> torch.Tensor:
    return images(DataLoader(datasets.ImageFolder(str(tree), EXACT)))


def crops_of(tree: Path, cache: Path | None) -> FastLoader[Any]:
    """A loader of random crops, which draws the same of the same files."""
    steps = transforms.Compose([transforms.RandomResizedCrop(64), transforms.PILToTensor()])
    dataset = datasets.ImageFolder(str(tree), steps)
    return FastLoader(dataset, batch_size=4, num_workers=2, engine="native", seed=3, cache=cache)
