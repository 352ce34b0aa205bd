"""BucketPass: the requests of one pass of a loader for datasets in buckets, announced to their fetchers ahead
of its batches. BatchFetch: the records of one batch that lie in buckets, on their way into the cache or into
the batch.

NOTE [ fetch: a batch waits for its own records only ]
A batch whose records are not all in the cache is held (core.Batch.hold): it takes its slot in its turn, and
its rows are queued for the decoders when the fetcher's thread has the last of them. So no decoder waits for
the network, and a batch with all its records does not wait behind one without. The fetcher refers to a batch
weakly: one that is dropped is not fetched for. A batch of samples whose tables (NOTE [ cache: places once a
host ]) are not on this host waits for them first, held too, so that the loop's thread waits for neither.
Batches behind it wait with it, since a pass counts in their order.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from fastload._native import core
from fastload.common.signals import SIGNALS_S
from fastload.errors import ClosedError, DatasetError, RemoteError
from fastload.health import tracing
from fastload.remote.files import RemoteFiles, begin_pass
from fastload.remote.requests import PassShare, Request, Unit
from fastload.store.sidecar import PLACES

if TYPE_CHECKING:
    from fastload.dataset.view import NativeView
    from fastload.sampling.known import Coverage


class BatchPart(NamedTuple):
    """A batch's share of one dataset in a bucket.

    Attributes:
        source: number of the dataset.
        files: files of the dataset.
        rows: rows of the batch.
        indices: the samples in them.
        opens: the samples of blocks in which these are the first that the pass asks for.
        shards: numbers of the shards of all these samples.
        tables: the tables of the shards that the batch needs and this host lacks.
    """

    source: int
    files: RemoteFiles
    rows: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int64]
    opens: npt.NDArray[np.int64]
    shards: npt.NDArray[np.int64]
    tables: list[Unit]


class Asks(NamedTuple):
    """Units that a part of a batch asks for.

    Attributes:
        missing: units of its samples that are not in the cache.
        share: its share of the pass; None: it belongs to none of which anything is known.
    """

    missing: list[Unit]
    share: PassShare | None


def asks_of(part: BatchPart, bucket_pass: BucketPass | None) -> Asks:
    """Units that a part asks for, whose tables were fetched. Raises DatasetError: one is damaged."""
    return Asks(part.files.looked_up(part.indices), None if bucket_pass is None else bucket_pass.share(part))


class WaitingBatches:
    """The batches of one pass that wait for tables, and those behind them, in the order of the pass: it
    counts what it opens in that order.

    Any thread may call it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the line
        self._line: deque[BatchFetch] = deque()

    def __bool__(self) -> bool:
        return bool(self._line)

    def add(self, fetch: BatchFetch) -> None:
        """Adds the next batch of the pass."""
        with self._lock:
            self._line.append(fetch)
        self.advance()

    def advance(self) -> None:
        """Lets the batches ask for their records that have their tables, up to the first that has not."""
        with self._lock:
            while self._line and self._line[0].has_tables:
                fetch = self._line.popleft()
                if not fetch.ask():
                    self._line.appendleft(fetch)


class BatchFetch:
    """Fetch of one batch's records in buckets, and its errors. See NOTE [ fetch: a batch waits for its own
    records only ].

    Attributes:
        error: the reason why a record could not be fetched.
    """

    def __init__(
        self,
        batch: core.Batch,
        parts: Sequence[BatchPart],
        bucket_pass: BucketPass | None,
        asks: Sequence[Asks] = (),
    ) -> None:
        """Holds the batch, and takes its turn in the pass. `asks`: what `asks_of` returned for the parts,
        if the caller has it."""
        self.error: RemoteError | None = None
        self._batch = weakref.ref(batch)
        self._parts = parts
        self._asks = asks
        self._pass = None if bucket_pass is None else weakref.ref(bucket_pass)
        self._line = WaitingBatches() if bucket_pass is None else bucket_pass.line
        self._requests: list[tuple[BatchPart, Request]] = []
        self._left = 1
        self._tables = 1  # requests for tables that are under way, and 1 until all are made
        self._healed = False
        self._lock = threading.Lock()  # guards the numbers
        self._ended = threading.Event()
        self._tracer = tracing.active
        self._began_ns = 0 if self._tracer is None else core.clock_ns()
        batch.hold()
        for part in parts:
            self._request_tables(part, part.tables)
        self._table_request_ended()
        self._line.add(self)

    # ---- tables

    @property
    def has_tables(self) -> bool:
        """True once all tables of the batch's samples have come, or failed."""
        return self._tables == 0

    def _request_tables(self, part: BatchPart, lacking: list[Unit], heal: bool = False) -> None:
        if lacking:
            with self._lock:
                self._tables += 1
            part.files.request_tables(lacking, partial(self._tables_came, part), heal)

    def _tables_came(self, part: BatchPart, request: Request) -> None:
        """Keeps tables; in the fetcher's thread."""
        try:
            part.files.keep_tables(request)
        except Exception as failure:
            self._fail(part, failure)
        self._table_request_ended()
        self._line.advance()

    def _table_request_ended(self) -> None:
        with self._lock:
            self._tables -= 1

    def _fail(self, part: BatchPart, failure: Exception) -> None:
        """Notes why the batch cannot be fetched: its loop is to hear of it, and the thread goes on for
        others."""
        if self.error is None:
            wrong = f"{part.files.name}: what was fetched cannot be used ({failure})"
            self.error = failure if isinstance(failure, RemoteError) else RemoteError(wrong)

    # ---- records

    def ask(self) -> bool:
        """Begins to fetch the batch's records; in its turn, when it has its tables. False: a table was
        damaged, and is fetched again."""
        batch, bucket_pass = self._batch(), None if self._pass is None else self._pass()
        asked: list[tuple[BatchPart, Asks]] = []
        for number, part in enumerate(self._parts if batch is not None and self.error is None else ()):
            asks = self._asks[number] if self._asks else self._asks_of(part, bucket_pass)
            if asks is None and self.error is None:
                return False
            asked += [] if asks is None else [(part, asks)]
        try:
            for part, asks in asked if self.error is None else ():
                request = part.files.request(
                    part.indices, batch, partial(self._done, part), self._begin, *asks
                )
                if request is not None:
                    self._requests.append((part, request))
        except ClosedError as failure:
            self._fail(asked[0][0], failure)
        self._end()
        return True

    def _asks_of(self, part: BatchPart, bucket_pass: BucketPass | None) -> Asks | None:
        """Units that a part asks for. None: a table is damaged, and is fetched again; the second time it
        is the batch's error."""
        try:
            return asks_of(part, bucket_pass)
        except DatasetError as failure:
            if self._healed:
                self._fail(part, failure)
            else:
                self._healed = True
                self._request_tables(
                    part, part.files.lacking_tables(part.shards, (PLACES,), heal=True), heal=True
                )
            return None

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
                    if record:  # an empty member of a tar is found empty when its row is made
                        batch.give(int(rows[at]), record)
                for at, reason in files.lost(request, indices):
                    batch.fail(int(rows[at]), reason, remote=False)
        except Exception as failure:  # its loop is to hear of it; the thread goes on for others
            self._fail(part, failure)
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
            if self._tracer is not None:
                self._tracer.add("held", self._began_ns, {"samples": batch.rows}, "batches held for fetches")
        self._ended.set()

    def wait(self, timeout: float) -> bool:
        """Waits until nothing is on its way. Returns False after `timeout` seconds (0: no limit). Raises
        ClosedError."""
        waited = 0.0
        while not self._ended.wait(SIGNALS_S):
            waited += SIGNALS_S
            if timeout and waited >= timeout:
                return False
            if not all(part.files.running for part in self._parts):
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
    """One pass over a view with datasets in buckets. Bytes fetched ahead for it go with the last reference to
    it.

    Args:
        view: the view in which the loader's positions count.
        remote: the datasets in buckets, by source.
        coverage: the samples that the pass may ask for.

    Attributes:
        line: the batches that wait for tables.
    """

    def __init__(self, view: NativeView, remote: Mapping[int, RemoteFiles], coverage: Coverage) -> None:
        self.line = WaitingBatches()
        self._view = view
        self._block = coverage.block
        if self._block:
            self._coverage = coverage
            self._opened = np.zeros(-(-len(view) // self._block), bool)
            self._passes = {
                source: begin_pass(files, self, None, coverage.buffer) for source, files in remote.items()
            }
        else:
            self._passes = {
                source: begin_pass(files, self, (self._in_source(source, part) for part in coverage.parts()))
                for source, files in remote.items()
            }

    def _in_source(self, source: int, positions: _Positions) -> _Positions:
        """The samples of a source that lie at some positions."""
        sources, indices, _ = self._view.image_rows(self._view.existing(positions))  # type: ignore[arg-type]
        found: _Positions = indices[sources == source].astype(np.int64)
        return found

    def hold_back(self, early: bool) -> None:
        """Says whether the pass is one that nobody has asked for yet: then nothing beside its batches'
        samples is fetched."""
        for each in self._passes.values():
            each.early = early

    def opens(self, positions: _Positions) -> _Positions:
        """The positions of all blocks in which these, those of a batch, are the first."""
        if not self._block:
            return positions[:0]
        blocks = np.unique(positions // self._block)
        new = blocks[~self._opened[blocks]]
        self._opened[new] = True
        found = (new[:, None] * self._block + np.arange(self._block)).ravel()
        return self._coverage.among(found)

    def opened(self, source: int, opens: _Positions) -> _Positions:
        """The samples of a source at positions that `opens` returned."""
        return self._in_source(source, opens) if len(opens) else opens

    def share(self, part: BatchPart) -> PassShare:
        """A batch's share of the pass over one source, whose tables were fetched. Raises DatasetError: one
        is damaged."""
        owner, files = self._passes[part.source], part.files
        if not self._block:
            return PassShare(owner)
        shards, _, units = files.known_units(part.indices)
        used: list[Unit] = list(zip(shards.tolist(), units.tolist(), strict=True))
        return PassShare(owner, files.missing(part.opens) if len(part.opens) else (), used)
