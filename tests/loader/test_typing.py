"""A user's training script passes type checkers without an annotation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import fastload

SCRIPT = Path(__file__).with_name("user_script.py")
ROOT = Path(fastload.__file__).parents[1]


@pytest.mark.slow
@pytest.mark.parametrize("mode", [[], ["--strict"]], ids=["default", "strict"])
def test_mypy(mode: list[str], tmp_path: Path) -> None:
    """mypy accepts it, in the default mode and in the strict one."""
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", *mode, "--config-file", os.devnull, "--cache-dir", str(tmp_path), str(SCRIPT)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}  # found as an installed package is: what is checked is the script
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.skipif(find_spec("basedpyright") is None, reason="basedpyright is not installed")
def test_pyright(tmp_path: Path) -> None:
    """pyright accepts it in strict mode."""
    settings = {"typeCheckingMode": "strict", "include": [str(SCRIPT)], "extraPaths": [str(ROOT)]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "--project", str(tmp_path), "--pythonpath", sys.executable]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
