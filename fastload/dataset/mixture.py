"""Mixture: a map-style dataset whose samples are those of several datasets, by weights. MixtureOrder: the
source and the sample at each position of each epoch, as a pure function.

NOTE [ mixture: which sample comes when ]
An epoch of N positions has an exact count of each source's samples: its share of N by the weights. Positions
are divided into blocks of BLOCK. How many samples of a source come before a block follows from its count and
the block's place by whole-number division, so that every block has the sources in the epoch's proportions,
and any block is found without the ones before it. Within a block the sources are in random order. A source's
draws are numbered through all epochs, in the order of positions: number d is place d % n of the source's pass
d // n, and each pass over its n samples is a keyed permutation of its own. So a source is used up before a
sample of it comes again, within an epoch, at its end, and where weights change.
"""

from __future__ import annotations

import copy
import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
from torch.utils.data import ConcatDataset, Dataset, IterableDataset, Subset

from fastload.common.positions import as_positions, position_of
from fastload.common.rng import (
    KeyedPermutation,
    checked_epoch,
    checked_seed,
    current_occurrence,
    interleaving_seed,
    mixed,
    occurring,
    source_seed,
)
from fastload.common.text import ShownAsText
from fastload.dataset.packed import PackedDataset
from fastload.errors import ArgumentError

BLOCK = 64
"""Positions of a block: few, since a block is computed whole for any position of it; enough that its
sources come in no pattern."""
SPAN = 64 * BLOCK
"""Positions whose rows are computed together where they are asked for in sequence."""
SAMPLES_LIMIT = 1 << 31
"""Limit on an epoch's samples: the product of two of them stays below 2**63."""
_KEPT = 256
"""Keyed permutations that are kept: the sources' latest passes."""

Changes = tuple[tuple[int, tuple[float, ...]], ...]
"""Weights by the epoch from which they hold, ascending; the first holds from epoch 0."""
_Positions = npt.NDArray[np.int64]


def shares(weights: Sequence[float], samples: int) -> tuple[int, ...]:
    """Whole numbers in proportion to `weights` whose sum is `samples`, by largest remainders; of equal
    ones the first is served first."""
    exact = [Fraction(weight) for weight in weights]
    total = sum(exact)
    wanted = [weight * samples / total for weight in exact]
    counts = [int(each) for each in wanted]
    by_remainder = sorted(range(len(counts)), key=lambda k: counts[k] - wanted[k])
    for k in by_remainder[: samples - sum(counts)]:
        counts[k] += 1
    return tuple(counts)


@dataclass(frozen=True)
class _Epoch:
    """One epoch: the counts of the sources, the numbers of their first draws, and the key of the order
    within blocks."""

    counts: tuple[int, ...]
    starts: tuple[int, ...]
    key: int


class MixtureRows(NamedTuple):
    """Samples of a mixture.

    Attributes:
        sources, indices: number of the source of each sample, and its index there.
        turns: number of the pass over the source that each sample is of, among those of the epoch; 0 is the
            pass that the epoch begins in.
    """

    sources: npt.NDArray[np.uint32]
    indices: _Positions
    turns: npt.NDArray[np.uint32]


class MixtureOrder:
    """The order of a mixture's samples. See NOTE [ mixture: which sample comes when ].

    Args:
        seed: 0 .. 2**64-1.
        samples: number of samples in an epoch, fewer than SAMPLES_LIMIT.
        lengths: number of samples in each source, 1 or more.
        changes: the weights by epoch; those of an epoch are not all zero.
    """

    def __init__(self, seed: int, samples: int, lengths: tuple[int, ...], changes: Changes) -> None:
        self.identity = seed, samples, lengths, changes
        self._seed, self._samples, self._lengths, self._changes = seed, samples, lengths, changes
        self._epochs: OrderedDict[int, _Epoch] = OrderedDict()
        self._passes: OrderedDict[tuple[int, int], KeyedPermutation] = OrderedDict()
        self._spans: OrderedDict[tuple[int, int], MixtureRows] = OrderedDict()

    def __len__(self) -> int:
        return self._samples

    def counts(self, epoch: int) -> tuple[int, ...]:
        """Samples of each source in an epoch."""
        return shares(
            next(weights for first, weights in reversed(self._changes) if first <= epoch), self._samples
        )

    def starts(self, epoch: int) -> tuple[int, ...]:
        """Samples of each source in all epochs before."""
        out = [0] * len(self._lengths)
        ends = [min(first, epoch) for first, _ in self._changes[1:]] + [epoch]
        for (first, weights), end in zip(self._changes, ends, strict=True):
            if end > first:
                out = [
                    all_ + (end - first) * one
                    for all_, one in zip(out, shares(weights, self._samples), strict=True)
                ]
        return tuple(out)

    def rows(self, epoch: int, positions: _Positions) -> tuple[npt.NDArray[np.uint32], _Positions]:
        """Source, and index of the sample there, of each position, 0 .. samples-1."""
        return self.samples(epoch, positions)[:2]

    def samples(self, epoch: int, positions: _Positions) -> MixtureRows:
        """The samples at some positions, 0 .. samples-1."""
        spans = np.unique(positions // SPAN).tolist()
        if len(spans) > 2:
            return self._rows(epoch, positions)
        count = len(positions)
        out = MixtureRows(np.empty(count, np.uint32), np.empty(count, np.int64), np.empty(count, np.uint32))
        for each in spans:
            mine = positions // SPAN == each
            span, places = self._span(epoch, each), positions[mine] - each * SPAN
            out.sources[mine], out.indices[mine], out.turns[mine] = (
                span.sources[places],
                span.indices[places],
                span.turns[places],
            )
        return out

    def passes(self, epoch: int) -> npt.NDArray[np.uint32]:
        """Number of passes over each source that an epoch has a part of; at least 1."""
        plan = self._epoch(epoch)
        spans = zip(plan.starts, plan.counts, self._lengths, strict=True)
        return np.array(
            [(start + max(count, 1) - 1) // length - start // length + 1 for start, count, length in spans],
            np.uint32,
        )

    def _span(self, epoch: int, number: int) -> MixtureRows:
        """A span's rows, for passes that ask for one position after another: at once they cost a tenth of
        as many batches."""
        found = self._spans.get((epoch, number))
        if found is None:
            where = np.arange(number * SPAN, min((number + 1) * SPAN, self._samples))
            found = self._spans[epoch, number] = self._rows(epoch, where)
            _keep(self._spans, 4)
        return found

    def _rows(self, epoch: int, positions: _Positions) -> MixtureRows:
        plan = self._epoch(epoch)
        blocks, which = np.unique(positions // BLOCK, return_inverse=True)
        sources, numbers = self._blocks(plan, blocks)
        place = positions % BLOCK
        source, number = sources[which, place], numbers[which, place]
        index, turn = np.empty(len(positions), np.int64), np.empty(len(positions), np.uint32)
        for each in np.unique(source).tolist():
            mine, start = source == each, plan.starts[each]
            drawn = number[mine] + start
            index[mine], turn[mine] = (
                self._drawn(each, drawn),
                drawn // self._lengths[each] - start // self._lengths[each],
            )
        return MixtureRows(source.astype(np.uint32), index, turn)

    def _epoch(self, epoch: int) -> _Epoch:
        found = self._epochs.get(epoch)
        if found is None:
            found = self._epochs[epoch] = _Epoch(
                self.counts(epoch), self.starts(epoch), interleaving_seed(self._seed, epoch)
            )
            _keep(self._epochs, 4)
        return found

    def _blocks(self, plan: _Epoch, blocks: _Positions) -> tuple[_Positions, _Positions]:
        """Source of each position of some blocks, and the number of its draw in the epoch: two arrays of a
        row for each block."""
        low, high = (
            self._before(plan, blocks * BLOCK),
            self._before(plan, np.minimum((blocks + 1) * BLOCK, self._samples)),
        )
        # Places that the last block lacks: they count as a source at its end.
        lacking = BLOCK - (high - low).sum(axis=1, keepdims=True)
        each = np.concatenate([high - low, lacking], axis=1)
        kinds = np.tile(np.arange(each.shape[1]), len(blocks))
        sorted_sources = np.repeat(kinds, each.ravel()).reshape(len(blocks), BLOCK)
        places = blocks[:, None] * BLOCK + np.arange(BLOCK)
        keys = mixed(places.astype(np.uint64), plan.key) >> np.uint64(1)
        keys[sorted_sources == len(plan.counts)] = np.uint64(1 << 63)
        sources = np.take_along_axis(sorted_sources, keys.argsort(axis=1, kind="stable"), 1)
        # The places of the first source, ascending, then those of the next.
        by_source = sources.argsort(axis=1, kind="stable")
        firsts = np.cumsum(each, axis=1) - each
        base = np.concatenate([low, np.zeros_like(lacking)], axis=1) - firsts
        numbers = np.empty_like(sources)
        np.put_along_axis(
            numbers, by_source, np.arange(BLOCK) + np.take_along_axis(base, sorted_sources, 1), 1
        )
        return sources, numbers

    def _before(self, plan: _Epoch, ends: _Positions) -> _Positions:
        """Samples of each source before positions at which blocks end: it never falls, and at the epoch's
        end it is the source's count."""
        out = np.empty((len(ends), len(plan.counts)), np.int64)
        rest, left = ends, self._samples
        for k, count in enumerate(plan.counts):
            out[:, k] = rest * count // max(1, left)
            rest, left = rest - out[:, k], left - count
        return out

    def _drawn(self, source: int, numbers: _Positions) -> _Positions:
        """The samples that some draws of a source are."""
        passes, places = np.divmod(numbers, self._lengths[source])
        out = np.empty(len(numbers), np.int64)
        for each in np.unique(passes).tolist():
            mine = passes == each
            out[mine] = self._pass(source, each).at(places[mine])
        return out

    def _pass(self, source: int, number: int) -> KeyedPermutation:
        key = source, number
        found = self._passes.get(key)
        if found is None:
            found = self._passes[key] = KeyedPermutation(
                self._lengths[source], source_seed(self._seed, source, number)
            )
            _keep(self._passes, _KEPT)
        return found


def _keep(cache: OrderedDict[Any, Any], most: int) -> None:
    while len(cache) > most:
        cache.popitem(last=False)


class Mixture(ShownAsText, Dataset[Any]):
    """Samples of several datasets, mixed by weights, in random order: a map-style dataset.

    1. An epoch has an exact number of samples of each source: its share of `samples_per_epoch`, rounded by
       largest remainders. Any 64 samples have these proportions to within a few.
    2. Each source is used in a random order until it is used up, over epochs; then in another order.
    3. `mixture[i]` is a pure function of (seed, epoch, weights of the epochs up to this one, i). FastLoader
       sets the epoch at each `iter()`; under another loader call `set_epoch`.

    Args:
        sources: weight by dataset, or (dataset, weight) pairs; only proportions matter.
        samples_per_epoch: number of samples; None: as many as all sources have.
        seed: seed of the order, 0 .. 2**64-1; the same on every rank.

    Raises:
        ArgumentError: a weight is negative, or all are zero; a source has no samples, no length, or is a
            Mixture; packed sources differ in their fields; an argument is out of range.
    """

    def __init__(
        self,
        sources: Mapping[Any, float] | Sequence[tuple[Any, float]],
        *,
        samples_per_epoch: int | None = None,
        seed: int = 0,
    ) -> None:
        pairs = list(sources.items() if isinstance(sources, Mapping) else sources)
        if not pairs or not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
            raise ArgumentError(
                "a Mixture has sources: give {dataset: weight, ...}, or (dataset, weight) pairs"
            )
        self.sources: tuple[Any, ...] = tuple(pair[0] for pair in pairs)
        for number, source in enumerate(self.sources):
            _check_source(number, source)
        _check_fields(self.sources)
        self.samples_per_epoch = (
            sum(map(len, self.sources)) if samples_per_epoch is None else _samples(samples_per_epoch)
        )
        given = checked_seed(seed)
        if given is None:
            raise ArgumentError(
                "seed=None: a Mixture's order follows its seed; give an integer from 0 to 2**64 - 1"
            )
        self.seed = given
        self.epoch = 0
        self._next = 0  # the epoch that begins next, as far as it was told
        self._changes: Changes = ((0, self._checked([pair[1] for pair in pairs])),)
        self._order: MixtureOrder | None = None

    @property
    def order(self) -> MixtureOrder:
        """The order of all epochs, by the sources' lengths and the weights as they are now; the same
        object where nothing has changed."""
        for number, source in enumerate(self.sources):
            _check_source(number, source)
        identity = self.seed, self.samples_per_epoch, tuple(map(len, self.sources)), self._changes
        if self._order is None or self._order.identity != identity:
            self._order = MixtureOrder(*identity)
        return self._order

    @property
    def changes(self) -> Changes:
        """The weights by the epoch from which they hold."""
        return self._changes

    def weights(self, epoch: int | None = None) -> tuple[float, ...]:
        """The weights of the sources in an epoch; None: this one."""
        at = self.epoch if epoch is None else checked_epoch(epoch)
        return next(weights for first, weights in reversed(self._changes) if first <= at)

    def counts(self, epoch: int | None = None) -> tuple[int, ...]:
        """Samples of each source in an epoch; None: this one."""
        return self.order.counts(self.epoch if epoch is None else checked_epoch(epoch))

    def set_weights(self, weights: Mapping[Any, float] | Sequence[float], epoch: int | None = None) -> None:
        """Sets the weights from an epoch on, and drops those of later epochs.

        Args:
            weights: by dataset, or in the order of the sources; one for each.
            epoch: None: the next to begin. In an epoch that has run, later ones begin at other samples.

        Raises:
            ArgumentError: a weight is negative, all are zero, or a source has none.
        """
        if isinstance(weights, Mapping):
            if len(weights) != len(self.sources) or any(
                all(each is not source for source in self.sources) for each in weights
            ):
                raise ArgumentError(
                    f"set_weights: give a weight for each of the Mixture's {len(self.sources)} "
                    "datasets, and no other"
                )
            weights = [weights[source] for source in self.sources]
        values, first = self._checked(list(weights)), self._next if epoch is None else checked_epoch(epoch)
        self._changes = (*((at, each) for at, each in self._changes if at < first), (first, values))

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch."""
        self.epoch = checked_epoch(epoch)
        self._next = self.epoch + 1

    def set_state(self, epoch: int, changes: Changes | None) -> None:
        """Sets the epoch and, unless None, the weights of all epochs; for copies of it."""
        self.set_epoch(epoch)
        self._changes = self._changes if changes is None else changes

    def at_epoch(self, epoch: int) -> Mixture:
        """A copy with another epoch; it shares the sources."""
        out = copy.copy(self)
        out.set_epoch(epoch)
        return out

    def with_sources(self, sources: Sequence[Any]) -> Mixture:
        """A copy with other datasets, of the same lengths, in the sources' places."""
        out = copy.copy(self)
        out.sources = tuple(sources)
        return out

    def rows(self, positions: object) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        """Number of the source, and index in it, of the samples at some positions.

        Raises:
            IndexError, TypeError: a position is out of range, or no integer.
        """
        return self._samples(positions)[:2]

    def _samples(self, positions: object) -> MixtureRows:
        where, count = as_positions(positions), self.samples_per_epoch
        if len(where) and not (-count <= where.min() and where.max() < count):
            bad = where.min() if where.min() < -count else where.max()
            raise IndexError(f"index {bad} is out of range for {count} samples")
        return self.order.samples(self.epoch, where % count)

    def __len__(self) -> int:
        return self.samples_per_epoch

    def __getitem__(self, index: object) -> Any:
        (source,), (at,), (turn,) = (each.tolist() for each in self._samples([position_of(index)]))
        return self._sample(source, at, turn)

    def _sample(self, source: int, index: int, turn: int) -> Any:
        """A sample of a source in one of its passes in the epoch. See NOTE [ occurrences: an index that
        comes again ]."""
        occurrence, resolved = current_occurrence()
        if not resolved:
            occurrence = occurrence * int(self.order.passes(self.epoch)[source]) + turn
        with occurring(occurrence, resolved=resolved):
            return self.sources[source][index]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        sources, at, turns = self._samples(indices)
        out: list[Any] = [None] * len(sources)
        for number in np.unique(sources).tolist():
            mine, source = np.flatnonzero(sources == number).tolist(), self.sources[number]
            several = getattr(source, "__getitems__", None)
            wanted = at[mine].tolist()
            if several is None or turns[mine].any():
                made = [
                    self._sample(number, *each) for each in zip(wanted, turns[mine].tolist(), strict=True)
                ]
            else:
                made = several(wanted)
            for row, sample in zip(mine, made, strict=True):
                out[row] = sample
        return out

    def __repr__(self) -> str:
        parts = ", ".join(
            f"{source!r}: {weight:g}" for source, weight in zip(self.sources, self.weights(), strict=True)
        )
        return f"Mixture({{{parts}}}, samples_per_epoch={self.samples_per_epoch}, seed={self.seed})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_order": None}

    def described(self) -> dict[str, Any]:
        """Part of a loader's state: what the order follows from, as JSON can hold it."""
        lengths = [len(source) for source in self.sources]
        weights = [[first, list(each)] for first, each in self._changes]
        return {"seed": self.seed, "samples": self.samples_per_epoch, "lengths": lengths, "weights": weights}

    def restore(self, described: Mapping[str, Any]) -> None:
        """Takes over the weights by epoch of what described() gave, which fits().

        Raises:
            ArgumentError: the weights are damaged.
        """
        self._changes = self._restored(described)

    def fits(self, described: object) -> str:
        """The reason why a state does not fit this mixture: another mixture's, or damaged; "" if it fits."""
        if not isinstance(described, dict) or described.keys() != {"seed", "samples", "lengths", "weights"}:
            return "it holds no mixture"
        ours = self.described()
        for name, what in (
            ("seed", "seed"),
            ("samples", "samples_per_epoch"),
            ("lengths", "lengths of the sources"),
        ):
            if described[name] != ours[name]:
                return f"its mixture has {what} {described[name]}, this one {ours[name]}"
        try:
            self._restored(described)
        except (ArgumentError, TypeError, ValueError) as error:
            return f"the weights of its mixture are damaged ({error})"
        return ""

    def _restored(self, described: Mapping[str, Any]) -> Changes:
        changes = tuple(
            (checked_epoch(first), self._checked(weights)) for first, weights in described["weights"]
        )
        firsts = [first for first, _ in changes]
        if not firsts or firsts[0] != 0 or sorted(set(firsts)) != firsts:
            raise ArgumentError("their epochs do not ascend from 0")
        return changes

    def _checked(self, weights: Sequence[Any]) -> tuple[float, ...]:
        if len(weights) != len(self.sources):
            raise ArgumentError(f"{len(weights)} weights for {len(self.sources)} sources: give one for each")
        for number, weight in enumerate(weights):
            if not _is_weight(weight):
                raise ArgumentError(
                    f"the weight of {_name(number, self.sources[number])} is {weight!r}: give a "
                    "number of 0 or more"
                )
        if not any(weights):
            raise ArgumentError("all weights of the Mixture are zero: no source is left to draw from")
        return tuple(map(float, weights))


def _is_weight(weight: Any) -> bool:
    try:
        return not isinstance(weight, bool | str) and math.isfinite(weight) and weight >= 0
    except TypeError:
        return False


def _samples(value: object) -> int:
    try:
        number = position_of(value)
    except TypeError:
        number = 0
    if not 0 < number < SAMPLES_LIMIT:
        raise ArgumentError(f"samples_per_epoch={value!r}: give a number from 1 to {SAMPLES_LIMIT - 1:,}")
    return number


def _check_source(number: int, source: object) -> None:
    if (
        isinstance(source, IterableDataset)
        or not hasattr(source, "__len__")
        or not hasattr(source, "__getitem__")
    ):
        raise ArgumentError(
            f"{_name(number, source)} is no map-style dataset with a length, of which alone a Mixture is made"
        )
    if any(isinstance(each, Mixture) for each in _parts(source)):
        raise ArgumentError(
            f"{_name(number, source)} holds a Mixture: give its sources, with their weights, to one Mixture"
        )
    if not len(source):
        raise ArgumentError(f"{_name(number, source)} has no samples: leave it out of the Mixture")


def _check_fields(sources: Sequence[Any]) -> None:
    """Refuses packed datasets of which no batch can be made together."""
    first: tuple[int, PackedDataset, list[tuple[str, str]]] | None = None
    for number, source in enumerate(sources):
        for packed in _parts(source):
            if not isinstance(packed, PackedDataset):
                continue
            fields = [(name, packed.kinds[name]) for name in packed.fields]
            if first is None:
                first = number, packed, fields
            elif fields != first[2]:
                raise ArgumentError(
                    f"{_name(number, packed)} has the fields {_shown(fields)}, and "
                    f"{_name(first[0], first[1])} has {_shown(first[2])}: "
                    "samples of a Mixture have the same fields; choose some with PackedDataset(..., fields=)"
                )


def _parts(source: object) -> Iterator[Any]:
    """The datasets that Subset and ConcatDataset are made of."""
    if isinstance(source, Subset):
        yield from _parts(source.dataset)
    elif isinstance(source, ConcatDataset):
        for part in cast("list[Any]", source.datasets):
            yield from _parts(part)
    else:
        yield source


def _shown(fields: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in fields)


def _name(number: int, source: object) -> str:
    path = f" {source.path}" if isinstance(source, PackedDataset) else ""
    return f"source {number} of the Mixture ({type(source).__name__}{path})"


def parts_of(dataset: object) -> Iterator[Any]:
    """A dataset, and those that a Mixture, a Subset or a ConcatDataset, of these very classes, is made of,
    one after another."""
    yield dataset
    if type(dataset) is Subset:
        yield from parts_of(dataset.dataset)
    elif isinstance(dataset, Mixture):
        for source in dataset.sources:
            yield from parts_of(source)
    elif type(dataset) is ConcatDataset:
        for part in dataset.datasets:
            yield from parts_of(part)


def mixture_state(dataset: object) -> dict[str, Any]:
    """The part of a state about a Mixture, as JSON values, as "mixture": what its order follows from; {}
    for any other dataset."""
    return {"mixture": dataset.described()} if isinstance(dataset, Mixture) else {}


def check_mixture(dataset: object, stored: object) -> None:
    """Checks that a state, which holds `stored` as its mixture, goes with a dataset.

    Raises:
        ArgumentError: one is of a Mixture and the other is not, or they differ in more than weights, or the
            state is damaged.
    """
    if not isinstance(dataset, Mixture):
        if stored is not None:
            raise ArgumentError(
                "the state was taken with a Mixture, and this loader's dataset is a "
                f"{type(dataset).__name__}: give it one"
            )
        return
    if stored is None:
        raise ArgumentError(
            "the state was taken without a Mixture, and this loader's dataset is one: resume with "
            "the same dataset"
        )
    why = dataset.fits(stored)
    if why:
        raise ArgumentError(
            f"the state does not fit this loader's Mixture: {why}. Resume with the same sources, "
            "samples_per_epoch and seed"
        )


def mixture_facts(dataset: object) -> Iterator[tuple[str, Any]]:
    """Facts of a Mixture that all ranks must have in common, with a name for each; none of any other
    dataset."""
    if isinstance(dataset, Mixture):
        described = dataset.described()
        yield "a Mixture with the seed", described["seed"]
        yield "a Mixture with samples_per_epoch", described["samples"]
        yield "a Mixture with sources of the lengths", described["lengths"]
        yield "a Mixture with the epoch", dataset.epoch
        yield "a Mixture with the weights", list(dataset.weights())
        yield (
            "a Mixture with the weights from epochs on",
            [change for change in described["weights"] if change[0] <= dataset.epoch],
        )
