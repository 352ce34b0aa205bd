"""Native objects that a test leaves alive."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from fastload._native import core


@contextmanager
def none_left(*kinds: str) -> Iterator[dict[str, int]]:
    """The block leaves no more native objects of these kinds, or of any, than it found; gives those found.

    There may be fewer: a thread of an earlier test lets go of its own when its request has ended.
    """
    gc.collect()  # earlier tests' objects in cycles
    before = core.live_handles()
    yield before
    gc.collect()
    after = core.live_handles()
    assert not {kind: f"{before[kind]}, then {after[kind]}" for kind in kinds or before if after[kind] > before[kind]}
