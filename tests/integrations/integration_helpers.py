"""Programs of several processes: run with a limit, all they wrote gathered, nothing of them left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
MARK = "FASTLOAD_TEST_PROGRAM"


def marked_processes(mark: str) -> list[int]:
    """Processes alive (not zombies) that carry the mark in their environment: a program's whole offspring, in whatever session."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def run_program(name: str, *arguments: str | Path, ranks: int | None = None, timeout: float = 100) -> str:
    """Runs the program of that name, under torchrun with `ranks` processes where given; its output. Fails if it leaves a process behind."""
    mark = uuid.uuid4().hex
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks else []
    path = os.pathsep.join([str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, MARK: mark, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    child = subprocess.Popen(
        [sys.executable, *launcher, str(HERE / name), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        start_new_session=True,
    )
    try:
        output, _ = child.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        _kill(mark)
        output, _ = child.communicate()
        pytest.fail(f"{name} did not end within {timeout} s:\n{output}")
    # Helpers of multiprocessing end on their own when their pipe closes, a moment after their parent.
    deadline = time.monotonic() + 5
    while (left := marked_processes(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    _kill(mark)
    assert child.returncode == 0, output
    assert not left, f"{name} left processes behind: {left}\n{output}"
    return output


def _kill(mark: str) -> None:
    for pid in marked_processes(mark):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def reports(folder: Path) -> list[dict[str, Any]]:
    """What each rank wrote, by rank."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("rank*.json"))]


def two_ranks_of(name: str, packed: Path, out: Path, *, launched: bool = True) -> list[dict[str, Any]]:
    """What both ranks of the program of that name saw of the packed dataset; they report into `out`. Not launched: it starts its ranks."""
    run_program(name, packed, out, ranks=2 if launched else None)
    found = reports(out)
    assert len(found) == 2
    return found


def children() -> list[int]:
    """Children of this process, by whichever thread, that are alive."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        try:
            found += [int(pid) for pid in (task / "children").read_text().split()]
        except OSError:
            continue
    return found
