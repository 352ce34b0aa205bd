"""The task of one range: packs the samples of N consecutive places of the order into one shard, and publishes it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from fastload._native import core
from fastload.errors import DatasetError, FastloadError, PackError, PackStoppedError
from fastload.packing.cluster.cluster_plan import ClusterPlan, open_job, schema_of
from fastload.packing.cluster.depot import open_depot
from fastload.packing.cluster.records import ClusterJournal, DoneRecord, done_name, section_name
from fastload.packing.images import DeepImageError
from fastload.packing.job import write_failure
from fastload.packing.summary import Tally
from fastload.store import JOURNAL_NAME, Prepared, Schema, ShardEntry
from fastload.store.checked import Bad
from fastload.store.entries import shard_name
from fastload.store.manifest import MANIFEST_BYTES
from fastload.store.progress import SHARD_SIZE_LIMIT
from fastload.store.shard import ShardFile, durable_entry, map_bytes, prepare_sample
from fastload.store.sidecar import section


@dataclass(frozen=True)
class RangeDone:
    """Result of a task: the shard of a range is published.

    Attributes:
        number: number of the range, from 0.
        record: the done-record.
        packed: samples that this task wrote; 0 where the shard was there.
    """

    number: int
    record: DoneRecord
    packed: int


@dataclass(frozen=True)
class RangeFailed:
    """Result of a task that could not make its shard.

    Attributes:
        number: number of the range, from 0.
        error: the failure.
        place: place in the order of the sample that cannot be packed; -1: the failure is not a sample's.
        deep: True if that sample has more than 8 bits a channel.
    """

    number: int
    error: FastloadError
    place: int = -1
    deep: bool = False


class _Bad(Exception):
    """A sample that cannot be packed, under on_error="raise"."""

    def __init__(self, error: FastloadError, place: int, deep: bool) -> None:
        super().__init__(str(error))
        self.error, self.place, self.deep = error, place, deep


class ShardWriter:
    """Writes the samples of one range into a file; the file is begun by the first one."""

    def __init__(self, path: Path, key: int, schema: Schema) -> None:
        self._path = path
        self._key = key
        self._schema = schema
        self._file: ShardFile | None = None
        self.log = bytearray()

    def note(self, entry: bytes) -> None:
        """Logs the next sample, or one that is left out."""
        self.log += entry

    def append_prepared(self, sample: Prepared, *, state: Callable[[], dict[str, Any]]) -> None:
        """Appends a sample. Raises PackError if the disk is full or fails, or the shard is."""
        if self._file is None:
            self._file = ShardFile(self._path, self._key, self._schema, map_bytes(SHARD_SIZE_LIMIT))
        self._file.put(sample)
        if self._file.size >= SHARD_SIZE_LIMIT or self._file.column_full:
            raise PackError(f"{self._path.name} is full with {self._file.count:,} samples: choose a smaller shard_samples")

    def finish(self) -> ShardEntry | None:
        """Ends the file, and syncs it; its entry, or None if it has no sample. Raises PackError, OSError."""
        if self._file is None:
            return None
        columns = self._file.close()
        return replace(durable_entry(self._path, 0, self._file.count, columns), key=self._key)

    def abort(self) -> None:
        """Closes the file, as it is."""
        if self._file is not None:
            self._file.abort()


class RangePacker:
    """Makes shards of one plan, in one process. It opens the source once.

    Raises:
        PackError: the node does not see the source, or OUT, as the driver does.
    """

    def __init__(self, plan: ClusterPlan) -> None:
        self._plan = plan
        self._depot = open_depot(plan.out, plan.storage_options, plan.staging)
        try:
            self._check_token()
            self._job = open_job(plan, socket.gethostname())
        except BaseException:
            self._depot.close()
            raise
        self._schema = schema_of(self._job)

    def close(self) -> None:
        """Ends connections."""
        self._depot.close()

    def __call__(self, number: int) -> RangeDone | RangeFailed:
        """Makes the shard of a range, if it is not there."""
        try:
            self._check_token()
            done = self._published(number)
            return RangeDone(number, done, 0) if done is not None else self._make(number)
        except _Bad as bad:
            return RangeFailed(number, bad.error, bad.place, bad.deep)
        except FastloadError as error:
            return RangeFailed(number, error)
        except OSError as error:
            return RangeFailed(number, write_failure(self._depot.title, error))

    def _check_token(self) -> None:
        """Checks that OUT is the driver's, and this driver's. Raises PackError."""
        out, node = self._depot.title, socket.gethostname()
        data = self._depot.read(JOURNAL_NAME, MANIFEST_BYTES)
        if data is None:
            raise PackError(
                f"{out} is not the same folder on node {node} as where the driver runs (its {JOURNAL_NAME} is not there): give a folder "
                "that all nodes share, or a URL"
            )
        if ClusterJournal.from_bytes(data, out).token != self._plan.token:
            raise PackError(f"another pack on a cluster was begun into {out}: this one stops")

    def _places(self, number: int) -> range:
        start = number * self._plan.samples
        return range(start, min(start + self._plan.samples, len(self._job.order)))

    def _names(self, number: int) -> tuple[str, str, str]:
        number += self._plan.offset
        return shard_name(number), section_name(number), done_name(number)

    def _published(self, number: int) -> DoneRecord | None:
        """The done-record of a range whose shard is there, made of the samples that the source has now; None: it is to be made."""
        shard_file, section_file, done_file = self._names(number)
        data = self._depot.read(done_file, MANIFEST_BYTES)
        if data is None:
            return None
        places = self._places(number)
        try:
            record, log = DoneRecord.from_bytes(data, self._plan.identity, self._schema, places.start, shard_file)
            if self._job.tracer.resume_at(log, self._job.order[places.start : places.stop], self._plan.threads) != len(places):
                return None
        except (Bad, DatasetError, PackError):  # damaged, or of samples that have changed
            return None
        if record.shard is None:
            return record
        found, parts = self._depot.find(shard_file), self._depot.find(section_file)
        same = found == (record.shard.bytes, record.etag) and parts is not None and parts[0] == record.section[0]
        return record if same else None

    def _make(self, number: int) -> RangeDone:
        shard_file, section_file, done_file = self._names(number)
        with self._depot.making(shard_file) as path:
            writer = ShardWriter(path, self._places(number).start, self._schema)
            try:
                tally = self._pack(writer, self._places(number))
                shard = writer.finish()
            finally:
                writer.abort()
            self._check_token()
            etag, sizes = None, (0, 0)
            if shard is not None:
                parts = b"".join(section(path.parent, replace(shard, file=path.name), 0))
                etag = self._depot.publish(path, shard_file)
                self._depot.write(section_file, parts)
                sizes = len(parts), core.crc32c(parts)
                shard = replace(shard, file=shard_file)
        record = DoneRecord(shard, etag, sizes, tally.state())
        self._depot.write(done_file, record.to_bytes(self._plan.identity, bytes(writer.log)))
        return RangeDone(number, record, 0 if shard is None else shard.count)

    def _pack(self, writer: ShardWriter, places: range) -> Tally:
        job, tally = self._job, Tally()
        tally.max_pixels = job.options.max_pixels
        prepare = partial(prepare_sample, self._schema)
        workers = 0 if self._plan.threads == 1 else self._plan.threads  # a task of one CPU has no use for a second thread
        with closing(job.outcomes(prepare, places.start, places.stop, workers)) as outcomes:
            for outcome in outcomes:
                if outcome.prepared is None and job.options.on_error == "raise":
                    deep = isinstance(outcome.error, DeepImageError)
                    raise _Bad(PackStoppedError(f"{outcome.name}: {outcome.reason}"), places.start + tally.position, deep)
                job.write(writer, outcome, tally)
        return tally


_packers: dict[str, RangePacker] = {}
"""The packer of the plan that this process works for, by the plan's token."""


def pack_range(plan: Callable[[], ClusterPlan], token: str, number: int) -> RangeDone | RangeFailed:
    """Makes the shard of a range in this process, which keeps the source open for the next one. `plan` returns the plan of the token."""
    packer = _packers.get(token)
    if packer is None:
        while _packers:
            _packers.popitem()[1].close()
        try:
            packer = _packers[token] = RangePacker(plan())
        except FastloadError as error:
            return RangeFailed(number, error)
        except OSError as error:
            return RangeFailed(number, PackError(f"node {socket.gethostname()} cannot pack: {error}"))
    return packer(number)
