"""Trace: a recording of a loop's stages, as trace events of Chrome and Perfetto, of all loaders of a process
and their worker processes.

NOTE [ tracing: who records ]
`active` is None unless a trace is taken: a place that has something to record asks that, and does nothing
else. Native workers write their stages into rings (csrc/engine/trace.h), drained after each wait of a loop. A
worker process has a Tracer of its own: with its next task it learns that a trace has begun or ended, and its
events go with its batches. All times are those of the monotonic clock, which all processes of a host share;
they become times of the day, as in torch.profiler's files, when the file is written. One Tracer serves all
traces that are taken at a time: each has a Recording of its own.
"""

from __future__ import annotations

import atexit
import logging
import operator
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from typing_extensions import Self

from fastload._native import core
from fastload.common.forks import call_in_children
from fastload.errors import ArgumentError
from fastload.health.trace_file import Event, Recording, write

VARIABLE = "FASTLOAD_TRACE"
"""Variable of the environment that names the file of a trace of the whole process; %p in it is the
process's number."""
LIMIT = 1_000_000
"""Most events that a trace keeps by default: some 150 MB of JSON, or 250,000 photographs."""
RING = 1 << 14
"""Events of each native worker between two waits of a loop: 0.6 MB, and 4,000 photographs."""
_log = logging.getLogger("fastload")


class Taken(NamedTuple):
    """Events of a worker process, on their way to the process that it works for.

    Attributes:
        events: events of Python code.
        native: arrays of core.TRACE_EVENT, as bytes.
        threads: names of the threads, by number.
        dropped: events that found a ring full.
    """

    events: list[Event]
    native: list[bytes]
    threads: dict[int, str]
    dropped: int


class Tracer:
    """Recorder of the stages of this process, for all traces that are taken. Any thread may call it."""

    def __init__(self) -> None:
        self.recordings: list[Recording] = []
        self._threads: dict[int, str] = {}
        self._loops: dict[int, int] = {}

    def add(
        self,
        stage: str,
        began_ns: int,
        args: dict[str, Any] | None = None,
        lane: str | None = None,
        ended_ns: int = 0,
    ) -> None:
        """Records a stage that began at `began_ns` and ends now, or at `ended_ns`.

        A stage of the calling thread lies within the thread's other stages. One with a `lane` need not: it is
        drawn in a row of that name.
        """
        ended_ns = ended_ns or core.clock_ns()
        thread = threading.get_native_id()
        if thread not in self._threads:
            self._threads[thread] = threading.current_thread().name
        event = stage, began_ns, ended_ns - began_ns, thread, lane, args
        for each in self.recordings:
            each.keep(event)

    def waited(
        self, loop: object, before_ns: int, asked_ns: int, got_ns: int, failed: BaseException | None
    ) -> None:
        """Records a wait of a loop and its step before; core calls it after each."""
        number = self._loops.setdefault(id(loop), len(self._loops))
        if before_ns:
            self.add("step", before_ns, {"loop": number}, f"steps of loop {number}", asked_ns)
        args: dict[str, Any] = {"loop": number}
        if failed is not None:
            args["ended" if isinstance(failed, StopIteration) else "failed"] = type(failed).__name__
        self.add("wait", asked_ns, args, None, got_ns)
        self.drain()

    def drain(self) -> None:
        """Takes the events that native workers have written so far, and names the threads."""
        for each in self.recordings:
            each.name(self._threads)
        for body, dropped in core.traced_events():
            for each in self.recordings:
                each.keep_native(os.getpid(), [body] if body else [], dropped)

    def take_in(self, pid: int, name: str, taken: Taken) -> None:
        """Records the events of a worker process."""
        for each in self.recordings:
            each.keep_all(pid, name, taken.events, taken.threads)
            each.keep_native(pid, taken.native, taken.dropped)


class Span:
    """Context manager that records its block as a stage, also where it ends by an exception."""

    __slots__ = ("_args", "_began", "_lane", "_name", "_tracer")

    def __init__(
        self, tracer: Tracer, name: str, args: dict[str, Any] | None = None, lane: str | None = None
    ) -> None:
        self._tracer, self._name, self._args, self._lane = tracer, name, args, lane

    def __enter__(self) -> None:
        self._began = core.clock_ns()

    def __exit__(self, *_: object) -> None:
        self._tracer.add(self._name, self._began, self._args, self._lane)


def shown(index: Any) -> int | str:
    """An index of any kind, as JSON can hold it."""
    try:
        return operator.index(index)
    except TypeError:
        return str(index)[:80]


active: Tracer | None = None
"""The Tracer of this process; None: no trace is taken."""
_lock = threading.RLock()


def begin(recording: Recording) -> None:
    """Begins to record in this process. Raises ResourceError: there is no memory for the rings."""
    global active
    with _lock:
        first = active is None
        tracer = active or Tracer()
        if first:
            core.trace_workers(RING, tracer.waited)
        tracer.recordings = [*tracer.recordings, recording]
        active = tracer


def end(recording: Recording) -> None:
    """Ends a recording that was begun; it has all events up to now."""
    global active
    with _lock:
        tracer = active
        if tracer is None or recording not in tracer.recordings:
            return
        tracer.drain()
        tracer.recordings = [each for each in tracer.recordings if each is not recording]
        if tracer.recordings:
            return
        active = None
        core.trace_workers(0)


class WorkerTracing:
    """The recording of a worker process: what it has recorded goes with its next report."""

    def __init__(self) -> None:
        self._recording: Recording | None = None

    def trace(self, on: bool) -> None:
        """Begins or ends to record."""
        if self._recording is not None:
            end(self._recording)
            self._recording = None
        if on:
            self._recording = Recording(LIMIT)
            begin(self._recording)

    def take(self) -> Taken | None:
        """Events since the last call; None if nothing is recorded."""
        if self._recording is None or active is None:
            return None
        active.drain()
        return Taken(*self._recording.take())


class Trace:
    """A trace of all loaders of the process: a file of JSON trace events, which ui.perfetto.dev shows.

    `with` begins and ends it, as start() and stop() do. The file is written also where the block ends by an
    exception. Its times are those of torch.profiler. Several traces may be taken at a time.

    Args:
        path: the file, which is replaced; compressed where its name ends with ".gz".
        limit: most events that are kept; `dropped` counts the others.

    Raises:
        ArgumentError: there is no such folder, or `limit` is not positive.
    """

    def __init__(self, path: str | os.PathLike[str], limit: int = LIMIT) -> None:
        self.path = Path(path)
        if not self.path.absolute().parent.is_dir() or self.path.is_dir():
            raise ArgumentError(
                f"trace {self.path}: "
                f"{'a folder' if self.path.is_dir() else 'there is no such folder'}; name a file"
            )
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise ArgumentError(f"limit={limit!r}: give the number of events to keep, at least 1")
        self._limit = limit
        self._recording: Recording | None = None
        self._running = False

    def start(self) -> None:
        """Begins to record, from nothing, unless it records already."""
        if not self._running:
            self._recording = Recording(self._limit)
            begin(self._recording)
            self._running = True

    def stop(self) -> None:
        """Ends the recording, if there is one, and writes the file. Raises ArgumentError: it cannot be
        written."""
        if self._running and self._recording is not None:
            self._running = False
            end(self._recording)
            self._write(self._recording)

    def save(self) -> None:
        """Writes what was recorded so far, and goes on; otherwise like stop()."""
        if self._running and self._recording is not None:
            if active is not None:
                active.drain()
            self._write(self._recording)

    def _write(self, recording: Recording) -> None:
        try:
            write(self.path, recording)
        except OSError as error:
            raise ArgumentError(f"the trace cannot be written to {self.path}: {error.strerror}") from error
        if recording.dropped:
            why = (
                f"more came than limit={self._limit}, or than the {RING} that a worker keeps between two "
                "waits of the loop"
            )
            _log.warning("the trace %s lacks %d events: %s", self.path, recording.dropped, why)

    @property
    def dropped(self) -> int:
        """Number of events that were not kept."""
        return 0 if self._recording is None else self._recording.dropped

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


@dataclass
class _OfProcess:
    """The trace that VARIABLE asks for. `asked`: the variable was read in this process."""

    asked: bool = False
    trace: Trace | None = None


_process = _OfProcess()


def trace_process() -> None:
    """Begins the trace of the whole process that VARIABLE asks for, once. The file is written at the end,
    and by save_process()."""
    if _process.asked:
        return
    _process.asked = True
    named = os.environ.get(VARIABLE)
    if named:
        _process.trace = Trace(named.replace("%p", str(os.getpid())))
        _process.trace.start()
        atexit.register(_end_process)


def save_process() -> None:
    """Writes the trace that trace_process() has begun, if there is one. A file that cannot be written is a
    warning in the log."""
    _carefully(Trace.save)


def _end_process() -> None:
    _carefully(Trace.stop)


def _carefully(write_it: Callable[[Trace], None]) -> None:
    try:
        if _process.trace is not None:
            write_it(_process.trace)
    except ArgumentError as error:
        _log.warning("%s", error)


def _after_fork() -> None:
    """Forgets the parent's traces: a forked child records nothing of its own accord."""
    global active, _lock, _process
    _lock, _process = threading.RLock(), _OfProcess()
    atexit.unregister(_end_process)
    if active is not None:
        active = None
        core.trace_workers(0)


call_in_children(_after_fork)
