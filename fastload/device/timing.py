"""How long moving batches and the steps on them take, for the health report.

NOTE [ timer: on a device ]
What the host sees there is how long queueing takes. So the time is the device's own, between events on the side stream; it is read when
the last of them has passed anyway, so that the host waits for nothing.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any

import torch

PENDING_MOST = 64
"""Batches whose events are kept; those beyond are not counted, for they are of a device that is far behind."""


class StageTimer:
    """Seconds on copies, and on steps on whole batches, in all passes of a loader. Any thread may add."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._copy = self._augment = 0.0

    def add(self, copy: float, augment: float) -> None:
        """Adds a batch's seconds."""
        with self._lock:
            self._copy += copy
            self._augment += augment

    def stages(self) -> dict[str, float]:
        """Seconds by stage, of the stages that took any."""
        with self._lock:
            found = {"copy": self._copy, "augment": self._augment}
        return {name: seconds for name, seconds in found.items() if seconds > 0}


class Clock:
    """Times the batches of one pass, on the host or on the stream that is current. Used by one thread at a time."""

    def __init__(self, timer: StageTimer | None, on_stream: bool) -> None:
        self._timer = timer
        self._on_stream = on_stream
        self._pending: deque[tuple[Any, Any, Any]] = deque(maxlen=PENDING_MOST)

    def now(self) -> Any:
        """A moment, for `count`; on a stream an event, which may also be waited for."""
        if not self._on_stream:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def count(self, start: Any, copied: Any, end: Any) -> None:
        """Counts a batch whose copy lay between the first two moments, and its steps between the last two."""
        if self._timer is None:
            return
        if not self._on_stream:
            self._timer.add(copied - start, end - copied)
            return
        self._pending.append((start, copied, end))
        while self._pending and self._pending[0][2].query():
            first, second, third = self._pending.popleft()
            self._timer.add(first.elapsed_time(second) / 1e3, second.elapsed_time(third) / 1e3)
