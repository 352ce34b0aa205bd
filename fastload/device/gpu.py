"""Base of all Triton kernels: whether they work on a device, and how they are launched there."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from types import ModuleType

import torch


@cache
def working(load: Callable[[], ModuleType], device: torch.device) -> ModuleType | None:
    """Returns a module with a kernel, or None if the kernel does not work on the device: then torch's own ops
    are used.

    Triton builds a launcher at its first call, for which it needs a C compiler; a slim container may have
    none.

    Args:
        load: imports the module, whose prove(device) runs the kernel on a few values.
        device: device on which the kernel will run.
    """
    try:
        module = load()
    except ImportError:  # no Triton
        return None
    try:
        module.prove(device)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # a compiler, a driver or a version: whatever it is, the loop goes on
        reason = " ".join(str(error).split())[:300]
        warnings.warn(
            f"Triton cannot build or run {module.__name__} on {device} ({reason}): torch's own ops "
            "do the same in more passes. "
            "Often a C compiler is missing: install gcc, or name one by CC",
            stacklevel=2,
        )
        return None
    return module


def launching(device: torch.device) -> AbstractContextManager[object]:
    """Makes `device` the current one, on which Triton launches."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
