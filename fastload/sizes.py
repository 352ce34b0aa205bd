"""Sizes in bytes as users write them: 1GiB, 500MB."""

from __future__ import annotations

import re

from fastload.errors import ArgumentError

_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([kmgt]i?b?|b)?", re.IGNORECASE)


def parse_size(size: str | int, name: str) -> int:
    """Number of bytes in a size such as 1GiB, 500MB (decimal), 64M (binary) or a plain number.

    Args:
        size: the size.
        name: the argument's name, for the error.

    Raises:
        ArgumentError: not a size.
    """
    if isinstance(size, int) and not isinstance(size, bool):
        return size
    match = _SIZE.fullmatch(size.strip()) if isinstance(size, str) else None
    if match is None:
        raise ArgumentError(f"{name} {size!r} is no size; write 1GiB, 500MB or a number of bytes")
    unit = (match[2] or "b").lower()
    base = 1000 if len(unit) == 2 and unit[1] == "b" else 1024
    return int(float(match[1]) * base ** " kmgt".index(unit[0] if unit[0] != "b" else " "))
