"""Messages between a loader's process and its workers; each is dispatched by its type.

A message is pickled onto the worker's channel; a file descriptor that belongs to it goes beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch._utils import ExceptionWrapper

    from fastload.bad_samples import Lost, Policy
    from fastload.packed_view import Draws
    from fastload.processes.row_collate import Layout
    from fastload.resume.dataset_state import DatasetState


class WorkerReport(NamedTuple):
    """What a worker measured while it made a batch, or its part of one, for the health report.

    Attributes:
        python_seconds: in the dataset.
        collate_seconds: in collating and packing.
        slowest_seconds, slowest_index: of the slowest sample.
        by_value: tensors that did not fit the slot and went by pickle.
    """

    python_seconds: float
    collate_seconds: float
    slowest_seconds: float
    slowest_index: Any
    by_value: int


# ---- to a worker


class Stop(NamedTuple):
    """The worker is to end."""


class MapSlot(NamedTuple):
    """A slot to map; its descriptor goes with the message."""

    number: int


class DropSlots(NamedTuple):
    """Slots to unmap."""

    numbers: list[int]


class UseLayout(NamedTuple):
    """The layout of a sample's row: from now on workers share batches row by row."""

    layout: Layout


class BeginEpoch(NamedTuple):
    """Another epoch of persistent workers."""

    shared_seed: int | None
    sample_seed: tuple[int, int] | None
    draws: Draws | None
    policy: Policy


class MakeBatch(NamedTuple):
    """A batch for this worker. `size_hint`: bytes of a new slot, where `slot` is None or too small."""

    batch: int
    index: Any
    slot: int | None
    size_hint: int


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


# ---- from a worker


class BatchDone(NamedTuple):
    """A batch lies in its slot. A new slot's descriptor goes with the message.

    Attributes:
        needed: bytes of the slot that the batch takes.
        body: its pickle, or that pickle's length where it lies at the end of those bytes.
    """

    worker: int
    batch: int
    slot: int | None
    needed: int
    body: bytes | int
    report: WorkerReport


class BatchEmpty(NamedTuple):
    """on_error has left out every sample of a batch."""

    worker: int
    batch: int
    report: WorkerReport


class BatchFailed(NamedTuple):
    """A batch could not be made; the error is raised when its turn comes."""

    worker: int
    batch: int
    error: ExceptionWrapper


class SamplesLost(NamedTuple):
    """Samples of a batch that on_error left out or replaced; sent before the batch."""

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
    layout: Layout
    batch: int = -1


class RowsDone(NamedTuple):
    """Rows of a batch that this worker has made.

    Attributes:
        rows: how many.
        strings: by row, what of it is no tensor.
        odd: a row does not have the common layout.
        error: of the first row that failed, with its number.
        lost: rows that on_error left out or replaced.
    """

    worker: int
    batch: int
    ticket: int
    rows: int
    strings: list[tuple[int, list[Any]]]
    odd: bool
    error: tuple[int, ExceptionWrapper] | None
    lost: Lost | None
    report: WorkerReport
