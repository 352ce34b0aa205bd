"""Messages between a loader's process and its workers, each dispatched by its type; Job: the parameters that
workers are started with.

A message is pickled and sent over the worker's channel, together with the file descriptor that belongs to it,
if any.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from fastload.batch.bad_samples import RAISE, Policy
from fastload.engines.resume.datasets import DatasetState

if TYPE_CHECKING:
    from fastload.batch.bad_samples import Lost
    from fastload.dataset.copies import DrawBasis
    from fastload.dataset.opened_forms import FormsPlace
    from fastload.engines.processes.row_collate import SampleLayout
    from fastload.engines.processes.worker_errors import RaisedInWorker
    from fastload.health.tracing import Taken
    from fastload.lazy.counts import LazyCounts
    from fastload.lazy.opening import Exactness


@dataclass(frozen=True)
class Job:
    """Parameters of a worker process, the same for all workers of an iterator.

    Attributes:
        kind: torch's _DatasetKind.
        auto_collation, drop_last, collate_fn, init_fn: the loader's.
        base_seed: the base of torch's worker seeds.
        shared_seed: the shared seed of an IterDataPipe, else None.
        sample_seed: (seed, epoch) under seed_by="sample", else None.
        rowwise: workers share the rows of each batch, once the layout of a sample is known.
        parent: PID of the process that they work for.
        replicas: for a resumed pass, the state of each worker's copy of the dataset; else empty.
        batch_size: samples in a batch of an iterable dataset.
        snapshot_every: a worker sends the state of an iterable dataset after each so many of its batches; 0:
            only at the end.
        set_draws: for packed data and mixtures, the seed and epoch from which a new epoch's samples and
            random transforms follow.
        policy: treatment of samples that fail in the first epoch.
        lazy: exactness of the images that Pillow opens as lazy ones; None: it is left alone.
        forms: the place of forms of the images that Pillow opens; None: they are not kept.
        traced: True if workers record their stages from the start, for a trace.
        keep: most idle slots that are kept.
        pinned: True if the parent pins slots.
    """

    dataset: Any
    kind: int
    auto_collation: bool
    drop_last: bool
    collate_fn: Callable[[Any], Any]
    init_fn: Callable[[int], None] | None
    base_seed: int
    shared_seed: int | None
    sample_seed: tuple[int, int] | None
    rowwise: bool
    parent: int
    workers: int
    replicas: tuple[DatasetState, ...] = ()
    batch_size: int = 1
    snapshot_every: int = 1
    set_draws: Callable[[Any, Any], None] | None = None
    policy: Policy = RAISE
    lazy: Exactness | None = None
    forms: FormsPlace | None = None
    traced: bool = False
    keep: int = 4
    pinned: bool = False


class WorkerReport(NamedTuple):
    """Measurements of a worker making a batch, or its rows of one, for the health report.

    Attributes:
        python_seconds: time in the dataset.
        collate_seconds: time in collating and packing.
        slowest_seconds, slowest_index: time and index of the slowest sample.
        by_value: tensors that did not fit the slot and went by pickle.
        images: counts of lazy images since the last report; None: there were none.
        traced: events since the last report; None: no trace is taken.
        ended_slots: numbers of the slots that it has ended since.
    """

    python_seconds: float
    collate_seconds: float
    slowest_seconds: float
    slowest_index: object
    by_value: int
    images: LazyCounts | None = None
    traced: Taken | None = None
    ended_slots: Sequence[int] = ()


# ---- to a worker


class Stop(NamedTuple):
    """Ends the worker."""


class MapSlot(NamedTuple):
    """A slot to map; its descriptor goes with the message."""

    number: int


class DropSlots(NamedTuple):
    """Slots to unmap."""

    numbers: list[int]


class UseLayout(NamedTuple):
    """The layout of a batch's rows. From now on the workers share the rows of each batch."""

    layout: SampleLayout


class TraceStages(NamedTuple):
    """Begins or ends the worker's events for a trace."""

    on: bool


class BeginEpoch(NamedTuple):
    """Begins another epoch of persistent workers."""

    shared_seed: int | None
    sample_seed: tuple[int, int] | None
    draws: DrawBasis | None
    policy: Policy


class MakeBatch(NamedTuple):
    """A batch for this worker.

    Attributes:
        least: bytes that recent batches took in their slots; 0: there are none.
        most: bytes from which on a slot is not worth keeping.
        occurrences: occurrence of each index; None: all are 0.
    """

    batch: int
    index: Any
    least: int
    most: int
    occurrences: list[int] | None = None


class OfferBatch(NamedTuple):
    """A batch for whichever worker claims its ticket first."""

    ticket: int
    task: MakeBatch


class OfferRows(NamedTuple):
    """A batch whose rows are claimed one by one, by every worker that is free."""

    batch: int
    ticket: int
    indices: list[Any]
    slot: int
    occurrences: list[int] | None = None


# ---- from a worker


class BatchDone(NamedTuple):
    """A batch lies in its slot. A new slot's descriptor goes with the message.

    Attributes:
        needed: bytes that the batch takes in the slot.
        body: its pickle, or that pickle's length where it lies at the end of those bytes.
    """

    worker: int
    batch: int
    slot: int | None
    needed: int
    body: bytes | int
    report: WorkerReport


class BatchEmpty(NamedTuple):
    """A batch without samples: on_error skipped all of them."""

    worker: int
    batch: int
    report: WorkerReport


class BatchFailed(NamedTuple):
    """A batch could not be made; the error is raised when its turn comes."""

    worker: int
    batch: int
    error: RaisedInWorker
    traced: Taken | None = None


class SamplesLost(NamedTuple):
    """Samples of a batch that on_error skipped or replaced; sent before the batch."""

    worker: int
    batch: int
    lost: Lost


class DatasetStands(NamedTuple):
    """The state of the worker's dataset after a batch; sent before the batch."""

    worker: int
    batch: int
    state: DatasetState


class DatasetEnded(NamedTuple):
    """The worker's iterable dataset has no more samples."""

    worker: int
    batch: int
    state: DatasetState


class EpochBegun(NamedTuple):
    """The worker has begun another epoch; `state`: of its dataset at that moment."""

    worker: int
    state: DatasetState | None
    batch: int = -1


class LayoutFound(NamedTuple):
    """The layout of the first sample that the worker has made."""

    worker: int
    layout: SampleLayout
    batch: int = -1


class RowsDone(NamedTuple):
    """Rows of a batch that this worker has made.

    Attributes:
        rows: the number of these rows.
        strings: the strings of each row, by row number.
        odd: True if a row does not have the common layout.
        error: number and error of the first row that failed.
        lost: rows that on_error skipped or replaced.
    """

    worker: int
    batch: int
    ticket: int
    rows: int
    strings: list[tuple[int, list[Any]]]
    odd: bool
    error: tuple[int, RaisedInWorker] | None
    lost: Lost | None
    report: WorkerReport
