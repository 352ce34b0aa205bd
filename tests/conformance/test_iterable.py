"""IterableDataset under workers: replicas, shares, uneven ends, lengths that lie: as torch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from conformance_helpers import Failure, agree, caught, drain, epochs
from pairs import pairwise
from torch.utils.data import ChainDataset, IterableDataset, get_worker_info

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


class Stream(IterableDataset[Any]):
    """Worker w of its replicas yields `sizes[w]` samples (w, k); without workers all shares in turn."""

    def __init__(self, *sizes: int, length: int | None = None) -> None:
        self.sizes, self.length, self.passes = sizes, length, 0

    def __repr__(self) -> str:
        return "Stream"

    def __iter__(self) -> Iterator[Any]:
        self.passes += 1
        info = get_worker_info()
        mine = range(len(self.sizes)) if info is None else [info.id]
        for worker in mine:
            for k in range(self.sizes[worker]):
                yield torch.tensor([worker, k]), self.passes, float(torch.rand(()))


class Sized(Stream):
    def __len__(self) -> int:
        assert self.length is not None
        return self.length


class Breaking(IterableDataset[int]):
    """Fails at its third sample, in every worker."""

    def __iter__(self) -> Iterator[int]:
        yield from (1, 2)
        raise ValueError("the stream broke")


class BadStart(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        raise OSError(5, "no stream here")


class NoIterator(IterableDataset[int]):
    """Iterable by a list's own iterator, with no generator of its own."""

    def __iter__(self) -> Iterator[int]:
        return iter([4, 5, 6])


@pytest.mark.parametrize(
    ("sizes", "batch_size", "persistent"),
    pairwise([(8, 8), (9, 1), (0, 7), (1, 9), (0, 0)], [None, 1, 3], [False, True]),
)
def test_uneven_shares(sizes: tuple[int, ...], batch_size: int | None, persistent: bool) -> None:
    """Two workers that end at different times: torch's batches in torch's order, over three epochs."""

    def run(loader_class: Any) -> Any:
        return epochs(
            loader_class(Stream(*sizes), batch_size=batch_size, num_workers=2, persistent_workers=persistent),
            3,
        )

    agree(run, seed=4)


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("sizes", [(7, 7, 7), (3, 0, 11), (1, 5, 2)])
def test_three_workers(sizes: tuple[int, ...], drop_last: bool) -> None:
    """Each worker's batches come in its own order and none is lost; drop_last drops each worker's own
    short batch."""

    def run(loader_class: Any) -> Any:
        by_worker: dict[int, list[Any]] = {w: [] for w in range(len(sizes))}
        for batch in loader_class(Stream(*sizes), batch_size=2, num_workers=3, drop_last=drop_last):
            by_worker[int(batch[0][0, 0])].append(batch)
        return by_worker

    got = agree(run, seed=4)
    assert [sum(len(b[0]) for b in got[w]) for w in got] == [n - n % 2 * drop_last for n in sizes]


@pytest.mark.parametrize("workers", [0, 2])
def test_own_copies_without_shares(workers: int) -> None:
    """A dataset that does not look at get_worker_info is iterated whole by every worker."""
    agree(lambda loader_class: list(loader_class(NoIterator(), batch_size=2, num_workers=workers)))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("length", [4, 6, 100])
@pytest.mark.parametrize("batch_size", [None, 2])
def test_length_that_does_not_match(workers: int, length: int, batch_size: int | None) -> None:
    """len(loader) follows the dataset's; more batches than it promised give torch's warnings, as many and
    of the same text."""

    def run(loader_class: Any) -> Any:
        loader = loader_class(Sized(5, 5, length=length), batch_size=batch_size, num_workers=workers)
        return len(loader), *caught(lambda: list(loader))

    _, _, warned = agree(run)
    assert bool(warned) == (length < (10 if batch_size is None else 5 if workers == 0 else 6))


def test_no_warning_when_len_was_not_asked() -> None:
    """The warning is about what len(loader) told; nobody asked, nobody is warned."""
    agree(
        lambda loader_class: caught(
            lambda: list(loader_class(Sized(5, 5, length=3), batch_size=2, num_workers=2))
        )
    )


@pytest.mark.parametrize("drop_last", [False, True])
def test_len(drop_last: bool) -> None:
    """len(loader) rounds as torch; a stream without a length raises TypeError."""
    agree(lambda loader_class: len(loader_class(Sized(5, length=11), batch_size=4, drop_last=drop_last)))
    agree(lambda loader_class: len(loader_class(Stream(5), batch_size=4, drop_last=drop_last)))


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("batch_size", [None, 1, 2])
def test_failing_stream(workers: int, batch_size: int | None) -> None:
    """An exception in the stream is raised in its place, as torch raises it; one at its start is raised
    before any batch."""
    agree(
        lambda loader_class: list(
            drain(iter(loader_class(Breaking(), batch_size=batch_size, num_workers=workers)))
        )
    )
    failed = agree(
        lambda loader_class: next(iter(loader_class(BadStart(), batch_size=batch_size, num_workers=workers)))
    )
    assert isinstance(failed, Failure)
    assert failed.kind is OSError


def test_stream_goes_on_after_an_error() -> None:
    """Where the stream itself can go on after a failing sample, so does the loader."""

    class Hiccup:
        def __init__(self) -> None:
            self.k = 0

        def __iter__(self) -> Any:
            return self

        def __next__(self) -> int:
            self.k += 1
            if self.k == 3:
                raise ValueError("hiccup")
            if self.k > 6:
                raise StopIteration
            return self.k

    class Holder(IterableDataset[int]):
        def __iter__(self) -> Any:
            return Hiccup()

    agree(lambda loader_class: list(drain(iter(loader_class(Holder(), batch_size=None, num_workers=1)))))


def test_chain_and_infinite_streams() -> None:
    """A ChainDataset, and a stream without end of which only the beginning is taken."""

    class Endless(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return itertools.count()

    agree(
        lambda loader_class: list(
            loader_class(ChainDataset([NoIterator(), NoIterator()]), batch_size=4, num_workers=1)
        )
    )
    agree(
        lambda loader_class: list(itertools.islice(loader_class(Endless(), batch_size=3, num_workers=2), 9))
    )


def test_out_of_order_loses_nothing() -> None:
    """in_order=False over streams: every sample once."""

    def run(loader_class: Any) -> Any:
        loader = loader_class(Stream(9, 2), batch_size=2, num_workers=2, in_order=False)
        return sorted(tuple(row.tolist()) for batch in loader for row in batch[0])

    agree(run)


def test_exhausted_iterator_stays_exhausted() -> None:
    """After StopIteration comes StopIteration."""

    def run(loader_class: Any) -> Any:
        iterator = iter(loader_class(Stream(2, 1), batch_size=None, num_workers=2))
        rest = len(list(iterator))
        return rest, [next(iterator, "end") for _ in range(3)]

    assert agree(run) == (3, ["end"] * 3)
