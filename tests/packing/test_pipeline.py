"""The ordered pipeline: order, bounds, failures, and an end whenever the consumer leaves."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest

from fastload.packing.pipeline import CHUNK, OrderedPipeline


@dataclass
class Result:
    position: int
    nbytes: int = 1


def collect(pipeline: OrderedPipeline[Result, Result]) -> list[int]:
    with pipeline:
        return [result.position for batch in pipeline.results() for result in batch]


@pytest.mark.parametrize("workers", [0, 1, 2, 7])
@pytest.mark.parametrize("count", [0, 1, CHUNK, CHUNK + 1, 1000])
def test_order(workers: int, count: int) -> None:
    """Results come in the order of positions for any number of threads, from any first position."""
    pipeline: OrderedPipeline[Result, Result] = OrderedPipeline(
        lambda i, _: Result(i), 5, 5 + count, workers=workers
    )
    assert collect(pipeline) == list(range(5, 5 + count))


def test_results_in_memory_are_bounded() -> None:
    """However slow the consumer: what waits is at most the limit, one result a thread, and the chunk that
    is next."""
    lock = threading.Lock()
    alive = most = 0

    def work(position: int, _: Result | None) -> Result:
        nonlocal alive, most
        with lock:
            alive += 1
            most = max(most, alive)
        return Result(position, 1 << 20)

    limit = 8
    workers = 3
    pipeline: OrderedPipeline[Result, Result] = OrderedPipeline(
        work, 0, 600, workers=workers, held=limit << 20
    )
    seen = 0
    with pipeline:
        for batch in pipeline.results():
            with lock:
                alive -= len(batch)
            seen += len(batch)
    assert seen == 600
    assert most <= limit + workers * (1 + 4) + CHUNK


def test_prepared_inputs_come_from_the_consumer_thread_in_order() -> None:
    """`prepare` runs where results are iterated, for sources that must not be asked from several threads."""
    asked: list[int] = []
    threads: set[int] = set()

    def prepare(position: int) -> Result:
        asked.append(position)
        threads.add(threading.get_ident())
        return Result(position * 10)

    def work(position: int, given: Result | None) -> Result:
        assert given is not None
        return Result(position + given.position)

    pipeline = OrderedPipeline(work, 0, 200, workers=3, prepare=prepare)
    assert collect(pipeline) == [11 * i for i in range(200)]
    assert asked == list(range(200))
    assert threads == {threading.get_ident()}


def test_no_threads() -> None:
    """With no workers, each result is made in the consumer's thread when it is asked for, and a failure
    comes at its place."""
    made: list[int] = []

    def work(position: int, given: Result | None) -> Result:
        assert given is not None
        assert given.position == position
        if position == 7:
            raise MemoryError("no room")
        made.append(position)
        return Result(position)

    before = set(threading.enumerate())
    with OrderedPipeline(work, 3, 20, workers=0, prepare=Result) as pipeline:
        assert set(threading.enumerate()) <= before
        results = pipeline.results()
        for position in range(3, 7):
            assert next(results) == [Result(position)]
            assert made[-1] == position
        with pytest.raises(MemoryError, match="no room"):
            next(results)


def test_an_exception_of_work_comes_at_its_place() -> None:
    """Everything before its chunk is delivered first; then it is raised, and the threads end."""

    def work(position: int, _: Result | None) -> Result:
        if position == 5 * CHUNK + 3:
            raise MemoryError("no room")
        return Result(position)

    seen = []
    before = set(threading.enumerate())
    pipeline: OrderedPipeline[Result, Result] = OrderedPipeline(work, 0, 50 * CHUNK, workers=4)
    with pipeline, pytest.raises(MemoryError, match="no room"):
        for batch in pipeline.results():
            seen += [result.position for result in batch]
    assert seen[: 5 * CHUNK] == list(range(5 * CHUNK))
    assert set(threading.enumerate()) <= before


def test_leaving_early_ends_the_threads() -> None:
    """A consumer that stops leaves nothing running, even with threads waiting for room."""
    before = set(threading.enumerate())
    pipeline: OrderedPipeline[Result, Result] = OrderedPipeline(
        lambda i, _: Result(i, 1 << 20), 0, 5000, workers=4, held=1 << 20
    )
    with pipeline:
        next(pipeline.results())
    assert set(threading.enumerate()) <= before
