"""Limit on an image's pixels, wherever images are packed, checked or read; sizes and times as users write
them (1GiB, 500MB, 2h)."""

from __future__ import annotations

import math
import os
import re

from fastload.errors import ArgumentError

_TIME = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(s|min|h|d)", re.IGNORECASE)
_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86400}
LONGEST_TIMEOUT = 30 * 86400
"""Most seconds of a timeout: a job that waits for a month waits for a mistake."""
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


def parse_timeout(timeout: object, name: str = "timeout") -> float:
    """Seconds in a timeout: a number of seconds, or text with a unit, such as 90s, 30min, 6h or 2d.

    Args:
        timeout: the timeout.
        name: the argument's name, for the error.

    Raises:
        ArgumentError: it is none of these, not positive, or longer than LONGEST_TIMEOUT.
    """
    seconds = math.nan
    if isinstance(timeout, str):
        match = _TIME.fullmatch(timeout.strip())
        seconds = float(match[1]) * _SECONDS[match[2].lower()] if match else math.nan
    elif isinstance(timeout, (int, float)) and not isinstance(timeout, bool):
        seconds = min(timeout, 2 * LONGEST_TIMEOUT)  # an int may be larger than any float
    if not 0 < seconds <= LONGEST_TIMEOUT:
        raise ArgumentError(
            f"{name}={timeout!r} is no time: write a number of seconds, or 90s, 30min, 6h, 2d; at "
            "most 30 days"
        )
    return float(seconds)


MAX_PIXELS = 1 << 28
"""Images of more pixels (268 million) are refused before anything is allocated, unless the caller raises
the limit."""
MAX_PIXELS_MOST = 2**40


def default_max_pixels() -> int:
    """The limit where the caller gives none: FASTLOAD_MAX_PIXELS, or `MAX_PIXELS`.

    Raises:
        ArgumentError: the variable is no whole number between 1 and 2**40.
    """
    text = os.environ.get("FASTLOAD_MAX_PIXELS", "")
    if not text:
        return MAX_PIXELS
    if not (text.isascii() and text.isdecimal() and len(text) <= 20 and 1 <= int(text) <= MAX_PIXELS_MOST):
        raise ArgumentError(
            f"FASTLOAD_MAX_PIXELS={text[:60]!r} is no number of pixels, 1 to 2**40; correct or unset it"
        )
    return int(text)


def checked_max_pixels(value: int | None) -> int:
    """An argument max_pixels, checked; None for `default_max_pixels`.

    Raises:
        ArgumentError: it is no whole number between 1 and 2**40.
    """
    if value is None:
        return default_max_pixels()
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_PIXELS_MOST:
        raise ArgumentError(f"max_pixels={value!r} is no whole number between 1 and {MAX_PIXELS_MOST}")
    return value
