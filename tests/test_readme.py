"""README is true to the letter: its shell and Python blocks run, in order, in a folder with photographs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import warm
from pictures import write_folder

README = Path(__file__).resolve().parent.parent / "README.md"


def blocks() -> list[tuple[str, str]]:
    """(language, text) of each fenced block, in order; those for make have tests of their own."""
    found = re.findall(r"^```(sh|python)\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)
    return [(language, text) for language, text in found if not text.startswith("make")]


@pytest.mark.long
def test_commands_of_the_readme_run(tmp_path: Path) -> None:
    """Each block succeeds where photos/train holds an ImageFolder."""
    write_folder(tmp_path / "photos" / "train", 40)
    scripts = Path(sys.executable).parent
    here = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(here),
    }
    assert len(blocks()) >= 3
    for language, block in blocks():
        if language == "sh":
            command = ["bash", "-euc", block]
            done = subprocess.run(
                command,
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=240,
                check=False,
            )
        else:
            done = warm.run(
                block,
                folder=tmp_path,
                environment=environment,
                error=True,
                imports=warm.TRAINING,
                timeout=240,
            )
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"


def test_it_is_short() -> None:
    """README has at most 700 words, with its code and tables."""
    assert len(README.read_text().split()) <= 700


def test_quickstart_is_ten_lines() -> None:
    """The program of the documentation's first page that brings its own data has ten lines of code."""
    pages = re.findall(
        r"^```python\n(.*?)^```", (README.parent / "docs" / "index.md").read_text(), re.MULTILINE | re.DOTALL
    )
    (program,) = (text for text in pages if "fastload.bench.quickstart" in text)
    assert sum(bool(line.strip()) for line in program.splitlines()) == 10


@pytest.mark.parametrize("target", ["demo", "demo-remote", "test", "wheel"])
def test_targets_of_the_readme_exist(target: str) -> None:
    """The make targets that README names are in the Makefile."""
    assert re.search(rf"^{target}:", (README.parent / "Makefile").read_text(), re.MULTILINE)
    assert f"make {target}" in README.read_text()
