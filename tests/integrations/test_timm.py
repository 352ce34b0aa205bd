"""timm's PrefetchLoader and its collate functions around a FastLoader."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from integration_helpers import Drawn, runs_as_torchs
from numbers_data import COUNT, FORMS, loader_of
from torch.utils.data import DataLoader, RandomSampler

from fastload import FastLoader, PackedDataset
from fastload import transforms as T

timm_loader = pytest.importorskip(
    "timm.data.loader", reason="timm is not installed, or torchvision, which it imports"
)
timm_mixup = pytest.importorskip("timm.data.mixup")
timm_data = pytest.importorskip("timm.data")

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def bytes_loader(packed: Path, **options: object) -> FastLoader:
    """uint8 batches of a seeded random transform: what PrefetchLoader expects of its loader."""
    dataset = PackedDataset(packed, transform=[T.RandomResizedCrop(16), T.RandomHorizontalFlip()])
    return FastLoader(dataset, **{"batch_size": 5, "num_workers": 2, "shuffle": True, "seed": 4, **options})  # type: ignore[arg-type]


def test_packed_batches_are_normalised(numbered: Path) -> None:
    """PrefetchLoader over packed data gives every batch, (pixels - mean) / std, and leaves the loader's
    own batches alone."""
    with bytes_loader(numbered) as loader, bytes_loader(numbered) as plain:
        prefetch = timm_loader.PrefetchLoader(loader, mean=MEAN, std=STD, device=torch.device("cpu"))
        assert len(prefetch) == len(loader) == 10
        assert prefetch.dataset is loader.dataset
        assert isinstance(prefetch.sampler, RandomSampler)
        mean, std = (torch.tensor([255 * x for x in v]).view(1, 3, 1, 1) for v in (MEAN, STD))
        for epoch in range(2):
            got = list(prefetch)
            expected = list(plain)
            assert sorted(int(label) for _, labels in got for label in labels) == list(range(COUNT)), epoch
            for (images, labels), (raw, same) in zip(got, expected, strict=True):
                assert raw.dtype == torch.uint8
                assert torch.equal(labels, same)
                assert torch.equal(images, raw.to(torch.float32).sub(mean).div(std))


def test_plain_dataset(numbered: Path, no_children: None) -> None:
    """PrefetchLoader over an ordinary Dataset in worker processes, against the same over torch's
    DataLoader."""
    loader = loader_of("plain", numbered)
    torchs = DataLoader(loader.dataset, batch_size=5)
    mine, theirs = (timm_loader.PrefetchLoader(each, device=torch.device("cpu")) for each in (loader, torchs))
    for (images, labels), (expected, same) in zip(mine, theirs, strict=True):
        assert torch.equal(images, expected)
        assert torch.equal(labels, same)
    loader.close()


@pytest.mark.parametrize("form", FORMS)
def test_fast_collate(numbered: Path, form: str) -> None:
    """timm's own collate_fn sees samples as tuples, and its batches equal the loader's."""
    plain, collated = (
        bytes_loader(numbered) if form == "packed" else loader_of(form, numbered) for _ in range(2)
    )
    collated.close()
    collated.collate_fn = timm_loader.fast_collate
    for (images, labels), (expected, same) in zip(collated, plain, strict=True):
        assert images.dtype == torch.uint8
        assert torch.equal(images, expected.to(torch.uint8))
        assert torch.equal(labels, same)
    collated.close()
    plain.close()


@pytest.mark.parametrize("form", FORMS)
def test_mixup_switches_off(numbered: Path, form: str) -> None:
    """PrefetchLoader.mixup_enabled reaches the collate_fn of a running FastLoader, in the next epoch."""
    collate = timm_mixup.FastCollateMixup(mixup_alpha=1.0, num_classes=COUNT, label_smoothing=0.0)
    loader = (
        bytes_loader(numbered, batch_size=8, collate_fn=collate)
        if form == "packed"
        else loader_of(form, numbered, batch_size=8, collate_fn=collate)
    )
    prefetch = timm_loader.PrefetchLoader(loader, device=torch.device("cpu"))
    assert prefetch.mixup_enabled
    assert any((targets.max(dim=1).values < 1).any() for _, targets in prefetch)
    prefetch.mixup_enabled = False
    for _, targets in prefetch:
        assert torch.equal(targets.max(dim=1).values, torch.ones(8))
    loader.close()


def test_pixels_kept_by_a_user_stay(numbered: Path) -> None:
    """PrefetchLoader holds a batch back while it fetches the next; list() of it keeps each as it was."""
    with bytes_loader(numbered) as loader, bytes_loader(numbered) as plain:
        kept = list(
            timm_loader.PrefetchLoader(loader, mean=(0.0,), std=(1 / 255,), device=torch.device("cpu"))
        )
        for (images, _), (raw, _) in zip(kept, plain, strict=True):
            assert torch.allclose(images, raw.to(torch.float32), atol=1e-4)


def same_batches(mine: FastLoader, dataset: object) -> bool:
    """Whether an epoch is that of torch's DataLoader over the same dataset."""
    theirs = list(DataLoader(dataset, batch_size=5))  # type: ignore[arg-type]
    return all(
        torch.equal(a, b)
        for mine, other in zip(mine, theirs, strict=True)
        for a, b in zip(mine, other, strict=True)
    )


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # of files that ImageDataset opens
def test_timms_own_dataset_runs_in_processes(numbered: Path, no_children: None) -> None:
    """What create_dataset makes of a folder is a class of timm's: FastLoader runs it as it is, with timm's
    transform."""
    dataset = timm_data.create_dataset("", root=str(numbered.parent / "src"))
    dataset.transform = timm_data.create_transform(input_size=16, is_training=False)
    loader = FastLoader(dataset, batch_size=5, num_workers=2)
    assert "ImageDataset is a map-style Dataset of Python" in loader.explain(all=True)
    assert same_batches(loader, dataset)
    loader.close()


def test_torchvisions_folder_from_timm(numbered: Path, no_children: None) -> None:
    """create_dataset("torch/image_folder") makes torchvision's ImageFolder: native with torchvision's
    transform, Python with timm's."""
    transforms = pytest.importorskip("torchvision.transforms")
    dataset = timm_data.create_dataset("torch/image_folder", root=str(numbered.parent / "src"), split="none")
    dataset.transform = timm_data.create_transform(input_size=16, is_training=False)
    loader = FastLoader(dataset, batch_size=5, num_workers=2)
    assert "not read in place: MaybeToTensor at position 3 is Python" in loader.explain(all=True)
    assert same_batches(loader, dataset)
    dataset.transform = transforms.Compose(
        [transforms.CenterCrop(16), transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    )
    assert f"native, on {COUNT} files in place" in loader.explain(all=True)
    assert same_batches(loader, dataset)
    loader.close()


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # of files that ImageDataset opens
@pytest.mark.parametrize(
    "options",
    [
        {"color_jitter": None, "interpolation": "random"},
        {},
        {"auto_augment": "rand-m9-mstd0.5-inc1", "re_prob": 0.3},
        {"use_prefetcher": False, "train_crop_mode": "rkrc"},
        {"is_training": False, "crop_pct": 0.9},
    ],
    ids=["geometry", "default", "randaugment", "no prefetcher", "evaluation"],
)
def test_create_loader(
    numbered: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, object],
    no_children: None,
) -> None:
    """timm's create_loader around FastLoader gives the batches of torch's DataLoader bit for bit, with its
    own dataset and transforms, and no step of them makes a Pillow image."""
    made = []
    for kind in (FastLoader, DataLoader):
        monkeypatch.setattr(timm_loader, "MultiEpochsDataLoader", kind)
        dataset = timm_data.create_dataset("", root=str(numbered.parent / "src"))
        settings = {
            "is_training": True,
            "num_workers": 2,
            "device": torch.device("cpu"),
            "persistent_workers": False,
            **options,
        }
        loader = timm_data.create_loader(dataset, 24, 8, use_multi_epochs_loader=True, **settings)
        inner = getattr(loader, "loader", loader)
        assert type(inner) is kind
        made.append((loader, inner))
    (mine, inner), (torchs, _) = made
    told = runs_as_torchs(Closing(mine, inner), torchs)
    assert f"Pillow images are lazy (exact); {2 * COUNT} JPEGs opened" in told
    assert "made a Pillow image" not in told


class Closing:
    """A loader of timm's with the methods of the FastLoader in it."""

    def __init__(self, outer: object, inner: FastLoader) -> None:
        self._outer, self.explain, self.close = outer, inner.explain, inner.close

    def __iter__(self) -> object:
        return iter(self._outer)  # type: ignore[call-overload]


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # of files that ImageDataset opens
def test_generators_after_timms_transform(numbered: Path, no_children: None) -> None:
    """Python's, NumPy's and torch's generators stand in the workers where torch's DataLoader leaves them."""
    dataset = timm_data.create_dataset("", root=str(numbered.parent / "src"))
    dataset.transform = Drawn(
        timm_data.create_transform(
            24, is_training=True, auto_augment="rand-m9-mstd0.5", interpolation="random"
        )
    )
    options = {"batch_size": 7, "shuffle": True, "num_workers": 2}
    runs_as_torchs(FastLoader(dataset, **options), DataLoader(dataset, **options))
