"""Transfer: moves the batches of one pass to their device, transforms them there, and times both, on a side
stream ahead of the loop.

NOTE [ transfer: streams ]
A loader has one side stream on each device, for its life: torch's allocator gives freed memory to the stream
that it was allocated on. Copies and early stages are queued on it. At the start of a pass it waits for what
the loop has queued: stages may use what the loop has made. The work on each batch ends with an event on it.
When the loop gets the batch, its current stream waits for that event, on the device; the batch is recorded on
the current stream, so that its memory is reused only after the loop's work. Late stages, which may read what
the loop writes, such as the weights of a teacher, are queued on the loop's own stream. Without streams (CPU,
MPS) the same calls run in the same order, at once.

NOTE [ transfer: a host that runs ahead ]
Nothing on the host waits for the device as long as the device is at most LOOP_AHEAD batches behind the loop.
A loop that only queues, such as one that replays a graph, would otherwise fill the device with batches, each
of whose memory is free only after the work on it. So before a batch is moved the transfer waits for the
device to reach the batch that was taken LOOP_AHEAD batches ago.

NOTE [ timer: on a device ]
The host sees only how long queueing takes. So the time is measured on the device, between events on the
stream that is used. It is read once the last event has passed, so that the host never waits.
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

from fastload.batch.containers import each_tensor, is_closed, leaves_of, record_stream, to_device
from fastload.device import cuda_runtime, pinning
from fastload.device.quiet import quiet
from fastload.device.stages import BatchFields, BatchKey, StageCall
from fastload.health import tracing

PENDING_MOST = 64
"""Batches whose events are kept. Older events are dropped: the device lags by more than this many batches."""


LOOP_AHEAD = 4
"""Batches that the loop may have taken, and the device not begun; see NOTE [ transfer: a host that runs
ahead ]."""


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
    """Clock for the batches of one pass, on the host or on the current CUDA stream. Any thread may use it."""

    def __init__(self, timer: StageTimer | None, on_stream: bool) -> None:
        self._timer = timer
        self._on_stream = on_stream
        self._lock = threading.Lock()  # guards _pending
        self._pending: deque[tuple[Any, Any, Any]] = deque(maxlen=PENDING_MOST)

    def now(self) -> Any:
        """A point in time, for `count`: seconds on the host; on a stream an event, which may also be
        waited for."""
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
        with self._lock:
            self._pending.append((start, copied, end))
            while self._pending and self._pending[0][2].query():
                first, second, third = self._pending.popleft()
                self._timer.add(first.elapsed_time(second) / 1e3, second.elapsed_time(third) / 1e3)


class Lane:
    """The side stream of a loader on one CUDA device, and the loop's way behind it. Any thread may use it."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._lock = threading.Lock()  # guards _taken
        self._taken: deque[Any] = deque(maxlen=LOOP_AHEAD)

    def follow(self) -> None:
        """Makes the side stream wait for what the calling thread has queued on its own."""
        self.stream.wait_stream(torch.cuda.current_stream(self.device))

    def take(self, stream: torch.cuda.Stream) -> None:
        """Notes that the loop takes a batch, on this stream."""
        event = stream.record_event()
        with self._lock:
            self._taken.append(event)

    def hold_back(self) -> None:
        """Waits until the device is less than LOOP_AHEAD batches behind the loop."""
        with self._lock:
            oldest = self._taken[0] if len(self._taken) == LOOP_AHEAD else None
        if oldest is not None and not oldest.query():
            oldest.synchronize()


class Lanes:
    """The lanes of one loader, by device."""

    def __init__(self) -> None:
        self._found: dict[torch.device, Lane] = {}

    def on(self, device: torch.device) -> Lane:
        """The lane of a device; "cuda" is the current one."""
        if device == torch.device(device.type):
            device = torch.device(device.type, torch.cuda.current_device())
        if device not in self._found:
            self._found[device] = Lane(device)
        return self._found[device]


@dataclass(frozen=True)
class TransferPlan:
    """Settings of the transfer of batches to the loop. Every pass of a loader has the same; two can be
    compared.

    Attributes:
        device: the device that batches are copied to; None leaves them where they are.
        pin: pins batches that stay on the host.
        stages: applied to each batch on the device, in order.
        fields: the keys of images, labels and what lies in the images, in batches that are dicts.
        ahead: batches moved before the loop asks for them.
        timer: adds up the time that this takes.
        lanes: the loader's side streams.
    """

    device: torch.device | None = None
    pin: bool = False
    stages: tuple[StageCall, ...] = ()
    fields: BatchFields = field(default_factory=BatchFields)
    ahead: int = 0
    timer: StageTimer | None = field(default=None, compare=False)
    lanes: Lanes = field(default_factory=Lanes, compare=False)

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
        """True if a thread moves batches ahead. MPS has none: torch queues from one thread only there; nor
        does pinning alone need one."""
        somewhere = bool(self.stages) if self.device is None else self.device.type in ("cuda", "cpu")
        return self.ahead > 0 and somewhere


@dataclass
class TransferredBatch:
    """A batch on its device. `event` marks the end of the work queued on it. Left to the loop's thread are
    the stages `left`, and, if `closed`, the way to the device of objects that move themselves."""

    batch: object
    key: BatchKey
    left: tuple[StageCall, ...] = ()
    event: torch.cuda.Event | None = None
    closed: bool = False


class Transfer:
    """Moves the batches of one pass.

    1. begin() is called by the loop's thread, before any batch; enter_thread() by another thread, before it
       calls put().
    2. put() may be called by one thread, get() by the loop's; each batch goes through both, once.
    3. put() runs the stages up to the first that has to run in the loop's thread; get() runs the rest.

    Attributes:
        has_rest: True if begin() and get() have anything to do; if not, the batch of a TransferredBatch is as
            the loop gets it.
    """

    def __init__(self, transfer_plan: TransferPlan) -> None:
        self._lane: Lane | None = None
        if transfer_plan.device is not None and transfer_plan.device.type == "cuda":
            self._lane = transfer_plan.lanes.on(transfer_plan.device)
            # The current device differs from thread to thread.
            transfer_plan = replace(transfer_plan, device=self._lane.device)
        self._transfer_plan = transfer_plan
        # _late: the first stage that must run in the loop's thread, and all after it; see NOTE [ batch
        # stages: which thread ].
        first = next(
            (n for n, stage in enumerate(transfer_plan.stages) if not stage.ahead), len(transfer_plan.stages)
        )
        self._early, self._late = transfer_plan.stages[:first], transfer_plan.stages[first:]
        self.has_rest = self._lane is not None or bool(self._late)
        self._current: torch.device | int | None = None
        if self._lane is not None:
            self._current = self._lane.device
        elif transfer_plan.pin and pinning.can_register():
            self._current = torch.cuda.current_device()

    @property
    def stream(self) -> torch.cuda.Stream | None:
        """The stream that copies are queued on; None without CUDA."""
        return None if self._lane is None else self._lane.stream

    @cached_property
    def _clock(self) -> Clock:
        return Clock(self._transfer_plan.timer, self._lane is not None)

    def begin(self) -> None:
        """Begins the pass, in the loop's thread."""
        if self._lane is not None:
            self._lane.follow()

    def enter_thread(self) -> None:
        """Sets the calling thread's device, so that it opens no context on another, and lets it work while
        the loop captures a graph."""
        if self._current is not None:
            torch.cuda.set_device(self._current)
            runtime = cuda_runtime.runtime()
            if runtime is not None:
                runtime.relax_capture()

    def _on(self, stream: torch.cuda.Stream | None = None) -> AbstractContextManager[Any]:
        """The device as the current one, and a stream of it."""
        if self._lane is None:
            return nullcontext()
        stack = ExitStack()
        stack.enter_context(torch.cuda.device(self._lane.device))
        if stream is not None:
            stack.enter_context(torch.cuda.stream(stream))
        return stack

    def put(self, make: Callable[[], Any], key: Callable[[], BatchKey]) -> TransferredBatch:
        """Queues a batch's copy and early stages. `make` returns the batch on the host; nobody else holds
        it, so the lease ends here."""
        made = [make()]  # _to_device pops it: the slot's lease ends with the copy
        named, lane = key(), self._lane
        if lane is not None:
            lane.hold_back()
        closed = lane is not None and any(map(is_closed, leaves_of(made)))
        with self._on(None if lane is None else lane.stream):
            start = self._clock.now()
            with self._traced("copy", not self._transfer_plan.on_cpu or self._transfer_plan.pin):
                batch = self._to_device(made)
            copied = self._clock.now()
            batch = self._staged(self._early, batch, named)
            end = self._clock.now() if self._early else copied
            self._clock.count(start, copied, end)
            return TransferredBatch(batch, named, self._late, end if lane is not None else None, closed)

    def _traced(self, stage: str, there: bool = True) -> AbstractContextManager[Any]:
        """Context manager: a stage that is there, told to the trace that is taken. For CUDA that is the
        time in which it is queued."""
        return nullcontext() if tracing.active is None or not there else tracing.Span(tracing.active, stage)

    def _to_device(self, made: list[object]) -> object:
        batch = made.pop()
        device = self._transfer_plan.device
        if device is not None:
            return to_device(batch, device, closed=self._lane is None)
        return pin_batch(batch) if self._transfer_plan.pin else batch  # type: ignore[no-untyped-call]

    def _staged(self, stages: tuple[StageCall, ...], batch: object, key: BatchKey) -> object:
        if not stages:
            return batch
        with quiet(self._transfer_plan.device), torch.no_grad(), self._traced("augment"):
            batch = each_tensor(batch, lambda tensor: tensor.clone() if tensor.is_inference() else tensor)
            for stage in stages:
                batch = stage(batch, key, self._transfer_plan.fields)
        return batch

    def get(self, moved: TransferredBatch) -> object:
        """The batch, for the loop's thread: whatever that thread queues from now on runs after the work on
        the batch."""
        batch = moved.batch
        if self._lane is not None:
            current = torch.cuda.current_stream(self._lane.device)
            self._lane.take(current)
            if moved.event is not None:
                current.wait_event(moved.event)
            record_stream(batch, current)
            if moved.closed:
                batch = to_device(batch, self._lane.device)
                self._lane.follow()  # the guard of a slot asks the side stream alone whether copies are done
        if moved.left:
            with self._on():
                start = self._clock.now()
                batch = self._staged(moved.left, batch, moved.key)
                self._clock.count(start, start, self._clock.now())
        return batch
