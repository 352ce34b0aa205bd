"""Signals to the program, not to a worker: kill -9, Ctrl-C, a hang-up. Workers go with their parent, and
speak only when it must be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from crash_helpers import HERE, alive, children, finish, numbers, start, survivors, write_script

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize(
    ("method", "how", "persistent"),
    [
        ("fork", "sleep", False),
        ("fork", "hold", True),
        ("spawn", "hold", False),
        ("forkserver", "hold", False),
    ],
)
def test_parent_killed(method: str, how: str, persistent: bool, tmp_path: Path) -> None:
    """kill -9 of the program takes idle workers and those inside a long call, even one that holds the
    interpreter lock, within a second."""
    process = start(
        tmp_path,
        f"""
        idle = FastLoader(Pids(8), batch_size=1, num_workers=1, persistent_workers=True,
            multiprocessing_context="{method}")
        one = {{int(b[0]) for b in idle}}
        busy = FastLoader(
            Pids(slow_from=4, how="{how}"), batch_size=1, num_workers=2,
            multiprocessing_context="{method}", persistent_workers={persistent}
        )
        it = iter(busy)
        two = {{int(next(it)[0]) for _ in range(4)}}
        print(*one, *two, flush=True)
        next(it)
        """,
    )
    workers = numbers(process)
    assert len(workers) == 3
    time.sleep(0.3)  # into the long call
    assert all(alive(pid) for pid in workers)
    process.kill()
    left = survivors(workers, 1.0)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    process.communicate()
    assert left == []


@pytest.mark.parametrize("where", ["waiting", "stepping", "holding", "spawned"])
def test_ctrl_c(where: str, tmp_path: Path) -> None:
    """SIGINT to the whole process group ends the loop soon, with the program's own KeyboardInterrupt and
    not a word from workers."""
    data = {"waiting": "Pids(slow_from=4)", "holding": "Pids(slow_from=4, how='hold')"}.get(
        where, "Pids(pause=0.01)"
    )
    context = '"spawn"' if where == "spawned" else None
    process = start(
        tmp_path,
        f"""
        loader = FastLoader({data}, batch_size=1, num_workers=2, persistent_workers=True,
            multiprocessing_context={context})
        pids = set()
        for k, batch in enumerate(loader):
            pids.add(int(batch[0]))
            if k == 3:
                print(*pids, flush=True)
            if k > 3:
                time.sleep(0.005)
        """,
    )
    workers = numbers(process)
    assert len(workers) == 2
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGINT)
    code, _, err = finish(process, 3)
    assert code in (-signal.SIGINT, 128 + signal.SIGINT, 1)
    assert survivors(workers, 1.0) == []
    assert err.count("Traceback") == 1, err
    assert err.strip().endswith("KeyboardInterrupt"), err
    assert "in DataLoader worker" not in err
    assert len(err.splitlines()) < 40, err


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_ctrl_c_while_workers_start(method: str, tmp_path: Path) -> None:
    """SIGINT to the group while workers are still importing: the program's own traceback and no other, and
    no worker left."""
    process = start(
        tmp_path,
        f"""
        print(os.getpid(), flush=True)
        iterator = iter(FastLoader(Pids(slow_from=0), num_workers=2, multiprocessing_context="{method}"))
        print(*children(), flush=True)
        next(iterator)
        """,
    )
    assert numbers(process) == [process.pid]
    workers = numbers(process)
    os.killpg(process.pid, signal.SIGINT)
    code, _, err = finish(process, 10)
    assert code in (-signal.SIGINT, 128 + signal.SIGINT, 1)
    assert survivors(workers, 1.0) == []
    assert err.count("Traceback") == 1, err
    assert err.strip().endswith("KeyboardInterrupt"), err


def test_ctrl_c_at_the_last_moment(tmp_path: Path) -> None:
    """SIGINT after Python's last look for signals, before the system call that waits for a worker: the call
    is not interrupted, and Ctrl-C is not held back by it."""
    late = tmp_path / "late_signal.so"
    source = HERE / "late_signal.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-Wall", "-Werror", str(source), "-o", str(late)], check=True)
    script, environment = write_script(
        tmp_path,
        """
        import ctypes
        iterator = iter(FastLoader(Pids(slow_from=2), batch_size=1, num_workers=1))
        next(iterator), next(iterator)
        ctypes.c_int.in_dll(ctypes.CDLL(None), "armed").value = 1
        next(iterator)
        """,
    )
    process = subprocess.run(
        [sys.executable, script],
        env=environment | {"LD_PRELOAD": str(late)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert process.stderr.strip().endswith("KeyboardInterrupt"), process.stderr


def test_ctrl_c_can_be_caught(tmp_path: Path) -> None:
    """A program that catches KeyboardInterrupt finds the loader usable, and its workers are its own again."""
    process = start(
        tmp_path,
        """
        loader = FastLoader(Pids(60, pause=0.02), batch_size=1, num_workers=2, persistent_workers=True)
        try:
            for k, batch in enumerate(loader):
                if k == 3:
                    print(1, flush=True)
        except KeyboardInterrupt:
            pass
        print(len(list(loader)), flush=True)
        """,
    )
    assert numbers(process) == [1]
    os.killpg(process.pid, signal.SIGINT)
    code, out, err = finish(process, 20)
    assert (code, out.strip(), err) == (0, "60", "")


LOOP = """
        loader = FastLoader(Pids(80, pause=0.02), batch_size=1, num_workers=2,
            multiprocessing_context={method!r})
        pids = []
        for batch in loader:
            pids.append(int(batch[0]))
            if len(pids) == 2:
                print(*pids, flush=True)
        print(len(pids), flush=True)
        """


def test_hangup_by_default_ends_all(tmp_path: Path) -> None:
    """SIGHUP to the group with nobody minding: the program dies of it and its workers are gone."""
    process = start(tmp_path, LOOP.format(method="fork"))
    workers = numbers(process)
    os.killpg(process.pid, signal.SIGHUP)
    code, _, err = finish(process, 10)
    assert code == -signal.SIGHUP, err
    assert survivors(workers, 1.0) == []


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_ignored_hangup_is_ignored_by_workers_too(method: str, tmp_path: Path) -> None:
    """Under nohup (SIGHUP ignored from the start) program and workers go on to the end."""
    process = start(tmp_path, LOOP.format(method=method), ignored=[signal.SIGHUP])
    workers = numbers(process)
    os.killpg(process.pid, signal.SIGHUP)
    code, out, err = finish(process, 20)
    assert (code, out.strip()) == (0, "80"), err
    assert survivors(workers, 1.0) == []


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_handler_runs_in_the_program_only(method: str, tmp_path: Path) -> None:
    """A program that handles SIGHUP in Python (to save and go on) is told once; its workers neither handle
    it nor die of it."""
    handler = """
        def save(number, frame):
            with open("told", "a") as note:
                note.write(f"{os.getpid()}\\n")
        signal.signal(signal.SIGHUP, save)
        """
    process = start(tmp_path, handler + LOOP.format(method=method))
    workers = numbers(process)
    os.killpg(process.pid, signal.SIGHUP)
    code, out, err = finish(process, 20)
    assert (code, out.strip()) == (0, "80"), err
    assert (tmp_path / "told").read_text().split() == [str(process.pid)]
    assert survivors(workers, 1.0) == []


def test_terminated_parent_leaves_no_worker(tmp_path: Path) -> None:
    """SIGTERM to the program alone: its workers end with it, and the script's session is empty."""
    process = start(tmp_path, LOOP.format(method="fork"))
    workers = numbers(process)
    assert set(children(process.pid)) == set(workers)
    process.terminate()
    assert finish(process, 10)[0] == -signal.SIGTERM
    assert survivors(workers, 1.0) == []


def test_stopped_and_continued(tmp_path: Path) -> None:
    """Ctrl-Z and fg: the group is stopped for a while and goes on where it was."""
    process = start(tmp_path, LOOP.format(method="fork"))
    numbers(process)
    os.killpg(process.pid, signal.SIGSTOP)
    time.sleep(1.0)
    os.killpg(process.pid, signal.SIGCONT)
    code, out, err = finish(process, 20)
    assert (code, out.strip(), err) == (0, "80", "")
