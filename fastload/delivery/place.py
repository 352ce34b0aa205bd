"""Where finished batches go: pinned memory, a device."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data._utils.pin_memory import pin_memory as pin_batch


def place(pin: bool, device: torch.device | None, batch: Any) -> Any:
    """Pins a batch and moves it, as asked; the identity when neither is."""
    if pin:
        batch = pin_batch(batch)  # type: ignore[no-untyped-call]
    return batch if device is None else to_device(batch, device)


def to_device(batch: Any, device: torch.device) -> Any:
    """Moves every tensor of a batch of the usual containers."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=batch.is_pinned() if device.type == "cuda" else False)
    if isinstance(batch, dict):
        return {key: to_device(value, device) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(to_device(value, device) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(to_device(value, device) for value in batch)
    return batch
