"""fastload.Images: images without labels in place, by native threads, with the pixels that Pillow and
torch give."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Subset

import fastload
from fastload import FastLoader
from fastload.errors import ArgumentError

v2 = pytest.importorskip("torchvision.transforms.v2")
COUNT = 7


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of JPEGs, one of them a folder deeper, and a file that is none."""
    rng = np.random.default_rng(0)
    (tmp_path / "in" / "deep").mkdir(parents=True)
    for index in range(COUNT):
        path = tmp_path / "in" / ("deep" if index == 2 else "") / f"{index}.jpg"
        Image.fromarray(rng.integers(0, 256, (20 + index, 24, 3), dtype=np.uint8)).save(path)
    (tmp_path / "in" / "notes.txt").touch()
    return tmp_path / "in"


def steps() -> Any:
    return v2.Compose([v2.CenterCrop(16), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])


@pytest.mark.parametrize("given", ["folder", "paths"])
def test_native_and_equal(folder: Path, given: str) -> None:
    """Batches are those of torch's DataLoader, made by native threads; Subset and pickles too."""
    paths = [folder / f"{n}.jpg" for n in (5, 0, 1, 3, 4, 6)] + [folder / "deep" / "2.jpg"]
    dataset = fastload.Images(folder if given == "folder" else paths, steps())
    assert len(dataset) == COUNT
    for data in (dataset, Subset(dataset, [6, 0, 3]), pickle.loads(pickle.dumps(dataset))):
        with FastLoader(data, batch_size=4, num_workers=2) as loader:
            batches = list(loader)
            assert loader.stats()["engine"] == "threads"
        for (images, index), (wanted, numbers) in zip(batches, DataLoader(data, batch_size=4), strict=True):
            assert torch.equal(images, wanted)
            assert torch.equal(index, numbers)


def test_samples(folder: Path) -> None:
    """A sample is the image, without a transform Pillow's, and its place in `paths`; negative indices
    count from the end."""
    dataset = fastload.Images(folder)
    image, index = dataset[-1]
    assert dataset.paths[index] == str(folder / "deep" / "2.jpg")
    assert (image.mode, image.size, index) == ("RGB", (24, 22), COUNT - 1)
    with pytest.raises(IndexError):
        dataset[COUNT]


@pytest.mark.parametrize(
    "steps", [fastload.transforms.CenterCrop(16), [fastload.transforms.CenterCrop(16)]], ids=["step", "list"]
)
def test_transforms_that_only_a_loader_runs(folder: Path, steps: Any) -> None:
    """fastload's own: a loader makes batches, and the dataset itself says so in a sentence."""
    images = fastload.Images(folder, steps)
    assert [len(batch) for batch, _ in FastLoader(images, batch_size=COUNT)] == [COUNT]
    with pytest.raises(TypeError, match=r"CenterCrop\(.*is run by FastLoader alone: iterate FastLoader"):
        images[0]


def test_own_code_runs(folder: Path) -> None:
    """A subclass with a __getitem__ of its own runs in processes, and explain() says why."""

    class Mine(fastload.Images):
        def __getitem__(self, index: int) -> Any:
            return super().__getitem__(index)[0]

    loader = FastLoader(Mine(folder, steps()), batch_size=COUNT, num_workers=0)
    [images] = loader
    assert images.shape == (COUNT, 3, 16, 16)
    assert "has a __getitem__ of its own" in loader.explain(all=True)


@pytest.mark.parametrize("given", ["empty", "none"])
def test_nothing(tmp_path: Path, given: str) -> None:
    """A folder without an image, and an empty list, are errors that say so."""
    with pytest.raises(ArgumentError, match=r"no image in it|no paths"):
        fastload.Images(tmp_path if given == "empty" else [])
