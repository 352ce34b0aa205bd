"""Pinned memory of batches, which a GPU reads directly: who owns it, and when it may be filled again.

NOTE [ pin: a slot whose copy is still running ]
`batch.to(device, non_blocking=True)` returns before the copy has read the batch, on whatever stream is
current, and the caller may drop the batch at once, on another. Only torch's pinned cache knows that stream.
So native threads fill memory of that cache, a fresh piece for each batch, and what is handed out are views of
its storage: the cache waits for the copies before it gives the memory to anyone.

Slots of worker processes are memfds, which that cache cannot own. There are three ways, of which
host_memory() decides:
- With device=, nobody but the loader's own transfer sees the slot. The end of a lease records an event on the
  loader's stream.
- With pin_memory=, users copy, on any stream. The end of a lease records an event over all work of each
  device (cuCtxRecordEvent). That ends a capture of a graph, so in a thread that captures it is put off until
  the slot is asked for.
- Where the driver cannot do that, batches are copied into torch's pinned cache.
A slot is neither refilled nor unmapped before its event has passed.
"""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch

from fastload.device import cuda_runtime

HostMemory = Literal["pageable", "pinned", "registered", "copied"]
"""Memory that batches lie in on the host: as the system gives it; of torch's pinned cache; slots registered
with the driver; copied into torch's pinned cache."""


def can_register() -> bool:
    """Returns True if the accelerator can register memory: CUDA and ROCm can. For others torch copies a
    batch to memory that it pinned."""
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return accelerator is not None and accelerator.type == "cuda"


def host_memory(pin_memory: bool, device: torch.device | None, engine: str) -> HostMemory:
    """The memory of a loader's batches; see NOTE [ pin: a slot whose copy is still running ].

    Args:
        pin_memory: batches that stay on the host are pinned.
        device: device to which the loader moves batches; None: it moves none.
        engine: "threads", "processes", or "caller", which has no slots.
    """
    on_device = device is not None and device.type == "cuda"
    if not (pin_memory or on_device):
        return "pageable"
    if not can_register():
        return "copied" if pin_memory else "pageable"
    if engine == "threads":
        return "pinned"
    runtime = cuda_runtime.runtime()
    can_guard = runtime is not None and (on_device or runtime.records_contexts)
    return "registered" if engine == "processes" and can_guard else "copied"


class PinnedCache:
    """Torch's pinned cache as the memory of a core.Ring. Once it refuses, with a warning, batches lie in
    pageable memory."""

    def __init__(self) -> None:
        self._refused = False

    def __call__(self, size: int) -> tuple[int, torch.Tensor] | None:
        """Returns (address, tensor of that many bytes); None: there is no pinned memory."""
        if self._refused:
            return None
        try:
            memory = torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=True)
        except RuntimeError as error:
            self._refused = True
            _warn_refused(size, str(error).partition("\n")[0])
            return None
        return memory.data_ptr(), memory

    def taken(self, size: int) -> int:
        """Bytes that the cache takes for a batch of that size: it rounds up to a power of two."""
        return size if self._refused or not size else 1 << (size - 1).bit_length()


class Registered:
    """Guard for core.SharedSlot that registers its memory with the driver, and unregisters it.

    Args:
        stream: the loader's stream, on which alone slots are read; None: users read them on any.
    """

    def __init__(self, stream: torch.cuda.Stream | None = None) -> None:
        self._stream = stream
        self._cudart = torch.cuda.cudart()  # type: ignore[no-untyped-call]

    def pin(self, address: int, size: int) -> bool:
        """Registers memory. Returns False, with a warning, if the driver refuses."""
        with _relaxed():
            refused = self._cudart.cudaHostRegister(address, size, 0)
        if int(refused):
            runtime = cuda_runtime.runtime()
            if runtime is not None:
                runtime.clear_error()
            _warn_refused(size, self._cudart.cudaGetErrorString(refused))
        return not int(refused)

    def unpin(self, address: int) -> None:
        """Undoes pin()."""
        with _relaxed():
            self._cudart.cudaHostUnregister(address)

    def end_of_lease(self) -> StreamEvent | ContextEvents:
        """An event that passes once the copies queued so far are done."""
        return ContextEvents() if self._stream is None else StreamEvent(self._stream)


class StreamEvent:
    """Event recorded on one stream."""

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._event = stream.record_event()

    def query(self) -> bool:
        """Returns True if it has passed."""
        with _relaxed():
            return bool(self._event.query())

    def synchronize(self) -> None:
        """Waits until it has passed."""
        with _relaxed():
            self._event.synchronize()


class ContextEvents:
    """Events over all work queued on each device in use. In a thread that captures a graph they are
    recorded by a later query()."""

    def __init__(self) -> None:
        self._events: list[Any] | None = None
        self._record()

    def _record(self) -> None:
        runtime, devices = cuda_runtime.runtime(), _devices_in_use()
        assert runtime is not None
        if devices and torch.cuda.is_current_stream_capturing():
            return
        events = []
        for device in devices:
            with torch.cuda.device(device):
                # Makes the event; what it covers is replaced.
                event = torch.cuda.current_stream().record_event()
                runtime.record_context(event)
            events.append(event)
        self._events = events

    def query(self) -> bool:
        """Returns True if all events have passed."""
        if self._events is None:
            self._record()
        with _relaxed():
            return self._events is not None and all(event.query() for event in self._events)

    def synchronize(self) -> None:
        """Waits until all events have passed.

        Raises:
            RuntimeError: this thread captures a graph, and nobody can say when they pass.
        """
        if self._events is None:
            self._record()
        if self._events is None:
            raise RuntimeError(
                "a pinned slot was dropped while a CUDA graph was captured: its memory stays mapped"
            )
        with _relaxed():
            for event in self._events:
                event.synchronize()


def _warn_refused(size: int, reason: str) -> None:
    warnings.warn(
        f"the driver would not pin {size} bytes ({reason}): copies to the device are slower", stacklevel=3
    )


def _relaxed() -> AbstractContextManager[None]:
    runtime = cuda_runtime.runtime()
    return nullcontext() if runtime is None else runtime.relaxed()


def _devices_in_use() -> list[int]:
    """Devices that have a CUDA context. Asking another device for its stream would create a context, which
    takes memory there."""
    has_context = getattr(torch._C, "_cuda_hasPrimaryContext", None)
    if has_context is None:
        return [torch.cuda.current_device()]
    return [device for device in range(torch.cuda.device_count()) if has_context(device)]
