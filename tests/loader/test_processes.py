"""The loader among processes and signals: forks, Ctrl-C, timeouts, interpreter exit, memory. Real
processes, real signals."""

from __future__ import annotations

import gc
import os
import subprocess
import textwrap
import threading
from pathlib import Path

import pytest
import torch
import warm
from dev_shm import entries, ours_since
from handles import all_ended_since, threads

from fastload import FastLoader, PackedDataset
from fastload import transforms as T
from fastload.common import system
from fastload.errors import LoaderTimeout, ResourceError

TRAIN = [T.RandomResizedCrop(64), T.RandomHorizontalFlip()]
PRELUDE = """
import os, signal, sys, threading, time
import torch
from fastload import FastLoader, PackedDataset, transforms as T
ds = PackedDataset(sys.argv[1], transform=[T.RandomResizedCrop(64), T.RandomHorizontalFlip()])
"""


def run(packed: Path, body: str) -> subprocess.CompletedProcess[str]:
    return warm.run(PRELUDE + textwrap.dedent(body), packed, error=True, timeout=60)


@pytest.mark.parametrize(
    "leave",
    [
        "it = iter(loader); next(it)",
        "[b for b in loader]",
        "held = list(loader)",
        "next(iter(loader)); 1 / 0",
    ],
)
def test_interpreter_exit_with_a_loader_open(packed: Path, leave: str) -> None:
    """A program that ends with a loader open, a loop broken off or an exception in it ends cleanly and at
    once."""
    done = run(packed, f"loader = FastLoader(ds, batch_size=4, num_workers=3, seed=1)\n{leave}\n")
    assert done.returncode == (1 if "1 / 0" in leave else 0), done.stderr
    assert ("ZeroDivisionError" in done.stderr) == ("1 / 0" in leave)
    assert "Exception ignored" not in done.stderr


def test_forked_child_gets_its_own_engine(packed: Path) -> None:
    """A child forked in mid-epoch keeps the batch it holds, can iterate the parent's loader, and the
    parent goes on unharmed."""
    done = run(
        packed,
        """
        torch.set_num_threads(1)  # torch's own OpenMP threads do not survive a fork
        loader = FastLoader(ds, batch_size=4, num_workers=2, seed=3, shuffle=True)
        whole = [x.clone() for x, _ in loader]
        loader.set_epoch(0)
        it = iter(loader)
        held, _ = next(it)
        pid = os.fork()
        if pid == 0:
            try:
                next(it)
                os._exit(10)
            except Exception as error:
                if "process" not in str(error):
                    os._exit(11)
            loader.set_epoch(0)
            mine = [x for x, _ in loader]
            ok = all(torch.equal(a, b) for a, b in zip(mine, whole, strict=True)) and torch.equal(held,
                whole[0])
            os._exit(0 if ok else 12)
        rest = [held, *(x for x, _ in it)]
        assert all(torch.equal(a, b) for a, b in zip(rest, whole, strict=True))
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        """,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "0"


def test_ctrl_c_during_a_wait(packed: Path) -> None:
    """SIGINT while the loop waits for a batch raises KeyboardInterrupt at once, and the loader can be
    iterated again."""
    done = run(
        packed,
        """
        slow = PackedDataset(sys.argv[1], transform=T.Resize((8, 8), dct_scale=False))
        loader = FastLoader(slow, batch_size=30000, sampler=[0] * 30000, num_workers=1)
        it = iter(loader)
        def interrupt():
            global sent
            sent = time.monotonic()
            os.kill(os.getpid(), signal.SIGINT)
        threading.Timer(0.15, interrupt).start()
        try:
            next(it)
            print("finished")
        except KeyboardInterrupt:
            print("interrupted" if time.monotonic() - sent < 1.0 else "late")
        del it
        print(len([1 for _ in FastLoader(ds, batch_size=4)]))
        """,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["interrupted", "13"]


def test_ctrl_c_without_threads(packed: Path) -> None:
    """num_workers=0 decodes in the calling thread and answers Ctrl-C between samples."""
    done = run(
        packed,
        """
        slow = PackedDataset(sys.argv[1], transform=T.Resize((8, 8), dct_scale=False))
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            next(iter(FastLoader(slow, batch_size=30000, sampler=[0] * 30000, num_workers=0)))
            print("finished")
        except KeyboardInterrupt:
            print("interrupted")
        """,
    )
    assert done.stdout.split() == ["interrupted"], done.stderr


def test_timeout_is_an_error(packed: Path) -> None:
    """A batch that takes longer than `timeout` seconds raises LoaderTimeout, which is a RuntimeError as
    torch's is."""
    ds = PackedDataset(packed, transform=T.Resize((8, 8), dct_scale=False))
    with FastLoader(ds, batch_size=30000, sampler=[0] * 30000, num_workers=1, timeout=0.3) as loader:
        with pytest.raises(
            LoaderTimeout, match=r"timed out after 0\.3 seconds: no batch became ready\. Raise timeout="
        ):
            next(iter(loader))
    assert issubclass(LoaderTimeout, RuntimeError)


def test_threads_end_with_the_loader(packed: Path) -> None:
    """close(), the with block, and the last reference each end every thread; threads live over epochs
    until then."""

    ds = PackedDataset(packed, transform=TRAIN)
    gc.collect()  # loaders that earlier tests left in cycles
    before = threads()
    loader = FastLoader(ds, batch_size=4, num_workers=3, seed=0)
    list(loader)
    during = threads() - before
    assert len(during) == 4  # three decoders and the read-ahead
    list(loader)
    assert threads() - before == during
    loader.close()
    assert all_ended_since(before)
    list(loader)
    del loader
    assert all_ended_since(before)
    with FastLoader(ds, batch_size=4, num_workers=3, seed=0) as loader:
        next(iter(loader))
    assert all_ended_since(before)


def test_iterating_from_another_thread(packed: Path) -> None:
    """A loader may be consumed by a thread that is not the main one."""
    ds = PackedDataset(packed, transform=TRAIN)
    got: list[int] = []
    loader = FastLoader(ds, batch_size=4, num_workers=2, seed=0)
    worker = threading.Thread(target=lambda: got.extend(len(y) for _, y in loader))
    worker.start()
    worker.join(30)
    assert sum(got) == len(ds)
    loader.close()


def test_shortage_of_memory_is_an_error_at_construction(packed: Path) -> None:
    """Batches that cannot fit name the bytes they need, before anything runs."""
    ds = PackedDataset(packed, transform=T.Resize((16000, 16000)))
    with pytest.raises(ResourceError, match=r"bytes.*lower batch_size"):
        FastLoader(ds, batch_size=len(ds))


def test_cpus_follow_affinity(packed: Path) -> None:
    """num_workers=None is the affinity mask's size; what quotas cut is tested in tests/common."""
    done = run(
        packed,
        "os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[0]})\nprint(FastLoader(ds).num_workers)",
    )
    assert done.stdout.strip() == "1", done.stderr


@pytest.mark.parametrize(
    ("ranks", "mask", "share"),
    [("", 6, 6), ("1", 6, 6), ("2", 6, 3), ("4", 6, 1), ("9", 6, 1), ("2", 3, 3), ("x", 6, 6)],
)
def test_ranks_of_torchrun_share_the_cpus(
    ranks: str, mask: int, share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each gets its part of six CPUs, unless it was bound to some of its own."""
    monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(mask)))
    monkeypatch.setattr(system, "_groups", lambda controller, root: iter(()))
    assert system.share_of_cpus() == share


def test_kill_leaves_nothing(packed: Path) -> None:
    """kill -9 of a loading process leaves no file in /dev/shm."""
    before = entries()
    code = PRELUDE + (
        "loader = FastLoader(ds, batch_size=4, num_workers=2)\nprint(len(list(loader)), "
        "flush=True)\ntime.sleep(60)\n"
    )
    with warm.Program(code, packed) as child:
        assert child.stdout.readline().strip() == "13"
        child.kill()
    assert not ours_since(before)


def test_epochs_do_not_grow_memory(packed: Path) -> None:
    """Fifty epochs end with the resident memory of the fifth, within what one allocator arena may vary."""
    ds = PackedDataset(packed, transform=TRAIN)

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    with FastLoader(ds, batch_size=8, shuffle=True, num_workers=2, seed=0) as loader:
        for _ in range(5):
            list(loader)
        early = resident()
        for _ in range(50):
            for _ in loader:
                pass
        assert resident() - early < 8 << 20


def test_pickling_a_loader(packed: Path) -> None:
    """A loader and its dataset pickle by path; the copy gives the same batches."""
    import pickle

    loader = FastLoader(PackedDataset(packed, transform=TRAIN), batch_size=8, seed=2)
    copy = pickle.loads(pickle.dumps(loader))
    for a, b in zip(loader, copy, strict=True):
        assert torch.equal(a[0], b[0])
