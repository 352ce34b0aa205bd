"""Draws of torch's functions in one thread from a generator of its own: other threads, and the global
generator, do not notice."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from fastload.errors import FastloadError


class GlobalDraw(FastloadError):
    """A function would have drawn from a global generator."""


class PrivateDraws(TorchFunctionMode):
    """In this thread, torch's functions draw from `generator` the numbers that the global generator would
    give after the same seed.

    1. A function mode acts in the thread that enters it alone. It costs a third of what a dispatch mode does,
       which acts on every op, and whose first use imports much of torch's compiler.
    2. It sees what Python calls. A function of torch that draws by itself, and has no op of its name, it does
       not see.
    3. Python's `random` and NumPy are not affected.

    Raises:
        GlobalDraw: from a function that draws and takes no generator.
    """

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self._generator = generator

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> object:
        takes, kwargs = takes_generator(func), kwargs or {}
        if takes is None or kwargs.get("generator") is not None:
            return func(*args, **kwargs)
        if not takes:
            raise GlobalDraw(f"torch's {func.__name__}() draws from a global generator")
        return func(*args, **{**kwargs, "generator": self._generator})


@cache
def takes_generator(func: object) -> bool | None:
    """True if a function of torch draws random numbers from a generator that it is given; None if it does
    not draw."""
    packet = getattr(torch.ops.aten, getattr(func, "__name__", ""), None)
    if not isinstance(packet, torch._ops.OpOverloadPacket):
        return None
    overloads: Callable[[], list[str]] = packet.overloads
    ops = [getattr(packet, name) for name in overloads()]
    if not any(torch.Tag.nondeterministic_seeded in op.tags for op in ops):
        return None
    return any(argument.name == "generator" for op in ops for argument in op._schema.arguments)
