"""Comparison of ranks as a pass begins: all that its order follows from. See NOTE [ agreement: no rank waits for another ].

States under shard=: the same on every rank, and loaded by any number of ranks. See NOTE [ splits: states without a rank ].
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import distributed
from torch.utils.data import BatchSampler, ConcatDataset, RandomSampler, Subset, SubsetRandomSampler, WeightedRandomSampler

from fastload.common.positions import as_positions
from fastload.dataset.mixture import Mixture
from fastload.engines.resume.position import EpochState, packed_state
from fastload.engines.settings import Settings
from fastload.errors import ArgumentError
from fastload.sampling.buckets import BucketBatchSampler
from fastload.sampling.sampler import Sharded, ShardedBatchSampler, ShardedSampler
from fastload.sampling.sharding import Split, advanced

SPLITS_LIMIT = 1 << 16
"""Limit on the splits of one epoch: how often it was resumed by another number of ranks."""
_UNKNOWN = 1 << 62
"""Length of an order whose sampler has none."""


def rank_state(settings: Settings, sharded: Sharded, epoch_state: EpochState) -> dict[str, Any]:
    """Entries of a state that differ under shard=: no entry is about one rank."""
    size, least = _batch(settings)
    samples = (epoch_state.position - epoch_state.split_at) * size
    count = length_of(sharded)
    rest = count - sharded.begun(epoch_state.sampler["epoch"], count, epoch_state.splits)
    splits, over = advanced(epoch_state.splits, rest, sharded.rule, samples, least)
    ahead = {"rank": sharded.rank} if epoch_state.beyond else {}  # in_order=False: what this rank had ahead of others
    return {
        "split": {"order": sharded.kind, "rule": sharded.rule, "ranks": [[each.world, each.had] for each in splits], **ahead},
        "batches": epoch_state.position + len(epoch_state.beyond),
        "samples": sum(each.had for each in splits),
        "exhausted": epoch_state.exhausted or (over and epoch_state.position > 0 and not epoch_state.beyond),
        "base_seed": None,
    }


def splits_of(state: dict[str, Any]) -> tuple[Split, ...]:
    """The splits that a state holds; none if it was not taken under shard=."""
    return tuple(Split(world, had) for world, had in state["split"]["ranks"]) if state.get("split") else ()


def is_split(split: Any) -> bool:
    """Returns True if a value has the form of a state's "split"."""
    if split is None:
        return True
    if not isinstance(split, dict) or not isinstance(split.get("order"), str) or not isinstance(split.get("rule"), str):
        return False
    ranks, rank = split.get("ranks"), split.get("rank", 0)
    return isinstance(ranks, list) and len(ranks) <= SPLITS_LIMIT and all(map(_is_pair, ranks)) and isinstance(rank, int)


def check_split(settings: Settings, state: dict[str, Any]) -> None:
    """Checks that a state of mid-epoch, under shard= or not, fits a loader.

    Raises:
        ArgumentError: it was taken under another order, or goes on with as many ranks only.
    """
    split, sharded = state["split"], settings.sharded
    if (split is None) != (sharded is None):
        raise ArgumentError(
            "the state was taken in mid-epoch without shard=, this loader has it: resume without it as well"
            if split is None
            else "the state was taken in mid-epoch with shard=, this loader has none: resume with shard=, on any number of ranks"
        )
    if split is None or sharded is None:
        return
    for name, theirs, ours in (("shuffle", split["order"], sharded.kind), ("drop_last and even", split["rule"], sharded.rule)):
        if theirs != ours:
            raise ArgumentError(
                f"the state was taken in mid-epoch with another {name} ({theirs!r}, this loader has {ours!r}): resume with the same"
            )
    ours_packed = packed_state(settings.dataset).get("packed", [])
    if [digest for _, digest in state["packed"]] != [digest for _, digest in ours_packed]:
        raise ArgumentError("the state was taken in mid-epoch of another packed dataset, with other samples: resume with that one")
    sharded.find_rank()
    world = split["ranks"][-1][0] if split["ranks"] else sharded.num_replicas
    if world != sharded.num_replicas and any(each["state"] for each in state["replicas"]):
        raise ArgumentError(
            f"the state holds one of the dataset, which each of {world} ranks has another one of, and there are now "
            f"{sharded.num_replicas}: resume with as many ranks, each with its own state"
        )
    if state["beyond"] and (world, split.get("rank")) != (sharded.num_replicas, sharded.rank):
        raise ArgumentError(
            f"the state was taken with in_order=False, when rank {split.get('rank')} of {world} had batches ahead of its turn, and this is "
            f"rank {sharded.rank} of {sharded.num_replicas}: resume with as many ranks, each with its own state, or save with in_order=True"
        )


def _batch(settings: Settings) -> tuple[int, int]:
    """(most, least) samples of the order for which one index of the index sampler stands."""
    index = settings.index_sampler
    if index is settings.sharded:
        return 1, 1
    return index.batch_size, index.batch_size if index.drop_last else 1


def length_of(sharded: Sharded) -> int:
    """Length of what ranks share out; a number beyond any if its sampler has none."""
    try:
        return sharded.count
    except (TypeError, NotImplementedError):
        return _UNKNOWN


def _is_pair(pair: Any) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and all(type(number) is int for number in pair) and pair[0] > 0 <= pair[1]


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
    """Properties from which the user's sampler, and those inside it, draw, as far as their classes are known here."""
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
