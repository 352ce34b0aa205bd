"""dev_shm: files of other programs in /dev/shm are not taken for a leak of this process."""

from __future__ import annotations

import os
import subprocess
import sys

from dev_shm import FOLDER, entries, ours_since


def test_a_file_belongs_to_its_maker() -> None:
    """By torch's names; that of a child is ours."""
    before = entries()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        names = {f"torch_{pid}_{os.getpid()}_census" for pid in (1, child.pid, os.getpid())}
        for name in names:
            (FOLDER / name).write_bytes(b"")
        try:
            assert ours_since(before) & names == names - {f"torch_1_{os.getpid()}_census"}
        finally:
            for name in names:
                (FOLDER / name).unlink()
        child.communicate(b"\n")
