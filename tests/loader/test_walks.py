"""How many files of fastload one iter() and two batches go through: a bound, so that rooms do not grow
together again."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "walks.py"
BOUNDS = {"packed": (14, 43), "processes": (17, 90), "device": (15, 62)}
"""Files, and entries into a file from another, as measured when the bounds were set; tools/walks.py prints
the walks."""


@pytest.fixture(scope="module")
def walks() -> dict[str, tuple[int, int]]:
    """Files and entries by kind of loader, of a process of its own."""
    told = subprocess.run(
        [sys.executable, str(TOOL)], capture_output=True, text=True, timeout=120, check=True
    ).stdout
    found = re.findall(r"^(\w+): iter\(\) and two batches: (\d+) files, (\d+) entries$", told, re.MULTILINE)
    return {name: (int(files), int(entries)) for name, files, entries in found}


@pytest.mark.parametrize("name", list(BOUNDS))
def test_a_walk_stays_within_its_bounds(walks: dict[str, tuple[int, int]], name: str) -> None:
    files, entries = walks[name]
    assert 0 < files <= BOUNDS[name][0]
    assert 0 < entries <= BOUNDS[name][1]
