"""examples/detection.py and segmentation.py learn from photographs of coins; any number of threads gives the same steps."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

import pytest
import warm

pytest.importorskip("timm")
pytest.importorskip("torchvision")
pytest.importorskip("skimage")
from coins import write_coco, write_voc

from fastload import pack

HERE = Path(__file__).resolve().parent
TINY = "--backbone test_resnet --size 96 --batch-size 6 --print-every 1 --lr 1e-3"


def losses(folder: Path, script: str, *more: str) -> list[float]:
    """The losses of one run, step by step."""
    path = os.pathsep.join(filter(None, [str(HERE.parent), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    words = [str(HERE.parents[1] / "examples" / script), "train.fl", *TINY.split(), *more]
    done = warm.run(HERE / "run_recipe.py", *words, folder=folder, environment=environment, timeout=200)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    found = [float(value) for value in re.findall(r"^epoch \d+ step \d+ loss (\S+)$", done.stdout, re.MULTILINE)]
    assert all(map(math.isfinite, found))
    return found


@pytest.mark.long
def test_detection(tmp_path: Path) -> None:
    """The loss falls; with another number of threads it is the same to the last digit."""
    root = write_coco(tmp_path / "coco", 24)
    pack(root / "train2017", tmp_path / "train.fl", annotations=root / "annotations" / "instances_train2017.json")
    first = losses(tmp_path, "detection.py", "--epochs", "5", "--workers", "2")
    assert len(first) == 20
    assert sum(first[-4:]) < 0.9 * sum(first[:4])
    assert losses(tmp_path, "detection.py", "--epochs", "1", "--workers", "1") == first[:4]


@pytest.mark.long
def test_segmentation(tmp_path: Path) -> None:
    """The loss falls."""
    root = write_voc(tmp_path / "voc", 24)
    pack(root / "VOCdevkit" / "VOC2012", tmp_path / "train.fl", format="voc-segmentation", split="train")
    first = losses(tmp_path, "segmentation.py", "--epochs", "5", "--workers", "2")
    assert len(first) == 20
    assert sum(first[-4:]) < 0.9 * sum(first[:4])
