"""Simulation of a loader's native threads on many cores: images a second, and what ends them, from parts
measured on few.

The model, in the order of a batch's way:

1. The loop's thread takes batch after batch, in their order, each when it is ready, and submits another. That
   takes `loop_s` a batch. The loop itself takes `body_s` a batch (0: it only takes batches).
2. `depth` batches are in flight: prefetch_factor for each thread, 2 unless the user says otherwise.
3. Threads take rows of the oldest batch in turns, as csrc/engine/pool.c does: as many rows as take TURN_NS,
   TURN_MOST at most. A turn begins under the queue's lock, held for `lock_s`.
4. A row takes `row_s` of its thread. Of that, `line_s` is spent on cache lines that all threads write, one
   thread at a time: the count of rows that a batch lacks, and the reference count of the shard's file in the
   kernel.
5. The rows of all threads move `row_bytes` through memory, at `memory` bytes a second together.
6. There are `cores` cores. The loop's thread and `threads` threads share them, first come, first served.
   Unless given there are as many threads as cores beside the loop's, and one at least.

Left out: NUMA and other sockets, boost clocks that fall as more cores work, hyperthreads (a core is a whole
one), caches that threads share, disks, and the training itself. The closed form gives a bound for each part
by itself; the simulation is never above the least of them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from events import Events

TURN_S, TURN_MOST = 20e-6, 16
"""TURN_NS and TURN_MOST of csrc/engine/pool.c."""
PARTS = {
    "cores": "cores",
    "loop": "the loop's thread",
    "lock": "the queue's lock",
    "lines": "shared cache lines",
    "memory": "memory",
}


@dataclass(frozen=True)
class Machine:
    """A loader on a machine.

    Attributes:
        cores: number of them.
        batch: rows of a batch.
        loop_s: CPU seconds of the loop's thread for a batch.
        row_s: CPU seconds of a thread for a row.
        lock_s: seconds of the queue's lock for a turn.
        line_s: seconds of `row_s` on cache lines that all threads write.
        row_bytes: bytes that a row moves through memory.
        memory: bytes a second that memory moves.
        body_s: seconds of the loop's own work for a batch.
        prefetch_factor: batches in flight for each thread.
        threads: number of native threads; 0: one for each core beside the loop's, and one at least.
    """

    cores: int
    batch: int
    loop_s: float
    row_s: float
    lock_s: float = 0.0
    line_s: float = 0.0
    row_bytes: float = 0.0
    memory: float = 1e12
    body_s: float = 0.0
    prefetch_factor: int = 2
    threads: int = 0

    @property
    def workers(self) -> int:
        """Number of native threads."""
        return self.threads or max(1, self.cores - 1)

    @property
    def turn(self) -> int:
        """Rows of a turn."""
        return max(1, min(TURN_MOST, int(TURN_S / self.row_s)))

    @property
    def step_s(self) -> float:
        """Seconds of the loop's thread between two batches, where each is ready."""
        return self.loop_s + self.body_s

    def bounds(self) -> dict[str, float]:
        """Images a second at which each part would be busy all the time, by its name in PARTS."""
        turns = -(-self.batch // self.turn)
        shared = self.cores / (self.row_s + self.step_s / self.batch)
        return {
            "cores": min(self.workers / self.row_s, shared),
            "loop": self.batch / self.step_s,
            "lock": self.batch / (turns * self.lock_s) if self.lock_s else float("inf"),
            "lines": 1 / self.line_s if self.line_s else float("inf"),
            "memory": self.memory / self.row_bytes if self.row_bytes else float("inf"),
        }

    @property
    def limit(self) -> str:
        """The part that ends throughput: the one with the least bound."""
        bounds = self.bounds()
        return min(bounds, key=bounds.__getitem__)


class _Run(Events):
    """A loader that gives `batches` batches."""

    def __init__(self, machine: Machine, batches: int) -> None:
        super().__init__()
        self.m, self.batches = machine, batches
        self.submitted = self.taken = 0
        self.queue: deque[list[int]] = deque()  # [batch, rows that no thread has taken]
        self.left: list[int] = []  # rows of each batch that are not made
        self.idle = machine.workers
        self.free = machine.cores
        self.wanting: deque[tuple[Any, Any]] = deque()  # who waits for a core
        self.looping = False
        self.lock_free = self.line_free = self.memory_free = 0.0
        self.ends: list[float] = []  # times at which the loop was done with each batch

    def rate(self) -> float:
        """Images a second between a third of the batches and the last one that is submitted while as many
        are in flight."""
        for _ in range(min(self.batches, self.m.prefetch_factor * self.m.workers)):
            self._submit()
        self.run()
        first, last = (
            self.batches // 3,
            max(self.batches // 3 + 1, self.batches - self.m.prefetch_factor * self.m.workers - 1),
        )
        return (last - first) * self.m.batch / (self.ends[last] - self.ends[first])

    def _on_core(self, action: Any, what: Any = None) -> None:
        """Runs action(what), which ends in _off_core(), as soon as a core is free."""
        if self.free:
            self.free -= 1
            action(what)
        else:
            self.wanting.append((action, what))

    def _off_core(self) -> None:
        self.free += 1
        if self.wanting:
            self._on_core(*self.wanting.popleft())

    def _submit(self) -> None:
        if self.submitted == self.batches:
            return
        self.queue.append([self.submitted, self.m.batch])
        self.left.append(self.m.batch)
        self.submitted += 1
        turns = -(-self.m.batch // self.m.turn)
        for _ in range(min(self.idle, turns)):
            self.idle -= 1
            self._on_core(self._take)

    def _take(self, _: Any) -> None:
        """A thread that has a core takes a turn, or sleeps."""
        if not self.queue:
            self.idle += 1
            return self._off_core()
        job = self.queue[0]
        count = min(job[1], self.m.turn)
        job[1] -= count
        if not job[1]:
            self.queue.popleft()
        began = self.lock_free = max(self.now, self.lock_free) + self.m.lock_s
        self.line_free = max(began, self.line_free) + count * self.m.line_s
        self.memory_free = max(began, self.memory_free) + count * self.m.row_bytes / self.m.memory
        end = max(began + count * self.m.row_s, self.line_free, self.memory_free)
        self.push(end, self._made, (job[0], count))

    def _made(self, what: tuple[int, int]) -> None:
        batch, count = what
        self.left[batch] -= count
        self.push(self.now, self._again)
        self._loop()

    def _again(self, _: Any) -> None:
        """A thread goes on, behind those that wait for its core."""
        self._off_core()
        self._on_core(self._take)

    def _loop(self) -> None:
        """The loop's thread takes the batch whose turn it is, if it is ready and the thread waits for it."""
        if self.looping or self.taken == self.submitted or self.left[self.taken]:
            return
        self.looping = True
        self._on_core(lambda _: self.push(self.now + self.m.step_s, self._looped))

    def _looped(self, _: Any) -> None:
        self.ends.append(self.now)
        self.taken += 1
        self.looping = False
        self._off_core()
        self._submit()
        self._loop()


def rate(machine: Machine, batches: int = 0) -> float:
    """Simulated images a second. `batches`: of the run; 0: six times as many as are in flight, and 60 at
    least."""
    return _Run(machine, batches or max(60, 6 * machine.prefetch_factor * machine.workers)).rate()
