"""Native objects that a test leaves alive."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

from fastload._native import core


@contextmanager
def none_left(*kinds: str, within: float = 0.0) -> Iterator[dict[str, int]]:
    """The block leaves no more native objects of these kinds, or of any, than it found; gives those found.

    There may be fewer: a thread of an earlier test lets go of its own when its request has ended. A block that drops what it did not close
    has such threads too; theirs are to be gone `within` so many seconds.
    """
    gc.collect()  # earlier tests' objects in cycles
    before = core.live_handles()
    yield before
    until = time.monotonic() + within
    while left := _more(before, kinds):
        assert time.monotonic() < until, f"native objects are left: {left}"
        time.sleep(0.01)


def _more(before: dict[str, int], kinds: tuple[str, ...]) -> dict[str, str]:
    """Kinds of which there are more than before, with both numbers."""
    gc.collect()
    after = core.live_handles()
    return {kind: f"{before[kind]}, then {after[kind]}" for kind in kinds or before if after[kind] > before[kind]}
