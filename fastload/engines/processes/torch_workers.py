"""TorchWorkerIterator: torch's own worker processes with FastLoader's seeds, resuming and on_error. Batches
travel as torch sends them.

NOTE [ torch workers: what goes with a task ]
Where there is no native module there are no slots, so that torch's iterator runs the workers. Of a
map-style dataset its tasks are `Ask`s in the place of index batches, and BatchMaker is both its dataset and
its collate_fn: as the dataset it gives back what it is asked for, as the collate_fn it makes the batch. So
one call in the worker knows indices, occurrences and seeds, also those of a later epoch of persistent
workers. Iterable datasets are torch's as they are: a resume makes the batches again, in the workers, and
drops them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from torch._utils import ExceptionWrapper
from torch.utils.data import MapDataPipe
from torch.utils.data._utils import worker as torch_worker
from torch.utils.data.dataloader import (
    _BaseDataLoaderIter,
    _get_distributed_settings,
    _MultiProcessingDataLoaderIter,
    _sharding_worker_init_fn,
)

from fastload.batch.bad_samples import NOTHING, Lost, Policy, seed_sample
from fastload.batch.collate import advice_on
from fastload.common.rng import occurring
from fastload.device.stages import BatchKey
from fastload.engines.indices import Progress
from fastload.engines.iterator import IteratorArguments
from fastload.engines.plan import ExecutionPlan
from fastload.engines.processes.iterator import ProcessIterator
from fastload.engines.processes.pool import Travel
from fastload.engines.processes.scheduler import LoaderCounters
from fastload.engines.processes.worker_errors import wrapped
from fastload.engines.resume.datasets import DatasetState
from fastload.errors import ClosedError, LoaderTimeout, WorkerError
from fastload.portable import refusal
from fastload.sampling.known import is_stateful


@dataclass(frozen=True)
class Ask:
    """A batch that a worker is asked for.

    Attributes:
        number: its number in the epoch.
        index: indices of its samples; without auto_collation, the one.
        occurrences: by row, how often the index came before; None: all are 0.
        seeds: (seed, epoch) that each sample is seeded by; None: samples are not seeded.
        policy: on_error= during the pass.
    """

    number: int
    index: Any
    occurrences: list[int] | None
    seeds: tuple[int, int] | None
    policy: Policy


Answer = tuple[int, bool, Any, Lost, ExceptionWrapper | None]
"""Number of a batch, whether on_error left all its samples out, the batch, its losses, and its error."""


class BatchMaker:
    """Maker of a map-style dataset's batches in a worker. See NOTE [ torch workers: what goes with a task ].

    Pickled, the dataset and the collate_fn may contain lambdas and classes of a notebook.
    """

    def __init__(self, dataset: Any, collate_fn: Callable[[Any], Any], batched: bool, advised: bool) -> None:
        self.dataset, self._collate_fn = dataset, collate_fn
        self._batched, self._advised = batched, advised

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (Travel((self.dataset, self._collate_fn, self._batched, self._advised)),)

    def __getitem__(self, ask: Ask) -> Ask:
        return ask

    __getitems__ = __getitem__

    def __call__(self, ask: Ask) -> Answer:
        lost, self._advice = Lost(), ""
        try:
            batch = self._made(ask, lost)
            return ask.number, batch is NOTHING, None if batch is NOTHING else batch, lost, None
        except Exception as error:
            info: Any = torch_worker.get_worker_info()
            told = wrapped(error, info.id, self.dataset, BatchMaker._sample.__code__, self._advice)
            return ask.number, False, None, Lost(), told

    def _made(self, ask: Ask, lost: Lost) -> Any:
        get = partial(self._sample, ask)
        samples: Any
        if not self._batched:
            again = (ask.occurrences or [0])[0]
            samples = ask.policy.make(self.dataset, get, ask.index, 0, lost, again)
        else:
            several = getattr(self.dataset, "__getitems__", None) if ask.seeds is None else None
            samples = ask.policy.make_all(
                self.dataset, get, several or None, ask.index, lost, ask.occurrences
            )
        if samples is NOTHING:
            return NOTHING
        try:
            return self._collate_fn(samples)
        except (RuntimeError, TypeError) as error:
            if self._advised:
                self._advice = advice_on(error, samples, lost.among(ask.index, True), packed=False)
            raise

    def _sample(self, ask: Ask, index: Any, occurrence: int) -> Any:
        if ask.seeds is not None:
            seed_sample(*ask.seeds, index, occurrence)
        if not occurrence:
            return self.dataset[index]
        with occurring(occurrence, resolved=False):
            return self.dataset[index]


def _arrived(travel: Travel[Any]) -> BatchMaker:
    return BatchMaker(*travel.content)


class _Start:
    """worker_init_fn of a worker that has a BatchMaker: get_worker_info() shows the user's dataset first."""

    def __init__(self, maker: BatchMaker, init_fn: Callable[[int], None] | None) -> None:
        self._maker, self._init_fn = maker, init_fn

    def __reduce__(self) -> tuple[Any, ...]:
        return _started, (self._maker, Travel(self._init_fn))

    def __call__(self, worker: int) -> None:
        info: Any = torch_worker.get_worker_info()
        torch_worker._worker_info = torch_worker.WorkerInfo(
            id=info.id, num_workers=info.num_workers, seed=info.seed, dataset=self._maker.dataset
        )
        if self._init_fn is not None:
            self._init_fn(worker)


def _started(maker: BatchMaker, travel: Travel[Any]) -> _Start:
    return _Start(maker, travel.content)


@dataclass
class _TorchArguments(IteratorArguments):
    """Attributes of a loader that torch's iterator with workers reads, and what it calls before it starts
    them."""

    in_order: bool = True
    worker_init_fn: Any = None
    multiprocessing_context: Any = None
    begin: Callable[[], None] | None = None


class _Beginning(_BaseDataLoaderIter):
    """torch's iterator, which begins a pass where it would iterate over the sampler: it lies between torch's
    iterator with workers and its base."""

    def __init__(self, arguments: _TorchArguments) -> None:
        super().__init__(arguments)  # type: ignore[arg-type]
        if arguments.begin is not None:
            arguments.begin()

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        """Does nothing: `begin` has set the order."""


class TorchWorkerIterator(ProcessIterator, _MultiProcessingDataLoaderIter, _Beginning):
    """Iterator over one epoch, or, with persistent workers, over one epoch after another, by torch's own
    workers. Its batches, its errors and its draws are those of WorkerIterator.

    It does not follow the state of a stateful dataset: with such a one state_dict() is refused.
    """

    _pin_memory = property(lambda self: False, lambda self, value: None)
    """torch starts no thread that pins: Transfer pins."""
    _shutdown = True
    """Until torch has started the workers."""

    def __init__(
        self, plan: ExecutionPlan, progress: Progress, counters: LoaderCounters, length_called: int | None
    ) -> None:
        self._count_in(plan.settings, plan.settings.dataset, counters)
        self._pid, self._broken, self._ended = os.getpid(), False, False
        arguments = self._arguments(plan, length_called)
        arguments.begin = partial(self._begin, plan, progress, arguments)
        super().__init__(arguments)

    def _arguments(self, plan: ExecutionPlan, length_called: int | None) -> _TorchArguments:
        settings = plan.settings
        dataset, init_fn = settings.dataset, settings.worker_init_fn
        ours: dict[str, Any] = {}
        if not settings.iterable:
            maker = BatchMaker(dataset, plan.collate_fn, settings.auto_collation, settings.by_default_collate)
            if isinstance(dataset, MapDataPipe):
                init_fn = partial(_sharding_worker_init_fn, init_fn, *_get_distributed_settings())  # type: ignore[no-untyped-call]
            ours = {"dataset": maker, "collate_fn": maker}
            init_fn = _Start(maker, init_fn)
        ours |= {"in_order": settings.in_order, "worker_init_fn": init_fn}
        ours |= {"multiprocessing_context": settings.multiprocessing_context}
        return _TorchArguments(**vars(IteratorArguments.of(plan, dataset, length_called)) | ours)

    def _begin(self, plan: ExecutionPlan, progress: Progress, arguments: IteratorArguments) -> None:
        self._attach(plan, progress, arguments)
        self._use(plan)
        self._sample_seeds = self._sample_seed(plan.settings.seed)
        self._asked: dict[int, Ask] = {}
        self._ended, self._iterable = False, plan.settings.iterable
        self._rows = plan.settings.batch_size or 1
        state = self._epoch_state
        if any(each.state is not None for each in state.replicas):
            raise refusal("a state that holds a dataset's own state, with num_workers > 0,")
        self._again = state.batches if self._iterable else 0  # batches that are made again, and dropped
        if self._follows and is_stateful(plan.settings.dataset):
            state.live = _not_followed

    def begin_epoch(self, plan: ExecutionPlan, progress: Progress, length_called: int | None) -> None:
        """Begins the next epoch of persistent workers. Batches in flight of the epoch before are dropped."""
        arguments = self._arguments(plan, length_called)
        _BaseDataLoaderIter._reset(self, arguments)
        self._begin(plan, progress, arguments)
        _MultiProcessingDataLoaderIter._reset(self, arguments)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        if first_iter:  # torch's own call, when the workers have started
            _MultiProcessingDataLoaderIter._reset(self, loader, True)
        else:
            super()._reset(loader)

    def _next_index(self) -> Any:
        index = next(self._sampler_iter)
        if self._iterable:
            return index
        again = self._occurrences(index, self._epoch_state.again, None)
        listed = None if again is None else again.tolist()
        ask = Ask(self._epoch_state.at, index, listed, self._sample_seeds, self._policy)
        self._asked[ask.number] = ask
        return ask

    def _get_data(self) -> Any:
        try:
            return super()._get_data()  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            self._broken = True
            self.close()
            if "timed out" in str(error):
                raise LoaderTimeout.after(self._timeout) from None
            if "exited unexpectedly" in str(error):
                raise WorkerError(f"{error}: run with num_workers=0 to see why") from error
            raise

    def _process_data(self, data: Any, worker_idx: int) -> Any:
        """Notes whose batch it is, and asks for another in its place."""
        ask = None
        if self._iterable and not self._again:
            self._epoch_state.take(None, self._rows, worker_idx, None)
        elif not self._iterable and not isinstance(data, ExceptionWrapper):
            ask = self._asked.pop(data[0])
            self._epoch_state.take(ask.number, len(ask.index) if self._auto_collation else 1, worker_idx)
        return ask, super()._process_data(data, worker_idx)  # type: ignore[no-untyped-call]

    def _next_data(self) -> Any:
        if self._pid != os.getpid() or (self._shutdown and not self._ended):
            raise ClosedError(
                "this iterator's workers were closed before its end, or belong to another process: iterate "
                "the loader anew"
            )
        while True:
            try:
                ask, made = _MultiProcessingDataLoaderIter._next_data(self)  # type: ignore[no-untyped-call]
            except StopIteration:
                self._ended = True
                self._epoch_state.end()
                self._losses.check(self._epoch_state.batches)
                raise
            lost = Lost()
            if self._again:
                self._again -= 1
                continue
            if ask is not None:
                _, empty, made, lost, error = made
                if error is not None:
                    error.reraise()
                self._losses.add(lost)
                if empty:
                    continue
            return self._delivered(ask, made, lost)

    def _delivered(self, ask: Ask | None, batch: Any, lost: Lost) -> Any:
        """The batch for the loop."""
        if self._transfer is not None:
            moved = self._transfer.put(lambda: batch, partial(self._key, ask, lost))
            batch = self._transfer.get(moved)
        self._counts.batches += 1
        self._counts.samples += (
            len(ask.index) if ask is not None and self._auto_collation else self._rows
        ) - lost.skipped
        self._epoch_state.deliver()
        return batch

    def _key(self, ask: Ask | None, lost: Lost) -> BatchKey:
        if ask is None:
            return BatchKey(*self._seeds, next(self._finished), None)
        again = None if ask.occurrences is None else np.array(ask.occurrences, np.uint32)
        occurrences = lost.occurring(again, len(ask.index) if self._auto_collation else 1)
        return BatchKey(*self._seeds, ask.number, lost.among(ask.index, self._auto_collation), occurrences)

    @property
    def closed(self) -> bool:
        """True if this iterator has no workers in this process any more."""
        return self._shutdown or self._pid != os.getpid()

    @property
    def usable(self) -> bool:
        """True if the iterator can begin another epoch."""
        return not (self.closed or self._broken)

    def has_slots_for(self, plan: ExecutionPlan) -> bool:
        """Returns True: there are no slots."""
        return True

    def progress(self) -> dict[str, int]:
        """Counts for the health report: ready batches, and the most batches in flight."""
        ready = sum(len(each) > 1 for each in self._task_info.values())
        return {
            "ready": ready,
            "depth": self._prefetch_factor * self._num_workers,
            "slots": 0,
            "slot_bytes": 0,
        }

    def close(self) -> None:
        """Ends the workers; idempotent. Delivered batches stay valid."""
        if self._pid == os.getpid():
            self._shutdown_workers()


def _not_followed() -> DatasetState:
    """The state of a stateful dataset that torch's workers have."""
    raise refusal("state_dict() over a dataset that has a state_dict() of its own, with num_workers > 0,")
