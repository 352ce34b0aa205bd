"""num_workers=0: torch's own iterator in the calling process, with what FastLoader adds."""

from __future__ import annotations

import operator
from functools import partial
from typing import Any

from torch.utils.data import _DatasetKind
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

from fastload.bad_sample_counts import PassLosses
from fastload.bad_samples import NOTHING, Lost, Policy
from fastload.base_iterator import LoaderIterator
from fastload.device.stage_call import BatchKey
from fastload.device.transfer import Transfer
from fastload.global_generators import kept_state, seed_sample
from fastload.resume.dataset_state import dataset_state_of, fetched, fetcher_at, is_stateful
from fastload.resume.epoch_start import attach


class _Seeded:
    """A dataset whose samples are each made under a random state of their own. It has no __getitems__."""

    def __init__(self, dataset: Any, seed: int, epoch: int) -> None:
        self._dataset, self._seed, self._epoch = dataset, seed, epoch

    def __getitem__(self, index: Any) -> Any:
        seed_sample(self._seed, self._epoch, index)
        return self._dataset[index]

    def __len__(self) -> int:
        return len(self._dataset)


class InProcessIterator(LoaderIterator, _SingleProcessDataLoaderIter):
    """One epoch in the calling process. Under seed_by="sample" the caller's own random state is left as it was."""

    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        self._dataset: Any
        self._dataset, draws = loader._fastload.python_dataset(loader)
        self._collate_fn = loader._fastload.collate_fn(loader)
        if draws is not None:
            self._dataset_fetcher = self._make_fetcher()
        self._iterable = self._dataset_kind == _DatasetKind.Iterable
        follows = self._iterable or is_stateful(self._dataset)
        self._epoch_state = attach(self, loader, int(follows))
        self._rewind = self._iterable and self._epoch_state.rewind
        if follows:
            self._resume()
        state = loader._fastload
        self._transfer = Transfer(state.transfer_plan(loader))
        given, epoch = state.settings.seed, state.next_epoch - 1
        self._seeds = (int(self._base_seed) if given is None else given, epoch)
        self._by_sample = state.settings.seed_by == "sample"
        self._policy = Policy(state.settings.on_error, draws is not None, *self._seeds)
        self._losses = PassLosses(state.losses)
        self._lost = Lost()  # of the batch at hand
        if not self._by_sample:
            return
        seed, epoch = (int(self._base_seed), self._epoch_state.passes) if given is None else (given, epoch)
        self._dataset = _Seeded(self._dataset, seed, epoch)
        self._dataset_fetcher = self._make_fetcher()

    def _resume(self) -> None:
        past = self._epoch_state.replicas[0]
        if past.batches:
            size = self._index_sampler.batch_size if self._iterable and self._auto_collation else 1
            self._dataset_fetcher = fetcher_at(past, size, self._dataset, self._make_fetcher)
            self._dataset_fetcher.ended = past.ended
        self._epoch_state.live = partial(dataset_state_of, self._dataset, self._dataset_fetcher)

    def _anew(self) -> Any:
        self._dataset_fetcher = self._make_fetcher()
        self._epoch_state.live = partial(dataset_state_of, self._dataset, self._dataset_fetcher)
        return self._dataset_fetcher

    def _make_fetcher(self) -> Any:
        return _DatasetKind.create_fetcher(  # type: ignore[no-untyped-call]
            self._dataset_kind, self._dataset, self._auto_collation, self._collate_fn, self._drop_last
        )

    def _next_data(self) -> Any:
        while True:
            try:
                index = self._next_index()  # type: ignore[no-untyped-call]
                number = None if self._iterable else self._epoch_state.at
                self._epoch_state.take(number, len(index) if self._auto_collation else 1, 0)
                moved = self._transfer.put(partial(self._fetch, index), partial(self._key, index))
            except StopIteration:
                self._epoch_state.end()
                self._losses.check(self._epoch_state.batches)
                raise
            except _NothingLeft:
                self._losses.add(self._lost)
                continue
            self._losses.add(self._lost)
            batch = self._transfer.get(moved)
            self._epoch_state.deliver()
            return batch

    def _key(self, index: Any) -> BatchKey:
        if self._iterable:
            return BatchKey(*self._seeds, self._epoch_state.batches, None)
        return BatchKey(*self._seeds, self._epoch_state.at, self._lost.among(index, self._auto_collation))

    def _fetch(self, index: Any) -> Any:
        self._lost = Lost()
        make = self._fetched if self._policy.raises else self._make
        if not self._by_sample:
            return make(index)
        with kept_state():
            return make(index)

    def _fetched(self, index: Any) -> Any:
        rewind, self._rewind = self._rewind, False
        return fetched(self._dataset_fetcher, index, self._anew if rewind else None)

    def _make(self, index: Any) -> Any:
        """The batch without the samples that cannot be made.

        Raises:
            _NothingLeft: there is no other.
        """
        get = partial(operator.getitem, self._dataset)
        if self._auto_collation:
            samples = self._policy.make_all(self._dataset, get, getattr(self._dataset, "__getitems__", None), index, self._lost)
        else:
            samples = self._policy.make(self._dataset, get, index, 0, self._lost)
        if samples is NOTHING:
            raise _NothingLeft
        return self._collate_fn(samples)


class _NothingLeft(Exception):
    """Every sample of a batch was left out."""
