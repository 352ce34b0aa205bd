"""A segmentation script in the style of torchvision's references, of which the loader's line was changed:
it trains as before."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

pytest.importorskip("torchvision")
pytest.importorskip("skimage")
import segmentation_data as script
from coins import write_voc
from torch import nn
from torch.nn.functional import cross_entropy
from torchvision.models.segmentation.lraspp import LRASPP

from fastload import pack

COUNT = 24


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def voc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """VOC's layout with COUNT photographs of coins, and the same packed, as coins.fl."""
    root = write_voc(tmp_path_factory.mktemp("voc"), COUNT)
    pack(root / "VOCdevkit" / "VOC2012", root / "coins.fl", format="voc-segmentation", split="train")
    return root


class Backbone(nn.Module):
    """Features of strides 4 and 8."""

    def __init__(self) -> None:
        super().__init__()
        self.low = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 24, 3, 2, 1), nn.ReLU())
        self.high = nn.Sequential(nn.Conv2d(24, 32, 3, 2, 1), nn.ReLU())

    def forward(self, images: torch.Tensor) -> OrderedDict[str, torch.Tensor]:
        low = self.low(images)
        return OrderedDict(low=low, high=self.high(low))


def test_evaluation_is_torchs(voc: Path) -> None:
    """Without random steps batches are those of torch's loader: masks equal, of the same dtype; images
    within 1 of Pillow's."""
    torchs = script.load(voc, None, script.evaluation_preset(), workers=0)
    ours = script.load(voc, voc / "coins.fl", script.evaluation_preset())
    assert len(ours.loader) == len(torchs.loader) == COUNT // 4
    for mine, other in zip(ours.loader, torchs.loader, strict=True):
        assert mine[1].dtype == other[1].dtype == torch.int64
        assert torch.equal(mine[1], other[1])
        assert mine[0].shape == other[0].shape
        assert (mine[0] - other[0]).abs().max() < 1.01 / 255 / min(script.STD)
    ours.loader.close()


def test_masks_go_with_their_images(voc: Path) -> None:
    """Under random sizes, crops and mirrors: where the mask is padding the image is black, and coins are
    brighter than the rest."""
    data = script.load(voc, voc / "coins.fl", script.training_preset())
    assert data.loader.stats()["engine"] == "threads", data.loader.explain(all=True)
    black = -torch.tensor(script.MEAN) / torch.tensor(script.STD)
    brighter = []
    for images, masks in data.loader:
        assert images.shape == (4, 3, 64, 64)
        assert masks.shape == (4, 64, 64)
        assert set(masks.unique().tolist()) <= {0, 1, 2, script.IGNORED}
        for image, mask in zip(images, masks, strict=True):
            padding = mask == script.IGNORED
            assert torch.allclose(image[:, padding], black[:, None].expand(-1, int(padding.sum())), atol=1e-5)
            coins, around = (mask == 1) | (mask == 2), mask == 0
            if coins.sum() > 100 and around.sum() > 100:
                brighter.append(float(image[:, coins].mean() - image[:, around].mean()))
    assert len(brighter) > COUNT // 2
    assert min(brighter) > 0
    data.loader.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_it_trains(voc: Path, workers: int) -> None:
    """torchvision's LR-ASPP learns which pixels are of coins."""
    torch.manual_seed(0)
    data = script.load(voc, voc / "coins.fl", script.training_preset(), workers=workers)
    model = LRASPP(Backbone(), 24, 32, 3).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses: list[float] = []
    for _ in range(8):
        for images, masks in data.loader:
            loss = cross_entropy(model(images)["out"], masks, ignore_index=script.IGNORED)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert torch.tensor(losses).isfinite().all()
    assert sum(losses[-6:]) < 0.8 * sum(losses[:6])
    data.loader.close()
