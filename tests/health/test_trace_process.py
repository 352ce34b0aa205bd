"""FASTLOAD_TRACE: a trace of a whole process, written at its end however it ends."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import warm
from trace_helpers import events, named


def run(code: str, path: str, **more: str) -> subprocess.CompletedProcess[str]:
    """A program that has a loader, and FASTLOAD_TRACE in its environment."""
    loop = (
        "import os, torch\nfrom fastload import FastLoader\n"
        "def loop(loader):\n    for _ in loader: pass\n"
        "loader = FastLoader(list(range(24)), batch_size=4, num_workers=2)\n"
    )
    return warm.run(loop + code, environment={**os.environ, "FASTLOAD_TRACE": path, **more})


def test_a_whole_process_is_traced(tmp_path: Path) -> None:
    """At its end there is a file with its number, of both loops; worker processes write none of their own."""
    done = run("loop(loader); loop(loader); print(os.getpid())", str(tmp_path / "run-%p.json"))
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == [f"run-{done.stdout.strip()}.json"]
    found = events(next(tmp_path.iterdir()))
    assert len(named(found, "step")) == 12
    assert len(named(found, "python")) == 48


def test_closing_a_loader_saves_the_trace(tmp_path: Path) -> None:
    """A process that is killed afterwards leaves what it had until then."""
    done = run("loop(loader); loader.close(); os.kill(os.getpid(), 9)", str(tmp_path / "run.json"))
    assert done.returncode == -9
    assert len(named(events(tmp_path / "run.json"), "step")) == 6


def test_a_failed_program_leaves_its_trace(tmp_path: Path) -> None:
    """So does one that ends by an exception."""
    done = run("loop(loader); 1 / 0", str(tmp_path / "run.json"))
    assert done.returncode == 1
    assert len(named(events(tmp_path / "run.json"), "step")) == 6


def test_a_forked_child_records_nothing_of_its_parents(tmp_path: Path) -> None:
    """It begins a trace of its own with its first loader, if it is asked to."""
    code = (
        "iterator = iter(loader); next(iterator)\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    from fastload.health import tracing\n"
        "    assert tracing.active is None\n"
        "    loop(FastLoader(list(range(8)), batch_size=4)); tracing._end_process(); os._exit(0)\n"
        "assert os.waitpid(pid, 0)[1] == 0\n"
        "for _ in iterator: pass\n"
        "print(os.getpid(), pid)\n"
    )
    done = run(code, str(tmp_path / "%p.json"))
    assert done.returncode == 0, done.stderr
    parent, child = (events(tmp_path / f"{pid}.json") for pid in done.stdout.split())
    assert len(named(parent, "step")) == 6
    assert len(named(child, "step")) == 2
    assert len({each["pid"] for each in child}) == 1


def test_a_place_that_is_not_there_is_an_error_of_the_first_loader(tmp_path: Path) -> None:
    """Before any loop."""
    done = run("", str(tmp_path / "gone" / "run.json"))
    assert done.returncode == 1
    assert "there is no such folder; name a file" in done.stderr.splitlines()[-1]
