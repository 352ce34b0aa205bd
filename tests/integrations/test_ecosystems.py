"""ignite, MONAI, torch_geometric, skorch, lightly and Hugging Face's datasets over a FastLoader: what each
alone does to a loader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from integration_helpers import Drawn, runs_as_torchs
from numbers_data import COUNT, FORMS, Net, Numbers, loader_of

from fastload import FastLoader

EVERY = list(range(COUNT))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("workers", [0, 2])
def test_ignite_deterministic(numbered: Path, form: str, workers: int, no_children: None) -> None:
    """ignite's DeterministicEngine makes the loader anew from its public attributes, around a sampler of its
    own: every sample comes once an epoch, and a second run of the same seed has the same order."""
    deterministic = pytest.importorskip("ignite.engine.deterministic")
    runs = []
    for _ in range(2):
        seen: list[int] = []
        trainer = deterministic.DeterministicEngine(
            lambda _, batch, seen=seen: seen.extend(batch[1].tolist())
        )
        loader = loader_of(form, numbered, shuffle=True, num_workers=workers)
        torch.manual_seed(5)
        trainer.run(loader, max_epochs=2)
        assert type(trainer.state.dataloader) is FastLoader
        trainer.state.dataloader.close()
        loader.close()
        runs.append(seen)
    assert sorted(runs[0][:COUNT]) == sorted(runs[0][COUNT:]) == EVERY
    assert runs[0] == runs[1]


@pytest.mark.parametrize("workers", [0, 2])
def test_monai(workers: int, no_children: None) -> None:
    """A MONAI dataset of dicts with random transforms, collated by MONAI's list_data_collate and seeded by
    its worker_init_fn."""
    data = pytest.importorskip("monai.data")
    transforms = pytest.importorskip("monai.transforms")
    items = [{"image": torch.full((1, 8, 8), float(i)), "label": i} for i in range(12)]
    dataset = data.Dataset(
        items,
        transforms.Compose(
            [
                transforms.RandFlipd(keys="image", prob=0.5),
                transforms.ScaleIntensityd(keys="image", minv=None, maxv=None, factor=1.0),
            ]
        ),
    )
    loader: FastLoader[Any] = FastLoader(
        dataset,
        batch_size=4,
        num_workers=workers,
        collate_fn=data.list_data_collate,
        worker_init_fn=data.utils.worker_init_fn,
    )
    batches = list(loader)
    assert [label for batch in batches for label in batch["label"].tolist()] == list(range(12))
    for batch in batches:
        assert batch["image"].shape == (4, 1, 8, 8)
        assert torch.equal(batch["image"][:, 0, 0, 0].as_tensor(), 2.0 * batch["label"])


@pytest.mark.parametrize("workers", [0, 2])
def test_torch_geometric(workers: int, no_children: None) -> None:
    """Graphs of different sizes, joined by torch_geometric's Collater into one Batch."""
    data = pytest.importorskip("torch_geometric.data")
    loader_module = pytest.importorskip("torch_geometric.loader.dataloader")
    graphs = [
        data.Data(x=torch.full((i + 1, 2), float(i)), edge_index=torch.zeros(2, i, dtype=torch.long), y=i)
        for i in range(10)
    ]
    loader: FastLoader[Any] = FastLoader(
        graphs, batch_size=4, num_workers=workers, collate_fn=loader_module.Collater(graphs)
    )
    batches = list(loader)
    assert [batch.num_graphs for batch in batches] == [4, 4, 2]
    assert torch.cat([batch.x for batch in batches])[:, 0].tolist() == [
        float(i) for i in range(10) for _ in range(i + 1)
    ]
    assert [label for batch in batches for label in batch.y.tolist()] == list(range(10))


@pytest.mark.parametrize("workers", [0, 2])
def test_skorch(workers: int, no_children: None) -> None:
    """A skorch net whose iterator_train is FastLoader trains to the same weights as with torch's
    DataLoader."""
    skorch = pytest.importorskip("skorch")
    weights = []
    for kind in (FastLoader, torch.utils.data.DataLoader):
        torch.manual_seed(1)
        net = skorch.NeuralNetClassifier(
            Net,
            criterion=torch.nn.CrossEntropyLoss,
            max_epochs=2,
            batch_size=6,
            train_split=None,
            verbose=0,
            iterator_train=kind,
            iterator_train__shuffle=True,
            iterator_train__num_workers=workers,
            iterator_valid=kind,
        )
        images = torch.stack([Numbers()[i][0] for i in range(12)])
        net.fit(images.numpy(), torch.arange(12).numpy() % 2)
        weights.append(torch.cat([parameter.detach().flatten() for parameter in net.module_.parameters()]))
        assert len(net.predict(images.numpy())) == 12
    assert torch.equal(*weights)


SMALL: dict[str, dict[str, Any]] = {
    "DINOTransform": {"global_crop_size": 64, "local_crop_size": 32},
    "SimCLRTransform": {"input_size": 64},
    "MAETransform": {"input_size": 64},
    "SwaVTransform": {"crop_sizes": (64, 32)},
    "BYOLTransform": {},
    "MSNTransform": {"random_size": 64, "focal_size": 32},
}
"""Lightly's transforms of several views, with arguments that keep the views small."""


@pytest.mark.long
@pytest.mark.parametrize("name", SMALL)
def test_lightly(numbered: Path, name: str, no_children: None) -> None:
    """A LightlyDataset with a transform of several views gives torch's batches, order and draws bit for
    bit in worker processes."""
    transforms = pytest.importorskip("lightly.transforms")
    data = pytest.importorskip("lightly.data")
    dataset = data.LightlyDataset(
        str(numbered.parent / "src"), transform=Drawn(getattr(transforms, name)(**SMALL[name]))
    )
    options: dict[str, Any] = {"batch_size": 8, "shuffle": True, "num_workers": 2, "drop_last": True}
    told = runs_as_torchs(FastLoader(dataset, **options), torch.utils.data.DataLoader(dataset, **options))
    assert f"Pillow images are lazy (exact); {2 * COUNT} JPEGs opened" in told
    assert "left to Pillow" not in told


class Preprocess:
    """The function of a Hugging Face example, with torchvision's steps."""

    def __init__(self) -> None:
        transforms = pytest.importorskip("torchvision.transforms")
        steps = [transforms.RandomResizedCrop(24), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
        self.steps = Drawn(transforms.Compose(steps))

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        batch["pixel_values"] = [self.steps(image.convert("RGB")) for image in batch.pop("image")]
        return batch


@pytest.mark.parametrize("stored", ["bytes", "paths"])
def test_hugging_face_function(numbered: Path, tmp_path: Path, stored: str, no_children: None) -> None:
    """A dataset with set_transform of a function gives torch's batches bit for bit: its library loads the
    image, which stays lazy."""
    datasets = pytest.importorskip("datasets")
    paths = sorted((numbered.parent / "src").rglob("*.jpg"))
    images = (
        [{"bytes": path.read_bytes(), "path": None} for path in paths]
        if stored == "bytes"
        else [str(path) for path in paths]
    )
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    datasets.Dataset.from_dict(
        {"image": images, "label": list(range(COUNT))}, features=features
    ).save_to_disk(tmp_path / "arrow")
    dataset = datasets.load_from_disk(tmp_path / "arrow")
    dataset.set_transform(Preprocess())
    options: dict[str, Any] = {"batch_size": 7, "shuffle": True, "num_workers": 2}
    told = runs_as_torchs(FastLoader(dataset, **options), torch.utils.data.DataLoader(dataset, **options))
    assert (
        f"Pillow images are lazy (exact); {2 * COUNT} JPEGs opened, {2 * COUNT} times decoded "
        "straight into an array" in told
    )
    assert "made a Pillow image" not in told
