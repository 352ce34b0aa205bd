"""Timers of the copies to the device and of the batch stages, for the health report.

NOTE [ timer: on a device ]
The host sees only how long queueing takes. So the time is measured on the device, between events on the side stream. It is read once the
last event has passed, so that the host never waits.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any

import torch

PENDING_MOST = 64
"""Batches whose events are kept. Older events are dropped: the device lags by more than this many batches."""


class StageTimer:
    """Total seconds spent on copies and on batch stages, over all passes of a loader. Any thread may add."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._copy = self._augment = 0.0

    def add(self, copy: float, augment: float) -> None:
        """Adds a batch's seconds."""
        with self._lock:
            self._copy += copy
            self._augment += augment

    def stages(self) -> dict[str, float]:
        """Seconds by name; names without any time are left out."""
        with self._lock:
            found = {"copy": self._copy, "augment": self._augment}
        return {name: seconds for name, seconds in found.items() if seconds > 0}


class Clock:
    """Clock for the batches of one pass, on the host or on the current CUDA stream. Used by one thread at a time."""

    def __init__(self, timer: StageTimer | None, on_stream: bool) -> None:
        self._timer = timer
        self._on_stream = on_stream
        self._pending: deque[tuple[Any, Any, Any]] = deque(maxlen=PENDING_MOST)

    def now(self) -> Any:
        """A point in time, for `count`: seconds on the host; on a stream an event, which may also be waited for."""
        if not self._on_stream:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def count(self, start: Any, copied: Any, end: Any) -> None:
        """Counts a batch: its copy ran from `start` to `copied`, its stages from `copied` to `end`."""
        if self._timer is None:
            return
        if not self._on_stream:
            self._timer.add(copied - start, end - copied)
            return
        self._pending.append((start, copied, end))
        while self._pending and self._pending[0][2].query():
            first, second, third = self._pending.popleft()
            self._timer.add(first.elapsed_time(second) / 1e3, second.elapsed_time(third) / 1e3)
