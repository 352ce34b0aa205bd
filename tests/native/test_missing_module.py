"""A package without its native module says where it lies and what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fastload

SOURCE = Path(fastload.__file__).parent


@pytest.mark.parametrize("checkout", [True, False])
def test_a_package_that_was_not_built(tmp_path: Path, checkout: bool) -> None:
    """Python started in a clone's root finds the clone's package before the installed one, and says so; so
    does a damaged installation."""
    shutil.copytree(SOURCE, tmp_path / "fastload", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    if checkout:
        (tmp_path / "csrc").mkdir()
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONSAFEPATH")
    }
    done = subprocess.run(
        [sys.executable, "-c", "import fastload; fastload.PackedDataset"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    told = done.stderr.strip().splitlines()[-1]
    assert told.startswith("ImportError: ")
    assert str(tmp_path) in told
    assert ("build it (make build)" in told and "run from another folder" in told) == checkout
    assert ("install it again" in told) != checkout
