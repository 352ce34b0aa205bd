"""Start of a pass: random generators are captured, or set to the states that a loaded state holds.

NOTE [ resuming: draws are made again ]
The order of a pass is what its sampler draws from the generators' states at the beginning of the pass. So a saved state holds these states
and the number of batches already returned to the caller. To resume, the generators are set to them, and everything is drawn again in the
same sequence (iter() of the sampler, base seed, indices). The index batches of returned batches are dropped before anything is read.
Prefetched batches are not in the state, so a resumed pass may prefetch more or less. The model too uses torch's global generator: if the
rest of the pass draws nothing from it, it is set, after these draws, to the state that it had when the saved state was taken.

NOTE [ resuming: one rank's generator is no other's ]
Ranks save one state and load it on every rank, while each has a global generator of its own, by which its dropout differs from others'.
So a state says whose generator it holds, and on another rank of several the global generator keeps its own state. An order that is drawn
from it comes first: the sampler's draws up to the first index are made from the state's generator, and the rank's own is put back after
them. It is not put back where the sampler may draw from it later: one of an unknown class that drew from it, and one whose draws ranks
share out, since the order of later epochs has to be the same on every rank.
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

from fastload.dataset.mixture import Mixture
from fastload.engines.resume.position import DatasetState, EpochState, IndexBatches, Progress, load_at_start
from fastload.engines.resume.ranks import begin_agreement, splits_of
from fastload.engines.settings import Settings
from fastload.errors import ArgumentError
from fastload.sampling.known import SamplerFacts, facts_of
from fastload.sampling.sampler import Sharded, ShardedSampler
from fastload.sampling.sharding import process_rank


def begin(settings: Settings, progress: Progress, epoch: int, *, base_drawn: bool = True, kept: bool = False) -> EpochState:
    """State of the epoch that begins now: resumed if a state was loaded for it, else fresh.

    Args:
        settings: the loader's settings.
        progress: the loader's progress, whose epoch_state is set to the result.
        epoch: the epoch's number.
        base_drawn: True if the epoch will draw a base seed.
        kept: True if persistent workers of an earlier epoch continue, with the base seed that was drawn then.
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
    _keep_own_generator(settings, epoch_state)
    _begin_part(settings, epoch_state)
    if epoch_state.replicas and settings.num_workers == 0:  # before set_generators: a dataset's state may contain the state of a generator
        load_at_start(epoch_state.replicas[0], settings.dataset, lambda: _fetcher(settings))
    set_generators(settings, epoch_state.start)
    _load_sampler(settings, epoch_state)
    return epoch_state


def _keep_own_generator(settings: Settings, epoch_state: EpochState) -> None:
    """Puts this rank's global generator in the place of another rank's, so far as the order allows.

    See NOTE [ resuming: one rank's generator is no other's ].
    """
    rank, world = process_rank(settings.shard)
    whose, epoch_state.rank = epoch_state.rank, None
    if world == 1 or whose == rank or "default" not in epoch_state.start:
        return
    own = torch.default_generator.get_state()
    if _draws_default(settings) or not _is_known(settings):
        epoch_state.put_back = own
        return
    epoch_state.start = {**epoch_state.start, "default": own}
    epoch_state.now = {name: state for name, state in epoch_state.now.items() if name != "default"}
    if not settings.iterable and not epoch_state.replicas:  # samples of these may follow from the base seed
        epoch_state.base_seed, epoch_state.drawn = None, True


def _put_back(settings: Settings, epoch_state: EpochState, index_batches: IndexBatches) -> None:
    """Gives the global generator its own state again after the draws up to the first index, unless more of the order may follow from it."""
    own, epoch_state.put_back = epoch_state.put_back, None
    if own is None:
        return
    index_batches.peek()
    if not _is_known(settings) and not settings.order.is_stateful:
        before, now = epoch_state.start["default"], torch.default_generator.get_state()
        if not any(torch.equal(now, each) for each in (before, _after_base_seed(before))):
            return
        epoch_state.start = {**epoch_state.start, "default": own}
    elif not _draws_then_rests(settings):
        return
    torch.default_generator.set_state(own)


def _after_base_seed(state: torch.Tensor) -> torch.Tensor:
    """The state of a generator that a pass has drawn its base seed from, and nothing else."""
    generator = torch.Generator()
    generator.set_state(state)
    torch.empty((), dtype=torch.int64).random_(generator=generator)
    return generator.get_state()


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
        rank=state["rank"],
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
    set_generators(settings, epoch_state.now if epoch_state.put_back is None else {})
    _put_back(settings, epoch_state, index_batches)
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
    found += _own_generators(settings)
    if _draws_default(settings):
        found.append(torch.default_generator)
    out: dict[str, torch.Generator] = {}
    for each in found:
        if isinstance(each, torch.Generator):
            name = "loader" if each is settings.generator else "default" if each is torch.default_generator else "sampler"
            out[name] = each
    return out


def _source(settings: Settings) -> SamplerFacts:
    """Facts about the sampler that makes the order: under shard=, of the user's own sampler if there is one."""
    sampler = innermost(settings)
    source = getattr(sampler, "sampler" if isinstance(sampler, ShardedSampler) else "batches", None) if _sharded(settings) else None
    return settings.order if source is None else facts_of(source)


def _own_generators(settings: Settings) -> list[Any]:
    """The generators that the sampler has, or the one that it is made of."""
    source = _source(settings).deciding
    found = [getattr(each, "generator", None) for each in (source, getattr(source, "sampler", None))]
    return [each for each in found if each is not None]


def _is_known(settings: Settings) -> bool:
    facts = _source(settings)
    return settings.ordered_by_seed or facts.draws_nothing or facts.draws_at_first


def _draws_default(settings: Settings) -> bool:
    """Returns True if an order that does not follow from (seed, epoch) alone may be drawn from torch's global generator."""
    own = _own_generators(settings)
    return torch.default_generator in own or (not own and not _source(settings).draws_nothing)


def _draws_then_rests(settings: Settings) -> bool:
    """Returns True if all draws of a pass's order from torch's global generator happen at its first index."""
    if _source(settings).draws_nothing:
        return True
    settled = settings.order.draws_at_first or settings.order.is_stateful
    return settled and getattr(innermost(settings), "generator", None) is not torch.default_generator


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
    if "default" not in epoch_state.start or not _draws_then_rests(settings):
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
