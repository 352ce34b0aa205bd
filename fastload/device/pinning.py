"""Pinned slots: memory registered with the driver, so that a GPU copies from it directly and no batch is copied to be pinned.

NOTE [ pin: a slot whose copy is still running ]
`batch.to(device, non_blocking=True)` returns before the copy has read the slot, and the caller may drop the batch at once. So when the
lease of a pinned slot ends, on whatever thread, events are recorded: on the current stream of each device in use, where the user's copies
are queued, and on the streams of our own transfers. The slot is neither refilled nor unmapped before all these events have passed.
"""

from __future__ import annotations

import warnings
import weakref
from typing import Any

import torch

from fastload._native import core

_side_streams: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()  # by id: two streams of the pool may compare equal


def can_register() -> bool:
    """Returns True if the accelerator can register memory: CUDA and ROCm can. For others torch copies a batch to memory that it pinned."""
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return accelerator is not None and accelerator.type == "cuda"


def wanted(pin_memory: bool, device: torch.device | None) -> bool:
    """Returns True if slots should be registered: batches are pinned, or copied to a device that reads registered memory."""
    return (pin_memory or (device is not None and device.type == "cuda")) and can_register()


def side_stream(device: torch.device) -> Any:
    """A new stream of the device. While it lives, the end of every lease records an event on it."""
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    _side_streams[id(stream)] = stream
    return stream


def register(memory: core.SharedSlot) -> bool:
    """Pins a slot for as long as it is mapped. Returns False, with a warning, if the driver refuses."""
    return memory.guard(Registered())


class Registered:
    """Guard for core.Ring and core.SharedSlot that registers their memory with the driver, and unregisters it."""

    def __init__(self) -> None:
        self._runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]

    def pin(self, address: int, size: int) -> bool:
        """Registers memory. Returns False, with a warning, if the driver refuses."""
        refused = self._runtime.cudaHostRegister(address, size, 0)
        if int(refused):
            warnings.warn(
                f"the driver would not pin {size} bytes of a slot ({refused}): its batches are copied into pinned memory. "
                "Often the limit of locked memory (ulimit -l) is too low",
                stacklevel=2,
            )
        return not int(refused)

    def unpin(self, address: int) -> None:
        """Undoes pin()."""
        self._runtime.cudaHostUnregister(address)

    def end_of_lease(self) -> Events:
        """Events that pass once the copies queued so far are done."""
        return Events()


class Events:
    """Events recorded at one moment on every stream that may read a slot; see NOTE [ pin: a slot whose copy is still running ]."""

    def __init__(self) -> None:
        current = [torch.cuda.current_stream(device) for device in _devices_in_use()]
        self._events = [stream.record_event() for stream in {*current, *_side_streams.values()}]

    def query(self) -> bool:
        """Returns True if all events have passed."""
        return all(event.query() for event in self._events)

    def synchronize(self) -> None:
        """Waits until all events have passed."""
        for event in self._events:
            event.synchronize()


def _devices_in_use() -> list[int]:
    """Devices that have a CUDA context. Asking another device for its stream would create a context, which takes memory there."""
    count = torch.cuda.device_count()
    has_context = getattr(torch._C, "_cuda_hasPrimaryContext", None)
    if count == 1 or has_context is None:
        return [torch.cuda.current_device()]
    return [device for device in range(count) if has_context(device)]
