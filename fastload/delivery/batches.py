"""One pass over packed data: pull index batches, keep them in flight, hand over finished ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate

from fastload._native import core
from fastload.delivery.lease import images_of
from fastload.sampling import Course, substitutes
from fastload.workers.threads import ThreadEngine

READ_AHEAD = 96
"""Samples whose pages are asked for before their turn. On random 100 KB reads 64 were enough to keep a disk of 1.2 GB/s busy."""


@dataclass
class Counts:
    """Samples that on_error replaced or skipped; shared by a loader and its iterators."""

    replaced: int = 0
    skipped: int = 0


@dataclass(frozen=True)
class Delivery:
    """How finished batches reach the user; the same for every pass of a loader.

    Attributes:
        collate: None for (images, labels) as default_collate gives them, else the user's function over samples.
        batched: False for batch_size=None: single samples.
        on_error: "raise", "replace" or "skip".
        in_order: hand out batches in the sampler's order.
        timeout: seconds a wait may take, 0 for no limit.
        depth: batches in flight.
        place: moves a finished batch (pinning, device); the identity on the CPU.
        counts: added to for each sample that was replaced or skipped.
    """

    collate: Callable[[list[Any]], Any] | None
    batched: bool
    on_error: str
    in_order: bool
    timeout: float
    depth: int
    place: Callable[[Any], Any] = field(compare=False)  # made anew for each pass
    counts: Counts


class PackedIterator(Iterator[Any]):
    """Iterates one epoch.

    1. Made by the loader, which also decides seed and epoch; pulls from the sampler only as far as depth and read-ahead need.
    2. A failure belongs to its batch: it is raised when that batch's turn comes, and the batches after it stay deliverable.
    3. When the sampler is exhausted, free depth goes to `successor`, if the loader gives one: the next epoch, begun early.
    4. Dropping it half-way is safe: see core.Batch.
    """

    def __init__(
        self,
        engine: ThreadEngine,
        batches: Iterator[Sequence[int] | int],
        delivery: Delivery,
        seed: int,
        epoch: int,
        length: Callable[[], int],
        successor: Callable[[], PackedIterator | None],
        course: Course,
    ) -> None:
        self._engine = engine
        self._batches: Iterator[Any] | None = batches
        self._delivery = delivery
        self._seed = seed
        self.epoch = epoch
        self.course = course
        self._length = length
        self._make_successor = successor
        self._successor: PackedIterator | None = None
        self._succeeded = False
        self._announced: deque[core.Batch | Exception] = deque()
        self._in_flight: deque[core.Batch | Exception] = deque()
        self._numbers: deque[int] = deque()  # of what is in flight, then of what is announced

    def __iter__(self) -> PackedIterator:
        return self

    def __len__(self) -> int:
        return self._length()

    def start(self, depth: int | None = None) -> PackedIterator:
        """Puts batches in flight, `depth` of them at most; returns itself."""
        budget = self._delivery.depth if depth is None else depth
        while len(self._in_flight) < budget and self._announce(1):
            batch = self._announced.popleft()
            if isinstance(batch, core.Batch):
                batch.submit()
            self._in_flight.append(batch)
        self._announce(READ_AHEAD)
        return self

    def _announce(self, samples: int) -> bool:
        """Pulls from the sampler until that many samples wait announced; False when none do and the sampler is exhausted."""
        waiting = sum(b.rows if isinstance(b, core.Batch) else 1 for b in self._announced)
        while waiting < samples and self._batches is not None:
            try:
                picked = next(self._batches)
            except StopIteration:
                self._batches = None
                break
            positions = picked if self._delivery.batched else [picked]
            batch: core.Batch | Exception
            try:
                batch = self._engine.announce(positions, self._seed, self.epoch)
            except (IndexError, RuntimeError, ValueError) as error:
                batch = error
            self._announced.append(batch)
            self._numbers.append(self.course.at)
            waiting += len(positions) or 1
        return bool(self._announced)

    def __next__(self) -> Any:
        while True:
            self.start()
            self._begin_next_epoch()
            if not self._in_flight:
                self.course.end()
                raise StopIteration
            batch = self._take()
            if isinstance(batch, Exception):
                raise batch
            delivered = self._deliver(batch)
            if delivered is not _NOTHING:
                self.course.deliver()
                return delivered

    def _begin_next_epoch(self) -> None:
        spare = self._delivery.depth - len(self._in_flight)
        if self._batches is not None or self._announced or spare <= 0:
            return
        if not self._succeeded:
            self._succeeded = True
            self._successor = self._make_successor()
        if self._successor is not None:
            self._successor.start(spare)

    def _take(self) -> core.Batch | Exception:
        """Waits for the batch whose turn it is, and takes it out of flight."""
        which = 0
        waiting = [b for b in self._in_flight if isinstance(b, core.Batch)]
        if self._delivery.in_order:
            waiting = waiting[:1] if isinstance(self._in_flight[0], core.Batch) else []
        if waiting:
            which = self._in_flight.index(waiting[core.wait_any(waiting, self._delivery.timeout)])
        batch = self._in_flight[which]
        del self._in_flight[which]
        self.course.take(self._numbers[which], batch.rows if isinstance(batch, core.Batch) else 0)
        del self._numbers[which]
        if len(self._in_flight) < self._delivery.depth:
            self.start()
        return batch

    def _deliver(self, batch: core.Batch) -> Any:
        failures = batch.failures()
        keep = self._settle(batch, failures) if failures else None
        if keep == []:
            return _NOTHING
        sources, indices = batch.row_arrays()
        images = images_of(batch, self._engine.output)
        if keep is not None and len(keep) < len(indices):
            sources, indices, images = sources[keep], indices[keep], images[keep]
        return self._delivery.place(self._assemble(images, sources, indices))

    def _settle(self, batch: core.Batch, failures: list[tuple[int, int, int, int, str]]) -> list[int] | None:
        """Applies on_error to a batch's failed rows. Returns the rows to keep, None for all."""
        row, index, source, _, reason = failures[0]
        if self._delivery.on_error == "raise":
            raise self._engine.sample_error(source, index, reason)
        if self._delivery.on_error == "skip":
            bad = {failure[0] for failure in failures}
            self._delivery.counts.skipped += len(bad)
            return [row for row in range(batch.rows) if row not in bad]
        for row, index, source, _, reason in failures:
            self._replace(batch, row, index, source, reason)
        self._delivery.counts.replaced += len(failures)
        return None

    def _replace(self, batch: core.Batch, row: int, index: int, source: int, reason: str) -> None:
        view = self._engine.view
        tried = substitutes(self._seed, self.epoch, index, len(view))
        for sources, indices in (view.rows([position]) for position in tried):
            if (int(sources[0]), int(indices[0])) != (source, index) and batch.redo(row, int(sources[0]), int(indices[0])):
                return
        raise self._engine.sample_error(source, index, f"{reason}; and none of {len(tried)} substitutes could be made either")

    def _assemble(self, images: torch.Tensor, sources: np.ndarray[Any, Any], indices: np.ndarray[Any, Any]) -> Any:
        first = self._engine.view.datasets[0]
        collate = self._delivery.collate
        if collate is None and self._delivery.batched:
            return first.assemble(self._columns(images, sources, indices))
        values: dict[str, Any] = dict(self._engine.values(sources, indices))
        if first.image_field in first.fields:
            values[first.image_field] = list(images.unbind(0))
        samples = [first.assemble({f: values[f][row] for f in first.fields}) for row in range(len(indices))]
        if self._delivery.batched:
            assert collate is not None
            return collate(samples)
        return samples[0] if collate is None else collate(samples[0])

    def _columns(self, images: torch.Tensor, sources: np.ndarray[Any, Any], indices: np.ndarray[Any, Any]) -> dict[str, Any]:
        """A batch by field as default_collate would give it, without a Python object per sample where the field is a column."""
        datasets = self._engine.view.datasets
        first = datasets[0]
        out: dict[str, Any] = {}
        rest: dict[str, list[Any]] | None = None
        for name in first.fields:
            kind = first.opened.kinds[name]
            if kind == "image":
                out[name] = images
            elif kind in ("int", "float", "array"):
                out[name] = torch.from_numpy(_gather([d.column(name) for d in datasets], sources, indices))
            else:
                rest = self._engine.values(sources, indices) if rest is None else rest
                out[name] = default_collate(rest[name])
        return out


_NOTHING: Any = object()


def _gather(columns: list[np.ndarray[Any, Any]], sources: np.ndarray[Any, Any], indices: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if len(columns) == 1:
        return np.ascontiguousarray(columns[0][indices])
    rows = np.empty((len(indices), *columns[0].shape[1:]), columns[0].dtype)
    for number in np.unique(sources):
        mine = sources == number
        rows[mine] = columns[number][indices[mine]]
    return rows
