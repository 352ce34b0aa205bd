"""The servers of bench_remote.py, the child processes that take its turns, and what was counted of each."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

import common

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from servers.proxy import Proxy
from servers.seaweedfs import SeaweedFS

import fastload
from fastload.bench import measure

Json = dict[str, Any]
BUCKET = "bench"
LIMIT_S = 300.0
_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system CPU seconds of a process, all its threads, and of its children that ended; 0 where
    it is gone."""
    try:
        fields = (
            Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        )
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / _TICKS


def on_disk(folder: str | None) -> int:
    """Bytes that the files below a folder take; they may come and go meanwhile."""
    total = 0
    for root, _, names in os.walk(folder or ""):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(root, name)).st_blocks * 512
    return total


class Servers:
    """SeaweedFS with one bucket, and the proxy before it; both end with the block.

    Attributes:
        direct, proxied: storage_options without the proxy and with it.
    """

    def __init__(self, folder: Path) -> None:
        self._weed = SeaweedFS(folder)
        self._proxy = Proxy(self._weed.port)

    def __enter__(self) -> Servers:
        self._weed.__enter__()
        try:
            self._weed.make_bucket(BUCKET)
            self._proxy.__enter__()
        except BaseException:
            self._weed.__exit__(None, None, None)
            raise
        self.direct = self._weed.options()
        self.proxied = self._weed.options(self._proxy.endpoint)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._proxy.__exit__(kind, error, trace)
        self._weed.__exit__(kind, error, trace)

    def link(self, round_trip: float = 0.0, bandwidth: float = 0.0) -> None:
        """Sets what the proxy adds: seconds, and bytes per second (0: no limit)."""
        self._proxy.set(round_trip, bandwidth)

    def signed(self, folder: str, names: Sequence[str]) -> list[str]:
        """URLs at the proxy of objects in a folder of the bucket, which need no credentials."""
        import obstore

        from fastload.remote.obstore import StoreMaker

        maker = StoreMaker(obstore, f"s3://{BUCKET}/{folder}", dict(self.proxied), 60.0)
        store: Any = maker.reader()
        return list(obstore.sign(store, "GET", names, timedelta(hours=12)))

    def counted(self) -> Json:
        """Bytes and requests that passed the proxy so far, CPU seconds of proxy, server and the whole
        machine, and the time."""
        found = self._proxy.counts()
        return {
            "down": found["down"],
            "requests": found["requests"],
            "proxy_cpu_s": found["cpu"],
            "server_cpu_s": cpu_seconds(self._weed.pid),
            "busy_s": measure.machine_busy_seconds() or 0.0,
            "at_s": time.perf_counter(),
        }

    @staticmethod
    def environment(options: Mapping[str, Any]) -> dict[str, str]:
        """What programs that use boto3 or botocore read of the same options."""
        return {
            "AWS_ENDPOINT_URL": str(options["endpoint"]),
            "AWS_ENDPOINT_URL_S3": str(options["endpoint"]),
            "S3_ENDPOINT_URL": str(options["endpoint"]),
            "AWS_ACCESS_KEY_ID": str(options["access_key_id"]),
            "AWS_SECRET_ACCESS_KEY": str(options["secret_access_key"]),
            "AWS_REGION": str(options["region"]),
            "AWS_DEFAULT_REGION": str(options["region"]),
            "AWS_ALLOW_HTTP": "true",
            "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
            "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
        }


@dataclasses.dataclass
class Turn:
    """What became of a child: its result, and what was counted at its start and at each of its events."""

    result: Json
    events: list[tuple[str, Json]]

    def between(self, first: int, last: int) -> Json:
        """What was counted between two events, by their places in the list; 0 is the start."""
        before, after = self.events[first][1], self.events[last][1]
        return {name: after[name] - before[name] for name in after}

    def others(self, first: int, last: int) -> float:
        """Share of the machine that programs other than the child, proxy and server took between two
        events."""
        spent = self.between(first, last)
        mine = spent["child_cpu_s"] + spent["proxy_cpu_s"] + spent["server_cpu_s"]
        return max(0.0, (spent["busy_s"] - mine) / spent["at_s"] / (os.cpu_count() or 1))

    def at(self, name: str, number: int = 0) -> int:
        """The place of the number-th event of a name."""
        return [place for place, (each, _) in enumerate(self.events) if each == name][number]


def take(
    servers: Servers,
    program: Sequence[str | Path],
    spec: Mapping[str, Any],
    limit: float = LIMIT_S,
    environment: Mapping[str, str] = {},
) -> Turn:
    """Runs a child that speaks as remote_turn.py does; it and its own children are killed after `limit`
    seconds."""
    root = str(Path(fastload.__path__[0]).parent)
    values = {**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1", **environment}
    events = [("start", {**servers.counted(), "child_cpu_s": 0.0, "cached": 0})]
    result: Json | None = None
    late = threading.Event()
    with open(common.WORK / "remote-child.log", "w+b") as log:
        child = subprocess.Popen(
            [*map(str, program), json.dumps(spec)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=values,
            start_new_session=True,
        )
        assert child.stdin is not None
        assert child.stdout is not None

        def end() -> None:
            late.set()
            os.killpg(child.pid, signal.SIGKILL)

        timer = threading.Timer(limit, end)
        timer.start()
        try:
            for line in child.stdout:
                if not line.startswith("{"):
                    continue  # what a library prints
                said = json.loads(line)
                if "result" in said:
                    result = said["result"]
                else:
                    spent = {
                        "child_cpu_s": sum(map(cpu_seconds, [child.pid, *measure.descendants(child.pid)]))
                    }
                    spent["cached"] = on_disk(spec.get("cache"))
                    events.append((said["event"], {**servers.counted(), **spent}))
                    child.stdin.write("\n")
                    child.stdin.flush()
        except OSError:
            pass  # it ended meanwhile
        finally:
            timer.cancel()
            try:
                os.killpg(child.pid, signal.SIGKILL)  # its session: itself, and what it left behind
            except ProcessLookupError:
                pass
            child.wait()
            child.stdin.close()
            child.stdout.close()
        if result is None:
            log.seek(0)
            last = (
                log.read().decode(errors="replace").strip().splitlines() or [f"status {child.returncode}"]
            )[-1]
            reason = (
                f"no result within {limit:.0f} s, after {len(events) - 1} events" if late.is_set() else last
            )
            result = {"ok": False, "reason": reason}
    return Turn(result, events)
