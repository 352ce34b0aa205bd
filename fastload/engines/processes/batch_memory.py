"""BatchMemory: the shared memory that a worker's batch is written into, from its first sample on.

NOTE [ batch memory: the slot is chosen late ]
A worker chooses a slot for a batch when it has made the first sample, not when it begins: by then the loop
has let go of the batch before the one it was given, and its slot is filled again. At the beginning another
one would be made, 39 MB for eight float images of 640 x 640.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fastload.common.system import keep_memory, return_memory
from fastload.engines.processes.placed_rows import PlacedRows, PlacedTensors, plain_tensors
from fastload.engines.processes.serialization import INLINE_MOST, Arena, BatchPickler
from fastload.engines.processes.worker_slots import WorkerSlot, WorkerSlots

# NOTE [ heap: memory kept between batches ]
# A worker allocates a batch of samples, copies them into a slot and frees them, and then does the same again.
# glibc's malloc gives free memory at the top of its heap back to the kernel from 128 KiB on
# (M_TRIM_THRESHOLD, which grows with the largest freed mapping, to 64 MiB at most), and the next batch faults
# every page in again: for float tensors of 600 KB, 125 page faults and 0.2 ms a sample, half of a worker's
# time. Whether this happens depends on whether some small object lies above the samples: the rate was 2,700
# or 5,000 samples per second, from one run to the next. So workers keep up to KEPT bytes at the top of the
# heap, and take blocks under 32 MiB, glibc's own limit, from the heap and not from mappings of their own. A
# worker's memory stays at the peak that it reaches in every batch anyway, and does not grow beyond it.
# Source: mallopt(3), glibc's manual, "Malloc Tunable Parameters".
# Where samples are copied into the slot one by one, the heap holds few at a time: see NOTE [ placed rows:
# samples are copied while they are in the cache ]. What the batches before had taken is given back, once, and
# KEPT_PLACED is kept: RT-DETR's samples, with canvases of up to 16 times a photograph, fault in no more pages
# than with KEPT, and seven times as many with 32 MiB.
KEPT = 256 * 2**20
KEPT_PLACED = 64 * 2**20
_LARGEST = 32 * 2**20


class PackedBatch(NamedTuple):
    """A batch in its slot: bytes of the slot that it takes, its envelope or, where that is in the slot, the
    envelope's length."""

    slot: WorkerSlot | None
    needed: int
    body: bytes | int


class BatchMemory:
    """The memory of a worker's batches, one after the other. See NOTE [ batch memory: the slot is chosen
    late ].

    1. begin() is called before a batch's first sample, and end() at last.
    2. placed() is called with each sample that is a row of a batch, in order.
    3. pack() writes the collated batch; released() is called when the worker holds nothing of it any more.

    Args:
        slots: the slots that batches are written into.

    Attributes:
        pickler: the pickler of batches, which counts.
        hands_on: a collate function of the program's own makes batches of the samples' tensors, as they are;
            None: not known yet.
    """

    def __init__(self, slots: WorkerSlots) -> None:
        self._slots = slots
        self.pickler = BatchPickler()
        self._least = 0
        self._wanted: tuple[int, int] | None = None  # as choose() takes them, until the slot is chosen
        self._slot: WorkerSlot | None = None
        self._arena = Arena(None)
        self._placed: PlacedRows | PlacedTensors | None = None
        self._given: set[int] = set()  # addresses of the samples' tensors
        self._heap_placed = False  # the heap holds no whole batches of samples
        self.hands_on: bool | None = None
        keep_memory("samples", _LARGEST, KEPT)

    def begin(self, least: int, most: int) -> None:
        """Begins a batch; as WorkerSlots.choose."""
        self._least, self._wanted = least, (least, most)

    @property
    def arena(self) -> Arena:
        """The allocator of the batch, in its slot if anything is known of its size."""
        if self._wanted is not None:
            self._slot = self._slots.choose(*self._wanted)
            self._arena = Arena(None if self._slot is None else self._slot.memory)
            self._wanted = None
        return self._arena

    @property
    def rows(self) -> PlacedRows | None:
        """The rows that samples were copied into, to be stacked."""
        return self._placed if isinstance(self._placed, PlacedRows) else None

    def placed(self, sample: Any, count: int, stacked: bool) -> Any:
        """A sample with tensors of the slot in the place of its large ones.

        Args:
            count: samples of the batch.
            stacked: default_collate stacks them.
        """
        if self._placed is None:
            self._placed = PlacedRows(self.arena, count) if stacked else PlacedTensors(self.arena)
        return self._placed.place(sample)

    def made(self, samples: Any, stacked: bool) -> None:
        """Is called with all samples of a batch, before they are collated."""
        placed = self._placed is not None and self._placed.used
        if placed != self._heap_placed:
            self._heap_placed = placed
            keep_memory("samples", _LARGEST, KEPT_PLACED if placed else KEPT)
            return_memory()
        if not stacked and self.hands_on is not False and type(samples) is list:
            self._given = {each.data_ptr() for sample in samples for each in plain_tensors(sample).values()}

    def pack(self, made: object) -> PackedBatch:
        """Packs a batch into its slot, or into a new one if that is too small."""
        envelope = self._pack(made)
        # Again, if the second packing takes more: views of one tensor, longer offsets.
        while self._arena.overflowed:
            self._slot = self._slots.make(max(self._least, self._arena.needed))
            self._arena = Arena(self._slot.memory)
            envelope = self._pack(made)
        needed = self._arena.needed
        body: bytes | int = envelope
        if len(envelope) > INLINE_MOST and self._arena.slot is not None:
            body = len(envelope)
            memoryview(self._arena.slot)[needed - body : needed] = envelope
        if self._given:
            self.hands_on, self._given = self._given <= self._arena.packed, set()
        return PackedBatch(self._slot, needed, body)

    def _pack(self, made: object) -> bytes:
        arena = self.arena
        envelope = self.pickler.pack(made, arena)
        if len(envelope) > INLINE_MOST:
            arena.needed += len(envelope)
            arena.overflowed |= arena.needed > arena.room
        return envelope

    def released(self, packed: PackedBatch) -> PackedBatch:
        """A packed batch that may be sent: in another slot, if the program's code holds what lies in its
        own."""
        slot = packed.slot
        self._arena, self._placed = Arena(None), None
        if slot is None or not slot.viewed:
            return packed
        self.hands_on = False
        return packed._replace(slot=self._slots.copy_of(slot, packed.needed))

    def end(self) -> None:
        """Ends a batch, sent or not."""
        self._wanted = self._slot = self._placed = None
        self._arena = Arena(None)
        self._slots.end_batch()
