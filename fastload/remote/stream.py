"""Streams of whole objects: ranges of several objects, requested ahead and returned in order, in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from typing_extensions import Buffer

from fastload.remote.files import DataFile
from fastload.remote.objects import Objects

RANGE_BYTES = 4 << 20
"""Bytes of a request: large enough that a request's latency counts little, small enough that several in flight fit into memory."""
REQUESTS = 8
"""Requests in flight, so that at most this many ranges, and the one in use, are in memory."""


def ranges(objects: Objects, files: Iterable[DataFile]) -> Iterator[tuple[DataFile, int, Future[Buffer]]]:
    """(file, offset, request) of consecutive ranges of each file, file after file; whoever iterates waits for each request in turn.

    Requests that are under way when the iteration is given up are waited for, and their results dropped.
    """
    pending: deque[tuple[DataFile, int, Future[Buffer]]] = deque()
    pool = ThreadPoolExecutor(REQUESTS, "fastload-fetch")
    try:
        for file in files:
            for start in range(0, file.bytes, RANGE_BYTES):
                stop = min(start + RANGE_BYTES, file.bytes)
                pending.append((file, start, pool.submit(objects.get_range, file.name, start, stop)))
                if len(pending) == REQUESTS:
                    yield pending.popleft()
        while pending:
            yield pending.popleft()
    finally:
        pool.shutdown(cancel_futures=True)
