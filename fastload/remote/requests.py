"""Request: records that somebody waits for together, such as those of a batch."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from typing_extensions import Buffer

from fastload.errors import RemoteError

if TYPE_CHECKING:
    from fastload.remote.passes import PassShare

Unit = tuple[int, int]
"""A unit of a dataset: the number of its shard, and its number there. See NOTE [ cache: when a part is there ]."""


class Request:
    """The units of one request, and what became of them.

    1. Made by any thread; written by the fetcher's thread until `finished`; read by any after that.
    2. A request whose `owner` is gone is no request any more: nothing is fetched for it.
    3. One that is to `heal` is of units whose bytes in the cache are damaged: they are fetched again, and are in `taken` in any case.

    Attributes:
        units: those that were not there when it was made, in the order in which they are wanted.
        size: bytes of all that is asked for, there or not.
        taken: what was fetched and could not be kept in the cache, by unit: (its start in the shard's file, bytes).
        error: why a unit could not be fetched; the first one's.
        share: what it is of a pass; None: it is of none, or of one of which nothing is known.
    """

    def __init__(
        self,
        units: Iterable[Unit],
        size: int,
        owner: Any = None,
        done: Callable[[Request], None] | None = None,
        heal: bool = False,
        share: PassShare | None = None,
    ) -> None:
        self.units = list(dict.fromkeys(units))
        self.size = size
        self.heal = heal
        self.share = share
        self.taken: dict[Unit, tuple[int, Buffer]] = {}
        self.error: RemoteError | None = None
        self._left = set(self.units)
        self._owner = None if owner is None else weakref.ref(owner)
        self._done = done
        self._finished = threading.Event()

    @property
    def wanted(self) -> bool:
        """Whether anybody still waits for it, or will."""
        return self._owner is None or self._owner() is not None

    @property
    def finished(self) -> bool:
        """Whether nothing of it is on its way."""
        return self._finished.is_set()

    def lacks(self, unit: Unit) -> bool:
        """Whether a unit of it is still to come."""
        return unit in self._left

    def arrived(self, unit: Unit, taken: tuple[int, Buffer] | None = None) -> None:
        """Notes that a unit is in the cache, or what it is."""
        if taken is not None:
            self.taken[unit] = taken
        self._settle(unit)

    def failed(self, unit: Unit, error: RemoteError) -> None:
        """Notes that a unit cannot be fetched."""
        self.error = self.error or error
        self._settle(unit)

    def _settle(self, unit: Unit) -> None:
        self._left.discard(unit)
        if not self._left:
            self.finish()

    def finish(self, error: RemoteError | None = None) -> None:
        """Ends the request, with an error where one is given."""
        if not self._finished.is_set():
            self.error = self.error or error
            done, self._done = self._done, None
            try:
                if done is not None:
                    done(self)
            finally:
                self._finished.set()

    def wait(self, seconds: float) -> bool:
        """Waits for its end. Returns whether that has come."""
        return self._finished.wait(seconds)
