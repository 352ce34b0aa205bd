"""The epochs of a loader over packed data: one engine for all, and the next one begun early.

NOTE [ epochs: the next one, begun early ]
When an epoch's last batches are in flight, the threads would idle until the next iter(). So the next epoch begins at once, under the
guess that nothing changes: the generators are saved, the draws made, the generators put back. iter() takes it only if epoch, engine and
generators are what they were, and then sets the generators to what the draws left; otherwise it is dropped. So the user's own random
numbers, and every batch, are the same as without it.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

import torch
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler, default_collate
from torch.utils.data._utils.collate import default_convert

from fastload._native import core
from fastload.dataset import PackedView
from fastload.delivery import pin
from fastload.delivery.batches import PackedIterator
from fastload.delivery.course import begin, follow, fresh
from fastload.delivery.finish import Counts, Delivery
from fastload.delivery.floats import Floats
from fastload.delivery.transfer import Moving
from fastload.errors import ArgumentError
from fastload.plan import output_of
from fastload.sampling import Course
from fastload.workers.threads import ThreadEngine

_DTYPE_NAMES = {torch.uint8: "uint8", torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}
_LAYOUTS = {None: "HWC", torch.channels_last: "HWC", torch.contiguous_format: "CHW"}


@dataclass(frozen=True)
class _Ahead:
    """The next epoch, begun before it was asked for, and the state under which it is the right one."""

    iterator: PackedIterator
    seed: int | None
    epoch: int
    engine: ThreadEngine
    delivery: Delivery
    before: tuple[torch.Tensor, ...]
    after: tuple[torch.Tensor, ...]


def native_view(loader: Any) -> PackedView | None:
    """The loader's packed rows, when the native engine can run all of what is asked, or all but what is left to its device."""
    view: PackedView | None = loader._fastload.view
    if view is None or any(d.image_field not in d.fields for d in view.datasets):
        return None
    if why_not_device(loader) is None:
        view = replace(view, datasets=tuple(d.for_device() for d in view.datasets))
    if not all(d.plan.native for d in view.datasets):
        return None
    return view if len({d.plan.values for d in view.datasets}) == 1 else None


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
        ArgumentError: dtype= or memory_format= is not one of the engine's, or contradicts the transform.
    """
    if loader._fastload.settings.memory_format not in _LAYOUTS:
        raise ArgumentError(f"memory_format={loader._fastload.settings.memory_format}: use torch.channels_last or torch.contiguous_format")
    if loader._fastload.settings.dtype is not None and loader._fastload.settings.dtype not in _DTYPE_NAMES:
        raise ArgumentError(f"dtype={loader._fastload.settings.dtype}: native batches are uint8, float32, float16 or bfloat16")
    dtype = None if loader._fastload.settings.dtype is None else _DTYPE_NAMES[loader._fastload.settings.dtype]
    output = output_of(view.datasets[0].plan, dtype, _LAYOUTS[loader._fastload.settings.memory_format])
    if output.dtype != "uint8" and any(isinstance(step.call, Floats) for step in loader._fastload.moving(loader).steps):
        return core.Output("uint8", output.layout)  # bytes become floats by that step
    return output


class PackedEpochs:
    """What a loader keeps between the epochs of packed data.

    It belongs to one loader and refers to it weakly, as its iterators do, so that dropping the loader ends the threads at once.
    """

    def __init__(self, loader: Any) -> None:
        self._loader = weakref.ref(loader)
        self._engine: ThreadEngine | None = None
        self._ahead: _Ahead | None = None
        self._iterators: weakref.WeakSet[PackedIterator] = weakref.WeakSet()
        self.counts = Counts()

    def iterate(self, epoch: int) -> PackedIterator:
        """The iterator of this epoch, in flight."""
        loader = self._loader()
        assert loader is not None
        engine, delivery = self.engine(), self.delivery(loader)
        ahead, self._ahead = self._ahead, None
        course = begin(loader, epoch, loader._fastload.settings.seed is None)
        if ahead is not None and not course.resumed and self._is_right(loader, ahead, engine, delivery, epoch):
            _set_states(_generators(loader), ahead.after)
            loader._fastload.course = ahead.iterator.course
            return ahead.iterator.start()
        del ahead
        return self._start(loader, engine, delivery, course).start()

    def engine(self) -> ThreadEngine:
        """This process's engine, made anew after a fork, a close, or a change of a dataset's transform."""
        loader = self._loader()
        view = None if loader is None else native_view(loader)
        assert loader is not None
        assert view is not None
        sources = [d.source for d in view.datasets]
        engine = self._engine
        if engine is not None and engine.pid == os.getpid() and not engine.core.closed and engine.core.sources == sources:
            return engine
        self.close()
        output = output_for(loader, view)
        moving: Moving = loader._fastload.moving(loader)
        batch_size = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None) or 1
        self._engine = ThreadEngine(view, loader.num_workers, output, _depth(loader) + moving.ahead * (not moving.idle), int(batch_size))
        if pin.wanted(moving.pin, moving.device):
            self._engine.ring.guard(pin.Registered())
        return self._engine

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
            depth=_depth(loader),
            moving=loader._fastload.moving(loader),
            counts=self.counts,
        )

    def _start(self, loader: Any, engine: ThreadEngine, delivery: Delivery, course: Course) -> PackedIterator:
        """Draws as DataLoader does: first the base seed, then, at the first pull, the sampler's own."""
        loader._fastload.seed_order(loader, course.epoch)
        batches = iter(loader._index_sampler)
        if loader._fastload.settings.seed is None:
            seed, drawn_epoch = int(torch.empty((), dtype=torch.int64).random_(generator=loader.generator)), 0
        else:
            seed, drawn_epoch = loader._fastload.settings.seed, course.epoch
        course.base_seed = seed
        pulls = follow(loader, course, batches)
        length = partial(len, loader._index_sampler)
        iterator = PackedIterator(engine, pulls, delivery, seed, drawn_epoch, length, self._successor(engine, delivery), course)
        self._iterators.add(iterator)
        return iterator

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
        epoch = loader._fastload.next_epoch
        iterator = self._start(loader, engine, delivery, fresh(loader, epoch, loader._fastload.settings.seed is None))
        iterator.start(1)
        self._ahead = _Ahead(iterator, loader._fastload.settings.seed, epoch, engine, delivery, before, _states(generators))
        _set_states(generators, before)
        return iterator

    def _is_right(self, loader: Any, ahead: _Ahead, engine: ThreadEngine, delivery: Delivery, epoch: int) -> bool:
        if ahead.epoch != epoch or ahead.engine is not engine or ahead.seed != loader._fastload.settings.seed or ahead.delivery != delivery:
            return False
        if loader._fastload.own_generator:
            return True  # the order is a function of (seed, epoch) alone
        return all(torch.equal(a, b) for a, b in zip(ahead.before, _states(_generators(loader)), strict=True))


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
