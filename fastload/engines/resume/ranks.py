"""Comparison of ranks as a pass begins: all that its order follows from. See NOTE [ agreement: no rank waits for another ].

States under shard=: the same on every rank, and loaded by any number of ranks. See NOTE [ splits: states without a rank ].
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import distributed
from torch.utils.data import ConcatDataset, Subset

from fastload.common.positions import summary_of
from fastload.dataset.mixture import Mixture
from fastload.engines.resume.position import EpochState, packed_state
from fastload.engines.settings import Settings
from fastload.errors import ArgumentError
from fastload.sampling.known import drawn_by
from fastload.sampling.sampler import Sharded
from fastload.sampling.sharding import Split, advanced

SPLITS_LIMIT = 1 << 16
"""Limit on the splits of one epoch: how often it was resumed by another number of ranks."""
_UNKNOWN = 1 << 62
"""Length of an order whose sampler has none."""


def rank_state(settings: Settings, sharded: Sharded, epoch_state: EpochState) -> dict[str, Any]:
    """What a state has of its own, or in another way than other states, under shard=: nothing in it is about one rank."""
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
    """Whether a value has the form of a state's "split"."""
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
    """What one index of the index sampler stands for in the order: how many at most, and how many at least."""
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
        **_gathered(drawn_by(sharded, epoch_state.start.get("default"))),
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
        if type(each) is Subset and (told := summary_of(each.indices)) is not None:
            yield "a Subset with the indices", told


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
