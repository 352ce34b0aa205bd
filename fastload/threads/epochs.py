"""ThreadEpochs: the epochs of a loader over packed data. All use one engine, and the next epoch may begin early.

NOTE [ epochs: the next one, begun early ]
When an epoch's last batches are in flight, the threads would idle until the next iter(). So the next epoch begins at once, on the
assumption that nothing changes: the generators are saved, the draws are made, and the generators are restored. iter() uses the early epoch
only if everything that it was made from is unchanged: the epoch, the engine with its transforms, the dataset's rows, the samplers and their
parameters, and the generators. Then the generators are set to their states after the draws. Otherwise the early epoch is dropped. So the
user's own random numbers, and every batch, are the same as without it. A sampler of the user's is not drawn early: its draws cannot be
undone. Nor is any without workers, where torch draws nothing of the order at iter().

Files outside of packed data, in place or attached, may change between the early reading and iter(). So the batches that are in flight at
iter() are marked, and rows of theirs whose files have another stamp (inode, size, times of change) are made again when their batch is
finished. Only the files of those batches are asked for their status; batches that are submitted later read the files as they are then.
"""

from __future__ import annotations

import os
import weakref
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from fastload.batch.bad_samples import Counts
from fastload.dataset.view import same_objects
from fastload.device import pinning
from fastload.execution.plan import ExecutionPlan
from fastload.execution.settings import Settings
from fastload.resume.epoch_start import begin, follow, fresh, iterated_again
from fastload.resume.epoch_state import EpochState, Progress
from fastload.threads.coverage import known_coverage
from fastload.threads.engine import ThreadEngine
from fastload.threads.iterator import PackedIterator


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

    def iterate(self, plan: ExecutionPlan, kept: PackedIterator | None = None) -> PackedIterator:
        """Begins the loader's next epoch and returns its iterator, with batches in flight.

        Without a seed, an epoch draws a base seed. If `kept` is the loader's iterator of persistent_workers, the epoch goes on with its
        base seed, as torch's workers go on with theirs.
        """
        engine = self.engine(plan)
        early, self._early = self._early, None
        settings, epoch = plan.settings, self._progress.count_epoch()
        epoch_state = begin(settings, self._progress, epoch, base_drawn=settings.seed is None, kept=kept is not None)
        if kept is not None and not epoch_state.resumed:
            epoch_state.base_seed, epoch_state.passes = kept.base_seed, kept.passes
        if early is not None and not epoch_state.resumed and self._is_right(plan, early, epoch_state):
            _set_states(_generators(plan.settings), early.after)
            early.iterator.epoch_state.agreement = epoch_state.agreement
            self._progress.epoch_state = early.iterator.epoch_state
            return early.iterator.taken().start()
        del early
        return self._start(plan, engine, epoch_state).begin().start()

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
        settings, seed, drawn_epoch = plan.settings, plan.transform_seed, epoch_state.epoch
        settings.seed_order(epoch_state.epoch)
        batches = iter(settings.index_sampler)
        if settings.seed is None:
            base = epoch_state.base_seed
            if epoch_state.drawn or base is None:
                base = int(torch.empty((), dtype=torch.int64).random_(generator=settings.generator))
            seed, drawn_epoch = (base, epoch_state.passes) if seed is None else (seed, drawn_epoch)
        if epoch_state.drawn and settings.num_workers:
            batches = iterated_again(settings, epoch_state)
        assert seed is not None
        epoch_state.base_seed = seed
        asked = engine.view.is_asked
        coverage = known_coverage(settings, epoch_state) if engine.in_buckets and not asked else None
        indices = follow(settings, epoch_state, batches, id if coverage is None else coverage.leave_out)
        of = engine.bucket_pass(coverage, engine.view.at(epoch_state.epoch))
        successor = partial(_begin_early, weakref.ref(self), plan, engine, epoch_state)
        iterator = PackedIterator(engine, indices, plan, self._counts, seed, drawn_epoch, successor, epoch_state, of)
        self._iterators.add(iterator)
        return iterator

    def begin_early(self, plan: ExecutionPlan, engine: ThreadEngine, before: EpochState) -> PackedIterator | None:
        """Begins the epoch after `before` for idle threads. Returns None if the draws could not be undone."""
        settings = plan.settings
        if self._early is not None or engine is not self._engine or engine.view.is_asked or not _can_begin_early(settings):
            return None
        generators = _generators(settings)
        states = _states(generators)
        kept = settings.persistent_workers
        epoch_state = fresh(settings, self._progress.next_epoch, base_drawn=settings.seed is None, kept=kept)
        if kept:
            epoch_state.base_seed, epoch_state.passes = before.base_seed, before.passes + 1
        drawn_from = _drawn_from(settings, epoch_state)
        iterator = self._start(plan, engine, epoch_state).begin().start(1)
        self._early = EarlyEpoch(iterator, plan, drawn_from, states, _states(generators))
        _set_states(generators, states)
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


def _begin_early(epochs: weakref.ref[ThreadEpochs], plan: ExecutionPlan, engine: ThreadEngine, before: EpochState) -> PackedIterator | None:
    alive = epochs()
    return None if alive is None else alive.begin_early(plan, engine, before)


def _drawn_from(settings: Settings, epoch_state: EpochState) -> tuple[Any, ...]:
    """Everything that determines an epoch's order and draws, but for the generators' states. `epoch_state`: before any draw."""
    index, deciding = settings.index_sampler, settings.order.deciding
    found: list[Any] = [epoch_state.epoch, epoch_state.drawn, epoch_state.base_seed, epoch_state.passes, index, deciding]
    if settings.sharded is not None:
        return (*found, epoch_state.sampler["epoch"], *settings.sharded.identity())
    for sampler in (index, deciding):
        found += [value for _, value in sorted(vars(sampler).items())]
        found.append(len(sampler.data_source) if hasattr(sampler, "data_source") else None)
    return tuple(found)


def _can_begin_early(settings: Settings) -> bool:
    """Whether what iter() of the next epoch draws can be drawn now, and undone."""
    return settings.num_workers > 0 and settings.order.can_be_undone


def _generators(settings: Settings) -> list[torch.Generator]:
    sampler = settings.order.deciding
    found = [torch.default_generator, settings.generator, getattr(sampler, "generator", None)]
    return [g for i, g in enumerate(found) if g is not None and all(g is not h for h in found[:i])]


def _states(generators: list[torch.Generator]) -> tuple[torch.Tensor, ...]:
    return tuple(g.get_state() for g in generators)


def _set_states(generators: list[torch.Generator], states: tuple[torch.Tensor, ...]) -> None:
    for generator, state in zip(generators, states, strict=True):
        generator.set_state(state)
