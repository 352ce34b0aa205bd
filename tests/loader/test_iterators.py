"""What iter() of a loader gives: torch's iterator class on every engine, shared by threads, seen by
profilers."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

from fastload import FastLoader, HealthMonitor, PackedDataset
from fastload import transforms as T

COUNT = 50
"""Samples of the `packed` fixture, and of Slow."""


class Slow(Dataset[Any]):
    """COUNT samples; sample i is i, after a moment in which other threads run."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> int:
        time.sleep(0.0005)
        return index


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        for index in range(COUNT):
            time.sleep(0.0005)
            yield index


def half(images: torch.Tensor) -> torch.Tensor:
    return images // 2


def of_packed(packed: Path, **options: Any) -> FastLoader[Any]:
    """A loader over the packed pictures, in batches of 3."""
    return FastLoader(
        PackedDataset(packed, transform=[T.Resize(16), T.CenterCrop(8)]), batch_size=3, **options
    )


ENGINES: dict[str, Callable[[Path], FastLoader[Any]]] = {
    "threads": lambda packed: of_packed(packed, num_workers=2),
    "threads, no order": lambda packed: of_packed(packed, num_workers=2, in_order=False),
    "calling thread": lambda packed: of_packed(packed, num_workers=0),
    "threads, steps": lambda packed: of_packed(packed, num_workers=2, batch_transform=half, device="cpu"),
    "processes": lambda packed: FastLoader(Slow(), batch_size=3, num_workers=2),
    "persistent": lambda packed: FastLoader(Slow(), batch_size=3, num_workers=2, persistent_workers=True),
    "rows": lambda packed: FastLoader(Slow(), batch_size=3, num_workers=2, seed=1, seed_by="sample"),
    "caller": lambda packed: FastLoader(Slow(), batch_size=3, num_workers=0),
    "stream": lambda packed: FastLoader(Stream(), batch_size=3, num_workers=0),
}


@pytest.fixture(params=ENGINES)
def loader(request: pytest.FixtureRequest, packed: Path) -> Iterator[FastLoader[Any]]:
    """A loader of each engine."""
    made = ENGINES[request.param](packed)
    yield made
    made.close()


def samples_of(batch: Any) -> list[Any]:
    """What tells the samples of a batch apart."""
    if isinstance(batch, torch.Tensor):
        return batch.tolist()
    return [hash(image.numpy().tobytes()) for image in batch[0]]


def test_is_torchs_iterator(loader: FastLoader[Any]) -> None:
    """An instance of torch's class, before and in the middle of an epoch, that has all the public state of
    torch's own iterator."""
    iterator = iter(loader)
    assert isinstance(iterator, _BaseDataLoaderIter)
    assert iter(iterator) is iterator
    theirs = set(vars(iter(DataLoader(range(3))))) - {
        "_dataset_fetcher",
        "_world_size",
        "_rank",
        "_pg",
        "_profile_name",
    }
    next(iterator)
    assert not {name for name in theirs if not hasattr(iterator, name)}
    assert iterator._num_yielded == 1
    assert len(list(iterator)) == 16
    with pytest.raises(StopIteration):
        next(iterator)


def test_takes_attributes_and_weak_references(loader: FastLoader[Any]) -> None:
    """It takes attributes of the user's, and a weak reference dies with it, at once."""
    iterator = iter(loader)
    iterator.mine = 3
    assert iterator.mine == 3
    seen = weakref.ref(iterator)
    loader.close()
    del iterator
    gc.collect()
    assert seen() is None


def test_cannot_be_copied_as_torchs(loader: FastLoader[Any]) -> None:
    """copy, deepcopy and pickle raise what they raise for torch's iterator."""
    iterator = iter(loader)
    for way in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(NotImplementedError, match="cannot be pickled"):
            way(iterator)
    assert len(list(iterator)) == 17


def test_profiler_sees_the_wait_for_data(loader: FastLoader[Any]) -> None:
    """A trace has an event enumerate(DataLoader)#<class>.__next__ for each step and for the end; without a
    profiler nothing is recorded."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as trace:
        iterator = iter(loader)
        batches = len(list(iterator))
    events = [
        event.count
        for event in trace.key_averages()
        if event.key == f"enumerate(DataLoader)#{type(iterator).__name__}.__next__"
    ]
    assert events == [batches + 1]


@pytest.mark.parametrize("threads", [2, 5])
def test_threads_share_an_iterator(loader: FastLoader[Any], threads: int) -> None:
    """Several threads that call next() on one iterator get every sample exactly once between them, and
    each thread its StopIteration."""
    expected = sorted(sample for batch in loader for sample in samples_of(batch))
    for _ in range(2):
        iterator = iter(loader)
        together = threading.Barrier(threads)

        def drain(iterator: Any, together: threading.Barrier) -> list[Any]:
            together.wait()
            return [sample for batch in iterator for sample in samples_of(batch)]

        with ThreadPoolExecutor(threads) as pool:
            parts = [
                future.result(timeout=60)
                for future in [pool.submit(drain, iterator, together) for _ in range(threads)]
            ]
        assert sorted(sample for part in parts for sample in part) == expected
        with pytest.raises(StopIteration):
            next(iterator)


def test_threads_share_a_monitored_generator() -> None:
    """A HealthMonitor lets threads share even a generator, which Python lets only one thread into."""

    def numbers() -> Iterator[int]:
        for number in range(200):
            time.sleep(0.0001)
            yield number

    iterator = iter(HealthMonitor(numbers(), count=lambda number: 1))
    with ThreadPoolExecutor(3) as pool:
        parts = list(pool.map(lambda _: list(iterator), range(3)))
    assert sorted(number for part in parts for number in part) == list(range(200))


def test_waiting_for_another_thread_can_be_interrupted() -> None:
    """The main thread, waiting for another's next() to end, takes a signal at once."""
    began, gate = threading.Event(), threading.Event()

    def numbers() -> Iterator[int]:
        began.set()
        gate.wait(30)
        yield 1

    iterator = iter(HealthMonitor(numbers(), count=lambda number: 1))
    other = threading.Thread(target=lambda: next(iterator))
    other.start()
    began.wait()
    before = signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(InterruptedError("alarm")))
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(InterruptedError):
            next(iterator)
    finally:
        signal.signal(signal.SIGALRM, before)
        gate.set()
        other.join()


def test_a_failed_step_lets_others_in() -> None:
    """An exception in one thread's next() leaves the iterator to the others; and next() within next() of
    one thread does not wait."""

    class Failing(Iterator[int]):
        calls = 0

        def __next__(self) -> int:
            self.calls += 1
            if self.calls == 1:
                raise KeyError("once")
            return next(iterator) if self.calls == 2 else self.calls

    iterator = iter(HealthMonitor(Failing(), count=lambda number: 1))
    with pytest.raises(KeyError):
        next(iterator)
    assert next(iterator) == 3
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(next, iterator).result(timeout=10) == 4


def test_a_forked_child_waits_for_no_thread() -> None:
    """A child forked while a thread is in next() does not wait for that thread, which it does not have."""
    began, gate = threading.Event(), threading.Event()

    class Waiting(Iterator[int]):
        def __next__(self) -> int:
            if not began.is_set():
                began.set()
                gate.wait(30)
            return os.getpid()

    iterator = iter(HealthMonitor(Waiting(), count=lambda number: 1))
    other = threading.Thread(target=lambda: next(iterator))
    other.start()
    began.wait()
    child = os.fork()
    if child == 0:
        os._exit(0 if next(iterator) == os.getpid() else 1)
    deadline = time.monotonic() + 20
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    if ended[0] == 0:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    gate.set()
    other.join()
    assert ended == (child, 0)


class Kept(FastLoader[Any]):
    """As ultralytics keeps one iterator over an endless sampler: made in __init__, and anew by reset()."""

    class Endless:
        def __init__(self, sampler: Any) -> None:
            self.sampler = sampler

        def __iter__(self) -> Iterator[Any]:
            while True:
                yield from iter(self.sampler)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        object.__setattr__(self, "batch_sampler", self.Endless(self.batch_sampler))
        self.iterator = super().__iter__()

    def __len__(self) -> int:
        return len(self.batch_sampler.sampler)

    def __iter__(self) -> Iterator[Any]:
        for _ in range(len(self)):
            yield next(self.iterator)

    def reset(self) -> None:
        self.iterator = self._get_iterator()


@pytest.mark.parametrize("form", ["packed", "plain"])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_kept_iterator_is_made_anew(packed: Path, form: str, workers: int) -> None:
    """_get_iterator() gives the iterator of the engine that iter() takes, over the next epoch, counted by
    the health monitor."""
    dataset: Any = PackedDataset(packed, transform=T.CenterCrop(8)) if form == "packed" else Slow()
    loader = Kept(dataset, batch_size=10, num_workers=workers)
    engine = type(loader.iterator)
    for _ in range(3):
        for _ in range(2):
            assert sum(len(samples_of(batch)) for batch in loader) == COUNT
        loader.reset()
        assert type(loader.iterator) is engine
    assert loader.stats()["engine"] == {
        ("packed", 0): "threads",
        ("packed", 2): "threads",
        ("plain", 0): "caller",
    }.get((form, workers), "processes")
    assert loader.epoch == 4
    assert loader.health.figures().samples > 0
    del loader.iterator
    loader.close()
