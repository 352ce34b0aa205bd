"""A checkout in which faults are tried: its sources are changed, built and restored, and its tests run."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from faults import HEADER, HITS, Fault, probed

HERE = Path(__file__).resolve().parent
PLUGIN = "mutants_plugin"
OWN_TEST = "tests/build/test_mutants.py"
"""The test that the list fits the sources: with a fault it fails, whatever that is."""
CTEST = "ctest:"
HANG_S = 120
"""Seconds after which a test hangs."""
_GRACE_S = 30  # that pytest-timeout has to end it


@dataclass
class Run:
    """Result of a run of tests.

    Attributes:
        ended: tests that ran to their end, in order.
        failed: tests that failed, hung or took the process with them; also files that could not be collected.
        at_hand: tests that had begun when the process ended.
        seconds: duration.
        stopped: True if the time was up.
    """

    ended: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    at_hand: list[str] = field(default_factory=list)
    seconds: float = 0.0
    stopped: bool = False


class Stopped(Exception):
    """A run was ended since the runner stops."""


class Checkout:
    """A prepared git worktree: built, with an environment, and nobody else's while this works in it.

    1. `changed` writes changed sources and builds; when its block ends the sources and the native module are
       as they were.
    2. The plugin lies in the tree from the first run of pytest on, until `close`.

    Args:
        root: its folder.
        python: its interpreter, by default .venv/bin/python in it.
    """

    def __init__(self, root: Path, python: str | None = None) -> None:
        self.root = root.resolve()
        self.python = python or str(self.root / ".venv/bin/python")
        self.stopped = False  # any thread may set it: what runs then ends, with Stopped
        self._scratch = Path(tempfile.mkdtemp(prefix="mutants-"))
        self._dropped: set[Path] = set()

    def close(self) -> None:
        """Removes what was put into the tree."""
        for path in self._dropped:
            path.unlink(missing_ok=True)
        shutil.rmtree(self._scratch, ignore_errors=True)

    # ---- sources

    def text(self, file: str) -> str:
        return (self.root / file).read_text(encoding="utf-8")

    def write(self, file: str, text: str) -> None:
        """Writes a source. Compiled modules go, as they may be of the same second and size."""
        path = self.root / file
        path.write_text(text, encoding="utf-8")
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
            compiled.unlink()

    def drop(self, name: str, path: str) -> None:
        """Puts a file of this folder into the tree."""
        shutil.copy(HERE / name, self.root / path)
        self._dropped.add(self.root / path)

    @contextmanager
    def changed(self, sources: Mapping[str, str], *, native: bool) -> Iterator[Changed]:
        """The tree with other texts of some files, by name; `native`: the module is built."""
        change = Changed(self, sources, native)
        try:
            change.make()
            yield change
        finally:
            change.undo()

    @contextmanager
    def with_faults(self, faults: Sequence[Fault]) -> Iterator[Changed]:
        """The tree with faults."""
        sources: dict[str, str] = {}
        for fault in faults:
            sources[fault.file] = fault.applied(sources.get(fault.file) or self.text(fault.file))
        with self.changed(sources, native=any(fault.is_native for fault in faults)) as change:
            yield change

    @contextmanager
    def with_probes(self, faults: Sequence[Fault]) -> Iterator[Changed]:
        """The tree with the probes of faults."""
        native = any(fault.is_native for fault in faults)
        if native:
            self.drop("hits.h", f"csrc/{HEADER}")
        for package in {fault.file.split("/")[0] for fault in faults if not fault.is_native}:
            self.drop("hits.py", f"{package}/{HITS}.py")
        by_file: dict[str, list[Fault]] = {}
        for fault in faults:
            by_file.setdefault(fault.file, []).append(fault)
        sources = {file: probed(self.text(file), theirs) for file, theirs in by_file.items()}
        with self.changed(sources, native=native) as change:
            yield change

    def build(self) -> None:
        """Builds the native module. Raises CalledProcessError."""
        self._checked([self.python, "setup.py", "-q", "build_ext", "--inplace"])

    def modules(self) -> list[Path]:
        """The built native modules."""
        return sorted(self.root.glob("fastload/_native/*.so"))

    # ---- C tests

    def ctests(self) -> dict[str, list[str]]:
        """The targets of make that run each program of tests/c, by the program's name, the plain one
        first."""
        if not (self.root / "Makefile").exists():
            return {}
        show = [
            "make",
            "-s",
            "--no-print-directory",
            "--eval",
            "mutants-show: ; @echo $(CTEST_RUNS)",
            "mutants-show",
        ]
        found: dict[str, list[str]] = {}
        for target in self._checked(show).split():
            _, kind, program = (*target.split("-", 2), "", "")[:3]
            if program.startswith("test_") and kind in ("plain", "asan", "tsan"):
                found.setdefault(program, []).append(target)
        return found

    def make(self, target: str, limit: float, variables: Mapping[str, str] | None = None) -> bool:
        """Makes a target, and returns True if that succeeds in time. Raises CalledProcessError if the C
        code cannot be compiled."""
        library = target.split("-")[1]
        self._checked(["make", "-j2", f"build/ctest/{library}/libcsrc.a"])
        return self._run(["make", target], limit, variables or {}) == 0

    # ---- pytest

    def pytest(
        self,
        arguments: Sequence[str],
        only: Sequence[str] = (),
        *,
        limit: float,
        reach: Path | None = None,
        hang: float = HANG_S,
    ) -> Run:
        """Runs pytest; `only`: ids of the tests to run, in this order; `reach`: the report of probes.
        `hang`: see `_watched`."""
        self.drop("plugin.py", f"{PLUGIN}.py")
        log = self._scratch / "log"
        log.write_text("")
        variables = {"MUTANTS_LOG": str(log), "OMP_WAIT_POLICY": "PASSIVE"}
        if reach is not None:
            variables["MUTANTS_REACH"] = str(reach)
        files = []
        if only:
            (self._scratch / "only").write_text("\n".join(only))
            variables["MUTANTS_ONLY"] = str(self._scratch / "only")
            (self._scratch / "files").write_text(
                "\n".join(dict.fromkeys(test.split("::")[0] for test in only))
            )
            files = [f"--timeout={HANG_S}", f"@{self._scratch / 'files'}"]
        command = [
            self.python,
            "-m",
            "pytest",
            "-q",
            "-p",
            PLUGIN,
            "-p",
            "no:cacheprovider",
            f"--ignore={OWN_TEST}",
            *arguments,
            *files,
        ]
        start = time.monotonic()
        code = self._run(command, limit, variables, log if only else None, hang)
        run = _read(log)
        run.seconds = time.monotonic() - start
        run.stopped = code is None and run.seconds >= limit
        if not run.stopped:
            run.failed += [test for test in run.at_hand if test not in run.failed]
        if code not in (0, 1, 5) and not run.stopped and not run.failed:
            raise RuntimeError(f"pytest ended with {code}, and no test failed:\n{self._output()}")
        return run

    def _run(
        self,
        command: Sequence[str],
        limit: float,
        variables: Mapping[str, str],
        log: Path | None = None,
        hang: float = HANG_S,
    ) -> int | None:
        """The exit code of a program; None: it was ended, since `limit` seconds were over or, by the log,
        the test at hand hangs."""
        with open(self._scratch / "output", "w") as out:
            process = subprocess.Popen(
                command,
                cwd=self.root,
                env={**_environment(), **variables},
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        end = time.monotonic() + limit
        try:
            while not _has_ended(process):
                if self.stopped:
                    raise Stopped
                if time.monotonic() > end or (
                    log is not None and time.time() - log.stat().st_mtime > hang + _GRACE_S
                ):
                    return None
            return process.returncode
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # also what it has left behind
            process.wait()

    def _output(self) -> str:
        return (self._scratch / "output").read_text(errors="replace")[-3000:]

    def _checked(self, command: Sequence[str]) -> str:
        done = subprocess.run(
            command, cwd=self.root, env=_environment(), capture_output=True, text=True, check=False
        )
        if done.returncode:
            print(done.stdout[-2000:], done.stderr[-2000:], file=sys.stderr)  # noqa: T201
            done.check_returncode()
        return done.stdout


class Changed:
    """A change of a checkout's sources, which can be made and undone again and again: the native module is
    built once."""

    def __init__(self, checkout: Checkout, sources: Mapping[str, str], native: bool) -> None:
        self._checkout = checkout
        self._sources = dict(sources)
        self._before = {file: checkout.text(file) for file in sources}
        self._clean = _contents(checkout.modules()) if native else {}
        self._built: dict[Path, bytes] = {}
        self._native = native

    def make(self) -> None:
        """Writes the changed sources, and builds."""
        for file, text in self._sources.items():
            self._checkout.write(file, text)
        if self._built:
            _restore(self._built)
        elif self._native:
            self._checkout.build()
            self._built = _contents(self._checkout.modules())

    def undo(self) -> None:
        """Restores the sources and the native module."""
        for file, text in self._before.items():
            self._checkout.write(file, text)
        _restore(self._clean)


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Waits a second for the end of a process, and returns True if that has come."""
    try:
        process.wait(1.0)
    except subprocess.TimeoutExpired:
        return False
    return True


def _contents(paths: Iterable[Path]) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in paths}


def _restore(contents: Mapping[Path, bytes]) -> None:
    """Writes files anew: a process that has one mapped keeps the old one."""
    for path, content in contents.items():
        mode = path.stat().st_mode
        beside = path.with_name(f"{path.name}.new")
        beside.write_bytes(content)
        beside.chmod(mode)
        beside.replace(path)


def _environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name != "PYTHONDONTWRITEBYTECODE" and not name.startswith("MUTANT")
    }


def _read(log: Path) -> Run:
    """The run that a log of the plugin tells of."""
    run = Run()
    for line in log.read_text().splitlines():
        event, test = json.loads(line)
        if event == "start":
            run.at_hand.append(test)
        elif event == "end":
            run.at_hand.remove(test)
            run.ended.append(test)
        elif test not in run.failed:
            run.failed.append(test)
    return run
