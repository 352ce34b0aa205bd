"""Advice on real loaders: the facts from which it follows are those of the dataset, the transform and the
stored images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset
from torchvision import datasets, transforms

import fastload
from fastload import FastLoader, PackedDataset
from fastload import transforms as T
from fastload.health import advise

CROP = [T.RandomResizedCrop(224)]


def photos(folder: Path, side: int = 450) -> Path:
    """Twelve JPEGs in two class folders, whose longer side is `side`."""
    for number in range(12):
        path = folder / f"c{number % 2}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (side, 2 * side // 3), (20 * number, 0, 0)).save(path)
    return folder


def packed(folder: Path, side: int = 450) -> Path:
    fastload.pack(photos(folder / "photos", side), folder / "ds.fl", index=False)
    return folder / "ds.fl"


def advice(dataset: Any, **options: Any) -> str:
    """All advice, had the loop of a second epoch waited 40 % of its time and its workers been busy with
    their slowest stage."""
    options = {"batch_size": 4, "num_workers": 1, **options}
    loader: Any = FastLoader(dataset, **options)
    for _ in loader:
        pass
    for _ in range(1000):  # all that the monitor looks back on
        loader.health.observe(0.00004, 0.00006, 4)
    return "\n".join(advise(loader.health.figures()))


class Squares(Dataset[Any]):
    """A Dataset of Python."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.zeros(3, 8, 8, dtype=torch.uint8)


class Stream(IterableDataset[Any]):
    """An IterableDataset."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(Squares()[number] for number in range(12))


def negative(image: torch.Tensor) -> torch.Tensor:
    return 255 - image


def test_a_python_step_is_named_as_the_cause(tmp_path: Path) -> None:
    """Packed data that Python transforms is packed already: the step is named, and nobody is told to pack."""
    root = packed(tmp_path)
    for engine in (None, "python"):
        text = advice(PackedDataset(root, [*CROP, negative]), engine=engine)
        assert "negative at position 2 is Python" in text
        assert "pack" not in text


@pytest.mark.parametrize(
    ("make", "wanted", "unwanted"),
    [
        (lambda root: datasets.ImageFolder(root, transforms.Compose([transforms.RandomResizedCrop(64),
        transforms.ToTensor(), negative])),
         "ImageFolder is not read in place: negative at position 3 is Python", "fastload pack"),
        (lambda root: datasets.ImageFolder(root, transforms.ToTensor(), target_transform=int),
         "its target_transform is Python; change that, or pack the dataset (fastload pack)",
         "batch_transform"),
        (lambda root: Squares(), "pack the dataset (fastload pack)", "in place"),
        (lambda root: Stream(), "make it a map-style Dataset, and pack", "seed_by"),
    ],
)  # fmt: skip
def test_the_reason_for_the_engine_is_what_is_to_be_changed(
    tmp_path: Path, make: Callable[[Path], Any], wanted: str, unwanted: str
) -> None:
    """A dataset that native threads do not read is packed only where packing would change the engine."""
    text = advice(make(photos(tmp_path)))
    assert wanted in text
    assert unwanted not in text


def test_engine_python_is_left_out(tmp_path: Path) -> None:
    """Where engine="python" is the only reason, that argument is what to change."""
    text = advice(PackedDataset(packed(tmp_path), CROP), engine="python")
    assert 'leave out engine="python"' in text
    assert "fastload pack" not in text


@pytest.mark.parametrize(("side", "advised"), [(450, False), (1200, True)])
@pytest.mark.parametrize("in_place", [False, True])
def test_smaller_images_are_advised_where_there_are_larger_ones(
    tmp_path: Path, side: int, advised: bool, in_place: bool
) -> None:
    """--max-side is advised for images that are larger than it, packed or in place, and not for 450 pixels
    that are cropped to 224."""
    root = packed(tmp_path, side)
    folder = transforms.Compose([transforms.RandomResizedCrop(224), transforms.ToTensor()])
    text = advice(
        datasets.ImageFolder(tmp_path / "photos", folder) if in_place else PackedDataset(root, CROP)
    )
    assert ("--max-side 500" in text) == advised, text


def test_masks_are_not_packed_smaller(tmp_path: Path) -> None:
    """pack refuses --max-side where masks lie in the images' pixels, so it is not advised."""

    for name, picture in (
        ("images/0.jpg", Image.new("RGB", (1200, 800))),
        ("masks/0.png", Image.new("L", (1200, 800))),
    ):
        (tmp_path / name).parent.mkdir()
        picture.save(tmp_path / name)
    fastload.pack(tmp_path / "images", tmp_path / "ds.fl", masks=tmp_path / "masks")
    assert "--max-side" not in advice(PackedDataset(tmp_path / "ds.fl", CROP, fields=("image",)))


def test_before_the_first_step(tmp_path: Path) -> None:
    """A loader's own monitor cannot be iterated: the loader is what to iterate."""
    loader: Any = FastLoader(Squares(), batch_size=4)
    assert "iterate the loader" in "".join(advise(loader.health.figures()))
