"""Transfer: moves the batches of one pass to their device, transforms them there, and times both, on a side stream ahead of the loop.

NOTE [ transfer: streams ]
Copies and batch transforms are queued on one side stream for each pass. The work on each batch ends with an event on it. When the loop
gets the batch, its current stream waits for that event, on the device; every tensor of the batch is recorded on the current stream, so that
its memory is reused only after the loop's work. The host never waits. Without streams (CPU, MPS) the same calls run in the same order, at
once.

NOTE [ timer: on a device ]
The host sees only how long queueing takes. So the time is measured on the device, between events on the side stream. It is read once the
last event has passed, so that the host never waits.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch.utils.data._utils.pin_memory import pin_memory as pin_batch

from fastload.batch.containers import tensors_of, to_device
from fastload.device import pinning as pin
from fastload.device.stages import BatchFields, BatchKey, StageCall
from fastload.health import tracing

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


@dataclass(frozen=True)
class TransferPlan:
    """Settings of the transfer of batches to the loop. Every pass of a loader has the same; two can be compared.

    Attributes:
        device: the device that batches are copied to; None leaves them where they are.
        pin: pins batches that stay on the host.
        stages: applied to each batch on the device, in order.
        fields: the keys of images, labels and what lies in the images, in batches that are dicts.
        ahead: batches moved before the loop asks for them.
        timer: adds up the time that this takes.
    """

    device: torch.device | None = None
    pin: bool = False
    stages: tuple[StageCall, ...] = ()
    fields: BatchFields = field(default_factory=BatchFields)
    ahead: int = 0
    timer: StageTimer | None = field(default=None, compare=False)

    @property
    def idle(self) -> bool:
        """True if batches reach the loop unchanged."""
        return self.device is None and not self.pin and not self.stages

    @cached_property
    def on_cpu(self) -> bool:
        """True if the stages run on the CPU."""
        return self.device is None or self.device.type == "cpu"

    @property
    def threaded(self) -> bool:
        """True if a thread moves batches ahead. MPS has none: torch queues from one thread only there; nor does pinning alone need one."""
        somewhere = bool(self.stages) if self.device is None else self.device.type in ("cuda", "cpu")
        return self.ahead > 0 and somewhere


@dataclass
class TransferredBatch:
    """A batch on its device. `event` marks the end of the work queued on it; `left` are the stages that the loop's thread has to run."""

    batch: Any
    key: BatchKey
    left: tuple[StageCall, ...] = ()
    event: Any = None


class Transfer:
    """Moves the batches of one pass.

    1. put() may be called by one thread, get() by another; each batch goes through both, once.
    2. put() runs the stages up to the first that has to run in the loop's thread; get() runs the rest.

    Attributes:
        has_rest: True if get() has anything to do; if not, the batch of a TransferredBatch is as the loop gets it.
    """

    def __init__(self, transfer_plan: TransferPlan) -> None:
        self._cuda = transfer_plan.device is not None and transfer_plan.device.type == "cuda"
        if transfer_plan.device == torch.device("cuda"):
            transfer_plan = replace(
                transfer_plan, device=torch.device("cuda", torch.cuda.current_device())
            )  # the current device differs from thread to thread
        self._transfer_plan = transfer_plan
        # _late: the first stage that must run in the loop's thread, and all after it; see NOTE [ batch stages: which thread ].
        first = next((n for n, stage in enumerate(transfer_plan.stages) if not stage.ahead), len(transfer_plan.stages))
        self._early, self._late = transfer_plan.stages[:first], transfer_plan.stages[first:]
        self.has_rest = self._cuda or bool(self._late)

    @cached_property
    def _clock(self) -> Clock:
        return Clock(self._transfer_plan.timer, self._cuda)

    @cached_property
    def _stream(self) -> Any:
        assert self._transfer_plan.device is not None
        return pin.side_stream(self._transfer_plan.device)

    def _side(self) -> AbstractContextManager[Any]:
        if not self._cuda:
            return nullcontext()
        assert self._transfer_plan.device is not None
        stack = ExitStack()
        stack.enter_context(torch.cuda.device(self._transfer_plan.device))
        stack.enter_context(torch.cuda.stream(self._stream))
        return stack

    def put(self, make: Callable[[], Any], key: Callable[[], BatchKey]) -> TransferredBatch:
        """Queues a batch's copy and early stages. `make` returns the batch on the host; nobody else holds it, so the lease ends here."""
        made = [make()]  # _to_device pops it: the slot's lease ends with the copy
        named = key()
        with self._side():
            start = self._clock.now()
            with self._traced("copy", not self._transfer_plan.on_cpu or self._transfer_plan.pin):
                batch = self._to_device(made)
            copied = self._clock.now()
            with torch.no_grad(), self._traced("augment", bool(self._early)):
                for stage in self._early:
                    batch = stage(batch, named, self._transfer_plan.fields)
            end = self._clock.now() if self._early else copied
            self._clock.count(start, copied, end)
            return TransferredBatch(batch, named, self._late, end if self._cuda else None)

    def _traced(self, stage: str, there: bool = True) -> AbstractContextManager[Any]:
        """Context manager: a stage that is there, told to the trace that is taken. For CUDA that is the time in which it is queued."""
        return nullcontext() if tracing.active is None or not there else tracing.Span(tracing.active, stage)

    def _to_device(self, made: list[Any]) -> Any:
        batch = made.pop()
        device = self._transfer_plan.device
        if device is not None:
            return to_device(batch, device)
        return pin_batch(batch) if self._transfer_plan.pin else batch  # type: ignore[no-untyped-call]

    def get(self, moved: TransferredBatch) -> Any:
        """The batch, for the loop's thread: whatever that thread queues from now on runs after the work on the batch."""
        batch = moved.batch
        if moved.left:
            with self._side(), torch.no_grad(), self._traced("augment"):
                start = self._clock.now()
                for stage in moved.left:
                    batch = stage(batch, moved.key, self._transfer_plan.fields)
                end = self._clock.now()
                self._clock.count(start, start, end)
                moved.event = end if self._cuda else None
        if self._cuda:
            current = torch.cuda.current_stream(self._transfer_plan.device)
            current.wait_event(moved.event)
            for tensor in tensors_of(batch):
                if tensor.is_cuda:
                    tensor.record_stream(current)
        return batch
