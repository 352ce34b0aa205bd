"""A script for torch's DataLoader and torchvision's ImageFolder, of which the import alone was changed: it
runs on native threads."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from integration_helpers import Drawn, runs_as_torchs
from numbers_data import COUNT
from own_photos import OwnPhotos
from torch.utils.data import DataLoader

pytest.importorskip("torchvision")
import classification_data as script
from torchvision import transforms
from torchvision.transforms import v2

from fastload import FastLoader

pytestmark = pytest.mark.filterwarnings("ignore:.*pin_memory:UserWarning")
IN_PLACE = f"native, on {COUNT} files in place"


@pytest.fixture
def tree(numbered: Path) -> Path:
    """An ImageFolder of COUNT files: label i is sample i."""
    return numbered.parent / "src"


def by_torch(monkeypatch: pytest.MonkeyPatch, tree: Path, **options: Any) -> script.Data:
    """The loaders that the script makes before its import was changed."""
    monkeypatch.setattr(script, "DataLoader", DataLoader)
    try:
        return script.load(tree, **options)
    finally:
        monkeypatch.undo()


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("ranks", [1, 2])
def test_the_script_runs_natively(
    tree: Path, monkeypatch: pytest.MonkeyPatch, version: int, ranks: int, no_children: None
) -> None:
    """Training batches come in torch's order and shape, evaluation batches within 1 of Pillow's pixels."""
    rank = ranks - 1
    ours = script.load(tree, version=version, ranks=ranks, rank=rank)
    theirs = by_torch(monkeypatch, tree, version=version, ranks=ranks, rank=rank, workers=0)
    assert IN_PLACE in ours.train.explain(all=True)
    assert IN_PLACE in ours.val.explain(all=True)
    assert (len(ours.train), len(ours.val)) == (len(theirs.train), len(theirs.val))
    for epoch in range(2):
        orders = []
        for data in (ours, theirs):
            torch.manual_seed(epoch)
            if ranks > 1:
                data.sampler.set_epoch(epoch)
            orders.append([(images.dtype, images.shape, labels.tolist()) for images, labels in data.train])
        assert orders[0] == orders[1]
    for mine, other in zip(ours.val, theirs.val, strict=True):
        assert torch.equal(mine[1], other[1])
        assert (mine[0] - other[0]).abs().max() < 1.01 / 255 / min(script.STD)
    ours.train.close()


def test_batches_are_mixed_by_collate_fn(tree: Path) -> None:
    """collate_fn gets samples as the ImageFolder gives them, made by native threads."""
    data = script.load(tree, mixup=True)
    assert IN_PLACE in data.train.explain(all=True)
    for images, labels in data.train:
        assert images.shape == (10, 3, 32, 32)
        assert labels.shape == (10, COUNT)
        assert torch.allclose(labels.sum(dim=1), torch.ones(10))
    data.train.close()


def test_a_dataset_from_a_cache(tree: Path) -> None:
    """An ImageFolder that was saved and loaded, as a script does that does not list its files anew, is
    recognised."""
    train = script.load(tree).train
    cached = pickle.loads(pickle.dumps(train.dataset))
    loader = script.DataLoader(cached, batch_size=10, num_workers=2)
    assert IN_PLACE in loader.explain(all=True)
    assert [int(label) for _, labels in loader for label in labels] == list(range(COUNT))
    loader.close()


def test_an_augmentation_of_python_is_named(tree: Path) -> None:
    """A preset with a step that is Python runs as under torch, and explain() names the step."""
    data = script.load(tree, augment=v2.AugMix(), workers=0)
    text = data.train.explain(all=True)
    assert "is not read in place: AugMix at position 3 is Python" in text
    assert sum(len(labels) for _, labels in data.train) == 40
    assert IN_PLACE in data.val.explain(all=True)


def test_policies_are_native(tree: Path) -> None:
    """A preset with a policy of torchvision's is read in place."""
    for augment in (transforms.AutoAugment(), transforms.RandAugment(), v2.TrivialAugmentWide()):
        data = script.load(tree, version=1, augment=augment)
        assert IN_PLACE in data.train.explain(all=True)
        assert sum(len(labels) for _, labels in data.train) == 40


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("preset", ["training", "evaluation"])
def test_presets_in_a_dataset_of_its_own(tree: Path, version: int, preset: str, no_children: None) -> None:
    """Both presets around Pillow give torch's batches, order and draws bit for bit in worker processes; no
    Pillow image is made."""
    made = script.training_preset(version) if preset == "training" else script.evaluation_preset(version)
    data, options = OwnPhotos(tree, Drawn(made)), {"batch_size": 7, "shuffle": True, "num_workers": 2}
    told = runs_as_torchs(FastLoader(data, **options), DataLoader(data, **options))  # type: ignore[arg-type]
    assert (
        f"Pillow images are lazy (exact); {2 * COUNT} JPEGs opened, {2 * COUNT} times decoded "
        "straight into an array" in told
    )
    assert "made a Pillow image" not in told


@pytest.mark.parametrize(
    "augment", [transforms.AutoAugment, transforms.RandAugment, v2.TrivialAugmentWide, v2.AugMix]
)
def test_a_policy_after_the_crop(
    tree: Path, monkeypatch: pytest.MonkeyPatch, augment: Any, no_children: None
) -> None:
    """The script with a subclass of a policy of torchvision's, which is Python, gives torch's batches bit for
    bit; images stay lazy up to the policy."""
    version = 2 if augment.__module__.startswith(v2.__name__) else 1
    own = type("Own", (augment,), {})
    ours = script.load(tree, version=version, augment=own())
    theirs = by_torch(monkeypatch, tree, version=version, augment=own())
    told = runs_as_torchs(ours.train, theirs.train)
    assert "80 JPEGs opened" in told  # the last batch of each epoch is dropped
    assert "left to Pillow" not in told
