"""Use of a device during a turn: the share of the time in which it works, and time between points of its
current stream."""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from types import TracebackType
from typing import Any

import torch

SAMPLE_S = 0.02


class Clock:
    """Clock of a device's current stream, or of the host for a device without streams."""

    def __init__(self, device: torch.device) -> None:
        self._on_stream = device.type == "cuda"

    def now(self) -> Any:
        """The point that the stream reaches next."""
        if not self._on_stream:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, first: Any, last: Any) -> float:
        """Seconds between two points that have passed."""
        return float(first.elapsed_time(last)) / 1e3 if self._on_stream else float(last - first)


class Sampler:
    """Context manager that asks NVML every 20 ms how busy a CUDA device is. NVML's figure is of its last
    sixth of a second or more."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._shares: list[float] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Sampler:
        if self._device.type == "cuda":
            self._thread = threading.Thread(target=self._sample, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _sample(self) -> None:
        # Without nvidia-ml-py, or where the driver does not tell, nothing is known.
        with contextlib.suppress(Exception):
            while not self._stop.wait(SAMPLE_S):
                self._shares.append(torch.cuda.utilization(self._device) / 100)

    def busy(self) -> float | None:
        """Mean share of the time in which the device worked; None: nothing told it."""
        return statistics.fmean(self._shares) if self._shares else None
