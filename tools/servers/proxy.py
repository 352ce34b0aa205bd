"""Proxy: a TCP proxy before a server that adds latency, limits bandwidth, counts, and spoils requests on
demand."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from servers.process import HOST, STARTS, free_ports
from servers.proxy_faults import Fault


class Proxy:
    """A proxy in a process of its own, from `with` to its end; the process also ends with this one.

    Latency is added to each direction, half a round trip each, and a new connection costs a round trip more;
    it does not limit throughput. Bandwidth is one limit for all connections, for each direction. Requests are
    counted, and spoiled, where they are plain HTTP.

    Args:
        port: the server's.
        round_trip: seconds.
        bandwidth: bytes per second; 0 for no limit.
    """

    def __init__(self, port: int, round_trip: float = 0.0, bandwidth: float = 0.0) -> None:
        self._target = port
        self._first = {"delay": round_trip / 2, "bandwidth": bandwidth}
        self.port = 0
        self._process: subprocess.Popen[str] | None = None

    @property
    def endpoint(self) -> str:
        """Its URL, once it runs."""
        return f"http://{HOST}:{self.port}"

    def __enter__(self) -> Proxy:
        for left in reversed(range(STARTS)):  # another program may take a free port first
            self.port = free_ports(1)[0]
            try:
                self._start()
                return self
            except (RuntimeError, BrokenPipeError):
                self.__exit__(None, None, None)
                if not left:
                    raise
        raise AssertionError("unreachable")

    def _start(self) -> None:
        tools = str(Path(__file__).parents[1])
        program = (
            f"import sys; sys.path.insert(0, {tools!r}); import runpy; "
            "runpy.run_module('servers.proxy_loop', run_name='__main__')"
        )
        command = [sys.executable, "-c", program, HOST, str(self._target), str(self.port)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._tell(**self._first)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def _tell(self, **command: object) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError("the proxy's process is gone")
        told: dict[str, Any] = json.loads(answer)
        return told

    def set(self, round_trip: float | None = None, bandwidth: float | None = None) -> None:
        """Changes latency and bandwidth."""
        if round_trip is not None:
            self._tell(delay=round_trip / 2)
        if bandwidth is not None:
            self._tell(bandwidth=bandwidth)

    def spoil(self, kind: str, count: int = 1, **more: Any) -> None:
        """Spoils the next `count` requests: servers.proxy_faults.Fault says how."""
        self._tell(fault=asdict(Fault(kind, count, **more)))

    def silence(self, seconds: float) -> None:
        """Lets no answer pass for some seconds."""
        self._tell(silence=seconds)

    def refuse(self, refuse: bool = True) -> None:
        """Ends all connections and refuses new ones, until refuse(False)."""
        self._tell(refuse=refuse)

    def clear(self) -> None:
        """Forgets all faults."""
        self._tell(clear=True)

    def counts(self, reset: bool = False) -> dict[str, Any]:
        """Since the start or the last reset: bytes `up` and `down`, `connections`, `requests`, each
        method; `cpu` seconds in all."""
        told = {"up": 0, "down": 0, "connections": 0, "requests": 0, "faults": 0, **self._tell()}
        if reset:
            self._tell(reset=True)
        return told
