"""kill -9 in the middle of `fastload index`: at every moment the dataset is whole, and another run ends
where an undisturbed one does."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import warm
from pictures import write_folder

import fastload
from fastload.packing import pack, verify
from fastload.store import DatasetReader, Manifest

TESTS = Path(__file__).resolve().parents[1]
ROUNDS = 6


def environment(*folders: Path) -> dict[str, str]:
    """Of programs that import this fastload, and what lies in folders."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (*folders, Path(fastload.__file__).parents[1]))),
    }


def contents(path: Path) -> tuple[list[bytes], dict[str, list[Any]], dict[str, Any], dict[str, Any]]:
    with DatasetReader(path) as reader:
        records = [reader.record(i) for i in range(len(reader))]
        columns = {name: reader.column(name).tolist() for name in reader.schema.columns}
        return records, columns, dict(reader.manifest.options), dict(reader.manifest.summary)


def is_tidy(path: Path) -> bool:
    manifest = Manifest.load(path)
    named = [*(shard.file for shard in manifest.shards), *(sidecar.file for sidecar in manifest.sidecars)]
    return sorted(os.listdir(path)) == sorted(["manifest.json", *named])


@pytest.fixture(scope="module")
def packed_both(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], tuple[Path, Path]]:
    """(without, with) index: so many photographs packed into shards of 1 MiB."""
    made: dict[int, tuple[Path, Path]] = {}

    def make(count: int) -> tuple[Path, Path]:
        if count not in made:
            root = tmp_path_factory.mktemp("index")
            source = write_folder(root / "src", count)
            for name, index in (("bare", False), ("with", True)):
                pack(source, root / name, shard_size=1 << 20, index=index)
            made[count] = root / "bare", root / "with"
        return made[count]

    return make


def start(out: Path) -> warm.Program:
    return warm.Program(
        warm.COMMAND, "index", out, "--workers", "2", "-q", environment=environment(), session=True
    )


def await_new_shard(out: Path, process: warm.Program, number: int) -> None:
    """Returns when so many shards have been begun, or the process has ended."""
    highest = max(int(shard.file[6:-5]) for shard in Manifest.load(out).shards) + number
    while process.poll() is None and not (out / f"shard-{highest:05d}.lmdb").exists():
        time.sleep(0.002)


@pytest.mark.long
def test_kill_at_every_point(packed_both: Callable[[int], tuple[Path, Path]], tmp_path: Path) -> None:
    """SIGKILL before each call that changes the disk: the dataset verifies, and another run makes it the
    one packed with index."""
    bare, expected = packed_both(75)
    assert len(Manifest.load(bare).shards) > 2
    script = [
        sys.executable,
        str(TESTS / "crash" / "index_kill_points.py"),
        str(bare),
        str(expected),
        str(tmp_path),
    ]
    done = subprocess.run(
        script, capture_output=True, text=True, timeout=280, check=False, env=environment(TESTS / "store")
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 8 * len(Manifest.load(bare).shards)


@pytest.mark.long
def test_killed_from_outside(packed_both: Callable[[int], tuple[Path, Path]], tmp_path: Path) -> None:
    """At random moments while some shard is written, several kills in a row to one dataset: whole each
    time, equal in the end."""
    bare, with_index = packed_both(200)
    expected = contents(with_index)
    seed = random.SystemRandom().randrange(2**32)
    rng = random.Random(seed)
    killed = 0
    for turn in range(ROUNDS):
        out = tmp_path / f"out{turn}"
        shutil.copytree(bare, out)
        for _ in range(3):
            process = start(out)
            await_new_shard(out, process, rng.randrange(1, 4))
            time.sleep(rng.uniform(0, 0.03))
            process.send_signal(signal.SIGKILL)
            process.communicate()
            killed += process.returncode == -signal.SIGKILL
            assert verify(out).ok, f"seed {seed}"
        process = start(out)
        assert process.communicate()[1] == "", f"seed {seed}"
        assert process.returncode == 0, f"seed {seed}"
        assert contents(out) == expected, f"seed {seed}"
        assert is_tidy(out), f"seed {seed}"
        shutil.rmtree(out)
    assert killed > 0, f"seed {seed}: every run was over before its kill"


def test_interrupted(packed_both: Callable[[int], tuple[Path, Path]], tmp_path: Path) -> None:
    """Ctrl-C: one line, exit code 130, no file of the attempt stays, and another run does the rest."""
    bare, with_index = packed_both(200)
    out = tmp_path / "out"
    shutil.copytree(bare, out)
    process = start(out)
    await_new_shard(out, process, 1)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate()
    if process.returncode == 0:
        pytest.skip("the run was over at once")
    assert (process.returncode, stdout) == (130, ""), stderr
    assert len(stderr.splitlines()) == 1, stderr
    assert "goes on with it: `fastload index" in stderr
    assert is_tidy(out)
    assert verify(out).ok
    process = start(out)
    process.communicate()
    assert process.returncode == 0
    assert contents(out) == contents(with_index)


def test_two_at_once(packed_both: Callable[[int], tuple[Path, Path]], tmp_path: Path) -> None:
    """The second is refused while the first runs, and the first is not disturbed."""
    bare, with_index = packed_both(200)
    out = tmp_path / "out"
    shutil.copytree(bare, out)
    first = start(out)
    try:
        await_new_shard(out, first, 1)
        os.kill(first.pid, signal.SIGSTOP)
        second = start(out)
        _, stderr = second.communicate()
    finally:
        os.kill(first.pid, signal.SIGCONT)
    _, told = first.communicate()
    assert first.returncode == 0, told
    if second.returncode == 0:
        pytest.skip("the first run was over at once")
    assert second.returncode == 2
    assert "another process is writing" in stderr
    assert str(out) in stderr
    assert contents(out) == contents(with_index)
