"""Runs of the recipes of examples/ on small datasets, without a GPU."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

import warm

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parents[1] / "examples"
PROGRAM = HERE / "run_recipe.py"


def environment() -> dict[str, str]:
    """The variables of a recipe's process."""
    path = os.pathsep.join(filter(None, [str(HERE.parent), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def printed(folder: Path, script: str, *words: str) -> str:
    """The output of a recipe that ran to its end in a folder."""
    done = warm.run(PROGRAM, EXAMPLES / script, *words, folder=folder, environment=environment(), timeout=240)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def losses(folder: Path, script: str, *words: str) -> list[float]:
    """The losses of one run, step by step; all of them finite."""
    text = printed(folder, script, *words)
    found = [float(value) for value in re.findall(r"^epoch \d+ step \d+ loss (\S+)$", text, re.MULTILINE)]
    assert all(map(math.isfinite, found))
    return found
