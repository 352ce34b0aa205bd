"""ServerProcess: a server program that runs in a process of its own, from start to end."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import random
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from typing_extensions import Self

HOST = "127.0.0.1"
# Below Linux's range of ephemeral ports: no client's connection takes a port between its choice and its use.
_PORTS = range(12000, 32000)

# The signal of PR_SET_PDEATHSIG comes at the end of the thread that started the process: this one lasts as
# long as the program.
_starter = concurrent.futures.ThreadPoolExecutor(1, "server-starter")


class Unavailable(Exception):
    """The server's program is not here; the message says how to get it."""


def free_ports(count: int) -> list[int]:
    """Ports on which nothing listens now."""
    draw = random.Random(os.urandom(8))
    found: list[int] = []
    while len(found) < count:
        port = draw.choice(_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((HOST, port))
            if port not in found:
                found.append(port)
    return found


def accepts(port: int) -> bool:
    """Whether something listens on a port."""
    with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1):
        return True
    return False


STARTS = 3


class ServerProcess:
    """A server program in a process of its own.

    1. `with` starts it and waits until it answers; leaving the block kills it by its PID and removes its
       folder.
    2. `kill()` ends it as kill -9 does; `start()` starts it again on the same ports and data.
    3. It also ends with this process, however that ends (PR_SET_PDEATHSIG, where util-linux's setpriv is
       there).

    Attributes:
        folder: its data and logs; removed at the end.
    """

    name = "server"
    start_limit = 60.0

    def __init__(self, folder: str | Path | None = None) -> None:
        self._own_folder = folder is None
        self.folder = Path(
            folder if folder is not None else tempfile.mkdtemp(prefix=f"fastload-{self.name}-")
        )
        self.folder.mkdir(parents=True, exist_ok=True)
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        """The program and its arguments."""
        raise NotImplementedError

    def ready(self) -> bool:
        """Whether the server answers requests."""
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        """The program's environment."""
        return dict(os.environ)

    @property
    def pid(self) -> int:
        """The running process's id."""
        assert self._process is not None, f"{self.name} is not running"
        return self._process.pid

    @property
    def log(self) -> str:
        """The end of what the program printed."""
        file = self.folder / "log"
        return file.read_text(errors="replace")[-4000:] if file.exists() else ""

    def start(self) -> None:
        """Starts the program and waits until it answers."""
        assert self._process is None, f"{self.name} is running"
        command = self.command()
        if setpriv := shutil.which("setpriv"):
            command = [setpriv, "--pdeathsig", "KILL", *command]
        with open(self.folder / "log", "ab") as log:
            started = _starter.submit(
                lambda: subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self.environment(),
                    cwd=self.folder,
                )
            )
            self._process = started.result()
        wait_for(self.ready, self.start_limit, lambda: self._failed_start())

    def _failed_start(self) -> str:
        assert self._process is not None
        code = self._process.poll()
        if code is None:
            return ""
        return f"{self.name} ended with status {code} at its start:\n{self.log}"

    def kill(self) -> None:
        """Ends the process at once; what it wrote stays."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def restart(self) -> None:
        """Kills it and starts it again on the same ports and data."""
        self.kill()
        self.start()

    def new_ports(self) -> bool:
        """Takes other ports, where they are the server's to choose: free ones may be taken before it has
        them. Returns whether it did."""
        return False

    def _start_somewhere(self) -> None:
        for _ in range(STARTS - 1):
            try:
                return self.start()
            except RuntimeError:  # noqa: PERF203
                self.kill()
                if not self.new_ports():
                    raise
        self.start()

    def __enter__(self) -> Self:
        try:
            self._start_somewhere()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        if self._own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)


def wait_for(ready: Callable[[], bool], limit: float, failed: Callable[[], str] = str) -> None:
    """Returns when `ready()` is true; TimeoutError after `limit` seconds, RuntimeError with what
    `failed()` says."""
    end = time.monotonic() + limit
    while not ready():
        if why := failed():
            raise RuntimeError(why)
        if time.monotonic() > end:
            raise TimeoutError(f"no answer within {limit} s")
        time.sleep(0.02)
