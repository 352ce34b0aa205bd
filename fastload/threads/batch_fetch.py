"""BatchFetch: the records of a batch that lie in buckets, on their way into the cache or into the batch.

NOTE [ fetch: a batch waits for its own records only ]
A batch whose records are not all in the cache is held (core.Batch.hold): it takes its slot in its turn, and its rows are queued for the
decoders when the fetcher's thread has the last of them. So no decoder waits for the network, and a batch whose records are there is not
behind one whose are not. The fetcher refers to a batch weakly: one that is dropped is not fetched for.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.errors import ClosedError, RemoteError
from fastload.remote.files import RemoteFiles
from fastload.remote.requests import PassShare, Request, Unit

_SIGNALS_S = 0.25


class Part(NamedTuple):
    """What a batch needs of one dataset in a bucket.

    Attributes:
        files: of the dataset.
        rows: of the batch.
        indices: the samples in them.
        missing: their units that are not in the cache.
        share: what the batch is of a pass.
    """

    files: RemoteFiles
    rows: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int64]
    missing: list[Unit]
    share: PassShare | None


class BatchFetch:
    """What one batch needs of datasets in buckets, and what became of it. See NOTE [ fetch: a batch waits for its own records only ].

    Attributes:
        error: why a record could not be fetched.
    """

    def __init__(self, batch: core.Batch, parts: Sequence[Part]) -> None:
        self.error: RemoteError | None = None
        self._batch = weakref.ref(batch)
        self._requests: list[tuple[Part, Request]] = []
        self._left = 1
        self._lock = threading.Lock()
        self._ended = threading.Event()
        batch.hold()
        for part in parts:
            request = part.files.request(part.indices, batch, partial(self._done, part), self._begin, part.missing, part.share)
            if request is not None:
                self._requests.append((part, request))
        self._end()

    def _begin(self) -> None:
        with self._lock:
            self._left += 1

    def _done(self, part: Part, request: Request) -> None:
        """Hands over what a request fetched; in the fetcher's thread."""
        files, rows, indices = part.files, part.rows, part.indices
        batch = self._batch()
        try:
            if batch is not None and request.error is not None:
                self.error = self.error or request.error
            elif batch is not None:
                for at, record in files.taken(request, indices):
                    batch.give(int(rows[at]), record)
        except Exception as failure:  # its loop is to hear of it; the thread goes on for others
            self.error = self.error or RemoteError(f"{files.name}: what was fetched cannot be used ({failure})")
        self._end()

    def _end(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left:
                return
        batch = self._batch()
        if batch is not None:
            if self.error is not None:
                for row in range(batch.rows):  # none of them need be made
                    batch.fail(row, str(self.error))
            batch.release()
        self._ended.set()

    def wait(self, timeout: float) -> bool:
        """Waits until nothing is on its way. Returns False after `timeout` seconds (0: no limit). Raises ClosedError."""
        waited = 0.0
        while not self._ended.wait(_SIGNALS_S):
            waited += _SIGNALS_S
            if timeout and waited >= timeout:
                return False
            if not all(part.files.running for part, _ in self._requests):
                raise ClosedError("this process fetches nothing any more")
        return True

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lets the batch's records be read in the block, where the cache had no room for them."""
        with ExitStack() as stack:
            for part, request in self._requests:
                stack.enter_context(part.files.holding(request, part.indices))
            yield
