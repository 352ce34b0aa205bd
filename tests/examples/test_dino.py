"""examples/dino.py trains on the views of a small dataset, by the same steps in every run of a seed."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from extras import needed
from pictures import write_folder
from recipe_runs import losses

from fastload import pack

needed("timm")

DINO = ["dino.py", "train.fl"]
DINO += (
    "--model test_resnet --size 32 --small 32 --small-views 3 --epochs 2 --batch-size 8 --prototypes 64 "
    "--print-every 1"
).split()


@pytest.mark.long
def test_it_trains_reproducibly(tmp_path: Path) -> None:
    """Every step has a finite loss; with another number of threads they are the same to the last digit,
    with another seed they are not."""
    pack(write_folder(tmp_path / "images", 24), tmp_path / "train.fl")
    first = losses(tmp_path, *DINO, "--workers", "1")
    assert len(first) == 6
    assert all(map(math.isfinite, first))
    assert losses(tmp_path, *DINO, "--workers", "2") == first
    assert losses(tmp_path, *DINO, "--workers", "2", "--seed", "1") != first
