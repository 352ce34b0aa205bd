"""TokenBatches: batches of samples that fill bins of a number of tokens, planned by stored lengths before
anything is read.

NOTE [ token batches: bins, steps, pools ]
1. Samples come in the order of the epoch, POOL at a time. A pool is packed by best fit, longest samples
   first: each goes to the bin with the least room that takes it. D. S. Johnson's bound is 11/9 of the fewest
   bins (1973); pools of some thousand samples of many lengths leave less than a thousandth of the room.
2. Bins that are not full go back, worst first, and their samples are packed with those of the next pool; at
   most CARRIED of a pool, so that lengths that never fill a bin are no obstacle.
3. A step is a fixed number of bins, whatever ranks share them out: rank r of N takes the bins r, r + N, ...
   of a step, and a run goes on with other ranks in the same steps. Bins are sorted by their patches and cut
   into steps, so that no rank waits for one with more to do; then the steps are shuffled. Neighbouring steps
   are not alike (their patches correlate by -0.03), the bins of one are.
4. The last pool makes whole steps: bins are halved until there are enough of them.
Nothing is held but the lengths and one pool.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from torch.utils.data import Dataset, Sampler, Subset

from fastload._native import core
from fastload.common.rng import KeyedPermutation, checked_epoch, checked_seed, order_seed, pool_seed
from fastload.dataset.packed import PackedDataset
from fastload.errors import ArgumentError
from fastload.sampling.sharding import Shard, checked_shard, rank_and_world
from fastload.sampling.window import count_of
from fastload.transforms.spec import Plan

OnLong = Literal["error", "cut", "drop"]
Lengths = npt.NDArray[np.unsignedinteger]
Bins = list[npt.NDArray[np.int64]]
POOL = 1 << 13
"""Samples that are packed together. Twice as many balance hardly better, and half as many worse: the heaviest
of 8 ranks has 1.13, 1.06 or 1.03 times the mean of a step's patches, at the 95th percentile."""
CARRIED = 1 / 8
FULL = 0.995
"""Part of a bin from which on it is full enough not to be packed again."""
_CLASSES = 1 << 17
"""Rooms that are told apart; of larger bins rooms are rounded, by less than a hundred-thousandth."""
_COUNT_MOST = (1 << 32) - 1
_READ = 1 << 16
"""Samples whose lengths are looked at together."""


class TokenBatches(Sampler[list[int]]):
    """A batch sampler whose batches are bins of at most `max_tokens` tokens.

    1. Each sample comes once an epoch; of the last, fewer than a step has bins may come again.
    2. An epoch is whole steps of `bins` bins with like numbers of patches, alike in number for every rank.
    3. FastLoader's `shard=` gives every rank its stride of the bins; a resume may have other ranks.

    Args:
        lengths: tokens of each sample, its images' among them: integers (N,); uint32 is not copied. Or a
            PackedDataset with transforms.Patches, or a Subset of one, whose stored sizes tell tokens and
            patches.
        max_tokens: tokens of a bin.
        text: further tokens of each sample of a dataset: integers (N,), or the name of a column; or of a
            field of token ids, in which an image has one placeholder.
        patches: patches of each sample, or aspects in thousandths; None: bins are balanced by tokens.
        bins: bins of a step, a multiple of the number of ranks.
        shard: "auto" or (rank, world), for DataLoader.
        shuffle: False: about in the samples' order.
        seed: the same on every rank.
        on_long: "error", "cut" (counts as `max_tokens`) or "drop" for samples longer than a bin.
        drop_last: leaves out bins that make no whole step.

    Attributes:
        long: number of samples longer than a bin.

    Raises:
        ArgumentError: an argument is out of range, or a sample is longer than a bin; also at a pass, of
            another transform.
    """

    def __init__(
        self,
        lengths: npt.ArrayLike | Dataset[Any],
        max_tokens: int,
        *,
        text: npt.ArrayLike | str | None = None,
        patches: npt.ArrayLike | None = None,
        bins: int = 8,
        shard: Shard | None = None,
        shuffle: bool = True,
        seed: int = 0,
        on_long: OnLong = "error",
        drop_last: bool = False,
    ) -> None:
        if (checked := checked_seed(seed)) is None:
            raise ArgumentError("seed=None: TokenBatches draws from no generator; give a number")
        if on_long not in get_args(OnLong):
            raise ArgumentError(f"on_long={on_long!r}: choose {', '.join(map(repr, get_args(OnLong)))}")
        self.max_tokens = count_of("max_tokens", max_tokens, 1)
        if self.max_tokens > _COUNT_MOST:
            raise ArgumentError(f"max_tokens={max_tokens!r}: give a number below 2**32")
        self.bins = count_of("bins", bins, 1)
        self.lengths, self.patches = _planned_by(lengths, text, patches)
        self.shard = checked_shard(shard)
        self.shuffle, self.seed, self.drop_last = bool(shuffle), checked, bool(drop_last)
        self.on_long: OnLong = on_long
        self.epoch = 0
        self.long = -1
        self._checked: Plan | None = None
        self._counted: tuple[int, int] | None = None  # an epoch, and its steps
        self._check()

    def _check(self) -> None:
        """Counts the samples longer than a bin; again where the dataset has another transform."""
        plan = self.lengths.plan() if isinstance(self.lengths, ImageCounts) else None
        if self.long >= 0 and (self._checked is plan or self._checked is None):
            self._checked = plan
            return
        found, first = 0, -1
        for start in range(0, len(self.lengths), _READ):
            long = np.flatnonzero(self.lengths[start : start + _READ] > self.max_tokens)
            if len(long) and first < 0:
                first = start + int(long[0])
            found += len(long)
        if found and self.on_long == "error":
            (tokens,) = self.lengths[first : first + 1]
            raise ArgumentError(
                f"sample {first} has {tokens} tokens, as {found - 1} others more than "
                f'max_tokens={self.max_tokens}: give more, or on_long="cut" or "drop"'
            )
        self.long, self._checked, self._counted = found, plan, None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_checked": None}  # a copy takes its dataset's transform for the one it knows

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that the next pass has."""
        self.epoch = checked_epoch(epoch)

    def check_world(self, world: int) -> None:
        """Raises ArgumentError where the bins of a step cannot be shared out evenly among so many ranks."""
        if self.bins % world:
            raise ArgumentError(
                f"the {self.bins} bins of a step cannot be shared out among {world} ranks: give bins= a "
                "multiple of them"
            )

    def __len__(self) -> int:
        return self.batches_in(self.epoch) // self._place()[1]

    def batches_in(self, epoch: int) -> int:
        """Number of all ranks' batches in an epoch. Epochs may differ by some steps."""
        self._check()
        if self._counted is None or self._counted[0] != epoch:
            self._counted = epoch, sum(1 for _ in self._steps(epoch))
        return self._counted[1] * self.bins

    def __iter__(self) -> Iterator[list[int]]:
        rank, world = self._place()
        self._check()
        return (each.tolist() for step in self._steps(self.epoch) for each in step[rank::world])

    def _place(self) -> tuple[int, int]:
        """Rank and number of ranks."""
        rank, world = (0, 1) if self.shard is None else rank_and_world(self.shard)
        self.check_world(world)
        return rank, world

    def _steps(self, epoch: int) -> Iterator[Bins]:
        """The steps of an epoch."""
        count = len(self.lengths)
        pools = max(1, round(count / POOL))
        edges = [count * pool // pools for pool in range(pools + 1)]
        carried = np.zeros(0, np.int64)
        for pool in range(pools):
            found = self._part(epoch, edges[pool], edges[pool + 1])
            samples = np.concatenate([carried, found])
            bins = _Bins(samples, self._tokens(samples), self.patches[samples], self.max_tokens)
            if pool + 1 < pools:
                carried = bins.take_out(self.bins, int(CARRIED * len(found)))
            elif self.drop_last:
                bins.take_out(self.bins, 0)
            else:
                bins.fill_up(self.bins)
            yield from self._shuffled(bins.steps(self.bins), epoch, pool)

    def _part(self, epoch: int, start: int, stop: int) -> npt.NDArray[np.int64]:
        """The samples of some places of an epoch's order."""
        places = np.arange(start, stop)
        if self.shuffle and len(places):
            places = KeyedPermutation(len(self.lengths), order_seed(self.seed, epoch)).at(places)
        if self.on_long == "drop":
            places = places[self.lengths[places] <= self.max_tokens]
        return places

    def _tokens(self, samples: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return np.minimum(self.lengths[samples], self.max_tokens).astype(np.int64)

    def _shuffled(self, steps: list[Bins], epoch: int, pool: int) -> Iterator[Bins]:
        if not self.shuffle:
            return iter(steps)
        order = KeyedPermutation(len(steps), pool_seed(self.seed, epoch, pool))
        return (steps[place] for chunk in order.chunks() for place in chunk.tolist())


class _Bins:
    """The bins of one pool.

    Args:
        samples: the pool's samples, in the epoch's order.
        tokens, patches: counts of each of them.
        room: tokens of a bin.
    """

    def __init__(
        self, samples: npt.NDArray[np.int64], tokens: npt.NDArray[np.int64], patches: Lengths, room: int
    ) -> None:
        self._samples, self._tokens, self._patches, self._room = samples, tokens, patches, room
        self._bin = best_fit(tokens, room)  # of each sample; -1: it is in none

    def take_out(self, multiple: int, most: int) -> npt.NDArray[np.int64]:
        """Takes bins that are not full out, worst first, of at most `most` samples, and as many more as leave
        a multiple. Returns their samples."""
        tokens, counts = self._summed(self._tokens), np.bincount(self._bin)
        worst = np.argsort(tokens, kind="stable")
        few = np.cumsum(counts[worst]) <= most
        taken = int(np.count_nonzero(few & (tokens[worst] < FULL * self._room)))
        taken += (len(tokens) - taken) % multiple
        out = np.zeros(len(tokens), np.bool_)
        out[worst[:taken]] = True
        gone = out[self._bin]
        left = np.cumsum(~out) - 1
        self._bin = np.where(gone, -1, left[self._bin])
        return self._samples[gone]

    def fill_up(self, multiple: int) -> None:
        """Halves bins until there is a multiple of them, those of most samples first; where no bin has two
        samples, samples come again."""
        counts = np.bincount(self._bin)
        lacking = -len(counts) % multiple
        for _ in range(min(lacking, len(self._bin) - len(counts))):
            largest = int(np.argmax(counts))
            inside = np.flatnonzero(self._bin == largest)
            half = inside[: len(inside) // 2]
            self._bin[half] = len(counts)
            counts[largest] -= len(half)
            counts = np.append(counts, len(half))
        lacking = -len(counts) % multiple
        if lacking:  # every bin has one sample
            again = np.arange(lacking) % len(counts)
            self._samples, self._tokens, self._patches = (
                np.concatenate([each, each[again]]) for each in (self._samples, self._tokens, self._patches)
            )
            self._bin = np.concatenate([self._bin, len(counts) + np.arange(lacking)])

    def steps(self, bins: int) -> list[Bins]:
        """The samples of each bin of each step, in order; the bins of a step are of like patches."""
        patches = self._summed(self._patches)
        if not len(patches):
            return []
        rank = np.empty(len(patches), np.int64)
        rank[np.argsort(-patches, kind="stable")] = np.arange(len(patches))
        of = np.where(self._bin < 0, len(patches), rank[self._bin])
        order = np.argsort(of, kind="stable")
        order = order[: np.count_nonzero(self._bin >= 0)]
        filled = np.split(self._samples[order], np.searchsorted(of[order], np.arange(1, len(patches))))
        return [filled[at : at + bins] for at in range(0, len(filled), bins)]

    def _summed(self, values: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        """Sums of a value of each bin."""
        inside = self._bin >= 0
        return np.bincount(self._bin[inside], weights=values[inside]).astype(np.int64)


def best_fit(tokens: npt.NDArray[np.int64], room: int) -> npt.NDArray[np.int64]:
    """The number of each sample's bin: longest samples first, each in the bin with the least room that takes
    it, or in a new one. See NOTE [ token batches: bins, steps, pools ].

    Args:
        tokens: tokens of each sample, at most `room`.
        room: tokens of a bin.
    """
    # Rooms are told apart by whole units.
    return core.best_fit(tokens, np.argsort(-tokens, kind="stable"), room, -(-room // _CLASSES))


class ImageCounts:
    """Counts that follow from the stored sizes of a dataset's images, and from its transform: computed when
    they are asked for, by samples or a slice of them, as an array has them. 2^32 - 1 is that, or more.

    Args:
        dataset: with Patches in its transform.
        rows: the samples of it that are counted; None: all.
        merged: True: tokens are counted, not patches.
        others: further counts of each of these, or by_row of each of the dataset's; None: there are none.
        placeholders: True if one of these stands for each image.

    Raises:
        ArgumentError: sizes of images are not known, or differ by epoch.
    """

    def __init__(
        self,
        dataset: PackedDataset,
        rows: npt.NDArray[np.int64] | None,
        *,
        merged: bool,
        others: Any = None,
        by_row: bool = False,
        placeholders: bool = False,
    ) -> None:
        self._dataset, self._rows, self._merged = dataset, rows, merged
        self._others, self._by_row, self._placeholders = others, by_row, placeholders
        self.plan()

    def plan(self) -> Plan:
        """The dataset's transform now. Raises ArgumentError where sizes do not follow from it."""
        plan = self._dataset.plan
        if plan.patches is None:
            raise ArgumentError("lengths: the dataset has no transforms.Patches in its transform")
        if plan.drawn_size:
            raise ArgumentError("lengths: a crop or resize draws the sizes of its images: give numbers")
        if not self._dataset.knows_sizes:
            raise ArgumentError("lengths: the sizes of its images are not known: give numbers")
        return plan

    def __len__(self) -> int:
        return len(self._dataset) if self._rows is None else len(self._rows)

    def __getitem__(self, samples: Any) -> Lengths:
        if isinstance(samples, slice):
            samples = np.arange(*samples.indices(len(self)))
        places = np.asarray(samples, np.int64)
        samples = places if self._rows is None else self._rows[places]
        if self._others is None:
            found = np.zeros(len(samples), np.int64)
        else:
            found = np.asarray(self._others[samples if self._by_row else places], np.int64)
        if self._dataset.lists is None:
            counts: Any = len(self._dataset.images.images)
            made = self._made(samples)
        else:
            rows, offsets, _ = self._dataset.listed(samples)
            counts = np.diff(offsets)
            made = np.diff(np.concatenate(([0], np.cumsum(self._made(rows))))[offsets])
        found = np.maximum(found - counts if self._placeholders else found, 0) + made
        return np.minimum(found, _COUNT_MOST).astype(np.uint32)

    def _made(self, rows: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """The counts of the images of each native row."""
        dataset, found = self._dataset, np.zeros(len(rows), np.int64)
        patch, merge, _ = self.plan().patches or (1, 1, 1)
        pixels = (patch * merge if self._merged else patch) ** 2
        programs = list(dataset.plan.programs)
        for image in dataset.images.images:
            heights, widths = (np.ascontiguousarray(side[rows], np.int32) for side in image.sides())
            sizes, _ = core.image_sizes(
                programs, heights, widths, np.ascontiguousarray(rows, np.uint64), dataset.max_pixels, 0, 0
            )
            found += sizes[0].astype(np.int64).prod(axis=1) // pixels
        return found


def _planned_by(
    lengths: npt.ArrayLike | Dataset[Any], text: npt.ArrayLike | str | None, patches: npt.ArrayLike | None
) -> tuple[Lengths | ImageCounts, Lengths | ImageCounts]:
    """Tokens and patches of each sample. Raises ArgumentError."""
    counted: Lengths | ImageCounts
    work: Lengths | ImageCounts
    dataset, rows = _whole(lengths)
    if isinstance(dataset, PackedDataset):
        counted, work = _of_dataset(dataset, rows, text)
    elif isinstance(lengths, Dataset):
        raise ArgumentError("lengths: give a PackedDataset, a Subset of one, or a number for each sample")
    elif text is not None:
        raise ArgumentError("text= is for a dataset, whose images' tokens it adds to")
    else:
        counted = work = _counts("lengths", lengths)
    work = work if patches is None else _counts("patches", patches)
    if len(work) != len(counted):
        raise ArgumentError(f"patches of {len(work)} samples, lengths of {len(counted)}")
    return counted, work


def _whole(lengths: object) -> tuple[object, npt.NDArray[np.int64] | None]:
    """The dataset that a Subset is of, and its samples; or what is no Subset, and None."""
    rows: npt.NDArray[np.int64] | None = None
    while isinstance(lengths, Subset):
        found = np.asarray(lengths.indices, np.int64)
        lengths, rows = lengths.dataset, found if rows is None else found[rows]
    return lengths, rows


def _of_dataset(
    dataset: PackedDataset, rows: npt.NDArray[np.int64] | None, text: npt.ArrayLike | str | None
) -> tuple[ImageCounts, ImageCounts]:
    """Tokens and patches of the samples of a dataset, or of these of its rows. Raises ArgumentError."""
    others: Any = None
    placeholders = False
    if isinstance(text, str):
        others, placeholders = _tokens_of(dataset, text)
    elif text is not None:
        others = _counts("text", text)
        if len(others) != (count := len(dataset) if rows is None else len(rows)):
            raise ArgumentError(f"text of {len(others)} samples, the dataset has {count}")
    by_row = isinstance(text, str)
    return (
        ImageCounts(dataset, rows, merged=True, others=others, by_row=by_row, placeholders=placeholders),
        ImageCounts(dataset, rows, merged=False),
    )


def _tokens_of(dataset: PackedDataset, name: str) -> tuple[Any, bool]:
    """The tokens of a column or a field of token ids by sample, and whether placeholders of images are among
    them."""
    schema = dataset.schema
    field = next((each for each in schema if each.name == name), None)
    if field is not None and field.shape == (None,):
        (counts,) = schema.hidden_names(field)
        return dataset.opened.reader.values(counts), True
    if field is None or not field.is_column or len(field.shape) > 1:
        raise ArgumentError(f"text={name!r} is no column of {dataset.path}, nor a field of token ids")
    if field.shape:  # as many ids in every sample
        return np.broadcast_to(np.int64(field.shape[0] or 0), len(dataset)), True
    return _counts(f"text={name!r}", dataset.column(name)), False


def _counts(name: str, values: npt.ArrayLike) -> Lengths:
    """Counts of each sample, as uint32 where they are none yet. Raises ArgumentError."""
    try:
        found = np.asarray(values)
    except (TypeError, ValueError):
        found = np.zeros((0, 0))
    if found.ndim == 1 and not len(found):
        found = found.astype(np.uint32)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise ArgumentError(f"{name}: give one whole number for each sample, not {found.dtype} {found.shape}")
    if len(found) and (found.min() < 0 or found.max() >= 1 << 32):
        raise ArgumentError(f"{name}: {found.min()} to {found.max()}; give numbers from 0 to 2**32 - 1")
    return found.astype(np.uint32, copy=False)
