"""TaskLosses: the lost worker processes of one task, and the sample that they were lost at. SampleNotes: the
sample at hand of each task.

NOTE [ cluster: which sample killed a process ]
A process that a signal or os._exit ends says nothing, and Ray knows only that it is gone. Writing down each
sample before it is packed would cost a message a sample, so a task does that only after it lost a process:
1. The first process of a task packs with all its threads, and notes nothing.
2. Each later one is *watched*: it packs one sample at a time, and notes each one with an actor before it
   reads it. The actor outlives it.
3. A sample at which `CONFIRM` watched processes were lost, without another one between, is the killer. One
   loss could be anybody's fault: the kernel ends a process for the memory that another one took.
4. Losses of a whole node never count against a sample, and the node's raylet has seen the other processes
   end. So no process that is still alive can publish the shard with a sample that another process leaves out.
5. Under on_error="skip" the killer is left out, and the task goes on with the others, watched. A crash starts
   the count of losses anew, so that a shard may have any number of killers. Want of memory does not: where a
   node is short of memory for every sample, the pack ends after `RETRIES` losses, and leaves out no more
   samples.
6. Under on_error="raise" a killer that crashed its processes is the failure of the task. Want of memory is
   tried again up to the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

CONFIRM = 2
"""Watched processes that have to be lost at a sample before it is left out."""


class Cause(Enum):
    """Kind of a loss, as Ray tells it. Its value is the text for a sample.

    `CRASH` is a signal, the kernel's for want of memory among them, or an exit; `MEMORY` is Ray's memory
    monitor; `NODE` is the loss of the whole node.
    """

    CRASH = "packing it ended its worker process {times} times (Ray's worker logs may show where)"
    MEMORY = "Ray ended the worker process that packed it for want of memory, {times} times"
    NODE = "its node was lost"


@dataclass(frozen=True)
class AtHand:
    """The sample that a process was about to pack.

    Attributes:
        place: its place in the order; -1: the process was past the last sample.
        name: its name.
    """

    place: int
    name: str


class SampleNotes:
    """The sample at hand of each watched process. It is an actor of Ray."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[int, AtHand]] = {}

    def note(self, number: int, attempt: int, sample: AtHand) -> None:
        """Notes the sample that the process of an attempt at a range packs next."""
        self._last[number] = attempt, sample

    def last(self, number: int, attempt: int) -> AtHand | None:
        """The last sample that this attempt noted; None: it noted none."""
        noted, sample = self._last.get(number, (-1, None))
        return sample if noted == attempt else None


@dataclass(frozen=True)
class Killer:
    """A sample that ends the processes that pack it: its place in the order, its name, and the reason for
    which it is left out."""

    place: int
    name: str
    reason: str


@dataclass
class TaskLosses:
    """Losses of the processes of one task.

    Attributes:
        count: number of losses, those before the last crash that was found out not among them.
        attempt: number of the running process, from 0.
        at_hand: the sample of the last loss; None: unknown.
        left_out: reasons by the places of the samples that are left out.
    """

    count: int = 0
    attempt: int = 0
    at_hand: AtHand | None = None
    left_out: dict[int, str] = field(default_factory=dict)
    _same: int = 0  # losses at `at_hand`, one after the other

    def add(self, cause: Cause, at_hand: AtHand | None) -> Killer | None:
        """Counts a loss of the running process; returns the sample that is found to be the killer by this
        loss."""
        self.count += 1
        self.attempt += 1
        if cause is Cause.NODE:
            return None
        if at_hand is None or at_hand.place < 0:
            self._same = 0
        else:
            self._same = self._same + 1 if at_hand == self.at_hand else 1
        self.at_hand = at_hand
        if at_hand is None or self._same < CONFIRM:
            return None
        return Killer(at_hand.place, at_hand.name, cause.value.format(times=self._same))

    def leave_out(self, killer: Killer, cause: Cause) -> None:
        """Leaves a killer out of the next processes."""
        self.left_out[killer.place] = killer.reason
        self._same = 0
        if cause is Cause.CRASH:
            self.count = 0


@dataclass(frozen=True)
class Watch:
    """Parameters of a watched process.

    Attributes:
        attempt: number of the process in its task.
        left_out: reasons by the places of the samples that it leaves out.
    """

    attempt: int
    left_out: Mapping[int, str]
