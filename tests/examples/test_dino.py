"""examples/dino.py trains on the views of a small dataset, by the same steps in every run of a seed."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

import pytest
import warm
from pictures import write_folder

from fastload import pack

pytest.importorskip("timm")

HERE = Path(__file__).resolve().parent
TINY = "--model test_resnet --size 32 --small 32 --small-views 3 --epochs 2 --batch-size 8 --prototypes 64 --print-every 1"


def losses(folder: Path, *more: str) -> list[float]:
    """The losses of one run, step by step."""
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    words = [str(HERE.parents[1] / "examples" / "dino.py"), "train.fl", *TINY.split(), *more]
    done = warm.run(HERE / "run_recipe.py", *words, folder=folder, environment=environment, timeout=240)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return [float(value) for value in re.findall(r"^epoch \d+ step \d+ loss (\S+)$", done.stdout, re.MULTILINE)]


@pytest.mark.long
def test_it_trains_reproducibly(tmp_path: Path) -> None:
    """Every step has a finite loss; with another number of threads they are the same to the last digit, with another seed they are not."""
    pack(write_folder(tmp_path / "images", 24), tmp_path / "train.fl")
    first = losses(tmp_path, "--workers", "1")
    assert len(first) == 6
    assert all(map(math.isfinite, first))
    assert losses(tmp_path, "--workers", "2") == first
    assert losses(tmp_path, "--workers", "2", "--seed", "1") != first
