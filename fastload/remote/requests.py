"""Request: records that somebody waits for together, such as those of a batch.

Pass: what one pass over a dataset in a bucket will ask for, as far as that is known, and what was fetched for it ahead of its turn.

NOTE [ pass: what is held in memory ]
1. Under shuffle="window" all samples of a block are asked for within the buffer's span. So what the cache has no room for is fetched in
   runs of a block's units too. What nobody has asked for yet is held in memory, as a copy of its own, until the last of the block's
   samples in it was asked for.
2. All passes of a process hold at most HELD_BYTES; one pass at most the sampler's buffer, and a MEMORY_SHARE of the memory that was free at
   its beginning. Of samples that come in groups it may be twice the buffer, which is all of the open blocks: a group is held whole until
   its last sample. Where there is less room than a run needs, the run is cut; where there is none, a unit is fetched when it is asked for.
3. It is memory and not the cache's file. What the file had for this, its budget would lack in every epoch, and where the cache was filled
   before there is nothing left. Records share pages, so that a hole frees less than the record, or needs to know of its neighbours, which
   other processes write. And memory is free again with the end of the process, whatever ends it.
4. A pass ends with its owner, which an iterator has, or with the fetcher; and with it what it holds. Two passes over one dataset share
   nothing but the room.
5. In worker processes nothing is held. Each of N workers makes every Nth batch, or what it is the first to claim, so that of a block no
   worker uses more than some single samples, and none knows which.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from fastload.errors import RemoteError

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


HELD_BYTES = 1 << 30
"""Most bytes that a process holds: the default buffer of shuffle="window"."""
MEMORY_SHARE = 0.25

Masks = list[npt.NDArray[np.bool_]]
"""For each shard of a dataset, by unit."""


class HeldRoom:
    """Room in memory, in bytes, for what all passes of one process hold. For the fetcher's thread alone."""

    def __init__(self, limit: int = HELD_BYTES) -> None:
        self.limit = limit
        self.size = 0
        """Bytes that are held, or reserved."""


class Pass:
    """One pass over one dataset. Made by any thread; all but `holds` is for the fetcher's. See NOTE [ pass: what is held in memory ].

    Args:
        needed: the units that it needs; None: those of blocks, which are told as they are opened.
        limit: of what it may hold, bytes.
        room: of the process.

    Attributes:
        ended: its owner is gone.
    """

    def __init__(self, needed: Masks | None, limit: int, room: HeldRoom) -> None:
        self.ended = False
        self._needed = needed
        self._limit = limit
        self._room = room
        self._size = 0  # held and reserved
        self._left: dict[Unit, int] = {}  # samples of open blocks that were not asked for yet
        self._held: dict[Unit, tuple[int, bytes]] = {}
        self._first: Request | None = None
        self._started = False

    @property
    def blocks(self) -> bool:
        """Whether it asks for blocks of samples, each within a short time."""
        return self._needed is None

    @property
    def holds(self) -> bool:
        """Whether anything is held for it."""
        return bool(self._held)

    # ---- its first request

    def start(self, request: Request) -> None:
        """Notes the pass's first request; does nothing for later ones."""
        if not self._started:
            self._started, self._first = True, request

    @property
    def begun(self) -> bool:
        """Whether the first request is over."""
        if self._first is not None and (self._first.finished or not self._first.wanted):
            self._first = None
        return self._started and self._first is None

    def waits_first_for(self, unit: Unit) -> bool:
        """Whether a unit is one that the first request lacks."""
        return self._first is not None and self._first.lacks(unit)

    # ---- what it will ask for

    def needs(self, shard: int, number: int) -> bool:
        """Whether it will ask for a unit that it does not hold; of blocks, of one that is open."""
        if self._needed is not None:
            return bool(self._needed[shard][number])
        return (shard, number) in self._left and (shard, number) not in self._held

    def open(self, units: Iterable[Unit]) -> None:
        """Notes the units of blocks whose first sample is asked for: one for each sample that the cache lacks."""
        if not self.ended:
            for unit in units:
                self._left[unit] = self._left.get(unit, 0) + 1

    def use(self, units: Iterable[Unit]) -> None:
        """Notes that samples are asked for; lets go of what is held for no other one."""
        for unit in units:
            left = self._left.pop(unit, 0)
            if left > 1:
                self._left[unit] = left - 1
            elif left:
                self.drop(unit)

    # ---- what is held

    @property
    def free(self) -> int:
        """Bytes that may be held beside those that are."""
        return 0 if self.ended else min(self._limit - self._size, self._room.limit - self._room.size)

    def reserve(self, size: int) -> None:
        """Takes room, or gives it back (size < 0)."""
        self._size += size
        self._room.size += size

    def hold(self, unit: Unit, start: int, data: memoryview) -> None:
        """Holds a unit's bytes, which begin at `start` of the shard, if a sample is left that needs them and there is room."""
        if unit in self._left and unit not in self._held and len(data) <= self.free:
            self.reserve(len(data))
            self._held[unit] = start, bytes(data)

    def held(self, unit: Unit) -> tuple[int, bytes] | None:
        """(start in the shard, bytes) of a unit that is held."""
        return self._held.get(unit)

    def drop(self, unit: Unit) -> None:
        """Lets go of a unit."""
        found = self._held.pop(unit, None)
        if found is not None:
            self.reserve(-len(found[1]))

    def end(self) -> None:
        """Lets go of everything; idempotent. What is reserved is given back by those who reserved it."""
        self.ended = True
        for unit in list(self._held):
            self.drop(unit)
        self._left.clear()
        self._first = None


@dataclass(frozen=True)
class PassShare:
    """What a request is of a pass.

    Attributes:
        owner: the pass.
        opens: the units of the samples of all blocks that it is the first to ask for, as far as the cache lacks them.
        asks: the units of all its samples; both once for each sample.
    """

    owner: Pass
    opens: Sequence[Unit] = ()
    asks: Sequence[Unit] = ()

    def note(self) -> None:
        """Tells the pass, where there is nothing to fetch for the request."""
        self.owner.open(self.opens)
        self.owner.use(self.asks)
