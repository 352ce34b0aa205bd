"""OccurrenceCounter: counts how often each index came before in a pass, so that a sample that comes again is
drawn anew.

NOTE [ occurrences: an index that comes again ]
Draws follow from (seed, epoch, index, occurrence). The occurrence of an index is the number of times that it
came before in its pass: with replacement, in repeated augmentation, or from a sampler without end. 0 changes
nothing; any other number replaces the seed, by `common.rng.row_seed`. It is counted where index batches are
drawn, in their order, those that a resume drops included: a resume that draws again counts again. A stateful
sampler is not drawn again: the loader's state has the counts then, of up to COUNTS_LIMIT samples.

- A sampler that is known to give each index once (`known.gives_each_at_most_once`) is not counted.
- Under shard= the whole order is counted, as every rank draws it. With any other sampler each rank counts its
  own, and its count k stands for k * world + rank: ranks that a sampler gives one sample draw differently for
  it. A position in the pass would need no memory, but then a sample's pixels would follow from the order,
  from the batch size of a resume, and from the ranks.
- A view (Subset, ConcatDataset) may hold a sample at several positions: NativeView.occurrences adds that,
  once, by position and not by order. A Mixture counts the passes over its sources.
- A substitute for a bad sample is drawn as an occurrence of its own, by `common.rng.substitute_occurrence`.
"""

from __future__ import annotations

import base64
import zlib
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.common.positions import as_positions
from fastload.common.rng import SUBSTITUTE_OCCURRENCE

Occurrences = npt.NDArray[np.uint32]
COUNTS_LIMIT = 1 << 24
"""Samples of a dataset up to which a state has the counts; a bit or so for each sample."""


class Counted(NamedTuple):
    """An index or an index batch, and the occurrences of what is in it, until IndexBatches takes them
    apart."""

    index: Any
    occurrences: Occurrences | np.uint32


class OccurrenceCounter:
    """Counts of one pass. See NOTE [ occurrences: an index that comes again ].

    Args:
        count: samples of the dataset; None: it has no length.
        rank, world: this rank, and the number of ranks whose samplers may give the same sample; (0, 1) where
            the whole order is counted.
    """

    def __init__(self, count: int | None, rank: int = 0, world: int = 1) -> None:
        self._counts = np.zeros(count or 0, np.uint32)  # pages that nothing touches take no memory
        self._keys: Counter[Hashable] = Counter()
        self._rank, self._world = rank, world

    def of_batch(self, indices: Sequence[Any] | npt.NDArray[Any]) -> Occurrences:
        """Counts the indices of a batch, and returns the occurrence of each, uint32 (B,)."""
        found = self._counted(indices)
        if self._world > 1:
            found = found * np.uint32(self._world) + np.uint32(self._rank)
        least: Occurrences = np.minimum(found, np.uint32(SUBSTITUTE_OCCURRENCE - 1))
        return least

    def _counted(self, indices: Sequence[Any] | npt.NDArray[Any]) -> Occurrences:
        count = len(self._counts)
        try:
            where = as_positions(indices)
            return core.count_occurrences(self._counts, np.where(where < 0, where + count, where))
        except (
            TypeError,
            OverflowError,
            IndexError,
        ):  # keys of another kind, or out of range: an error of its batch
            return np.fromiter(map(self._of_key, indices), np.uint32, len(indices))

    def _of_key(self, index: object) -> int:
        key = index if isinstance(index, Hashable) else repr(index)
        self._keys[key] += 1
        return self._keys[key] - 1

    def marked(self, units: Iterable[Any], *, batches: bool) -> Iterator[Counted]:
        """Indices, or index batches, with their occurrences, of an order that ranks share out."""
        for unit in units:
            if batches:
                unit = unit if isinstance(unit, Sequence | np.ndarray) else list(unit)
                yield Counted(unit, self.of_batch(unit))
            else:
                yield Counted(unit, self.of_batch([unit])[0])

    def state(self, ahead: Iterable[Sequence[Any]]) -> dict[str, Any] | None:
        """The counts without those of batches that will be drawn again, as JSON can hold them; None: there
        are too many."""
        if not 0 < len(self._counts) <= COUNTS_LIMIT or self._keys:
            return None
        counts = self._counts.copy()
        for indices in ahead:
            where = as_positions(indices)
            np.subtract.at(counts, np.where(where < 0, where + len(counts), where), np.uint32(1))
        return {
            "samples": len(counts),
            "counts": base64.b64encode(zlib.compress(counts.astype("<u4").tobytes(), 1)).decode(),
        }

    def load(self, state: object) -> None:
        """Sets the counts to those of a state.

        Raises:
            ValueError: it is not what state() gave, or is of another number of samples.
        """
        self._counts[:] = counts_of(state, len(self._counts))


def counts_of(state: object, count: int) -> Occurrences:
    """The counts in a state. Raises ValueError if it is not what OccurrenceCounter.state() gave for that
    many samples."""
    if (
        not isinstance(state, dict)
        or state.get("samples") != count
        or count > COUNTS_LIMIT
        or not isinstance(state.get("counts"), str)
    ):
        raise ValueError(f"its counts of samples are not those of {count} samples")
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(base64.b64decode(state["counts"], validate=True), 4 * count + 1)
    except zlib.error as error:
        raise ValueError(f"its counts of samples cannot be read ({error})") from None
    if len(data) != 4 * count:
        raise ValueError(f"its counts of samples are not those of {count} samples")
    return np.frombuffer(data, "<u4").astype(np.uint32)


def unmarked(index: Any) -> tuple[Any, Occurrences]:
    """An index batch of marked indices, or a marked batch, taken apart."""
    if isinstance(index, Counted):
        return index.index, np.atleast_1d(np.asarray(index.occurrences, np.uint32))
    return [each.index for each in index], np.array([each.occurrences for each in index], np.uint32)
