"""Calls of a pool of threads, made ahead of who takes their results."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Argument = TypeVar("Argument")
Result = TypeVar("Result")


def ahead(
    pool: ThreadPoolExecutor, call: Callable[[Argument], Result], arguments: Iterable[Argument], most: int
) -> Iterator[Result]:
    """Yields the result of `call` for each argument, in order, with at most `most` calls under way or
    waiting to be taken."""
    waiting: deque[Future[Result]] = deque()
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
