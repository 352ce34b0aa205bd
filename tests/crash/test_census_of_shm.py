"""dev_shm: files of other programs in /dev/shm are not taken for a leak of this process."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time

import dev_shm
import pytest
from dev_shm import FOLDER, entries, ours_since


def leave(name: str) -> None:
    """Makes a file as torch names it, and ends at once by a signal."""
    (FOLDER / f"torch_{os.getpid()}_{name}").write_bytes(b"")
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_file_belongs_to_its_maker(method: str) -> None:
    """Also when a process has ended that nobody saw alive: a worker's file is ours, another program's is
    not."""
    before = entries()
    name = f"{os.getpid()}_census"
    worker = multiprocessing.get_context(method).Process(target=leave, args=(name,))
    worker.start()
    worker.join()
    code = f"import os; open('{FOLDER}/torch_%d_{name}' % os.getpid(), 'w'); os.kill(os.getpid(), 9)"
    other = subprocess.Popen([sys.executable, "-c", code])
    other.wait()
    files = {f"torch_{pid}_{name}" for pid in (worker.pid, other.pid)}
    try:
        assert files <= entries()
        assert ours_since(before) & files == {f"torch_{worker.pid}_{name}"}
    finally:
        for file in files:
            (FOLDER / file).unlink()


def test_the_file_of_a_forked_process_is_ours() -> None:
    """That of a child by os.fork as well, and of its child."""
    before = entries()
    name = f"{os.getpid()}_forked"
    if (child := os.fork()) == 0:
        if os.fork() == 0:
            leave(name)
        os.wait()
        os._exit(0)
    os.waitpid(child, 0)
    (found,) = ours_since(before) & {each for each in entries() if each.endswith(name)}
    (FOLDER / found).unlink()


def test_a_number_that_comes_again_is_another_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system gives a process's number again: a file is ours that was made in the life of one of ours."""
    before = entries()
    worker = multiprocessing.get_context("fork").Process(target=leave, args=("again",))
    worker.start()
    worker.join()
    name = f"torch_{worker.pid}_again"
    try:
        assert ours_since(before) == {name}
        assert worker.pid is not None
        monkeypatch.setattr(dev_shm, "_begins", lambda: {worker.pid: time.time() - 1000})
        assert not ours_since(before) & {name}
        monkeypatch.setattr(dev_shm, "_begins", lambda: {worker.pid: time.time() + 1000})
        assert not ours_since(before) & {name}
    finally:
        (FOLDER / name).unlink()
