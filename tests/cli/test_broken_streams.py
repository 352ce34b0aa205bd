"""Commands whose stdout or stderr is closed, full, or a pipe that nobody reads: an exit status, one
sentence at most, no traceback."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pictures import write_folder
from typer.main import get_command

from fastload.cli import main, start
from fastload.cli.main import COMMANDS
from fastload.common.progress import Progress
from fastload.common.streams import tell
from fastload.packing import pack
from fastload.unpacking.verify import verify

FULL = "fastload: what it shows cannot be written to stdout: No space left on device\n"


def closed(number: int) -> None:
    os.close(number)


def full(number: int) -> None:
    os.dup2(os.open("/dev/full", os.O_WRONLY), number)


def unread(number: int) -> None:
    """A pipe whose reader has left."""
    reading, writing = os.pipe()
    os.close(reading)
    os.dup2(writing, number)


Break = Callable[[int], None]
BOTH = [(one, other) for one in (None, closed, full, unread) for other in (None, closed, full, unread)]


class Broken:
    """Runs `fastload` in a forked child with broken streams: a start of the interpreter would take most of
    the time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, arguments: list[object], out: Break | None, err: Break | None) -> tuple[int, str, str]:
        """Exit status of a command, and what came through stdout and stderr where they are files."""
        files = [self.folder / "stdout", self.folder / "stderr"]
        child = os.fork()
        if not child:
            status = 99
            try:
                for number, file in zip((1, 2), files, strict=True):
                    os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
                for number, break_it in ((2, err), (1, out)):
                    if break_it is not None:
                        break_it(number)
                # As the interpreter begins: no stream where the descriptor is closed.
                sys.stdout, sys.stderr = (
                    None if each is closed else open(number, "w") for number, each in ((1, out), (2, err))
                )
                sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr
                sys.argv = ["fastload", *map(str, arguments)]
                status = self._status()
                for stream in (sys.stdout, sys.stderr):
                    if stream is not None:
                        stream.flush()  # as the interpreter's end does, whose status a failure would be
            except BaseException:
                status = 98
            finally:
                os._exit(status)
        _, ended = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(ended), *(file.read_text() for file in files)

    @staticmethod
    def _status() -> int:
        try:
            start.main()
        except SystemExit as ended:
            return ended.code if isinstance(ended.code, int) else 97
        except BaseException:
            sys.excepthook(*sys.exc_info())
        return 1


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broken]:
    with pytest.MonkeyPatch.context() as patched:
        # Typer reads the signatures of all commands at each call else.
        patched.setattr(main, "app", get_command(main.app))
        patched.setattr(sys, "argv", ["fastload", "info", "--help"])
        with pytest.raises(SystemExit):
            main.main()  # imports, once, what each child would
        yield Broken(tmp_path_factory.mktemp("streams"))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    write_folder(root / "photos", 4)
    pack(root / "photos", root / "train.fl", progress=False)
    return root / "train.fl"


@pytest.mark.parametrize(("out", "err"), BOTH[1:])
def test_each_way_that_streams_are_broken(
    broken: Broken, dataset: Path, out: Break | None, err: Break | None
) -> None:
    """A closed stream is like /dev/null. If stdout is full, one sentence says so, with status 2; if nobody
    reads it, status 2 alone. A broken stderr changes no status."""
    lost = out in (full, unread)
    for arguments, status, shown, said in (
        (["info", dataset], 2 * lost, "samples", FULL * (out is full)),
        (["info", dataset, "--json"], 2 * lost, '"samples": 4', FULL * (out is full)),
        (["--help"], 2 * lost, "Usage", FULL * (out is full)),
        (["info", dataset / "none"], 2, "", f"fastload: there is no {dataset / 'none'}"),
    ):
        code, stdout, stderr = broken.run(arguments, out, err)
        assert code == status
        assert (shown in stdout) if out is None else stdout == ""
        assert stderr.startswith(said) if err is None else stderr == ""
        assert len(stderr.splitlines()) <= 1


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command(broken: Broken, name: str) -> None:
    """Its help and its errors, on streams that are closed or full."""
    assert broken.run([name, "--help"], closed, closed)[0] == 0
    assert broken.run([name, "--help"], full, None) == (2, "", FULL)
    wrong = "a file that is missing" if name == "run" else "--no-such-option"
    assert broken.run([name, wrong], closed, closed)[0] == 2
    assert broken.run([name, wrong], full, full)[0] == 2


def test_a_commands_work_is_done(broken: Broken, dataset: Path, tmp_path: Path) -> None:
    """Commands that make something make it whole, whatever happens to what they print of it, and to their
    progress."""
    photos = dataset.parent / "photos"
    for command, inputs, out in (
        ("pack", [photos], closed),
        ("attach", [photos], full),
        ("convert", [dataset], unread),
        ("concat", [dataset, dataset], closed),
        ("export", [dataset], full),
        ("unpack", [dataset], unread),
    ):
        made = tmp_path / (f"{command}.tar" if command == "export" else command)
        code, stdout, _ = broken.run([command, *inputs, made], out, out)
        assert (code, stdout) == (0 if out is closed else 2, ""), command
        assert made.exists(), command
        if (made / "manifest.json").exists():
            assert verify(made, progress=False).ok


def test_no_file_gets_a_closed_streams_number(tmp_path: Path) -> None:
    """stdin, stdout and stderr are /dev/null in a command and in what it starts; the program of
    `fastload run` gets them closed, as given. A real start of the interpreter."""
    show = tmp_path / "show.py"
    show.write_text(
        f"import os, sys; open({str(tmp_path / 'seen')!r}, 'w').write(f'{{sys.stdin}} {{sys.stdout}} "
        f"{{sys.stderr}}')"
    )
    for module in ("fastload", "fastload.run"):
        run = ["run"] if module == "fastload" else []
        command = [sys.executable, "-m", module, *run, str(show)]
        done = subprocess.run(["sh", "-c", '"$@" <&- >&- 2>&-', "sh", *command], check=False)
        assert done.returncode == 0
        assert (tmp_path / "seen").read_text() == "None None None"
        (tmp_path / "seen").unlink()
    missing = [sys.executable, "-m", "fastload.run", "missing.py"]
    done = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *missing], check=False, stderr=subprocess.PIPE, text=True
    )
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert done.stderr.startswith("fastload run: missing.py: there is no such file")


@pytest.mark.parametrize("break_it", [None, full, unread])
def test_progress_needs_no_reader(monkeypatch: pytest.MonkeyPatch, break_it: Break | None) -> None:
    """A job goes on where stderr is closed, full or unread."""
    stream = None
    if break_it is not None:
        number = os.dup(1)
        break_it(number)
        stream = os.fdopen(number, "w")
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", stream)
        tell("a line")
        with Progress(10, "packing", shown=True) as progress:
            progress.start(0, 0)
            progress._next = 0.0
            progress.update(5, 100)
    if stream is not None:
        with contextlib.suppress(OSError):
            stream.close()
