"""transformers' Trainer: an overridden get_train_dataloader(), and an unchanged program under `fastload run`, against DataLoader."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pictures import write_folder

import fastload

PROGRAM = Path(__file__).parent / "trainer_program.py"


def seen(folder: Path, loader: str, *run: str) -> tuple[str, str]:
    """The module of torch's DataLoader name in the program, and what it says of its batches and generators."""
    path = [str(Path(fastload.__file__).resolve().parents[1]), str(PROGRAM.parents[1]), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path)), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, *run, str(PROGRAM), str(folder), loader]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = dict(line.split(" ", 1) for line in done.stdout.splitlines() if line.startswith(("LOADER ", "SEEN ")))
    return lines["LOADER"], lines["SEEN"]


@pytest.mark.long
def test_the_trainers_batches_are_torchs(tmp_path: Path) -> None:
    """Order, pixels and all generators are the same, by an override and by no change at all."""
    pytest.importorskip("transformers")
    folder = write_folder(tmp_path / "photos", 20)
    module, own = seen(folder, "own")
    assert module == "torch.utils.data.dataloader"
    assert len(own.split()) == 2 * 5 + 3
    assert len(set(own.split()[:10])) == 10
    assert seen(folder, "own", "-m", "fastload.run", "-q") == ("fastload.run.stand_in", own)
    assert seen(folder, "fastload") == seen(folder, "torch")
