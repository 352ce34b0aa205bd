"""Workers that die or hang: an error that tells who, how and over which samples; the loader goes on;
nothing is left behind."""

from __future__ import annotations

import gc
import os
import re
import signal
import time
from pathlib import Path

import pytest
import warm
from crash_helpers import (
    EXPECTED,
    SETTLES_S,
    SHM_AT_START,
    Doomed,
    DoomedStream,
    Pids,
    alive,
    census,
    children,
    nothing_left,
    survivors,
    whole,
)
from dev_shm import ours_since
from handles import grown

from fastload import FastLoader
from fastload.errors import ClosedError, LoaderTimeout, WorkerError

pytestmark = [
    pytest.mark.usefixtures("started_once"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.timeout(90),
]

TORCHS = """
import multiprocessing, os, sys
sys.path[:0] = sys.argv[3:]
from crash_helpers import Doomed
from torch.utils.data import DataLoader

try:
    list(DataLoader(Doomed(*sys.argv[1:3]), batch_size=3, num_workers=2))
except RuntimeError as error:
    print(error, error.__cause__ or "", flush=True)
    # One may wait for good for a lock that the dead one held, and keep these pipes open.
    for worker in multiprocessing.active_children():
        worker.kill()
    os._exit(0)
"""

# name: exit code as multiprocessing tells it, what the message says
ENDS = {
    "SIGKILL": (-9, r"SIGKILL.*memory"),
    "SIGSEGV": (-11, r"SIGSEGV"),
    "SIGTERM": (-15, r"SIGTERM"),
    "SIGABRT": (-6, r"SIGABRT"),
    "exit 3": (3, r"\b3\b"),
    "exit 0": (0, r"exit"),
}


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("persistent", [False, True])
def test_death_of_a_worker(
    how: str, persistent: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A WorkerError with worker, PID, exit code, signal and indices; the batches before it came; the
    loader can be iterated again."""
    armed = tmp_path / "armed"
    armed.touch()
    with nothing_left():
        loader = FastLoader(Doomed(armed, how), batch_size=3, num_workers=2, persistent_workers=persistent)
        exitcode, says = ENDS[how]
        for _ in range(2):
            got = []
            with pytest.raises(WorkerError) as raised:
                got.extend(whole(loader))
            error = raised.value
            assert error.worker == 1  # batch 3 is worker 1's
            assert error.exitcode == exitcode
            assert set(error.indices) >= {9, 10, 11}
            assert not set(error.indices) & {0, 1, 2, 6, 7, 8}
            assert not alive(error.pid)
            message = str(error)
            assert f"DataLoader worker (pid {error.pid}) exited unexpectedly" in message or re.search(
                rf"DataLoader worker \(pid\(?s?\)? {error.pid}\) exited unexpectedly", message
            )
            assert re.search(says, message, re.DOTALL), message
            assert "9" in message
            assert isinstance(error, RuntimeError)
        armed.unlink()
        assert whole(loader) == EXPECTED
        assert whole(loader) == EXPECTED
        del loader, error, raised
    capfd.readouterr()  # faulthandler's report of the segmentation fault


@pytest.mark.parametrize("how", ["SIGSEGV", "SIGKILL", "exit 3"])
def test_death_in_torchs_words(how: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What torch's loader says of that end, in its error and in the error's cause, is said here too, of the
    worker's PID.

    torch's runs in a program of its own: while its iterator lives, its handler of SIGCHLD raises wherever the
    process happens to be. It says two sentences, or one of them where the machine is so busy that the
    worker's end is noticed by a timeout first.
    """
    (tmp_path / "armed").touch()
    how_it_ended = r"is killed by signal: [^.]*|exited unexpectedly with exit code \d+|exited unexpectedly"
    sentences: list[str] = []
    for _ in range(4):  # its handler may raise where nobody prints it
        done = warm.run(TORCHS, tmp_path / "armed", how, Path(__file__).parent, Path(__file__).parents[1])
        said = re.sub(r"\d{3,}", "PID", done.stdout)
        sentences = re.findall(rf"DataLoader worker \(.*?\) (?:{how_it_ended})", said)
        if sentences:
            break
    assert sentences, done.stdout
    with pytest.raises(WorkerError) as raised:
        list(FastLoader(Doomed(tmp_path / "armed", how), batch_size=3, num_workers=2))
    told = re.sub(r"\d{3,}", "PID", f"{raised.value} {raised.value.__cause__ or ''}")
    assert all(sentence in told for sentence in sentences), (sentences, told)
    capfd.readouterr()


def test_batches_before_a_death_come(tmp_path: Path) -> None:
    """What was finished before the death is handed out before the error: nothing is lost that need not be."""
    (tmp_path / "armed").touch()
    got = []
    loader = FastLoader(Doomed(tmp_path / "armed", "SIGKILL", at=15), batch_size=3, num_workers=1)
    with pytest.raises(WorkerError):
        got.extend(batch[:, 0].tolist() for batch in loader)
    assert got == EXPECTED[: len(got)]
    iterator = iter(loader)
    assert next(iterator)[:, 0].tolist() == [0, 1, 2]
    with pytest.raises(WorkerError):
        list(iterator)
    with pytest.raises((ClosedError, WorkerError)):
        next(iterator)  # no quiet end that would pass for a whole epoch


@pytest.mark.parametrize("how", ["SIGKILL", "exit 3"])
def test_death_over_a_stream(how: str, tmp_path: Path) -> None:
    """The same for an IterableDataset's replica."""
    (tmp_path / "armed").touch()
    with nothing_left():
        loader = FastLoader(DoomedStream(tmp_path / "armed", how), batch_size=2, num_workers=2)
        with pytest.raises(WorkerError) as raised:
            list(loader)
        assert raised.value.worker == 1
        (tmp_path / "armed").unlink()
        assert len(whole(loader)) == 8
        del loader, raised


def test_death_in_worker_init_fn() -> None:
    """A worker that dies before its first sample is an error too, not a wait."""
    with nothing_left():
        loader = FastLoader(
            range(8), num_workers=2, worker_init_fn=lambda worker: os._exit(7) if worker else None
        )
        with pytest.raises(WorkerError) as raised:
            list(loader)
        assert (raised.value.worker, raised.value.exitcode) == (1, 7)
        del loader, raised


@pytest.mark.parametrize("how", ["sleep", "hold"])
@pytest.mark.parametrize("persistent", [False, True])
def test_hanging_worker(how: str, persistent: bool, tmp_path: Path) -> None:
    """A worker that hangs, even one that holds the interpreter lock, ends in LoaderTimeout; it is killed;
    the loader goes on."""
    armed = tmp_path / "armed"
    armed.touch()
    with nothing_left():
        loader = FastLoader(
            Doomed(armed, how), batch_size=3, num_workers=2, timeout=1, persistent_workers=persistent
        )
        with pytest.raises(LoaderTimeout, match=r"DataLoader timed out after 1(\.0)? seconds"):
            list(loader)
        armed.unlink()
        assert whole(loader) == EXPECTED
        del loader


@pytest.mark.parametrize("how", ["sleep", "hold"])
def test_leaving_a_hanging_worker(how: str, tmp_path: Path) -> None:
    """An iterator dropped while a worker is inside a long call does not wait for that call."""
    (tmp_path / "armed").touch()
    with nothing_left():
        iterator = iter(FastLoader(Doomed(tmp_path / "armed", how, at=2), batch_size=1, num_workers=1))
        assert next(iterator)[0, 0] == 0
        workers = children()
        assert len(workers) == 1
        began = time.monotonic()
        del iterator
        gc.collect()
        assert survivors(workers, 20) == []
        assert time.monotonic() - began < 20  # the call takes sixty


def test_killed_between_epochs() -> None:
    """A persistent worker killed while idle: the next epoch is whole, or a WorkerError says so and the one
    after is whole."""
    with nothing_left():
        loader = FastLoader(Pids(8), batch_size=2, num_workers=2, persistent_workers=True)
        victims = {int(pid) for batch in loader for pid in batch}
        for victim in victims:
            os.kill(victim, signal.SIGKILL)
        assert survivors(list(victims), 10) == []
        try:
            second = [int(pid) for batch in loader for pid in batch]
        except WorkerError as error:
            assert error.pid in victims
            second = [int(pid) for batch in loader for pid in batch]
        assert len(second) == 8
        assert not set(second) & victims
        del loader


@pytest.mark.long
def test_killed_again_and_again(tmp_path: Path) -> None:
    """Ten deaths in a row leave no more than one did, loader and all."""
    armed = tmp_path / "armed"
    armed.touch()
    loader = FastLoader(Doomed(armed, "SIGKILL"), batch_size=3, num_workers=2)
    first: dict[str, int] = {}
    for _ in range(10):
        with pytest.raises(WorkerError):
            whole(loader)
        first = first or census()
        assert not grown(census, first, SETTLES_S), sorted(ours_since(SHM_AT_START))
    assert first["children"] == 0
    armed.unlink()
    assert whole(loader) == EXPECTED
