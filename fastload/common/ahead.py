"""Calls of a pool of threads, made ahead of who takes their results."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar

Argument = TypeVar("Argument")
Result = TypeVar("Result")


class Submits(Protocol):
    """A pool of threads, or another that makes calls: `submit` gives what has `result` and `cancel`, as a
    Future."""

    def submit(self, call: Callable[[Any], Any], argument: Any, /) -> Any: ...


def ahead(
    pool: Submits, call: Callable[[Argument], Result], arguments: Iterable[Argument], most: int
) -> Iterator[Result]:
    """Yields the result of `call` for each argument, in order, with at most `most` calls under way or
    waiting to be taken."""
    waiting: deque[Any] = deque()
    try:
        for argument in arguments:
            waiting.append(pool.submit(call, argument))
            if len(waiting) == most:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
