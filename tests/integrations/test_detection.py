"""A detection script in the style of torchvision's references, of which the line that makes the loader was
changed: it trains as before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("torchvision")
pytest.importorskip("pycocotools")
pytest.importorskip("skimage")
import detection_data as script
from coins import write_coco
from torch import nn
from torchvision.models.detection import FCOS
from torchvision.models.detection.anchor_utils import AnchorGenerator

from fastload import pack

# pycocotools' decode() and NumPy 2.
pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation doesn't accept a copy:DeprecationWarning"
)
COUNT = 24


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def coco(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """COCO's layout with COUNT photographs of coins, and the same packed, as coins.fl."""
    root = write_coco(tmp_path_factory.mktemp("coco"), COUNT)
    pack(root / "train2017", root / "coins.fl", annotations=root / "annotations" / "instances_train2017.json")
    return root


def detector() -> FCOS:
    """torchvision's FCOS over four convolutions."""
    layers: list[nn.Module] = []
    for given, made in ((3, 16), (16, 32), (32, 64), (64, 64)):
        layers += [nn.Conv2d(given, made, 3, 2, 1), nn.BatchNorm2d(made), nn.ReLU()]
    backbone = nn.Sequential(*layers)
    backbone.out_channels = 64
    return FCOS(
        backbone, 3, min_size=128, max_size=192, anchor_generator=AnchorGenerator(((32,),), ((1.0,),))
    )


def test_evaluation_is_torchs(coco: Path) -> None:
    """Without random steps batches are those of torch's loader: order, boxes, classes and masks equal,
    images within 1 of Pillow's."""
    torchs = script.load(coco, None, script.evaluation_preset(), workers=0)
    ours = script.load(coco, coco / "coins.fl", script.evaluation_preset())
    batches = 0
    for (images, targets), (expected_images, expected) in zip(ours.loader, torchs.loader, strict=True):
        batches += 1
        assert len(images) == 4
        for mine, other in zip(images, expected_images, strict=True):
            assert mine.dtype == other.dtype
            assert mine.shape == other.shape
            assert (mine - other).abs().max() < 1.01 / 255
        for mine, other in zip(targets, expected, strict=True):
            assert mine.keys() == other.keys()
            for key in other:
                assert mine[key].dtype == other[key].dtype, key
                assert torch.equal(mine[key], other[key]), key
    assert batches > 3
    ours.loader.close()


@pytest.mark.parametrize("augmentation", ["hflip", "lsj", "multiscale", "ssd", "ssdlite"])
def test_every_preset_gives_whole_targets(coco: Path, augmentation: str) -> None:
    """Whatever the draws, what belongs to a box stays with it: masks lie in their boxes, in images as
    large as the masks."""
    data = script.load(coco, coco / "coins.fl", script.training_preset(augmentation))
    seen: Counter[int] = Counter()
    for images, targets in data.loader:
        for image, target in zip(images, targets, strict=True):
            assert image.dtype == torch.float32
            assert 0 <= image.min() <= image.max() <= 1
            assert target["boxes"].dtype == torch.float32
            assert len(target["boxes"]) == len(target["labels"]) == len(target["masks"])
            assert target["masks"].shape[1:] == image.shape[1:]
            seen.update(target["labels"].tolist())
            for box, mask in zip(target["boxes"], target["masks"], strict=True):
                rows, columns = torch.where(mask)
                if len(rows):
                    assert columns.min() >= box[0] - 1.5
                    assert rows.min() >= box[1] - 1.5
                    assert columns.max() <= box[2] + 0.5
                    assert rows.max() <= box[3] + 0.5
    assert set(seen) == {1, 2}
    data.loader.close()


def test_presets_run_on_native_threads(coco: Path) -> None:
    """What the plan says of each: natively but for the colours of SSD."""
    for augmentation in ("hflip", "lsj", "multiscale"):
        data = script.load(coco, coco / "coins.fl", script.training_preset(augmentation))
        assert data.loader.stats()["engine"] == "threads", data.loader.explain(all=True)
        data.loader.close()
    ssd = script.load(coco, coco / "coins.fl", script.training_preset("ssd"), workers=0)
    assert "RandomPhotometricDistort" in ssd.loader.explain(all=True)


@pytest.mark.parametrize("workers", [0, 2])
def test_it_trains(coco: Path, workers: int) -> None:
    """The detector's loss falls; a second run of the seed gives the same batches."""
    torch.manual_seed(0)
    data = script.load(coco, coco / "coins.fl", script.training_preset("hflip"), workers=workers)
    model = detector().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses: list[float] = []
    for _ in range(6):
        for images, targets in data.loader:
            loss: Any = sum(model(list(images), list(targets)).values())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
    assert torch.tensor(losses).isfinite().all()
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])
    data.loader.close()
