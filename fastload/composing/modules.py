"""Modules of torch: finds out whether a call of one runs its forward() and nothing else."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import Module
from torch.nn.modules import module as modules

from fastload.common.originals import OwnCode
from fastload.common.torch_modes import is_watched

MODULE_CODE = "torch.nn.modules.module:Module", ("__call__", "_call_impl", "_wrapped_call_impl")
"""torch's code of a call, as a place of OwnCode."""
_HOOKS = (
    *("_global_backward_hooks", "_global_backward_pre_hooks", "_global_forward_hooks"),
    "_global_forward_pre_hooks",
)
_OF_OBJECTS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_METHODS = frozenset(
    (
        *("forward", "transform", "check_inputs", "make_params", "get_params", "_needs_transform_list"),
        *("_call_kernel", "_compiled_call_impl"),
    )
)


def is_usual(own: OwnCode) -> bool:
    """Returns True if nothing but a library's own code would run in a call of its modules, and nobody
    watches torch."""
    held = vars(modules)
    return not (
        any(held[name] for name in _HOOKS)
        or own.replaced()
        or is_watched()
        or torch.get_default_dtype() is not torch.float32
    )


def is_plain(transform: Any) -> bool:
    """Returns True for a module that torch calls, without hooks, and without a method of its own."""
    held, kind = transform.__dict__, type(transform)
    if kind.__call__ is not Module.__call__ or kind._call_impl is not Module._call_impl:
        return False
    return held.keys().isdisjoint(_METHODS) and not any(map(held.get, _OF_OBJECTS))
