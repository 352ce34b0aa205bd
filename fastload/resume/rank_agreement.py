"""Comparison of ranks as a pass begins: all that its order follows from. See NOTE [ agreement: no rank waits for another ]."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import distributed
from torch.utils.data import BatchSampler, ConcatDataset, RandomSampler, Subset, SubsetRandomSampler, WeightedRandomSampler

from fastload.common.positions import as_positions
from fastload.dataset.mixture import Mixture
from fastload.execution.settings import Settings
from fastload.resume.epoch_state import EpochState
from fastload.resume.packed_versions import packed_state
from fastload.resume.rank_states import length_of
from fastload.sampling.buckets import BucketBatchSampler
from fastload.sampling.sampler import Sharded, ShardedBatchSampler, ShardedSampler

DIGESTED = 1 << 16
"""Numbers of a longer list that are compared, at even distances: a pass begins within milliseconds whatever its length."""
_DRAWING = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)


def begin_agreement(settings: Settings, sharded: Sharded, epoch_state: EpochState) -> None:
    """Compares the pass that begins with those of other ranks: all that has to be equal on each, by name.

    A rank with shard=(0, 1) shares with nobody: of it, only that is compared.
    """

    def found() -> dict[str, Any]:
        world = {"a world of": sharded.num_replicas}
        return world | (_shared(settings, sharded, epoch_state) if sharded.shard == "auto" or sharded.num_replicas > 1 else {})

    sharded.agreement.begin(length_of(sharded), sharded.shard == "auto", found)
    epoch_state.agreement = sharded.agreement


def _shared(settings: Settings, sharded: Sharded, epoch_state: EpochState) -> dict[str, Any]:
    """Values by the names that an error gives them, the plainest cause first."""
    return {
        "a dataset with the samples": packed_state(settings.dataset).get("packed", []),
        "shuffle": sharded.kind,
        "seed": getattr(sharded, "seed", settings.seed),
        "epoch": epoch_state.sampler["epoch"],
        "batch_size": settings.rows,
        "drop_last and even": [bool(settings.drop_last), sharded.rule],
        "a state with (ranks, samples had)": [[each.world, each.had] for each in epoch_state.splits],
        **dict(_of_mixture(settings.dataset)),
        **_gathered(_of_samplers(sharded, epoch_state)),
        # Groups of ranks with a (rank, world) of their own may divide the data between them.
        **(_gathered(_of_subsets(settings.dataset)) if sharded.num_replicas == distributed.get_world_size() else {}),
    }


def _of_mixture(dataset: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(dataset, Mixture):
        described = dataset.described()
        yield "a Mixture with the seed", described["seed"]
        yield "a Mixture with samples_per_epoch", described["samples"]
        yield "a Mixture with sources of the lengths", described["lengths"]
        yield "a Mixture with the epoch", dataset.epoch
        yield "a Mixture with the weights", list(dataset.weights())
        yield "a Mixture with the weights from epochs on", [change for change in described["weights"] if change[0] <= dataset.epoch]


def _of_subsets(dataset: Any) -> Iterator[tuple[str, Any]]:
    for each in _parts(dataset):
        if type(each) is Subset and (told := _summary(each.indices)) is not None:
            yield "a Subset with the indices", told


def _of_samplers(sharded: Sharded, epoch_state: EpochState) -> Iterator[tuple[str, Any]]:
    """What the user's sampler, and those that it is made of, draw from, as far as their classes are known here."""
    for each in _samplers(sharded):
        kind = type(each)
        yield "a sampler of the class", f"{kind.__module__}.{kind.__qualname__}"
        if kind is BatchSampler:
            yield "a BatchSampler with batch_size and drop_last", [each.batch_size, bool(each.drop_last)]
        elif kind is BucketBatchSampler:
            yield "a BucketBatchSampler with the seed", each.seed
            yield "a BucketBatchSampler with batch_size, shuffle and drop_last", [each.batch_size, each.shuffle, each.drop_last]
            yield "a BucketBatchSampler with the buckets", _summary(each.buckets)
        elif kind is SubsetRandomSampler:
            yield "a SubsetRandomSampler with the indices", _summary(each.indices)
        elif kind is WeightedRandomSampler:
            yield "a WeightedRandomSampler with the weights", _digest(each.weights[:: _step(len(each.weights))].cpu().numpy())
        elif kind is RandomSampler:
            yield "a RandomSampler with replacement", bool(each.replacement)
        if kind in _DRAWING:
            own = each.generator
            state = own.get_state() if own is not None else epoch_state.start.get("default")
            if state is not None:
                yield f"a {kind.__name__} that draws from a generator in the state", _digest(state.numpy())


def _samplers(sharded: Sharded) -> Iterator[Any]:
    """The user's sampler or batch sampler, and the sampler in a BatchSampler."""
    if isinstance(sharded, ShardedSampler):
        sampler = sharded.sampler
    elif isinstance(sharded, ShardedBatchSampler):
        sampler = sharded.batches
    else:
        return
    yield sampler
    if type(sampler) is BatchSampler:
        yield sampler.sampler


def _parts(dataset: Any) -> Iterator[Any]:
    """A dataset, and those that it is made of."""
    yield dataset
    if type(dataset) is Subset:
        yield from _parts(dataset.dataset)
    elif isinstance(dataset, Mixture):
        for source in dataset.sources:
            yield from _parts(source)
    elif type(dataset) is ConcatDataset:
        for part in dataset.datasets:
            yield from _parts(part)


def _gathered(found: Iterator[tuple[str, Any]]) -> dict[str, Any]:
    """Values by name; those of one name as a list, unless there is one alone."""
    out: dict[str, list[Any]] = {}
    for name, value in found:
        out.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in out.items()}


def _summary(indices: Any) -> str | None:
    """The first of a list of integers, its length, and a digest; None: they are no integers, which other ranks may write otherwise."""
    try:
        count = len(indices)
        values = as_positions(indices[:: _step(count)])
    except (TypeError, ValueError, OverflowError):
        return None
    first = ", ".join(str(int(each)) for each in indices[:3])
    return f"[{first}{', ...' if count > 3 else ''}], {count:,} of them with the digest {_digest(values)}"


def _step(count: int) -> int:
    return max(1, -(-count // DIGESTED))


def _digest(values: np.ndarray[Any, Any]) -> str:
    return hashlib.blake2b(np.ascontiguousarray(values).tobytes(), digest_size=6).hexdigest()
