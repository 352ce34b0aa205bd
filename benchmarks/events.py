"""Events: the queue of events in time that the simulations of hosts and of cores run on."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Any


class Events:
    """What happens later, in the order of its time; at one time in the order in which it was added.

    Attributes:
        now: seconds since the simulation began.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[[Any], object], Any]] = []
        self._number = itertools.count().__next__

    def push(self, at: float, action: Callable[[Any], object], what: Any = None) -> None:
        """Has action(what) called at a time that is not before now."""
        heapq.heappush(self._heap, (at, self._number(), action, what))

    def run(self) -> None:
        """Goes through all events, also those that are added meanwhile."""
        heap = self._heap
        while heap:
            self.now, _, action, what = heapq.heappop(heap)
            action(what)
