"""examples/detection.py and segmentation.py learn from photographs of coins; any number of threads gives
the same steps."""

from __future__ import annotations

from pathlib import Path

import pytest
from coins import write_coco, write_voc
from extras import needed
from recipe_runs import losses

from fastload import pack

needed("timm", "torchvision", "skimage")

TINY = "train.fl --backbone test_resnet --size 96 --batch-size 6 --print-every 1 --lr 1e-3".split()


@pytest.mark.long
def test_detection(tmp_path: Path) -> None:
    """The loss falls; with another number of threads it is the same to the last digit."""
    root = write_coco(tmp_path / "coco", 24)
    pack(
        root / "train2017",
        tmp_path / "train.fl",
        annotations=root / "annotations" / "instances_train2017.json",
    )
    first = losses(tmp_path, "detection.py", *TINY, "--epochs", "5", "--workers", "2")
    assert len(first) == 20
    assert sum(first[-4:]) < 0.9 * sum(first[:4])
    assert losses(tmp_path, "detection.py", *TINY, "--epochs", "1", "--workers", "1") == first[:4]


@pytest.mark.long
def test_segmentation(tmp_path: Path) -> None:
    """The loss falls."""
    root = write_voc(tmp_path / "voc", 24)
    pack(root / "VOCdevkit" / "VOC2012", tmp_path / "train.fl", format="voc-segmentation", split="train")
    first = losses(tmp_path, "segmentation.py", *TINY, "--epochs", "5", "--workers", "2")
    assert len(first) == 20
    assert sum(first[-4:]) < 0.9 * sum(first[:4])
