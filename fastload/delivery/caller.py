"""num_workers=0: torch's own iterator in the calling process, with what FastLoader adds."""

from __future__ import annotations

from typing import Any

from torch.utils.data import _DatasetKind
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

from fastload.errors import ArgumentError
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
        self._place = loader._placing()
        self._by_sample = loader.seed_by == "sample"
        if not self._by_sample:
            return
        if self._dataset_kind != _DatasetKind.Map:
            raise ArgumentError('seed_by="sample" needs indices: an IterableDataset has none')
        seed, epoch = (int(self._base_seed), 0) if loader.seed is None else (loader.seed, loader.epoch - 1)
        self._dataset_fetcher = _DatasetKind.create_fetcher(  # type: ignore[no-untyped-call]
            self._dataset_kind, _Seeded(self._dataset, seed, epoch), self._auto_collation, self._collate_fn, self._drop_last
        )

    def _next_data(self) -> Any:
        index = self._next_index()  # type: ignore[no-untyped-call]
        if self._by_sample:
            with kept_state():
                batch = self._dataset_fetcher.fetch(index)
        else:
            batch = self._dataset_fetcher.fetch(index)
        return batch if self._place is None else self._place(batch)
