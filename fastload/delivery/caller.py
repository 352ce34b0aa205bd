"""num_workers=0: torch's own iterator in the calling process, with what FastLoader adds."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch.utils.data import _DatasetKind
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

from fastload.delivery.batch_steps import Key
from fastload.delivery.course import attach
from fastload.delivery.transfer import Transfer
from fastload.errors import ArgumentError
from fastload.workers.replica import fetcher_after, replica_of
from fastload.workers.seeding import kept_state, seed_sample


class _Seeded:
    """A dataset whose samples are each made under a random state of their own."""

    def __init__(self, dataset: Any, seed: int, epoch: int) -> None:
        self._dataset, self._seed, self._epoch = dataset, seed, epoch

    def __getitem__(self, index: Any) -> Any:
        seed_sample(self._seed, self._epoch, index)
        return self._dataset[index]


class CallerIterator(_SingleProcessDataLoaderIter):
    """One epoch in the calling process. Under seed_by="sample" the caller's own random state is left as it was."""

    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        self._dataset, draws = loader._fastload.python_dataset(loader)
        if draws is not None:
            self._dataset_fetcher = self._make_fetcher()
        self._iterable = self._dataset_kind == _DatasetKind.Iterable
        self._course = attach(self, loader, int(self._iterable))
        if self._iterable:
            self._resume()
        state = loader._fastload
        self._transfer = Transfer(state.moving(loader))
        given, epoch = state.settings.seed, state.next_epoch - 1
        self._seeds = (int(self._base_seed) if given is None else given, epoch)
        self._by_sample = state.settings.seed_by == "sample"
        if not self._by_sample:
            return
        if self._dataset_kind != _DatasetKind.Map:
            raise ArgumentError('seed_by="sample" needs indices: an IterableDataset has none')
        seed, epoch = (int(self._base_seed), self._course.passes) if given is None else (given, epoch)
        self._dataset_fetcher = _DatasetKind.create_fetcher(  # type: ignore[no-untyped-call]
            self._dataset_kind, _Seeded(self._dataset, seed, epoch), self._auto_collation, self._collate_fn, self._drop_last
        )

    def _resume(self) -> None:
        past = self._course.replicas[0]
        if past.batches:
            samples = past.batches * (self._index_sampler.batch_size if self._auto_collation else 1)
            self._dataset_fetcher = fetcher_after(past, samples, self._dataset, self._make_fetcher)
            self._dataset_fetcher.ended = past.ended
        self._course.live = partial(replica_of, self._dataset_fetcher)

    def _make_fetcher(self) -> Any:
        return _DatasetKind.create_fetcher(  # type: ignore[no-untyped-call]
            self._dataset_kind, self._dataset, self._auto_collation, self._collate_fn, self._drop_last
        )

    def _next_data(self) -> Any:
        try:
            index = self._next_index()  # type: ignore[no-untyped-call]
            self._course.take(self._course.at, len(index) if self._auto_collation else 1, 0 if self._iterable else None)
            moved = self._transfer.put(partial(self._fetch, index), partial(self._key, index))
        except StopIteration:
            self._course.end()
            raise
        batch = self._transfer.get(moved)
        self._course.deliver()
        return batch

    def _key(self, index: Any) -> Key:
        return Key(*self._seeds, self._course.at, None if self._iterable else index)

    def _fetch(self, index: Any) -> Any:
        if not self._by_sample:
            return self._dataset_fetcher.fetch(index)
        with kept_state():
            return self._dataset_fetcher.fetch(index)
