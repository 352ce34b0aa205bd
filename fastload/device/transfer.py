"""The way of a pass's batches to their device: copied and transformed on a stream of their own, ahead of the loop.

NOTE [ transfer: streams ]
Copies and batch transforms are queued on one side stream a pass. Each batch ends with an event there; the stream that is current when the
loop gets the batch waits for it on the device, and every tensor of the batch is recorded on that stream, so that its memory is reused only
after the loop's work. The host waits for nothing. Where there are no streams (CPU, MPS) the same steps run in the same order, at once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch.utils.data._utils.pin_memory import pin_memory as pin_batch

from fastload.batch_tree import tensors_of, to_device
from fastload.device import pinning as pin
from fastload.device.stage_call import IMAGE, LABEL, BatchKey, StageCall
from fastload.device.timing import Clock, StageTimer


@dataclass(frozen=True)
class TransferPlan:
    """How batches reach the loop; the same for every pass of a loader, and comparable.

    Attributes:
        device: where they go; None leaves them where they are.
        pin: pins them, where they stay on the host.
        steps: done to each batch there, in order.
        fields: of images and labels, in batches that are dicts.
        ahead: batches moved before the loop asks for them.
        timer: what that took is added to it.
    """

    device: torch.device | None = None
    pin: bool = False
    steps: tuple[StageCall, ...] = ()
    fields: tuple[str, str] = (IMAGE, LABEL)
    ahead: int = 0
    timer: StageTimer | None = field(default=None, compare=False)

    @property
    def idle(self) -> bool:
        """Batches reach the loop as they are."""
        return self.device is None and not self.pin and not self.steps

    @property
    def on_cpu(self) -> bool:
        """The steps run on the CPU."""
        return self.device is None or self.device.type == "cpu"

    @property
    def threaded(self) -> bool:
        """Whether a thread moves batches ahead: not to MPS, where torch queues from one thread, and not just to pin them."""
        somewhere = bool(self.steps) if self.device is None else self.device.type in ("cuda", "cpu")
        return self.ahead > 0 and somewhere


@dataclass
class TransferredBatch:
    """A batch on its device, with work on it queued perhaps; `event`: the end of that work. `left`: steps for the loop's thread."""

    batch: Any
    key: BatchKey
    left: tuple[StageCall, ...] = ()
    event: Any = None


class Transfer:
    """Moves the batches of one pass.

    1. put() may be called by one thread, get() by another; each batch goes through both, once.
    2. put() runs the steps up to the first that has to run in the loop's thread; get() the rest.
    """

    def __init__(self, transfer_plan: TransferPlan) -> None:
        self._cuda = transfer_plan.device is not None and transfer_plan.device.type == "cuda"
        if transfer_plan.device == torch.device("cuda"):
            transfer_plan = replace(
                transfer_plan, device=torch.device("cuda", torch.cuda.current_device())
            )  # another thread has another current one
        self._transfer_plan = transfer_plan
        self._idle = transfer_plan.idle
        # Those that must wait for the loop, and all after them; see NOTE [ batch steps: which thread ].
        first = next((n for n, step in enumerate(transfer_plan.steps) if not step.ahead), len(transfer_plan.steps))
        self._early, self._late = transfer_plan.steps[:first], transfer_plan.steps[first:]

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
        """Queues a batch's copy and early steps. `make` gives it on the host: nobody else holds it, so that its slot's lease ends here."""
        if self._idle:
            return TransferredBatch(make(), key())
        made = [make()]  # taken out again by _to_device: the slot's lease ends with the copy
        named = key()
        with self._side():
            start = self._clock.now()
            batch = self._to_device(made)
            copied = self._clock.now()
            with torch.no_grad():
                for step in self._early:
                    batch = step(batch, named, self._transfer_plan.fields)
            end = self._clock.now() if self._early else copied
            self._clock.count(start, copied, end)
            return TransferredBatch(batch, named, self._late, end if self._cuda else None)

    def _to_device(self, made: list[Any]) -> Any:
        batch = made.pop()
        device = self._transfer_plan.device
        if device is not None:
            return to_device(batch, device)
        return pin_batch(batch) if self._transfer_plan.pin else batch  # type: ignore[no-untyped-call]

    def get(self, moved: TransferredBatch) -> Any:
        """The batch, for the loop's thread: what is queued there from now on comes after the batch's own work."""
        batch = moved.batch
        if moved.left:
            with self._side(), torch.no_grad():
                start = self._clock.now()
                for step in moved.left:
                    batch = step(batch, moved.key, self._transfer_plan.fields)
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
