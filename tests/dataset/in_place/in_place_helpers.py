"""What the tests of datasets of files share: folders as torchvision's datasets want them, and samples by
torch's own loader."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from pictures import photo
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

from fastload import FastLoader

COUNT = 12
EXACT = transforms.Compose([transforms.CenterCrop((60, 80)), transforms.PILToTensor()])
"""Nothing is resampled: what Pillow decodes is what a batch holds."""


def save(path: Path, number: int, **options: Any) -> Path:
    """Picture `number`, of a size of its own, as a JPEG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    photo(number, 70 + number % 30, 90 + number % 40).save(path, "JPEG", **{"quality": 90, **options})
    return path


def image_folder(root: Path, count: int = COUNT, classes: int = 3) -> Path:
    """An ImageFolder of `count` small JPEGs."""
    for number in range(count):
        save(root / f"class{number % classes}" / f"{number:03d}.jpg", number)
    return root


def folder(root: Path, **options: Any) -> Any:
    """ImageFolder."""
    return datasets.ImageFolder(str(image_folder(root)), **options)


def dataset_folder(root: Path, **options: Any) -> Any:
    """DatasetFolder with torchvision's loader."""
    return datasets.DatasetFolder(
        str(image_folder(root)), datasets.folder.default_loader, (".jpg",), **options
    )


def eurosat(root: Path, **options: Any) -> Any:
    """EuroSAT, which derives from ImageFolder."""
    image_folder(root / "eurosat" / "2750")
    return datasets.EuroSAT(str(root), **options)


def imagenet(root: Path, **options: Any) -> Any:
    """ImageNet's validation set."""
    names = [f"n0000000{number}" for number in range(3)]
    for number in range(COUNT):
        save(root / "val" / names[number % 3] / f"{number}.JPEG", number)
    torch.save(({name: (name, "thing") for name in names}, []), root / "meta.bin")
    return datasets.ImageNet(str(root), "val", **options)


def food(root: Path, **options: Any) -> Any:
    """Food101."""
    meta = {f"dish{label}": [f"dish{label}/{number}" for number in range(4)] for label in range(3)}
    for number, name in enumerate(name for names in meta.values() for name in names):
        save(root / "food-101" / "images" / f"{name}.jpg", number)
    (root / "food-101" / "meta").mkdir()
    (root / "food-101" / "meta" / "train.json").write_text(json.dumps(meta))
    return datasets.Food101(str(root), **options)


def pets(root: Path, **options: Any) -> Any:
    """OxfordIIITPet."""
    base = root / "oxford-iiit-pet"
    names = [f"Cat_{number}" for number in range(COUNT)]
    for number, name in enumerate(names):
        save(base / "images" / f"{name}.jpg", number)
    (base / "annotations").mkdir()
    (base / "annotations" / "trainval.txt").write_text(
        "".join(f"{name} {1 + n % 3} 1 1\n" for n, name in enumerate(names))
    )
    return datasets.OxfordIIITPet(str(root), **options)


def flowers(root: Path, **options: Any) -> Any:
    """Flowers102, whose check of the files' sums is passed over."""
    from scipy.io import savemat

    base = root / "flowers-102"
    for number in range(COUNT):
        save(base / "jpg" / f"image_{number + 1:05d}.jpg", number)
    savemat(base / "setid.mat", {"trnid": [range(1, COUNT + 1)], "valid": [[1]], "tstid": [[1]]})
    savemat(base / "imagelabels.mat", {"labels": [[1 + number % 5 for number in range(COUNT)]]})
    check, datasets.Flowers102._check_integrity = datasets.Flowers102._check_integrity, lambda self: True
    try:
        return datasets.Flowers102(str(root), **options)
    finally:
        datasets.Flowers102._check_integrity = check


def cars(root: Path, **options: Any) -> Any:
    """StanfordCars, whose labels are NumPy's integers."""
    import numpy as np
    from scipy.io import savemat

    base = root / "stanford_cars"
    annotations = np.array(
        [(f"{n}.jpg", 1 + n % 4) for n in range(COUNT)], dtype=[("fname", object), ("class", "u1")]
    )
    for number in range(COUNT):
        save(base / "cars_train" / f"{number}.jpg", number)
    (base / "devkit").mkdir()
    savemat(base / "devkit" / "cars_train_annos.mat", {"annotations": annotations})
    savemat(
        base / "devkit" / "cars_meta.mat",
        {"class_names": np.array([f"car{n}" for n in range(4)], dtype=object)},
    )
    return datasets.StanfordCars(str(root), **options)


def naturalist(root: Path, **options: Any) -> Any:
    """INaturalist of 2021, with a loader."""
    for number in range(COUNT):
        label = number % 3
        save(root / "2021_train" / f"{label:05d}_a_b_c_d_e_f_g{label}" / f"{number}.jpg", number)
    return datasets.INaturalist(str(root), loader=datasets.folder.default_loader, **options)


def places(root: Path, **options: Any) -> Any:
    """Places365's validation set, whose check of the lists' sums is passed over."""
    for number in range(COUNT):
        save(root / "val_256" / f"{number}.jpg", number)
    (root / "categories_places365.txt").write_text("/a/one 0\n/b/two 1\n")
    (root / "places365_val.txt").write_text(
        "".join(f"{number}.jpg {number % 2}\n" for number in range(COUNT))
    )
    check, datasets.Places365._check_integrity = (
        datasets.Places365._check_integrity,
        lambda self, file, md5, download: True,
    )
    try:
        return datasets.Places365(str(root), "val", small=True, **options)
    finally:
        datasets.Places365._check_integrity = check


KNOWN: dict[str, Callable[..., Any]] = {
    each.__name__: each
    for each in (folder, dataset_folder, eurosat, imagenet, food, pets, flowers, cars, naturalist, places)
}


def batches(loader: Any) -> list[Any]:
    """All batches, copied."""
    return [[part.clone() for part in batch] for batch in loader]


def assert_as_torch(dataset: Any, **options: Any) -> FastLoader[Any]:
    """A native epoch holds the batches of torch's own loader, to the bit; returns the loader."""
    options = {"batch_size": 5, **options}
    loader: FastLoader[Any] = FastLoader(dataset, num_workers=2, engine="native", **options)
    ours, theirs = batches(loader), batches(DataLoader(dataset, **options))
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert type(mine) is type(other)
        for a, b in zip(mine, other, strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            assert torch.equal(a, b)
    return loader


def assert_resampled_alike(dataset: Any) -> None:
    """Native threads decode every file, and no value differs from torchvision's by more than 1."""
    with FastLoader(dataset, batch_size=len(dataset), num_workers=2) as loader:
        ((images, _),) = loader
        assert loader.stats()["loaded"] == 0
    for (theirs, _), ours in zip(dataset, images, strict=True):
        assert (theirs.int() - ours.int()).abs().max() <= 1


def without(root: Path, *names: str) -> None:
    """Removes files of a folder's first class."""
    for name in names:
        path = root / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
