"""Whole programs with worker processes: one that forks, exits, is a daemon, spawns without a main guard,
or has little shared memory."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from crash_helpers import run, start, survivors, write_script

pytestmark = [
    pytest.mark.usefixtures("started_once"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.timeout(90),
]


def test_fork_of_the_program_in_mid_iteration(tmp_path: Path) -> None:
    """A child forked by the program keeps the batch it holds, cannot drain the parent's workers, iterates
    anew; the parent goes on."""
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
    [
        ("pass", 0),
        ("sys.exit(4)", 4),
        ("raise ValueError('mine')", 1),
        ("os._exit(6)", 6),
        ("os.kill(os.getpid(), signal.SIGTERM)", -15),
    ],
)
def test_exit_with_an_open_iterator(leave: str, status: int, tmp_path: Path) -> None:
    """However a program ends with iterators open, it ends at once, with its own status, its own traceback,
    and no worker left."""
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
    """In a daemonic process, which may have no children, the error names the ways on; num_workers=0 works
    there."""
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


@pytest.mark.long
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_script_without_a_main_guard(method: str, tmp_path: Path) -> None:
    """Without `if __name__ == "__main__"` a spawning script ends with an error that says so; its processes
    do not multiply."""
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
