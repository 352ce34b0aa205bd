"""transformers' Trainer: an overridden get_train_dataloader(), and an unchanged program under `fastload run`, against DataLoader."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import warm
from pictures import write_folder

import fastload

PROGRAM = Path(__file__).parent / "trainer_program.py"


def seen(folder: Path, loader: str, *, run: bool = False) -> tuple[str, str]:
    """The module of torch's DataLoader name in the program, and what it says of its batches and generators. `run`: by `fastload run`."""
    path = [str(Path(fastload.__file__).resolve().parents[1]), str(PROGRAM.parents[1]), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path)), "HF_HUB_OFFLINE": "1"}
    program = (warm.RUN, "-q", PROGRAM) if run else (PROGRAM,)
    done = warm.run(*program, folder, loader, environment=env, timeout=300)
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
    assert seen(folder, "own", run=True) == ("fastload.run.stand_in", own)
    assert seen(folder, "fastload") == seen(folder, "torch")
