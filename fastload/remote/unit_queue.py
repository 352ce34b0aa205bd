"""UnitQueue: the units that are to be fetched, in the order in which they are wanted, but near ones of one shard follow each other."""

from __future__ import annotations

from collections import deque
from itertools import islice

from fastload.remote.gathered import MOST
from fastload.remote.requests import Unit

NEAR = 64
"""Units of one shard are taken one after the other if at most so many others are between them: one batch."""


class UnitQueue:
    """A queue of units. `take` gives up to MOST of one shard in a row, since requests for one object that begin together cost less."""

    def __init__(self) -> None:
        self._units: deque[Unit] = deque()
        self._shard = -1
        self._left = 0  # that may be taken of the shard before the first in the queue has its turn

    def __len__(self) -> int:
        return len(self._units)

    @property
    def first(self) -> Unit:
        """The unit that is wanted first. Raises IndexError."""
        return self._units[0]

    def append(self, unit: Unit) -> None:
        """Adds a unit to the end."""
        self._units.append(unit)

    def take(self, in_order: bool = False) -> Unit:
        """Takes the next unit; `in_order`: the first. Raises IndexError."""
        if self._left and not in_order:
            self._left -= 1
            for at, unit in enumerate(islice(self._units, NEAR)):
                if unit[0] == self._shard:
                    del self._units[at]
                    return unit
        unit = self._units.popleft()
        self._shard, self._left = unit[0], MOST - 1
        return unit

    def clear(self) -> None:
        """Drops all."""
        self._units.clear()
        self._left = 0
