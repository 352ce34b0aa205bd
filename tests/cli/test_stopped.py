"""Ctrl-C: a real SIGINT to the real command, which ends soon with one sentence, exit code 130, and the
command that goes on."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastload
from fastload.common.stopping_pool import StoppingPool

SIDE = 400


class Noise:
    """Pictures that take some time to compress and to decode."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {
            "image": np.random.default_rng(index).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8),
            "label": index % 2,
        }


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Datasets that refer to one of 20 samples many times: raw pixels, which become PNG, and JPEGs."""
    root = tmp_path_factory.mktemp("noise")
    for name, encode, times in (("raw", "raw", 4), ("jpeg", "jpeg", 100)):
        fastload.pack(Noise(), root / name, encode=encode, quality=95)
        fastload.concat([root / name] * times, root / f"{name}.fl")
    return root


def interrupted(arguments: list[object], is_running: Callable[[int], bool]) -> tuple[int, str, str]:
    """Runs a command and sends it SIGINT once it works. Its exit code, and what it printed."""
    command = [sys.executable, "-m", "fastload", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and not is_running(process.pid):
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    return process.returncode, out, err


def has_open(pid: int, folder: Path) -> bool:
    """Returns True if a process has a shard of a folder open."""
    try:
        return any(
            os.readlink(f"/proc/{pid}/fd/{name}").startswith(str(folder / "shard"))
            for name in os.listdir(f"/proc/{pid}/fd")
        )
    except FileNotFoundError:
        return False


def next_command(code: int, out: str, err: str) -> list[str]:
    """The command that the one sentence of a stopped command names."""
    assert (code, out) == (130, ""), err
    (line,) = err.splitlines()
    assert line.startswith("fastload: stopped; ")
    return shlex.split(line.split("`")[1])


def rerun(command: list[str]) -> None:
    subprocess.run([sys.executable, "-m", "fastload", *command[1:]], check=True, capture_output=True)


@pytest.mark.parametrize("module", ["typer", "fastload.cli.stopped", "fastload.packing.options"])
def test_while_the_program_is_imported(module: str) -> None:
    """Ctrl-C before the command has begun ends with a sentence too, also where an exception would be
    swallowed."""
    code = (
        "import os, signal, sys, time\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}:\n"
        "            try: os.kill(os.getpid(), signal.SIGINT); time.sleep(5)\n"
        "            except KeyboardInterrupt: pass\n"
        "sys.meta_path.insert(0, Finder())\n"
        "sys.argv = ['fastload', 'info', 'train.fl']\n"
        "from fastload.cli.start import main\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "fastload: stopped before the command began; nothing was changed: run it again\n"


def test_verify(datasets: Path) -> None:
    """It ends though it has thousands of images to decode, and names itself."""
    arguments = ["verify", datasets / "jpeg.fl", "--decode", "--workers", "1", "-q"]
    printed = interrupted(arguments, lambda pid: has_open(pid, datasets / "jpeg"))
    assert next_command(*printed) == ["fastload", *map(str, arguments)]


def test_unpack(datasets: Path, tmp_path: Path) -> None:
    """What is written stays, and the named command writes the rest."""
    out = tmp_path / "files"
    arguments = ["unpack", datasets / "raw.fl", out, "--workers", "1", "-q"]
    printed = interrupted(arguments, lambda pid: any(out.rglob("*.png")))
    command = next_command(*printed)
    assert command == ["fastload", *map(str, arguments)]
    before = {path: path.stat().st_mtime_ns for path in sorted(out.rglob("*.png"))[:-1]}
    assert len(before) < 79
    rerun(command)
    assert len(list(out.rglob("*.png"))) == 80
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert not list(out.rglob(".fastload*"))


@pytest.mark.parametrize("name", ["all.tar", "all.parquet"])
def test_export(datasets: Path, tmp_path: Path, name: str) -> None:
    """No file is left, and the named command makes it."""
    arguments = ["export", datasets / "raw.fl", tmp_path / name, "--workers", "1", "-q"]
    printed = interrupted(arguments, lambda pid: any(tmp_path.iterdir()))
    assert next_command(*printed) == ["fastload", *map(str, arguments)]
    assert list(tmp_path.iterdir()) == []


def test_waiting_calls_are_dropped() -> None:
    """Once an exception leaves the block no call begins, and those that run end at their next check."""
    began: list[int] = []

    def call(number: int) -> None:
        began.append(number)
        while True:
            pool.check()
            time.sleep(0.001)

    with pytest.raises(KeyboardInterrupt), StoppingPool(2) as pool:
        calls = [pool.submit(call, number) for number in range(1000)]
        while len(began) < 2:
            time.sleep(0.001)
        raise KeyboardInterrupt
    assert began == [0, 1]
    assert all(each.done() for each in calls)
