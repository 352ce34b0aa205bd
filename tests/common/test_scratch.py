"""Scratch folders go with their process: at the end of a block at once, after a kill with the next call;
those in use stay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fastload.common.files import scratch_folder

_HOLDS = (
    "import sys; from fastload.common.files import scratch_folder\nwith scratch_folder('test') as f: "
    "print(f, flush=True); sys.stdin.read()"
)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files, here and in children."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def holder() -> tuple[subprocess.Popen[str], Path]:
    """A process that has a scratch folder, and the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_it_is_removed_with_its_files(temporary: Path) -> None:
    """Also where the block ends with an error."""
    with pytest.raises(KeyError), scratch_folder("test") as folder:
        (folder / "file").write_bytes(b"x")
        assert folder.parent == temporary
        assert os.stat(folder).st_mode & 0o077 == 0
        raise KeyError
    assert not list(temporary.iterdir())


def test_after_a_kill_the_next_one_removes_it(temporary: Path) -> None:
    """What a living process has, what is of another kind, and what others may write to, stay."""
    living, theirs = holder()
    killed, left = holder()
    (left / "file").write_bytes(b"x")
    other, shared = temporary / "fastload-other-1", temporary / "fastload-test-shared"
    other.mkdir(mode=0o700)
    shared.mkdir()
    shared.chmod(0o777)
    (temporary / "fastload-test-link").symlink_to(other, target_is_directory=True)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert left.is_dir()
    with scratch_folder("test") as folder:
        assert not left.exists()
        assert {theirs, other, shared, folder} <= set(temporary.iterdir())
    living.communicate()
    killed.communicate()
    assert living.returncode == 0
    assert not theirs.exists()


_MAKES_MANY = """
from fastload.common.files import scratch_folder
for number in range(300):
    with scratch_folder("test") as folder:
        (folder / "file").write_bytes(b"x")
        assert (folder / "file").read_bytes() == b"x"
"""


def test_processes_that_make_and_remove_them_at_once(temporary: Path) -> None:
    """No one's folder is taken for an abandoned one."""
    children = [
        subprocess.Popen([sys.executable, "-c", _MAKES_MANY], stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [child.communicate()[1] for child in children] == [""] * 3
    assert not list(temporary.iterdir())
