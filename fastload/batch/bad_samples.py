"""on_error= for samples that Python makes: the exceptions that count as a bad sample, and the handling of its
row.

NOTE [ bad samples: which exceptions ]
On packed data with a Python step a bad sample is a SampleError: its record cannot be read or decoded. What
the Python step raises is an error of the program. On any other map-style Dataset it is every Exception that
`__getitem__` raises, since nobody can tell a broken file from a broken program there; for that reason an
epoch whose samples are all skipped is an error. These are never bad samples: fastload's other errors
(ClosedError, ResourceError, ...), KeyboardInterrupt and SystemExit, an index that the dataset does not have
(an error of the sampler), and exceptions of collate_fn or worker_init_fn.
"""

from __future__ import annotations

import hashlib
import operator
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.random
import numpy.typing as npt
import torch
from torch.utils.data._utils.worker import _generate_state

from fastload._native import core
from fastload.common.rng import SAMPLE_STREAM, row_seed, substitute_occurrence, substitutes
from fastload.errors import ArgumentError, FastloadError, SampleError

_numpy_state: Callable[[int, int], list[int]] = _generate_state
"""torch's words for NumPy's generator, of a base seed and a worker's number."""


def seed_worker(base_seed: int, worker: int) -> int:
    """Seeds torch, random and NumPy as torch's worker processes do; returns the worker's seed."""
    seed = base_seed + worker
    random.seed(seed)
    with _no_traceback_texts():
        torch.manual_seed(seed)
    np.random.seed(_numpy_state(base_seed, worker))
    return seed


@contextmanager
def _no_traceback_texts() -> Iterator[None]:
    """No text of the stack is made: torch.manual_seed() keeps one for each kind of device that is not in use
    yet, for which it reads the source files of all callers, a fourth of what a worker takes to start."""
    limit = getattr(sys, "tracebacklimit", None)
    sys.tracebacklimit = 0
    try:
        yield
    finally:
        if limit is None:
            del sys.tracebacklimit
        else:
            sys.tracebacklimit = limit


def seed_sample(seed: int, epoch: int, index: Any, occurrence: int = 0) -> None:
    """Seeds torch, random and NumPy for one sample, from (seed, epoch, index, occurrence) alone; an index
    that is no integer counts by its repr."""
    with suppress(TypeError):
        index = operator.index(index)
    if not isinstance(index, int) or index < 0:
        index = int.from_bytes(hashlib.blake2b(repr(index).encode(), digest_size=8).digest(), "little")
    words = core.random_words(row_seed(seed, epoch, occurrence), epoch, index & (2**64 - 1), SAMPLE_STREAM, 4)
    wide = words[0] | words[1] << 32
    if torch.version.cuda is None and torch.version.hip is None:
        torch.default_generator.manual_seed(wide)  # a seventh of the time
    else:
        torch.manual_seed(wide)
    random.seed(wide)
    np.random.seed(words[2])  # a fourth of the time of a list's


@contextmanager
def kept_state() -> Iterator[None]:
    """Leaves the global generators of torch, random and NumPy as they were."""
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        random.setstate(states[1])
        np.random.set_state(states[2])


NOTHING: Any = object()
"""Marker in the place of a sample, or of a batch, that was left out: the next one is taken."""
REASON_MOST = 300
"""Characters of a reason that are kept."""

Get = Callable[[Any, int], Any]
"""Makes a sample of its index and its occurrence. See NOTE [ occurrences: an index that comes again ]."""


@dataclass
class Lost:
    """Result of on_error for the rows of one batch.

    Attributes:
        instead: by bad row, the index that was made in its place; None if the row was left out.
        occurrences: by row that another sample fills, the occurrence of that sample.
        reason: the reason why the first of them could not be made.
    """

    instead: dict[int, Any] = field(default_factory=dict)
    occurrences: dict[int, int] = field(default_factory=dict)
    reason: str = ""

    def add(self, row: int, instead: object, reason: str, occurrence: int = 0) -> None:
        """Notes a bad row."""
        if not self.instead or row < min(self.instead):
            self.reason = reason[:REASON_MOST]
        self.instead[row] = instead
        if occurrence:
            self.occurrences[row] = occurrence

    def merge(self, other: Lost) -> None:
        """Adds rows of the same batch."""
        for row, instead in other.instead.items():
            self.add(row, instead, other.reason, other.occurrences.get(row, 0))

    @property
    def skipped(self) -> int:
        """Rows left out."""
        return sum(instead is None for instead in self.instead.values())

    @property
    def replaced(self) -> int:
        """Rows that another sample fills."""
        return len(self.instead) - self.skipped

    def kept(self, rows: int) -> list[int]:
        """The rows that are in the batch, of so many."""
        return [row for row in range(rows) if self.instead.get(row, row) is not None]

    def among(self, index: Any, batched: bool) -> Any:
        """The indices of the samples that are in the batch, where those of `index` were asked for; without
        `batched` the one."""
        if not self.instead:
            return index
        if not batched:
            return self.instead[0]
        return [self.instead.get(row, index[row]) for row in self.kept(len(index))]

    def occurring(
        self, occurrences: npt.NDArray[np.uint32] | None, rows: int
    ) -> npt.NDArray[np.uint32] | None:
        """The occurrences of the samples that are in the batch of so many rows, where those of all rows
        were these; None: all are 0."""
        if not self.instead:
            return occurrences
        found = np.zeros(rows, np.uint32) if occurrences is None else occurrences.copy()
        for row, occurrence in self.occurrences.items():
            found[row] = occurrence
        return found[self.kept(rows)] if found.any() else None


@dataclass(frozen=True)
class Policy:
    """on_error= during one pass over a map-style dataset.

    Attributes:
        on_error: "raise", "skip" or "replace".
        packed: the dataset is packed; see NOTE [ bad samples: which exceptions ].
        seed, epoch: seed and epoch of the pass; substitutes follow from them.
    """

    on_error: str = "raise"
    packed: bool = False
    seed: int = 0
    epoch: int = 0

    @property
    def raises(self) -> bool:
        """Every exception goes to the loop."""
        return self.on_error == "raise"

    def make(
        self, dataset: object, get: Get, index: object, row: int, lost: Lost, occurrence: int = 0
    ) -> object:
        """The sample `index` by `get`, or its substitute; NOTHING where it is left out. Bad samples are noted
        in `lost`.

        Raises:
            SampleError: neither the sample nor any of its substitutes could be made.
            Whatever `get` raises that is no bad sample.
        """
        if self.raises:
            return get(index, occurrence)
        sample, bad = self._attempt(dataset, get, index, occurrence)
        if bad is None:
            return sample
        reason = reason_of(bad, index)
        if self.on_error == "skip":
            lost.add(row, None, reason)
            return NOTHING
        substitute, positions = self._substitutes(dataset, index, bad, occurrence)
        for position in positions:
            sample, still_bad = self._attempt(dataset, get, position, substitute)
            if still_bad is None:
                lost.add(row, position, reason, substitute)
                return sample
        raise SampleError(
            f"{reason}; and none of its substitutes could be made either", reason=reason
        ) from bad

    def make_all(
        self,
        dataset: object,
        get: Get,
        several: Callable[[Any], Any] | None,
        indices: Sequence[Any],
        lost: Lost,
        occurrences: Sequence[int] | None = None,
    ) -> Any:
        """The samples of a batch: by `several` (the dataset's `__getitems__`) if there is one and no sample
        is bad, else one by one. So are those of packed data of which one comes again.

        NOTHING where all of them are left out.

        Raises:
            As make().
        """
        keys = (
            [(index, 0) for index in indices]
            if occurrences is None
            else list(zip(indices, occurrences, strict=True))
        )
        if self.raises:
            if several is None or (self.packed and occurrences is not None):
                return [get(*key) for key in keys]
            return several(indices)
        if several is not None and not self.packed:
            try:
                return several(indices)
            except Exception as error:
                if not self._is_bad(error, dataset, None):
                    raise
                get = partial(_single, several, error)
        made = [
            self.make(dataset, get, index, row, lost, occurrence)
            for row, (index, occurrence) in enumerate(keys)
        ]
        if not lost.instead:
            return made
        return [sample for sample in made if sample is not NOTHING] or NOTHING

    def _attempt(
        self, dataset: object, get: Get, index: object, occurrence: int
    ) -> tuple[Any, Exception | None]:
        """The sample, or why it is a bad one."""
        try:
            return get(index, occurrence), None
        except Exception as error:
            if self._is_bad(error, dataset, index):
                return NOTHING, error
            raise

    def _is_bad(self, error: Exception, dataset: object, index: object) -> bool:
        if isinstance(error, SampleError):
            return True
        return not self.packed and not isinstance(error, FastloadError) and not _is_outside(dataset, index)

    def _substitutes(
        self, dataset: Any, index: Any, bad: Exception, occurrence: int
    ) -> tuple[int, list[int]]:
        """Occurrence of any substitute, and positions to try. Of packed data they follow from the index in
        the packed dataset, as on native threads."""
        count = len(dataset)
        try:
            position = operator.index(index) % count
        except TypeError:
            raise SampleError(
                f'{reason_of(bad, index)}; on_error="replace" chooses by position, and the index '
                f'{index!r} is none: use on_error="skip"'
            ) from bad
        key = bad.index if self.packed and isinstance(bad, SampleError) and bad.index >= 0 else position
        tried = substitutes(self.seed, self.epoch, key, count, occurrence)
        return substitute_occurrence(self.seed, self.epoch, key, occurrence), [
            other for other in tried if other != position
        ]


RAISE = Policy()


def _is_outside(dataset: Any, index: Any) -> bool:
    """Returns True if the dataset has no such index, as far as its length tells."""
    try:
        return not -len(dataset) <= operator.index(index) < len(dataset)
    except (TypeError, NotImplementedError):  # a key, or no length
        return False


def _single(several: Callable[[list[Any]], Any], error: Exception, index: object, occurrence: int) -> object:
    """One sample by a dataset's `__getitems__`, which has failed with `error` for the batch."""
    made = several([index])
    if not isinstance(made, list | tuple) or len(made) != 1:
        raise ArgumentError(
            "on_error= finds the bad sample of a batch by calling __getitems__ with one index at a "
            "time, which has to return a list of "
            f'one sample, not {type(made).__name__}; on_error="raise" shows the batch\'s own error: '
            f"{type(error).__name__}: {error}"
        ) from error
    return made[0]


def reason_of(error: Exception, index: object = None) -> str:
    """One line with the sample that could not be made, and the reason."""
    if isinstance(error, SampleError) and error.reason:
        return f"sample {error.index}{f' of {error.shard}' if error.shard else ''}: {error.reason}"
    text = " ".join(str(error).split())
    return f"sample {index!r}: {type(error).__name__}{': ' if text else ''}{text}"
