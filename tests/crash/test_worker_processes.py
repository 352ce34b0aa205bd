"""Workers that die or hang: an error that tells who, how and over which samples; the loader goes on; nothing is left behind."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from crash_helpers import Doomed, DoomedStream, Pids, alive, census, children, nothing_left, run, settled, start, survivors, write_script
from torch.utils.data import DataLoader

from fastload import FastLoader
from fastload.errors import ClosedError, LoaderTimeout, WorkerError

pytestmark = [pytest.mark.filterwarnings("ignore:This DataLoader will create"), pytest.mark.timeout(90)]

# name: exit code as multiprocessing tells it, what the message says
ENDS = {
    "SIGKILL": (-9, r"SIGKILL.*memory"),
    "SIGSEGV": (-11, r"SIGSEGV"),
    "SIGTERM": (-15, r"SIGTERM"),
    "SIGABRT": (-6, r"SIGABRT"),
    "exit 3": (3, r"\b3\b"),
    "exit 0": (0, r"exit"),
}


@pytest.fixture(autouse=True)
def started_once() -> None:
    """What the first use of a loader keeps for the process's life (imports, torch's threads) is no leak of the test's."""
    list(FastLoader(range(4), num_workers=1))
    gc.collect()


def whole(loader: Any) -> list[list[int]]:
    return [batch[:, 0].tolist() for batch in loader]


EXPECTED = [[i, i + 1, i + 2] for i in range(0, 24, 3)]


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("persistent", [False, True])
def test_death_of_a_worker(how: str, persistent: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A WorkerError with worker, PID, exit code, signal and indices; the batches before it came; the loader can be iterated again."""
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
    """What torch's loader says of that end, in its error and in the error's cause, is said here too, of the worker's PID."""
    (tmp_path / "armed").touch()
    told = []
    for kind, caught in ((DataLoader, RuntimeError), (FastLoader, WorkerError)):
        with pytest.raises(caught) as raised:
            list(kind(Doomed(tmp_path / "armed", how), batch_size=3, num_workers=2))
        told.append(re.sub(r"\d{3,}", "PID", f"{raised.value} {raised.value.__cause__ or ''}"))
    how_it_ended = r"is killed by signal: [^.]*|exited unexpectedly with exit code \d+|exited unexpectedly"
    sentences = re.findall(rf"DataLoader worker \(.*?\) (?:{how_it_ended})", told[0])
    assert len(sentences) == 2, told[0]
    assert all(sentence in told[1] for sentence in sentences), told
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
        loader = FastLoader(range(8), num_workers=2, worker_init_fn=lambda worker: os._exit(7) if worker else None)
        with pytest.raises(WorkerError) as raised:
            list(loader)
        assert (raised.value.worker, raised.value.exitcode) == (1, 7)
        del loader, raised


@pytest.mark.parametrize("how", ["sleep", "hold"])
@pytest.mark.parametrize("persistent", [False, True])
def test_hanging_worker(how: str, persistent: bool, tmp_path: Path) -> None:
    """A worker that hangs, even one that holds the interpreter lock, ends in LoaderTimeout; it is killed; the loader goes on."""
    armed = tmp_path / "armed"
    armed.touch()
    with nothing_left():
        loader = FastLoader(Doomed(armed, how), batch_size=3, num_workers=2, timeout=1, persistent_workers=persistent)
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
    """A persistent worker killed while idle: the next epoch is whole, or a WorkerError says so and the one after is whole."""
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


def test_killed_again_and_again(tmp_path: Path) -> None:
    """Ten deaths in a row leave no more than one did, loader and all."""
    armed = tmp_path / "armed"
    armed.touch()
    loader = FastLoader(Doomed(armed, "SIGKILL"), batch_size=3, num_workers=2)
    seen = []
    for _ in range(10):
        with pytest.raises(WorkerError):
            whole(loader)
        seen.append(settled(seen[0]) if seen else census())
    assert seen[-1] == seen[0]
    assert seen[0]["children"] == 0
    armed.unlink()
    assert whole(loader) == EXPECTED


def test_exception_of_the_dataset_leaves_nothing() -> None:
    """An exception raised in a worker ends the loop; when loader and exception are gone, so is all the rest."""

    def make(i: int) -> torch.Tensor:
        if i == 5:
            raise ValueError("five")
        return torch.ones(1000)

    class Raising(torch.utils.data.Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return 20

        def __getitem__(self, index: int) -> torch.Tensor:
            return make(index)

    with nothing_left():
        with pytest.raises(ValueError, match="five"):
            list(FastLoader(Raising(), num_workers=2))


@pytest.mark.parametrize("persistent", [False, True])
def test_ways_out_of_a_loop(persistent: bool) -> None:
    """break, an exception in the loop, a dropped iterator, one in a reference cycle, a closed loader: nothing is left of any."""

    def loader() -> Any:
        return FastLoader(Pids(1000), batch_size=2, num_workers=2, persistent_workers=persistent)

    class Cycle:
        pass

    with nothing_left():
        for batch in loader():
            assert len(batch) == 2
            break
        del batch
    with nothing_left():
        with pytest.raises(ZeroDivisionError):
            for batch in loader():
                assert len(batch) // 0
        del batch
    with nothing_left():
        iterator = iter(loader())
        next(iterator)
        del iterator
    with nothing_left():
        cycle = Cycle()
        cycle.iterator = iter(loader())  # type: ignore[attr-defined]
        cycle.self = cycle  # type: ignore[attr-defined]
        next(cycle.iterator)  # type: ignore[attr-defined]
        del cycle
    with nothing_left(), loader() as used:
        next(iter(used))
    with nothing_left():
        kept = [pair[0] for pair in zip(loader(), range(30), strict=False)]
        assert len(kept) == 30
        del kept


def test_epochs_leave_nothing() -> None:
    """The thirtieth epoch holds what the third did, with new workers each time and with persistent ones."""
    for persistent in (False, True):
        with nothing_left():
            loader = FastLoader(range(8), batch_size=2, num_workers=2, persistent_workers=persistent)
            for _ in range(3):
                list(loader)
            third = census()
            for _ in range(27):
                list(loader)
            assert settled(third) == third
            del loader


def test_held_batches_give_their_memory_back() -> None:
    """Memory of batches held after their loader is gone goes when they go."""

    class Big(Pids):
        def __getitem__(self, index: int) -> Any:
            return torch.full((1 << 20,), index % 256, dtype=torch.uint8)

    with nothing_left():
        held = list(FastLoader(Big(40), batch_size=2, num_workers=2))
        assert [int(batch[1, -1]) for batch in held] == list(range(1, 40, 2))
        assert census()["children"] == 0
        held = held[3:4]
        gc.collect()
        assert census()["mappings"] <= 2
        assert held[0].numpy()[:, ::4096].tolist() == [[6] * 256, [7] * 256]
        del held


def test_iterating_in_a_thread() -> None:
    """A loader runs in a thread that is not the main one; one begun in a thread that has ended goes on in another."""
    with nothing_left():
        iterator = _begun_in_a_thread()
        time.sleep(0.3)  # a worker bound to the thread that started it would be gone by now
        assert len(list(iterator)) == 19
        del iterator


def _begun_in_a_thread() -> Any:
    box: list[Any] = []
    loader = FastLoader(Pids(40), batch_size=2, num_workers=2)

    def inside() -> None:
        box.append(len(list(loader)))
        box.append(iter(loader))
        next(box[1])

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join(60)
    assert box[0] == 20
    return box[1]


def test_fork_of_the_program_in_mid_iteration(tmp_path: Path) -> None:
    """A child forked by the program keeps the batch it holds, cannot drain the parent's workers, iterates anew; the parent goes on."""
    code, out, err = run(
        tmp_path,
        """
        torch.set_num_threads(1)
        loader = FastLoader(Doomed("none", "sleep"), batch_size=3, num_workers=2, persistent_workers=True)
        it = iter(loader)
        held = next(it)
        pid = os.fork()
        if pid == 0:
            try:
                mine = next(it)
                print("took", mine[:, 0].tolist())
            except Exception as error:
                print("refused:", type(error).__name__)
            del it
            gc.collect()
            fresh = FastLoader(Doomed("none", "sleep"), batch_size=3, num_workers=2)
            print([b[0, 0].item() for b in fresh], held[:, 0].tolist(), flush=True)
            sys.exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(status, [held[0, 0].item()] + [b[0, 0].item() for b in it], [b[0, 0].item() for b in loader])
        """,
    )
    starts = list(range(0, 24, 3))
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0].startswith("refused:"), lines
    assert lines[1] == f"{starts} [0, 1, 2]"
    assert lines[2] == f"0 {starts} {starts}"
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("leave", "status"),
    [("pass", 0), ("sys.exit(4)", 4), ("raise ValueError('mine')", 1), ("os._exit(6)", 6), ("os.kill(os.getpid(), signal.SIGTERM)", -15)],
)
def test_exit_with_an_open_iterator(leave: str, status: int, tmp_path: Path) -> None:
    """However a program ends with iterators open, it ends at once, with its own status, its own traceback, and no worker left."""
    process = start(
        tmp_path,
        f"""
        it = iter(FastLoader(Pids(), batch_size=2, num_workers=2, prefetch_factor=3))
        other = FastLoader(Pids(slow_from=8), batch_size=1, num_workers=2, persistent_workers=True)
        ot = iter(other)
        held = [next(it), next(ot)]
        print(*children(), flush=True)
        {leave}
        """,
    )
    out, err = process.communicate(timeout=40)
    workers = [int(pid) for pid in out.split()]
    assert len(workers) == 4
    assert process.returncode == status, err
    assert survivors(workers, 5) == []
    assert err.count("Traceback") == ("mine" in leave)
    assert "Exception ignored" not in err
    assert "leaked" not in err


def test_daemonic_process(tmp_path: Path) -> None:
    """In a daemonic process, which may have no children, the error names the ways on; num_workers=0 works there."""
    code, out, err = run(
        tmp_path,
        """
        def inside():
            import fastload.errors
            try:
                list(FastLoader(range(4), num_workers=1))
            except fastload.errors.FastloadError as error:
                print(error)
            print(len(list(FastLoader(range(4)))), flush=True)
        process = multiprocessing.get_context("fork").Process(target=inside, daemon=True)
        process.start()
        process.join()
        """,
    )
    assert code == 0, err
    lines = out.splitlines()
    assert re.search(r"daemon", out)
    assert "num_workers=0" in out
    assert re.search(r"thread", out)
    assert re.search(r"pack", out)
    assert lines[-1] == "4", (out, err)
    assert "Traceback" not in err


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_script_without_a_main_guard(method: str, tmp_path: Path) -> None:
    """Without `if __name__ == "__main__"` a spawning script ends with an error that says so; its processes do not multiply."""
    code, out, err = run(
        tmp_path,
        f"""
        with open("imported", "a") as note:
            note.write("x")
        print(len(list(FastLoader(range(8), num_workers=2, multiprocessing_context="{method}"))))
        """,
        guard=False,
        seconds=60,
    )
    assert code != 0
    assert out == ""
    assert re.search(r"if __name__ == [\"']__main__[\"']", err), err
    assert len((tmp_path / "imported").read_text()) <= 1 + 2  # the script and its two workers


def test_small_shared_memory(tmp_path: Path) -> None:
    """With a /dev/shm of 1 MB, batches of 20 MB come through."""
    script, environment = write_script(
        tmp_path,
        """
        class Big(Pids):
            def __getitem__(self, index):
                return torch.full((10 << 20,), index, dtype=torch.uint8)
        assert os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize <= 1 << 20
        print([int(b[1, -1]) for b in FastLoader(Big(12), batch_size=2, num_workers=2)])
        """,
    )
    own = ["unshare", "--mount", "--map-root-user", "sh", "-c"]
    mount = "mount -t tmpfs -o size=1m none /dev/shm"
    if subprocess.run([*own, mount], capture_output=True, check=False).returncode:
        pytest.skip("mount namespaces are not allowed here")
    command = [*own, f'{mount} && exec "$0" "$1"', sys.executable, str(script)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == str(list(range(1, 12, 2))), done.stderr
