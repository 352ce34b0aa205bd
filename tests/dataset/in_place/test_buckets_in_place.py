"""BucketBatchSampler over files in place: sizes by a pass over their headers, before anything is decoded."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pictures import photo
from PIL import Image
from torch.utils.data import ConcatDataset, Subset
from torchvision import datasets, transforms

import fastload
from fastload import BucketBatchSampler, FastLoader
from fastload.dataset.in_place import listed
from fastload.errors import ArgumentError, DatasetError
from fastload.sampling.buckets import _sizes_of

SHAPES = ((40, 60), (60, 40), (50, 50), (30, 90), (64, 56))
KINDS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
STEPS = transforms.Compose([transforms.CenterCrop(24), transforms.PILToTensor()])


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """30 images of five shapes and six formats."""
    for number in range(30):
        kind = KINDS[number % len(KINDS)]
        path = tmp_path / "tree" / f"class{number % 3}" / f"{number:02}.{kind.lower().replace('jpeg', 'jpg')}"
        path.parent.mkdir(parents=True, exist_ok=True)
        photo(number, *SHAPES[number % len(SHAPES)]).save(path, kind)
    for path in (tmp_path / "tree").rglob("*.gif"):  # ImageFolder takes none
        path.unlink()
    return tmp_path / "tree"


def by_pillow(paths: list[str]) -> list[tuple[int, int]]:
    found = []
    for path in paths:
        with Image.open(path) as image:
            found.append(image.size[::-1])
    return found


def found(dataset: Any) -> list[tuple[int, int]]:
    return list(zip(*(each.tolist() for each in _sizes_of(dataset)), strict=True))


def test_sizes_are_those_of_the_headers(tree: Path) -> None:
    """Whatever the dataset's transform is; of parts of datasets, and of a list of files."""
    whole = datasets.ImageFolder(str(tree), transform=lambda image: image)
    paths = [path for path, _ in whole.samples]
    wanted = by_pillow(paths)
    assert found(whole) == wanted
    assert found(Subset(whole, [7, 2, 2])) == [wanted[7], wanted[2], wanted[2]]
    assert found(ConcatDataset([whole, fastload.Images(paths[:5], None)])) == wanted + wanted[:5]


def test_parts_of_files(tmp_path: Path) -> None:
    """Members of a tar."""
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for number, (height, width) in enumerate(SHAPES):
            out = io.BytesIO()
            photo(number, height, width).save(out, "JPEG")
            for name, data in ((f"{number}.jpg", out.getvalue()), (f"{number}.cls", b"1")):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    assert found(fastload.read(str(tmp_path / "a.tar"))) == list(SHAPES)


def test_a_long_header(tmp_path: Path) -> None:
    """The size stands behind more than the bytes that are read first."""
    path = tmp_path / "class" / "a.jpg"
    path.parent.mkdir()
    out = io.BytesIO()
    photo(1, 40, 60).save(out, "JPEG")
    comment = b"\xff\xfe\xff\xff" + bytes(65533)
    path.write_bytes(out.getvalue()[:2] + 2 * comment + out.getvalue()[2:])
    assert listed.HEAD < path.stat().st_size
    assert found(datasets.ImageFolder(str(tmp_path))) == [(40, 60)]


def test_bad_files_are_errors_of_their_samples(tree: Path) -> None:
    """What is no image, and what is gone, has no size, and is left to on_error=; what cannot be read for
    another reason is named at once."""
    dataset = datasets.ImageFolder(str(tree), STEPS)
    paths = [path for path, _ in dataset.samples]
    wanted = by_pillow(paths)
    Path(paths[3]).write_bytes(b"no image")
    os.unlink(paths[5])
    wanted[3] = wanted[5] = (0, 0)
    assert found(dataset) == wanted
    batches = BucketBatchSampler(dataset, 4, seed=1)
    with FastLoader(dataset, batch_sampler=batches, num_workers=2, on_error="skip") as loader:
        assert sum(len(images) for images, _ in loader) == len(paths) - 2
    os.symlink(os.path.basename(paths[5]), paths[5])
    with pytest.raises(DatasetError, match=r"its size cannot be read: Too many levels of symbolic links"):
        BucketBatchSampler(dataset, 4)


def test_batches_of_one_bucket(tree: Path) -> None:
    """Each sample once; the loader's samples are those of the dataset."""
    dataset = datasets.ImageFolder(str(tree), STEPS)
    batches = BucketBatchSampler(dataset, 3, seed=5)
    shapes = found(dataset)
    lists = list(batches)
    assert sorted(index for batch in lists for index in batch) == list(range(len(dataset)))
    for batch in lists:
        assert len({batches.buckets[index] for index in batch}) == 1
    assert (
        batches.buckets.tolist()
        == np.searchsorted(
            fastload.sampling.buckets.ASPECT_EDGES, [width / height for height, width in shapes], side="right"
        ).tolist()
    )
    with FastLoader(dataset, batch_sampler=batches, num_workers=2) as loader:
        for batch, (images, labels) in zip(lists, loader, strict=True):
            assert labels.tolist() == [dataset.targets[index] for index in batch]
            assert torch.equal(images, torch.stack([dataset[index][0] for index in batch]))


def test_a_dataset_of_ones_own_is_asked_for_numbers(tree: Path) -> None:
    class Own(datasets.ImageFolder):
        def __getitem__(self, index: int) -> Any:
            return super().__getitem__(index)

    with pytest.raises(ArgumentError, match=r"its images' sizes.*__getitem__ of its own.*give by="):
        BucketBatchSampler(Own(str(tree)), 4)
