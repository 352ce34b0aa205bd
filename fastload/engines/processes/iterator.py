"""WorkerIterator: iterates any Dataset by worker processes, which get tasks and return batches in shared
slots."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import IterDataPipe, MapDataPipe, _DatasetKind
from torch.utils.data.dataloader import _BaseDataLoaderIter, _sharding_worker_init_fn

from fastload.batch.bad_samples import NOTHING, Policy
from fastload.dataset.copies import set_draws, set_mixture
from fastload.device.pinning import Registered
from fastload.device.stages import BatchKey
from fastload.device.transfer import Transfer, TransferredBatch
from fastload.engines.indices import Progress, attach
from fastload.engines.iterator import IteratorArguments, LoaderIterator, PassLosses
from fastload.engines.plan import ExecutionPlan
from fastload.engines.processes.messages import Job
from fastload.engines.processes.opened_indexes import OpenedIndexes
from fastload.engines.processes.scheduler import LoaderCounters, Schedule, Task, TaskScheduler
from fastload.engines.settings import Settings
from fastload.engines.thread_limits import thread_libraries
from fastload.errors import ClosedError, LoaderTimeout
from fastload.health import tracing
from fastload.sampling.known import is_stateful


class ProcessIterator(LoaderIterator):
    """Iterator whose batches worker processes make: a pass's position, seeds and transfer."""

    def _count_in(self, settings: Settings, dataset: Any, counters: LoaderCounters) -> None:
        """Sets what all passes have in common: the counters, and how samples are seeded."""
        self._by_sample = settings.seed_by == "sample"
        self._follows = settings.iterable or is_stateful(dataset)
        self.passes = 0
        self._losses_counted, self._counts = counters.losses, counters.workers

    def _use(self, plan: ExecutionPlan) -> None:
        """Sets the epoch's transfer. Batches are moved ahead only to CUDA, where the work is queued;
        elsewhere the loop would wait."""
        self._transfer = Transfer(plan.transfer) if plan.transfers else None
        if self._transfer is not None:
            self._transfer.begin()
        device = plan.transfer.device
        self._ahead = plan.transfer.ahead if device is not None and device.type == "cuda" else 0

    def _attach(self, plan: ExecutionPlan, progress: Progress, arguments: IteratorArguments) -> None:
        """Sets the iterator to the epoch that begins, or to the position of a resumed epoch."""
        settings, epoch_state = plan.settings, progress.epoch_state
        assert epoch_state is not None
        self._epoch_state = epoch_state
        self._draws_ahead = settings.may_draw_ahead
        attach(self, arguments, settings, epoch_state, self._num_workers if self._follows else 0)
        self._finished = itertools.count(epoch_state.batches)
        if epoch_state.resumed:
            self.passes = epoch_state.passes
        epoch_state.passes = self.passes
        self._seeds = (int(self._base_seed) if settings.seed is None else settings.seed, progress.epoch)
        self._policy = Policy(settings.on_error, plan.data is not None, *self._seeds)
        self._view = plan.python_view(progress.epoch)
        self._losses = PassLosses(self._losses_counted)

    def _sample_seed(self, seed: int | None) -> tuple[int, int] | None:
        if not self._by_sample:
            return None
        if seed is not None:
            return seed, self._seeds[1]
        self.passes += 1
        return int(self._base_seed), self.passes - 1

    @property
    def base_seed(self) -> int:
        """The seed of torch's worker seeds."""
        return int(self._base_seed)

    @property
    def closed(self) -> bool:
        """True if this iterator has no workers in this process any more."""
        raise NotImplementedError

    @property
    def usable(self) -> bool:
        """True if the iterator can begin another epoch."""
        raise NotImplementedError

    def has_slots_for(self, plan: ExecutionPlan) -> bool:
        """Returns True if another epoch can run with the plan in the slots that there are."""
        raise NotImplementedError

    def begin_epoch(self, plan: ExecutionPlan, progress: Progress, length_called: int | None) -> None:
        """Begins the next epoch of persistent workers; batches in flight are dropped."""
        raise NotImplementedError

    def progress(self) -> dict[str, int]:
        """Counts for the health report: ready batches, the most batches in flight, and the slots."""
        raise NotImplementedError

    def close(self) -> None:
        """Ends the workers; idempotent. Delivered batches stay valid."""
        raise NotImplementedError


class WorkerIterator(ProcessIterator):
    """Iterator over one epoch, or, with persistent workers, over one epoch after another.

    1. It draws from the generators as torch's iterator does: base_seed, then the sampler's own.
    2. By default worker k mod N makes batch k, and each worker makes its batches in order, so that a seeded
       run repeats. With seed_by="sample" all workers fill the rows of the oldest batch; with in_order=False
       the first free worker takes the next batch.
    3. A batch's tensors view its slot and hold its lease. See fastload._native's NOTE [ shared slots:
       lifetimes ].
    4. A worker's exception is raised when its batch's turn comes, and the batches after it stay deliverable.
       A worker's death closes the iterator; the loader starts new workers when it is iterated again.
    """

    def __init__(
        self,
        plan: ExecutionPlan,
        progress: Progress,
        counters: LoaderCounters,
        indexes: OpenedIndexes | None,
        length_called: int | None,
    ) -> None:
        settings = plan.settings
        dataset, self._draws = plan.python_dataset(progress.epoch)
        arguments = IteratorArguments.of(plan, dataset, length_called)
        super().__init__(arguments)
        self._persistent = settings.persistent_workers
        self._in_order = settings.in_order
        self._depth = plan.depth
        if not settings.prefetch_factor:
            raise AssertionError("prefetch_factor must be greater than 0 for worker processes")
        # Each worker's copy of a stateful dataset counts the batches that it makes itself, so workers must
        # not share batches.
        self._count_in(settings, self._dataset, counters)
        self._shared = not self._follows and (self._by_sample or not self._in_order)
        self._rowwise = self._shared and self._by_sample and settings.by_default_collate
        self._attach(plan, progress, arguments)
        self._use(plan)
        self._queue: deque[Task] = deque()
        self._transferred: deque[tuple[Task, TransferredBatch | BaseException | None]] = deque()
        self._failure: BaseException | None = (
            None  # failure of workers, noticed while earlier batches were still undelivered
        )
        self._numbers = itertools.count()
        self._sampled_out = False
        self._closed = False
        self._inconsistent = False
        self._samples = 0  # in the batch delivered last
        self._ended = False  # everything was delivered
        self._pid = os.getpid()
        self._indexes = indexes
        context = settings.multiprocessing_context or torch.multiprocessing
        if context.get_start_method() == "fork":
            thread_libraries()
        schedule = Schedule(self._depth, self._depth + self._ahead + 2, self._shared, self._in_order)
        self._slots_for = plan.host_memory, plan.transfer.device
        prepare = None
        if plan.host_memory == "registered":
            guard = Registered(None if self._transfer is None else self._transfer.stream)
            prepare = lambda memory: memory.guard(guard)  # noqa: E731
        ended = weakref.WeakMethod(self._ended_early)
        self._scheduler = TaskScheduler(
            context,
            self._job(plan),
            schedule,
            self._counts,
            None if indexes is None else indexes.memory,
            prepare,
            lambda tasks: _call(ended(), tasks),
        )
        self._set_turns()
        with self._scheduler.pool.together():
            self._fill()

    def _set_turns(self) -> None:
        self._scheduler.turn = self._epoch_state.turn
        self._scheduler.active = [not each.ended for each in self._epoch_state.replicas] or [
            True
        ] * self._num_workers

    def _job(self, plan: ExecutionPlan) -> Job:
        settings = plan.settings
        init_fn = settings.worker_init_fn
        if isinstance(self._dataset, IterDataPipe | MapDataPipe):
            init_fn = functools.partial(_sharding_worker_init_fn, init_fn, self._world_size, self._rank)
        return Job(
            dataset=self._dataset,
            kind=self._dataset_kind,
            auto_collation=self._auto_collation,
            drop_last=self._drop_last,
            collate_fn=self._collate_fn,
            init_fn=init_fn,
            base_seed=int(self._base_seed),
            shared_seed=self._shared_seed,
            sample_seed=self._sample_seed(settings.seed),
            rowwise=self._rowwise,
            parent=os.getpid(),
            workers=self._num_workers,
            replicas=tuple(self._epoch_state.replicas) if self._epoch_state.resumed else (),
            batch_size=settings.batch_size or 1,
            snapshot_every=-(-(settings.snapshot_every_n_steps or 0) // self._num_workers),
            set_draws=self._set_draws(plan),
            policy=self._policy,
            lazy=settings.lazy_images,
            forms=None if self._indexes is None else self._indexes.forms,
            traced=tracing.active is not None,
            keep=self._depth + self._ahead + 2,
            pinned=plan.host_memory == "registered",
        )

    def _set_draws(self, plan: ExecutionPlan) -> Callable[[Any, Any], None] | None:
        if self._draws is None:
            return None
        return set_mixture if plan.data is None else set_draws

    @property
    def _workers(self) -> list[Any]:
        """The worker processes, under the name that torch's iterator has for them."""
        return [] if self._closed else self._scheduler.pool.processes

    @property
    def closed(self) -> bool:
        """True if this iterator has no workers in this process any more."""
        return self._closed or self._pid != os.getpid()

    @property
    def usable(self) -> bool:
        """True if the iterator can begin another epoch."""
        return not (self.closed or self._inconsistent)

    def has_slots_for(self, plan: ExecutionPlan) -> bool:
        """Returns True if its slots, and their guard, are as the plan of another epoch needs them."""
        return self._slots_for == (plan.host_memory, plan.transfer.device)

    # NOTE [ worker batches: interrupted updates ]
    # A signal handler (Ctrl-C, an alarm) may raise an exception between any two lines, for instance after a
    # message was received and before it was recorded; the batch that it announced would then be awaited for
    # ever. So `_inconsistent` is set while the state of tasks is being updated, and cleared afterwards. After
    # an interrupted update it stays set, and next() raises ClosedError.

    def begin_epoch(self, plan: ExecutionPlan, progress: Progress, length_called: int | None) -> None:
        """Begins the next epoch of persistent workers. Batches in flight of the epoch before are awaited,
        as torch does, and dropped."""
        dataset, self._draws = plan.python_dataset(progress.epoch)
        arguments = IteratorArguments.of(plan, dataset, length_called)
        self._inconsistent = True
        self._queue.clear()
        self._transferred.clear()
        while True:
            for task in [task for task in self._scheduler.tasks.values() if task.made is not None]:
                self._scheduler.forget(task)
            if not self._scheduler.tasks:
                break
            self._listen(list(range(self._num_workers)), None if self._timeout == 0 else self._timeout)
        _BaseDataLoaderIter._reset(self, arguments)
        self._use(plan)
        self._attach(plan, progress, arguments)
        self._set_turns()
        self._sampled_out = self._ended = False
        with self._scheduler.pool.together():
            self._scheduler.begin(
                self._shared_seed, self._sample_seed(plan.settings.seed), self._draws, self._policy
            )
            self._fill()
        while self._follows and len(self._scheduler.begun) < self._num_workers:
            self._listen(list(range(self._num_workers)), None if self._timeout == 0 else self._timeout)
        for worker, stands in self._scheduler.begun.items():
            if stands is not None and self._epoch_state.replicas:
                self._epoch_state.replicas[worker].state = stands.state
        self._inconsistent = False

    # ---- tasks out

    def _fill(self) -> None:
        depth = self._depth + (self._ahead if self._draws_ahead else 0)
        while (
            not self._sampled_out
            and len(self._queue) + len(self._transferred) < depth
            and any(self._scheduler.active)
        ):
            try:
                index = self._next_index()
            except StopIteration:
                self._sampled_out = True
                return
            except BaseException:
                self._inconsistent = False  # the sampler failed, or was interrupted: nothing has changed yet
                raise
            again, view = self._epoch_state.again, self._view
            occurrences = None if again is None and view is None else self._occurrences(index, again, view)
            task = Task(next(self._numbers), index, self._epoch_state.at, occurrences=occurrences)
            self._queue.append(task)
            try:
                self._scheduler.dispatch(task)
            except BaseException:  # no worker makes this batch, so the iterator must not wait for it
                self.close()
                raise

    # ---- batches back

    def _next_data(self) -> Any:
        if self._pid != os.getpid():
            raise ClosedError(
                f"this iterator's workers belong to process {self._pid}: iterate the loader anew in "
                "this process"
            )
        if self._inconsistent:
            self.close()
            raise ClosedError(
                "an exception from outside cut short what this iterator was doing: iterate the loader anew"
            )
        self._inconsistent = True
        self._scheduler.slots.offer()
        deadline = time.monotonic() + self._timeout if self._timeout > 0 else None
        while True:
            if self._transferred:
                ahead, moved = self._transferred.popleft()
                self._take(ahead)
                self._move_ahead()
                if (batch := self._deliver(ahead, moved)) is not NOTHING:
                    return batch
                continue
            self._raise_failure()
            task = self._take_ready()
            if task is not None:
                self._take(task)
                self._finish(task)
                moved = self._transferred.popleft()[1]
                self._move_ahead()
                if (batch := self._deliver(task, moved)) is not NOTHING:
                    return batch
                continue
            if not self._queue:
                self._inconsistent = False
                if self._closed and not self._ended:
                    raise ClosedError(
                        "this iterator's workers were closed before its end: iterate the loader anew"
                    )
                self._ended = True
                for worker, stands in self._scheduler.ends.items():
                    self._epoch_state.place(worker, stands)
                self._epoch_state.end()
                if not self._persistent:
                    self.close()
                if self._indexes is not None:
                    self._indexes.save()
                self._losses.check(self._epoch_state.batches)
                raise StopIteration
            front = self._queue[0].worker
            ours = [front] if self._in_order and front is not None else list(range(self._num_workers))
            self._listen(ours, None if deadline is None else max(0.0, deadline - time.monotonic()))

    def _take_ready(self) -> Task | None:
        if self._in_order:
            return self._queue.popleft() if self._queue and self._queue[0].made is not None else None
        for at, task in enumerate(self._queue):
            if task.made is not None:
                del self._queue[at]
                return task
        return None

    def _finish(self, task: Task) -> None:
        """Builds the batch of a ready task, and moves it. An error is kept, and raised at the batch's
        turn."""
        made, task.made = task.made, None
        assert made is not None
        self._inconsistent = False
        try:
            self._transferred.append((task, None if task.empty else self._assembled(task, made)))
        except BaseException as error:
            if not isinstance(error, Exception):
                raise
            self._transferred.append((task, error))
        finally:
            self._scheduler.forget(task)
        self._inconsistent = True

    def _assembled(self, task: Task, made: Callable[[], Any]) -> TransferredBatch:
        if tracing.active is None:
            return self._moved(task, made)
        with tracing.Span(tracing.active, "assemble", {"batch": task.at}):
            return self._moved(task, made)

    def _moved(self, task: Task, made: Callable[[], Any]) -> TransferredBatch:
        if self._transfer is None:
            return TransferredBatch(made(), self._key(task))
        return self._transfer.put(made, functools.partial(self._key, task))

    def _key(self, task: Task) -> BatchKey:
        if self._dataset_kind != _DatasetKind.Map:
            # Not task.at: tasks given to an exhausted worker have numbers too.
            return BatchKey(*self._seeds, next(self._finished), None)
        indices, occurrences = task.index, task.occurrences
        if task.lost is not None:
            occurrences = task.lost.occurring(occurrences, len(indices) if self._auto_collation else 1)
            indices = task.lost.among(indices, self._auto_collation)
        return BatchKey(
            *self._seeds,
            task.at,
            indices if self._view is None else self._keyed(indices, self._view),
            occurrences,
        )

    def _move_ahead(self) -> None:
        """Moves the batches that are ready after the requested one, as far as possible without waiting."""
        while len(self._transferred) < self._ahead and self._queue:
            task = self._take_ready()
            if task is not None:
                self._finish(task)
            elif not self._hear():
                return

    def _hear(self) -> bool:
        """Handles one message if there is one. Returns False if there is none, or if the workers failed;
        that error is raised later."""
        try:
            received = self._scheduler.pool.receive(list(range(self._num_workers)), 0.0)
        except BaseException as error:
            kept = self._transferred.copy()
            self.close()
            self._transferred, self._failure = kept, error
            return False
        if received is not None:
            self._scheduler.take_in(*received)
        return received is not None

    def _take(self, task: Task) -> None:
        """Takes the batch that is delivered next out of the queue, and pulls another in its place."""
        self._samples = len(task.index) if self._auto_collation else 1
        self._epoch_state.take(
            task.at if self._dataset_kind == _DatasetKind.Map else None,
            self._samples,
            task.worker,
            task.replica,
        )
        if self._closed:
            return
        try:
            self._fill()
        except BaseException:
            self._scheduler.forget(task)
            raise

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _deliver(self, task: Task, moved: TransferredBatch | BaseException | None) -> object:
        """The batch for the loop; NOTHING if on_error skipped all its samples."""
        self._inconsistent = False
        if isinstance(moved, BaseException):
            raise moved
        if task.lost is not None:
            self._losses.add(task.lost)
        if moved is None:
            self._inconsistent = True
            return NOTHING
        self._counts.batches += 1
        self._counts.samples += self._samples - (0 if task.lost is None else task.lost.skipped)
        batch = moved.batch if self._transfer is None else self._transfer.get(moved)
        self._epoch_state.deliver()
        return batch

    def _listen(self, workers: list[int], timeout: float | None) -> None:
        """Waits for one message and handles it. Any error here ends the workers."""
        try:
            received = self._scheduler.pool.receive(workers, timeout)
            if received is None:
                raise LoaderTimeout(self._late())
        except BaseException:
            self.close()
            raise
        self._scheduler.take_in(*received)

    def _late(self) -> str:
        task = self._queue[0] if self._queue else next(iter(self._scheduler.tasks.values()))
        who = (
            "every worker"
            if task.worker is None
            else f"worker {task.worker} (pid {self._scheduler.pool.workers[task.worker].pid})"
        )
        return (
            f"DataLoader timed out after {self._timeout} seconds: {who} has not finished the batch "
            "of indices "
            f"{_shown(task.index)}. Raise timeout=, or look at what the dataset does there"
        )

    def _ended_early(self, tasks: list[Task]) -> None:
        for task in tasks:
            with contextlib.suppress(ValueError):
                self._queue.remove(task)
        if self._queue or not self._persistent:
            self._fill()

    def progress(self) -> dict[str, int]:
        """Counts for the health report: ready batches, the most batches in flight, and the slots."""
        ready = sum(task.made is not None for task in self._queue)
        return {
            "ready": ready,
            "depth": self._depth,
            "slots": len(self._scheduler.slots.all),
            "slot_bytes": self._scheduler.slots.bytes,
        }

    def close(self) -> None:
        """Ends the workers; idempotent. Delivered batches stay valid."""
        self._closed = True
        if self._pid == os.getpid():
            self._scheduler.close()
            self._queue.clear()
            self._transferred.clear()

    _shutdown_workers = close  # torch's name for it, which programs call


def _call(function: Callable[[list[Task]], None] | None, tasks: list[Task]) -> None:
    if function is not None:  # the iterator is still alive
        function(tasks)


def _shown(index: object) -> str:
    text = repr(index)
    return text if len(text) <= 80 else text[:77] + "..."
