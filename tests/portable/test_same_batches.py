"""Without the native module a loader's batches, states and errors are those that it has with it."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from cases import BY_WORKERS, CASES, same

HERE = Path(__file__).resolve().parent
LINUX = sys.platform.startswith("linux")
HIDDEN = ["darwin", "win32"] if LINUX else [sys.platform]
"""Systems that a child process is made to look like; elsewhere than on Linux, this one."""


def environment(hidden: str) -> dict[str, str]:
    """The environment of a process that runs on a system; "": on this one, as it is."""
    path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path, "FASTLOAD_HIDDEN": hidden if LINUX else ""}


@cache
def results(folder: Path, hidden: str, workers: int, method: str, *names: str) -> dict[str, Any]:
    """The results of cases in a process of their own."""
    out = folder / f"{hidden}-{workers}-{method}-{len(names)}.pt"
    done = subprocess.run(
        [sys.executable, "-W", "error", HERE / "cases.py", out, str(workers), method, *names],
        env=environment(hidden),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = torch.load(out, weights_only=False)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for results."""
    return tmp_path_factory.mktemp("results")


def differing(found: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    """The cases whose results differ, with both."""
    return {name: (found[name], expected[name]) for name in expected if not same(found[name], expected[name])}


@pytest.mark.skipif(not LINUX, reason="there is no native module to compare with")
@pytest.mark.parametrize("hidden", HIDDEN)
def test_in_the_calling_process(folder: Path, hidden: str) -> None:
    """Every case, with num_workers=0."""
    found = results(folder, hidden, 0, "spawn")
    assert list(found) == list(CASES)
    assert differing(found, results(folder, "", 0, "spawn")) == {}


@pytest.mark.skipif(not LINUX, reason="there is no native module to compare with")
def test_in_spawned_workers(folder: Path) -> None:
    """Cases with num_workers=2, by spawn, as on macOS and Windows, over two epochs."""
    names = ["persistent", "left and begun again"]
    assert (
        differing(results(folder, "win32", 2, "spawn", *names), results(folder, "", 2, "spawn", *names)) == {}
    )


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.skipif(not LINUX, reason="there is no native module to compare with")
def test_in_workers(folder: Path) -> None:
    """Every case, with num_workers=2. The server of forks saves the workers' imports; they get what spawned
    ones get."""
    found = results(folder, "darwin", 2, "forkserver")
    assert list(found) == list(CASES)
    assert differing(found, results(folder, "", 2, "forkserver")) == {}


@pytest.mark.timeout(900)
@pytest.mark.skipif(LINUX, reason="the tests above hold more")
def test_results_do_not_follow_from_workers(folder: Path) -> None:
    """Cases with seed_by="sample" give the same for any number of workers."""
    names = [name for name in CASES if name not in BY_WORKERS and "resume" not in name]
    found = [results(folder, "", workers, "spawn") for workers in (0, 2)]
    assert differing(*({name: each[name] for name in names} for each in found)) == {}
