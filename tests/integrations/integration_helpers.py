"""Programs of several processes: run with a limit, all they wrote gathered, nothing of them left."""

from __future__ import annotations

import json
import os
import random
import signal
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
import warm
from servers.process import free_ports

HERE = Path(__file__).parent
MARK = "FASTLOAD_TEST_PROGRAM"


def marked_processes(mark: str) -> list[int]:
    """Processes alive (not zombies) that carry the mark in their environment: a program's whole offspring,
    in whatever session."""
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


def run_program(
    name: str,
    *arguments: str | Path,
    ranks: int | None = None,
    imports: Sequence[str] = (),
    timeout: float = 100,
) -> str:
    """Runs the program of that name, with `ranks` processes as torchrun starts them where given; the output
    of all. Fails if it leaves a process behind.

    Each process is a warm interpreter; torchrun itself, which other tests run, imports torch once for each
    and once more.
    """
    mark = uuid.uuid4().hex
    path = os.pathsep.join([str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    environment = {
        **os.environ,
        MARK: mark,
        "PYTHONPATH": path,
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    port = free_ports(1)[0]
    started = [
        warm.Program(
            *(HERE / name, *arguments),
            environment=environment | (warm.rank_variables(rank, ranks, port) if ranks else {}),
            session=True,
            imports=imports,
        )
        for rank in range(ranks or 1)
    ]
    with ThreadPoolExecutor(len(started)) as pool:
        written = [pool.submit(program.communicate) for program in started]
        until = time.monotonic() + timeout
        while not all(each.done() for each in written) and time.monotonic() < until:
            # As torchrun does: the others would wait for it.
            if any(program.returncode for program in started):
                break
            time.sleep(0.01)
        late = time.monotonic() >= until
        # Helpers of multiprocessing end on their own when their pipe closes, a moment after their parent.
        until = time.monotonic() + 5
        while (left := marked_processes(mark)) and time.monotonic() < until and not late:
            time.sleep(0.05)
        _kill(mark)
    output = "".join(text for each in written for text in each.result())
    assert not late, f"{name} did not end within {timeout} s:\n{output}"
    assert not any(program.returncode for program in started), output
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


def two_ranks_of(
    name: str, packed: Path, out: Path, *, launched: bool = True, imports: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """What both ranks of the program of that name saw of the packed dataset; they report into `out`. Not
    launched: it starts its ranks."""
    run_program(name, packed, out, ranks=2 if launched else None, imports=imports)
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


class Drawn:
    """A transform, and then a number of each generator that transforms draw from: of equal draws before
    follow equal numbers."""

    def __init__(self, transform: Any) -> None:
        self.transform = transform

    def __call__(self, image: Any) -> Any:
        made = self.transform(image)
        return made, (torch.rand(1), random.random(), np.random.rand())


def seeded_epochs(loader: Any, epochs: int = 2) -> tuple[list[Any], Any]:
    """Batches of some epochs after the generators of this process were seeded, and the state of torch's
    afterwards."""
    torch.manual_seed(11)
    random.seed(11)
    np.random.seed(11)
    batches = [batch for _ in range(epochs) for batch in loader]
    return batches, torch.get_rng_state()


def equal_bits(mine: Any, other: Any) -> bool:
    """Returns True if two batches have the same form, and tensors equal bit for bit."""
    if isinstance(other, torch.Tensor):
        return isinstance(mine, torch.Tensor) and mine.dtype == other.dtype and torch.equal(mine, other)
    if isinstance(other, dict):
        return (
            isinstance(mine, dict)
            and list(mine) == list(other)
            and all(equal_bits(mine[key], other[key]) for key in other)
        )
    if isinstance(other, list | tuple):
        return type(mine) is type(other) and len(mine) == len(other) and all(map(equal_bits, mine, other))
    return bool(mine == other)


def runs_as_torchs(mine: Any, torchs: Any) -> str:
    """Compares two epochs of a FastLoader with those of a loader of torch, and closes it; returns what
    explain() says of images."""
    got, state = seeded_epochs(mine)
    expected, other = seeded_epochs(torchs)
    assert len(got) == len(expected) > 2
    assert all(equal_bits(a, b) for a, b in zip(got, expected, strict=True))
    assert torch.equal(state, other)
    told: str = mine.explain(all=True)
    mine.close()
    (line,) = [line for line in told.splitlines() if line.startswith("images")]
    return line
