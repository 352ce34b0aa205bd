"""What a test leaves alive: native objects, threads, open files. What an earlier test left may end
meanwhile: only what is new counts."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from fastload._native import core


def threads() -> set[str]:
    """The threads of this process, Python's and all others."""
    return set(os.listdir("/proc/self/task"))


def all_ended_since(before: set[str], within: float = 5.0) -> bool:
    """Whether the threads that are new end within so many seconds: one that was joined is listed for a
    moment longer."""
    until = time.monotonic() + within
    while not threads() <= before and time.monotonic() < until:
        time.sleep(0.01)
    return threads() <= before


def descriptors() -> dict[str, str]:
    """The numbers of this process's open files, and what each is of."""
    found = {}
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the listing's own
            found[number] = os.readlink(f"/proc/self/fd/{number}")
    return found


def opened_since(before: dict[str, str]) -> dict[str, str]:
    """The descriptors that are new."""
    return {number: link for number, link in descriptors().items() if before.get(number) != link}


@contextmanager
def none_left(*kinds: str, within: float = 0.0) -> Iterator[dict[str, int]]:
    """The block leaves no more native objects of these kinds, or of any, than it found; gives those found.

    There may be fewer: a thread of an earlier test lets go of its own when its request has ended. A block
    that drops what it did not close has such threads too; theirs are to be gone `within` so many seconds.
    """
    gc.collect()  # earlier tests' objects in cycles
    before = core.live_handles()
    yield before
    left = grown(core.live_handles, {kind: before[kind] for kind in kinds or before}, within)
    assert not left, f"native objects are left: {left}"


def grown(count: Callable[[], Mapping[str, int]], before: Mapping[str, int], within: float) -> dict[str, str]:
    """What there is more of than before, with both numbers, even after so many seconds."""
    until = time.monotonic() + within
    while True:
        gc.collect()
        after = count()
        more = {
            kind: f"{number}, then {after[kind]}" for kind, number in before.items() if after[kind] > number
        }
        if not more or time.monotonic() >= until:
            return more
        time.sleep(0.01)
