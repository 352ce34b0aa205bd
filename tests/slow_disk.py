"""A real file system on which each open takes a while: FUSE's, by tests/slow_disk.c."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import accumulate
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_suffix(".c")
THREADS = 64


@cache
def _program(folder: Path) -> Path:
    found = subprocess.run(["pkg-config", "--cflags", "--libs", "fuse3"], capture_output=True, text=True)
    if found.returncode or shutil.which("fusermount3") is None or not Path("/dev/fuse").exists():
        pytest.skip("no FUSE here (Debian: fuse3, libfuse3-dev)")
    program = folder / "slow_disk"
    flags = found.stdout.split()
    subprocess.run(["cc", "-O2", "-Wall", "-Werror", str(SOURCE), "-o", str(program), *flags], check=True)
    return program


@contextmanager
def slow_disk(folder: Path, scratch: Path, delay_ms: int = 20) -> Iterator[Path]:
    """Shows a folder on a slow disk, read-only.

    Args:
        folder: what it shows.
        scratch: a folder for the program and the mount's own.
        delay_ms: what each open takes; any number of them at once.
    """
    scratch.mkdir(exist_ok=True)
    mount = scratch / "mount"
    mount.mkdir()
    command = [str(_program(scratch)), str(mount), str(folder), str(delay_ms), "-f"]
    with (scratch / "opens").open("ab") as opens:
        server = subprocess.Popen([*command, "-o", f"ro,max_threads={THREADS}"], stdout=opens)
    try:
        while not mount.is_mount():
            if server.poll() is not None:
                pytest.skip("FUSE mounts nothing here")
            time.sleep(0.01)
        yield mount
    finally:
        subprocess.run(["fusermount3", "-u", "-z", str(mount)], check=False)
        server.terminate()
        server.wait()


def opened(scratch: Path) -> tuple[int, int]:
    """How many opens a slow disk has seen, and how many of them at once."""
    seen = (scratch / "opens").read_text()
    depths = list(accumulate(1 if each == "(" else -1 for each in seen))
    return seen.count("("), max(depths, default=0)
