"""The same pixels with the Pillows of other years; without blurs in the first version of 10, where they have
one radius and are Pillow's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
FILES = (
    *("tests/native/test_resize_exact.py", "tests/lazy/test_resampling.py"),
    *("tests/lazy/test_lazy_torchvision.py", "tests/composing/test_composing.py"),
    "tests/composing/test_adjusting.py",
)
COLOURS = ("tests/native/test_colour.py", "tests/lazy/test_colours.py", "tests/lazy/test_chains.py")
WITHOUT_BLURS = "rotate or affine or perspective or merge"


@pytest.mark.parametrize("version", ["10.0.1", "10.4.0", "11.3.0", "12.0.0"])
def test_pixels_are_those_of_another_pillow(version: str, tmp_path: Path) -> None:
    """The tests that compare pixels with Pillow's pass with this one, as with the installed."""
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"),
            *("--disable-pip-version-check", "--target", str(tmp_path), f"pillow=={version}"),
        ],
        check=True,
        timeout=300,
    )
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    run = [sys.executable, "-m", "pytest", "-q", "-m", "not long", "-p", "no:cacheprovider"]
    runs = [(*FILES, "-k", "not in_workers"), ("tests/lazy/test_colours.py", "-k", WITHOUT_BLURS)]
    for chosen in runs if version == "10.0.1" else [(*FILES, *COLOURS, "-k", "not in_workers")]:
        done = subprocess.run(
            [*run, *chosen],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    told = [sys.executable, "-c", "import PIL; print(PIL.__version__)"]
    found = subprocess.run(told, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert found.stdout.strip() == version
