"""What the tests of dying processes share: a census of what a process holds, datasets that misbehave,
scripts in sessions of their own."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import warm
from dev_shm import entries, ours_since
from handles import descriptors, grown, threads
from torch.utils.data import Dataset, IterableDataset

import fastload

SHM_AT_START = entries()
OTHERS: set[int] = set()
"""Children that are no test's of this folder: servers that this process started for others. Each test
begins with those that are there."""
SETTLES_S = 5.0
"""Seconds within which what a loader held is gone."""
HERE = Path(__file__).resolve().parent
PRELUDE = """
import gc, multiprocessing, os, signal, sys, threading, time
import torch
from fastload import FastLoader
from crash_helpers import *
"""


def children(pid: int | str = "self") -> list[int]:
    """Every child, zombies too, but the two helpers that multiprocessing keeps for a program's life, the
    warm servers, and OTHERS."""
    found = []
    servers = {server.pid for server in warm.servers()}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            of_thread = (task / "children").read_text().split()
        except FileNotFoundError:
            continue  # the thread has ended
        for child in of_thread:
            command = Path(f"/proc/{child}/cmdline").read_bytes()
            if int(child) in servers:
                continue
            if b"resource_tracker" not in command and b"multiprocessing.forkserver" not in command:
                found.append(int(child))
    return sorted(set(found) - OTHERS)


def census() -> dict[str, int]:
    """Children, threads, descriptors, mappings and descriptors of memory files that this process holds
    now, and its files in /dev/shm."""
    gc.collect()
    links = list(descriptors().values())
    return {
        "children": len(children()),
        "threads": len(threads()),
        "descriptors": len(links),
        "memory files": sum("memfd:" in link for link in links),
        "mappings": sum("memfd:" in line for line in Path("/proc/self/maps").read_text().splitlines()),
        "/dev/shm": len(ours_since(SHM_AT_START)),
    }


@contextmanager
def nothing_left() -> Iterator[None]:
    """What the block held is gone at its end."""
    before = census()
    yield
    left = grown(census, before, SETTLES_S)
    assert not left, (left, before)


def alive(pid: int) -> bool:
    """Whether a process runs: a zombie that nobody has buried yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def survivors(pids: list[int], seconds: float) -> list[int]:
    """Those of `pids` that still run after `seconds`; returns as soon as there are none."""
    deadline = time.monotonic() + seconds
    while (left := [pid for pid in pids if alive(pid)]) and time.monotonic() < deadline:
        time.sleep(0.01)
    return left


def segfault() -> None:
    ctypes.string_at(0)


def hold_the_lock(seconds: int = 60) -> None:
    """A long C call that does not let go of the interpreter lock."""
    ctypes.PyDLL(None).sleep(seconds)


DEATHS: dict[str, Callable[[], Any]] = {
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "SIGSEGV": segfault,
    "SIGTERM": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "SIGABRT": os.abort,
    "exit 3": lambda: os._exit(3),
    "exit 0": lambda: os._exit(0),
    "sys.exit": lambda: sys.exit(5),
    "sleep": lambda: time.sleep(60),
    "hold": hold_the_lock,
}


class Doomed(Dataset[torch.Tensor]):
    """Sample i is four i's; while the file `armed` exists, sample `at` is also the end of its worker."""

    def __init__(self, armed: Path | str, how: str, at: int = 9, n: int = 24) -> None:
        self.armed, self.how, self.at, self.n = str(armed), how, at, n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self.at and os.path.exists(self.armed):
            DEATHS[self.how]()
        return torch.full((4,), index)


EXPECTED = [[i, i + 1, i + 2] for i in range(0, 24, 3)]
"""First values of the rows of Doomed's batches of three."""


class DoomedStream(IterableDataset[torch.Tensor]):
    """The same as a stream, in worker 1 only."""

    def __init__(self, armed: Path | str, how: str) -> None:
        self.armed, self.how = str(armed), how

    def __iter__(self) -> Iterator[torch.Tensor]:
        for i in range(8):
            if i == 5 and os.path.exists(self.armed) and torch.utils.data.get_worker_info().id == 1:  # type: ignore[union-attr]
                DEATHS[self.how]()
            yield torch.full((4,), i)


class Pids(Dataset[int]):
    """The PID of whoever reads; samples from `slow_from` on take as `how` says."""

    def __init__(
        self, n: int = 10_000, slow_from: int = 10_000, how: str = "sleep", pause: float = 0.0
    ) -> None:
        self.n, self.slow_from, self.how, self.pause = n, slow_from, how, pause

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> int:
        if index >= self.slow_from:
            DEATHS[self.how]()
        time.sleep(self.pause)
        return os.getpid()


def write_script(folder: Path, body: str, *, guard: bool = True) -> tuple[Path, dict[str, str]]:
    """Writes `body` as a script's main program. Returns its path, and the environment that it runs in."""
    body = textwrap.dedent(body)
    main = 'if __name__ == "__main__":\n' + textwrap.indent(body, "    ") if guard else body
    script = folder / "script.py"
    script.write_text(PRELUDE + main)
    path = os.pathsep.join(map(str, (HERE, HERE.parent, Path(fastload.__file__).parents[1])))
    return script, {**os.environ, "PYTHONPATH": path}


def start(folder: Path, body: str, *, guard: bool = True, ignored: Sequence[int] = ()) -> warm.Program:
    """Runs `body` as a script's main program, in a session of its own that ignores these signals."""
    script, environment = write_script(folder, body, guard=guard)
    return warm.Program(script, folder=folder, environment=environment, session=True, ignored=ignored)


def finish(process: warm.Program, seconds: float = 60) -> tuple[int, str, str]:
    """Exit status, stdout, stderr; a script that does not end is killed with its session and fails the
    test."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        raise AssertionError(f"did not end within {seconds} s\n{out}\n{err}") from None
    return process.returncode, out, err


def run(folder: Path, body: str, *, seconds: float = 60, guard: bool = True) -> tuple[int, str, str]:
    return finish(start(folder, body, guard=guard), seconds)


def numbers(process: warm.Program) -> list[int]:
    """One line of a script's output, of whole numbers."""
    line = process.stdout.readline()
    if not line:
        raise AssertionError(f"the script ended early: {finish(process)}")
    return [int(word) for word in line.split()]


def whole(loader: Any) -> list[list[int]]:
    """One epoch: the first value of each row, batch by batch."""
    return [batch[:, 0].tolist() for batch in loader]
