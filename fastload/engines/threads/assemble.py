"""BatchAssembler: turns a ready slot into the batch that the loop gets. Failed rows are handled, fields
added, the batch transferred."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import default_collate

from fastload._native import core
from fastload.batch.bad_samples import NOTHING, Lost, reason_of
from fastload.batch.collate import Collate, advice_on
from fastload.common.rng import row_seed, substitute_occurrence, substitutes
from fastload.dataset.opened import TORCH_DTYPES
from fastload.dataset.view import ListedRows, NativeView
from fastload.device.stages import BatchKey
from fastload.device.transfer import Transfer, TransferredBatch
from fastload.engines.iterator import LossCounts, PassLosses
from fastload.engines.plan import ExecutionPlan
from fastload.engines.threads.engine import ThreadEngine
from fastload.engines.threads.image_sizes import EQUAL, FLAT, LIST, layout_for, require_one_size
from fastload.engines.threads.native_batch import (
    Alone,
    ListedImages,
    NativeValues,
    SlotImages,
    native_values,
)
from fastload.errors import ArgumentError, ClosedError, FastloadError, ResourceError, SampleError
from fastload.health import tracing
from fastload.store.form import names_in_tuples, with_lists

Failure = tuple[int, int, int, int, str]
"""(row, index, source, code, reason) of a row whose image could not be made."""
Images = torch.Tensor | SlotImages | ListedImages | list[torch.Tensor | SlotImages]
"""An image of each row of a batch, or the list of its views; SlotImages where their sizes may differ,
ListedImages where samples have any number."""
Stored = dict[str, Any]
Opened = npt.NDArray[np.uint8] | Exception | None
"""Image as the program's own code opens it, or its exception; None: it opens none."""
"""A row's fields that are stored in its record beside the image, by name."""

_redoing = threading.Lock()
"""An engine has one worker to make rows again, and the iterators of an engine may each have a thread: they
take turns."""


@dataclass(frozen=True)
class AssembledBatch:
    """Result of assembling one batch. `transferred`: None if no row is left. `lost`: the rows replaced or
    skipped; None if none is."""

    transferred: TransferredBatch | None
    lost: Lost | None = None


class _Rows(NamedTuple):
    """The rows that are left of a batch.

    Attributes:
        images: images of all rows, by field.
        sources, indices: for each row, the number of its dataset, and its sample there.
        stored: fields of each row that are read from its record.
        native: the fields beside the images that lie in the slot, of all rows, by field.
    """

    images: dict[str, Images]
    sources: np.ndarray[Any, Any]
    indices: np.ndarray[Any, Any]
    stored: list[Stored]
    native: dict[str, NativeValues]


class BatchAssembler:
    """Finishes the batches of one pass. It holds no reference to an iterator, and is used by one thread at
    a time."""

    def __init__(
        self,
        engine: ThreadEngine,
        view: NativeView,
        plan: ExecutionPlan,
        counts: LossCounts,
        seed: int,
        epoch: int,
    ) -> None:
        self._engine = engine
        self._view = view
        self._seed = seed
        self._epoch = epoch
        self._collate = plan.settings.own_collate_fn
        first = engine.view.datasets[0]
        self._root = first.root
        self._in_tuples: frozenset[str] = frozenset() if self._root is None else names_in_tuples(self._root)
        self._form = plan.settings.collation
        self._batched = plan.settings.auto_collation
        if any(dataset.plan.patches is not None for dataset in view.datasets):
            self.layout = FLAT
        elif view.has_lists:
            self.layout = EQUAL if first.plan.fixed_sizes is not None else LIST
        elif self._collate is not None:
            self.layout = layout_for(self._collate)
        else:
            self.layout = LIST if any(dataset.plan.boxed_size for dataset in view.datasets) else EQUAL
        self._on_error = plan.settings.on_error
        self.losses = PassLosses(counts)
        self._transfer = Transfer(plan.transfer) if plan.transfers else None

    def begin(self) -> None:
        """Begins the pass, in the loop's thread."""
        if self._transfer is not None and self._transfer.has_rest:
            self._transfer.begin()

    def enter_thread(self) -> None:
        """Prepares another thread, which calls it, for finishing batches."""
        if self._transfer is not None:
            self._transfer.enter_thread()

    def __call__(self, number: int, batch: core.Batch) -> AssembledBatch:
        """Finishes a ready batch, the `number`-th of its pass.

        Raises:
            SampleError: a row failed, and on_error is "raise", or no substitute could be made.
            Exception: whatever the collate function and the batch transforms raise.
        """
        tracer = tracing.active
        if tracer is None:
            return self._finish(number, batch)
        began, rows = core.clock_ns(), batch.rows
        try:
            return self._finish(number, batch)
        finally:
            tracer.add("assemble", began, {"batch": number, "samples": rows})

    def _finish(self, number: int, batch: core.Batch) -> AssembledBatch:
        if batch.early:
            with _redoing:
                batch.renew()
        failures = batch.failures()
        if batch.fetch is not None and batch.fetch.error is not None:
            raise batch.fetch.error.with_traceback(None)
        if batch.listed is not None:
            return self._finish_lists(number, batch, batch.listed, failures)
        stored, unread = self._read_stored(batch, failures) if self._engine.has_stored else ({}, {})
        alone: dict[int, core.Batch] = {}
        lost = self._settle(batch, failures, unread, stored, alone) if failures or unread else None
        if lost is not None and not lost.instead:
            lost = None
        keep = lost.kept(batch.rows) if lost is not None and lost.skipped else None
        if keep == []:
            return AssembledBatch(None, lost)
        sources, indices = batch.row_arrays()
        for row, one in alone.items():
            (sources[row],), (indices[row],) = one.row_arrays()
        occurrences = batch.occurrences
        if keep is not None:
            sources, indices = sources[keep], indices[keep]
            occurrences = None if occurrences is None else occurrences[keep]
        rest = [stored[row] for row in (range(batch.rows) if keep is None else keep)] if stored else []

        def made() -> Any:
            if self.layout.kind == "padded":
                batch.tighten()
            if self._form is not None and self._form.form == "flat":
                batch.compact()
            lease, instead = batch.lease(), {row: (one, memory_of(one.lease())) for row, one in alone.items()}
            parts, places = self._parts(batch, lease, instead, keep), self._engine.image_parts
            images: dict[str, Images] = {
                name: parts[at] if isinstance(at, int) else [parts[each] for each in at]
                for name, at in places.items()
            }
            fields = self._engine.row_fields
            native: dict[str, NativeValues] = {}
            if fields is not None:
                native = native_values(batch, memory_of(lease), fields, self.layout, instead, keep)
            rows = _Rows(images, sources, indices, rest, native)
            return self._whole(rows) if self._is_whole(batch, bool(alone), keep) else self._assemble(rows)

        return self._put(made, BatchKey(self._seed, self._epoch, number, indices, occurrences), lost)

    def _put(self, made: Callable[[], Any], key: BatchKey, lost: Lost | None) -> AssembledBatch:
        """The batch that `made` makes, on its way to its device."""
        own = self._collate is None and torch.is_inference_mode_enabled()
        make = partial(_as_in_a_thread, made) if own else made
        return AssembledBatch(
            TransferredBatch(make(), key)
            if self._transfer is None
            else self._transfer.put(make, lambda: key),
            lost,
        )

    def _finish_lists(
        self, number: int, batch: core.Batch, listed: ListedRows, failures: list[Failure]
    ) -> AssembledBatch:
        """A batch whose samples have any number of images: `listed`."""
        sources, indices = listed.sources.copy(), listed.indices.copy()
        occurrences, lost = batch.occurrences, Lost()
        stored: dict[int, Stored] = {}
        instead: dict[int, list[Any]] = {}
        for sample, error in sorted(self._listed_errors(batch, listed, failures, stored).items()):
            if self._on_error == "raise":
                raise error
            other = None
            if self._on_error == "replace":
                before = 0 if occurrences is None else int(occurrences[sample])
                other, sources[sample], indices[sample], occurrence = self._listed_instead(
                    sample, int(sources[sample]), int(indices[sample]), before, error, stored, instead
                )
                occurrences = np.zeros(len(indices), np.uint32) if occurrences is None else occurrences
                occurrences[sample] = occurrence
            lost.add(sample, other, reason_of(error, int(listed.indices[sample])))
        keep = lost.kept(len(indices)) if lost.skipped else None
        if keep == []:
            return AssembledBatch(None, lost)
        left = range(len(indices)) if keep is None else keep
        sources, kept = sources[list(left)], indices[list(left)]

        def made() -> Any:
            rows = SlotImages(batch, memory_of(batch.lease()), 0, self.layout, {}, None)
            images = ListedImages(rows, listed, self._view.datasets[0].plan, instead, keep)
            (name,) = self._engine.image_parts
            of_batch = _Rows(
                {name: images}, sources, kept, [stored[each] for each in left] if stored else [], {}
            )
            return self._whole(of_batch) if self._joins(images) else self._assemble(of_batch)

        occurred = occurrences if occurrences is None or keep is None else occurrences[keep]
        key = BatchKey(self._seed, self._epoch, number, kept, occurred)
        return self._put(made, key, lost if lost.instead else None)

    def _joins(self, images: ListedImages) -> bool:
        """Returns True if the images of all samples are one value as they lie."""
        plan = self._view.datasets[0].plan
        if self._form is None:
            return self._collate is None and self._batched and plan.patches is not None
        flat = self._form.form == "flat" and plan.fixed_sizes is not None
        return self._form.form != "list" and (flat or plan.patches is not None)

    def _listed_errors(
        self, batch: core.Batch, listed: ListedRows, failures: list[Failure], stored: dict[int, Stored]
    ) -> dict[int, Exception]:
        """The errors of samples of which an image cannot be made, or a field cannot be read; the fields of
        the others go into `stored`. Raises ResourceError where memory or files ran out."""
        errors: dict[int, Exception] = {}
        with _redoing:
            for row, image, source, code, reason in failures:
                sample, place = listed.sample_of(row)
                if sample >= len(listed.indices) or sample in errors:
                    continue
                if code in core.RESOURCE_CODES:
                    raise ResourceError(f"sample {int(listed.indices[sample])}: {reason}")
                if self._engine.heal(batch, row, source, image):
                    continue
                error = self._loaded(batch, row, source, image, reason, self._opened(source, image))
                if error is not None:
                    told = getattr(error, "reason", "") or reason
                    errors[sample] = self._engine.sample_error(
                        source, int(listed.indices[sample]), f"image {place}: {told}"
                    )
        for sample, (source, index) in enumerate(zip(listed.sources, listed.indices, strict=True)):
            if sample not in errors and (error := self._read_row(sample, int(source), int(index), stored)):
                errors[sample] = error
        return errors

    def _listed_instead(
        self,
        sample: int,
        source: int,
        index: int,
        before: int,
        error: Exception,
        stored: dict[int, Stored],
        instead: dict[int, list[Any]],
    ) -> tuple[int, int, int, int]:
        """Makes another sample in the place of one that failed with `error`: its position, source, index and
        occurrence."""
        view, key = self._view, (self._seed, self._epoch, index)
        tried, occurrence = substitutes(*key, len(view), before), substitute_occurrence(*key, before)
        seed = row_seed(self._seed, self._epoch, occurrence)
        for position in tried:
            _, rows, listed = view.image_rows([position])
            assert listed is not None
            other = int(listed.sources[0]), int(listed.indices[0])
            made = [
                self._engine.made_alone(other[0], int(row), seed, self._epoch, int(drawn))
                for row, drawn in zip(rows, listed.drawn_as, strict=True)
            ]
            if other == (source, index) or any(each is None or each.failures() for each in made):
                continue
            if self._read_row(sample, *other, stored) is None:
                alone = (
                    SlotImages(each, memory_of(each.lease()), 0, LIST, {}, None) for each in made if each
                )
                instead[sample] = [each.samples()[0] for each in alone]
                return position, *other, occurrence
        reason = error.reason if isinstance(error, SampleError) else f"{type(error).__name__}: {error}"
        raise self._engine.sample_error(
            source, index, f"{reason}; and none of {len(tried)} substitutes could be made either"
        )

    def _parts(
        self, batch: core.Batch, lease: object, instead: dict[int, Alone], keep: list[int] | None
    ) -> list[torch.Tensor | SlotImages]:
        """The parts of a batch that was leased: without a copy where all rows are kept."""
        if self.layout is EQUAL:
            return [image if keep is None else image[keep] for image in _images_of(batch, lease)]
        return [
            SlotImages(batch, memory_of(lease), part, self.layout, instead, keep)
            for part in range(len(batch.parts))
        ]

    def hand_over(self, finished: AssembledBatch) -> Any:
        """The batch, for the loop's thread; NOTHING if no row is left. Counts the rows that on_error
        replaced or skipped."""
        if finished.lost is not None:
            self.losses.add(finished.lost)
        done, transfer = finished.transferred, self._transfer
        if done is None:
            return NOTHING
        return done.batch if transfer is None or not transfer.has_rest else transfer.get(done)

    def _read_stored(
        self, batch: core.Batch, failures: list[Failure]
    ) -> tuple[dict[int, Stored], dict[int, Exception]]:
        """Reads the fields of the rows whose images were made that are stored in records; and why those of
        a row cannot be read."""
        stored: dict[int, Stored] = {}
        unread: dict[int, Exception] = {}
        failed = {failure[0] for failure in failures}
        sources, indices = batch.row_arrays()
        with nullcontext() if batch.fetch is None else batch.fetch.held():
            for row, (source, index) in enumerate(zip(sources.tolist(), indices.tolist(), strict=True)):
                error = None if row in failed else self._read_row(row, source, index, stored)
                if error is not None:
                    unread[row] = error
        return stored, unread

    def _read_row(self, row: int, source: int, index: int, stored: dict[int, Stored]) -> Exception | None:
        """Reads the fields of a row's sample that are stored in its record. Returns why they cannot be
        read."""
        try:
            if self._engine.has_stored:
                stored[row] = self._engine.stored_values(source, index)
        except SampleError as error:
            return self._engine.sample_error(source, index, error.reason or str(error))
        except FastloadError:
            raise
        except Exception as error:
            if not self._engine.view.datasets[source].runs_programs_code:
                raise
            # See NOTE [ bad samples: which exceptions ]: nobody can tell a broken file from a broken program
            return error
        return None

    def _settle(
        self,
        batch: core.Batch,
        failures: list[Failure],
        unread: dict[int, Exception],
        stored: dict[int, Stored],
        alone: dict[int, core.Batch],
    ) -> Lost:
        """Applies on_error to a batch's failed rows. Raises ResourceError where memory or files ran out: the
        sample is not bad.

        `unread`: by row, why its fields cannot be read. `alone` gets the rows that were made as batches of
        their own."""
        lost = Lost()
        sources, indices = batch.row_arrays()
        reasons = {row: (code, reason) for row, _, _, code, reason in failures}
        openable = [
            row
            for row, (code, _) in sorted(reasons.items())
            if code not in core.RESOURCE_CODES and self._opens(sources[row])
        ]
        images = self._engine.opened([(int(sources[row]), int(indices[row])) for row in openable])
        with _redoing, closing(images):
            for row in sorted((*reasons, *unread)):
                source, index = int(sources[row]), int(indices[row])
                image = next(images) if row in openable else None
                error = unread.get(row) or self._made_after_all(
                    batch, row, source, index, *reasons[row], image, stored
                )
                if error is None:
                    continue
                if self._on_error == "raise":
                    raise error
                instead = None
                if self._on_error == "replace":
                    instead = self._replace(batch, row, index, source, error, stored, alone)
                lost.add(row, instead, reason_of(error, index))
        return lost

    def _made_after_all(
        self,
        batch: core.Batch,
        row: int,
        source: int,
        index: int,
        code: int,
        reason: str,
        image: Opened,
        stored: dict[int, Stored],
    ) -> Exception | None:
        """Makes a row whose image failed, of a record that is fetched again or of the image as its dataset's
        own loader opens it.

        Then it reads the row's fields. Returns why it cannot be made.

        Raises:
            ResourceError: memory or files ran out.
        """
        if code in core.RESOURCE_CODES:
            dataset = self._engine.view.datasets[source]
            raise ResourceError(
                str(dataset.sample_error(index, reason)) if dataset.in_place else f"sample {index}: {reason}"
            )
        if not self._engine.heal(batch, row, source, index):
            error = self._loaded(batch, row, source, index, reason, image)
            if error is not None:
                return error
        return self._read_row(row, source, index, stored)

    def _opens(self, source: int) -> bool:
        """Returns True if Python opens the images that native threads leave."""
        return self._engine.view.datasets[source].opens_images

    def _opened(self, source: int, index: int) -> Opened:
        return next(self._engine.opened([(source, index)])) if self._opens(source) else None

    def _loaded(
        self, batch: core.Batch, row: int, source: int, index: int, reason: str, image: Opened
    ) -> Exception | None:
        """Makes a failed row from its image. Returns the error if there is none, or that fails too."""
        dataset = self._engine.view.datasets[source]
        if image is None:
            return self._row_error(source, index, reason)
        try:
            if isinstance(image, Exception):
                raise image
            batch.redo_with(row, image)
        except (ClosedError, ResourceError):
            raise  # the sample is not bad
        except (ArgumentError, SampleError) as error:  # it can be opened, and not be transformed
            told = getattr(error, "reason", None) or str(error)
            return dataset.own_error(index) or self._row_error(source, index, told)
        except Exception as error:
            return error
        self.losses.count_loaded()
        return None

    def _row_error(self, source: int, index: int, reason: str) -> SampleError:
        """The error of a row; of one image of many its reason alone, since its sample is named later."""
        if self._view.has_lists:
            return SampleError(reason, reason=reason)
        return self._engine.sample_error(source, index, reason)

    def _replace(
        self,
        batch: core.Batch,
        row: int,
        index: int,
        source: int,
        error: Exception,
        stored: dict[int, Stored],
        alone: dict[int, core.Batch],
    ) -> int:
        """Makes another sample in the place of a row that failed with `error`, and returns its position."""
        view, key = self._view, (self._seed, self._epoch, index)
        before = 0 if batch.occurrences is None else int(batch.occurrences[row])
        tried, occurrence = substitutes(*key, len(view), before), substitute_occurrence(*key, before)
        for position in tried:
            sources, indices = view.rows([position])
            other = int(sources[0]), int(indices[0])
            if other == (source, index) or not self._made_instead(batch, row, *other, occurrence, alone):
                continue
            if self._read_row(row, *other, stored) is None:
                batch.occurrences = (
                    np.zeros(batch.rows, np.uint32) if batch.occurrences is None else batch.occurrences
                )
                batch.occurrences[row] = occurrence
                return position
        reason = error.reason if isinstance(error, SampleError) else f"{type(error).__name__}: {error}"
        raise self._engine.sample_error(
            source, index, f"{reason}; and none of {len(tried)} substitutes could be made either"
        )

    def _made_instead(
        self,
        batch: core.Batch,
        row: int,
        source: int,
        index: int,
        occurrence: int,
        alone: dict[int, core.Batch],
    ) -> bool:
        """Makes another sample in the place of a row, or alone where it may have another size; True when
        it could be made."""
        seed = row_seed(self._seed, self._epoch, occurrence)
        if self.layout is EQUAL:
            made_again = self._engine.redo(batch, row, source, index, seed)
            return (
                made_again or self._loaded(batch, row, source, index, "", self._opened(source, index)) is None
            )
        made = self._engine.made_alone(source, index, seed, self._epoch)
        if made is None or (
            made.failures()
            and self._loaded(made, 0, source, index, "", self._opened(source, index)) is not None
        ):
            return False
        alone[row] = made
        return True

    def _is_whole(self, batch: core.Batch, alone: bool, keep: list[int] | None) -> bool:
        """Returns True if the batch is made of whole columns, not of samples: its rows lie as
        default_collate or collate= needs them."""
        if self._form is None:
            plain = self.layout is EQUAL or (self.layout is FLAT and not alone)
            return self._collate is None and self._batched and plain
        if alone or self._form.form == "list":
            return False
        if self.layout is FLAT:
            return True
        return (
            keep is None if self.layout.kind == "padded" else all(places is None for places in batch.places)
        )

    def _whole(self, rows: _Rows) -> object:
        """The batch, made of whole columns. Raises BatchShapeError where rows of a field cannot be
        stacked."""
        try:
            batch = self._as_collated(self._engine.view.datasets[0].assemble(self._columns(rows)))
            counts = next(
                (each.counts for each in rows.images.values() if isinstance(each, ListedImages)), None
            )
            return batch if self._form is None else self._form.finish(batch, counts=counts)
        except RuntimeError as error:
            if self._form is None:
                advice_on(error, self._samples(rows), rows.indices.tolist(), packed=True)
            raise

    def _stacked(self, samples: list[Any], rows: _Rows) -> object:
        """The batch that default_collate makes of samples. Raises BatchShapeError where it cannot stack a
        part."""
        try:
            return default_collate(samples)
        except RuntimeError as error:
            advice_on(error, samples, rows.indices.tolist(), packed=True)
            raise

    def _assemble(self, rows: _Rows) -> object:
        collate, samples = self._collate, self._samples(rows)
        if collate is not None:
            return collate(samples if self._batched else samples[0])
        if not self._batched:
            return self._as_collated(samples[0])
        if self.layout is not FLAT and not self._view.has_lists:
            require_one_size(
                {name: _unbound(image) for name, image in rows.images.items()}, rows.indices.tolist()
            )
        return self._stacked(samples, rows)

    def _samples(self, rows: _Rows) -> list[Any]:
        """The samples of a batch, one by one."""
        first = self._engine.view.datasets[0]
        values: dict[str, Any] = dict(self._engine.column_values(rows.sources, rows.indices))
        values |= {name: [row[name] for row in rows.stored] for name in first.stored_fields}
        values |= {name: _unbound(image) for name, image in rows.images.items()}
        values |= {name: own.samples() for name, own in rows.native.items()}
        if first.image_field in values:
            values[first.image_field] = first.typed(values[first.image_field])
        return [first.assemble({f: values[f][row] for f in first.fields}) for row in range(len(rows.indices))]

    def _columns(self, rows: _Rows) -> dict[str, Any]:
        """A batch by field, as default_collate or collate= returns it, without a Python object per sample
        for fields that are no texts."""
        out: dict[str, Any] = {}
        for name, kind, columns in self._engine.fields:
            if name in rows.images:
                out[name] = _whole(rows.images[name])
            elif name in rows.native:
                out[name] = _of_form(rows.native[name], self._form)
            elif columns:
                out[name] = torch.from_numpy(_gather(columns, rows.sources, rows.indices))
            else:
                out[name] = self._joined(name, kind, [row[name] for row in rows.stored])
        return out

    def _as_collated(self, values: object) -> object:
        """A batch, or one sample, with lists for the tuples of its structure, as default_collate and
        default_convert make them."""
        if self._root is not None:
            return with_lists(self._root, values)
        return list(values) if isinstance(values, tuple) else values

    def _joined(self, name: str, kind: str, values: list[Any]) -> Any:
        """The values of a field that is stored in records, as a batch has them."""
        if self._form is None:  # texts in tuples are a tuple, others a list
            if name in self._in_tuples and isinstance(values[0], str | bytes):
                return tuple(values)
            return default_collate(values)
        collated = self._engine.view.datasets[0].collated[name]
        if collated == "rows":  # beside images of any number, which take the native rows
            return self._form.joined(values, collated, name)
        if kind == "value":  # no schema says what it is: its form follows from the values
            return self._form([{name: value} for value in values])[name]
        return values


def _as_in_a_thread(make: Callable[[], Any]) -> object:
    """The result of `make`, without the inference mode of the calling thread: a thread ahead of the loop
    has none."""
    with torch.inference_mode(False):
        return make()


def memory_of(lease: object, dtype: torch.dtype = torch.uint8) -> torch.Tensor:
    """The memory of a batch that was leased, as a flat tensor.

    The tensor owns the slot's lease: the slot is refilled only after the last view of it is freed. Where the
    memory is a piece of torch's pinned cache, views have its storage, so that the cache knows which copies
    read it. It ends at a multiple of 64 bytes.
    """
    return lease.view(dtype) if isinstance(lease, torch.Tensor) else torch.frombuffer(lease, dtype=dtype)


def _images_of(batch: core.Batch, lease: object) -> list[torch.Tensor]:
    """The parts of a batch, (rows, channels, height, width), as views: channels_last for layout "HWC",
    contiguous for "CHW"."""
    rows, out = batch.rows, []
    for at, width, height, output in batch.parts:
        channels, dtype = output.channels, TORCH_DTYPES[output.dtype]
        size, step = (rows, channels, height, width), height * width * channels
        stride = (
            (step, height * width, width, 1)
            if output.layout == "CHW"
            else (step, 1, width * channels, channels)
        )
        # As a view that is permuted, in one call. Parts begin at multiples of 64 bytes.
        out.append(memory_of(lease, dtype).as_strided(size, stride, at // dtype.itemsize))
    return out


def _unbound(images: Images) -> list[Any]:
    """The image of each row, or the list of its views."""
    if isinstance(images, list):
        return [list(row) for row in zip(*map(_unbound, images), strict=True)]
    return list(images.unbind(0)) if isinstance(images, torch.Tensor) else images.samples()


def _whole(images: Images) -> object:
    """The images of all rows as a batch has them, or the list of their views."""
    if isinstance(images, list):
        return [_whole(each) for each in images]
    return images if isinstance(images, torch.Tensor) else images.batch()


def _of_form(values: NativeValues, form: Collate | None) -> object:
    """The rows of a field as a batch has them."""
    if form is None:
        return values.batch()
    if values.rows.native.is_ragged:
        return values.samples()
    return values.flat() if form.form == "flat" else values.padded()


def _gather(
    columns: Sequence[Any], sources: np.ndarray[Any, Any], indices: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """Values of a column of samples of several datasets, in their order. `columns`: the values of each
    dataset."""
    if len(columns) == 1:
        return np.ascontiguousarray(columns[0][indices])
    rows: np.ndarray[Any, Any] | None = None
    for number in np.unique(sources):
        mine = sources == number
        found = columns[number][indices[mine]]
        if rows is None:
            rows = np.empty((len(indices), *found.shape[1:]), found.dtype)
        rows[mine] = found
    assert rows is not None
    return rows
