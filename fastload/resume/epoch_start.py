"""Start of a pass: random generators are captured, or set to the states that a loaded state holds.

NOTE [ resuming: draws are made again ]
The order of a pass is what its sampler draws from the generators' states at the beginning of the pass. So a saved state holds these states
and the number of batches already returned to the caller. To resume, the generators are set to them, and everything is drawn again in the
same sequence (iter() of the sampler, base seed, indices). The index batches of returned batches are dropped before anything is read.
Prefetched batches are not in the state, so a resumed pass may prefetch more or less. The model too uses torch's global generator: if the
rest of the pass draws nothing from it, it is set, after these draws, to the state that it had when the saved state was taken.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, _DatasetKind
from torch.utils.data.dataloader import _BaseDataLoaderIter

from fastload.errors import ArgumentError
from fastload.execution.settings import Settings
from fastload.mixture import Mixture
from fastload.order import Sharded
from fastload.resume.dataset_state import DatasetState, load_at_start
from fastload.resume.epoch_state import EpochState, IndexBatches, Progress
from fastload.resume.rank_agreement import begin_agreement
from fastload.resume.rank_states import splits_of


def begin(settings: Settings, progress: Progress, epoch: int, *, base_drawn: bool = True, kept: bool = False) -> EpochState:
    """State of the epoch that begins now: resumed if a state was loaded for it, else fresh.

    Args:
        settings: the loader's settings.
        progress: the loader's progress, whose epoch_state is set to the result.
        epoch: the epoch's number.
        base_drawn: whether the epoch will draw a base seed.
        kept: whether persistent workers of an earlier epoch continue, with the base seed that was drawn then.
    """
    if isinstance(settings.dataset, Mixture):
        settings.dataset.set_epoch(epoch)
    state, progress.pending = progress.pending, None
    previous = progress.epoch_state
    if state is None or state["epoch"] != epoch:
        progress.epoch_state = epoch_state = fresh(settings, epoch, base_drawn=base_drawn, kept=kept)
        epoch_state.rewind = previous is not None and previous.resumed and previous.batches == previous.first
        _begin_part(settings, epoch_state)
        return epoch_state
    progress.epoch_state = epoch_state = resumed(state)
    _begin_part(settings, epoch_state)
    if epoch_state.replicas and settings.num_workers == 0:  # before set_generators: a dataset's state may contain the state of a generator
        load_at_start(epoch_state.replicas[0], settings.dataset, lambda: _fetcher(settings))
    set_generators(settings, epoch_state.start)
    _load_sampler(settings, epoch_state)
    return epoch_state


def _begin_part(settings: Settings, epoch_state: EpochState) -> None:
    sharded = _sharded(settings)
    if sharded is not None:
        epoch_state.splits = sharded.continued(epoch_state.splits)
        sharded.begin(epoch_state.sampler["epoch"])
        begin_agreement(settings, sharded, epoch_state)


def _fetcher(settings: Settings) -> Any:
    return _DatasetKind.create_fetcher(  # type: ignore[no-untyped-call]
        settings.kind, settings.dataset, settings.auto_collation, settings.collate_fn, settings.drop_last
    )


def fresh(settings: Settings, epoch: int, *, base_drawn: bool = True, kept: bool = False) -> EpochState:
    """State of an epoch that begins at its first batch. See begin()."""
    sampler, sharded = innermost(settings), _sharded(settings)
    its_epoch = getattr(sampler, "epoch", None) if sharded is None else sharded.epoch_of(epoch)
    position = {"name": type(sampler).__name__, "epoch": its_epoch}
    stateful = _stateful(settings)
    if stateful is not None:
        position["state"] = stateful.state_dict()
    splits = () if sharded is None else sharded.continued(())
    return EpochState(epoch=epoch, start=capture(settings, base_drawn), drawn=not kept, sampler=position, splits=splits)


def resumed(state: dict[str, Any]) -> EpochState:
    """State of an epoch that continues from a loaded state."""
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
        splits=splits_of(state),
        split_at=state["position"],
    )


def _load_sampler(settings: Settings, epoch_state: EpochState) -> None:
    sampler = _stateful(settings)
    if sampler is not None and epoch_state.sampler.get("state") is not None:
        sampler.load_state_dict(epoch_state.sampler["state"])


def follow(settings: Settings, epoch_state: EpochState, indices: Iterator[Any], skipped: Callable[[Any], object] = id) -> IndexBatches:
    """The epoch's index batches from its position on. Then sets the generators as they were when the state was taken.

    `skipped` is called with each batch before that position. Under shard= the indices are not the sampler's own iterator's: they are bound
    to the epoch and to what was had of it, whatever the sampler is told meanwhile. A generator of the loader's own is seeded at the first
    draw, so that two passes of different epochs can begin before either draws.
    """
    if (sharded := _sharded(settings)) is not None:
        indices = _part_of(settings, sharded, epoch_state)
    if settings.own_generator:
        indices = _seeded(settings, epoch_state.epoch, indices)
    sampler = _stateful(settings)
    get_state: Callable[[], Any] | None = None
    again: Callable[[], Iterator[Any]] | None = None
    if sampler is not None and (not epoch_state.resumed or epoch_state.sampler.get("state") is not None):
        get_state = sampler.state_dict
        again = partial(iter, settings.index_sampler)
    index_batches = IndexBatches(epoch_state, indices, get_state, again, skipped)
    set_generators(settings, epoch_state.now)
    return index_batches


def _seeded(settings: Settings, epoch: int, indices: Iterator[Any]) -> Iterator[Any]:
    settings.seed_order(epoch)
    yield from indices


def attach(iterator: Any, arguments: Any, settings: Settings, epoch_state: EpochState, replicas: int = 0) -> None:
    """Sets an iterator derived from torch's, new or reset, to an epoch that has begun.

    Args:
        iterator: the iterator.
        arguments: the attributes of a loader that torch's iterator class reads.
        settings: the loader's settings.
        epoch_state: the epoch's state.
        replicas: number of copies of the dataset whose states are tracked.
    """
    if epoch_state.resumed and not epoch_state.drawn:  # the base class drew a base seed, which this pass must not
        set_generators(settings, epoch_state.start)
        _load_sampler(settings, epoch_state)
        _BaseDataLoaderIter._reset(iterator, arguments)
    elif epoch_state.drawn and settings.num_workers:
        iterator._sampler_iter = iterated_again(settings, epoch_state)
    if epoch_state.resumed and epoch_state.base_seed is not None:
        iterator._base_seed = epoch_state.base_seed
    epoch_state.base_seed = int(iterator._base_seed)
    iterator._num_yielded = epoch_state.batches
    if replicas and not epoch_state.replicas:
        epoch_state.replicas = [DatasetState() for _ in range(replicas)]
    iterator._sampler_iter = follow(settings, epoch_state, iterator._sampler_iter)


def iterated_again(settings: Settings, epoch_state: EpochState) -> Iterator[Any]:
    """The second iterator of the sampler that torch's DataLoader makes for new workers, after their base seed; it drops the first one."""
    if epoch_state.resumed:
        _load_sampler(settings, epoch_state)
    return iter(settings.index_sampler)


def innermost(settings: Settings) -> Any:
    """The sampler that decides the order."""
    return settings.order.deciding


def _sharded(settings: Settings) -> Sharded | None:
    sampler = innermost(settings)
    return sampler if isinstance(sampler, Sharded) else None


def _part_of(settings: Settings, sharded: Sharded, epoch_state: EpochState) -> Iterator[Any]:
    part = sharded.part(epoch_state.sampler["epoch"], epoch_state.splits, sharded.rank)
    index = settings.index_sampler
    return iter(BatchSampler(part, index.batch_size, index.drop_last)) if type(index) is BatchSampler else part


def _stateful(settings: Settings) -> Any:
    return settings.order.deciding if settings.order.is_stateful else None


def _generators(settings: Settings, base_drawn: bool) -> dict[str, torch.Generator]:
    """The generators that a pass draws from, by name: "default" is torch's global one."""
    if settings.ordered_by_seed:
        return {}  # seeded again for every epoch
    found: list[Any] = [settings.generator or torch.default_generator] if base_drawn else []
    sampler = innermost(settings)
    own = [getattr(each, "generator", None) for each in (sampler, getattr(sampler, "sampler", None))]
    found += own
    if not settings.order.draws_nothing and not any(own):
        found.append(torch.default_generator)
    out: dict[str, torch.Generator] = {}
    for each in found:
        if isinstance(each, torch.Generator):
            name = "loader" if each is settings.generator else "default" if each is torch.default_generator else "sampler"
            out[name] = each
    return out


def capture(settings: Settings, base_drawn: bool) -> dict[str, Any]:
    """States of the generators that the next pass draws from; for a sampler of an unknown class also those of random and NumPy."""
    out: dict[str, Any] = {name: each.get_state() for name, each in _generators(settings, base_drawn).items()}
    order = settings.order
    settled = order.draws_nothing or order.draws_at_first or settings.ordered_by_seed or order.is_stateful
    if not settled:
        out["random"] = random.getstate()
        out["numpy"] = np.random.get_state()
    return out


def capture_now(settings: Settings, epoch_state: EpochState) -> dict[str, Any]:
    """Current state of torch's global generator, if the rest of the epoch draws nothing from it; else an empty dict."""
    sampler = innermost(settings)
    settled = settings.order.draws_nothing or settings.order.draws_at_first or settings.order.is_stateful
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
    """Checks captured states, without setting any generator of the loader.

    Raises:
        ArgumentError: one is the state of a generator that this loader lacks.
        RuntimeError, ValueError, TypeError: one is not a valid state of its generator.
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
    """Captured states in a form that JSON can hold."""
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
    """Inverse of packed_states()."""
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
