"""Changes of a dataset that are killed: the old version or the new one, and a following command works."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import warm

import fastload

HERE = Path(__file__).resolve().parent


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "least"),
    [("append", 40), ("columns", 10), ("drop_columns", 6), ("drop", 8), ("concat", 4), ("prune", 4)],
)
def test_killed_at_every_point(tmp_path: Path, change: str, least: int) -> None:
    """kill -9 at any call that changes the disk leaves the old version or the new one, whole, and what is
    done next finishes it."""
    folders = (HERE, HERE.parent / "store", HERE.parent / "packing", Path(fastload.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}
    script = HERE / "change_kill_points.py"
    done = warm.run(script, change, tmp_path, environment=environment, timeout=280)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > least
