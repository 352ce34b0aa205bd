"""The task of one range: packs the samples of N consecutive places of the order into one shard, and
publishes it."""

from __future__ import annotations

import socket
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from fastload._native import core
from fastload.common.spill import SpilledBytes
from fastload.errors import DatasetError, FastloadError, PackError, PackStoppedError
from fastload.packing.cluster.cluster_plan import ClusterPlan, open_job, open_whole, other_samples
from fastload.packing.cluster.depot import open_depot
from fastload.packing.cluster.losses import AtHand
from fastload.packing.cluster.parts import Part
from fastload.packing.cluster.records import ClusterJournal, DoneRecord, names_of
from fastload.packing.job import Outcome, PackJob, write_failure
from fastload.packing.summary import Tally
from fastload.sources.pixels import DeepImageError
from fastload.sources.protocol import Listed, schema_of
from fastload.store import JOURNAL_NAME, Prepared, Schema, ShardEntry
from fastload.store.checked import Bad
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


@dataclass(frozen=True)
class Watched:
    """Settings of a task that has lost a process: it packs one sample at a time (NOTE [ cluster: which sample
    killed a process ]).

    Attributes:
        left_out: reasons by the places of the samples that it leaves out.
        note: called with each sample before it is packed, and after the last one.
    """

    left_out: Mapping[int, str]
    note: Callable[[AtHand], None]


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

    def append_all(self, samples: Sequence[Prepared], *, state: Callable[[], dict[str, Any]]) -> None:
        """Appends samples. Raises PackError if the disk is full or fails, or the shard is."""
        if self._file is None:
            self._file = ShardFile(self._path, self._key, self._schema, map_bytes(SHARD_SIZE_LIMIT))
        for sample in samples:
            self._file.put(sample)
        if self._file.size >= SHARD_SIZE_LIMIT or self._file.column_full:
            raise PackError(
                f"{self._path.name} is full with {self._file.count:,} samples: choose a smaller shard_samples"
            )

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
    """Makes shards of one plan, in one process. It opens the source once, and holds the samples of one range
    at a time.

    Raises:
        PackError: the node does not see the source, or OUT, as the driver does.
    """

    def __init__(self, plan: ClusterPlan) -> None:
        self._plan = plan
        self._depot = open_depot(plan.out, plan.storage_options, plan.staging, plan.timeout)
        try:
            self._check_token()
            self._whole = open_whole(plan, socket.gethostname())
        except BaseException:
            self._depot.close()
            raise
        self._schema = schema_of(self._whole)

    def close(self) -> None:
        """Ends connections."""
        self._depot.close()

    def __call__(self, part: Part, watched: Watched | None = None) -> RangeDone | RangeFailed:
        """Makes the shard of a range, if it is not there."""
        number = part.number
        try:
            self._check_token()
            job = open_job(self._plan, socket.gethostname(), part, self._whole)
            done = self._published(number, job)
            return RangeDone(number, done, 0) if done is not None else self._make(number, job, watched)
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
                f"{out} is not the same folder on node {node} as where the driver runs (its "
                f"{JOURNAL_NAME} is not there): give a folder "
                "that all nodes share, or a URL"
            )
        if ClusterJournal.from_bytes(data, out).token != self._plan.token:
            raise PackError(f"another pack on a cluster was begun into {out}: this one stops")

    def _names(self, number: int) -> tuple[str, str, str]:
        return names_of(number + self._plan.offset)

    def _published(self, number: int, job: PackJob) -> DoneRecord | None:
        """The done-record of a range whose shard is there, made of the samples that the source has now;
        None: it is to be made."""
        shard_file, section_file, done_file = self._names(number)
        data = self._depot.read(done_file, MANIFEST_BYTES)
        if data is None:
            return None
        try:
            record, log = DoneRecord.from_bytes(
                data, self._plan.identity, self._schema, number * self._plan.samples, shard_file
            )
            entries = SpilledBytes()
            entries.append(log)
            entries.seal()
            if job.origins.resume_at(entries, job.order, self._plan.threads) != len(job.order):
                return None
        except (Bad, DatasetError, PackError):  # damaged, or of samples that have changed
            return None
        if record.shard is None:
            return record
        found, parts = self._depot.find(shard_file), self._depot.find(section_file)
        same = (
            found == (record.shard.bytes, record.etag) and parts is not None and parts[0] == record.section[0]
        )
        return record if same else None

    def _make(self, number: int, job: PackJob, watched: Watched | None) -> RangeDone:
        shard_file, section_file, done_file = self._names(number)
        with self._depot.making(shard_file) as path:
            writer = ShardWriter(path, number * self._plan.samples, self._schema)
            try:
                tally = self._pack(writer, job, number * self._plan.samples, watched)
                shard = writer.finish()
            finally:
                writer.abort()
            self._check_token()
            etag, sizes = None, (0, 0)
            if shard is not None:
                parts = b"".join(section(path.parent, replace(shard, file=path.name)))
                etag = self._depot.publish(path, shard_file)
                self._depot.write(section_file, parts)
                sizes = len(parts), core.crc32c(parts)
                shard = replace(shard, file=shard_file)
        record = DoneRecord(shard, etag, sizes, tally.state())
        self._depot.write(done_file, record.to_bytes(self._plan.identity, bytes(writer.log)))
        return RangeDone(number, record, 0 if shard is None else shard.count)

    def _pack(self, writer: ShardWriter, job: PackJob, start: int, watched: Watched | None) -> Tally:
        tally, lists = Tally(), isinstance(self._whole, Listed) and self._whole.lists_files
        tally.max_pixels = job.options.max_pixels
        prepare = partial(prepare_sample, self._schema)
        # A task of one CPU has no use for a second thread.
        workers = 0 if self._plan.threads == 1 else self._plan.threads
        made = (
            job.outcomes(prepare, 0, len(job.order), workers)
            if watched is None
            else _watched(job, prepare, start, watched)
        )
        with closing(made) as outcomes:
            for outcome in outcomes:
                if lists and isinstance(outcome.error, FileNotFoundError):
                    raise other_samples(
                        f"{job.source.title}, in which {outcome.name} is not there,", socket.gethostname()
                    )
                if outcome.prepared is None and job.options.on_error == "raise":
                    deep = isinstance(outcome.error, DeepImageError)
                    raise _Bad(
                        PackStoppedError(f"{outcome.name}: {outcome.reason}"), start + tally.position, deep
                    )
                job.write(writer, outcome, tally)
        return tally


def _watched(
    job: PackJob, prepare: Callable[..., Prepared], start: int, watched: Watched
) -> Generator[Outcome]:
    """Outcomes of a range, whose first place is `start`, one sample at a time, each of which is noted
    before it is read, or left out."""
    for at in range(len(job.order)):
        position = int(job.order[at])
        name = job.source.name(position)
        if (reason := watched.left_out.get(start + at)) is not None:
            yield Outcome(name, None, job.origins.left_out(position), reason=reason)
            continue
        watched.note(AtHand(start + at, name))
        with closing(job.outcomes(prepare, at, at + 1, 0)) as outcomes:
            yield from outcomes
    watched.note(AtHand(-1, ""))


_packers: dict[str, RangePacker] = {}
"""The packer of the plan that this process works for, by the plan's token."""


def pack_range(
    plan: Callable[[], ClusterPlan], token: str, part: Part, watched: Watched | None = None
) -> RangeDone | RangeFailed:
    """Makes the shard of a range in this process, which keeps the source open for the next one. `plan`
    returns the plan of the token."""
    packer = _packers.get(token)
    if packer is None:
        while _packers:
            _packers.popitem()[1].close()
        try:
            packer = _packers[token] = RangePacker(plan())
        except FastloadError as error:
            return RangeFailed(part.number, error)
        except OSError as error:
            return RangeFailed(part.number, PackError(f"node {socket.gethostname()} cannot pack: {error}"))
    return packer(part, watched)
