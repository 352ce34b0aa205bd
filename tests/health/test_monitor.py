"""HealthMonitor around real loaders: same batches, right counts, waits where they belong."""

from __future__ import annotations

import gc
import time
import weakref
from collections import namedtuple
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from health_helpers import FULL_STATS, Loader
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, TensorDataset

from fastload import FastLoader, HealthMonitor
from fastload import transforms as T
from fastload.errors import ArgumentError
from fastload.health import count_samples
from fastload.health.monitor import image_side

Pair = namedtuple("Pair", "image label")


@dataclass
class Sample:
    name: str
    image: torch.Tensor


CASES = [
    (torch.zeros(5, 3, 8, 9), 5, 9),
    (np.zeros((6, 7, 8, 3), np.uint8), 6, 8),
    ([torch.zeros(4, 1, 16, 8), torch.zeros(4)], 4, 16),
    ((torch.zeros(4), torch.zeros(4, 3, 2, 2)), 4, 2),
    ({"name": ["a", "b"], "image": torch.zeros(2, 3, 5, 5)}, 2, 5),
    (Pair([torch.zeros(3, 2)], 1), 3, None),
    (Sample("x", torch.zeros(7, 3, 4, 4)), 7, 4),
    (torch.zeros(2, 5, 8, 9), 2, None),
    (torch.tensor(3.0), 1, None),
    (torch.zeros(0, 4), 0, None),
    (["a", "b", "c"], 3, None),
    ({"name": ["a", "b"]}, 2, None),
    ({"name": "a"}, 1, None),
    ("abc", 1, None),
    (b"abc", 1, None),
    (17, 1, None),
    (None, 1, None),
    ([], 0, None),
    ({}, 1, None),
    (["x"] * 100 + [torch.zeros(5)], 101, None),
]


@pytest.mark.parametrize(("batch", "samples", "side"), CASES, ids=range(len(CASES)))
def test_samples_are_counted_from_the_batch(batch: Any, samples: int, side: int | None) -> None:
    """The first tensor's length, wherever it is; and the longer side of the pictures."""
    assert count_samples(batch) == samples
    assert image_side(batch) == side
    monitor = HealthMonitor([batch] * 3)
    assert sum(1 for _ in monitor) == 3
    assert (monitor.figures().samples, monitor.figures().image_side) == (3 * samples, side)


class Sleepy(Dataset[torch.Tensor]):
    def __init__(self, size: int, seconds: float) -> None:
        self.size, self.seconds = size, seconds

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.seconds)
        return torch.full((3, 4, 4), index)


@pytest.mark.parametrize("workers", [0, 2])
def test_torchs_loader_is_iterated_as_without(workers: int) -> None:
    """The batches, their order, the length and the settings are the loader's; every batch counts once,
    every epoch too."""
    loader = DataLoader(Sleepy(10, 0), batch_size=4, num_workers=workers)
    monitor = HealthMonitor(loader)
    for epoch in range(1, 4):
        found = list(monitor)
        assert [batch[:, 0, 0, 0].tolist() for batch in found] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        figures = monitor.figures()
        assert (figures.steps, figures.epochs, figures.samples) == (3 * epoch, epoch, 10 * epoch)
        assert figures.first_wait_s.count == epoch
    assert len(monitor) == len(loader) == 3
    assert (monitor.batch_size, monitor.dataset) == (4, loader.dataset)
    assert (figures.workers, figures.engine, figures.image_side) == (workers, None, 4)
    assert figures.prefetch_factor == (2 if workers else None)
    assert figures.persistent_workers is False


def test_waiting_and_working_are_told_apart() -> None:
    """A dataset that sleeps fills the waits, a body that sleeps fills the steps; sleeps are lower bounds."""
    monitor = HealthMonitor(DataLoader(Sleepy(6, 0.02), batch_size=2))
    for _ in monitor:
        time.sleep(0.01)
    figures = monitor.figures()
    assert figures.all_wait_s >= 3 * 0.04
    assert figures.all_step_s >= 3 * 0.01
    assert figures.wait_s.p50 is not None
    assert figures.wait_s.p50 >= 0.04


def test_the_first_wait_holds_iter_but_not_what_comes_between() -> None:
    """Time in iter() is a wait; time between iter() and the first next() is the user's."""

    class Slow:
        def __iter__(self) -> Any:
            time.sleep(0.05)
            return iter([torch.zeros(2), torch.zeros(2)])

    monitor: HealthMonitor[torch.Tensor] = HealthMonitor(Slow())
    before = time.perf_counter()
    iterator = iter(monitor)
    made = time.perf_counter() - before
    time.sleep(0.2)
    between = time.perf_counter()
    assert sum(len(batch) for batch in iterator) == 4
    pulled = time.perf_counter() - between
    first = monitor.figures().first_wait_s
    assert first.max is not None
    assert 0.05 <= first.max <= made + pulled


def test_fastloader_on_packed_data(packed: Path, no_leaks: None) -> None:
    """FastLoader's batches of packed data are counted by their rows, and its settings are read."""
    with FastLoader(packed, 8, transform=[T.RandomResizedCrop(32)], num_workers=2, seed=1) as loader:
        monitor = HealthMonitor(loader)
        plain = [images.clone() for images, _ in loader]
        loader.set_epoch(0)
        found = [images.clone() for images, _ in monitor]
        assert all(torch.equal(a, b) for a, b in zip(plain, found, strict=True))
        figures = monitor.figures()
    assert (figures.steps, figures.epochs, figures.samples) == (7, 1, 50)
    assert (figures.workers, figures.image_side) == (2, 32)
    assert "waiting for data" in monitor.report()


def test_fastloader_on_any_dataset() -> None:
    """With worker processes too."""
    data = TensorDataset(torch.arange(10))
    with FastLoader(data, batch_size=4, num_workers=1) as loader:
        monitor = HealthMonitor(loader)
        assert [batch[0].tolist() for batch in monitor] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        assert monitor.figures().samples == 10


def test_fastloader_feeds_its_own_monitor(packed: Path) -> None:
    """loader.health has counted each pass, beside the engine's own counters, for every engine."""
    data = TensorDataset(torch.arange(10))
    for engine, name, loader, steps, samples in (
        (
            "threads",
            "1 native threads",
            FastLoader(packed, 8, transform=[T.RandomResizedCrop(32)], num_workers=1),
            7,
            50,
        ),
        ("processes", "1 worker processes", FastLoader(data, batch_size=4, num_workers=1), 3, 10),
        ("caller", "calling process", FastLoader(data, batch_size=4), 3, 10),
    ):
        with loader:
            for _ in range(2):
                assert sum(1 for _ in loader) == steps
            figures = loader.health.figures()
            report = loader.health.report()
        assert (figures.engine, figures.steps, figures.epochs, figures.samples) == (
            engine,
            2 * steps,
            2,
            2 * samples,
        )
        assert f", {name}, " in report


def test_the_iterables_own_stats_and_settings_are_read() -> None:
    """A loader's stats() is found; a stats= given wins; set_epoch and other attributes pass through,
    private ones do not."""
    loader = Loader([torch.zeros(3)], FULL_STATS, num_workers=5, prefetch_factor=3, _secret=1)
    monitor = HealthMonitor(loader)
    assert monitor.figures().restarts == 1
    # The engine knows better than the argument.
    assert (monitor.figures().workers, monitor.figures().prefetch_factor) == (
        2,
        3,
    )
    assert HealthMonitor(loader, stats=lambda: {"restarts": 9}).figures().restarts == 9
    monitor.set_epoch(4)
    assert loader.told.epoch == 4
    for name in ("_secret", "absent"):
        assert not hasattr(monitor, name)
    assert not hasattr(HealthMonitor[Any](), "set_epoch")


def test_distributed_samplers_hear_of_the_epoch() -> None:
    """The usual `loader.sampler.set_epoch(e)` works through the monitor."""
    data = TensorDataset(torch.arange(4))
    monitor = HealthMonitor(DataLoader(data, sampler=DistributedSampler(data, num_replicas=1, rank=0)))
    monitor.sampler.set_epoch(3)
    assert monitor.sampler.epoch == 3


def test_without_a_length_or_an_iterable() -> None:
    """len() fails as the iterable's own does; iterating nothing says what to do; a monitor is always true."""

    class Stream(IterableDataset[int]):
        def __iter__(self) -> Any:
            return iter(range(5))

    monitor = HealthMonitor(DataLoader(Stream(), batch_size=2))
    with pytest.raises(TypeError, match="no len"):
        len(monitor)
    assert [batch.tolist() for batch in monitor] == [[0, 1], [2, 3], [4]]
    empty: HealthMonitor[Any] = HealthMonitor()
    assert empty
    with pytest.raises(TypeError, match=r"HealthMonitor\(loader\)"):
        iter(empty)


def test_a_pass_left_half_way_counts_its_finished_steps() -> None:
    """The step in which the loop is left has no end, so it does not count; a new pass is a new epoch."""
    monitor = HealthMonitor([torch.zeros(2)] * 5)
    for i, _ in enumerate(monitor):
        if i == 2:
            break
    assert (monitor.figures().steps, monitor.figures().epochs) == (2, 1)
    list(monitor)
    assert (monitor.figures().steps, monitor.figures().epochs) == (7, 2)


def test_an_error_of_the_loader_passes_and_counts_nothing() -> None:
    """The exception is the loader's own; the steps before it count, and the pass can go on if the iterator
    can."""

    class Fails:
        def __init__(self) -> None:
            self.at = 0

        def __iter__(self) -> Any:
            return self

        def __next__(self) -> torch.Tensor:
            self.at += 1
            if self.at == 2:
                raise ValueError("sample 7")
            if self.at > 3:
                raise StopIteration
            return torch.zeros(4)

    monitor: HealthMonitor[torch.Tensor] = HealthMonitor(Fails())
    iterator = iter(monitor)
    next(iterator)
    with pytest.raises(ValueError, match="sample 7"):
        next(iterator)
    assert [len(batch) for batch in iterator] == [4]
    figures = monitor.figures()
    assert (figures.steps, figures.epochs, figures.samples) == (2, 1, 8)


def test_samples_can_be_counted_otherwise() -> None:
    """count= decides what a sample is, such as a token."""
    monitor = HealthMonitor([torch.zeros(2, 7)] * 3, count=torch.numel)
    list(monitor)
    assert monitor.figures().samples == 42
    with pytest.raises(ArgumentError, match="fewer than 0"):
        list(HealthMonitor([1], count=lambda _: -1))
    with pytest.raises(ZeroDivisionError):
        list(HealthMonitor([1], count=lambda _: 1 // 0))


def test_a_loader_keeps_its_own_monitor_without_a_cycle() -> None:
    """of() holds the loader weakly: dropping the loader frees it at once, and the monitor still reports
    what it saw."""
    loader = Loader([torch.zeros(3)] * 2, FULL_STATS, num_workers=2)
    monitor = HealthMonitor.of(loader)
    assert sum(len(batch) for batch in monitor.watch(iter(loader), time.perf_counter())) == 6
    assert monitor.figures().restarts == 1
    gone = weakref.ref(loader)
    gc.disable()
    try:
        del loader
        assert gone() is None
    finally:
        gc.enable()
    assert (monitor.figures().steps, monitor.figures().restarts) == (2, None)


def test_a_watched_iterator_is_still_the_iterator_for_who_looks() -> None:
    """Attributes and length of torch's iterator stay reachable."""
    loader = DataLoader(TensorDataset(torch.arange(6)), batch_size=2)
    iterator = iter(HealthMonitor(loader))
    assert len(iterator) == 3  # type: ignore[arg-type]
    assert iterator._num_yielded == 0  # type: ignore[attr-defined]
    next(iterator)
    assert iterator._num_yielded == 1  # type: ignore[attr-defined]
