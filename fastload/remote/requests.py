"""Request: records that are waited for together, such as a batch's. Pass: one pass over a dataset, with the
bytes that it holds in memory.

NOTE [ pass: what is held in memory ]
1. Under shuffle="window" all samples of a block are asked for within the buffer's span. So units without room
   in the cache are fetched in runs of a block's units too. Units that were not asked for yet are held in
   memory, each as a copy of its own, until the last sample of the block in it was asked for.
2. All passes of a process hold at most HELD_BYTES; one pass at most the sampler's buffer, and a MEMORY_SHARE
   of the memory that was free at its beginning. For samples that come in groups the limit is twice the
   buffer, which is all of the open blocks: a group is held whole until its last sample. Where there is less
   room than a run needs, the run is cut; without room, a unit is fetched when it is asked for.
3. The bytes are held in memory and not in the cache's file. Bytes in the file would be missing from the
   cache's budget in every epoch, and in a full cache there is no room for them. Records share pages, so that
   a hole in the file frees less than the record, or needs to know of its neighbours, which other processes
   write. And memory is free again with the end of the process, however it ends.
4. A pass ends with its owner, which an iterator has, or with the fetcher, and lets go of the bytes it holds.
   Two passes over one dataset share only the room.
5. Worker processes hold nothing. Each of N workers makes every Nth batch, or the batches that it claims
   first, so that a worker uses only a few samples of a block, and none knows which.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from fastload.errors import RemoteError

Unit = tuple[int, int]
"""A unit of a dataset: (number of its shard, number in the shard). See NOTE [ cache: when a part is there
]."""


class LostObjectError(RemoteError):
    """A foreign object is gone, was replaced, or may not be read: the samples in it are bad, and no
    others."""


class Request:
    """A request for units of a dataset, and its results.

    1. Any thread makes it. The fetcher's thread writes it until `finished`; after that, any thread may read
       it.
    2. A request whose `owner` no longer exists is cancelled: nothing is fetched for it.
    3. A request with `heal` has units whose bytes in the cache are damaged: they are fetched again, and are
       in `taken` in any case.

    Attributes:
        units: the units that the cache lacked when the request was made, in the order in which they are
            wanted.
        size: bytes of all samples that are asked for, cached or not.
        taken: the units that were fetched and not kept in the cache: (start in the shard's file, bytes) by
            unit.
        lost: units of foreign objects that cannot be read any more, each with the reason.
        error: error of the first unit that could not be fetched otherwise; None: there was none.
        share: the request's share of a pass; None: it belongs to no known pass.
    """

    def __init__(
        self,
        units: Iterable[Unit],
        size: int,
        owner: object | None = None,
        done: Callable[[Request], None] | None = None,
        heal: bool = False,
        share: PassShare | None = None,
    ) -> None:
        self.units = list(dict.fromkeys(units))
        self.size = size
        self.heal = heal
        self.share = share
        self.taken: dict[Unit, tuple[int, Buffer]] = {}
        self.lost: dict[Unit, LostObjectError] = {}
        self.error: RemoteError | None = None
        self._left = set(self.units)
        self._owner = None if owner is None else weakref.ref(owner)
        self._done = done
        self._finished = threading.Event()

    @property
    def wanted(self) -> bool:
        """True unless the object that waits for the request no longer exists."""
        return self._owner is None or self._owner() is not None

    @property
    def finished(self) -> bool:
        """True once all units have arrived or failed."""
        return self._finished.is_set()

    def lacks(self, unit: Unit) -> bool:
        """Returns True if a unit of the request is still to come."""
        return unit in self._left

    def arrived(self, unit: Unit, taken: tuple[int, Buffer] | None = None) -> None:
        """Notes that a unit is in the cache, or takes its bytes."""
        if taken is not None:
            self.taken[unit] = taken
        self._settle(unit)

    def failed(self, unit: Unit, error: RemoteError) -> None:
        """Notes that a unit cannot be fetched: all of the request fails, unless that is its object's
        fault."""
        if isinstance(error, LostObjectError):
            self.lost[unit] = error
        else:
            self.error = self.error or error
        self._settle(unit)

    def _settle(self, unit: Unit) -> None:
        self._left.discard(unit)
        if not self._left:
            self.finish()

    def finish(self, error: RemoteError | None = None) -> None:
        """Ends the request, with an error if one is given."""
        if not self._finished.is_set():
            self.error = self.error or error
            done, self._done = self._done, None
            try:
                if done is not None:
                    done(self)
            finally:
                self._finished.set()

    def drop(self) -> None:
        """Forgets whom to call: nobody wants the request any more, and who was to be called may hold it,
        and the dataset."""
        self._done = None

    def wait(self, seconds: float) -> bool:
        """Waits for the end of the request. Returns True if it has come."""
        return self._finished.wait(seconds)


HELD_BYTES = 1 << 30
"""Most bytes that the passes of a process hold: the default buffer of shuffle="window"."""
MEMORY_SHARE = 0.25

Masks = list[npt.NDArray[np.bool_]]
"""A mask over the units of each shard of a dataset."""


class HeldRoom:
    """Room in memory, in bytes, that all passes of one process share. For the fetcher's thread alone."""

    def __init__(self, limit: int = HELD_BYTES) -> None:
        self.limit = limit
        self.size = 0
        """Bytes that are held or reserved."""


class Pass:
    """One pass over one dataset: the units it needs, and those it holds. See NOTE [ pass: what is held in
    memory ].

    Any thread may make a pass and read `holds`; all else is for the fetcher's thread.

    Args:
        needed: masks of the units that the pass needs; None: it needs samples of blocks, and names them as it
            opens each block.
        limit: most bytes that the pass may hold.
        room: the room that the process's passes share.

    Attributes:
        ended: True if its owner no longer exists, or the fetcher was stopped.
        early: True if nobody has asked for the pass yet. Any thread may set it.
    """

    def __init__(self, needed: Masks | None, limit: int, room: HeldRoom) -> None:
        self.ended = self.early = False
        self._needed = needed
        self._limit = limit
        self._room = room
        self._size = 0  # bytes held and reserved
        self._left: dict[Unit, int] = {}  # samples of open blocks that were not asked for yet, by unit
        self._held: dict[Unit, tuple[int, bytes]] = {}
        self._first: Request | None = None
        self._started = False

    @property
    def blocks(self) -> bool:
        """True if the pass asks for blocks of samples, each within a short time."""
        return self._needed is None

    @property
    def holds(self) -> bool:
        """True if the pass holds any unit."""
        return bool(self._held)

    # ---- its first request

    def start(self, request: Request) -> None:
        """Notes the pass's first request; does nothing for later ones."""
        if not self._started:
            self._started, self._first = True, request

    @property
    def begun(self) -> bool:
        """True once the first request is over."""
        if self._first is not None and (self._first.finished or not self._first.wanted):
            self._first = None
        return self._started and self._first is None

    def waits_first_for(self, unit: Unit) -> bool:
        """Returns True if the first request lacks a unit."""
        return self._first is not None and self._first.lacks(unit)

    # ---- what it will ask for

    def needs(self, shard: int, number: int) -> bool:
        """Returns True if the pass will ask for a unit that it does not hold; for a pass by blocks, a unit
        of an open block."""
        if self._needed is not None:
            return bool(self._needed[shard][number])
        return (shard, number) in self._left and (shard, number) not in self._held

    def open(self, units: Iterable[Unit]) -> None:
        """Notes the units of blocks whose first sample is asked for: a unit once for each sample that the
        cache lacks."""
        if not self.ended:
            for unit in units:
                self._left[unit] = self._left.get(unit, 0) + 1

    def use(self, units: Iterable[Unit]) -> None:
        """Notes that samples are asked for, and drops the units that no other sample needs."""
        for unit in units:
            left = self._left.pop(unit, 0)
            if left > 1:
                self._left[unit] = left - 1
            elif left:
                self.drop(unit)

    # ---- what is held

    @property
    def free(self) -> int:
        """Bytes of room that are left to the pass."""
        return 0 if self.ended else min(self._limit - self._size, self._room.limit - self._room.size)

    def reserve(self, size: int) -> None:
        """Reserves room in bytes; a negative size gives it back."""
        self._size += size
        self._room.size += size

    def takes(self, unit: Unit) -> bool:
        """Returns True if a later sample needs a unit that is not held."""
        return unit in self._left and unit not in self._held

    def hold(self, unit: Unit, start: int, data: Buffer) -> None:
        """Holds a unit's bytes, which begin at `start` of the shard, if `takes` is true of it and there is
        room."""
        size = memoryview(data).nbytes
        if self.takes(unit) and size <= self.free:
            self.reserve(size)
            self._held[unit] = start, bytes(data)

    def held(self, unit: Unit) -> tuple[int, bytes] | None:
        """(start in the shard, bytes) of a unit that is held; None: it is not held."""
        return self._held.get(unit)

    def drop(self, unit: Unit) -> None:
        """Drops a unit that is held."""
        found = self._held.pop(unit, None)
        if found is not None:
            self.reserve(-len(found[1]))

    def end(self) -> None:
        """Drops all units that are held; idempotent. Reserved room is given back by those who reserved it."""
        self.ended = True
        for unit in list(self._held):
            self.drop(unit)
        self._left.clear()
        self._first = None


@dataclass(frozen=True)
class PassShare:
    """A pass's share of a fetch request: the units it opens and asks for, and the pass to notify.

    Attributes:
        owner: the pass.
        opens: the units of all samples in the blocks that the request is the first to ask for, if the cache
            lacks them.
        asks: the units of all samples of the request. Both name a unit once for each sample.
    """

    owner: Pass
    opens: Sequence[Unit] = ()
    asks: Sequence[Unit] = ()

    def note(self) -> None:
        """Notifies the pass of a request that has nothing to fetch."""
        self.owner.open(self.opens)
        self.owner.use(self.asks)
