"""The beginning of a pass: its generators captured, or set to where a loaded state has them.

NOTE [ resuming: draws are made again ]
A pass's order is what its sampler draws from the generators as they were when the pass began. So a state holds those generators' states,
and how many batches the user has had. To resume, the generators are set to that, everything is drawn in the same sequence (iter() of the
sampler, base seed, indices), and the index batches that the user has had are dropped before anything is read. What was prefetched is not in
the state, so a resume may prefetch otherwise. torch's global generator serves the model as well; where nothing of the pass will be drawn
from it any more, it is set, after that, to what it was when the state was taken.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler, _DatasetKind
from torch.utils.data.dataloader import _BaseDataLoaderIter, _InfiniteConstantSampler
from torch.utils.data.distributed import DistributedSampler

from fastload.errors import ArgumentError
from fastload.execution.settings import Settings
from fastload.resume.dataset_state import DatasetState, is_stateful, load_at_start
from fastload.resume.epoch_state import EpochState, IndexBatches, Progress

_DRAWS_NOTHING = (SequentialSampler, DistributedSampler, _InfiniteConstantSampler)
_DRAWS_FIRST = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)
"""Without a generator of their own, these draw from torch's global one at their first pull only."""


def begin(settings: Settings, progress: Progress, epoch: int, *, base_drawn: bool = True, kept: bool = False) -> EpochState:
    """State of the epoch that begins now: resumed if a state was loaded for it, else fresh.

    Args:
        settings: the loader's.
        progress: the loader's; it notes the result.
        epoch: its number.
        base_drawn: the epoch will draw a base seed.
        kept: persistent workers of an earlier epoch go on, with the base seed that was drawn then.
    """
    state, progress.pending = progress.pending, None
    previous = progress.epoch_state
    if state is None or state["epoch"] != epoch:
        progress.epoch_state = epoch_state = fresh(settings, epoch, base_drawn=base_drawn, kept=kept)
        epoch_state.rewind = previous is not None and previous.resumed and previous.batches == previous.first
        return epoch_state
    progress.epoch_state = epoch_state = resumed(state)
    if epoch_state.replicas and settings.num_workers == 0:  # first: a dataset's state may hold that of a generator
        load_at_start(epoch_state.replicas[0], settings.dataset, lambda: _fetcher(settings))
    set_generators(settings, epoch_state.start)
    _load_sampler(settings, epoch_state)
    return epoch_state


def _fetcher(settings: Settings) -> Any:
    return _DatasetKind.create_fetcher(  # type: ignore[no-untyped-call]
        settings.kind, settings.dataset, settings.auto_collation, settings.collate_fn, settings.drop_last
    )


def fresh(settings: Settings, epoch: int, *, base_drawn: bool = True, kept: bool = False) -> EpochState:
    """State of an epoch of which nothing was pulled yet. See begin()."""
    sampler = innermost(settings)
    position = {"name": type(sampler).__name__, "epoch": getattr(sampler, "epoch", None)}
    stateful = _stateful(settings)
    if stateful is not None:
        position["state"] = stateful.state_dict()
    return EpochState(epoch=epoch, start=capture(settings, base_drawn), drawn=not kept, sampler=position)


def resumed(state: dict[str, Any]) -> EpochState:
    """State of an epoch that goes on from a loaded state."""
    return EpochState(
        epoch=state["epoch"],
        start=state["start"],
        now=state["now"],
        resumed=True,
        drawn=state["drawn"],
        base_seed=state["base_seed"],
        passes=state["passes"],
        sampler=state["sampler"],
        batches=state["batches"],
        samples=state["samples"],
        position=state["position"],
        beyond=set(state["beyond"]),
        replicas=[DatasetState(**each) for each in state["replicas"]],
        turn=state["turn"],
        exhausted=state["exhausted"],
        first=state["batches"],
        rewind=not state["batches"],
    )


def _load_sampler(settings: Settings, epoch_state: EpochState) -> None:
    sampler = _stateful(settings)
    if sampler is not None and epoch_state.sampler.get("state") is not None:
        sampler.load_state_dict(epoch_state.sampler["state"])


def follow(settings: Settings, epoch_state: EpochState, indices: Iterator[Any]) -> IndexBatches:
    """The epoch's index batches from its position on. Afterwards the generators are as they were when the state was taken."""
    sampler = _stateful(settings)
    told: Callable[[], Any] | None = None
    again: Callable[[], Iterator[Any]] | None = None
    if sampler is not None and (not epoch_state.resumed or epoch_state.sampler.get("state") is not None):
        told = sampler.state_dict
        again = partial(iter, settings.index_sampler)
    index_batches = IndexBatches(epoch_state, indices, told, again)
    set_generators(settings, epoch_state.now)
    return index_batches


def attach(iterator: Any, arguments: Any, settings: Settings, epoch_state: EpochState, replicas: int = 0) -> None:
    """Sets an iterator of torch's kind, new or reset, to an epoch that has begun.

    Args:
        iterator: the iterator.
        arguments: what torch's iterator class reads of a loader.
        settings: the loader's.
        epoch_state: of the epoch.
        replicas: copies of the dataset whose states are followed.
    """
    if epoch_state.resumed and not epoch_state.drawn:  # the base class has drawn a base seed all the same
        set_generators(settings, epoch_state.start)
        _load_sampler(settings, epoch_state)
        _BaseDataLoaderIter._reset(iterator, arguments)
    if epoch_state.resumed and epoch_state.base_seed is not None:
        iterator._base_seed = epoch_state.base_seed
    epoch_state.base_seed = int(iterator._base_seed)
    iterator._num_yielded = epoch_state.batches
    if replicas and not epoch_state.replicas:
        epoch_state.replicas = [DatasetState() for _ in range(replicas)]
    settings.seed_order(epoch_state.epoch)  # a seed decides the order whether or not a base seed was drawn
    iterator._sampler_iter = follow(settings, epoch_state, iterator._sampler_iter)


def innermost(settings: Settings) -> Any:
    """The sampler whose draws decide the order."""
    index = settings.index_sampler
    return index.sampler if type(index) is BatchSampler else index


def _stateful(settings: Settings) -> Any:
    sampler = innermost(settings)
    return sampler if is_stateful(sampler) else None


def _iterates_as(sampler: Any, kinds: tuple[type[Any], ...]) -> bool:
    return any(type(sampler).__iter__ is kind.__iter__ for kind in kinds)


def _generators(settings: Settings, base_drawn: bool) -> dict[str, torch.Generator]:
    """The generators that a pass draws from, by name: "default" is torch's global one."""
    if settings.ordered_by_seed:
        return {}  # seeded for every epoch
    found: list[Any] = [settings.generator or torch.default_generator] if base_drawn else []
    sampler = innermost(settings)
    own = [getattr(each, "generator", None) for each in (sampler, getattr(sampler, "sampler", None))]
    found += own
    if not _iterates_as(sampler, _DRAWS_NOTHING) and not any(own):
        found.append(torch.default_generator)
    out: dict[str, torch.Generator] = {}
    for each in found:
        if isinstance(each, torch.Generator):
            name = "loader" if each is settings.generator else "default" if each is torch.default_generator else "sampler"
            out[name] = each
    return out


def capture(settings: Settings, base_drawn: bool) -> dict[str, Any]:
    """The state of every generator that the next pass draws from; with a sampler of unknown ways also those of random and NumPy."""
    out: dict[str, Any] = {name: each.get_state() for name, each in _generators(settings, base_drawn).items()}
    sampler = innermost(settings)
    if not _iterates_as(sampler, _DRAWS_NOTHING + _DRAWS_FIRST) and not is_stateful(sampler):
        out["random"] = random.getstate()
        out["numpy"] = np.random.get_state()
    return out


def capture_now(settings: Settings, epoch_state: EpochState) -> dict[str, Any]:
    """torch's global generator as it is, if the rest of the epoch draws nothing from it."""
    sampler = innermost(settings)
    settled = _iterates_as(sampler, _DRAWS_NOTHING + _DRAWS_FIRST) or is_stateful(sampler)
    if "default" not in epoch_state.start or not settled or getattr(sampler, "generator", None) is torch.default_generator:
        return {}
    return {"default": torch.default_generator.get_state()}


def set_generators(settings: Settings, states: dict[str, Any]) -> None:
    """Sets generators to captured states."""
    known = _known(settings) if states else {}
    for name, state in states.items():
        if name == "random":
            random.setstate(state)
        elif name == "numpy":
            np.random.set_state(state)
        else:
            known[name].set_state(state)


def check_generators(settings: Settings, states: dict[str, Any]) -> None:
    """Tries captured states out.

    Raises:
        ArgumentError: one is of a generator that this loader has not.
        RuntimeError, ValueError, TypeError: one is no state of its generator.
    """
    known = _known(settings)
    for name, state in states.items():
        if name == "random":
            random.Random().setstate(state)
        elif name == "numpy":
            np.random.RandomState().set_state(state)
        elif name in known:
            torch.Generator(known[name].device).set_state(state)
        else:
            whose = "generator=" if name == "loader" else "a sampler that has a generator"
            raise ArgumentError(f"the state was taken with {whose}, which this loader lacks: make it with one as well")


def _known(settings: Settings) -> dict[str, torch.Generator]:
    return {"default": torch.default_generator, **_generators(settings, True)}


def packed_states(states: dict[str, Any]) -> dict[str, Any]:
    """Captured states as JSON holds them."""
    out: dict[str, Any] = {}
    for name, state in states.items():
        if name == "random":
            out[name] = [state[0], _text(np.array(state[1], "<u4")), state[2]]
        elif name == "numpy":
            out[name] = [_text(np.asarray(state[1], "<u4")), *state[2:]]
        else:
            out[name] = _text(state.numpy())
    return out


def unpacked_states(states: dict[str, Any]) -> dict[str, Any]:
    """What packed_states() was made from."""
    out: dict[str, Any] = {}
    for name, state in states.items():
        if name == "random":
            out[name] = (state[0], tuple(_array(state[1], "<u4").tolist()), state[2])
        elif name == "numpy":
            out[name] = ("MT19937", _array(state[0], "<u4").astype(np.uint32), *state[1:])
        else:
            out[name] = torch.from_numpy(_array(state, "u1").copy())
    return out


def _text(array: np.ndarray[Any, Any]) -> str:
    return base64.b64encode(array.tobytes()).decode()


def _array(text: str, dtype: str) -> np.ndarray[Any, Any]:
    return np.frombuffer(base64.b64decode(text, validate=True), dtype)
