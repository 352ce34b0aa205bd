"""A loader's state_dict() and load_state_dict(). See NOTE [ resuming: draws are made again ]."""

from __future__ import annotations

import copy
import warnings
from dataclasses import asdict
from typing import Any

from torch.utils.data import _DatasetKind

from fastload.errors import ArgumentError
from fastload.resume import epoch_start
from fastload.resume.dataset_state import DatasetState, dataset_state_of, is_stateful
from fastload.resume.epoch_state import EpochState

VERSION = 2
"""Version 1 had no `exhausted`, no `at` in replicas, none of map-style datasets, and called a pass ended with its last batch."""
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


def _is_native(loader: Any) -> bool:
    data = loader._fastload.packed.data
    return data is not None and data.native is not None


def state_of(loader: Any) -> dict[str, Any]:
    """FastLoader.state_dict()."""
    if loader._fastload.pending is not None:
        return _as_json(loader, epoch_start.resumed(loader, loader._fastload.pending), loader._fastload.pending["now"])
    epoch_state = loader._fastload.epoch_state
    if epoch_state is None or epoch_state.ended:
        return _as_json(loader, _next_pass(loader, epoch_state), {})
    if epoch_state.live is not None:
        epoch_state.place(0, epoch_state.live())
    began = epoch_state.batches or epoch_state.position or epoch_state.beyond
    epoch_state.exhausted = epoch_state.index_batches is not None and epoch_state.index_batches.exhausted(_index_length(loader))
    return _as_json(loader, epoch_state, epoch_start.capture_now(loader, epoch_state) if began else {})


def _next_pass(loader: Any, previous: EpochState | None) -> EpochState:
    """State of the epoch that the next iter() would begin, with the dataset's states where its copies outlive a pass."""
    epoch_state = epoch_start.fresh(loader, loader._fastload.next_epoch, _draws_base_seed(loader))
    if not epoch_state.drawn:
        epoch_state.base_seed, epoch_state.passes = int(loader._iterator._base_seed), loader._iterator._passes
        if previous is not None:
            epoch_state.replicas = [DatasetState(state=each.state) for each in previous.replicas]
    elif previous is not None and previous.live is not None:
        epoch_state.replicas = [DatasetState(state=previous.live().state)]
    elif loader.num_workers == 0 and not _is_native(loader) and _kind(loader) == "map" and is_stateful(loader.dataset):
        epoch_state.replicas = [dataset_state_of(loader.dataset)]
    return epoch_state


def _draws_base_seed(loader: Any) -> bool:
    return not _is_native(loader) or loader._fastload.settings.seed is None


def _index_length(loader: Any) -> int | None:
    try:
        return len(loader._index_sampler)
    except (TypeError, NotImplementedError):
        return None


def _as_json(loader: Any, epoch_state: EpochState, now: dict[str, Any]) -> dict[str, Any]:
    sampler = dict(epoch_state.sampler)
    if epoch_state.index_batches is not None and (state := epoch_state.index_batches.state(epoch_state.exhausted)) is not None:
        sampler["state"] = state
    follow = epoch_state.batches or any(each.state is not None for each in epoch_state.replicas)
    return {
        "version": VERSION,
        "kind": _kind(loader),
        "epoch": epoch_state.epoch,
        "batches": epoch_state.batches,
        "samples": epoch_state.samples,
        "position": epoch_state.position,
        "beyond": sorted(epoch_state.beyond),
        "seed": loader._fastload.settings.seed,
        "base_seed": epoch_state.base_seed,
        "drawn": epoch_state.drawn,
        "passes": epoch_state.passes,
        "start": epoch_start.packed_states(epoch_state.start),
        "now": epoch_start.packed_states(now),
        "sampler": copy.deepcopy(sampler),
        "batch_size": _batch_size(loader),
        "drop_last": bool(loader.drop_last),
        "length": _length(loader),
        "num_workers": loader.num_workers,
        "replicas": [copy.deepcopy(asdict(each)) for each in epoch_state.replicas if follow],
        "turn": epoch_state.turn if epoch_state.batches else 0,
        "exhausted": epoch_state.exhausted,
    }


def _kind(loader: Any) -> str:
    return "iterable" if loader._dataset_kind == _DatasetKind.Iterable else "map"


def _batch_size(loader: Any) -> int | None:
    size = loader.batch_size if loader.batch_size is not None else getattr(loader.batch_sampler, "batch_size", None)
    return size if isinstance(size, int) else None


def _length(loader: Any) -> int | None:
    return len(loader.dataset) if _kind(loader) == "map" and hasattr(loader.dataset, "__len__") else None


def load(loader: Any, state: dict[str, Any]) -> None:
    """FastLoader.load_state_dict()."""
    if state:
        state = _checked(state)
        _check_fits(loader, state)
        _check_generators(loader, state)
    loader._iterator = None
    loader._fastload.packed.forget_ahead()
    loader._fastload.epoch_state = None
    loader._fastload.pending = state or None
    if not state:
        return
    loader._fastload.next_epoch = state["epoch"]
    sampler = epoch_start.innermost(loader)
    if state["sampler"].get("epoch") is not None and callable(getattr(sampler, "set_epoch", None)):
        sampler.set_epoch(state["sampler"]["epoch"])
    if state["batches"] and state["kind"] == "iterable" and not any(each["state"] or each["ended"] for each in state["replicas"]):
        warnings.warn(
            f"the dataset has no state_dict() and load_state_dict(): to resume, {state['batches']} batches of samples are made and dropped",
            stacklevel=3,
        )


def _checked(state: dict[str, Any]) -> dict[str, Any]:
    """A state that has the form of state_dict()'s, its generators unpacked."""
    if not isinstance(state, dict) or "version" not in state:
        raise ArgumentError("this is no state of a FastLoader: load what state_dict() of one gave")
    if state["version"] == 1:
        state = _upgraded(state)
    if state["version"] != VERSION:
        raise ArgumentError(
            f"the state has version {state['version']!r}, and this release reads versions 1 to {VERSION}: "
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
    if state["turn"] >= max(1, len(state["replicas"])):
        raise _damaged(f"turn is {state['turn']} of {len(state['replicas'])}")
    try:
        unpacked = {name: epoch_start.unpacked_states(state[name]) for name in ("start", "now")}
    except (ValueError, TypeError, IndexError) as error:
        raise _damaged(f"its generators cannot be read ({error})") from error
    return {**copy.deepcopy({name: state[name] for name in _FIELDS if name not in unpacked}), **unpacked}


def _upgraded(state: dict[str, Any]) -> dict[str, Any]:
    """A state of version 1 as one of version 2."""
    replicas = state.get("replicas")
    if isinstance(replicas, list) and all(isinstance(each, dict) for each in replicas):
        replicas = [{**each, "at": each.get("batches") if each.get("state") is not None else 0} for each in replicas]
    return {**state, "version": 2, "exhausted": False, "replicas": replicas}


def _check_generators(loader: Any, state: dict[str, Any]) -> None:
    try:
        for name in ("start", "now"):
            epoch_start.check_generators(loader, state[name])
    except ArgumentError:
        raise
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise _damaged(f"its generators cannot be read ({error})") from error


def _damaged(what: str) -> ArgumentError:
    return ArgumentError(f"the state is damaged: {what}. Load what state_dict() gave, unchanged")


def _check_fits(loader: Any, state: dict[str, Any]) -> None:
    """Refuses a state of mid-epoch whose count of batches means something else to this loader."""
    ours: dict[str, Any] = {"kind": _kind(loader)}
    if state["batches"] or state["position"] or state["beyond"]:
        ours |= {"batch_size": _batch_size(loader), "drop_last": bool(loader.drop_last), "length": _length(loader)}
        ours["seed"] = loader._fastload.settings.seed
        name = type(epoch_start.innermost(loader)).__name__
        if state["sampler"].get("name") != name:
            raise ArgumentError(f"the state was taken in mid-epoch of a {state['sampler'].get('name')}, this loader has a {name}: {_SAME}")
    for name, value in ours.items():
        if state[name] != value:
            raise ArgumentError(f"the state was taken in mid-epoch with {_NAMES[name]} {state[name]!r}, this loader has {value!r}: {_SAME}")
    if ours["kind"] == "map" and not is_stateful(loader.dataset) and any(each["state"] for each in state["replicas"]):
        raise ArgumentError(
            f"the state holds one of the dataset, and {type(loader.dataset).__name__} has no load_state_dict() that takes it: "
            "resume with the dataset's class that the state was taken with"
        )
    if state["replicas"] and len(state["replicas"]) != max(1, loader.num_workers):
        raise ArgumentError(
            f"the state holds where the dataset stood in {state['num_workers']} workers, and this loader has "
            f"num_workers={loader.num_workers}: each worker's copy goes on from a state of its own, so {_SAME} number"
        )


_SAME = "resume with the same"
_NAMES = {"kind": "dataset kind", "batch_size": "batch_size", "drop_last": "drop_last", "length": "dataset length", "seed": "seed"}
