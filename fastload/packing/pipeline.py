"""OrderedPipeline: runs work on threads and yields results in order, within a memory limit."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Generic, Protocol, TypeVar

CHUNK = 16
"""Positions that a thread takes at once: one hand-over between threads costs as much as copying a small
image."""
FLUSH_BYTES = 4 << 20
HELD_BYTES = 256 << 20


class Sized(Protocol):
    """A result that knows how much memory it holds."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it holds."""


I = TypeVar("I", bound=Sized)  # noqa: E741
R = TypeVar("R", bound=Sized)


class OrderedPipeline(Generic[I, R]):
    """Runs ``work(position, prepared)`` on threads and yields lists of results in the order of positions.

    1. `work` is called once for each position of [first, last) and must not raise: a failure is a result too.
       If it does raise, `results` raises that in its place.
    2. With `prepare`, ``prepare(position)`` is called in the thread that iterates `results`, in order, and
       its value is handed to `work`; without, `work` gets None.
    3. At most about `held` bytes of results wait for the consumer. The thread whose chunk is the next to be
       consumed never waits, so the pipeline cannot deadlock.
    4. Leaving the ``with`` block stops and joins the threads, wherever iteration was.
    5. With ``workers=0`` there are no threads: each result is made when it is asked for, in the thread that
       iterates `results`.
    """

    def __init__(
        self,
        work: Callable[[int, I | None], R],
        first: int,
        last: int,
        *,
        workers: int,
        prepare: Callable[[int], I] | None = None,
        held: int = HELD_BYTES,
    ) -> None:
        self._work = work
        self._prepare = prepare
        self._first, self._last = first, last
        self._chunks = -(-(last - first) // CHUNK)
        self._window = 2 * workers + 2
        self._limit = held
        # Everything below is read and written under _changed.
        self._changed = threading.Condition()
        self._taken = 0  # chunks given to threads
        self._head = 0  # the chunk that the consumer takes next
        self._fed = self._chunks if prepare is None else 0  # chunks that may be taken
        self._inputs: dict[int, list[I]] = {}
        self._ready: dict[int, deque[tuple[list[R], int]]] = {}
        self._done: set[int] = set()
        self._held = 0
        self._failure: dict[int, BaseException] = {}
        self._stop = False
        self._threads = [
            threading.Thread(target=self._run, name=f"fastload-pack-{i}", daemon=True)
            for i in range(min(workers, max(1, self._chunks)))
        ]

    def __enter__(self) -> OrderedPipeline[I, R]:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._stop = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def results(self) -> Iterator[list[R]]:
        """Yields lists of results, in order. An exception of `work` is raised in the place of its result."""
        if not self._threads:
            for position in range(self._first, self._last):
                yield [self._work(position, None if self._prepare is None else self._prepare(position))]
            return
        for chunk in range(self._chunks):
            finished = False
            while not finished:
                self._feed(chunk)
                with self._changed:
                    while not self._ready.get(chunk) and chunk not in self._done:
                        self._changed.wait()
                    batches = list(self._ready.pop(chunk, ()))
                    finished = chunk in self._done
                for results, size in batches:
                    yield results
                    with self._changed:
                        self._held -= size
                        self._changed.notify_all()
            if chunk in self._failure:
                raise self._failure[chunk]
            with self._changed:
                self._head = chunk + 1
                self._done.discard(chunk)
                self._changed.notify_all()

    def _feed(self, chunk: int) -> None:
        """Prepares inputs for the next chunk, and for those after it while there is room."""
        if self._prepare is None:
            return
        while self._fed < min(self._chunks, chunk + self._window):
            with self._changed:
                if self._fed > chunk and self._held > self._limit:
                    return
            inputs = [self._prepare(position) for position in self._positions(self._fed)]
            with self._changed:
                self._inputs[self._fed] = inputs
                self._held += sum(item.nbytes for item in inputs)
                self._fed += 1
                self._changed.notify_all()
                if self._ready.get(chunk):
                    return

    def _positions(self, chunk: int) -> range:
        start = self._first + chunk * CHUNK
        return range(start, min(start + CHUNK, self._last))

    def _run(self) -> None:
        while (chunk := self._take()) is not None:
            try:
                self._run_chunk(chunk)
            except BaseException as error:  # the consumer must get every error: it would wait for ever
                with self._changed:
                    self._failure[chunk] = error
            with self._changed:
                self._done.add(chunk)
                self._changed.notify_all()

    def _take(self) -> int | None:
        with self._changed:
            while not self._stop:
                if self._taken == self._chunks:
                    return None
                if self._taken < self._fed and self._taken - self._head < self._window:
                    self._taken += 1
                    return self._taken - 1
                self._changed.wait()
        return None

    def _run_chunk(self, chunk: int) -> None:
        inputs = self._inputs.pop(chunk, None)
        results: list[R] = []
        size = 0
        for i, position in enumerate(self._positions(chunk)):
            if self._held > self._limit and chunk != self._head:
                self._flush(chunk, results, size)
                results, size = [], 0
                self._wait_for_room(chunk)
            if self._stop:
                return
            given = None
            if inputs is not None:
                given = inputs[i]
            result = self._work(position, given)
            results.append(result)
            size += result.nbytes
            if given is not None:
                with self._changed:
                    self._held -= given.nbytes
            if size >= FLUSH_BYTES:
                self._flush(chunk, results, size)
                results, size = [], 0
        self._flush(chunk, results, size)

    def _flush(self, chunk: int, results: list[R], size: int) -> None:
        if not results:
            return
        with self._changed:
            self._held += size
            self._ready.setdefault(chunk, deque()).append((results, size))
            self._changed.notify_all()

    def _wait_for_room(self, chunk: int) -> None:
        with self._changed:
            while not self._stop and self._held > self._limit and chunk != self._head:
                self._changed.wait()
