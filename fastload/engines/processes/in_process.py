"""InProcessIterator: the iterator for num_workers=0. It is torch's own, extended by FastLoader's resuming,
seeding and on_error."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

from fastload.batch.bad_samples import NOTHING, Lost, Policy, kept_state, seed_sample
from fastload.batch.collate import AdvisedCollate
from fastload.common.rng import current_occurrence, occurring
from fastload.device.stages import BatchKey
from fastload.device.transfer import Transfer
from fastload.engines.indices import Progress, attach
from fastload.engines.iterator import IteratorArguments, LoaderIterator, PassLosses
from fastload.engines.plan import ExecutionPlan
from fastload.engines.processes.opened_indexes import OpenedIndexes
from fastload.engines.processes.scheduler import LoaderCounters
from fastload.engines.resume.datasets import create_fetcher, dataset_state_of, fetched, fetcher_at
from fastload.engines.settings import Samples
from fastload.health import tracing
from fastload.lazy import counts, opening
from fastload.sampling.known import is_stateful
from fastload.sampling.occurrences import Occurrences


class _Seeded:
    """A dataset that seeds the global generators for each sample. It has no __getitems__, which would make
    several at once."""

    def __init__(self, dataset: Samples[object], seed: int, epoch: int) -> None:
        self._dataset, self._seed, self._epoch = dataset, seed, epoch

    def __getitem__(self, index: Any) -> object:
        seed_sample(self._seed, self._epoch, index, current_occurrence()[0])
        return self._dataset[index]

    def __len__(self) -> int:
        return len(self._dataset)


class _Traced:
    """A map-style dataset whose samples are told to a trace that is taken."""

    def __init__(self, dataset: Samples[object], tracer: tracing.Tracer) -> None:
        self._dataset, self._tracer = dataset, tracer

    def __getitem__(self, index: Any) -> object:
        with tracing.Span(self._tracer, "python", {"index": tracing.shown(index)}):
            return self._dataset[index]

    def __len__(self) -> int:
        return len(self._dataset)

    @property
    def __getitems__(self) -> Callable[[Any], Any] | None:
        several = getattr(self._dataset, "__getitems__", None)
        return _traced_call(several, "python", self._tracer) if several else None


def _traced_call(function: Callable[[Any], Any], name: str, tracer: tracing.Tracer) -> Callable[[Any], Any]:
    def call(argument: object) -> Any:
        with tracing.Span(tracer, name):
            return function(argument)

    return call


class InProcessIterator(LoaderIterator, _SingleProcessDataLoaderIter):
    """Iterator over one epoch in the calling process. Under seed_by="sample" the caller's own random state
    does not change."""

    def __init__(
        self,
        plan: ExecutionPlan,
        progress: Progress,
        counters: LoaderCounters,
        indexes: OpenedIndexes | None,
        length_called: int | None,
    ) -> None:
        settings, epoch_state, epoch = plan.settings, progress.epoch_state, progress.epoch
        assert epoch_state is not None
        self._dataset: Any
        dataset, _ = plan.python_dataset(epoch)
        arguments = IteratorArguments.of(plan, dataset, length_called)
        self._advised = AdvisedCollate(plan.data is not None)
        if settings.by_default_collate:
            arguments.collate_fn = self._advised
        super().__init__(arguments)
        self._iterable = settings.iterable
        follows = self._iterable or is_stateful(self._dataset)
        self._epoch_state = epoch_state
        attach(self, arguments, settings, epoch_state, int(follows))
        self._rewind = self._iterable and epoch_state.rewind
        if follows:
            self._resume()
        self._transfer = Transfer(plan.transfer) if plan.transfers else None
        if self._transfer is not None:
            self._transfer.begin()
        self._seeds = (int(self._base_seed) if settings.seed is None else settings.seed, epoch)
        self._by_sample = settings.seed_by == "sample"
        self._policy = Policy(settings.on_error, plan.data is not None, *self._seeds)
        self._view = plan.python_view(epoch)
        self._again: Occurrences | None = None  # occurrences of the current batch
        self._losses = PassLosses(counters.losses)
        self._lazy, self._images = settings.lazy_images, counters.workers.images
        self._indexes = indexes
        self._lost = Lost()  # losses of the current batch
        if self._by_sample:
            seeds = (
                (int(self._base_seed), epoch_state.passes)
                if settings.seed is None
                else (settings.seed, epoch)
            )
            self._dataset = _Seeded(self._dataset, *seeds)
            self._dataset_fetcher = self._make_fetcher()

    def _resume(self) -> None:
        past = self._epoch_state.replicas[0]
        if past.batches:
            size = self._index_sampler.batch_size if self._iterable and self._auto_collation else 1
            self._dataset_fetcher = fetcher_at(past, size, self._dataset, self._make_fetcher)
            self._dataset_fetcher.ended = past.ended
        self._epoch_state.live = partial(dataset_state_of, self._dataset, self._dataset_fetcher)

    def _anew(self) -> object:
        self._dataset_fetcher = self._make_fetcher()
        self._epoch_state.live = partial(dataset_state_of, self._dataset, self._dataset_fetcher)
        return self._dataset_fetcher

    def _make_fetcher(self) -> object:
        return create_fetcher(
            self._dataset_kind, self._dataset, self._auto_collation, self._collate_fn, self._drop_last
        )

    def _next_data(self) -> Any:
        while True:
            try:
                index = self._next_index()
                number = None if self._iterable else self._epoch_state.at
                self._epoch_state.take(number, len(index) if self._auto_collation else 1, 0)
                self._again = self._occurrences(index, self._epoch_state.again, self._view)
                make = partial(self._fetch, index)
                moved: Any = (
                    make() if self._transfer is None else self._transfer.put(make, partial(self._key, index))
                )
            except StopIteration:
                self._epoch_state.end()
                if self._indexes is not None:
                    self._indexes.save()
                self._losses.check(self._epoch_state.batches)
                raise
            except _NothingLeft:
                self._losses.add(self._lost)
                continue
            self._losses.add(self._lost)
            batch = moved if self._transfer is None else self._transfer.get(moved)
            self._epoch_state.deliver()
            return batch

    def _key(self, index: Any) -> BatchKey:
        if self._iterable:
            return BatchKey(*self._seeds, self._epoch_state.batches, None)
        occurrences = self._lost.occurring(self._again, len(index) if self._auto_collation else 1)
        index = self._lost.among(index, self._auto_collation)
        return BatchKey(
            *self._seeds,
            self._epoch_state.at,
            index if self._view is None else self._keyed(index, self._view),
            occurrences,
        )

    def _fetch(self, index: Any) -> object:
        self._lost = Lost()
        self._advised.indices = None if self._iterable else index
        make = self._fetched if self._policy.raises and self._again is None else self._make
        if tracing.active is not None:
            make = partial(self._told, make, tracing.active)
        if self._lazy is not None:
            make = partial(self._lazily, make)
        if not self._by_sample:
            return make(index)
        with kept_state():
            return make(index)

    def _told(self, make: Callable[[Any], Any], tracer: tracing.Tracer, index: object) -> object:
        """Makes a batch whose stages are told to a trace that is taken; of an iterable dataset it is one
        stage."""
        if self._iterable:
            with tracing.Span(tracer, "python"):
                return make(index)
        fetcher = self._dataset_fetcher
        plain = fetcher.dataset, fetcher.collate_fn
        fetcher.dataset, fetcher.collate_fn = (
            _Traced(fetcher.dataset, tracer),
            _traced_call(fetcher.collate_fn, "collate", tracer),
        )
        try:
            return make(index)
        finally:
            fetcher.dataset, fetcher.collate_fn = plain

    def _lazily(self, make: Callable[[Any], Any], index: object) -> object:
        """Makes a batch of which the images that Pillow opens are lazy, and leaves Pillow as it was."""
        assert self._lazy is not None
        with opening.opened_lazily(self._lazy, None if self._indexes is None else self._indexes.memory):
            made = make(index)
        told = counts.take()
        if told is not None:
            self._images.add(told)
        return made

    def _fetched(self, index: object) -> object:
        rewind, self._rewind = self._rewind, False
        return fetched(self._dataset_fetcher, index, self._anew if rewind else None)

    def _make(self, index: Any) -> object:
        """Makes a batch of samples that come again, or without the samples that fail.

        Raises:
            _NothingLeft: every sample of the batch failed.
        """
        dataset = self._dataset_fetcher.dataset
        listed = None if self._again is None else self._again.tolist()

        def get(index: object, occurrence: int) -> Any:
            with occurring(occurrence, resolved=self._policy.packed):
                return dataset[index]

        if self._auto_collation:
            samples = self._policy.make_all(
                dataset, get, getattr(dataset, "__getitems__", None), index, self._lost, listed
            )
        else:
            samples = self._policy.make(dataset, get, index, 0, self._lost, (listed or [0])[0])
        if samples is NOTHING:
            raise _NothingLeft
        self._advised.indices = self._lost.among(index, self._auto_collation)
        return self._dataset_fetcher.collate_fn(samples)


class _NothingLeft(Exception):
    """Every sample of a batch was left out."""
