"""Files of traces: JSON trace events, as Chrome's format has them, in the time base of torch.profiler's
files.

NOTE [ trace file: times ]
Times are microseconds since `baseTimeNanoseconds`, a moment that is given in nanoseconds since 1970.
torch.profiler takes for it the last multiple of a quarter of a year (PERIOD_S), so that events of both have
one base; where the bases differ, merge_traces() shifts them. Source: ChromeTraceBaseTime in Kineto
(libkineto/src/output_json.cpp); "Trace Event Format" of the Catapult project.
"""

from __future__ import annotations

import gzip
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from fastload._native import core
from fastload.errors import ArgumentError

PERIOD_S = 7_889_238
_LANES_FROM = 10_000_000
"""Number of the first row that is no thread's: above all numbers of processes and threads."""
_CLOCK_READS = 16


Event = tuple[str, int, int, int, str | None, dict[str, Any] | None]
"""One stage: (name, start, duration in nanoseconds, number of its thread, lane, arguments). `lane`: the row
in which it is drawn, by name; None: its thread's. A plain tuple: worker processes pickle one for each
sample."""


@dataclass
class Process:
    """Events of one process."""

    name: str
    events: list[Event] = field(default_factory=list)
    native: list[bytes] = field(default_factory=list)
    threads: dict[int, str] = field(default_factory=dict)


class Recording:
    """Events that one trace has recorded, by process. Any thread may add; of the limit, which is not
    locked, they may pass a few events."""

    def __init__(self, limit: int) -> None:
        self.started_ns = core.clock_ns()
        self.dropped = 0
        self._own = Process("")
        self.processes: dict[int, Process] = {os.getpid(): self._own}
        self._room = limit
        self._day_ns = _time_of_day()

    def keep(self, event: Event) -> None:
        """Keeps an event of Python code in this process, if there is room."""
        if self._room > 0:
            self._room -= 1
            self._own.events.append(event)
        else:
            self.dropped += 1

    def name(self, threads: Mapping[int, str]) -> None:
        """Notes names of this process's threads, by number."""
        self._own.threads.update(threads)

    def keep_all(self, pid: int, name: str, events: Sequence[Event], threads: Mapping[int, str]) -> None:
        """Keeps events of Python code in a worker process, as far as there is room. What began before this
        recording is left out."""
        process = self.processes.setdefault(pid, Process(name))
        process.threads.update(threads)
        mine = [each for each in events if each[1] >= self.started_ns]
        process.events += mine[: self._taken(len(mine))]

    def keep_native(self, pid: int, arrays: Iterable[bytes], dropped: int) -> None:
        """Keeps arrays of core.TRACE_EVENT, as bytes, as keep_all() does. `dropped`: number of events that
        are missing already."""
        self.dropped += dropped
        for each in arrays:
            found = np.frombuffer(each, core.TRACE_EVENT)
            mine = found[found["start_ns"] >= self.started_ns]
            if len(mine):
                self.processes[pid].native.append(mine[: self._taken(len(mine))].tobytes())

    def _taken(self, asked: int) -> int:
        """Takes room for as many of some events as there is room for."""
        taken = max(0, min(asked, self._room))
        self._room -= taken
        self.dropped += asked - taken
        return taken

    def take(self) -> tuple[list[Event], list[bytes], dict[int, str], int]:
        """Takes out what this process has recorded: (events, native ones, names of threads, dropped)."""
        mine, self._own = self._own, Process("")
        self.processes = {os.getpid(): self._own}
        self._room += len(mine.events) + sum(map(len, mine.native)) // core.TRACE_EVENT.itemsize
        dropped, self.dropped = self.dropped, 0
        return mine.events, mine.native, mine.threads, dropped

    def base_ns(self) -> int:
        """The base of the file's times. See NOTE [ trace file: times ]."""
        period = PERIOD_S * 10**9
        return (self.started_ns + self._day_ns) // period * period

    def offset_ns(self) -> int:
        """Nanoseconds from the monotonic clock to times since base_ns()."""
        return self._day_ns - self.base_ns()


def _time_of_day() -> int:
    """Nanoseconds from the monotonic clock to the time of the day, by the pair of readings that lay
    nearest to each other."""
    best = None
    for _ in range(_CLOCK_READS):
        before, day, after = core.clock_ns(), time.time_ns(), core.clock_ns()
        if best is None or after - before < best[0]:
            best = after - before, day - (before + after) // 2
    assert best is not None
    return best[1]


def write(path: Path, recording: Recording) -> None:
    """Writes a recording, compressed where the name ends with ".gz"; it replaces a file when it is whole.
    Raises OSError."""
    made = path.with_name(f"{path.name}.{os.getpid()}.part")
    facts = {
        "schemaVersion": 1,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": recording.base_ns(),
        "otherData": {"producer": "fastload", "dropped": recording.dropped},
    }
    try:
        with _opened(made, "wt", path.name) as file:
            file.write(json.dumps(facts)[:-1] + ', "traceEvents": [\n')
            for number, line in enumerate(_lines(recording)):
                file.write(f",\n{line}" if number else line)
            file.write("\n]}\n")
        os.replace(made, path)
    except BaseException:
        with suppress(OSError):
            made.unlink()
        raise


def _opened(path: Path, mode: str, name: str) -> IO[Any]:
    if name.endswith(".gz"):
        return cast(IO[Any], gzip.open(path, mode, encoding="utf-8"))
    return open(path, mode, encoding="utf-8")


def _lines(recording: Recording) -> Iterator[str]:
    for pid, process in list(recording.processes.items()):
        yield from _process_lines(pid, process, recording.offset_ns())


def _process_lines(pid: int, process: Process, offset_ns: int) -> Iterator[str]:
    """The events of a process, as JSON."""
    threads = dict(process.threads)
    yield _named("process_name", pid, 0, process.name or _kernels_name(pid, pid) or "python")
    events = list(process.events)
    for name, start, duration, thread, lane, args in events:
        if lane is None:
            yield _line(pid, thread, name, start + offset_ns, duration, json.dumps(args) if args else "{}")
    for body in list(process.native):
        for start, duration, index, source, epoch, thread, stage, failed in np.frombuffer(
            body, core.TRACE_EVENT
        ).tolist():
            if thread not in threads:
                threads[thread] = _kernels_name(pid, thread) or "fastload thread"
            more = (f', "source": {source}' if source else "") + (', "failed": true' if failed else "")
            args_text = f'{{"index": {index}, "epoch": {epoch}{more}}}'
            yield _line(pid, thread, core.TRACE_STAGES[stage], start + offset_ns, duration, args_text)
    for row, (lane_name, of_row) in enumerate(_rows(events), _LANES_FROM):
        threads[row] = lane_name
        for name, start, duration, _, _, args in of_row:
            yield _line(pid, row, name, start + offset_ns, duration, json.dumps(args) if args else "{}")
    for thread, name in threads.items():
        yield _named("thread_name", pid, thread, name)


def _rows(events: Sequence[Event]) -> Iterator[tuple[str, list[Event]]]:
    """Events with a lane, in rows in which none overlaps another; a lane has as many rows as it needs,
    with a number from the second on."""
    lanes: dict[str, list[list[Event]]] = {}
    for each in sorted((each for each in events if each[4] is not None), key=itemgetter(1)):
        rows = lanes.setdefault(cast(str, each[4]), [])
        free = next((row for row in rows if row[-1][1] + row[-1][2] <= each[1]), None)
        if free is None:
            rows.append([each])
        else:
            free.append(each)
    for name, rows in lanes.items():
        yield from ((f"{name} ({number})" if number > 1 else name, row) for number, row in enumerate(rows, 1))


def _line(pid: int, row: int, name: str, at_ns: int, duration_ns: int, args: str) -> str:
    """An event as JSON. Names are the code's own."""
    return (
        f'{{"ph": "X", "cat": "fastload", "name": "{name}", "pid": {pid}, "tid": {row}, "ts": '
        f'{_us(at_ns)}, "dur": {_us(duration_ns)}, '
        f'"args": {args}}}'
    )


def _us(ns: int) -> str:
    """Microseconds with all digits: a float would round a time of the day."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def _named(kind: str, pid: int, row: int, name: str) -> str:
    return json.dumps({"ph": "M", "name": kind, "pid": pid, "tid": row, "ts": 0, "args": {"name": name}})


def _kernels_name(pid: int, thread: int) -> str:
    """The kernel's name of a thread, which torch.profiler takes for a process's; "" if the thread has
    ended."""
    try:
        return Path(f"/proc/{pid}/task/{thread}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def merge_traces(paths: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str]) -> None:
    """Merges trace files, such as a loader's and torch.profiler's, into the file `out`.

    Each is compressed where its name ends with ".gz". Entries other than events are the first file's.

    Raises:
        ArgumentError: a file holds no trace events; `paths` is one path.
        OSError: a file cannot be read or written.
    """
    if isinstance(paths, str | os.PathLike):
        raise ArgumentError(
            f"paths is one path: give a list of the traces to merge, [{os.fspath(paths)!r}, ...]"
        )
    if not paths:
        raise ArgumentError("no trace to merge: give the files")
    traces = [_read(Path(path)) for path in paths]
    whole, base = traces[0], int(traces[0].get("baseTimeNanoseconds", 0))
    names = {_key(each) for each in whole["traceEvents"]}
    for other in traces[1:]:
        shift = (int(other.get("baseTimeNanoseconds", 0)) - base) / 1000
        for each in other["traceEvents"]:
            if each.get("ph") != "M":
                whole["traceEvents"].append(
                    {**each, "ts": each["ts"] + shift} if shift and "ts" in each else each
                )
            elif _key(each) not in names:
                whole["traceEvents"].append(each)
    with _opened(Path(out), "wt", Path(out).name) as file:
        json.dump(whole, file)


def _key(event: Mapping[str, Any]) -> tuple[Any, ...]:
    """The row that an event of metadata names, and how."""
    return event.get("ph"), event.get("name"), event.get("pid"), event.get("tid")


def _read(path: Path) -> dict[str, Any]:
    try:
        with _opened(path, "rt", path.name) as file:
            found = json.load(file)
    except (ValueError, EOFError) as error:
        raise ArgumentError(f"{path} is no trace: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("traceEvents"), list):
        raise ArgumentError(f"{path} is no trace: it has no list traceEvents")
    return found
