"""BucketPass: the requests of one pass of a loader for datasets in buckets, announced to their fetchers ahead of its batches. BatchFetch:
the records of one batch that lie in buckets, on their way into the cache or into the batch.

NOTE [ fetch: a batch waits for its own records only ]
A batch whose records are not all in the cache is held (core.Batch.hold): it takes its slot in its turn, and its rows are queued for the
decoders when the fetcher's thread has the last of them. So no decoder waits for the network, and a batch with all its records does not wait
behind one without. The fetcher refers to a batch weakly: one that is dropped is not fetched for.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.errors import ClosedError, RemoteError
from fastload.remote.files import RemoteFiles, begin_pass
from fastload.remote.requests import PassShare, Request, Unit

if TYPE_CHECKING:
    from fastload.dataset.view import NativeView
    from fastload.sampling.known import Coverage

_SIGNALS_S = 0.25


class BatchPart(NamedTuple):
    """A batch's share of one dataset in a bucket.

    Attributes:
        files: files of the dataset.
        rows: rows of the batch.
        indices: the samples in them.
        missing: their units that are not in the cache.
        share: the batch's share of a pass.
    """

    files: RemoteFiles
    rows: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int64]
    missing: list[Unit]
    share: PassShare | None


class BatchFetch:
    """Fetch of one batch's records in buckets, and its errors. See NOTE [ fetch: a batch waits for its own records only ].

    Attributes:
        error: the reason why a record could not be fetched.
    """

    def __init__(self, batch: core.Batch, parts: Sequence[BatchPart]) -> None:
        self.error: RemoteError | None = None
        self._batch = weakref.ref(batch)
        self._requests: list[tuple[BatchPart, Request]] = []
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

    def _done(self, part: BatchPart, request: Request) -> None:
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


_Positions = npt.NDArray[np.int64]


class BucketPass:
    """One pass over a view with datasets in buckets. Bytes fetched ahead for it go with the last reference to it.

    Args:
        view: the view in which the loader's positions count.
        remote: the datasets in buckets, by source.
        coverage: the samples that the pass may ask for.
    """

    def __init__(self, view: NativeView, remote: Mapping[int, RemoteFiles], coverage: Coverage) -> None:
        self._view = view
        self._remote = remote
        self._block = coverage.block
        if self._block:
            self._coverage = coverage
            self._opened = np.zeros(-(-len(view) // self._block), bool)
            self._passes = {source: begin_pass(files, self, None, coverage.buffer) for source, files in remote.items()}
        else:
            self._passes = {
                source: begin_pass(files, self, (self._in_source(source, part) for part in coverage.parts()))
                for source, files in remote.items()
            }

    def _in_source(self, source: int, positions: _Positions) -> _Positions:
        """The samples of a source that lie at some positions."""
        sources, indices = self._view.rows(self._view.existing(positions))  # type: ignore[arg-type]
        found: _Positions = indices[sources == source].astype(np.int64)
        return found

    def opens(self, positions: _Positions) -> _Positions:
        """The positions of all blocks in which these, those of a batch, are the first."""
        if not self._block:
            return positions[:0]
        blocks = np.unique(positions // self._block)
        new = blocks[~self._opened[blocks]]
        self._opened[new] = True
        found = (new[:, None] * self._block + np.arange(self._block)).ravel()
        return self._coverage.among(found)

    def share(self, source: int, opens: _Positions, asks: _Positions) -> PassShare:
        """A batch's share of the pass over one source.

        Args:
            source: number of the dataset.
            opens: positions that `opens` returned for the batch.
            asks: the batch's samples of the source.
        """
        owner, files = self._passes[source], self._remote[source]
        if not self._block:
            return PassShare(owner)
        shards, _, units = files.units(asks)
        used: list[Unit] = list(zip(shards.tolist(), units.tolist(), strict=True))
        return PassShare(owner, files.missing(self._in_source(source, opens)) if len(opens) else (), used)
