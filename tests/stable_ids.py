"""Ids of parametrized tests that are the same in every process, so that the workers of pytest-xdist agree
on what they collected."""

from __future__ import annotations

import re
from typing import Any


def named(value: Any) -> str:
    """repr(), without addresses."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
