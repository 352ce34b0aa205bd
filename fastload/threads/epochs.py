"""ThreadEpochs: the epochs of a loader over packed data. All use one engine, and the next epoch may begin early.

NOTE [ epochs: the next one, begun early ]
When an epoch's last batches are in flight, the threads would idle until the next iter(). So the next epoch begins at once, on the
assumption that nothing changes: the generators are saved, the draws are made, and the generators are restored. iter() uses the early epoch
only if everything that it was made from is unchanged: the epoch, the engine with its transforms, the dataset's rows, the samplers and their
parameters, and the generators. Then the generators are set to their states after the draws. Otherwise the early epoch is dropped. So the
user's own random numbers, and every batch, are the same as without it.

Files outside of packed data, in place or attached, may change between the early reading and iter(). So the batches that are in flight at
iter() are marked, and rows of theirs whose files have another stamp (inode, size, times of change) are made again when their batch is
finished. Only the files of those batches are asked for their status; batches that are submitted later read the files as they are then.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

from fastload.bad_samples import Counts
from fastload.device import pinning
from fastload.execution.packed_data import same_objects
from fastload.execution.plan import ExecutionPlan
from fastload.execution.settings import Settings
from fastload.order import ShardSampler
from fastload.resume.epoch_start import begin, follow, fresh
from fastload.resume.epoch_state import EpochState, Progress
from fastload.threads.coverage import known_coverage
from fastload.threads.engine import ThreadEngine
from fastload.threads.iterator import PackedIterator
from fastload.torch_code import iterates_as_defined
from fastload.window import SHUFFLES


@dataclass(frozen=True)
class EarlyEpoch:
    """An epoch begun before its iter(), with the values that it was made from."""

    iterator: PackedIterator
    plan: ExecutionPlan
    drawn_from: tuple[Any, ...]
    before: tuple[torch.Tensor, ...]
    after: tuple[torch.Tensor, ...]


class ThreadEpochs:
    """The epochs of one loader on native threads: one engine for all of them, and the next epoch begun early.

    The iterators refer to it weakly, so that dropping the loader ends the threads at once.
    """

    def __init__(self, progress: Progress, counts: Counts) -> None:
        self._progress = progress
        self._counts = counts
        self._engine: ThreadEngine | None = None
        self._made_from: tuple[Any, ...] = ()
        self._plan: ExecutionPlan | None = None  # the plan of the last call of engine()
        self._early: EarlyEpoch | None = None
        self._iterators: weakref.WeakSet[PackedIterator] = weakref.WeakSet()

    def iterate(self, plan: ExecutionPlan) -> PackedIterator:
        """Begins the loader's next epoch and returns its iterator, with batches in flight."""
        engine = self.engine(plan)
        early, self._early = self._early, None
        epoch_state = begin(plan.settings, self._progress, self._progress.count_epoch(), base_drawn=plan.settings.seed is None)
        if early is not None and not epoch_state.resumed and self._is_right(plan, early, epoch_state):
            _set_states(_generators(plan.settings), early.after)
            early.iterator.epoch_state.agreement = epoch_state.agreement
            self._progress.epoch_state = early.iterator.epoch_state
            return early.iterator.taken().start()
        del early
        return self._start(plan, engine, epoch_state).start()

    def engine(self, plan: ExecutionPlan) -> ThreadEngine:
        """This process's engine. It is made again after a fork, after close(), and if the plan that it depends on changed."""
        engine = self.running if self.running is not None and not self.running.core.closed else None
        if engine is not None and plan is self._plan:
            return engine
        view, outputs = plan.native, plan.outputs
        assert view is not None
        assert outputs is not None
        threads = plan.settings.num_workers
        made_from = (view, threads, [(each.dtype, each.layout) for each in outputs], plan.slots, plan.size.rows, plan.pinned)
        self._plan = plan
        if engine is not None and made_from == self._made_from:
            return engine
        self._retire()
        engine = ThreadEngine(view, threads, outputs, plan.slots, plan.size.rows)
        self._engine, self._made_from = engine, made_from
        if plan.pinned:
            engine.ring.guard(pinning.Registered())
        return engine

    def _retire(self) -> None:
        """Gives the engine up to be replaced: it ends now, or with the last epoch that still uses it."""
        self.forget_early()
        if not any(not iterator.epoch_state.ended for iterator in self._iterators):
            self.close()
        self._engine = None

    @property
    def running(self) -> ThreadEngine | None:
        """This process's engine, if there is one."""
        return self._engine if self._engine is not None and self._engine.pid == os.getpid() else None

    @property
    def early(self) -> EarlyEpoch | None:
        """The next epoch, if it was begun early."""
        return self._early

    def forget_early(self) -> None:
        """Drops the early epoch, so that the next epoch begins at iter()."""
        self._early = None

    def close(self) -> None:
        """Stops the threads; idempotent."""
        self.forget_early()
        for iterator in list(self._iterators):
            iterator.close()
        if self.running is not None:
            self.running.close()
        self._engine = None

    def _start(self, plan: ExecutionPlan, engine: ThreadEngine, epoch_state: EpochState) -> PackedIterator:
        """Makes an epoch's iterator. It draws as DataLoader does: first the base seed, then, at the first index, the sampler's draws."""
        settings = plan.settings
        settings.seed_order(epoch_state.epoch)
        batches = iter(settings.index_sampler)
        given = plan.transform_seed
        if settings.seed is None:
            drawn = int(torch.empty((), dtype=torch.int64).random_(generator=settings.generator))
            seed, drawn_epoch = (drawn, 0) if given is None else (given, epoch_state.epoch)
        else:
            seed, drawn_epoch = settings.seed, epoch_state.epoch
        epoch_state.base_seed = seed
        coverage = known_coverage(settings, epoch_state) if engine.in_buckets else None
        indices = follow(settings, epoch_state, batches, id if coverage is None else coverage.leave_out)
        of = engine.bucket_pass(coverage, engine.view.at(epoch_state.epoch))
        successor = self._successor(plan, engine)
        iterator = PackedIterator(engine, indices, plan, self._counts, seed, drawn_epoch, successor, epoch_state, of)
        self._iterators.add(iterator)
        return iterator

    def _successor(self, plan: ExecutionPlan, engine: ThreadEngine) -> Callable[[], PackedIterator | None]:
        return partial(_begin_early, weakref.ref(self), plan, engine)

    def begin_early(self, plan: ExecutionPlan, engine: ThreadEngine) -> PackedIterator | None:
        """Begins the next epoch for idle threads. Returns None if the draws could not be undone."""
        settings = plan.settings
        if self._early is not None or engine is not self._engine or not _can_begin_early(settings):
            return None
        generators = _generators(settings)
        before = _states(generators)
        epoch_state = fresh(settings, self._progress.next_epoch, base_drawn=settings.seed is None)
        iterator = self._start(plan, engine, epoch_state).start(1)
        self._early = EarlyEpoch(iterator, plan, _drawn_from(settings, epoch_state), before, _states(generators))
        _set_states(generators, before)
        return iterator

    def _is_right(self, plan: ExecutionPlan, early: EarlyEpoch, epoch_state: EpochState) -> bool:
        """Whether the early epoch was made from what iter() finds now, which has begun its epoch with `epoch_state`."""
        settings = plan.settings
        if early.plan is not plan or not _can_begin_early(settings):
            return False
        if not same_objects(early.drawn_from, _drawn_from(settings, epoch_state)):
            return False
        if settings.ordered_by_seed and settings.seed is not None:
            return True  # the order is a function of (seed, epoch) alone
        return all(torch.equal(a, b) for a, b in zip(early.before, _states(_generators(settings)), strict=True))


def _begin_early(epochs: weakref.ref[ThreadEpochs], plan: ExecutionPlan, engine: ThreadEngine) -> PackedIterator | None:
    alive = epochs()
    return None if alive is None else alive.begin_early(plan, engine)


def _drawn_from(settings: Settings, epoch_state: EpochState) -> tuple[Any, ...]:
    """Everything that determines an epoch's order and draws, but for the generators' states."""
    found: list[Any] = [epoch_state.epoch, settings.batch_sampler, settings.sampler]
    if settings.sharded is not None:
        return (*found, epoch_state.sampler["epoch"], *settings.sharded.identity())
    for sampler in (settings.batch_sampler, getattr(settings.batch_sampler, "sampler", settings.sampler)):
        if sampler is not None:
            found += [value for _, value in sorted(vars(sampler).items())]
            found.append(len(sampler.data_source) if hasattr(sampler, "data_source") else None)
    return tuple(found)


def _can_begin_early(settings: Settings) -> bool:
    """Whether the sampler makes all its draws at its first index, from generators known here."""
    sampler = settings.batch_sampler.sampler if type(settings.batch_sampler) is BatchSampler else settings.sampler
    if settings.auto_collation and type(settings.batch_sampler) is not BatchSampler:
        return False  # .sampler is then a default that is not used
    if type(sampler) not in (SequentialSampler, ShardSampler, *SHUFFLES):
        return False
    if not (iterates_as_defined(type(sampler)) and iterates_as_defined(BatchSampler)):
        return False
    if not isinstance(sampler, RandomSampler):
        return True
    return not sampler.replacement and sampler.num_samples == len(sampler.data_source)


def _generators(settings: Settings) -> list[torch.Generator]:
    sampler = getattr(settings.batch_sampler, "sampler", settings.sampler)
    found = [torch.default_generator, settings.generator, getattr(sampler, "generator", None)]
    return [g for i, g in enumerate(found) if g is not None and all(g is not h for h in found[:i])]


def _states(generators: list[torch.Generator]) -> tuple[torch.Tensor, ...]:
    return tuple(g.get_state() for g in generators)


def _set_states(generators: list[torch.Generator], states: tuple[torch.Tensor, ...]) -> None:
    for generator, state in zip(generators, states, strict=True):
        generator.set_state(state)
