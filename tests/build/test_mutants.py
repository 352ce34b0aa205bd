"""tools/mutants: its list of faults fits the sources, and it tells a fault that is caught from one that
survives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytest.importorskip("tomllib", reason="Python 3.11 reads TOML")

SUMS = """
def total(values):
    found = 0
    for value in values:
        found += value
    return found


def largest(values):
    return max(values)
"""
TESTS = """
import subprocess, sys
import pytest
from toy.sums import total


@pytest.fixture(scope="module")
def printed():
    program = "from toy.sums import largest; print(largest([1, 1]))"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def test_prints(printed):
    assert printed


def test_one(printed):
    assert printed == "1\\n"


def test_always_fails():
    assert total([1]) == 2


def test_total():
    assert total([1, 2]) == 3
"""
FAULTS = """
[[fault]]
id = "difference"
file = "toy/sums.py"
kind = "operator"
old = "found += value"
new = "found -= value"

[[fault]]
id = "smallest"
file = "toy/sums.py"
kind = "operator"
old = "max(values)"
new = "min(values)"
"""


def mutants(*arguments: object) -> str:
    """What tools/mutants/run.py prints; pytest in it loads only what it needs."""
    command = [sys.executable, ROOT / "tools" / "mutants" / "run.py", *arguments]
    variables = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "pytest_timeout"}
    done = subprocess.run(
        list(map(str, command)),
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_list_of_faults() -> None:
    """Each of the 89 faults has its place once, and no room is without one."""
    rooms = mutants("check").partition("by room: ")[2].splitlines()[0]
    counts = {name: int(count) for name, count in (entry.rsplit(" ", 1) for entry in rooms.split(", "))}
    folders = [
        each.parent for pattern in ("fastload/*/__init__.py", "csrc/*/*.c") for each in ROOT.glob(pattern)
    ]
    expected = {each.name if each.parent.name == "fastload" else f"csrc/{each.name}" for each in folders} | {
        "loader.py"
    }
    assert counts.keys() == expected
    assert sum(counts.values()) == 89


def test_caught_and_survived(tmp_path: Path) -> None:
    """A fault is tried on the tests that reach it, through fixtures and programs too; a test that fails in
    any case catches nothing. What caught a fault elsewhere is tried first."""
    (tmp_path / "toy").mkdir()
    for name, text in (
        ("toy/__init__.py", ""),
        ("toy/sums.py", SUMS),
        ("test_toy.py", TESTS),
        ("faults.toml", FAULTS),
    ):
        (tmp_path / name).write_text(text)
    before = {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    common = ["--tree", tmp_path, "--python", sys.executable]
    listed = ["--faults", tmp_path / "faults.toml"]
    reach, results = tmp_path.parent / "reach.json", tmp_path.parent / "results.json"

    mutants(*listed, "reach", *common, "--out", reach)
    assert {name: set(tests) for name, tests in json.loads(reach.read_text())["reached"].items()} == {
        "difference": {"test_toy.py::test_always_fails", "test_toy.py::test_total"},
        "smallest": {"test_toy.py::test_prints", "test_toy.py::test_one"},
    }
    mutants(*listed, "try", *common, "--reach", reach, "--out", results)
    difference, smallest = (json.loads(results.read_text())[name] for name in ("difference", "smallest"))
    assert difference["caught"] == "test_toy.py::test_total"
    assert difference["left_out"] == ["test_toy.py::test_always_fails"]
    assert (smallest["caught"], smallest["ran"]) == (None, 2)
    assert {
        path: path.read_text() for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".pyc"
    } == before
    assert "smallest (operator; 2 of 2 tests ran)" in mutants(*listed, "report", results)

    again = tmp_path.parent / "again.json"
    mutants(
        *listed, "try", *common, "--only", "difference", "--reach", reach, "--known", results, "--out", again
    )
    assert json.loads(again.read_text())["difference"] | {"seconds": 0} == difference | {
        "ran": 1,
        "left_out": [],
        "seconds": 0,
    }
