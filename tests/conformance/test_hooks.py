"""What subclasses of DataLoader override, and worker_init_fn that raises: as under torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from conformance_helpers import Rows, agree, drain
from torch.utils.data import BatchSampler, IterableDataset

from fastload import FastLoader, PackedDataset
from fastload import transforms as T


class Unprepared(Exception):
    """Raised by a worker_init_fn."""


def first_fails(number: int) -> None:
    if number == 0:
        raise Unprepared("no licence")


def all_fail(number: int) -> None:
    raise KeyError("table")


class Count(IterableDataset[int]):
    """0, 1, 2."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


@pytest.mark.parametrize("init", [first_fails, all_fail])
@pytest.mark.parametrize("iterable", [False, True])
def test_what_worker_init_fn_raises_comes_from_next(init: Any, iterable: bool) -> None:
    """The first batch of a worker whose worker_init_fn raises raises that exception, with torch's words."""

    def run(loader_class: Any) -> Any:
        dataset: Any = Count() if iterable else Rows(lambda i: torch.tensor(i), 8)
        iterator = iter(loader_class(dataset, batch_size=2, num_workers=2, worker_init_fn=init))
        out = [next(drain(iterator)) for _ in range(1 if iterable else 2)]
        del iterator
        return out

    agree(run)


@pytest.mark.parametrize(
    "options", [{}, {"persistent_workers": True}, {"seed_by": "sample"}, {"in_order": False}], ids=str
)
def test_a_worker_that_was_not_prepared_makes_no_batch(options: dict[str, Any]) -> None:
    """Every later batch of that worker raises the same exception, in later epochs as well; no worker dies
    of it."""
    loader = FastLoader(
        Rows(lambda i: torch.tensor(i), 8), batch_size=2, num_workers=1, worker_init_fn=all_fail, **options
    )
    for _ in range(2):
        failures = list(drain(iter(loader)))
        assert [each.kind for each in failures] == [KeyError] * 4
        assert {each.first for each in failures} == {"Caught KeyError in DataLoader worker process 0."}
    loader.close()


class Wrapped:
    """An iterator that doubles what another gives, as PyG's DataLoaderIterator is made."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.resets = inner, 0

    def __iter__(self) -> Any:
        return self

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        self.resets += 1
        self.inner._reset(loader, first_iter)

    def __len__(self) -> int:
        return len(self.inner)

    def __next__(self) -> Any:
        batch = next(self.inner)
        return 2 * (batch if isinstance(batch, torch.Tensor) else batch[1])


def hooked(loader_class: Any) -> Any:
    """A subclass that overrides what subclasses of DataLoader do, and notes the calls."""

    class Hooked(loader_class):  # type: ignore[misc]
        calls: list[str]

        def _get_iterator(self) -> Any:
            self.calls.append("iterator")
            return Wrapped(super()._get_iterator())

        def check_worker_number_rationality(self) -> None:
            vars(self).setdefault("calls", []).append("workers")

        def __len__(self) -> int:
            return 77

        @property
        def _index_sampler(self) -> Any:
            return BatchSampler(range(6, -1, -1), 3, False)

    return Hooked


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (1, False), (1, True)])
def test_overridden_hooks_are_called_as_under_torch(workers: int, persistent: bool) -> None:
    """_get_iterator, check_worker_number_rationality, __len__ and _index_sampler of a subclass do what
    they do under DataLoader."""

    def run(loader_class: Any) -> Any:
        dataset = Rows(lambda i: torch.tensor(i), 8)
        loader = hooked(loader_class)(
            dataset, batch_size=2, num_workers=workers, persistent_workers=persistent
        )
        seen = [[batch.tolist() for batch in loader] for _ in range(3)]
        first, second = iter(loader), iter(loader)
        return (
            seen,
            len(loader),
            len(first),
            next(first).tolist(),
            next(second).tolist(),
            first is second,
            first.resets,
            loader.calls,
        )

    agree(run)


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
def test_overridden_hooks_are_called_on_native_threads(packed: Any, workers: int, persistent: bool) -> None:
    """The same on packed data, against DataLoader over the same PackedDataset."""
    results = []
    for loader_class in (torch.utils.data.DataLoader, FastLoader):
        dataset = PackedDataset(packed, transform=T.CenterCrop(8))
        loader = hooked(loader_class)(
            dataset, batch_size=2, num_workers=workers, persistent_workers=persistent
        )
        seen = [[batch.tolist() for batch in loader] for _ in range(3)]
        first, second = iter(loader), iter(loader)
        results.append(
            (seen, len(loader), len(first), next(first).tolist(), first is second, first.resets, loader.calls)
        )
    assert results[0] == results[1]


def sampled(loader_class: Any) -> Any:
    """A subclass whose _auto_collation, multiprocessing_context and collate_fn are its own."""

    class Sampled(loader_class):  # type: ignore[misc]
        @property
        def _auto_collation(self) -> bool:
            return False

        @property
        def multiprocessing_context(self) -> Any:
            return torch.multiprocessing.get_context("fork")

        @multiprocessing_context.setter
        def multiprocessing_context(self, value: Any) -> None:
            pass

        @property
        def collate_fn(self) -> Any:
            return lambda sample: ("mine", sample)

        @collate_fn.setter
        def collate_fn(self, value: Any) -> None:
            pass

    return Sampled


@pytest.mark.parametrize("workers", [0, 1])
def test_overridden_properties_act_as_under_torch(workers: int) -> None:
    """_auto_collation, multiprocessing_context and collate_fn may be properties of a subclass."""
    agree(
        lambda loader_class: list(
            sampled(loader_class)(Rows(lambda i: torch.tensor(i), 5), batch_size=2, num_workers=workers)
        )
    )


def test_overridden_properties_act_on_native_threads(packed: Any) -> None:
    """The same on packed data."""
    results = []
    for loader_class in (torch.utils.data.DataLoader, FastLoader):
        loader = sampled(loader_class)(
            PackedDataset(packed, transform=T.CenterCrop(8)), batch_size=2, num_workers=1
        )
        results.append([(name, sample[0].tolist(), sample[1]) for name, sample in loader])
    assert results[0] == results[1]


@pytest.mark.parametrize("form", ["packed", "plain"])
def test_a_kept_iterator_can_be_taken_away(packed: Any, form: str) -> None:
    """Where a framework sets `_iterator` to None, the next iter() makes one anew, and draws a base seed,
    as DataLoader's does."""
    results = []
    for loader_class in (torch.utils.data.DataLoader, FastLoader):
        dataset: Any = (
            PackedDataset(packed, transform=T.CenterCrop(8))
            if form == "packed"
            else Rows(lambda i: (i, i), 9)
        )
        torch.manual_seed(3)
        loader = loader_class(dataset, batch_size=20, shuffle=True, num_workers=1, persistent_workers=True)
        states = []
        for epoch in range(4):
            states += [batch[1].tolist() for batch in loader]
            states.append(torch.get_rng_state().tolist())
            if epoch == 1:
                loader._iterator = None
        results.append(states)
        del loader
    assert results[0] == results[1]
