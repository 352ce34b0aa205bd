"""Stand-in for `fastload._native.core`: what FastLoader needs of it for Datasets of Python, in Python.

Names, arguments and results are those of core.pyi. Any other name of core's is a class whose call is refused.
See NOTE [ portable: one door ].
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType, MappingProxyType, ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.errors import ArgumentError
from fastload.portable import refused

_Words = npt.NDArray[np.uint32]

# ---- record.pxi, image.pxi, planes.pxi, status.pxi, table.pxi: numbers that classes of kinds and codecs have

KIND_JPEG, KIND_RAW, KIND_BYTES, KIND_TEXT, KIND_JSON, KIND_INDEX, KIND_PLACE = range(1, 8)
KIND_PLANES, KIND_VARYING, KIND_DCT, KIND_FILE = 8, 9, 10, 13
IMAGE_KINDS = MappingProxyType({"jpeg": 1, "dct": 10, "planes": 8, "raw": 2, "png": 11, "webp": 12})
RECORD_INDEX = 1 << 15
MAX_PIXELS = 1 << 28
TABLE_BLOCK = 1 << 12
RESOURCE_CODES = frozenset({1, 17})


def __getattr__(name: str) -> Any:
    """Whatever else core has: its call is refused."""
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, refused(name, f"{name}, of fastload._native.core,"))


# ---- draws.pxi

_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL = 0x9E3779B9, 0xBB67AE85
_LOW, _HIGH = np.uint64(0xFFFFFFFF), np.uint64(32)
_WORD = (1 << 64) - 1


def _philox(counter: Sequence[Any], seeds: npt.NDArray[np.uint64]) -> _Words:
    """Philox4x32-10 of counters, four arrays of 32 bits, by keys of 64: uint32 (..., 4).

    Source: J. K. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC11).
    """
    c0, c1, c2, c3 = (np.asarray(each, np.uint64) for each in counter)
    keys = [seeds & _LOW, seeds >> _HIGH]
    for _ in range(10):
        a, b = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (b >> _HIGH) ^ c1 ^ keys[0], b & _LOW, (a >> _HIGH) ^ c3 ^ keys[1], a & _LOW
        keys = [(key + np.uint64(step)) & _LOW for key, step in zip(keys, _WEYL, strict=True)]
    return np.stack(np.broadcast_arrays(c0, c1, c2, c3), -1).astype(np.uint32)


def _stream(
    seeds: npt.NDArray[np.uint64], epoch: int, indices: npt.NDArray[np.uint64], stream: int, count: int
) -> _Words:
    """The first words of one stream for each index: (B, count)."""
    blocks = np.arange(-(-count // 4), dtype=np.uint64) + (np.uint64(stream) << np.uint64(16))
    rows, seeds = indices[:, None], seeds[:, None]
    counter = rows & _LOW, rows >> _HIGH, np.uint64(int(epoch) & 0xFFFFFFFF), blocks[None]
    return _philox(counter, seeds).reshape(len(indices), -1)[:, :count]


def random_words(seed: int, epoch: int, index: int, stream: int, count: int) -> list[int]:
    """The first `count` 32-bit words of the stream (seed, epoch, index, stream)."""
    seeds, indices = np.array([int(seed) & _WORD], np.uint64), np.array([int(index)], np.uint64)
    return [int(word) for word in _stream(seeds, epoch, indices, int(stream) & 0xFFFF, count)[0]]


def random_rows(
    seed: int,
    epoch: int,
    indices: npt.NDArray[np.uint64],
    wants: Sequence[tuple[int, int]],
    seeds: npt.NDArray[np.uint64] | None = None,
) -> _Words:
    """The first words of several streams for many indices at once: side by side, in the order of `wants`."""
    keys = np.full(len(indices), int(seed) & _WORD, np.uint64) if seeds is None else seeds
    parts = [_stream(keys, epoch, indices, stream, count) for stream, count in wants]
    return np.concatenate([np.empty((len(indices), 0), np.uint32), *parts], 1)


def occurrence_seeds(seed: int, epoch: int, stream: int, occurrences: _Words) -> npt.NDArray[np.uint64]:
    """The seeds of samples' draws, by how often their indices came before; that of 0 is `seed`."""
    own = np.full(len(occurrences), int(seed) & _WORD, np.uint64)
    words = _stream(own, epoch, occurrences.astype(np.uint64), int(stream), 2).astype(np.uint64)
    return np.where(occurrences > 0, words[:, 0] | words[:, 1] << _HIGH, own)


def count_occurrences(counts: _Words, positions: npt.NDArray[np.int64]) -> _Words:
    """Number of times that each of some positions came before, by counts of all, to which they are added."""
    for position in positions:
        if not 0 <= position < len(counts):
            raise IndexError(f"position {position} is out of range for {len(counts)} counts")
    made = np.empty(len(positions), np.uint32)
    for row, position in enumerate(positions):
        made[row] = counts[position]
        counts[position] += 1
    return made


# ---- positions.pxi


def best_fit(
    tokens: npt.NDArray[np.int64], order: npt.NDArray[np.int64], room: int, unit: int
) -> npt.NDArray[np.int64]:
    """As of fastload._native.core."""
    found, bins, there = np.empty(len(tokens), np.int64), 0, 0  # bit c: some bin has room of c units
    of_class: dict[int, list[tuple[int, int]]] = {}
    for place, size in zip(order.tolist(), tokens[order].tolist(), strict=True):
        kind = size // unit
        if not there >> kind & 1 or of_class[kind][-1][1] < size:
            fitting = there >> kind + 1
            kind = kind + (fitting & -fitting).bit_length() if fitting else -1
        if kind >= 0:
            number, left = of_class[kind].pop()
            there ^= 0 if of_class[kind] else 1 << kind
        else:
            number, left, bins = bins, room, bins + 1
        found[place] = number
        kind = (left - size) // unit
        of_class.setdefault(kind, []).append((number, left - size))
        there |= 1 << kind
    return found


def extremes(values: npt.NDArray[np.int64]) -> tuple[int, int]:
    """The least and the greatest of some positions; (0, -1) of none."""
    return (int(values.min()), int(values.max())) if len(values) else (0, -1)


# ---- snapshots.pxi


class Snapshot:
    """Names in modules and classes that are looked at anew each time: it never holds."""

    def __init__(self, places: list[tuple[ModuleType | type, Any]], functions: list[FunctionType]) -> None:
        pass

    def holds(self) -> bool:
        """Returns False."""
        return False


# ---- traces.pxi

_EVENT = "start_ns <i8 duration_ns <i8 index <u8 source <u4 epoch <u4 thread <u4 stage <u2 failed <u2".split()
TRACE_EVENT = np.dtype(list(zip(_EVENT[::2], _EVENT[1::2], strict=True)))
TRACE_STAGES = ("sample", "read", "check", "decode", "resize", "fill")
_OnWait = Callable[[object, int, int, int, BaseException | None], None]
_on_wait: _OnWait | None = None


def clock_ns() -> int:
    """Nanoseconds of the clock that events have their times by."""
    return time.monotonic_ns()


def trace_workers(capacity: int, on_wait: _OnWait | None = None) -> None:
    """Has `on_wait` called after each wait of a loop; with a capacity of 0, nothing. There are no native
    workers whose stages could be told."""
    global _on_wait
    _on_wait = on_wait if capacity else None


def traced_events() -> list[tuple[bytes, int]]:
    """Events of native workers since the last call: none."""
    return []


# ---- steps.pxi


class StepRing:
    """Keeps the last `window` steps, and totals of all. A lock makes copies see whole steps."""

    def __init__(self, window: int) -> None:
        if window < 1:
            raise ValueError("a ring has at least one step")
        self.window = window
        self._times = np.zeros((2, window))
        self._samples = np.zeros(window, np.int64)
        self._at = 0
        self._totals: tuple[int, int, int, float, float] = (0, 0, 0, 0.0, 0.0)
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[object, ...]:
        return StepRing, (self.window,)

    def add(self, wait_s: float, step_s: float, samples: int, first: bool) -> None:
        """Adds a step: seconds waited and worked, samples in its batch, and whether it began an epoch."""
        if not (math.isfinite(wait_s) and math.isfinite(step_s)) or wait_s < 0 or step_s < 0 or samples < 0:
            raise ArgumentError(
                f"a step of wait_s={wait_s!r}, step_s={step_s!r}, samples={samples!r}: all must be finite "
                "and not negative"
            )
        with self._lock:
            self._times[:, self._at] = wait_s, step_s
            self._samples[self._at] = ~samples if first else samples
            self._at = (self._at + 1) % self.window
            steps, epochs, all_samples, all_wait_s, all_step_s = self._totals
            self._totals = (
                steps + 1,
                epochs + bool(first),
                all_samples + samples,
                all_wait_s + wait_s,
                all_step_s + step_s,
            )

    def copy(self) -> tuple[bytes, bytes, bytes, int, tuple[int, int, int, float, float]]:
        """(float64 wait_s, float64 step_s, int64 samples, where the next step goes, totals)."""
        with self._lock:
            waits, steps = self._times
            return waits.tobytes(), steps.tobytes(), self._samples.tobytes(), self._at, self._totals


class StepTimer:
    """An iterator whose steps a ring counts; a subclass makes the batches, in `_advance()`. One thread at a
    time is in next()."""

    _step_ring: StepRing | None = None
    _step_lock: threading.RLock

    def __new__(cls, *_: object, **__: object) -> Any:
        self: Any = object.__new__(cls)
        self._step_lock = threading.RLock()
        return self

    def time_steps(
        self,
        ring: StepRing,
        waited_s: float,
        count: Callable[[Any], int],
        plain: bool,
        on_first: Callable[[Any], None],
    ) -> None:
        """Counts the steps of the pass that begins now."""
        self._step_ring, self._step_count, self._step_plain, self._step_look = ring, count, plain, on_first
        self._step_waited, self._step_first, self._step_looked = waited_s, True, False
        self._step: tuple[float, float, int] | None = None  # its wait, when it began, its samples
        self._step_traced = 0

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        with self._step_lock:
            return self._advance() if self._step_ring is None else self._step_timed(self._step_ring)

    def _advance(self) -> Any:
        raise NotImplementedError

    def _step_timed(self, ring: StepRing) -> Any:
        asked = clock_ns()
        if self._step is not None:
            wait_s, got_s, samples = self._step
            self._step = None
            ring.add(wait_s, asked * 1e-9 - got_s, samples, self._step_first)
            self._step_first = False
        batch = self._advance() if _on_wait is None else self._step_told(ring, asked, _on_wait)
        got_s = clock_ns() * 1e-9
        wait_s, self._step_waited = got_s - asked * 1e-9 + self._step_waited, 0.0
        if not self._step_looked:
            self._step_looked = True
            self._step_look(batch)
        samples = self._step_samples(batch)
        if samples < 0:
            raise ArgumentError(f"count(batch) gave {samples}: a batch has no fewer than 0 samples")
        self._step = wait_s, got_s, samples
        return batch

    def _step_told(self, ring: StepRing, asked: int, tell: _OnWait) -> Any:
        before, self._step_traced = self._step_traced, 0
        try:
            batch = self._advance()
        except BaseException as failed:
            tell(ring, before, asked, clock_ns(), failed)
            raise
        self._step_traced = clock_ns()
        tell(ring, before, asked, self._step_traced, None)
        return batch

    def _step_samples(self, batch: Any) -> int:
        if self._step_plain:
            head = batch
            if type(batch) in (list, tuple) and batch:
                head = batch[0]
            elif type(batch) is dict and batch:
                head = next(iter(batch.values()))
            try:
                shape = getattr(head, "shape", None)
            except Exception:  # a nested tensor has none, and says so by an error
                shape = None
            if isinstance(shape, tuple):
                return int(shape[0]) if shape else 1
        return self._step_count(batch)


class TimedIterator(StepTimer):
    """Any iterator, its steps counted; other attributes are the iterator's."""

    def __init__(self, iterator: Iterator[Any]) -> None:
        self.iterator = iterator

    def _advance(self) -> Any:
        return next(self.iterator)

    def __len__(self) -> int:
        return len(self.iterator)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name == "iterator":  # not set yet
            raise AttributeError(name)
        return getattr(self.iterator, name)
