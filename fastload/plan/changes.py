"""What a plan was made from, so that a transform changed in place is noticed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fastload.plan.torchvision import flatten, is_exactly_torchvisions

_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_TABLE = "_policies"
_LONGEST = 4096
"""Values of an array that are compared one by one; larger ones count as one object."""


@dataclass(frozen=True)
class Fingerprint:
    """What planning reads of a transform; equal fingerprints give equal plans.

    Attributes:
        key: the identity of each step, with the parameters of torchvision's own classes. fastload's transforms cannot change, and a step
            that runs in Python is called as it is.
        steps: keeps the steps alive, so that no other object takes their identity.
    """

    key: tuple[Any, ...]
    steps: tuple[Any, ...] = field(compare=False, repr=False)


def fingerprint(transform: Any) -> Fingerprint:
    """The fingerprint of a transform as it is now."""
    steps = tuple(flatten(transform))
    return Fingerprint(tuple((id(step), _parameters(step)) for step in steps), steps)


def _parameters(step: Any) -> tuple[Any, ...]:
    if not is_exactly_torchvisions(step):
        return ()
    seen = vars(step).items()
    return tuple((name, bool(value) if name in _HOOKS else _comparable(value)) for name, value in seen if _is_read(name))


def _is_read(name: str) -> bool:
    return not name.startswith("_") or name in _HOOKS or name == _TABLE


def _comparable(value: Any) -> Any:
    """A copy that compares by value: containers as tuples, small arrays as their values; anything else by its own equality."""
    if isinstance(value, list | tuple):
        return tuple(_comparable(each) for each in value)
    if isinstance(value, dict):
        return tuple((key, _comparable(each)) for key, each in value.items())
    listed = getattr(value, "tolist", None)
    if not callable(listed):
        return value
    return _comparable(listed()) if getattr(value, "size", 0) and _count(value) <= _LONGEST else id(value)


def _count(value: Any) -> int:
    size = value.size
    return int(size) if isinstance(size, int) else int(value.numel())
