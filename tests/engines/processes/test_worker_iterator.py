"""The iterator over worker processes: broken off, closed, failed or forked, over uneven replicas; and what
it counts."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from pairs import pairwise
from process_helpers import MODES, Made, engine_marks, modes, ones
from torch.utils.data import IterableDataset, get_worker_info

from fastload import FastLoader
from fastload.errors import ClosedError

pytestmark = engine_marks


def test_a_reset_waits_for_nothing_that_is_there() -> None:
    """A loop that is broken off while later batches lie ready: the next epoch of persistent workers
    begins, rather than wait for ever."""

    def make(index: int) -> torch.Tensor:
        time.sleep(0.2 if index == 0 else 0)
        return torch.tensor([index])

    loader = FastLoader(
        Made(make, 4),
        batch_size=2,
        num_workers=2,
        persistent_workers=True,
        seed_by="sample",
        prefetch_factor=4,
    )
    list(loader)
    for _ in range(3):
        next(iter(loader))  # of two batches; the second is often made before the first
        iterator = loader._iterator
        deadline = time.monotonic() + 20
        while (
            any(task.made is None for task in iterator._scheduler.tasks.values())
            and time.monotonic() < deadline
        ):
            iterator._listen([0, 1], 20)
        assert [task.made is not None for task in iterator._queue] == [True]
    assert [batch.flatten().tolist() for batch in loader] == [[0, 1], [2, 3]]
    loader.close()


@modes
def test_a_loop_broken_off(mode: str) -> None:
    """Persistent workers begin the next epoch anew wherever the last one was broken off."""
    loader = FastLoader(
        Made(ones, 40), batch_size=2, num_workers=2, persistent_workers=True, prefetch_factor=3, **MODES[mode]
    )
    pids = None
    for stop in [0, 1, 5, 13, 19, 20]:
        for number, _batch in enumerate(loader):
            if number == stop:
                break
        pids = pids or [process.pid for process in loader._iterator._workers]
    seen = [batch[:, 0].int().tolist() for batch in loader]
    assert sorted(seen) == [[index, index + 1] for index in range(0, 40, 2)]
    assert mode == "any order" or seen == sorted(seen)
    assert pids == [process.pid for process in loader._iterator._workers]
    loader.close()


def test_exceptions_of_a_local_class() -> None:
    """An exception that no pickle knows by name is raised all the same, and the worker lives."""

    class Local(ValueError):
        pass

    def make(index: int) -> Any:
        if index == 2:
            raise Local("just this one")
        return index

    for workers_do in ({}, {"seed_by": "sample"}):
        loader = FastLoader(Made(make, 6), batch_size=1, num_workers=1, **workers_do)
        iterator = iter(loader)
        assert [next(iterator).item(), next(iterator).item()] == [0, 1]
        with pytest.raises(ValueError, match="just this one"):
            next(iterator)
        assert [batch.item() for batch in iterator] == [3, 4, 5]


def test_an_iterator_that_was_closed() -> None:
    """Closed before its end it says so: a loop must not take that for the end of the epoch. After its end
    it stays ended."""
    loader = FastLoader(Made(ones, 20), batch_size=2, num_workers=2)
    iterator = iter(loader)
    next(iterator)
    loader.close()
    with pytest.raises(ClosedError):
        next(iterator)
    assert len(list(loader)) == 10
    iterator = iter(loader)
    for _batch in iterator:
        pass
    loader.close()
    for _ in range(2):
        with pytest.raises(StopIteration):
            next(iterator)


def test_a_sampler_that_fails() -> None:
    """An error of the sampler, or an index that cannot be sent, is raised; what follows is an error too,
    never a wait."""

    def failing() -> Iterator[int]:
        yield from range(12)
        raise KeyError("no more")

    class Sampler:
        def __iter__(self) -> Iterator[int]:
            return failing()

        def __len__(self) -> int:
            return 100

    iterator = iter(FastLoader(Made(ones, 100), batch_size=1, sampler=Sampler(), num_workers=2))
    with pytest.raises(KeyError, match="no more"):
        for _batch in iterator:
            pass
    indices = [*range(8), lambda: None, *range(8)]
    iterator = iter(FastLoader(Made(ones, 100), batch_size=None, sampler=indices, num_workers=2))
    with pytest.raises(Exception, match=r"[Pp]ickle|local object"):
        for _batch in iterator:
            pass
    with pytest.raises(ClosedError):
        next(iterator)


def test_a_forked_child_iterates_a_persistent_loader() -> None:
    """It gets workers of its own; the parent's go on."""
    loader = FastLoader(Made(ones, 20), batch_size=2, num_workers=1, persistent_workers=True)
    list(loader)
    pids = [process.pid for process in loader._iterator._workers]
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            torch.set_num_threads(1)
            code = 0 if [int(batch[0, 0]) for batch in loader] == list(range(0, 20, 2)) else 2
            loader.close()
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    assert len(list(loader)) == 10
    assert [process.pid for process in loader._iterator._workers] == pids
    loader.close()


class Uneven(IterableDataset[Any]):
    """Replicas of different lengths: worker k of N yields (k, 0), (k, 1), ..."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        assert info is not None
        for number in range(self.lengths[info.id]):
            yield info.id * 1000 + number


@pytest.mark.parametrize(
    ("lengths", "in_order", "size"),
    pairwise([[0, 0, 0], [5, 0, 1], [1, 17, 3], [40, 0, 2], [7, 7, 7]], [True, False], [None, 1, 4]),
)
def test_exhausted_replicas(lengths: list[int], in_order: bool, size: int | None) -> None:
    """Every replica is read to its end, in its own order, in each epoch of persistent workers, and after a
    loop that was broken off."""
    loader = FastLoader(
        Uneven(lengths),
        batch_size=size,
        num_workers=3,
        persistent_workers=True,
        prefetch_factor=2,
        in_order=in_order,
    )
    for _ in range(2):
        seen = [value for batch in loader for value in (batch.tolist() if size else [batch])]
        for worker, length in enumerate(lengths):
            assert [value for value in seen if value // 1000 == worker] == [
                worker * 1000 + number for number in range(length)
            ]
        assert len(seen) == sum(lengths)
        for _batch in loader:
            break
    loader.close()


class Late(IterableDataset[Any]):
    """It cannot be iterated in its second pass."""

    def __init__(self) -> None:
        self.passes = 0

    def __iter__(self) -> Iterator[int]:
        self.passes += 1
        if self.passes == 2:
            raise OSError("not now")
        return iter(range(4))


def test_an_epoch_that_cannot_begin() -> None:
    """A dataset that cannot be iterated now fails that epoch alone: the next one of the same persistent
    workers has all samples."""
    loader = FastLoader(Late(), batch_size=2, num_workers=1, persistent_workers=True)
    for _ in range(2):
        assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3]]
        if loader.epoch == 1:
            with pytest.raises(OSError, match="not now"):
                list(loader)
    loader.close()


def test_counters() -> None:
    """Batches, samples, bytes and what went by envelope are counted where the health report finds them."""

    def collate(samples: list[Any]) -> Any:
        return (
            {"x": torch.stack(samples), "odd": samples[0].clone().requires_grad_()}
            if int(samples[0][0]) % 8 == 0
            else torch.stack(samples)
        )

    loader = FastLoader(Made(ones, 40), batch_size=4, num_workers=2, collate_fn=collate)
    list(loader)
    counts = loader._fastload.counters.workers
    assert (counts.batches, counts.samples) == (10, 40)
    assert counts.envelope_batches == 5
    assert counts.envelope_bytes > 5 * 4000
    assert counts.bytes >= 10 * 16_000
    assert counts.python_seconds > 0
    assert counts.collate_seconds > 0
    assert len(counts.slow) == 10
    assert [seconds for _, seconds in counts.slow] == sorted(
        (seconds for _, seconds in counts.slow), reverse=True
    )
    list(loader)
    assert counts.batches == 20
