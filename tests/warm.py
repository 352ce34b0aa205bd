"""Programs of tests in interpreters that have imported torch already, which takes seconds: a server imports
it once and forks.

NOTE [ warm: what is fresh and what is not ]
A program has its own arguments, environment, folder, streams and session. It runs as `__main__` with an empty
namespace, imports fastload itself, and ends as an interpreter ends: exit handlers, finalizers and status are
its own. From the server it has torch and what torch imports, under the variables that the server had when it
loaded their libraries; OMP_NUM_THREADS holds for torch alone. Frameworks, which take as long as torch, it has
where the test names them as its `imports`: a second server, forked from the first, imports them for the first
program that needs them, so a program with `imports` may have the frameworks of an earlier one as well. A test
of LD_PRELOAD, of such variables or of what gets imported takes `sys.executable` instead. The program is a
child of the test's process, not of the server: the server forks twice, and the kernel gives the orphan to the
test's process, which is its subreaper for that moment.

The servers are started by the first program that needs them, and end with the process that started it.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib.util
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import types
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TextIO

SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of <linux/prctl.h>
LARGEST = 1 << 20  # bytes of a request: source text and an environment
PRELOADED = (
    "numpy",
    "torch",
    "torch.utils.data",
    "lmdb",
    "cloudpickle",
    "threadpoolctl",
    "pydantic",
    "typer.main",
)
TRAINING = ("torchvision_ops", "torch._dynamo", "torchvision")
"""The `imports` of a program that trains: optimizers and torchvision import torch._dynamo."""


# ---- the tests' side


class Program:
    """A running program; the part of subprocess.Popen's interface that tests use, with text pipes for stdout
    and stderr.

    Args:
        source: a script's path, or program text.
        arguments: sys.argv after its first.
        folder: its current directory.
        environment: all of it; None: this process's.
        error: warnings are errors, as by `-W error`.
        session: it leads a session of its own.
        ignored: signals that it ignores from its start, as under nohup.
        imports: modules that have been imported for it, beside torch.
    """

    def __init__(
        self,
        source: Path | str,
        *arguments: str | Path,
        folder: Path | str = ".",
        environment: Mapping[str, str] | None = None,
        error: bool = False,
        session: bool = False,
        ignored: Sequence[int] = (),
        imports: Sequence[str] = (),
    ) -> None:
        out, out_there = os.pipe()
        err, err_there = os.pipe()
        request = {
            "script": str(Path(folder, source).resolve()) if isinstance(source, Path) else None,
            "text": source if isinstance(source, str) else None,
            "arguments": [str(each) for each in arguments],
            "folder": str(Path(folder).resolve()),
            "environment": dict(os.environ if environment is None else environment),
            "error": error,
            "session": session,
            "ignored": list(ignored),
            "imports": list(imports),
        }
        try:
            self.pid = _ask(
                _start_frameworks() if imports else start_server(), request, [out_there, err_there]
            )
        finally:
            os.close(out_there)
            os.close(err_there)
        self.args = [sys.executable, source, *arguments]
        self.returncode: int | None = None
        self.stdout: IO[str] = os.fdopen(out)
        self.stderr: IO[str] = os.fdopen(err)
        self._readers: list[threading.Thread] = []
        self._read = ["", ""]

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def poll(self) -> int | None:
        """The exit status as Popen gives it, None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for its end. Raises subprocess.TimeoutExpired."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            time.sleep(0.002)
        return code

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Reads both streams to their ends and waits for the program's. After subprocess.TimeoutExpired it
        can be called again."""
        deadline = None if timeout is None else time.monotonic() + timeout
        if not self._readers:
            self._readers = [threading.Thread(target=self._drain, args=(at,), daemon=True) for at in range(2)]
            for reader in self._readers:
                reader.start()
        for reader in self._readers:
            reader.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
            if reader.is_alive():
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        self.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
        return self._read[0], self._read[1]

    def _drain(self, at: int) -> None:
        with (self.stdout, self.stderr)[at] as stream:
            self._read[at] = stream.read()

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.stdout.close()
        self.stderr.close()
        self.wait()


def run(
    source: Path | str,
    *arguments: str | Path,
    folder: Path | str = ".",
    environment: Mapping[str, str] | None = None,
    error: bool = False,
    imports: Sequence[str] = (),
    timeout: float = 120,
) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end; it is killed after `timeout` seconds, and subprocess.TimeoutExpired
    raised."""
    program = Program(
        source, *arguments, folder=folder, environment=environment, error=error, imports=imports
    )
    try:
        out, err = program.communicate(timeout)
    except subprocess.TimeoutExpired:
        program.kill()
        program.communicate()
        raise
    assert program.returncode is not None
    return subprocess.CompletedProcess(program.args, program.returncode, out, err)


_MODULE = "import runpy; runpy.run_module({!r}, run_name='__main__', alter_sys=True)"
COMMAND, RUN = _MODULE.format("fastload"), _MODULE.format("fastload.run")
"""Texts of programs that are `python -m fastload`, the command `fastload`, and `python -m fastload.run`."""
TORCHRUN = _MODULE.format("torch.distributed.run")
"""That of torchrun, whose ranks are interpreters of their own."""


def fastload(
    *arguments: str | Path,
    folder: Path | str = ".",
    environment: Mapping[str, str] | None = None,
    timeout: float = 120,
) -> subprocess.CompletedProcess[str]:
    """Runs a command of fastload to its end."""
    return run(COMMAND, *arguments, folder=folder, environment=environment, timeout=timeout)


def rank_variables(rank: int, ranks: int, port: int) -> dict[str, str]:
    """What torchrun tells a process of its rank, on one machine."""
    own, whole = {"RANK", "LOCAL_RANK", "ROLE_RANK"}, {"WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE"}
    numbers = {
        **dict.fromkeys(own, rank),
        **dict.fromkeys(whole, ranks),
        "GROUP_RANK": 0,
        "GROUP_WORLD_SIZE": 1,
        "MASTER_PORT": port,
    }
    return {
        "MASTER_ADDR": "127.0.0.1",
        "TORCHELASTIC_RUN_ID": "none",
        **{name: str(number) for name, number in numbers.items()},
    }


@dataclass(frozen=True)
class Server:
    """A server's PID, this end of the line to it, and the PID of the process that started it."""

    pid: int
    line: socket.socket
    owner: int


_started: list[Server] = []
"""The server, and the one with frameworks."""


def servers() -> list[Server]:
    """The servers that this process has started."""
    return [each for each in _started if each.owner == os.getpid()]


def start_server() -> Server:
    """The server, started if this process has none."""
    if found := servers():
        return found[0]
    line, far = _new_line()
    command = [sys.executable, __file__, str(far.fileno())]
    process = subprocess.Popen(
        command, pass_fds=[far.fileno()], start_new_session=True, stdin=subprocess.DEVNULL
    )
    far.close()
    _started[:] = [_ready(process.pid, line)]
    process.returncode = 0  # its PID is waited for below
    atexit.register(_end_servers)
    return _started[0]


def _start_frameworks() -> Server:
    """The server of programs with `imports`, started if this process has none."""
    start_server()
    if len(_started) == 1:
        line, far = _new_line()
        pid = _ask(_started[0], {"serves": True}, [far.fileno()])
        far.close()
        _started.append(_ready(pid, line))
    return _started[1]


def _new_line() -> tuple[socket.socket, socket.socket]:
    line, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * LARGEST)
    return line, far


def _ready(pid: int, line: socket.socket) -> Server:
    if line.recv(1) != b"!":
        raise RuntimeError("the server of warm interpreters did not start")
    return Server(pid, line, os.getpid())


def _end_servers() -> None:
    for server in reversed(servers()):
        server.line.close()
        os.waitpid(server.pid, 0)


def _ask(server: Server, request: dict[str, Any], streams: list[int]) -> int:
    """Sends a request; the program's PID."""
    adopt = ctypes.CDLL(None, use_errno=True).prctl
    assert adopt(SUBREAPER, 1, 0, 0, 0) == 0
    try:
        socket.send_fds(server.line, [json.dumps(request).encode()], streams)
        number = server.line.recv(32)
        orphaned = server.line.recv(1)
    finally:
        adopt(SUBREAPER, 0, 0, 0, 0)
    if not orphaned:
        raise RuntimeError("the server of warm interpreters is gone")
    return int(number)


# ---- the server's side


def _serve(line: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Answers requests. Returns in each program's process, with its request and streams; the server's own
    process exits here."""
    line.send(b"!")
    while True:
        data, streams, _, _ = socket.recv_fds(line, LARGEST, 2)
        if not data:
            os._exit(0)
        request = json.loads(data)
        _import(request.get("imports", ()))
        between = os.fork()
        if between == 0:
            program = os.fork()
            if program == 0:
                return request, streams
            os._exit(line.send(str(program).encode()) == 0)
        os.waitpid(between, 0)  # now the program is the test's
        line.send(b"!")
        for stream in streams:
            os.close(stream)


def _import(names: Sequence[str]) -> None:
    """Imports what is not imported yet, and installed."""
    if new := [
        name for name in names if name not in sys.modules and importlib.util.find_spec(name.partition(".")[0])
    ]:
        for name in new:
            __import__(name)
        gc.collect()
        gc.freeze()  # the collector in a program leaves the pages shared


def _become(request: dict[str, Any], streams: list[int]) -> types.CodeType:
    """Makes this process the program; its code."""
    if request["session"]:
        os.setsid()
    for stream, number in zip(streams, (1, 2), strict=True):
        os.dup2(stream, number)
        os.close(stream)
    for number in request["ignored"]:
        signal.signal(number, signal.SIG_IGN)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    script = request["script"]
    sys.path[:1] = [
        str(Path(script).parent) if script else "",
        *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)),
    ]
    sys.argv[:] = [script or "-c", *request["arguments"]]
    if request["error"]:
        sys.warnoptions[:] = ["error"]
        warnings.resetwarnings()
        warnings.simplefilter("error")
    plain = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdout = sys.__stdout__ = _text(1, "strict", plain)
    sys.stderr = sys.__stderr__ = _text(2, "backslashreplace", True)
    main = types.ModuleType("__main__")
    if script:
        main.__file__ = script
    sys.modules["__main__"] = main
    if threads := os.environ.get("OMP_NUM_THREADS"):
        sys.modules["torch"].set_num_threads(int(threads))
    return compile(
        Path(script).read_bytes() if script else request["text"],
        script or "<string>",
        "exec",
        dont_inherit=True,
    )


def _text(number: int, errors: str, through: bool) -> TextIO:
    """A standard stream over a descriptor that the server's own was not made for."""
    return io.TextIOWrapper(
        open(number, "wb", closefd=False), "utf-8", errors, line_buffering=through, write_through=through
    )


if __name__ == "__main__":
    _line = socket.socket(fileno=int(sys.argv[1]))
    _import(PRELOADED)
    _request, _streams = _serve(_line)
    _line.close()
    if "serves" in _request:
        _line = socket.socket(fileno=_streams[0])
        _request, _streams = _serve(_line)
        _line.close()
    exec(_become(_request, _streams), sys.modules["__main__"].__dict__)
