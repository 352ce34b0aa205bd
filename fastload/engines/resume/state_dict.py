"""Implementation of a loader's state_dict() and load_state_dict(). See NOTE [ resuming: draws are made
again ]."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Protocol

from fastload.dataset.mixture import check_mixture
from fastload.engines import indices
from fastload.engines.indices import EpochState, Progress
from fastload.engines.plan import ExecutionPlan
from fastload.engines.resume.datasets import (
    DatasetState,
    check_versions,
    dataset_state_of,
    is_versions,
    packed_state,
)
from fastload.engines.settings import Settings
from fastload.errors import ArgumentError
from fastload.sampling.known import is_stateful, ranks_of, state_needs_arguments
from fastload.sampling.occurrences import counts_of
from fastload.sampling.sampler import Sharded
from fastload.sampling.sharding import advanced, process_rank

VERSION = 2
SPLITS_LIMIT = 1 << 16
"""Limit on the splits of one epoch: how often it was resumed by another number of ranks."""


class KeptWorkers(Protocol):
    """An iterator with persistent workers: their base seed, and the number of epochs that they have made."""

    @property
    def base_seed(self) -> int: ...
    @property
    def passes(self) -> int: ...


"""Version 1 had no `exhausted`, no `at` in replicas, no replicas of map-style datasets, and ended a pass
with its last batch."""
_RANK = "rank"
"""The name, beside generators' states, of the rank whose they are; states of releases before have none."""
_REPLICA = {"batches", "state", "at", "ended"}
_FIELDS: dict[str, type | tuple[type, ...]] = {
    "kind": str,
    "epoch": int,
    "batches": int,
    "samples": int,
    "position": int,
    "beyond": list,
    "seed": (int, type(None)),
    "base_seed": (int, type(None)),
    "drawn": bool,
    "passes": int,
    "start": dict,
    "now": dict,
    "sampler": dict,
    "batch_size": (int, type(None)),
    "drop_last": bool,
    "length": (int, type(None)),
    "num_workers": int,
    "replicas": list,
    "turn": int,
    "exhausted": bool,
}


def state_of(plan: ExecutionPlan, progress: Progress, kept: KeptWorkers | None) -> dict[str, Any]:
    """FastLoader.state_dict(). `kept`: the iterator whose persistent workers the next epoch uses."""
    settings = plan.settings
    if state_needs_arguments(settings.dataset):
        kind = type(settings.dataset).__name__
        warnings.warn(
            f"{kind}.state_dict() needs arguments, so the loader's state holds none of the dataset, "
            "and a resume iterates it as it is "
            "then: save what its own state_dict() returns as well, or use its library's loader under "
            "`fastload run`",
            stacklevel=3,
        )
    if progress.pending is not None:
        return _as_json(settings, indices.resumed(settings, progress.pending), progress.pending["now"])
    epoch_state = progress.epoch_state
    if epoch_state is None or epoch_state.ended:
        return _as_json(settings, _next_epoch(plan, progress, kept), {})
    if epoch_state.live is not None:
        epoch_state.place(0, epoch_state.live())
    began = epoch_state.batches or epoch_state.position or epoch_state.beyond
    batches = epoch_state.index_batches
    epoch_state.exhausted = batches is not None and batches.exhausted(_index_length(settings))
    return _as_json(settings, epoch_state, indices.capture_now(settings, epoch_state) if began else {})


def _next_epoch(plan: ExecutionPlan, progress: Progress, kept: KeptWorkers | None) -> EpochState:
    """State of the epoch that the next iter() would begin, with the states of dataset copies that outlive
    an epoch."""
    settings, previous = plan.settings, progress.epoch_state
    epoch_state = indices.fresh(
        settings, progress.next_epoch, base_drawn=plan.draws_base_seed, kept=kept is not None
    )
    if kept is not None:
        epoch_state.base_seed, epoch_state.passes = kept.base_seed, kept.passes
        if previous is not None:
            epoch_state.replicas = [DatasetState(state=each.state) for each in previous.replicas]
    elif previous is not None and previous.live is not None:
        epoch_state.replicas = [DatasetState(state=previous.live().state)]
    elif plan.engine == "caller" and not settings.iterable and is_stateful(settings.dataset):
        epoch_state.replicas = [dataset_state_of(settings.dataset)]
    return epoch_state


def _index_length(settings: Settings) -> int | None:
    try:
        return len(settings.index_sampler)
    except (TypeError, NotImplementedError):
        return None


def _as_json(settings: Settings, epoch_state: EpochState, now: dict[str, Any]) -> dict[str, Any]:
    sampler = dict(epoch_state.sampler)
    if (
        epoch_state.index_batches is not None
        and (state := epoch_state.index_batches.state(epoch_state.exhausted)) is not None
    ):
        sampler["state"] = state
    rank = process_rank(settings.shard)[0] if epoch_state.rank is None else epoch_state.rank
    whose = {_RANK: rank} if epoch_state.start else {}
    follow = epoch_state.batches or any(each.state is not None for each in epoch_state.replicas)
    return {
        "version": VERSION,
        "kind": _kind(settings),
        "epoch": epoch_state.epoch,
        "batches": epoch_state.batches,
        "samples": epoch_state.samples,
        "position": epoch_state.position,
        "beyond": sorted(epoch_state.beyond),
        "seed": settings.seed,
        "base_seed": epoch_state.base_seed,
        "drawn": epoch_state.drawn,
        "passes": epoch_state.passes,
        "start": indices.packed_states(epoch_state.start) | whose,
        "now": indices.packed_states(now),
        "sampler": copy.deepcopy(sampler),
        "batch_size": settings.rows,
        "drop_last": bool(settings.drop_last),
        "length": _length(settings),
        "num_workers": settings.num_workers,
        "replicas": [copy.deepcopy(asdict(each)) for each in epoch_state.replicas if follow],
        "turn": epoch_state.turn if epoch_state.batches else 0,
        "exhausted": epoch_state.exhausted,
        **_counts_of(epoch_state),
        **packed_state(settings.dataset),
        **(
            {}
            if settings.order.sharded is None
            else rank_state(settings, settings.order.sharded, epoch_state)
        ),
    }


def _counts_of(epoch_state: EpochState) -> dict[str, Any]:
    """The entry with the counts of occurrences, if the sampler is not drawn again. See NOTE [ occurrences:
    an index that comes again ]."""
    batches = epoch_state.index_batches
    found = epoch_state.counts if batches is None else batches.counts()
    return {} if found is None else {"occurrences": found}


def _kind(settings: Settings) -> str:
    return "iterable" if settings.iterable else "map"


def _length(settings: Settings) -> int | None:
    return (
        len(settings.dataset) if _kind(settings) == "map" and hasattr(settings.dataset, "__len__") else None
    )


def load(settings: Settings, progress: Progress, state: dict[str, Any]) -> None:
    """FastLoader.load_state_dict(): checks a state, and keeps it for the next epoch to begin with.

    Raises:
        ArgumentError: see FastLoader.load_state_dict.
    """
    if state:
        state = _checked(state)
        check_mixture(settings.dataset, state["mixture"])
        _check_fits(settings, state)
        _check_generators(settings, state)
        _check_counts(settings, state)
    progress.epoch_state = None
    progress.pending = state or None
    if not state:
        return
    if state["mixture"] is not None:
        settings.dataset.restore(state["mixture"])
    progress.next_epoch = state["epoch"]
    sampler = settings.order.deciding
    if state["sampler"].get("epoch") is not None and callable(getattr(sampler, "set_epoch", None)):
        sampler.set_epoch(state["sampler"]["epoch"])
    if (
        state["batches"]
        and state["kind"] == "iterable"
        and not any(each["state"] or each["ended"] for each in state["replicas"])
    ):
        warnings.warn(
            f"the dataset has no state_dict() and load_state_dict(): to resume, {state['batches']} "
            "batches of samples are made and dropped",
            stacklevel=3,
        )


def _checked(state: dict[str, Any]) -> dict[str, Any]:
    """Checks that a state has the form of state_dict()'s, and returns it with the generators unpacked."""
    if not isinstance(state, dict) or "version" not in state:
        raise ArgumentError("this is no state of a FastLoader: load what state_dict() of one gave")
    if state["version"] != VERSION:
        raise ArgumentError(
            f"the state has version {state['version']!r}, and this release reads version {VERSION}: "
            "load it with the release that saved it"
        )
    for name, kind in _FIELDS.items():
        if not isinstance(state.get(name, ...), kind):
            raise _damaged(f"{name} is {state.get(name)!r}")
    for name in ("epoch", "batches", "samples", "position", "passes", "turn"):
        if state[name] < 0:
            raise _damaged(f"{name} is {state[name]}")
    if not all(isinstance(number, int) for number in state["beyond"]):
        raise _damaged(f"beyond is {state['beyond']!r}")
    if not all(isinstance(each, dict) and each.keys() == _REPLICA for each in state["replicas"]):
        raise _damaged("replicas has other keys")
    if not is_versions(state.get("packed", [])):
        raise _damaged("packed is no list of versions")
    if not is_split(state.get("split")):
        raise _damaged("split is not how ranks went through an epoch")
    rank = state["start"].get(_RANK)
    if not isinstance(rank, int | None):
        raise _damaged(f"the rank of its generators is {rank!r}")
    if state["turn"] >= max(1, len(state["replicas"])):
        raise _damaged(f"turn is {state['turn']} of {len(state['replicas'])}")
    try:
        start = {name: value for name, value in state["start"].items() if name != _RANK}
        unpacked = {"start": indices.unpacked_states(start), "now": indices.unpacked_states(state["now"])}
    except (ValueError, TypeError, IndexError) as error:
        raise _damaged(f"its generators cannot be read ({error})") from error
    optional = {
        "packed": state.get("packed", []),
        "mixture": state.get("mixture"),
        "split": state.get("split"),
        "rank": rank,
    }
    optional["counts"] = state.get("occurrences")
    kept = {name: state[name] for name in _FIELDS if name not in unpacked} | optional
    return {**copy.deepcopy(kept), **unpacked}


def _check_counts(settings: Settings, state: dict[str, Any]) -> None:
    if state["counts"] is not None:
        try:
            counts_of(state["counts"], indices.dataset_length(settings.dataset) or 0)
        except ValueError as error:
            raise _damaged(str(error)) from None


def _check_generators(settings: Settings, state: dict[str, Any]) -> None:
    try:
        for name in ("start", "now"):
            indices.check_generators(settings, state[name])
    except ArgumentError:
        raise
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise _damaged(f"its generators cannot be read ({error})") from error


def _damaged(what: str) -> ArgumentError:
    return ArgumentError(f"the state is damaged: {what}. Load what state_dict() gave, unchanged")


def _check_fits(settings: Settings, state: dict[str, Any]) -> None:
    """Raises ArgumentError for a state of mid-epoch whose count of batches would mean something else to
    this loader."""
    ours: dict[str, Any] = {"kind": _kind(settings)}
    if state["batches"] or state["position"] or state["beyond"]:
        check_versions(settings.dataset, state["packed"])
        check_split(settings, state)
        ours |= {
            "batch_size": settings.rows,
            "drop_last": bool(settings.drop_last),
            "length": _length(settings),
        }
        if (
            settings.order.sharded is not None
            and settings.order.sharded is not settings.index_sampler
            and not state["beyond"]
        ):
            del ours["batch_size"]  # samples of ranks are counted, not batches
        ours["seed"] = settings.seed
        name = type(settings.order.deciding).__name__
        if state["sampler"].get("name") != name:
            raise ArgumentError(
                f"the state was taken in mid-epoch of a {state['sampler'].get('name')}, this loader "
                f"has a {name}: {_SAME}"
            )
        _check_ranks(name, state["sampler"], ranks_of(settings.order.deciding))
    for name, value in ours.items():
        if state[name] != value:
            raise ArgumentError(
                f"the state was taken in mid-epoch with {_NAMES[name]} {state[name]!r}, this loader "
                f"has {value!r}: {_SAME}"
            )
    if (
        ours["kind"] == "map"
        and not is_stateful(settings.dataset)
        and any(each["state"] for each in state["replicas"])
    ):
        raise ArgumentError(
            f"the state holds one of the dataset, and {type(settings.dataset).__name__} has no "
            "load_state_dict() that takes it: "
            "resume with the dataset's class that the state was taken with"
        )
    if state["replicas"] and len(state["replicas"]) != max(1, settings.num_workers):
        raise ArgumentError(
            f"the state holds where the dataset stood in {state['num_workers']} workers, and this loader has "
            f"num_workers={settings.num_workers}: each worker's copy goes on from a state of its "
            f"own, so {_SAME} number"
        )


def _check_ranks(name: str, theirs: Mapping[str, Any], ours: Mapping[str, int | None]) -> None:
    """Checks that a user's DistributedSampler shares out samples as that of a state of mid-epoch; older
    states do not say how."""
    for what, number in ours.items():
        if what in theirs and theirs[what] != number:
            taken, now = (f"{'none' if each is None else each} {what}" for each in (theirs[what], number))
            raise ArgumentError(
                f"the state was taken in mid-epoch of a {name} for {taken}, this loader's is for "
                f"{now}, and one rank's position does not "
                "say what others had: resume with as many, or train with shard=, whose states go on "
                "with any number of ranks"
            )


_SAME = "resume with the same"
_NAMES = {
    "kind": "dataset kind",
    "batch_size": "batch_size",
    "drop_last": "drop_last",
    "length": "dataset length",
    "seed": "seed",
}


# ---- under shard=: see NOTE [ splits: states without a rank ]


def rank_state(settings: Settings, sharded: Sharded, epoch_state: EpochState) -> dict[str, Any]:
    """Entries of a state that differ under shard=: no entry is about one rank."""
    size, least = _batch(settings)
    samples = (epoch_state.position - epoch_state.split_at) * size
    count = sharded.length
    rest = count - sharded.begun(epoch_state.sampler["epoch"], count, epoch_state.splits)
    splits, over = advanced(epoch_state.splits, rest, sharded.rule, samples, least)
    # in_order=False: what this rank had ahead of others.
    ahead = {"rank": sharded.rank} if epoch_state.beyond else {}
    return {
        "split": {
            "order": sharded.kind,
            "rule": sharded.rule,
            "ranks": [[each.world, each.had] for each in splits],
            **ahead,
        },
        "batches": epoch_state.position + len(epoch_state.beyond),
        "samples": sum(each.had for each in splits),
        "exhausted": epoch_state.exhausted or (over and epoch_state.position > 0 and not epoch_state.beyond),
        "base_seed": None,
    }


def is_split(split: object) -> bool:
    """Returns True if a value has the form of a state's "split"."""
    if split is None:
        return True
    if (
        not isinstance(split, dict)
        or not isinstance(split.get("order"), str)
        or not isinstance(split.get("rule"), str)
    ):
        return False
    ranks, rank = split.get("ranks"), split.get("rank", 0)
    return (
        isinstance(ranks, list)
        and len(ranks) <= SPLITS_LIMIT
        and all(map(_is_pair, ranks))
        and isinstance(rank, int)
    )


def check_split(settings: Settings, state: dict[str, Any]) -> None:
    """Checks that a state of mid-epoch, under shard= or not, fits a loader.

    Raises:
        ArgumentError: it was taken under another order, or goes on with as many ranks only.
    """
    split, sharded = state["split"], settings.order.sharded
    if split is None and sharded is not None:
        raise ArgumentError(
            "the state was taken in mid-epoch without shard=, this loader has it: resume without it as well"
        )
    if split is not None and sharded is None:
        raise ArgumentError(
            "the state was taken in mid-epoch with shard=, this loader has none: resume with shard=, "
            "on any number of ranks"
        )
    if split is None or sharded is None:
        return
    for name, theirs, ours in (
        ("shuffle", split["order"], sharded.kind),
        ("drop_last and even", split["rule"], sharded.rule),
    ):
        if theirs != ours:
            raise ArgumentError(
                f"the state was taken in mid-epoch with another {name} ({theirs!r}, this loader has "
                f"{ours!r}): resume with the same"
            )
    ours_packed = packed_state(settings.dataset).get("packed", [])
    if [digest for _, digest in state["packed"]] != [digest for _, digest in ours_packed]:
        raise ArgumentError(
            "the state was taken in mid-epoch of another packed dataset, with other samples: resume "
            "with that one"
        )
    sharded.find_rank()
    world = split["ranks"][-1][0] if split["ranks"] else sharded.num_replicas
    if world != sharded.num_replicas and any(each["state"] for each in state["replicas"]):
        raise ArgumentError(
            f"the state holds one of the dataset, which each of {world} ranks has another one of, "
            "and there are now "
            f"{sharded.num_replicas}: resume with as many ranks, each with its own state"
        )
    if state["beyond"] and (world, split.get("rank")) != (sharded.num_replicas, sharded.rank):
        raise ArgumentError(
            f"the state was taken with in_order=False, when rank {split.get('rank')} of {world} had "
            "batches ahead of its turn, and this is "
            f"rank {sharded.rank} of {sharded.num_replicas}: resume with as many ranks, each with "
            "its own state, or save with in_order=True"
        )


def _batch(settings: Settings) -> tuple[int, int]:
    """(most, least) samples of the order for which one index of the index sampler stands."""
    index = settings.index_sampler
    if index is settings.order.sharded:
        return 1, 1
    return index.batch_size, index.batch_size if index.drop_last else 1


def _is_pair(pair: object) -> bool:
    return (
        isinstance(pair, list)
        and len(pair) == 2
        and all(type(number) is int for number in pair)
        and pair[0] > 0 <= pair[1]
    )
