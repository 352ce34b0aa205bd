"""Worker: the main loop of a worker process, which receives tasks, makes batches and puts them into slots.

It makes a batch as torch's worker does, with the same fetching, collating, seeds and exceptions. Only the way
back to the parent differs. Limits of malloc decide how much freed memory a worker keeps for its next batch.
"""

from __future__ import annotations

import gc
import itertools
import pickle
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import IterDataPipe, _DatasetKind, default_collate
from torch.utils.data._utils import collate as torch_collate
from torch.utils.data._utils import worker as torch_worker
from torch.utils.data.graph_settings import apply_random_seed

from fastload import composing
from fastload._native import core
from fastload.batch.bad_samples import NOTHING, Lost, seed_sample, seed_worker
from fastload.batch.collate import advice_on
from fastload.common.originals import OwnCode, stand_in
from fastload.common.rng import occurring
from fastload.engines.processes import messages
from fastload.engines.processes import row_collate as rows
from fastload.engines.processes.batch_memory import BatchMemory, PackedBatch
from fastload.engines.processes.channel import Channel, DescriptorsLost, Disconnected
from fastload.engines.processes.messages import Job
from fastload.engines.processes.worker_errors import RaisedInWorker, wrapped
from fastload.engines.processes.worker_slots import WorkerSlots
from fastload.engines.resume.datasets import (
    DatasetState,
    create_fetcher,
    dataset_state_of,
    fetched,
    fetcher_at,
    load_at_start,
    state_after,
)
from fastload.engines.thread_limits import hold_threads
from fastload.errors import FastloadError
from fastload.health import tracing
from fastload.lazy import counts, opening

if TYPE_CHECKING:
    from fastload.dataset.opened_forms import OpenedForms

_STACKING = OwnCode(("torch.utils.data._utils.collate", ("collate_tensor_fn",)))
"""torch's function for a list of tensors, whose place `Worker._stack` takes."""


def run(job: Job, number: int, sock: socket.socket, control: int, indexes: int | None) -> None:
    """Runs a worker process from its start to its end. `control` is the file descriptor of the tickets,
    `indexes` that of the entropy indexes that workers share.

    Objects inherited by fork belong to the parent. They are frozen, so that garbage collection here neither
    finalizes them (with sockets, locks and threads that both processes know) nor writes to their pages.
    """
    # If forked from within a compiled function, no frame here is to be compiled.
    torch._C._dynamo.eval_frame.set_eval_frame(None)
    gc.freeze()
    core.watch_process(job.parent)
    channel = Channel(sock, parent=False)
    try:
        Worker(job, number, channel, core.SharedSlot(fd=control), _attached(indexes)).work()
    except DescriptorsLost:
        raise
    except Disconnected:
        pass  # the loader is gone, or has closed the channel
    finally:
        channel.close()


def _attached(indexes: int | None) -> core.SharedIndexes | None:
    """The shared entropy indexes; None if there are none, or this process may map no more memory."""
    if indexes is None:
        return None
    try:
        shared = core.SharedIndexes(fd=indexes)
    except FastloadError:  # pixels are the same without
        return None
    shared.release_fd()
    return shared


def set_signals(handled: tuple[int, ...]) -> None:
    """Ignores Ctrl-C and the other signals that the parent handles; on SIGTERM the worker exits and runs
    `finally` blocks.

    Source: NOTE [ processes: signals ].
    """
    torch._C._set_worker_signal_handlers()
    # Not SIG_IGN, which programs started from here would inherit.
    signal.signal(signal.SIGINT, lambda number, frame: None)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    for number in handled:
        signal.signal(number, signal.SIG_IGN)


class Worker:
    """State of a worker process between tasks, and the handlers of messages."""

    def __init__(
        self,
        job: Job,
        number: int,
        channel: Channel,
        control: core.SharedSlot,
        indexes: core.SharedIndexes | None,
    ) -> None:
        self._job = job
        self._number = number
        self._channel = channel
        self._control = control
        self._indexes = indexes
        self._forms: OpenedForms | None = None
        self._dataset = job.dataset
        self._sample_seed = job.sample_seed
        self._policy = job.policy
        self._lost = Lost()  # losses of the current task
        numbers = itertools.count(job.workers + 1 + number, job.workers + 1)
        self._slots = WorkerSlots(numbers, job.keep, job.pinned)
        self._memory = BatchMemory(self._slots)
        self._layout: rows.SampleLayout | None = None
        self._described = not job.rowwise
        self._seconds = [0.0, 0.0]  # in the dataset, in collating; of the current task
        self._slowest: tuple[float, Any] = (0.0, None)
        self._ended = False  # an iterable dataset's replica is exhausted
        self._failed: RaisedInWorker | None = (
            None  # failure at the begin of the epoch, or of the worker: no batch can be made
        )
        self._started = False  # worker_init_fn has returned, and there is a fetcher
        self._advice = ""  # on the exception that is being raised
        self._tracing = tracing.WorkerTracing()
        self._tracing.trace(job.traced)
        self._begin()

    def _begin(self) -> None:
        hold_threads()
        job = self._job
        seed = seed_worker(job.base_seed, self._number)
        torch.multiprocessing._set_thread_name("fl_worker")
        self._reseed(job.shared_seed)
        torch_worker._worker_info = torch_worker.WorkerInfo(
            id=self._number, num_workers=job.workers, seed=seed, dataset=self._dataset
        )
        self._plain_stack = torch_collate.default_collate_fn_map[torch.Tensor]
        exchanged = self._plain_stack is torch_collate.collate_tensor_fn
        self._stacks = exchanged and job.collate_fn is default_collate  # batches are stacked by `_stack`
        if exchanged:
            torch_collate.default_collate_fn_map[torch.Tensor] = stacking = self._stack
            stand_in(stacking, self._plain_stack)
        # True only while the batch itself is collated: a dataset may keep what it collates for itself
        self._in_place = False
        if job.lazy is not None:
            if job.forms is not None:
                from fastload.dataset.opened_forms import OpenedForms

                self._forms = OpenedForms(job.forms)
            opening.install(job.lazy, self._indexes, self._forms)
            composing.install()
        try:
            if job.init_fn is not None:
                job.init_fn(self._number)
            self._resume()
            self._started = True
        except Exception:
            self._failed = self._wrapped()

    def _resume(self) -> None:
        """Makes the first fetcher, at the position of this worker's copy of the dataset."""
        past = self._job.replicas[self._number] if self._job.replicas else DatasetState()
        self._batches = past.batches  # made in this pass
        # The loaded state may leave the dataset at its own end: if it then yields nothing, it is iterated
        # once more.
        self._rewind = past.state is not None and (past.ended or not past.batches)
        load_at_start(past, self._dataset, self._make_fetcher)
        fetcher_at(past, self._job.batch_size, self._dataset, self._make_fetcher)

    def _reseed(self, shared_seed: int | None) -> None:
        if isinstance(self._dataset, IterDataPipe):
            generator = torch.Generator()
            generator.manual_seed(shared_seed or 0)
            self._dataset = apply_random_seed(self._dataset, generator)

    def _make_fetcher(self) -> object:
        job = self._job
        self._fetcher = create_fetcher(
            job.kind, self._dataset, job.auto_collation, self._collate, job.drop_last
        )
        return self._fetcher

    def work(self) -> None:
        """Handles messages until it receives Stop, or until the parent is gone."""
        while True:
            received = self._received()
            assert received is not None  # a worker's channel blocks
            message, fds = received
            if isinstance(message, messages.Stop):
                return
            if isinstance(message, messages.MapSlot):
                self._slots.map(message.number, *fds)
            else:
                _HANDLERS[type(message)](self, message)

    def _received(self) -> tuple[object, tuple[int, ...]] | None:
        """The next message; forms are made while there is none."""
        if self._forms is None:
            return self._channel.receive()
        self._forms.rest(True)
        try:
            return self._channel.receive()
        finally:
            self._forms.rest(False)

    def _drop_slots(self, message: messages.DropSlots) -> None:
        self._slots.drop(message.numbers)

    def _use_layout(self, message: messages.UseLayout) -> None:
        self._layout = message.layout

    def _trace_stages(self, message: messages.TraceStages) -> None:
        self._tracing.trace(message.on)

    def _begin_epoch(self, message: messages.BeginEpoch) -> None:
        """Begins another epoch of a persistent worker: the dataset is iterated again, and the random state
        goes on."""
        self._ended, self._batches = False, 0
        if not self._started:
            self._send(messages.EpochBegun(self._number, None))
            return
        self._failed = None
        if self._job.set_draws is not None:
            self._job.set_draws(self._dataset, message.draws)
        self._sample_seed, self._policy = message.sample_seed, message.policy
        stands = None
        try:
            stands = dataset_state_of(self._dataset, self._fetcher)
            self._reseed(message.shared_seed)
            self._make_fetcher()
        except Exception:
            self._failed = self._wrapped()
        self._send(messages.EpochBegun(self._number, stands))

    def _claim_batch(self, message: messages.OfferBatch) -> None:
        """Makes a whole batch that all workers were offered, unless another worker claimed it first."""
        if self._control.claim(message.ticket, 1) == 0:
            self._make_batch(message.task)

    def _make_batch(self, task: messages.MakeBatch) -> None:
        batch, index, least, most, occurrences = task
        if self._ended:
            return  # the parent knows, and does not wait for this batch
        self._seconds, self._slowest, self._lost = [0.0, 0.0], (0.0, None), Lost()
        try:
            if self._failed is not None:
                self._send(messages.BatchFailed(self._number, batch, self._failed))
                return
            self._memory.begin(least, most)
            self._batches += 1
            made = self._fetch(index, occurrences)
            self._tell_replica(batch)
            if self._lost.instead:
                self._send(messages.SamplesLost(self._number, batch, self._lost))
            if made is NOTHING:
                self._send(messages.BatchEmpty(self._number, batch, self._report()))
                return
            packed = self._packed(made)
            del made
            self._deliver(batch, self._memory.released(packed))
        except Disconnected:
            raise
        except Exception as error:
            self._send(self._failure(batch, error))
        finally:
            self._memory.end()

    def _failure(self, batch: int, error: Exception) -> messages.DatasetEnded | messages.BatchFailed:
        """The answer to a task whose batch was not made: the dataset's end, or the error. The dataset's
        state may fail as well."""
        failed = self._wrapped()
        try:
            if isinstance(error, StopIteration) and self._job.kind == _DatasetKind.Iterable:
                stands = dataset_state_of(self._dataset, self._fetcher)
                self._ended = True
                return messages.DatasetEnded(self._number, batch, stands)
            self._tell_replica(batch, failed=True)
        except Disconnected:
            raise
        except Exception:
            if isinstance(error, StopIteration):
                failed = self._wrapped()
        return messages.BatchFailed(self._number, batch, failed, self._tracing.take())

    def _tell_replica(self, batch: int, failed: bool = False) -> None:
        """Sends the dataset's state after this batch, for state_dict().

        An iterable dataset sends it less often: a resume can redo the batches after it.
        """
        every = self._job.snapshot_every if self._job.kind == _DatasetKind.Iterable and not failed else 1
        stands = state_after(self._dataset, self._fetcher, self._batches, every)
        if stands is not None:
            self._send(messages.DatasetStands(self._number, batch, stands))

    def _fetch(self, index: object, occurrences: list[int] | None) -> object:
        """The batch; NOTHING if on_error skipped all its samples."""
        begun = time.perf_counter()
        if self._job.kind == _DatasetKind.Map:
            if self._job.auto_collation:
                samples = self._samples(index, occurrences)
            else:
                samples = self._policy.make(
                    self._dataset, self._sample, index, 0, self._lost, (occurrences or [0])[0]
                )
            made = NOTHING if samples is NOTHING else self._collate(samples, index)
        else:
            rewind, self._rewind = self._rewind, False
            with self._stage("python"):
                made = fetched(self._fetcher, index, self._make_fetcher if rewind else None)
        self._seconds[0] = time.perf_counter() - begun - self._seconds[1]
        return made

    def _samples(self, indices: Any, occurrences: list[int] | None) -> Any:
        several = getattr(self._dataset, "__getitems__", None) if self._sample_seed is None else None
        places = (self._stacks or self._memory.hands_on) and type(indices) is list
        with self._stage("python") if several else _NO_STAGE:
            samples = self._policy.make_all(
                self._dataset,
                partial(self._placed_sample, len(indices)) if places else self._sample,
                several or None,
                indices,
                self._lost,
                occurrences,
            )
        if samples is not NOTHING:
            self._memory.made(samples, self._stacks)
        if not self._described and samples and samples is not NOTHING:
            self._described = True
            layout = rows.describe(samples[0])
            if layout is not None and layout.travels:
                self._send(messages.LayoutFound(self._number, layout))
        return samples

    def _sample(self, index: object, occurrence: int) -> Any:
        if self._sample_seed is not None:
            seed_sample(*self._sample_seed, index, occurrence)
        begun = time.perf_counter()
        with (
            self._stage("python", index),
            occurring(occurrence, resolved=self._policy.packed) if occurrence else _NO_STAGE,
        ):
            sample = self._dataset[index]
        took = time.perf_counter() - begun
        self._seconds[0] += took
        if took > self._slowest[0]:
            self._slowest = (took, index)
        return sample

    def _placed_sample(self, count: int, index: object, occurrence: int) -> Any:
        """A sample of a batch of `count`, with its large tensors in the slot."""
        sample = self._sample(index, occurrence)
        begun = time.perf_counter()
        placed = self._memory.placed(sample, count, self._stacks)
        self._seconds[1] += time.perf_counter() - begun
        return placed

    def _stage(self, name: str, index: object = None) -> AbstractContextManager[None]:
        """Context manager: a stage, of the sample `index` if it is one's, told to the trace that is taken."""
        if tracing.active is None:
            return _NO_STAGE
        return tracing.Span(tracing.active, name, None if index is None else {"index": tracing.shown(index)})

    def _collate(self, samples: Any, index: object = None) -> Any:
        begun = time.perf_counter()
        self._in_place = self._job.collate_fn is default_collate
        try:
            with self._stage("collate"):
                return self._job.collate_fn(samples)
        except (RuntimeError, TypeError) as error:
            if self._in_place:
                indices = None if index is None else self._lost.among(index, True)
                self._advice = advice_on(error, samples, indices, packed=self._policy.packed)
            raise
        finally:
            self._in_place = False
            self._seconds[1] += time.perf_counter() - begun

    def _stack(self, batch: Any, *, collate_fn_map: Any = None) -> torch.Tensor:
        """torch's collate_tensor_fn, which stacks into the slot. The user's own code may keep the tensors
        that it collates: they get other memory."""
        first = batch[0]
        plain = (
            type(first) is torch.Tensor
            and first.layout is torch.strided
            and not first.is_nested
            and first.device.type == "cpu"
        )
        if not plain or _STACKING.replaced():
            stacked: torch.Tensor = self._plain_stack(batch, collate_fn_map=collate_fn_map)
            return stacked
        shape = (len(batch), *first.shape)
        if not self._in_place or first.requires_grad or first.is_quantized:
            return torch.stack(batch, 0)
        placed = None if self._memory.rows is None else self._memory.rows.stacked(batch)
        if placed is not None:
            return placed
        if any(getattr(each, "shape", None) != first.shape for each in batch):
            return torch.stack(batch, 0)  # raises, and names the shapes that differ
        return torch.stack(batch, 0, out=self._memory.arena.empty(shape, first.dtype))

    def _packed(self, made: object) -> PackedBatch:
        begun = time.perf_counter()
        began_ns = 0 if tracing.active is None else core.clock_ns()
        packed = self._memory.pack(made)
        self._seconds[1] += time.perf_counter() - begun
        if tracing.active is not None:
            tracing.active.add("write", began_ns, {"bytes": packed.needed})
        return packed

    def _deliver(self, batch: int, packed: PackedBatch) -> None:
        """Sends a packed batch to the parent."""
        slot, needed, body = packed
        number, fds = (None, ()) if slot is None else (slot.number, (slot.memory.fd,) if slot.fresh else ())
        self._send(messages.BatchDone(self._number, batch, number, needed, body, self._report()), fds)
        if slot is not None:
            self._slots.sent(slot)

    def _make_rows(self, message: messages.OfferRows) -> None:
        """Makes rows of a batch that all workers fill: claims one after the other until none is left."""
        batch, ticket, indices, slot, occurrences = message
        total = len(indices)
        row = self._control.claim(ticket, total)
        if row < 0 or self._layout is None:
            return
        self._seconds, self._slowest, self._lost = [0.0, 0.0], (0.0, None), Lost()
        writer = rows.RowWriter(self._layout, self._slots.memory_of(slot), total)
        made: list[tuple[int, list[Any]]] = []
        count, odd = 0, False
        error: tuple[int, RaisedInWorker] | None = None
        while row >= 0:
            count += 1
            try:
                if self._failed is not None:
                    error = error or (row, self._failed)
                elif (
                    strings := self._row(
                        writer, row, indices[row], 0 if occurrences is None else occurrences[row]
                    )
                ) is None:
                    odd = True
                elif strings:
                    made.append((row, strings))
            except Exception:
                error = error or (row, self._wrapped())
            row = self._control.claim(ticket, total)
        lost = self._lost if self._lost.instead else None
        self._send(
            messages.RowsDone(self._number, batch, ticket, count, made, odd, error, lost, self._report())
        )

    def _row(self, writer: rows.RowWriter, row: int, index: object, occurrence: int) -> list[Any] | None:
        """Makes one sample and writes it into its row. Returns its strings, or None if its layout differs
        from the others'."""
        sample = self._policy.make(self._dataset, self._sample, index, row, self._lost, occurrence)
        if sample is NOTHING:
            return []
        begun = time.perf_counter()
        values = rows.flatten(sample, writer.layout)
        try:
            with self._stage("write"):
                return None if values is None else writer.write(row, values)
        except OverflowError:
            return None
        finally:
            self._seconds[1] += time.perf_counter() - begun

    def _report(self) -> messages.WorkerReport:
        (python, collate), traced = self._seconds, self._tracing.take()
        return messages.WorkerReport(
            python,
            collate,
            *self._slowest,
            self._memory.pickler.by_value,
            counts.take(),
            traced,
            self._slots.take_ended(),
        )

    def _send(self, message: object, fds: tuple[int, ...] = ()) -> None:
        try:
            body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        except (pickle.PicklingError, AttributeError, TypeError):
            # For instance an exception of a local class.
            import cloudpickle

            body = cloudpickle.dumps(message)
        self._channel.send_bytes(body, fds)

    def _wrapped(self) -> RaisedInWorker:
        error = sys.exc_info()[1]
        assert error is not None
        advice, self._advice = self._advice, ""
        return wrapped(error, self._number, self._dataset, Worker._sample.__code__, advice)


_NO_STAGE = nullcontext()
_HANDLERS: dict[type, Callable[[Worker, Any], None]] = {
    messages.DropSlots: Worker._drop_slots,
    messages.UseLayout: Worker._use_layout,
    messages.BeginEpoch: Worker._begin_epoch,
    messages.TraceStages: Worker._trace_stages,
    messages.MakeBatch: Worker._make_batch,
    messages.OfferBatch: Worker._claim_batch,
    messages.OfferRows: Worker._make_rows,
}
