"""Which datasets of torchvision native threads read in place, and why others are not
(fastload/dataset/in_place/known.py)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from in_place_helpers import EXACT, KNOWN, assert_as_torch, batches, folder, image_folder, save
from torch.utils.data import ConcatDataset, DataLoader, Subset
from torchvision import datasets, transforms
from torchvision.transforms import v2

import fastload
from fastload import FastLoader, PackedDataset
from fastload import transforms as T
from fastload.errors import ArgumentError


@pytest.mark.parametrize("name", list(KNOWN))
def test_samples_are_those_of_the_dataset(tmp_path: Path, name: str) -> None:
    dataset = KNOWN[name](tmp_path, transform=EXACT)
    loader = assert_as_torch(dataset)
    assert f"native, on {len(dataset)} files in place" in loader.explain(all=True)


@pytest.mark.parametrize("name", ["folder", "cars"])
@pytest.mark.parametrize(
    "options", [{"collate_fn": list}, {"batch_size": None}, {"drop_last": True}, {"sampler": [3, 1, 1]}]
)
def test_other_ways_to_make_batches(tmp_path: Path, name: str, options: dict[str, Any]) -> None:
    dataset = KNOWN[name](tmp_path, transform=EXACT)
    ours = list(FastLoader(dataset, num_workers=2, engine="native", **options))
    theirs = list(DataLoader(dataset, **options))
    assert str(ours) == str(theirs)


def test_subsets_and_several_datasets(tmp_path: Path) -> None:
    one, other = folder(tmp_path / "one", transform=EXACT), folder(tmp_path / "other", transform=EXACT)
    assert_as_torch(Subset(one, [5, 0, 5, 11]))
    assert_as_torch(ConcatDataset([one, Subset(other, range(3)), one]))


@pytest.mark.parametrize(
    "transform",
    [
        transforms.Compose([transforms.Resize((64, 48)), transforms.ToTensor()]),
        transforms.Compose(
            [
                transforms.Resize(70),
                transforms.CenterCrop(64),
                transforms.ToTensor(),
                transforms.Normalize([0.5] * 3, [0.2] * 3),
            ]
        ),
        v2.Compose(
            [v2.Resize((64, 48), antialias=True), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
        ),
    ],
    ids=["v1", "normalised", "v2"],
)
def test_resampled_pixels_are_within_one(tmp_path: Path, transform: Any) -> None:
    dataset = folder(tmp_path, transform=transform)
    ours = torch.cat(
        [batch[0] for batch in FastLoader(dataset, batch_size=4, num_workers=2, engine="native")]
    )
    theirs = torch.cat([batch[0] for batch in DataLoader(dataset, batch_size=4)])
    scale = 1 / 255 / (0.2 if len(getattr(transform, "transforms", ())) == 4 else 1)
    assert ours.dtype == theirs.dtype
    assert (ours - theirs).abs().max() <= scale * 1.01


def test_random_transforms_follow_seed_epoch_and_index(tmp_path: Path) -> None:
    transform = transforms.Compose(
        [transforms.RandomResizedCrop(48), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    )
    dataset = folder(tmp_path, transform=transform)
    fastload.pack(tmp_path, tmp_path / "out.fl")
    packed = PackedDataset(tmp_path / "out.fl", transform=transform)
    epochs = [
        [torch.cat([batch[0] for batch in loader]) for _ in range(2)]
        for loader in (
            FastLoader(dataset, batch_size=4, seed=3, num_workers=2),
            FastLoader(dataset, batch_size=5, seed=3, num_workers=0, engine="native"),
            FastLoader(packed, batch_size=4, seed=3, num_workers=1),
        )
    ]
    assert torch.equal(epochs[0][0], epochs[1][0])
    assert torch.equal(epochs[0][1], epochs[1][1])
    assert torch.equal(epochs[0][0], epochs[2][0])
    assert not torch.equal(epochs[0][0], epochs[0][1])


def test_fastloads_own_transforms(tmp_path: Path) -> None:
    dataset = folder(tmp_path, transform=[T.Resize(60), T.CenterCrop(50)])
    images, labels = next(iter(FastLoader(dataset, batch_size=4, num_workers=1)))
    assert images.shape == (4, 3, 50, 50)
    assert labels.dtype == torch.int64


class OwnItems(datasets.ImageFolder):
    """Its samples are its own affair."""

    def __getitem__(self, index: int) -> Any:
        image, label = super().__getitem__(index)
        return image.float() / 2, label + 1


class OwnClasses(datasets.ImageFolder):
    """Overrides nothing that matters once it is made."""

    def find_classes(self, directory: Any) -> Any:
        names, _ = super().find_classes(directory)
        return names, {name: 7 + number for number, name in enumerate(names)}


class Batched(datasets.ImageFolder):
    """Makes whole batches itself."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in reversed(indices)]


def doubled(label: int) -> int:
    return 2 * label


def own_loader(path: str) -> Any:
    return datasets.folder.pil_loader(path).rotate(90, expand=False)


def darker(image: Any) -> Any:
    return image // 2


SIZES = transforms.Compose([transforms.PILToTensor()])
REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "its own __getitem__": (lambda root: OwnItems(str(root), EXACT), "OwnItems has a __getitem__ of its own"),
    "__getitems__": (lambda root: Batched(str(root), EXACT), "__getitems__ of its own"),
    "target_transform": (lambda root: datasets.ImageFolder(str(root), EXACT, doubled), "target_transform"),
    "loader": (lambda root: datasets.ImageFolder(str(root), EXACT, loader=own_loader), "own_loader"),
    "a Python step": (
        lambda root: datasets.ImageFolder(str(root), transforms.Compose([EXACT, darker])),
        "darker",
    ),
    "Caltech101": (lambda root: caltech(root), "their own mode"),
}


def caltech(root: Path) -> Any:
    """Caltech101, of which some images are grey."""
    for number in range(6):
        save(
            root
            / "caltech101"
            / "101_ObjectCategories"
            / f"kind{number % 2}"
            / f"image_{number // 2 + 1:04d}.jpg",
            number,
        )
    (root / "caltech101" / "101_ObjectCategories" / "BACKGROUND_Google").mkdir()
    for kind in ("kind0", "kind1"):
        (root / "caltech101" / "Annotations" / kind).mkdir(parents=True)
    return datasets.Caltech101(str(root), transform=EXACT)


@pytest.mark.parametrize("name", list(REFUSED))
@pytest.mark.filterwarnings("ignore:multi-threaded")
def test_what_is_not_known_runs_as_under_torch(tmp_path: Path, name: str) -> None:
    make, why = REFUSED[name]
    dataset = make(image_folder(tmp_path))
    if name == "Caltech101":
        pytest.importorskip("scipy")
    loader = FastLoader(dataset, batch_size=4, num_workers=1)
    assert why in loader.explain(all=True)
    assert [str(batch) for batch in loader] == [str(batch) for batch in DataLoader(dataset, batch_size=4)]
    with pytest.raises(ArgumentError, match="engine") as refused:
        FastLoader(dataset, batch_size=4, engine="native")
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("transform", "why"),
    [(None, "Pillow images"), (transforms.CenterCrop(20), "Pillow images"), (SIZES, "different sizes")],
)
def test_what_makes_no_batches_fails_as_under_torch(tmp_path: Path, transform: Any, why: str) -> None:
    dataset = folder(tmp_path, transform=transform)
    loader = FastLoader(dataset, batch_size=4)
    assert why in loader.explain(all=True)
    with pytest.raises((TypeError, RuntimeError)) as theirs:
        next(iter(DataLoader(dataset, batch_size=4)))
    with pytest.raises(theirs.type) as ours:
        next(iter(loader))
    assert str(ours.value) == str(theirs.value)


def test_a_folder_of_other_formats_runs_in_processes(tmp_path: Path) -> None:
    dataset = folder(tmp_path, transform=EXACT)
    dataset.samples = [
        (path if number % 3 else path.replace(".jpg", ".bmp"), label)
        for number, (path, label) in enumerate(dataset.samples)
    ]
    assert "8 of its 12 files are JPEGs, PNGs or WebPs" in FastLoader(dataset).explain(all=True)


def test_packed_and_loose_together_run_in_python(tmp_path: Path) -> None:
    fastload.pack(image_folder(tmp_path / "tree"), tmp_path / "out.fl")
    both = ConcatDataset(
        [PackedDataset(tmp_path / "out.fl", EXACT), folder(tmp_path / "tree", transform=EXACT)]
    )
    assert [str(batch) for batch in batches(FastLoader(both, 4))] == [
        str(batch) for batch in batches(DataLoader(both, 4))
    ]


def test_a_subclass_that_overrides_nothing_of_a_sample(tmp_path: Path) -> None:
    dataset = OwnClasses(str(image_folder(tmp_path)), EXACT)
    assert set(dataset.targets) == {7, 8, 9}
    assert_as_torch(dataset)


def test_engine_python_is_torch_to_the_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transform = transforms.Compose([transforms.RandomResizedCrop(40), transforms.ToTensor()])
    dataset = folder(tmp_path, transform=transform)
    options: dict[str, Any] = {"batch_size": 4, "shuffle": True, "num_workers": 2}
    found = []
    for make in (DataLoader, lambda *a, **k: FastLoader(*a, **k, engine="python"), FastLoader):
        monkeypatch.setenv("FASTLOAD_ENGINE", "python")
        torch.manual_seed(5)
        found.append(batches(make(dataset, **options)))
    assert str(found[0]) == str(found[1]) == str(found[2])


def test_engine_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = folder(tmp_path, transform=EXACT)
    with pytest.raises(ArgumentError, match="engine='fast'"):
        FastLoader(dataset, engine="fast")  # type: ignore[arg-type]
    monkeypatch.setenv("FASTLOAD_ENGINE", "slow")
    with pytest.raises(ArgumentError, match="FASTLOAD_ENGINE"):
        FastLoader(dataset)
    assert FastLoader(dataset, engine="auto").engine == "auto"
    monkeypatch.setenv("FASTLOAD_ENGINE", "")  # as unset
    assert FastLoader(dataset).engine == "auto"


def test_engine_on_packed_data(tmp_path: Path) -> None:
    fastload.pack(image_folder(tmp_path / "tree"), tmp_path / "out.fl")
    packed = PackedDataset(tmp_path / "out.fl", EXACT)
    native, python = FastLoader(packed, 4, engine="native"), FastLoader(packed, 4, engine="python")
    assert [str(batch) for batch in batches(native)] == [str(batch) for batch in batches(python)]
    assert native.stats()["engine"] == "threads"
    assert python.stats()["engine"] != "threads"
    assert 'engine="python" was asked for' in python.explain(all=True)
    with pytest.raises(ArgumentError, match='engine="native" was asked for'):
        FastLoader(list(range(4)), engine="native")


def test_views_of_files_in_place(tmp_path: Path) -> None:
    """lightly's MultiViewTransform: native threads make each view that torch's loader would."""
    views = pytest.importorskip("lightly.transforms.multi_view_transform").MultiViewTransform
    smaller = transforms.Compose([transforms.CenterCrop((24, 32)), transforms.PILToTensor()])
    dataset = folder(tmp_path, transform=views([EXACT, smaller, EXACT]))
    ours = list(FastLoader(dataset, batch_size=5, num_workers=2, engine="native"))
    for (made, labels), (expected, others) in zip(ours, DataLoader(dataset, batch_size=5), strict=True):
        assert torch.equal(labels, others)
        assert len(made) == len(expected) == 3
        assert all(map(torch.equal, made, expected))
