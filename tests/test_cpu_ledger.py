"""The ledger of CPU seconds: children count, sums cross processes, and a run over its budget fails."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from itertools import combinations
from pathlib import Path

from cpu_ledger import PACE_SECONDS, Pace, computation_seconds
from pairs import pairwise

BUSY = """
import subprocess, sys, time

def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass

def test_here():
    burn(0.4)

def test_in_a_child():
    subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < 0.2: pass"], check=True)
"""


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs the two tests above under the ledger alone."""
    (folder / "test_busy.py").write_text(BUSY)
    (folder / "pytest.ini").write_text("[pytest]")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "cpu_ledger",
        "-p",
        "no:cacheprovider",
        *options,
        "test_busy.py",
    ]
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_seconds_of_each_test(tmp_path: Path) -> None:
    """A test has the seconds of its process and of the children that ended in it, also when other
    processes run the tests."""
    done = run(tmp_path, "--cpu-ledger=ledger.json", "--cpu-budget=1000", "-n1")
    assert done.returncode == 0, done.stdout + done.stderr
    seconds = json.loads((tmp_path / "ledger.json").read_text())
    assert seconds["test_busy.py::test_here"] > 0.08
    assert seconds["test_busy.py::test_in_a_child"] > 0.15
    assert re.search(r"CPU: \d s, which count for \d s of 1,000 s", done.stdout)


def test_a_run_over_its_budget_fails(tmp_path: Path) -> None:
    """Its tests pass, and the run fails with the files that take most."""
    done = run(tmp_path, "--cpu-budget=0.25")
    assert done.returncode == 1
    assert "2 passed" in done.stdout
    assert "more CPU seconds than their budget. Most take test_busy.py" in done.stdout


def test_seconds_count_at_one_pace() -> None:
    """Where the fixed computation takes twice as long, a second counts for half of one, and for one at
    most; measured now and then."""
    took = [2 * PACE_SECONDS, PACE_SECONDS / 2]
    pace = Pace(lambda: took.pop(0), every=3600)
    assert [pace.share, pace.share] == [0.5, 0.5]
    always = Pace(lambda: took[0], every=0)
    assert always.share == 1.0
    assert computation_seconds() > 0


def test_every_two_values_meet() -> None:
    """A pairwise table has each pair of values of two axes, in fewer rows than the product, and is the
    same each time."""
    axes = ["abcde", (None, 1, 3), (False, True), range(4)]
    rows = pairwise(*axes)
    for one, other in combinations(range(4), 2):
        assert {(row[one], row[other]) for row in rows} == {(a, b) for a in axes[one] for b in axes[other]}
    assert len(rows) <= 24 < 5 * 3 * 2 * 4
    assert rows == pairwise(*axes)
