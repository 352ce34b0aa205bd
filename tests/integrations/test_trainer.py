"""transformers' Trainer: an overridden get_train_dataloader(), and an unchanged program under
`fastload run`, against DataLoader."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import warm
from pictures import write_folder

import fastload

PROGRAM = Path(__file__).parent / "trainer_program.py"


def seen(folder: Path, *loaders: str, run: bool = False) -> list[tuple[str, str]]:
    """For each loader: the module of torch's DataLoader name in the program, and what it says of its batches
    and generators. `run`: by `fastload run`."""
    path = [
        str(Path(fastload.__file__).resolve().parents[1]),
        str(PROGRAM.parents[1]),
        os.environ.get("PYTHONPATH", ""),
    ]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path)), "HF_HUB_OFFLINE": "1"}
    program = (warm.RUN, "-q", PROGRAM) if run else (PROGRAM,)
    done = warm.run(*program, folder, *loaders, environment=env, imports=warm.TRAINING, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    modules, states = (
        [line[len(name) :] for line in done.stdout.splitlines() if line.startswith(name)]
        for name in ("LOADER ", "SEEN ")
    )
    return list(zip(modules, states, strict=True))


@pytest.mark.long
def test_the_trainers_batches_are_torchs(tmp_path: Path) -> None:
    """Order, pixels and all generators are the same, by an override and by no change at all."""
    pytest.importorskip("transformers")
    folder = write_folder(tmp_path / "photos", 20)
    own, ours, torchs = seen(folder, "own", "fastload", "torch")
    assert own[0] == "torch.utils.data.dataloader"
    assert len(own[1].split()) == 2 * 5 + 3
    assert len(set(own[1].split()[:10])) == 10
    assert seen(folder, "own", run=True) == [("fastload.run.stand_in", own[1])]
    assert ours == torchs
