"""The epochs of a loader over packed data: one engine for all, and the next one begun early.

NOTE [ epochs: the next one, begun early ]
When an epoch's last batches are in flight, the threads would idle until the next iter(). So the next epoch begins at once, under the
guess that nothing changes: the generators are saved, the draws made, the generators put back. iter() takes it only if it finds everything
that the early epoch was made from as it was (the epoch, the engine with its transforms, the dataset's rows, the samplers and their
parameters, the generators), and then sets the generators to what the draws left; otherwise the early epoch is dropped. So the user's own
random numbers, and every batch, are the same as without it.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

import cloudpickle
import torch
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler, default_collate
from torch.utils.data._utils.collate import default_convert

from fastload._native import core
from fastload.dataset import PackedDataset
from fastload.device import pinning as pin
from fastload.device.to_float import Floats
from fastload.errors import ArgumentError
from fastload.packed_view import Draws, PackedView, Resolver, rebuilt
from fastload.plan import output_of
from fastload.resume.epoch_start import begin, follow, fresh
from fastload.resume.epoch_state import EpochState
from fastload.threads.assemble import Delivery
from fastload.threads.engine import ThreadEngine
from fastload.threads.epoch_size import epoch_size
from fastload.threads.iterator import PackedIterator

_DTYPE_NAMES = {torch.uint8: "uint8", torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}
_LAYOUTS = {None: "CHW", torch.channels_last: "HWC", torch.contiguous_format: "CHW"}


@dataclass(frozen=True)
class EarlyEpoch:
    """The next epoch, begun before it was asked for, and what it was made from."""

    iterator: PackedIterator
    drawn_from: tuple[Any, ...]
    engine: ThreadEngine
    delivery: Delivery
    before: tuple[torch.Tensor, ...]
    after: tuple[torch.Tensor, ...]


@dataclass(frozen=True, eq=False)
class PackedData:
    """A loader's packed data as one pass reads it: snapshots of the user's datasets, so that nothing changes below it.

    Attributes:
        view: rows of the datasets as they are planned without a device.
        native: rows that the native engine reads, when it can run all of what is asked, or all but what is left to the loader's device.
    """

    view: PackedView
    native: PackedView | None


def native_view(loader: Any) -> PackedView | None:
    """The rows that the native engine reads, as of the loader's last look at its dataset; None where another engine runs."""
    data: PackedData | None = loader._fastload.packed.data
    return None if data is None else data.native


def why_not_device(loader: Any) -> str | None:
    """Why nothing of the transform is left to a device; None where what can be is."""
    if loader._fastload.settings.device is None:
        return "no device= is given"
    if not loader._auto_collation:
        return "batch_size=None makes no batches"
    if loader.collate_fn is not default_collate:
        return "your collate_fn takes finished samples"
    return None if _has_kornia() else "Kornia is not installed: pip install 'fastload[augment]'"


@cache
def _has_kornia() -> bool:
    return find_spec("kornia") is not None


def output_for(loader: Any, view: PackedView) -> core.Output:
    """What the engine writes into a batch.

    Raises:
        ArgumentError: dtype= contradicts the transform.
    """
    dtype = None if loader._fastload.settings.dtype is None else _DTYPE_NAMES[loader._fastload.settings.dtype]
    output = output_of(view.datasets[0].plan, dtype, _LAYOUTS[loader._fastload.settings.memory_format])
    if output.dtype != "uint8" and any(isinstance(step.call, Floats) for step in loader._fastload.transfer_plan(loader).steps):
        return core.Output("uint8", output.layout)  # bytes become floats by that step
    return output


class PackedEpochs:
    """What a loader keeps between the epochs of packed data.

    1. It belongs to one loader and refers to it weakly, as its iterators do, so that dropping the loader ends the threads at once.
    2. read() looks at the loader's dataset; what it found is `data` until the next read(), and all else here follows from that.
    """

    def __init__(self, loader: Any) -> None:
        self._loader = weakref.ref(loader)
        self._resolver = Resolver()
        self._snapshots: dict[int, tuple[Any, PackedDataset]] = {}
        self._read: tuple[PackedView, bool, tuple[PackedDataset, ...]] | None = None
        self.data: PackedData | None = None
        self._sent: Any = None  # what persistent workers were started with
        self._engine: ThreadEngine | None = None
        self._made_from: tuple[Any, ...] = ()
        self._ahead: EarlyEpoch | None = None
        self._iterators: weakref.WeakSet[PackedIterator] = weakref.WeakSet()

    def read(self, dataset: Any, device: bool) -> bool:
        """Looks at the dataset as it is now; returns whether it is packed. See NOTE [ view: read at every pass ].

        Args:
            dataset: the loader's.
            device: whether ops of the transforms may be left to a device.

        Raises:
            Whatever Resolver.view and the planning of a changed transform raise.
        """
        found = self._resolver.view(dataset)
        if found is None:
            self.data, self._read = None, None
            return False
        kept, self._snapshots = self._snapshots, {}
        fixed = tuple(self._snapshot(each, kept) for each in found.datasets)
        if self._read is not None and self._read[0] is found and self._read[1] == device and _same_objects(self._read[2], fixed):
            return True
        view = replace(found, datasets=fixed)
        self.data = PackedData(view, _native(view, device))
        self._read = found, device, fixed
        return True

    def _snapshot(self, dataset: PackedDataset, kept: dict[int, tuple[Any, PackedDataset]]) -> PackedDataset:
        made_from = dataset, dataset.plan, dataset.max_pixels, dataset.seed
        known = kept.get(id(dataset))
        if known is None or not _same_objects(known[0], made_from):
            known = made_from, dataset.snapshot()
        self._snapshots[id(dataset)] = known
        return known[1]

    def for_python(self, dataset: Any, draws: Draws) -> Any:
        """A copy of a packed dataset as engines that run Python per sample read it: its plan fixed, its draws those of one pass."""
        return rebuilt(dataset, lambda each: self._snapshots[id(each)][1].drawing(*draws))

    def sent_is_stale(self) -> bool:
        """Whether persistent workers were started with other rows or transforms than the dataset has now; notes what it has."""
        assert self.data is not None
        view = self.data.view
        steps = [dataset.plan.python for dataset in view.datasets]
        try:
            told = cloudpickle.dumps(steps)
        except Exception:  # what cannot be pickled cannot be compared: its own changes stay unseen, as in torch's workers
            told = b""
        now = (view.index, view.source, view.datasets, told)
        before, self._sent = self._sent, now
        return before is not None and not (_same_objects(before[:2], now[:2]) and _same_objects(before[2], now[2]) and before[3] == told)

    def iterate(self, epoch: int) -> PackedIterator:
        """The iterator of this epoch, in flight."""
        loader = self._loader()
        assert loader is not None
        engine, delivery = self.engine(), self.delivery(loader)
        ahead, self._ahead = self._ahead, None
        epoch_state = begin(loader, epoch, loader._fastload.settings.seed is None)
        if ahead is not None and not epoch_state.resumed and self._is_right(loader, ahead, engine, delivery):
            _set_states(_generators(loader), ahead.after)
            loader._fastload.epoch_state = ahead.iterator.epoch_state
            return ahead.iterator.start()
        del ahead
        return self._start(loader, engine, delivery, epoch_state).start()

    def engine(self) -> ThreadEngine:
        """This process's engine, made anew after a fork, a close, or a change of what it is made from."""
        loader = self._loader()
        view = None if self.data is None else self.data.native
        assert loader is not None
        assert view is not None
        output, transfer_plan = output_for(loader, view), loader._fastload.transfer_plan(loader)
        size = epoch_size(loader, len(view))
        depth = size.slots(size.in_flight(_depth(loader)) + transfer_plan.ahead * (not transfer_plan.idle))
        pinned = pin.wanted(transfer_plan.pin, transfer_plan.device)
        made_from = (view, loader.num_workers, output.dtype, output.layout, depth, size.rows, pinned)
        engine = self.running
        if engine is not None and not engine.core.closed and made_from == self._made_from:
            return engine
        self._retire()
        self._engine, self._made_from = ThreadEngine(view, loader.num_workers, output, depth, size.rows), made_from
        if pinned:
            self._engine.ring.guard(pin.Registered())
        return self._engine

    def _retire(self) -> None:
        """The engine is to be replaced: it ends now, or with the last pass that is still under way on it."""
        self.forget_ahead()
        if not any(not iterator.epoch_state.ended for iterator in self._iterators):
            self.close()
        self._engine = None

    @property
    def running(self) -> ThreadEngine | None:
        """This process's engine, if there is one."""
        return self._engine if self._engine is not None and self._engine.pid == os.getpid() else None

    def forget_ahead(self) -> None:
        """The next epoch is to begin at iter()."""
        self._ahead = None

    def close(self) -> None:
        """Stops the threads; idempotent."""
        self.forget_ahead()
        for iterator in list(self._iterators):
            iterator.close()
        if self.running is not None:
            self.running.close()
        self._engine = None

    def delivery(self, loader: Any) -> Delivery:
        """How this loader's batches reach the loop."""
        default = default_collate if loader._auto_collation else default_convert
        return Delivery(
            collate=None if loader.collate_fn is default else loader.collate_fn,
            batched=loader._auto_collation,
            on_error=loader._fastload.settings.on_error,
            in_order=loader.in_order,
            timeout=loader.timeout,
            depth=epoch_size(loader, 0 if self.data is None else len(self.data.view)).in_flight(_depth(loader)),
            transfer_plan=loader._fastload.transfer_plan(loader),
            counts=loader._fastload.losses,
        )

    def _start(self, loader: Any, engine: ThreadEngine, delivery: Delivery, epoch_state: EpochState) -> PackedIterator:
        """Draws as DataLoader does: first the base seed, then, at the first pull, the sampler's own."""
        loader._fastload.seed_order(loader, epoch_state.epoch)
        batches = iter(loader._index_sampler)
        given = transform_seed(loader, engine.view)
        if loader._fastload.settings.seed is None:
            drawn = int(torch.empty((), dtype=torch.int64).random_(generator=loader.generator))
            seed, drawn_epoch = (drawn, 0) if given is None else (given, epoch_state.epoch)
        else:
            seed, drawn_epoch = loader._fastload.settings.seed, epoch_state.epoch
        epoch_state.base_seed = seed
        index_batches = follow(loader, epoch_state, batches)
        length = partial(len, loader._index_sampler)
        iterator = PackedIterator(
            engine, index_batches, delivery, seed, drawn_epoch, length, self._successor(engine, delivery), epoch_state
        )
        self._iterators.add(iterator)
        return iterator.appear_as_torchs(loader)

    def _successor(self, engine: ThreadEngine, delivery: Delivery) -> Callable[[], PackedIterator | None]:
        epochs = weakref.ref(self)

        def begin() -> PackedIterator | None:
            alive = epochs()
            return None if alive is None else alive._begin_ahead(engine, delivery)

        return begin

    def _begin_ahead(self, engine: ThreadEngine, delivery: Delivery) -> PackedIterator | None:
        loader = self._loader()
        if loader is None or self._ahead is not None or engine is not self._engine or not _can_begin_early(loader):
            return None
        generators = _generators(loader)
        before = _states(generators)
        iterator = self._start(loader, engine, delivery, fresh(loader, loader._fastload.next_epoch, loader._fastload.settings.seed is None))
        iterator.start(1)
        self._ahead = EarlyEpoch(iterator, _drawn_from(loader, iterator.epoch_state.epoch), engine, delivery, before, _states(generators))
        _set_states(generators, before)
        return iterator

    def _is_right(self, loader: Any, ahead: EarlyEpoch, engine: ThreadEngine, delivery: Delivery) -> bool:
        """Whether what iter() finds (its epoch is counted already) is what the early epoch was made from."""
        if ahead.engine is not engine or ahead.delivery != delivery or not _can_begin_early(loader):
            return False
        if not _same_objects(ahead.drawn_from, _drawn_from(loader, loader._fastload.next_epoch - 1)):
            return False
        if loader._fastload.own_generator:
            return True  # the order is a function of (seed, epoch) alone
        return all(torch.equal(a, b) for a, b in zip(ahead.before, _states(_generators(loader)), strict=True))


def _native(view: PackedView, device: bool) -> PackedView | None:
    """The rows with what the native engine does; None where another has to run."""
    if any(each.image_field not in each.fields for each in view.datasets):
        return None
    if device and any(each.plan.movable for each in view.datasets):
        view = replace(view, datasets=tuple(each.snapshot(device=True) for each in view.datasets))
    if not all(each.plan.native for each in view.datasets):
        return None
    return view if len({each.plan.values for each in view.datasets}) == 1 else None


def transform_seed(loader: Any, view: PackedView) -> int | None:
    """The seed of random transforms: the loader's, else that of its datasets; None: one is drawn for each pass.

    Raises:
        ArgumentError: the datasets have different seeds.
    """
    if (seed := loader._fastload.settings.seed) is not None:
        return int(seed)
    seeds = {each.seed for each in view.datasets}
    if len(seeds) > 1:
        shown = ", ".join(str(seed) for seed in sorted(seeds, key=str))
        raise ArgumentError(f"the packed datasets have different seeds ({shown}), and a batch has one: give seed= to the loader")
    return seeds.pop()


def _drawn_from(loader: Any, epoch: int) -> tuple[Any, ...]:
    """What an epoch's order and draws follow from, besides the states of generators."""
    found: list[Any] = [epoch, loader.batch_sampler, loader.sampler]
    for sampler in (loader.batch_sampler, getattr(loader.batch_sampler, "sampler", loader.sampler)):
        if sampler is not None:
            found += [value for _, value in sorted(vars(sampler).items())]
            found.append(len(sampler.data_source) if hasattr(sampler, "data_source") else None)
    return tuple(found)


def _same_objects(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    """Whether they hold the same objects, or equal numbers."""
    return len(a) == len(b) and all(x is y or (type(x) is type(y) and isinstance(x, int) and x == y) for x, y in zip(a, b, strict=True))


def _depth(loader: Any) -> int:
    return loader.prefetch_factor or 1


def _can_begin_early(loader: Any) -> bool:
    """Whether the sampler draws everything at its first pull, from generators known here."""
    sampler = loader.batch_sampler.sampler if type(loader.batch_sampler) is BatchSampler else loader.sampler
    if loader._auto_collation and type(loader.batch_sampler) is not BatchSampler:
        return False  # .sampler is then one that nobody uses
    if type(sampler) is SequentialSampler:
        return True
    return type(sampler) is RandomSampler and not sampler.replacement and sampler.num_samples == len(sampler.data_source)


def _generators(loader: Any) -> list[torch.Generator]:
    sampler = getattr(loader.batch_sampler, "sampler", loader.sampler)
    found = [torch.default_generator, loader.generator, getattr(sampler, "generator", None)]
    return [g for i, g in enumerate(found) if g is not None and all(g is not h for h in found[:i])]


def _states(generators: list[torch.Generator]) -> tuple[torch.Tensor, ...]:
    return tuple(g.get_state() for g in generators)


def _set_states(generators: list[torch.Generator], states: tuple[torch.Tensor, ...]) -> None:
    for generator, state in zip(generators, states, strict=True):
        generator.set_state(state)
