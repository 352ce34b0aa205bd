"""examples/ddp_elastic.py: stopped on two ranks and gone on with by three, each sample is seen once an
epoch."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import warm
from pictures import write_folder
from recipe_runs import printed_by_ranks

from fastload import pack

EXAMPLE = Path(__file__).parents[2] / "examples" / "ddp_elastic.py"
COUNT, BATCH, STOP = 33, 3, 3
WORDS = [
    "train.fl",
    "--checkpoint",
    "run.pt",
    "--every",
    "1",
    "--batch-size",
    str(BATCH),
    "--classes",
    "3",
    "--size",
    "16",
]


def run(folder: Path, ranks: int, *more: str) -> str:
    """What the example prints under torchrun, on that many ranks."""
    path = os.pathsep.join([str(EXAMPLE.parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": path}
    words = ("--standalone", f"--nproc-per-node={ranks}", EXAMPLE, *WORDS, *more)
    done = warm.run(warm.TORCHRUN, *words, folder=folder, environment=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long
def test_other_ranks_go_on(tmp_path: Path) -> None:
    """The rest of the epoch, padded to three ranks, and then whole epochs. The three are started without
    torchrun, which takes longer."""
    pack(
        write_folder(tmp_path / "src", COUNT, classes=3, size=lambda i: (20 + i % 5, 24)),
        tmp_path / "train.fl",
    )
    assert "epoch" not in run(tmp_path, 2, "--stop-after", str(STOP))
    rest = COUNT - 2 * STOP * BATCH
    found = re.findall(
        r"epoch (\d): (\d) ranks, (\d+) samples", printed_by_ranks(tmp_path, 3, EXAMPLE.name, *WORDS)
    )
    assert found == [("0", "3", str(rest + -rest % 3)), ("1", "3", str(COUNT + -COUNT % 3))]
