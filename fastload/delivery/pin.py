"""Pinned slots: memory that a GPU copies from directly, registered where it lies, so that no thread and no copy pins a batch.

NOTE [ pin: a slot whose copy is still running ]
`batch.to(device, non_blocking=True)` returns before the copy has read the slot, and the user may drop the batch at once. So the end of a
pinned slot's lease records an event on the stream that is current then, and the slot is neither refilled nor unmapped before that event.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch

from fastload._native import core


def can_register() -> bool:
    """Whether memory of ours can be registered with the accelerator: CUDA and ROCm can; for others torch copies into memory it pinned."""
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return accelerator is not None and accelerator.type == "cuda"


def register(memory: core.SharedSlot) -> bool:
    """Pins a slot for as long as it is mapped; False, with a warning, when the driver refuses."""
    runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    refused = runtime.cudaHostRegister(memory.address, memory.bytes, 0)
    if int(refused):
        warnings.warn(
            f"the driver would not pin {memory.bytes} bytes of a slot ({refused}): its batches are copied into pinned memory. "
            "Often the limit of locked memory (ulimit -l) is too low",
            stacklevel=2,
        )
        return False
    memory.guard(_end_of_lease, _Unregister(runtime, memory.address))
    return True


def _end_of_lease() -> Any:
    """The event that the copies queued so far by this thread will have passed."""
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    return event


class _Unregister:
    """Undoes register(), after the last copy."""

    def __init__(self, runtime: Any, address: int) -> None:
        self._runtime, self._address = runtime, address

    def __call__(self, event: Any) -> None:
        if event is not None:
            event.synchronize()
        self._runtime.cudaHostUnregister(self._address)
