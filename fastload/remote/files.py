"""RemoteFiles: the files of a packed dataset in a bucket, read through the cache on the local disk;
begin_pass: a pass over them.

NOTE [ remote: who has what ]
A RemoteFiles is a value: URL, cache, options. Everything that it opens (connections, the cache's locks, the
fetcher and its thread) is in a Session, which belongs to one process: a forked child opens another on first
use, and shares no connection and no lock with its parent. The child inherits the states of the shards. It
makes its locks anew, since a thread of the parent may have held them.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from fastload._native import core
from fastload.common.files import expanded
from fastload.common.forks import call_in_children
from fastload.common.limits import parse_timeout
from fastload.common.system import available_memory
from fastload.common.urls import normalized, shown
from fastload.errors import ArgumentError, ClosedError, DatasetError, RemoteMissingError, SampleError
from fastload.health import tracing
from fastload.remote.cache_folder import default_folder
from fastload.remote.credentials import sendable
from fastload.remote.dataset_cache import CachedShard, CachedSidecar
from fastload.remote.failures import BytesCheck
from fastload.remote.kept_table import CachePlace
from fastload.remote.learnt_images import LearntImages, StoredIndexes
from fastload.remote.manifest import check_places, read_manifest
from fastload.remote.requests import HELD_BYTES, MEMORY_SHARE, Pass, PassShare, Request, Unit
from fastload.remote.session import RemoteStatus, Session
from fastload.remote.shared_files import open_in_dataset
from fastload.store.checked import Bad
from fastload.store.entries import Segment, ShardEntry
from fastload.store.groups import GROUP_BYTES
from fastload.store.manifest import MANIFEST_NAME, Manifest, dataset_folder, version_name
from fastload.store.reader import DatasetFiles
from fastload.store.segment_file import SegmentFile
from fastload.store.sidecar import (
    PLACES,
    Section,
    Sidecars,
    add_directory,
    damaged_column,
    directory_of,
    unplaced,
)

TIMEOUT_S = 60.0
"""Default of `timeout`: seconds within which a request is tried again."""
T = TypeVar("T")
_AT_ONCE_BYTES = 4 << 20
"""Bytes of sidecars up to which all of their tables are fetched when a dataset is opened: by few requests."""
_AGAIN = "push the dataset again; `fastload verify` checks the rest"


class RemoteFiles(DatasetFiles):
    """The files of a packed dataset below a URL. See NOTE [ remote: who has what ].

    Args:
        url: URL of the dataset.
        cache: folder of all caches; None: FASTLOAD_CACHE, or fastload in the user's cache folder.
        cache_size: most bytes of all caches in the folder; None: the bytes they have, and 0.8 of the free
            ones.
        storage_options: options of the store, as `open_objects` takes them.
        timeout: seconds within which a request is tried again.
        local: the files of a dataset in a folder whose images lie in objects of a store; None: all of it
            lies below the URL, or in such objects.

    Attributes:
        mean_bytes: mean size of a record, once the dataset is open.
        cache_folder: folder of all caches.
    """

    remote = True

    def __init__(
        self,
        url: str,
        cache: str | os.PathLike[str] | None = None,
        cache_size: int | str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        timeout: float = TIMEOUT_S,
        local: DatasetFiles | None = None,
    ) -> None:
        self.name = shown(url) if local is None else local.name
        self._local = local
        self._arguments = normalized(url), cache, cache_size, dict(storage_options or {}), timeout
        self.cache_folder = (default_folder() if cache is None else Path(expanded(cache))).absolute()
        self._session: Session | None = None
        self._learnt: LearntImages | None = None
        self._lock = threading.Lock()
        _alive.add(self)
        self._firsts: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self._rows: list[npt.NDArray[np.uint32] | None] = []
        self._shards: list[CachedShard] = []
        self._sections: list[Section] = []
        self._tables: dict[int, tuple[int, CachedSidecar]] = {}  # by section: where its tables are
        self._there: dict[
            str, npt.NDArray[np.bool_]
        ] = {}  # by name and shard: True if its table is known to be on this host
        self.mean_bytes = 1
        self._held: dict[
            int, tuple[Buffer, int]
        ] = {}  # records in memory, by sample, and the number of blocks that hold each

    def __reduce__(self) -> tuple[object, ...]:
        url, cache, size, options, timeout = self._arguments
        return RemoteFiles, (url, cache, size, sendable(options), timeout, self._local)

    @property
    def session(self) -> Session:
        """The session of this process, opened on first use."""
        found = self._session
        if found is None or found.pid != os.getpid():
            with self._lock:
                found = self._session
                if found is None or found.pid != os.getpid():
                    before, found = found, Session(*self._arguments, self._local is not None)
                    if before is not None:
                        found.shards = before.shards
                        if before.manifest is not None:
                            found.opened(before.manifest)
                    self._session = found
        return found

    @property
    def running(self) -> bool:
        """True if this process has a session whose fetches can still end."""
        found = self._session
        return found is not None and found.pid == os.getpid() and found.running

    @property
    def shards(self) -> list[CachedShard]:
        """The open shards. Raises ClosedError after `close`, until the dataset is opened again."""
        if not self.session.shards:
            raise ClosedError(f"{self.name} was closed: open it again")
        return self._shards

    # ---- opening

    def manifest(self, version: int | None = None) -> Manifest:
        """The dataset's manifest: one request, and one more for an older version. Raises DatasetError."""
        if self._local is not None:
            return self._local.manifest(version)
        now = self._manifest(MANIFEST_NAME)
        if version is None or version == now.version:
            return now
        try:
            old = self._manifest(version_name(version)) if 1 <= version < now.version else None
        except RemoteMissingError:
            old = None
        if old is None or old.version != version:
            raise DatasetError(
                f"{self.name} has no version {version}: it has {now.version}, and those that were pushed"
            )
        return old

    def _manifest(self, name: str) -> Manifest:
        session = self.session
        try:
            assert session.objects is not None
            (found,) = session.together([partial(read_manifest, session.objects, name)])
        except RemoteMissingError as error:
            if name != MANIFEST_NAME:
                raise
            raise RemoteMissingError(
                f"{self.name} holds no packed dataset (no {MANIFEST_NAME}): put one there with "
                f"`fastload push DATASET {self.name}`",
                url=error.url,
            ) from None
        manifest: Manifest = found
        return manifest

    def check(self, manifest: Manifest) -> None:
        """Checks that all files of the dataset lie at its URL. Raises DatasetError."""
        if self._local is None:
            check_places(manifest, str(self.name))

    def open_shards(self, manifest: Manifest) -> Sidecars:
        """Makes the files of shards and sidecars in the cache ready, and returns the dataset's sidecars.
        Raises DatasetError."""
        session = self.session
        rows = {shard.rows: None for shard in manifest.shards if shard.rows is not None}
        remote = manifest.sidecars if self._local is None else ()
        directories = {directory_of(segment): segment for segment in remote}
        wanted = [*directories, *rows]
        data = dict(
            zip(wanted, session.together([partial(self.segment, segment) for segment in wanted]), strict=True)
        )
        sidecars, cached = Sidecars() if self._local is None else self._local.open_shards(manifest), []
        for directory, segment in directories.items():
            before = len(sidecars)
            with suppress(DatasetError):
                name, tables = f"{self.name}/{segment.file}", segment.bytes - directory.bytes
                add_directory(sidecars, data[directory].data, None, segment.offset, tables, name)
                cached.append((segment, before, len(sidecars)))
        found = []
        for shard in manifest.shards:
            section = sidecars.get(shard)
            if section is None and shard.foreign is not None:
                raise unplaced(shard)
            if section is None:
                raise DatasetError(
                    f"{self.name} has no sidecar that says where {shard.file} has its samples: put "
                    "it there with `fastload push`, "
                    "which makes one"
                )
            found.append((shard, section))
        kept = [
            CachedSidecar(session.cache.path, segment, sidecars.opened(first, last))
            for segment, first, last in cached
        ]
        try:
            segments = [segment for shard in manifest.shards for segment in shard.segments]
            shards = session.cache.shards(found, kept, [*wanted, *segments])
        except Bad as error:
            raise DatasetError(f"{self.name}: {error}: {_AGAIN}") from None
        self._tables, self._there = {}, {}
        for number, (file, (_, first, last)) in enumerate(zip(kept, cached, strict=True), len(shards)):
            opened = file.open(session.cache.root.writable)
            for section in sidecars.opened(first, last):
                section.file = opened
                self._tables[id(section)] = number, file
        self._sections, self._shards = [section for _, section in found], shards
        for cached_shard, shard in zip(shards, manifest.shards, strict=True):
            if shard.foreign is not None and (beside := shard.foreign.beside) is not None:
                cached_shard.beside = self.segment_file(beside)
        session.shards[:] = [*shards, *kept]
        session.opened(manifest)
        self._firsts = np.fromiter((shard.first for shard in manifest.shards), np.int64, len(manifest.shards))
        stored = sum(shard.stored for shard in manifest.shards)
        self.mean_bytes = max(1, manifest.image_bytes // max(1, stored))
        if (
            any(shard.in_pages and not shard.is_plain for shard in shards)
            and multiprocessing.parent_process() is None
        ):
            session.folder.warn_of_pages(manifest.image_bytes)
        self._rows = [
            None if shard.rows is None else data[shard.rows].view("<u4") for shard in manifest.shards
        ]
        if sum(segment.bytes for segment, _, _ in cached) <= _AT_ONCE_BYTES:
            names = {name for section in self._sections for name in section.widths}
            self._fetch_lacking(self.lacking_tables(np.arange(len(shards)), sorted(names)))
        return sidecars

    def learn(self, store: core.Store, manifest: Manifest) -> None:
        """Has readers of a store learn of foreign images, and keeps that in the cache folder."""
        if manifest.is_foreign:
            url, cache, size, _, _ = self._arguments
            folder = default_folder() if cache is None else Path(expanded(cache))
            self._learnt = LearntImages(CachePlace(os.fspath(folder), size), url, manifest, store)
            shards = {
                number: (shard, self.segment_file(foreign.indexes), partial(_sample_of, shard, rows))
                for number, (shard, rows) in enumerate(zip(self._shards, self._rows, strict=True))
                if (foreign := shard.entry.foreign) is not None and foreign.indexes is not None
            }
            self.session.fetcher.indexes = StoredIndexes(store, shards) if shards else None

    def fetch_tables(self, shards: Iterable[int], name: str, heal: bool = False) -> None:
        """Fetches tables of the shards' sections which this host lacks, and waits for them.

        Args:
            shards: numbers of the shards.
            name: name of the tables: a column's, or PLACES.
            heal: True if the cached ones are damaged.

        Raises:
            RemoteError: a table cannot be fetched.
            DatasetError: a table's bytes differ from the packed ones, or cannot be kept.
        """
        self._fetch_lacking(self.lacking_tables(np.fromiter(shards, np.int64), (name,), heal), heal)

    def _fetch_lacking(self, lacking: list[Unit], heal: bool = False) -> None:
        """Fetches tables, and waits for them. Raises as `fetch_tables`."""
        if lacking:
            request = Request(lacking, 0, heal=heal)
            self.session.add(request)
            self.session.wait(request)
            self.keep_tables(request)

    def lacking_tables(
        self, shards: npt.NDArray[np.int64], names: Iterable[str], heal: bool = False
    ) -> list[Unit]:
        """The tables of the shards' sections which this host lacks, or all of them with `heal`, as units
        of the cache."""
        lacking: list[Unit] = []
        for name in names if self.shards else ():
            there = self._there.setdefault(name, np.zeros(len(self._sections), bool))
            for number in (shards if heal else shards[~there[shards]]).tolist():
                where, file = self._tables.get(id(self._sections[number]), (-1, None))
                unit = None if file is None else file.unit_of(self._sections[number], name)
                if file is None or unit is None or (file.state[unit] and not heal):
                    there[number] = True
                else:
                    lacking.append((where, unit))
        return lacking

    def request_tables(
        self, lacking: Iterable[Unit], done: Callable[[Request], None], heal: bool = False
    ) -> None:
        """Begins to fetch tables that `lacking_tables` returned. `done` is called in the fetcher's thread;
        it calls `keep_tables`."""
        self.session.add(Request(lacking, 0, None, done, heal))

    def keep_tables(self, request: Request) -> None:
        """Puts tables that a finished request holds in memory where they are read. Raises as
        `fetch_tables` does."""
        if request.error is not None:
            raise request.error.with_traceback(None)
        for (where, unit), (_, body) in request.taken.items():
            kept = self.session.shards[where]
            assert isinstance(kept, CachedSidecar)
            if kept.damaged(unit, unit, memoryview(body)):
                raise DatasetError(
                    f"{self.name}/{kept.entry.file} is damaged (its checksum does not match): {_AGAIN}"
                )
            try:
                kept.take(unit, body)
            except OSError as error:
                raise DatasetError(
                    f"{self.name}: the tables of {kept.entry.file} cannot be kept in {kept.path}: "
                    f"{error.strerror}"
                ) from None

    def shard_path(self, shard: ShardEntry) -> Path | None:
        """The path of a shard's sparse file; None: the cache has none."""
        found = self.shards[int(np.searchsorted(self._firsts, shard.first))]
        return None if found.absent else found.path

    def base_path(self, shard: ShardEntry) -> str | None:
        """None: no attached files lie in a bucket."""
        return None

    def segment_file(self, segment: Segment) -> SegmentFile:
        """A segment that is read in parts, once the fetcher has fetched it."""
        if self._local is not None:
            return self._local.segment_file(segment)
        path = self.session.cache.segment_path(segment)
        return SegmentFile(segment, lambda: open_in_dataset(path, os.O_RDONLY))

    def segment(self, segment: Segment, into: memoryview | None = None) -> npt.NDArray[np.uint8]:
        """The checked bytes of a segment: from the folder or the cache, or fetched and kept there."""
        if self._local is not None:
            return self._local.segment(segment, into)
        data = self._cached_segment(segment)
        if data is None:
            check = BytesCheck(lambda body: core.crc32c(memoryview(body)) == segment.crc32c)
            assert self.session.objects is not None
            body = memoryview(
                self.session.objects.get_range(
                    segment.file, segment.offset, segment.offset + segment.bytes, check
                )
            )
            if check.damaged:
                raise DatasetError(
                    f"{self.name}/{segment.file} is damaged (its checksum does not match): {_AGAIN}"
                )
            data = np.frombuffer(body, np.uint8)
            self.session.cache.keep_segment(segment, body)
        if into is None:
            return data
        target = np.frombuffer(into, np.uint8)
        np.copyto(target, data)
        return target

    def _cached_segment(self, segment: Segment) -> npt.NDArray[np.uint8] | None:
        try:
            with open(open_in_dataset(self.session.cache.segment_path(segment), os.O_RDONLY), "rb") as file:
                data = np.fromfile(file, np.uint8)
        except OSError:
            return None
        return data if len(data) == segment.bytes and core.crc32c(data) == segment.crc32c else None

    # ---- records

    def rows(self, indices: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """(shards, stored rows) of samples."""
        shards = np.searchsorted(self._firsts, indices, side="right") - 1
        rows = indices - self._firsts[shards]
        for number, mine in by_shard(shards) if any(counting is not None for counting in self._rows) else ():
            counting = self._rows[number]
            if counting is not None:
                rows[mine] = counting[rows[mine]]
        return shards, rows

    def units(
        self, indices: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """(shards, stored rows, units) of samples. Fetches places as `fetch_tables`, also those that are
        damaged in the cache."""
        return self._with_places(self.known_units, indices)

    def _with_places(self, read: Callable[[npt.NDArray[np.int64]], T], indices: npt.NDArray[np.int64]) -> T:
        """The result of a method that reads places of samples, after they were fetched; again where they
        are damaged in the cache."""
        numbers = np.unique(self.rows(indices)[0]).tolist()
        self.fetch_tables(numbers, PLACES)
        try:
            return read(indices)
        except DatasetError:
            self.fetch_tables(numbers, PLACES, heal=True)
            return read(indices)

    def known_units(
        self, indices: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """(shards, stored rows, units) of samples whose places were fetched. Fetches nothing. Raises
        DatasetError: a table is damaged."""
        shards, rows = self.rows(indices)
        units = rows.copy()
        for number, mine in by_shard(shards):
            if not self.shards[number].single:
                units[mine] = self.shards[number].groups.of(rows[mine])
        return shards, rows, units

    def mark(self, number: int, rows: npt.NDArray[np.int64], mask: npt.NDArray[np.bool_]) -> None:
        """Marks the units of a shard's stored rows in a mask, which is a hint of what a pass needs.

        Where records share units and the shard's places were not fetched yet, all units are marked, or none:
        whichever is nearer to what as many rows in random places need.
        """
        shard = self.shards[number]
        if shard.single:
            mask[rows] = True
        elif self.lacking_tables(np.array([number], np.int64), (PLACES,)):
            share = len(rows) / shard.entry.stored
            mask[: shard.grouped] = (1 - share) ** (shard.entry.stored / shard.grouped) < 0.5
        else:
            with suppress(DatasetError):  # its place is read again when it is asked for
                mask[shard.groups.of(rows)] = True

    def missing(self, indices: npt.NDArray[np.int64]) -> list[Unit]:
        """The units of samples that the cache is not known to have, whose places were fetched. Raises as
        `known_units` does."""
        shards, _, units = self.known_units(indices)
        found: list[Unit] = []
        for number, mine in by_shard(shards):
            lacking = units[mine][self.shards[number].state[units[mine]] == 0]
            if len(lacking) and self.shards[number].single:
                self._sections[number].table().take(lacking)  # their places, which the fetcher reads, hold
            found += [(number, unit) for unit in lacking.tolist()]
        return found

    def lacking_bytes(self, indices: npt.NDArray[np.int64]) -> int:
        """Bytes of samples that the cache is not known to have, of a record's mean size where their places
        are not there either."""
        if self.lacking_tables(np.unique(self.rows(indices)[0]), (PLACES,)):
            return len(indices) * self.mean_bytes
        lacking, end = 0, (-1, 0)  # units that come by one page overlap
        for shard, unit in sorted(set(self.missing(indices))):
            start, stop = self.shards[shard].range_of(unit)
            lacking += max(0, stop - (max(start, end[1]) if shard == end[0] else start))
            end = shard, max(stop, end[1]) if shard == end[0] else stop
        return lacking

    def looked_up(self, indices: npt.NDArray[np.int64]) -> list[Unit]:
        """`missing` of samples that are wanted now, told to the trace that is taken. Raises as `missing`
        does."""
        tracer = tracing.active
        if tracer is None:
            return self.missing(indices)
        began = core.clock_ns()
        found = self.missing(indices)
        tracer.add("cache", began, {"samples": len(indices), "hits": len(indices) - len(found)})
        return found

    def request(
        self,
        indices: npt.NDArray[np.int64],
        owner: object | None = None,
        done: Callable[[Request], None] | None = None,
        begin: Callable[[], None] = lambda: None,
        lacking: list[Unit] | None = None,
        share: PassShare | None = None,
    ) -> Request | None:
        """Begins to fetch the records of samples. Returns None if all are in the cache.

        Args:
            indices: the samples.
            owner: the request is cancelled once this object no longer exists; None: it is never cancelled.
            done: called with the request at its end, in the fetcher's thread.
            begin: called before the request begins; not called if there is none.
            lacking: the units that `missing` returned for the samples, whose places were fetched; None: both
                are done here.
            share: the samples' share of a pass; None: they belong to no pass.
        """
        if lacking is None:
            lacking = self._with_places(self.looked_up, indices)
        if not lacking:
            self.note(share)
            return None
        request = Request(lacking, self.mean_bytes * len(indices), owner, done, share=share)
        begin()
        self.session.add(request)
        return request

    def note(self, share: PassShare | None) -> None:
        """Tells a pass of samples that are asked for, where the cache lacks none of them."""
        if share is not None and (share.opens or share.owner.holds):
            self.session.call(share.note)

    def cached(self) -> int:
        """Number of samples in the cache."""
        return sum(map(self._cached_of, range(len(self.shards))))

    def _cached_of(self, number: int) -> int:
        shard = self.shards[number]
        there = shard.state[: shard.grouped]
        if not there.any() or there.all():
            return shard.entry.count if there.any() else 0
        units = self.units(shard.entry.first + np.arange(shard.entry.count))[2]
        return int((there[units] != 0).sum())

    def status(self) -> RemoteStatus:
        """State of the cache, and bytes and requests of this process's fetches."""
        session = self.session
        fetched, ranges = session.fetched
        count = sum(shard.entry.count for shard in self.shards)
        return RemoteStatus(
            str(self.name),
            self.cached(),
            count,
            session.cache.path,
            fetched,
            ranges,
            session.folder.why,
            session.folder.lacks_room,
        )

    def taken(self, request: Request, indices: npt.NDArray[np.int64]) -> Iterator[tuple[int, memoryview]]:
        """(position in `indices`, record) of the samples whose records a finished request holds in memory;
        the others are in the cache."""
        if not request.taken:
            return
        where = (each.tolist() for each in self.known_units(indices))
        for at, (shard, row, unit) in enumerate(zip(*where, strict=True)):
            found = request.taken.get((shard, unit))
            if found is not None:
                yield at, self.shards[shard].record_in(row, *found)

    def lost(self, request: Request, indices: npt.NDArray[np.int64]) -> Iterator[tuple[int, str]]:
        """(position in `indices`, reason) of the samples in foreign objects that a finished request found
        lost."""
        if not request.lost:
            return
        shards, _, units = (each.tolist() for each in self.known_units(indices))
        for at, unit in enumerate(zip(shards, units, strict=True)):
            if unit in request.lost:
                yield at, str(request.lost[unit])

    def _raise_lost(self, request: Request) -> None:
        """Raises SampleError where the object of a request's sample is lost."""
        for error in request.lost.values():
            raise SampleError("", reason=str(error))

    def record(self, index: int) -> Buffer | None:
        """The bytes of a sample that the cache lacks, from memory; None: the cache has them. Raises
        RemoteError, SampleError."""
        held = self._held.get(index)
        record = None if held is None else held[0]
        if record is None:
            request = self.request(np.array([index], np.int64))
            if request is None:
                return None
            self.session.wait(request)
            self._raise_lost(request)
            record = next((found for _, found in self.taken(request, np.array([index], np.int64))), None)
        if record is not None and not memoryview(record).nbytes:
            return None
        if record is not None and not self._is_good(index, record):
            raise SampleError(
                "",
                reason=f"its bytes in {self.name} are not those that were packed (CRC32C differs): {_AGAIN}",
            )
        return record

    def _is_good(self, index: int, record: Buffer) -> bool:
        shards, rows, _ = self.units(np.array([index], np.int64))
        return self.shards[int(shards[0])].is_record(int(rows[0]), record)

    @contextmanager
    def held(self, indices: Sequence[int]) -> Iterator[None]:
        """Fetches records in one request; those without room in the cache stay in memory during the block.
        Raises RemoteError."""
        where = np.asarray(indices, np.int64)
        request = self.request(where)
        if request is None:
            yield
            return
        self.session.wait(request)
        with self.holding(request, where):
            yield

    @contextmanager
    def holding(self, request: Request, indices: npt.NDArray[np.int64]) -> Iterator[None]:
        """Keeps the records that a finished request holds in memory where `record` finds them, during the
        block."""
        mine: list[int] = []
        for at, record in self.taken(request, indices):
            index = int(indices[at])
            with self._lock:
                self._held[index] = record, self._held.get(index, (record, 0))[1] + 1
            mine.append(index)
        try:
            yield
        finally:
            with self._lock:
                for index in mine:
                    kept, holders = self._held.pop(index)
                    if holders > 1:
                        self._held[index] = kept, holders - 1

    def heal(self, index: int) -> Buffer:
        """The bytes of a sample that in the cache were damaged, fetched again. Raises RemoteError,
        SampleError."""
        where = np.array([index], np.int64)
        (shard,), (row,) = (each.tolist() for each in self.rows(where))
        try:
            self._sections[shard].table().read(row, 1)
        except DatasetError:
            self.fetch_tables([shard], PLACES, heal=True)
        (unit,) = self.units(where)[2].tolist()
        request = Request([(shard, unit)], 0, heal=True)
        self.session.add(request)
        self.session.wait(request)
        self._raise_lost(request)
        record = next(found for _, found in self.taken(request, where))
        if not self._is_good(index, record):
            raise SampleError(
                "",
                reason=f"its bytes in {self.name} are not those that were packed (CRC32C differs): {_AGAIN}",
            )
        return record

    def fetch_columns(self, shards: Iterable[int], name: str, heal: bool = False) -> dict[int, Buffer]:
        """Fetches a column's chunks of shards. Returns those without room in the cache, by shard. `heal`: the
        cached ones are damaged.

        Raises:
            RemoteError: a chunk cannot be fetched.
            DatasetError: a chunk's bytes differ from the packed ones.
        """
        session, known = self.session, self.shards
        units = [
            (number, known[number].columns[name][0])
            for number in shards
            if name in known[number].columns and known[number].entry.foreign is None
        ]
        lacking = [unit for unit in units if heal or not known[unit[0]].state[unit[1]]]
        if not lacking:
            return {}
        request = Request(lacking, 0, heal=heal)
        session.add(request)
        session.wait(request)
        for (number, _), (_, data) in request.taken.items():
            if core.crc32c(memoryview(data)) != known[number].entry.columns.get(name):
                raise damaged_column(name, known[number].entry.file)
        return {number: data for (number, _), (_, data) in request.taken.items()}

    def close(self) -> None:
        """Closes this process's session; idempotent."""
        self._learnt = None
        session, self._session = self._session, None
        if session is not None:
            session.close()
        # With which the tables' files are closed.
        self._shards, self._sections, self._tables, self._there = (
            [],
            [],
            {},
            {},
        )


_alive: weakref.WeakSet[RemoteFiles] = weakref.WeakSet()


def _sample_of(shard: CachedShard, counting: npt.NDArray[np.uint32] | None, row: int) -> int:
    """The sample of a stored row of a shard; -1: it does not count."""
    if counting is None:
        return shard.entry.first + row
    at = int(np.searchsorted(counting, row))
    return shard.entry.first + at if at < len(counting) and counting[at] == row else -1


def _after_fork() -> None:
    for files in list(_alive):
        files._lock, files._held = threading.Lock(), {}


call_in_children(_after_fork)


def by_shard(shards: npt.NDArray[np.int64]) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """(number, positions in `shards`) of each shard that occurs."""
    if not len(shards):
        return
    order = np.argsort(shards, kind="stable")
    numbers, firsts = np.unique(shards[order], return_index=True)
    yield from zip(numbers.tolist(), np.split(order, firsts[1:]), strict=True)


def remote_files(
    url: str,
    cache: str | os.PathLike[str] | None,
    cache_size: str | int | None,
    storage_options: object,
    timeout: float | str | None,
    local: DatasetFiles | None = None,
) -> RemoteFiles:
    """RemoteFiles made of a user's arguments. Raises ArgumentError."""
    if storage_options is not None and not isinstance(storage_options, Mapping):
        raise ArgumentError(f"storage_options is a {type(storage_options).__name__}, not a dict of options")
    seconds = TIMEOUT_S if timeout is None else parse_timeout(timeout)
    return RemoteFiles(url, cache, cache_size, storage_options, seconds, local)


def folder_files(
    path: str | os.PathLike[str],
    version: int | None = None,
    base: Path | None = None,
    cache: str | os.PathLike[str] | None = None,
    cache_size: str | int | None = None,
    storage_options: object = None,
    timeout: float | str | None = None,
) -> DatasetFiles:
    """The files of a dataset in a folder; where its images lie in a store, read through the cache.

    Raises:
        ArgumentError: an argument is wrong.
        DatasetError: there is no finished dataset.
    """
    folder = dataset_folder(path).absolute()
    files = DatasetFiles(folder, base)
    if not files.looked_at(version).is_foreign:
        return files
    return remote_files(folder.as_uri(), cache, cache_size, storage_options, timeout, files)


def begin_pass(
    files: RemoteFiles, owner: object, indices: Iterable[npt.NDArray[np.int64]] | None, buffer: int = 0
) -> Pass:
    """Begins a pass over a dataset in a bucket, which ends with its owner.

    Args:
        files: the files of the dataset.
        owner: the pass ends once this object no longer exists; the pass keeps no reference to it.
        indices: the samples that the pass will need, some at a time; None: it needs samples of blocks, and
            names them as it opens each block.
        buffer: most samples of open blocks that are not asked for yet.

    Raises:
        ClosedError: the dataset was closed.
    """
    session, masks, limit = files.session, None, 0
    if indices is None:
        free = available_memory()
        whole = 2 if files.mean_bytes < GROUP_BYTES else 1
        limit = min(
            whole * buffer * files.mean_bytes, HELD_BYTES if free is None else int(MEMORY_SHARE * free)
        )
    else:
        masks = [np.zeros(len(shard.state), bool) for shard in files.shards]
        for part in indices:
            shards, rows = files.rows(part)
            for number, mine in by_shard(shards):
                files.mark(number, rows[mine], masks[number])
    begun = Pass(masks, limit, session.room)
    session.call(session.fetcher.begin, begun)
    weakref.finalize(owner, _end, weakref.ref(session), begun).atexit = False
    return begun


def _end(session: weakref.ref[Session], begun: Pass) -> None:
    found = session()
    if found is not None:
        with suppress(ClosedError):  # the pass has ended with the fetcher
            found.call(begun.end)
