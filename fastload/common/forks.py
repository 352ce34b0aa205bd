"""Forks: functions that a forked child calls."""

from __future__ import annotations

import os
from collections.abc import Callable


def call_in_children(function: Callable[[], object]) -> None:
    """Has each child that is forked from now on call a function first. Where nothing forks, on Windows,
    nothing is done."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)
